"""A reitosd of its own for a test: folders, port and token are private, and nothing stays behind.

REITOS_BUILD names the build folder (default: build/).
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import requests

REPO = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("REITOS_BUILD", REPO / "build")).resolve()
VENV = REPO / "build" / "venv"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def flags(options):
    """{"cull_busy": True, "grace": 5, "zygote": False} as --cull-busy --grace 5 --no-zygote."""
    out = []
    for key, value in options.items():
        name = key.replace("_", "-")
        if value is True or value is False:
            out.append(f"--{name}" if value else f"--no-{name}")
        else:
            out += [f"--{name}", str(value)]
    return out


class Daemon:
    """Options are those of reitosd; `env` is added to the environment (None removes a name)."""

    def __init__(self, env=None, root=None, **options):
        self.home = tempfile.mkdtemp(prefix="reitos-test-")
        self.root = root or os.path.join(self.home, "root")
        self.data = os.path.join(self.home, "data")
        self.jupyter_data = os.path.join(self.home, "jupyter")
        for folder in (self.root, self.jupyter_data):
            os.makedirs(folder, exist_ok=True)
        self.token = options.pop("token", None) or secrets.token_hex(16)
        self.base_url = options.pop("base_url", "/")
        self.listen = options.pop("listen", None)
        if self.listen is None:
            self.port = free_port()
            self.listen = f"127.0.0.1:{self.port}"
            self.url = f"http://{self.listen}{self.base_url}"
        else:
            self.port = self.url = None
        self.options = options
        self.env = dict(os.environ, HOME=self.home, JUPYTER_DATA_DIR=self.jupyter_data,
                        JUPYTER_CONFIG_DIR=self.home + "/config", IPYTHONDIR=self.home + "/ipython",
                        XDG_CONFIG_HOME=self.home + "/xdg", XDG_DATA_HOME=self.home + "/xdg-data",
                        MPLCONFIGDIR=self.home + "/mpl")
        for key in [k for k in self.env if k.startswith(("REITOS_", "JUPYTERHUB_"))]:
            del self.env[key]
        for key, value in (env or {}).items():
            if value is None:
                self.env.pop(key, None)
            else:
                self.env[key] = value
        self.process = None
        self.log_path = os.path.join(self.home, "daemon.log")

    def command(self):
        return [str(BUILD / "reitosd"), "--listen", self.listen, "--root", self.root,
                "--data", self.data, "--token", self.token, "--base-url", self.base_url,
                *flags(self.options)]

    @property
    def log(self):
        return Path(self.log_path).read_text() if os.path.exists(self.log_path) else ""

    @property
    def pid(self):
        return self.process.pid

    def start(self, wait=30):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(self.command(), env=self.env, cwd=self.root,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if self.url:
            self.wait_ready(wait)
        return self

    def wait_ready(self, wait):
        deadline = time.monotonic() + wait
        while True:
            try:
                if requests.get(self.url + "api", timeout=5).ok:
                    return
            except requests.RequestException:
                pass
            assert self.process.poll() is None, f"reitosd ended:\n{self.log}"
            assert time.monotonic() < deadline, f"reitosd does not answer:\n{self.log}"
            time.sleep(0.02)

    def kill(self):
        """kill -9: its kernels stay for the grace period."""
        self.process.kill()
        self.process.wait()

    def stop(self, wait=30):
        """A clean end; gives the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(wait)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"reitosd did not end in {wait} s:\n{self.log[-3000:]}")
        return self.process.returncode

    def processes(self):
        """Pids of everything that belongs to this data folder: daemon, shim, zygotes, kernels."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                text = Path(f"/proc/{entry}/cmdline").read_bytes()
                text += Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if self.home.encode() in text:
                found.append(int(entry))
        return found

    def close(self):
        """Ends it and removes the folders. A clean end says so and leaves nothing running; after
        kill() what the grace period keeps is ended here."""
        left, status = [], 0
        try:
            if self.process and self.process.poll() is None:
                status = self.stop()
                left = self.processes()
        finally:
            for pid in self.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            log = self.log
            shutil.rmtree(self.home, ignore_errors=True)
        assert status == 0, f"reitosd ended with {status}:\n{log[-6000:]}"
        assert not left, f"processes {left} outlived a clean end:\n{log[-3000:]}"
        assert "Sanitizer" not in log and "runtime error" not in log, log[-6000:]
