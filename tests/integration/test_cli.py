"""The command line as people and scripts use it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from cli import BUILD, Cli, code, markdown, text_of


@pytest.fixture
def cli():
    c = Cli()
    yield c
    c.close()


def kernel_of(cli):
    """The id of the one kernel, once it is busy with a cell."""
    def busy():
        rows = cli.json("ps")
        return rows[0]["id"] if len(rows) == 1 and rows[0]["state"] == "busy" else None
    return cli.wait_for(busy)


# --- running notebooks ---------------------------------------------------------------------------


def test_run_whole_notebook(cli):
    source = cli.notebook("a.ipynb", markdown("# Title"), code("x = 20\nprint('hello')"),
                          code(["import os\n", "(x + 1) * 2"]), code("   \n"),
                          code("from IPython.display import display, HTML\ndisplay(HTML('<b>'))"),
                          minor=2)
    before = source.read_bytes()
    p = cli("run", "a.ipynb")
    assert source.read_bytes() == before
    nb = nbformat.read(cli.work / "a.out.ipynb", as_version=nbformat.NO_CONVERT)
    nbformat.validate(nb)
    assert (nb.nbformat, nb.nbformat_minor) == (4, 5)
    assert len({c.id for c in nb.cells}) == 5
    assert [c.get("execution_count") for c in nb.cells] == [None, 1, 2, None, 3]
    assert text_of(nb.cells[1]) == "hello\n"
    assert text_of(nb.cells[2]) == "42"
    assert nb.cells[4].outputs[0].data["text/html"] == "<b>"
    assert nb.metadata.language_info.name == "python"
    assert len(re.findall(r"^\[\d/3\] +\d+\.\d s  ", p.err, re.MULTILINE)) == 3
    cli.wait_for(lambda: not cli.processes())  # kernel, zygote and shim are gone


def test_parameters(cli):
    cli.notebook("p.ipynb", code("import json"), code("lr = 1\nname = 'a'", tags=["parameters"]),
                 code("print(repr([lr, name, layers, flag, none, text]))"))
    cli("run", "p.ipynb", "-o", "done/../q.ipynb", "-p", "lr=0.5", "-p", "name=it's",
        "-p", "layers=[64, null]", "-p", "flag=true", "-p", "none=None", "-p", 'text="1"',
        rc=1)  # the folder does not exist
    cli("run", "p.ipynb", "-o", "q.ipynb", "-p", "lr=0.1", "-p", "lr=0.5", "-p", "name=it's",
        "-p", "layers=[64, null]", "-p", "flag=true", "-p", "none=None", "-p", 'text="1"')
    nb = cli.read("q.ipynb")
    assert nb["cells"][2]["metadata"]["tags"] == ["injected-parameters"]
    assert text_of(nb["cells"][3]) == "[0.5, \"it's\", [64, None], True, None, '1']\n"


def test_error_ends_the_run(cli):
    cli.notebook("e.ipynb", code("print(1)"), code("def f():\n    1 / 0\nf()"),
                 code("print(3)", outputs=[{"output_type": "stream", "name": "stdout",
                                            "text": "old"}]))
    p = cli("run", "e.ipynb", rc=1)
    assert "Cell 2 raised ZeroDivisionError" in p.err
    assert "division by zero" in p.err and "\033" not in p.err
    cells = cli.read("e.out.ipynb")["cells"]
    assert cells[1]["outputs"][0]["ename"] == "ZeroDivisionError"
    assert text_of(cells[2]) == "old" and cells[2]["execution_count"] is None
    cli("run", "e.ipynb", "--allow-errors")
    assert text_of(cli.read("e.out.ipynb")["cells"][2]) == "3\n"


def test_tolerated_error(cli):
    cli.notebook("t.ipynb", code("1 / 0", tags=["raises-exception"]), code("print('on')"))
    cli("run", "t.ipynb")
    assert text_of(cli.read("t.out.ipynb")["cells"][1]) == "on\n"


def test_timeout(cli):
    cli.notebook("s.ipynb", code("print('a', flush=True)\nimport time\ntime.sleep(60)"), code("2"))
    started = time.monotonic()
    p = cli("run", "s.ipynb", "--timeout", "1", rc=1)
    assert time.monotonic() - started < 30
    assert "--timeout 1 s" in p.err
    cells = cli.read("s.out.ipynb")["cells"]
    assert text_of(cells[0]).startswith("a\n") and "KeyboardInterrupt" in text_of(cells[0])
    assert cells[1]["outputs"] == []


def test_timeout_of_a_cell_that_ignores_interrupts(cli):
    cli.notebook("s.ipynb", code("print('a', flush=True)\nimport time\nwhile True:\n    try:\n"
                                 "        time.sleep(60)\n    except KeyboardInterrupt:\n"
                                 "        pass"))
    p = cli("run", "s.ipynb", "--timeout", "1", rc=1)
    assert "killed" in p.err
    assert text_of(cli.read("s.out.ipynb")["cells"][0]) == "a\n"
    cli.wait_for(lambda: not cli.processes())


def test_interrupt(cli):
    cli.notebook("s.ipynb", code("print('a', flush=True)\nimport time\ntime.sleep(60)"))
    p = cli.start("run", "s.ipynb")
    kernel_of(cli)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)
    assert p.returncode == 130
    assert "KeyboardInterrupt" in text_of(cli.read("s.out.ipynb")["cells"][0])
    cli.wait_for(lambda: not cli.processes())


def test_terminated(cli):
    cli.notebook("s.ipynb", code("import time\ntime.sleep(60)"))
    p = cli.start("run", "s.ipynb")
    kernel_of(cli)
    p.terminate()
    p.communicate(timeout=30)
    assert p.returncode == 143


def test_kernel_death(cli):
    cli.notebook("d.ipynb", code("print('a', flush=True)\nimport os, time\ntime.sleep(0.2)\n"
                                 "os.kill(os.getpid(), 9)"), code("2"))
    for options in [], ["--allow-errors"]:
        p = cli("run", "d.ipynb", *options, rc=1)
        assert "died" in p.err and "SIGKILL" in p.err
        cells = cli.read("d.out.ipynb")["cells"]
        assert text_of(cells[0]).startswith("a\n")
        assert cells[1]["execution_count"] is None


def test_killed_in_the_middle(cli):
    """What was done before kill -9 is in the file, and the kernel ends by itself."""
    cli.notebook("k.ipynb", code("print('first')"), code("import time\nfor i in range(600):\n"
                                                         "    print(i)\n    time.sleep(0.1)"))
    p = cli.start("run", "k.ipynb")
    out = cli.work / "k.out.ipynb"
    # saved in mid-cell, too
    cli.wait_for(lambda: out.exists() and "\n" in text_of(cli.read("k.out.ipynb")["cells"][1]))
    p.kill()
    p.communicate()
    nb = nbformat.read(out, as_version=4)
    nbformat.validate(nb)
    assert text_of(nb.cells[0]) == "first\n"
    assert text_of(nb.cells[1]).startswith("0\n1\n")
    assert not [f for f in os.listdir(cli.work) if f not in ("k.ipynb", "k.out.ipynb")]
    cli.wait_for(lambda: not cli.processes(), 30)


def test_display_of_an_earlier_cell_is_updated(cli):
    cli.notebook("u.ipynb", code("h = display('old', display_id='d')"),
                 code("from IPython.display import update_display\n"
                      "update_display('new', display_id='d')"))
    cli("run", "u.ipynb")
    assert text_of(cli.read("u.out.ipynb")["cells"][0]) == "'new'"


def test_widgets_are_shown_without_a_kernel(cli):
    """Their state is in the notebook, as other clients leave it there."""
    cli.notebook("w.ipynb", code("import ipywidgets as w\nfrom IPython.display import display\n"
                                 "slider = w.IntSlider(value=3, description='n')\n"
                                 "gone = w.Text('x'); picture = w.Image(value=b'\\x89PNG')\n"
                                 "slider"),
                 code("slider.value = 42\ngone.close()\npicture"))
    cli("run", "w.ipynb")
    nb = nbformat.read(cli.work / "w.out.ipynb", as_version=nbformat.NO_CONVERT)
    nbformat.validate(nb)
    kept = nb.metadata.widgets["application/vnd.jupyter.widget-state+json"]
    assert (kept.version_major, kept.version_minor) == (2, 0)
    shown = [c.outputs[0].data["application/vnd.jupyter.widget-view+json"].model_id
             for c in nb.cells]
    slider, picture = (kept.state[model] for model in shown)
    assert slider.model_name == "IntSliderModel"
    assert slider.model_module == "@jupyter-widgets/controls"
    assert (slider.state.value, slider.state.description) == (42, "n")
    assert slider.state.layout.removeprefix("IPY_MODEL_") in kept.state
    assert picture.buffers == [{"path": ["value"], "encoding": "base64", "data": "iVBORw=="}]
    assert "TextModel" not in {m.model_name for m in kept.state.values()}


def test_progress_bar_and_large_output(cli):
    cli.notebook("l.ipynb", code("for i in range(50):\n    print(i, end='\\r', flush=True)\n"
                                 "print()"), code("print('x' * 10_000_000)"))
    cli("run", "l.ipynb")
    cells = cli.read("l.out.ipynb")["cells"]
    assert text_of(cells[0]).strip() == "49"
    assert len(text_of(cells[1])) == 10_000_001


def test_folder_environment_and_input(cli):
    (cli.work / "sub").mkdir()
    cli.notebook("sub/n.ipynb", code("import os\nprint(os.getcwd(), os.environ['MARK'])"),
                 code("input()", tags=["raises-exception"]))
    cli.env["MARK"] = "mark"
    cli("run", "sub/n.ipynb", "-o", "n.ipynb")
    cells = cli.read("n.ipynb")["cells"]
    assert text_of(cells[0]) == f"{(cli.work / 'sub').resolve()} mark\n"
    assert cells[1]["outputs"][0]["ename"] == "StdinNotImplementedError"


def test_file_mode_and_empty_notebook(cli):
    cli.notebook("m.ipynb")
    out = cli.work / "m.out.ipynb"
    out.write_text("")
    out.chmod(0o640)
    cli("run", "m.ipynb")
    assert out.stat().st_mode & 0o777 == 0o640
    assert cli.read("m.out.ipynb")["cells"] == []


@pytest.mark.parametrize("content, says", [
    ("{", "line 2"), ("[]", ""), ('{"nbformat": 1, "cells": []}', "nbformat"), ("", ""),
    ('{"nbformat": 4, "metadata": {}}', "cells"),
])
def test_bad_notebooks(cli, content, says):
    (cli.work / "bad.ipynb").write_text(content + "\n")
    p = cli("run", "bad.ipynb", rc=2)
    assert p.err.startswith("reitos run: bad.ipynb: ") and says in p.err
    assert p.err.count("\n") == 1
    assert not (cli.work / "bad.out.ipynb").exists()


def test_wrong_use(cli):
    cli.notebook("a.ipynb", code("1"), kernelspec={"name": "nowhere", "display_name": "N"})
    for args, says in [
        (["run"], "needs NOTEBOOK"), (["run", "no.ipynb"], "No such file"),
        (["run", "a.ipynb"], "--kernel NAME"), (["run", "a.ipynb", "--kernel", "nope"], "nope"),
        (["run", "a.ipynb", "-p", "1=2"], "-p 1=2"), (["run", "a.ipynb", "--timeout", "x"], "x"),
        (["rum"], "did you mean run?"), (["run", "--paran", "x=1"], "did you mean --param?"),
        (["kill"], "--all"), (["ps", "-o", "xml"], "json|table"), (["--dat", "x"], "--data"),
    ]:
        p = cli(*args, rc=2)
        assert says in p.err and p.err.count("\n") == 1, p.err
    cli.env["REITOS_GRACE"] = "soon"
    assert "REITOS_GRACE" in cli("ps", rc=2).err


# --- looking after kernels -----------------------------------------------------------------------


def test_ps_log_kill(cli):
    cli.notebook("s.ipynb", code("print('one\\rtwo')"), code("print('live', flush=True)\n"
                                                              "import time\ntime.sleep(60)"))
    assert cli.json("ps") == []
    p = cli.start("run", "s.ipynb")
    kid = kernel_of(cli)
    cli.wait_for(lambda: "live" in cli("log", kid).out)
    (row,) = cli.json("ps")
    assert row["path"] == str((cli.work / "s.ipynb").resolve())
    assert row["name"] == "python3" and row["pid"] > 0 and row["memory_mib"] > 1
    assert kid[:8] in cli("ps").out
    messages = [json.loads(line) for line in cli("log", kid[:6], "-o", "json").out.splitlines()]
    assert [m["seq"] for m in messages] == sorted(m["seq"] for m in messages)
    assert {"execute_request", "execute_input", "stream"} <= {m["msg_type"] for m in messages}
    assert len(cli("log", kid, "-n", "3").out.splitlines()) == 3
    text = cli("log", kid, "--outputs").out
    assert "In [1]: print('one\\rtwo')\ntwo\n" in text and text.endswith("live\n")
    assert "In [1]" not in cli("log", kid, "--outputs", "-n", "1").out
    follow = cli.start("log", kid, "--outputs", "--follow")
    assert cli("kill", kid[:7]).out == kid + "\n"
    assert p.wait(timeout=30) == 1
    assert "stopped by someone else" in p.stderr.read()
    assert "live" in follow.communicate(timeout=20)[0]
    cli("log", kid, rc=1)
    cli("kill", "abc", rc=1)


def test_kill_all(cli):
    cli.notebook("s.ipynb", code("import time\ntime.sleep(60)"))
    runs = [cli.start("run", "s.ipynb", "-o", f"{i}.ipynb") for i in range(2)]
    cli.wait_for(lambda: len(cli.json("ps")) == 2)
    assert len(cli("kill", "--all", "--now").out.splitlines()) == 2
    assert [p.wait(timeout=30) for p in runs] == [1, 1]


def test_status_without_daemon(cli):
    p = cli("status", rc=3)
    assert "reitos up" in p.err and "not running" in p.out
    (cli.data / "run").mkdir(parents=True, exist_ok=True)
    (cli.data / "run/reitosd.json").write_text(json.dumps(
        {"url": "http://127.0.0.1:9/", "token": "hidden", "pid": 1, "started": "x"}))
    assert "daemon    does not answer" in cli("status", rc=3).out
    p = cli("status", "-o", "json", rc=3)
    assert json.loads(p.out)["status"] is None and "hidden" not in p.out + p.err


@pytest.mark.skipif(not (BUILD / "reitosd").exists(), reason="reitosd is not built")
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix", "tls"])
def test_up_and_status(cli, listen):
    more = []
    if listen == "unix":
        listen = f"unix:{cli.home}/d.sock"
    elif listen == "tls":
        listen, cert, key = "0.0.0.0:0", cli.home / "cert.pem", cli.home / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj",
                        "/CN=example.org", "-keyout", key, "-out", cert], check=True,
                       capture_output=True)
        more = ["--tls-cert", cert, "--tls-key", key]
    p = cli.start("up", "--listen", listen, "--root", cli.work, "--base-url", "/b/", *more)
    try:
        cli.wait_for(lambda: (cli.data / "run/reitosd.json").exists())
        status = cli.json("status")
        assert status["status"]["kernels"] == 0 and "token" not in status["daemon"]
        # a second daemon is refused and leaves the first one's address in place
        assert "another reitosd" in cli("up", "--listen", "127.0.0.1:0", rc=2).err
        assert "daemon " in cli("status").out
    finally:
        p.terminate()
        p.communicate(timeout=30)
    assert p.returncode == 0
    cli("status", rc=3)


def test_malformed_address(cli):
    assert "neither ADDR:PORT nor unix:PATH" in cli("up", "--listen", "here", rc=2).err


# --- texts ---------------------------------------------------------------------------------------


def test_help_man_completion(cli):
    for args in ["help"], ["--help"], ["help", "run"], ["run", "--help"], ["ps", "-h"]:
        p = cli(*args)
        assert "Usage: reitos" in p.out and p.err == ""
        assert max(map(len, p.out.splitlines())) <= 100
    assert "Usage" in cli(rc=2).err
    assert cli("version").out == cli("--version").out
    assert cli.json("version")["version"]
    man = cli("--man").out
    assert man.startswith(".TH REITOS 1") and "\\-\\-allow\\-errors" in man
    if os.path.exists("/usr/bin/groff"):
        p = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=man, capture_output=True,
                           text=True, check=True, env=cli.env)
        assert "--allow-errors" in p.stdout and p.stderr == ""
    script = cli("completion", "bash").out + (
        "\nCOMP_WORDS=(reitos ru); COMP_CWORD=1; _reitos; echo ${COMPREPLY[@]}"
        "\nCOMP_WORDS=(reitos run --al); COMP_CWORD=2; _reitos; echo ${COMPREPLY[@]}"
        "\nCOMP_WORDS=(reitos ps -o ''); COMP_CWORD=3; _reitos; echo ${COMPREPLY[@]}"
        "\nCOMP_WORDS=(reitosd --no-z); COMP_CWORD=1; _reitosd; echo ${COMPREPLY[@]}\n")
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:4] == ["run", "--allow-errors", "json table", "--no-zygote"]
    cli("completion", "fish", rc=2)
