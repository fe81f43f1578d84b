"""The servers and kernels that bench.py compares, and what /proc says of them."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import requests
import zmq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from daemon import REPO, VENV, Daemon, free_port  # noqa: E402
from jupyter_ws import Server  # noqa: E402

TEST_PYTHON = REPO / "build/venv-test/bin/python"
MIB = 1 << 20


class JupyterServer:
    """A stock jupyter_server 2 whose kernels run in the same environment as ours."""

    name = "jupyter-server"

    def __init__(self):
        self.home = tempfile.mkdtemp(prefix="bench-")
        spec = Path(self.home, "data/kernels/python3")
        spec.mkdir(parents=True)
        (spec / "kernel.json").write_text(json.dumps({
            "argv": [str(VENV / "bin/python"), "-m", "ipykernel_launcher", "-f",
                     "{connection_file}"],
            "display_name": "Python 3", "language": "python"}))
        self.port, self.token = free_port(), "bench"
        self.url = f"http://127.0.0.1:{self.port}/"

    def start(self):
        env = dict(os.environ, HOME=self.home, JUPYTER_DATA_DIR=self.home + "/data",
                   JUPYTER_CONFIG_DIR=self.home + "/config", IPYTHONDIR=self.home + "/ipython",
                   JUPYTER_RUNTIME_DIR=self.home + "/run")
        self.log = open(self.home + "/log", "w")
        self.process = subprocess.Popen(
            [TEST_PYTHON, "-m", "jupyter_server", "--allow-root", "--no-browser",
             f"--ServerApp.port={self.port}", f"--ServerApp.root_dir={self.home}",
             f"--IdentityProvider.token={self.token}"], env=env, cwd=self.home,
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_api(self.url, self.process, self.home + "/log")
        return self

    def server_pids(self):
        return [self.process.pid]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)


class Reitos(Daemon):
    name = "reitosd"

    def start(self, wait=30):
        super().start(wait)
        # the first kernel starts the shim and the zygote, as opening the first notebook does
        return self

    def server_pids(self):
        return [self.pid] + [p for p in children_of_home(self) if name_of(p) == "reitos-shim"]


def children_of_home(daemon):
    return [p for p in daemon.processes() if p != daemon.pid]


def name_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def wait_api(url, process, log):
    deadline = time.monotonic() + 60
    while True:
        try:
            if requests.get(url + "api", timeout=5).ok:
                return
        except requests.RequestException:
            pass
        assert process.poll() is None and time.monotonic() < deadline, Path(log).read_text()
        time.sleep(0.05)


def client(server):
    return Server(server.url, server.token)


def memory(pid):
    """(PSS, private) bytes of a process."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, value = line.split(":")
        fields[key] = int(value.split()[0]) * 1024
    return fields["Pss"], fields["Private_Clean"] + fields["Private_Dirty"]


def pss(pids):
    return sum(memory(p)[0] for p in pids)


def cpu_ns(pids):
    """CPU time of all threads, in nanoseconds."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
            except OSError:
                pass
    return total


def descriptors(pids):
    return sum(len(os.listdir(f"/proc/{p}/fd")) for p in pids)


class BareZmq:
    """A raw ZeroMQ client of a kernel, without any server: the floor."""

    def __init__(self, connection_file):
        from jupyter_client.session import Session
        info = json.loads(Path(connection_file).read_text())
        self.session = Session(key=info["key"].encode(),
                               signature_scheme=info.get("signature_scheme", "hmac-sha256"))
        self.context = zmq.Context()
        self.shell = self.context.socket(zmq.DEALER)
        self.iopub = self.context.socket(zmq.SUB)
        self.iopub.subscribe(b"")
        for socket, port in ((self.shell, "shell_port"), (self.iopub, "iopub_port")):
            sep = "-" if info["transport"] == "ipc" else ":"
            socket.connect(f"{info['transport']}://{info['ip']}{sep}{info[port]}")
        self.poller = zmq.Poller()
        self.poller.register(self.shell, zmq.POLLIN)
        self.poller.register(self.iopub, zmq.POLLIN)
        for _ in range(40):  # until the subscription is live
            if self.request("kernel_info_request", {}, 0.5):
                return
        raise RuntimeError("kernel does not answer")

    def request(self, msg_type, content, timeout=30):
        """True once both the reply and the idle status are there."""
        msg = self.session.send(self.shell, msg_type, content)
        mid = msg["header"]["msg_id"]
        reply = idle = False
        end = time.monotonic() + timeout
        while not (reply and idle):
            left = end - time.monotonic()
            if left <= 0:
                return False
            for socket, _ in self.poller.poll(left * 1000):
                _, parts = self.session.feed_identities(socket.recv_multipart())
                got = self.session.deserialize(parts)
                if got["parent_header"].get("msg_id") != mid:
                    continue
                if socket is self.shell:
                    reply = True
                elif got["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
                    idle = True
        return True

    def execute(self, code):
        return self.request("execute_request", {
            "code": code, "silent": False, "store_history": True, "user_expressions": {},
            "allow_stdin": False, "stop_on_error": True})

    def close(self):
        self.context.destroy(linger=0)


class PlainKernel:
    """ipykernel started by hand, with its sockets on TCP as jupyter_client starts it."""

    def __init__(self):
        self.home = tempfile.mkdtemp(prefix="bench-")
        self.file = self.home + "/kernel.json"
        Path(self.file).write_text(json.dumps({
            "transport": "tcp", "ip": "127.0.0.1", "key": "bench",
            "signature_scheme": "hmac-sha256",
            **{f"{c}_port": free_port() for c in ("shell", "iopub", "stdin", "control", "hb")}}))
        self.process = subprocess.Popen(
            [VENV / "bin/python", "-m", "ipykernel_launcher", "-f", self.file],
            env=dict(os.environ, HOME=self.home, IPYTHONDIR=self.home + "/ipython"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pid = self.process.pid

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


__all__ = ["MIB", "BareZmq", "JupyterServer", "PlainKernel", "Reitos", "client", "cpu_ns",
           "descriptors", "memory", "pss"]
