#!/usr/bin/env python3
"""Functions of at most 80 lines and cyclomatic complexity 20, files of at most 1,000 lines (tests:
1,500), and every header begins with a comment that says what it is."""
import subprocess
import sys
from pathlib import Path

LINES, COMPLEXITY, FILE_LINES, TEST_FILE_LINES = 80, 20, 1000, 1500


def main():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src", "tests", "python"],
                         capture_output=True, text=True, check=True).stdout
    files = [p for p in map(Path, out.splitlines()) if p.suffix in (".c", ".h") and p.exists()]
    excused = set()
    for line in Path("scripts/lint/excused.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            excused.add(tuple(line.split()[:2]))
    bad, used = [], set()
    for path in files:
        text = path.read_text()
        limit = TEST_FILE_LINES if path.parts[0] == "tests" else FILE_LINES
        if text.count("\n") > limit:
            bad.append(f"{path}: {text.count(chr(10))} lines, at most {limit}")
        if path.suffix == ".h" and not text.startswith("/*"):
            bad.append(f"{path}: does not begin with a comment that says what it is")
    sources = [str(p) for p in files if p.suffix == ".c"]
    report = subprocess.run(["pmccabe", *sources], capture_output=True, text=True,
                            check=True).stdout if sources else ""
    for line in report.splitlines():
        # modified complexity (a switch counts once), complexity, statements, line, length, where
        fields = line.split("\t")
        complexity, length, place = int(fields[0]), int(fields[4]), fields[5]
        path, name = place.split("(")[0], place.split()[-1]
        if (path, name) in excused:
            used.add((path, name))
            continue
        if length > LINES:
            bad.append(f"{path}: {name}() has {length} lines, at most {LINES}")
        if complexity > COMPLEXITY:
            bad.append(f"{path}: {name}() has complexity {complexity}, at most {COMPLEXITY}")
    for path, name in sorted(excused - used):
        bad.append(f"scripts/lint/excused.txt: {path} {name} does not exist")
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
