"""Hostile clients, hostile kernels, races and crashes: the daemon and its shim go on, with clear
errors, and nothing is left behind. REITOS_ABUSE_ROUNDS multiplies the long loops."""

import json
import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from daemon import BUILD
from jupyter_ws import Server, encode_v1, message
from test_merge import Book, nb, text_of, wait_for

ROUNDS = int(os.environ.get("REITOS_ABUSE_ROUNDS", "1"))

SANITIZED = b"__asan_init" in Path(BUILD, "reitosd").read_bytes()  # keeps freed memory a while


def vitals(pid):
    """Open descriptors and resident memory in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return len(os.listdir(f"/proc/{pid}/fd")), rss


def alive(daemon):
    assert daemon.process.poll() is None, daemon.log[-6000:]
    assert Server(daemon.url, daemon.token).api("GET", "api").status_code == 200


def works(server, kid):
    client = server.connect(kid)
    assert client.execute("print(6 * 7)").text == "42\n"
    client.close()


def raw(daemon, data, wait=5):
    """Sends bytes, reads until the end or for `wait` seconds."""
    got = b""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=wait) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while part := s.recv(65536):
                got += part
        except OSError:
            pass
    return got


BAD_REQUESTS = [
    b"\0" * 5000,
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET /" + b"%2e%2e/" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /api/kernels HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/kernels HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Length: 3\r\n\r\nabc",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
]


def test_malformed_requests(daemon):
    for data in BAD_REQUESTS:
        got = raw(daemon, data)
        first = got.split(b"\r\n", 1)[0]
        assert not first or first.split()[1][:1] == b"4", (data[:60], got[:200])
        alive(daemon)


def test_half_open_and_slow_clients(daemon):
    """Connections that begin a request and stop keep nobody else waiting."""
    held = []
    for i in range(200):
        s = socket.create_connection(("127.0.0.1", daemon.port))
        s.sendall(b"GET /api HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * (i % 7))
        held.append(s)
    start = time.monotonic()
    for _ in range(20):
        alive(daemon)
    assert time.monotonic() - start < 5
    for s in held:
        s.close()


def frame(op, data, fin=1, mask=True, length=None):
    """A WebSocket frame; `length` may lie."""
    n = len(data) if length is None else length
    head = bytes([fin << 7 | op])
    bit = 0x80 if mask else 0
    if n < 126:
        head += bytes([bit | n])
    elif n < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", n)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", n)
    return head + (b"\0\0\0\0" if mask else b"") + data


def v1_offsets(*offsets):
    return struct.pack(f"<{len(offsets)}Q", *offsets) + b"shell{}{}{}{}"


HUGE = 2**64 - 1
BAD_FRAMES = [
    frame(2, b"x", mask=False),
    frame(2, b"", length=2**63),
    frame(2, b"", length=2**62),
    frame(3, b"reserved"),
    frame(9, b"p" * 200),
    frame(8, b"\x03"),
    frame(0, b"no beginning"),
    frame(1, b"\xff\xfe{"),
    frame(1, b"[" * 100_000),
    frame(1, json.dumps({"header": 1, "channel": "shell"}).encode()),
    frame(2, b""),
    frame(2, v1_offsets(HUGE, 1, 2, 3)),
    frame(2, v1_offsets(7, 64, HUGE, 70, 71, 72, 73)),
    frame(2, v1_offsets(6, 56, 61, 60, 50, 70, 80)),
    frame(2, v1_offsets(2**61, 56, 61)),
    frame(2, v1_offsets(0)),
    frame(2, encode_v1(message("execute_request", {"code": 5}, "s"))),
    frame(2, encode_v1(message("x" * 100_000, {}, "s", channel="iopub"))),
    frame(2, encode_v1(message("execute_request", {}, "s", channel="nowhere"))),
]


def raw_socket(daemon, kid, v1=True):
    client = Server(daemon.url, daemon.token).connect(kid, v1=v1)
    return client, client.ws.sock


def test_malformed_frames(daemon):
    server = Server(daemon.url, daemon.token)
    kid = server.start_kernel(name="python3")
    for v1 in (True, False):
        for data in BAD_FRAMES:
            client, sock = raw_socket(daemon, kid, v1)
            try:
                sock.sendall(data)
                sock.settimeout(0.05)
                sock.recv(65536)
            except OSError:
                pass
            client.drop()
    alive(daemon)
    client = server.connect(kid)
    client.execute("0")  # what waited behind a request that failed may be aborted
    client.close()
    works(server, kid)
    server.stop_kernel(kid)


def test_request_without_a_reply(daemon):
    """A kernel that goes idle without a reply does not hold up what comes after."""
    server = Server(daemon.url, daemon.token)
    kid = server.start_kernel(name="python3")
    client = server.connect(kid)
    mid = client.request("execute_request", {})  # no code: ipykernel logs it and says nothing
    reply = next(m for m in client.collect(mid) if m["channel"] == "shell")
    assert reply["content"]["status"] == "error", reply
    client.close()
    works(server, kid)
    server.stop_kernel(kid)


@pytest.mark.parametrize("code", ["for i in range(200): print('y' * 100_000, flush=True)",
                                  "print('y' * 20_000_000)"], ids=["many", "one"])
def test_clients_that_never_read(daemon, code):
    """50 connections that do not read while much is printed: the kernel ends, memory is bounded."""
    server = Server(daemon.url, daemon.token)
    kid = server.start_kernel(name="python3")
    works(server, kid)
    idle = [raw_socket(daemon, kid)[0] for _ in range(50)]
    before = vitals(daemon.pid)
    client = server.connect(kid)
    client.execute(code)
    more = vitals(daemon.pid)[1] - before[1]
    print("KiB more:", more)
    assert more < 150_000 or SANITIZED
    for c in idle:
        c.drop()
    client.close()
    works(server, kid)
    server.stop_kernel(kid)


def test_connections_leave_nothing(daemon):
    server = Server(daemon.url, daemon.token)
    kid = server.start_kernel(name="python3")
    works(server, kid)

    def loop(n):
        for i in range(n):
            c = server.connect(kid, v1=i % 2 == 0)
            (c.drop if i % 3 else c.close)()

    loop(100)
    time.sleep(0.5)
    before = vitals(daemon.pid)
    loop(300 * ROUNDS)
    wait_for(lambda: vitals(daemon.pid)[0] <= before[0] + 2)
    print("connects", before, vitals(daemon.pid))
    assert vitals(daemon.pid)[1] < before[1] + 8_000 or SANITIZED
    server.stop_kernel(kid)


HOSTILE = r"""
import json, os, sys, time, zmq
conn = json.load(open(sys.argv[1]))
kind = sys.argv[2]
ctx = zmq.Context()
socks = {}
for name, kind_of in (("shell", zmq.ROUTER), ("control", zmq.ROUTER), ("stdin", zmq.ROUTER),
                      ("iopub", zmq.PUB), ("hb", zmq.REP)):
    socks[name] = s = ctx.socket(kind_of)
    ip, port = conn["ip"], conn[name + "_port"]
    s.bind(f"ipc://{ip}-{port}" if conn["transport"] == "ipc" else f"tcp://{ip}:{port}")
