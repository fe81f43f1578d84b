"""A client of reitos-shim for tests: frames (src/wire/frame.h), operations (docs/protocol.md), and
a reader of journals (src/kernel/journal.h). Written from the documents, not from the C code."""

import json
import os
import signal
import socket
import struct
import subprocess
import time
import uuid
from pathlib import Path

CHANNELS = ["shell", "control", "stdin", "iopub"]


class ShimError(Exception):
    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]
        self.message = error["message"]


class Message:
    def __init__(self, seq, channel, parts, when=None):
        self.seq = seq
        self.channel = channel
        self.parts = parts
        self.when = when
        self.header, self.parent, self.metadata, self.content = (
            json.loads(p) for p in parts[:4])
        self.buffers = parts[4:]

    @property
    def type(self):
        return self.header["msg_type"]

    @property
    def parent_id(self):
        return self.parent.get("msg_id")

    def __repr__(self):
        return f"<{self.seq} {self.channel} {self.type} {str(self.content)[:80]}>"


def records(data, at=0):
    """(next offset, message) of each whole record from offset `at`."""
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        if size < 28 or at + size > len(data):
            return
        seq, wall, channel, _, nparts = struct.unpack_from("<QqBBH", data, at + 8)
        lengths = struct.unpack_from(f"<{nparts}I", data, at + 28)
        pos = at + 28 + 4 * nparts
        parts = []
        for n in lengths:
            parts.append(data[pos:pos + n])
            pos += n
        assert pos == at + size, f"record at {at}"
        at += size
        yield at, Message(seq, CHANNELS[channel], parts, wall / 1e6)


def read_journal(folder, start=1):
    """Every whole record with seq >= start, in order."""
    return [m for path in sorted(Path(folder).glob("*.log"))
            for _, m in records(path.read_bytes()) if m.seq >= start]


class Tail:
    """Follows a journal: the last segment is read on from where the last look ended."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.position = 1
        self.segment = None
        self.offset = 0

    def read(self):
        out = []
        for path in sorted(self.folder.glob("*.log")):
            if self.segment and path.name < self.segment.name:
                continue
            with open(path, "rb") as f:
                same = path == self.segment and os.fstat(f.fileno()).st_ino == self.inode
                if not same:
                    self.offset = 0
                self.segment, self.inode = path, os.fstat(f.fileno()).st_ino
                base = self.offset
                f.seek(base)
                data = f.read()
            for at, m in records(data):
                self.offset = base + at
                if m.seq >= self.position:
                    out.append(m)
                    self.position = m.seq + 1
        return out


class Client:
    """One connection. `events` holds what was not an answer."""

    def __init__(self, data, hello=True, grace=None, role="cli", timeout=30):
        self.data = Path(data)
        self.timeout = timeout
        self.session = uuid.uuid4().hex
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(str(self.data / "run/shim.sock"))
        self.buffer = b""
        self.events = []
        self.answers = {}
        self.next_id = 0
        self.models = {}
        if hello:
            fields = {} if grace is None else {"grace_s": grace}
            self.hello = self.call("hello", version=1, role=role, **fields)
            self.models = {m["id"]: m for m in self.hello["kernels"]}

    def close(self):
        self.sock.close()

    # frames

    def send_frame(self, head, parts=()):
        parts = [json.dumps(head).encode(), *parts]
        body = struct.pack(f"<I{len(parts)}I", len(parts), *map(len, parts)) + b"".join(parts)
        self.sock.sendall(struct.pack("<I", len(body)) + body)

    def read_frame(self, deadline):
        while True:
            if len(self.buffer) >= 4:
                (size,) = struct.unpack_from("<I", self.buffer)
                if len(self.buffer) >= 4 + size:
                    body, self.buffer = self.buffer[4:4 + size], self.buffer[4 + size:]
                    (n,) = struct.unpack_from("<I", body)
                    lengths = struct.unpack_from(f"<{n}I", body, 4)
                    head = body[4 + 4 * n:4 + 4 * n + lengths[0]]
                    return json.loads(head)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame")
            self.sock.settimeout(left)
            try:
                data = self.sock.recv(1 << 20)
            except socket.timeout:
                raise TimeoutError("no frame") from None
            if not data:
                raise ConnectionError("the shim closed the connection")
            self.buffer += data

    def pump(self, deadline):
        head = self.read_frame(deadline)
        if "re" in head:
            self.answers[head["re"]] = head
            return None
        if head["op"] == "changed":
            self.models[head["kernel"]["id"]] = head["kernel"]
        elif head["op"] == "gone":
            self.models.pop(head["k"], None)
        self.events.append(head)
        return head

    def wait(self, test, timeout=None):
        """Reads events until test() is true; returns its value."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while True:
            value = test()
            if value:
                return value
            self.pump(deadline)

    # operations

    def ask(self, op, **fields):
        self.next_id += 1
        self.send_frame({"op": op, "id": self.next_id, **fields})
        return self.next_id

    def answer(self, number, timeout=None):
        head = self.wait(lambda: self.answers.pop(number, None), timeout)
        if "error" in head:
            raise ShimError(head["error"])
        return head

    def call(self, op, timeout=None, **fields):
        return self.answer(self.ask(op, **fields), timeout)


