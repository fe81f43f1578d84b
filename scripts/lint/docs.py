#!/usr/bin/env python3
"""Documentation in step: every command of the CLI is in the user guide, docs/openapi.yaml has the
routes of the gateway, tests named in Markdown exist, links lead somewhere, and no file names a
folder of the machine it was written on."""
import re
import subprocess
import sys
from pathlib import Path

PRIVATE = re.compile(r"(?<![\w.$}])/work/\w+")
PRIVATE_OK = {"scripts/lint/docs.py", "tests/lint/test_gates.py"}


def tracked(*paths):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *paths],
                         capture_output=True, text=True, check=True).stdout
    return [p for p in map(Path, out.splitlines()) if p.is_file()]


def commands():
    """Names of the commands: struct cli_command x = {"name", ... in src/cli/."""
    found = []
    for path in sorted(Path("src/cli").glob("*.c")):
        found += re.findall(r'struct cli_command \w+\s*=\s*\{\s*(?:\.name\s*=\s*)?"([a-z][\w-]*)"',
                            path.read_text())
    return found


def routes():
    """(method, path) of the tables in src/gateway, but for JupyterLab's pages and the login."""
    found = set()
    for path in sorted(Path("src/gateway").glob("*.c")):
        if path.stem in ("lab", "login"):
            continue
        text = path.read_text()
        macros = dict(re.findall(r"^#define (\w+_METHODS) (.*)$", text, re.M))
        for table in re.findall(r"^const struct route \w+\[\] = \{(.*?)^\};", text, re.M | re.S):
            for methods, pattern in re.findall(r'\{([^{"]*?),\s*"([^"]*)"', table):
                names = re.findall(r"METHOD\((\w+)\)", macros.get(methods, methods)) or ["GET"]
                found |= {(m, "/" + pattern.replace("*", "{}")) for m in names}
    return found


def documented():
    """(method, path) in docs/openapi.yaml; what lies below a route that ends in * is its own."""
    path = Path("docs/openapi.yaml")
    found, at = set(), ""
    for line in path.read_text().splitlines() if path.exists() else ():
        if m := re.match(r"  (/[^:]*):$", line):
            at = re.sub(r"\{\w+\}", "{}", m[1])
        elif m := re.match(r"    (get|put|post|patch|delete):", line):
            found.add((m[1].upper(), at))
    return found


def api():
    code, text = routes(), documented()
    bad = [f"docs/openapi.yaml: {m} {p} is missing" for m, p in sorted(code - text)]
    for method, path in sorted(text - code):
        if not any(method == m and p.endswith("/{}") and path.startswith(p + "/") for m, p in code):
            bad.append(f"docs/openapi.yaml: nothing serves {method} {path}")
    return bad


def main():
    bad = api()
    guide = Path("docs/user-guide.md")
    text = guide.read_text() if guide.exists() else ""
    for name in commands():
        if f"`reitos {name}" not in text:
            bad.append(f"docs/user-guide.md: command reitos {name} is missing")
    for path in tracked():
        if path.suffix in (".png", ".ipynb", ".ico", ".woff2"):
            continue
        content = path.read_text(errors="replace")
        if str(path) not in PRIVATE_OK:
            for number, line in enumerate(content.splitlines(), 1):
                if m := PRIVATE.search(line):
                    bad.append(f"{path}:{number}: names a private folder: {m.group()}")
        if path.suffix == ".md":
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", content):
                if "://" not in target and not (path.parent / target).exists():
                    bad.append(f"{path}: link to {target} leads nowhere")
            for name, test in re.findall(r"`(\w+\.py)::(\w+)`", content):
                file = Path("tests/integration", name)
                if not file.exists() or f"def {test}(" not in file.read_text():
                    bad.append(f"{path}: there is no test {name}::{test}")
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