deep = b"[" * 500_000
bad = {"garbage": [b"\0" * 50, b"\xff" * 9],
       "signature": [b"x", b"<IDS|MSG>", b"0" * 64, b"{}", b"{}", b"{}", b"{}"],
       "short": [b"<IDS|MSG>", b""], "deep": [b"<IDS|MSG>", b"", deep, deep, deep, deep],
       "huge": [b"z" * (150 << 20)], "many": [b"p"] * 20_000, "silent": None, "empty": [b""]}[kind]
end = time.time() + 60
while time.time() < end:
    if bad is not None:
        socks["iopub"].send_multipart(bad)
    for name in ("shell", "control"):
        while socks[name].poll(20):
            got = socks[name].recv_multipart()
            if bad is not None:
                socks[name].send_multipart([got[0]] + bad)
"""
KINDS = ("garbage", "signature", "short", "deep", "huge", "many", "silent", "empty")


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_kernel(daemon, kind):
    """What no kernel should say: neither daemon nor other kernels suffer, and it can be ended."""
    folder = Path(daemon.jupyter_data, "kernels", "hostile-" + kind)
    folder.mkdir(parents=True)
    (folder / "bad.py").write_text(HOSTILE)
    python = str(Path(__file__).resolve().parents[2] / "build" / "venv" / "bin" / "python")
    (folder / "kernel.json").write_text(json.dumps({
        "argv": [python, str(folder / "bad.py"), "{connection_file}", kind],
        "display_name": kind, "language": "none"}))
    server = Server(daemon.url, daemon.token)
    kids = []
    thread = threading.Thread(target=lambda: kids.append(server.api(
        "POST", "api/kernels", {"name": "hostile-" + kind}).json().get("id")))
    thread.start()
    time.sleep(1.5)
    other = Server(daemon.url, daemon.token)
    good = other.start_kernel(name="python3")
    works(other, good)
    other.stop_kernel(good)
    for model in other.api("GET", "api/kernels", expect=200).json():
        assert other.api("DELETE", "api/kernels/" + model["id"]).status_code in (204, 404)
    thread.join(20)
    assert not thread.is_alive()
    wait_for(lambda: not other.api("GET", "api/kernels").json())
    alive(daemon)


def test_daemon_killed_again_and_again(daemon_factory):
    """kill -9 in mid-cell, several times: no line of the output is lost or doubled."""
    d = daemon_factory(grace=60)
    lines = 60
    b = Book(d, f"import time\nfor i in range({lines}):\n    print(i, flush=True)\n"
                "    time.sleep(0.1)\n")
    b.connect()
    b.run(0)
    for _ in range(3 * ROUNDS if ROUNDS < 4 else 12):
        time.sleep(0.7)
        d.kill()
        d.start()
    wait_for(lambda: text_of(b.disk()["cells"][0]).split() == [str(i) for i in range(lines)], 30)


def test_shim_and_kernel_killed(daemon_factory):
    """The daemon outlives its shim; kernels of a killed shim end, new ones start."""
    d = daemon_factory(grace=30)
    server = Server(d.url, d.token)
    for victim in ("reitos-shim", "zygote", "ipykernel", "reitos-shim"):
        kid = server.start_kernel(name="python3")
        client = server.connect(kid)
        client.execute_async("import time; time.sleep(60)")
        time.sleep(0.5)
        for pid in d.processes():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            except OSError:
                continue
            if pid != d.pid and victim in line:
                os.kill(pid, signal.SIGKILL)
        client.drop()

        def new_kernel():
            r = server.api("POST", "api/kernels", {"name": "python3"})
            return r.json()["id"] if r.status_code == 201 else None

        fresh = wait_for(new_kernel, 30)
        works(server, fresh)
        for model in server.api("GET", "api/kernels", expect=200).json():
            server.api("DELETE", "api/kernels/" + model["id"])
        alive(d)


def test_full_disk(daemon_factory, tmp_path):
    """Saving on a full disk says so and leaves the file as it was; the kernel goes on."""
    if os.geteuid() != 0:
        pytest.skip("needs mount")
    root = tmp_path / "small"
    root.mkdir()
    if os.system(f"mount -t tmpfs -o size=4m tmpfs {root} 2>/dev/null") != 0:
        pytest.skip("mount is not permitted")
    try:
        d = daemon_factory(root=str(root))
        b = Book(d, "print('x')")
        before = b.file.read_bytes()
        big = nb("#" * 6_000_000)
        r = b.server.api("PUT", f"api/contents/{b.name}",
                         {"type": "notebook", "format": "json", "content": big})
        assert r.status_code == 507, (r.status_code, r.text[:300])
        assert b.file.read_bytes() == before
        assert [n for n in os.listdir(root) if n != ".ipynb_checkpoints"] == [b.name]
        works(b.server, b.kid)
        b.connect()
        b.done(b.run(0, "print('z' * 6_000_000)"))
        b.leave()
        time.sleep(1)
        assert b.file.read_bytes()[:1] == b"{" and json.loads(b.file.read_text())
        works(b.server, b.kid)
        b.close()
    finally:
        os.system(f"umount -l {root}")


def test_renamed_and_saved_in_mid_cell(daemon):
    """Saves, renames of file and folder and reconnects while a cell prints."""
    server = Server(daemon.url, daemon.token)
    end = time.monotonic() + 6 * ROUNDS
    failed = []

    def round_of(n):
        s = Server(daemon.url, daemon.token)
        folder, k = f"abuse{n}", 0
        s.api("PUT", f"api/contents/{folder}", {"type": "directory"}, expect=201)
        code = "import time\nfor i in range(99999):\n    print(i, flush=True); time.sleep(0.02)\n"
        content = {"type": "notebook", "format": "json", "content": nb(code)}
        s.api("PUT", f"api/contents/{folder}/0.ipynb", content, expect=201)
        session = s.start_session(f"{folder}/0.ipynb")
        kid, path = session["kernel"]["id"], f"{folder}/0.ipynb"
        client = s.connect(kid)
        client.execute_async(code, cell_id="c0")
        while time.monotonic() < end:
            k += 1
            got = s.api("GET", f"api/contents/{path}", expect=200).json()
            content["content"] = got["content"]
            s.api("PUT", f"api/contents/{path}", content, expect=200)
            if k % 3 == 0:
                moved = f"{folder}/{k}.ipynb"
                s.api("PATCH", f"api/contents/{path}", {"path": moved}, expect=200)
                path = moved
            if k % 5 == 0:
                moved = f"abuse{n}-{k}"
                s.api("PATCH", f"api/contents/{folder}", {"path": moved}, expect=200)
                folder, path = moved, moved + path[len(folder):]
            if k % 4 == 0:
                client.drop()
                time.sleep(0.06)
                client = s.connect(kid)
        client.drop()
        s.stop_kernel(kid)
        numbers = s.api("GET", f"api/contents/{path}", expect=200).json()
        words = text_of(numbers["content"]["cells"][0]).split()
        if len(words) < 20 or words != [str(i) for i in range(len(words))]:
            failed.append(words)

    def guarded(n):
        try:
            round_of(n)
        except Exception as e:  # noqa: BLE001
            failed.append(repr(e))

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed
    server.api("GET", "api/kernels", expect=200)
    alive(daemon)
