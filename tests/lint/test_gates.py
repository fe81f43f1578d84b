"""Each gate of scripts/lint fails on a planted violation, and passes on the same tree without it."""
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
LONG = "".join(f"    n += {i};\n" for i in range(90))
BRANCHES = "".join(f"    if (n == {i})\n        n++;\n" for i in range(25))
HEADER = "/* A test header. */\n"


@pytest.fixture
def tree(tmp_path):
    """A small repository with the gates and one clean file of each kind."""
    shutil.copytree(REPO / "scripts", tmp_path / "scripts")
    shutil.copy(REPO / ".clang-format", tmp_path)
    (tmp_path / "scripts/lint/excused.txt").write_text("")
    write(tmp_path, "src/base/conf.h", HEADER + 'X(listen, "listen", STR, "", "", "")\n', fmt=False)
    write(tmp_path, "src/base/clean.c", '#include "base/conf.h"\n')
    write(tmp_path, "src/cli/cli.c", 'const struct cli_command cli_ps = {"ps", "", "list"};\n')
    write(tmp_path, "docs/configuration.md", "<!-- options begin -->\n<!-- options end -->\n")
    subprocess.run([tmp_path / "scripts/lint/config_docs.py", "--write"], cwd=tmp_path, check=True)
    write(tmp_path, "docs/user-guide.md", "`reitos ps` lists kernels. [more](configuration.md)\n")
    write(tmp_path, "tests/clean.py", "print(1)\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def write(tree, name, text, fmt=True):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if fmt and path.suffix in (".c", ".h"):
        shutil.copy(REPO / ".clang-format", path.parent.parent.parent)
        subprocess.run(["clang-format-14", "-i", str(path)], check=True)


def gate(tree, name):
    done = subprocess.run([tree / "scripts/lint" / name], cwd=tree, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


PLANTED = [
    ("format.sh", "src/base/ugly.c", "int  x ;\n", "ugly.c: not formatted"),
    ("layers.py", "src/base/up.c", '#include "gateway/gw.h"\n', "base may not include gateway"),
    ("layers.py", "src/wire/side.c", '#include "kernel/execq.h"\n', "wire may not include kernel"),
    ("layers.py", "src/kernel/bare.c", '#include "execq.h"\n', "by its folder"),
    ("layers.py", "src/gateway/json.c", "#include <jansson.h>\n", "jansson.h> may be included"),
    ("layers.py", "src/gateway/gw.c", "#include <libwebsockets.h>\n", "libwebsockets.h> may be"),
    ("layers.py", "src/kernel/z.c", "#include <zmq.h>\n", "zmq.h> may be included"),
    ("layers.py", "src/meta/etcd.c", "#include <curl/curl.h>\n", "curl.h> may be included"),
    ("layers.py", "src/gateway/db.c", "#include <sqlite3.h>\n", "sqlite3.h> may be included"),
    ("layers.py", "src/wire/sign.c", "#include <openssl/hmac.h>\n", "hmac.h> may be included"),
    ("layers.py", "src/other/x.c", "int x;\n", "src/other is no layer"),
    ("banned.py", "src/base/a.c", "void f(char *d)\n{\n    strcpy(d, d);\n}\n", "strcpy() is banned"),
    ("banned.py", "src/wire/a.c", "long f(void)\n{\n    return time(0);\n}\n", "time() is banned"),
    ("size.py", "src/base/long.c", "int f(int n)\n{\n" + LONG + "    return n;\n}\n", "lines, at"),
    ("size.py", "src/base/knot.c", "int f(int n)\n{\n" + BRANCHES + "    return n;\n}\n",
     "complexity 26"),
    ("size.py", "src/base/big.c", "int x;\n" * 1001, "1001 lines"),
    ("size.py", "src/base/mute.h", "int x;\n", "does not begin with a comment"),
    ("size.py", "scripts/lint/excused.txt", "src/base/clean.c gone() reason\n", "does not exist"),
    ("config_docs.py", "src/base/conf.h", HEADER + 'X(a, "new-one", INT, "", "", "")\n',
     "options differ"),
    ("docs.py", "src/cli/new.c", 'struct cli_command n = {\n    "new", ""};\n', "command reitos new"),
    ("docs.py", "src/gateway/new.c", 'const struct route new_routes[] = {\n    {METHOD(PUT), "api/new/{}"'
     ", put, NULL, 0},\n};\n", "PUT /api/new/{} is missing"),
    ("docs.py", "docs/openapi.yaml", "paths:\n  /api/old:\n    get:\n", "serves GET /api/old"),
    ("docs.py", "docs/x.md", "[gone](gone.md)\n", "leads nowhere"),
    ("docs.py", "docs/z.md", "`test_a.py::test_b` shows it\n", "no test test_a.py::test_b"),
    ("docs.py", "docs/y.md", "see /wo" + "rk/main/x\n", "private folder"),
    ("python.sh", "tests/bad.py", "def f(:\n", "bad.py"),
]


@pytest.mark.parametrize("script,path,text,message", PLANTED,
                         ids=[f"{p[0]}-{p[3][:24]}" for p in PLANTED])
def test_planted(tree, script, path, text, message):
    assert gate(tree, script) == (0, "")
    write(tree, path, text, fmt=script != "format.sh" and "conf.h" not in path)
    status, output = gate(tree, script)
    assert status == 1, output
    assert message in output


def test_harmless_lookalikes(tree):
    write(tree, "src/wire/ok.c",
          '/* strcpy(a, b) */\nint runtime(int);\nint f(struct s *x)\n{\n'
          '    return x->time(1) + sys.time(2) + runtime(3) + g("system(1)");\n}\n')
    assert gate(tree, "banned.py") == (0, "")


def test_excused(tree):
    write(tree, "src/base/long.c", "int f(int n)\n{\n" + LONG + "    return n;\n}\n")
    write(tree, "scripts/lint/excused.txt", "src/base/long.c f a table in code\n")
    assert gate(tree, "size.py") == (0, "")


def test_log_file_is_kept(tree):
    """A gate that speaks leaves in the log what was there before."""
    write(tree, "src/base/ugly.c", "int  x ;\n", fmt=False)
    log = tree / "log.txt"
    subprocess.run(f"(echo first; scripts/lint/format.sh) >{log} 2>&1", shell=True, cwd=tree)
    assert log.read_text().startswith("first\nsrc/base/ugly.c: not formatted")


def test_no_formatter(tree, tmp_path_factory):
    bare = tmp_path_factory.mktemp("bin")
    (bare / "dirname").symlink_to(shutil.which("dirname"))
    done = subprocess.run(["/bin/sh", "scripts/lint/format.sh"], cwd=tree, env={"PATH": str(bare)},
                          capture_output=True, text=True)
    assert done.returncode == 1 and "clang-format-14 is missing" in done.stderr


def test_all_names_the_gate(tree):
    write(tree, "src/base/up.c", '#include "sim/x.h"\n')
    status, output = gate(tree, "all.sh")
    assert status == 1 and "lint: failed: layers.py" in output


def test_setup_says_what_cannot_be_had(tree):
    write(tree, "scripts/packages-build.txt", "no-such-package-at-all\n")
    path = tree / "bin"
    path.mkdir()
    for tool in ("sh", "grep", "dirname", "dpkg-query", "id", "cat", "env", "mktemp", "tail", "rm"):
        (path / tool).symlink_to(shutil.which(tool))
    done = subprocess.run(["/bin/sh", str(tree / "scripts/setup.sh"), "build"], cwd=tree,
                          env={"PATH": str(path)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no-such-package-at-all" in done.stderr
