"""Stands for reitos-shim in tests of zygote.py: parent and subreaper of a zygote and its kernels,
and a client of them through jupyter_client. Also starts plain kernels, to compare with."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import zmq
from jupyter_client import BlockingKernelClient

ZYGOTE = Path(__file__).resolve().parents[2] / "python/reitos/zygote.py"
PR_SET_CHILD_SUBREAPER = 36


def kernel_env(home, **more):
    """A whole environment without what the test runner brings."""
    keep = {k: os.environ[k] for k in ("PATH", "LANG", "LC_ALL") if k in os.environ}
    return {**keep, "HOME": str(home), **more}


class Refused(Exception):
    def __init__(self, answer):
        super().__init__(answer["message"])
        self.discard = answer["discard"]


class Kernel:
    """A kernel process and a client of it."""

    def __init__(self, shim, pid, connection, log):
        self.shim, self.pid, self.connection, self.log = shim, pid, connection, Path(log)
        self.client = None

    def connect(self):
        context = zmq.Context()
        # A socket that connects before the kernel has bound tries again after this many ms.
        context.setsockopt(zmq.RECONNECT_IVL, 1)
        self.client = BlockingKernelClient(connection_file=self.connection, context=context)
        self.client.load_connection_file()
        self.client.start_channels(hb=False)
        return self.client

    def ready(self, timeout=30):
        (self.client or self.connect()).wait_for_ready(timeout=timeout)
        return self

    def first_reply(self, request="kernel_info", *args):
        getattr(self.client or self.connect(), request)(*args)
        return self.client.get_shell_msg(timeout=30)

    def messages(self, code, timeout=60):
        """Everything on iopub for one cell, and its reply."""
        msg_id = self.client.execute(code)
        seen = []
        end = time.monotonic() + timeout
        while True:
            m = self.client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
            if m["parent_header"].get("msg_id") != msg_id:
                continue
            seen.append(m)
            if m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
                break
        while True:
            reply = self.client.get_shell_msg(timeout=10)
            if reply["parent_header"].get("msg_id") == msg_id:
                return seen, reply["content"]

    def run(self, code, timeout=60):
        """stdout of a cell that must succeed."""
        seen, reply = self.messages(code, timeout)
        assert reply["status"] == "ok", "\n".join(reply.get("traceback", [str(reply)]))
        return "".join(m["content"]["text"] for m in seen
                       if m["msg_type"] == "stream" and m["content"]["name"] == "stdout")

    def json(self, code, timeout=60):
        return json.loads(self.run(code, timeout).strip().splitlines()[-1])

    def memory(self):
        """(private, proportional) MiB."""
        found = {}
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":")
            found[name] = int(value.split()[0]) / 1024
        return found["Private_Clean"] + found["Private_Dirty"], found["Pss"]

    def wait(self, timeout=10):
        """Exit status once it has ended, as os.waitstatus_to_exitcode gives it."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise TimeoutError("kernel still runs")

    def close(self):
        if self.client:
            self.client.stop_channels()
            self.client.context.destroy(linger=0)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Shim:
    def __init__(self, python, preload="numpy,pandas", env=None, args=(), cwd="/"):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.folder = Path(tempfile.mkdtemp(prefix="zyg-"))
        self.python = str(python)
        self.env = kernel_env(self.folder) if env is None else env
        self.count = 0
        self.kernels = []
        self.ready = None
        self.start(preload, args, cwd)

    def start(self, preload, args, cwd):
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(60)
        fd = theirs.fileno()

        def to_three():
            os.dup2(fd, 3, inheritable=True)

        self.log = self.folder / "zygote.log"
        with open(self.log, "ab") as log, open(self.folder / "zygote.out", "ab") as out:
            self.process = subprocess.Popen(
                [self.python, *args, str(ZYGOTE), "--preload", preload], preexec_fn=to_three,
                close_fds=False, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=cwd,
                env={**self.env, "PYTHONHASHSEED": "42"})
        theirs.close()
        self.ready = self.receive()

    def receive(self):
        return json.loads(self.channel.recv(1 << 20))

    def connection(self):
        self.count += 1
        path = self.folder / f"c{self.count}.json"
        path.write_text(json.dumps({
            "transport": "ipc", "ip": f"{self.folder}/k{self.count}", "shell_port": 1,
            "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5, "key": "secret",
            "signature_scheme": "hmac-sha256", "kernel_name": "python3"}))
        return str(path), f"{self.folder}/e{self.count}.log"

    def ask(self, request):
        self.channel.send(json.dumps(request).encode())
        return self.receive()

    def fork(self, env=None, cwd=None, args=(), go=None):
        connection, log = self.connection()
        answer = self.ask({
            "op": "fork", "id": f"id{self.count}", "connection_file": connection, "stderr": log,
            "cwd": str(cwd or self.folder), "args": list(args), "go": go,
            "env": {**(self.env if env is None else env), "PYTHONHASHSEED": "42"}})
        assert answer["id"] == f"id{self.count}"
        if answer["op"] == "refused":
            raise Refused(answer)
        assert answer["op"] == "forked", answer
        return self.keep(Kernel(self, answer["pid"], connection, log))

    def keep(self, kernel):
        self.kernels.append(kernel)
        return kernel

    def plain(self, env=None, cwd=None, args=(), options=()):
        """The kernel as `python -m ipykernel_launcher` starts it."""
        connection, log = self.connection()
        with open(log, "ab") as out:
            process = subprocess.Popen(
                [self.python, *options, "-m", "ipykernel_launcher", "-f", connection, *args],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                cwd=str(cwd or self.folder), env=self.env if env is None else env)
        process.returncode = 0  # Kernel.wait() reaps it
        return self.keep(Kernel(self, process.pid, connection, log))

    def close(self):
        for kernel in self.kernels:
            kernel.close()
        self.channel.close()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


__all__ = ["Kernel", "Refused", "Shim", "ZYGOTE", "kernel_env"]
