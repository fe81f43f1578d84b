#!/usr/bin/env python3
"""Keeps the option table of docs/configuration.md in step with src/base/conf.h: checks it, or with
--write rewrites it."""
import re
import sys
from pathlib import Path

BEGIN, END = "<!-- options begin -->", "<!-- options end -->"
TEXT = r'"((?:\\.|[^"\\])*)"'
OPTION = re.compile(r"\bX\(\s*\w+,\s*" + TEXT + r",\s*(STR|INT|BOOL),\s*" + TEXT + r",\s*" + TEXT
                    + r",\s*" + TEXT + r"\s*\)")


def table():
    source = Path("src/base/conf.h").read_text().replace("\\\n", " ")
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, kind, default, meta, help_ in OPTION.findall(source):
        shown = f"--{name}" if kind == "BOOL" else f"--{name} {meta}"
        if kind == "BOOL":
            default = "on" if default == "true" else "off"
        lines.append("| " + " | ".join(
            cell.replace("|", "\\|") for cell in (f"`{shown}`", f"`{default}`" if default else "",
                                                  help_)) + " |")
    return "\n".join(lines)


def main():
    path = Path("docs/configuration.md")
    text = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    head, rest = text.split(BEGIN)
    wanted = f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"
    if "--write" in sys.argv:
        path.write_text(wanted)
    elif text != wanted:
        print("docs/configuration.md: options differ from conf.h; run "
              "scripts/lint/config_docs.py --write")
        return 1
    return 0


sys.exit(main())
