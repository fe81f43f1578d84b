#!/usr/bin/env python3
"""Documentation in step: every command of the CLI is in the user guide, links in Markdown lead
somewhere, and no file names a folder of the machine it was written on."""
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


def main():
    bad = []
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
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
