#!/usr/bin/env python3
"""A file includes only from its own layer and the layers before it, and each library is known to
one module only. The order is that of ARCHITECTURE.md."""
import re
import subprocess
import sys
from pathlib import Path

LAYERS = ["base", "store", "state", "meta", "wire", "device", "sched", "kernel", "node", "gateway",
          "sim", "cli"]
# library header -> files that may include it
LIBRARIES = {
    r"jansson\.h": r"src/base/json\.h",
    r"libwebsockets\.h": r"src/gateway/http\w*\.[ch]",
    r"zmq\w*\.h": r"src/wire/zmq_uv\.[ch]",
    r"curl/.*": r"src/wire/httpc\.c",
    r"sqlite3\.h": r"src/meta/sqlite\.c",
    r"openssl/.*": r"src/base/crypto\.c|src/gateway/http\w*\.c",
    r"ini\.h": r"src/base/conf\w*\.c",
    r"zstd\.h|blake3\.h": r"src/(base|store)/\w+\.c",
    r"Python\.h": r"python/.*",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def files():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src", "tests/fuzz",
                          "tests/unit", "tests/lib", "python"],
                         capture_output=True, text=True, check=True).stdout
    return [p for p in map(Path, out.splitlines()) if p.suffix in (".c", ".h") and p.exists()]


def check(path):
    parts = path.parts
    layer = parts[1] if parts[0] == "src" and len(parts) > 2 else None
    if layer is not None and layer not in LAYERS:
        yield 1, f"folder src/{layer} is no layer (scripts/lint/layers.py knows them)"
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = INCLUDE.match(line)
        if not m:
            continue
        quote, name = m.groups()
        if quote == '"':
            target = name.split("/")[0]
            if "/" not in name and layer is not None:
                yield number, f'include "{name}" by its folder: "{layer}/{name}"'
            elif layer and target in LAYERS and LAYERS.index(target) > LAYERS.index(layer):
                yield number, f"{layer} may not include {name}: {target} comes after it"
        for library, allowed in LIBRARIES.items():
            if parts[0] in ("src", "python") and re.fullmatch(library, name) \
                    and not re.fullmatch(allowed, str(path)):
                yield number, f"<{name}> may be included by {allowed} only"


def main():
    bad = 0
    for path in files():
        for number, message in check(path):
            print(f"{path}:{number}: {message}")
            bad += 1
    return 1 if bad else 0


sys.exit(main())