class Kernel:
    """One kernel as one session of one client sees it."""

    def __init__(self, client, kid):
        self.client = client
        self.id = kid
        self.dir = client.data / "kernels" / kid
        self.tail = Tail(self.dir / "journal")
        self.messages = []

    def message(self, channel, msg_type, content, parent=None, metadata=None, buffers=(),
                msg_id=None, header=None):
        msg_id = msg_id or uuid.uuid4().hex
        head = {"msg_id": msg_id, "msg_type": msg_type, "username": "test",
                "session": self.client.session, "version": "5.3",
                "date": "2026-01-01T00:00:00.000000Z", **(header or {})}
        parts = [json.dumps(v).encode() for v in (head, parent or {}, metadata or {}, content)]
        self.client.send_frame({"op": "msg", "k": self.id, "ch": channel}, [*parts, *buffers])
        return msg_id

    def execute(self, code, **options):
        metadata = options.pop("metadata", None)
        content = {"code": code, "silent": False, "store_history": True,
                   "user_expressions": {}, "allow_stdin": True, "stop_on_error": True, **options}
        return self.message("shell", "execute_request", content, metadata=metadata)

    def read(self):
        """Takes in what the journal has by now."""
        new = self.tail.read()
        self.messages += new
        return new

    def wait(self, test, timeout=None):
        """Waits for `grown` until test(self) is true."""
        def check():
            self.read()
            return test(self)
        return self.client.wait(check, timeout)

    def of(self, msg_id, msg_type=None, channel=None):
        self.read()
        return [m for m in self.messages if m.parent_id == msg_id
                and (msg_type is None or m.type == msg_type)
                and (channel is None or m.channel == channel)]

    def finished(self, msg_id):
        """The reply, when the idle has come too."""
        replies = [m for m in self.of(msg_id) if m.channel == "shell"]
        idle = [m for m in self.of(msg_id, "status") if m.content["execution_state"] == "idle"]
        return replies[0] if replies and idle else None

    def reply(self, msg_id, timeout=None):
        return self.wait(lambda k: k.finished(msg_id), timeout)

    def run(self, code, timeout=None, **options):
        """Executes; returns (reply content, output text of stdout)."""
        msg_id = self.execute(code, **options)
        reply = self.reply(msg_id, timeout)
        return reply.content, self.text(msg_id)

    def text(self, msg_id, name="stdout"):
        return "".join(m.content["text"] for m in self.of(msg_id, "stream")
                       if m.content["name"] == name)

    @property
    def model(self):
        return self.client.models.get(self.id)


class Shim:
    """A shim process of its own, in the foreground."""

    def __init__(self, program, data, grace=60, env=None):
        self.data = Path(data)
        self.data.mkdir(parents=True, exist_ok=True)
        self.log = open(self.data / "shim.log", "ab")
        self.process = subprocess.Popen(
            [str(program), "--data", str(data), "--grace", str(grace)],
            stderr=self.log, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        deadline = time.monotonic() + 10
        while True:
            try:
                self.client = Client(data, grace=grace)
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.data / "shim.log").read_text()) from None
                time.sleep(0.005)

    @property
    def pid(self):
        return self.process.pid

    def start(self, python, client=None, kid=None, **fields):
        client = client or self.client
        kid = kid or str(uuid.uuid4())
        request = {"k": kid, "name": "python3", "interrupt": "signal", "zygote": None,
                   "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                   "env": {}, "cwd": str(self.data), "restart": True, "wait_s": 30, **fields}
        kernel = Kernel(client, kid)
        kernel.started = client.call("start", **request)
        return kernel

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
