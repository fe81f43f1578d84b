"""The command line with folders of its own, and notebooks to run."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("REITOS_BUILD") or os.environ.get("BUILD") or REPO / "build").resolve()
PYTHON = REPO / "build" / "venv" / "bin" / "python"


class Cli:
    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="reitos-cli-"))
        self.data = self.home / "data"
        self.work = self.home / "work"
        self.work.mkdir()
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("REITOS_", "JUPYTER_", "JPY_", "XDG_"))}
        self.env.update(HOME=str(self.home), IPYTHONDIR=str(self.home / "ipython"),
                        REITOS_DATA=str(self.data), REITOS_PYTHON=str(PYTHON), REITOS_SPARES="0",
                        JUPYTER_DATA_DIR=str(self.home / "jupyter"),
                        JUPYTER_RUNTIME_DIR=str(self.home / "runtime"))

    def start(self, *args, **kwargs):
        kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                  "cwd": self.work, "env": self.env, **kwargs}
        return subprocess.Popen([str(BUILD / "reitos"), *map(str, args)], **kwargs)

    def __call__(self, *args, rc=0, timeout=60, **kwargs):
        """Runs a command to its end and checks its exit code; gives the finished process."""
        p = self.start(*args, **kwargs)
        try:
            p.out, p.err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            raise
        assert p.returncode == rc, (p.returncode, p.out, p.err)
        return p

    def json(self, *args, rc=0):
        return json.loads(self(*args, "-o", "json", rc=rc).out)

    def notebook(self, name, *cells, minor=5, **metadata):
        path = self.work / name
        path.write_text(json.dumps({
            "cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": minor}))
        return path

    def read(self, name):
        return json.loads((self.work / name).read_text())

    def wait_for(self, what, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what} did not come true in {seconds} s")

    def processes(self):
        """Ids of living processes that have our data folder in their environment or arguments."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                text = Path("/proc", entry, "environ").read_bytes() + \
                    Path("/proc", entry, "cmdline").read_bytes()
                dead = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                continue
            if os.fsencode(self.home) in text and not dead and int(entry) != os.getpid():
                found.append(int(entry))
        return found

    def close(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.home, ignore_errors=True)


def code(source, tags=None, **extra):
    return {"cell_type": "code", "source": source, "outputs": [], "execution_count": None,
            "metadata": {"tags": tags} if tags else {}, **extra}


def markdown(source):
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def text_of(cell):
    """All text of a cell's outputs."""
    out = ""
    for o in cell["outputs"]:
        if o["output_type"] == "stream":
            part = o["text"]
        elif o["output_type"] == "error":
            part = "\n".join(o["traceback"])
        else:
            part = o["data"].get("text/plain", "")
        out += part if isinstance(part, str) else "".join(part)
    return out
