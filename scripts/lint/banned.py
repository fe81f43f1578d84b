#!/usr/bin/env python3
"""No call of banned.txt stands in the product's C code."""
import re
import subprocess
import sys
from pathlib import Path

COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def rules():
    for line in Path("scripts/lint/banned.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split(None, 2)


def code_of(path):
    """The text with comments and literals blanked, line numbers kept."""
    return COMMENT_OR_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), path.read_text())


def main():
    table = {name: (where, why) for name, where, why in rules()}
    # a call of that very name: not a member (x.time(), x->time()) and not part of a longer one
    call = re.compile(r"(?<![\w.>])(" + "|".join(table) + r")\s*\(")
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src", "python"],
                         capture_output=True, text=True, check=True).stdout
    bad = 0
    for path in map(Path, out.splitlines()):
        if path.suffix not in (".c", ".h") or not path.exists():
            continue
        for number, line in enumerate(code_of(path).splitlines(), 1):
            for m in call.finditer(line):
                where, why = table[m.group(1)]
                if where == "-" or not str(path).startswith(where):
                    print(f"{path}:{number}: {m.group(1)}() is banned: {why}")
                    bad += 1
    return 1 if bad else 0


sys.exit(main())
