"""The HTTP and WebSocket server by itself: tests/lib/http_echo.c in front of real and raw clients."""

import hashlib
import http.client
import json
import os
import random
import signal
import socket
import ssl
import stat
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
import websocket

from daemon import BUILD

ECHO = os.environ.get("REITOS_HTTP_ECHO", str(BUILD / "tests" / "http_echo"))
V1 = "v1.kernel.websocket.jupyter.org"
MIB = 1 << 20


class Echo:
    def __init__(self, folder, listen="127.0.0.1:0", base="/", tls=None):
        self.file = folder / "file.bin"
        if not self.file.exists():
            self.file.write_bytes(random.Random(1).randbytes(3_000_001))
        args = [ECHO, listen, base, str(self.file), *(tls or ())]
        self.log = open(folder / "log", "w+")
        self.proc = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.ready = self.proc.stdout.readline()
        self.port = int(self.ready.split()[1]) if self.ready else None
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}{base}"
        self.ws_url = self.url.replace("http", "ws", 1) + "ws"

    def get(self, path, **kw):
        return requests.get(self.url + path, timeout=20, **kw)

    def stats(self):
        return self.get("stats").json()

    def until(self, key, value, seconds=5):
        end = time.monotonic() + seconds
        while self.stats()[key] != value and time.monotonic() < end:
            time.sleep(0.02)
        assert self.stats()[key] == value

    def raw(self, data=b"", timeout=5):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s.sendall(data)
        return s

    def ask(self, data):
        """Answer to raw bytes, read until the server closes."""
        with self.raw(data) as s:
            return read_all(s)

    def ws(self, **kw):
        return websocket.create_connection(self.ws_url, timeout=20, **kw)

    def fds(self):
        return len(os.listdir(f"/proc/{self.proc.pid}/fd"))

    def rss_kib(self):
        with open(f"/proc/{self.proc.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        try:
            return self.proc.wait(20)
        finally:
            self.proc.kill()
            self.log.close()


def read_all(s):
    out = b""
    try:
        while chunk := s.recv(65536):
            out += chunk
    except ConnectionResetError:
        pass
    return out


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    e = Echo(tmp_path_factory.mktemp("http"))
    yield e
    assert e.stop() == 0, open(e.log.name).read()


@pytest.fixture
def fresh(tmp_path):
    made = []

    def make(**kw):
        made.append(Echo(tmp_path, **kw))
        return made[-1]

    yield make
    for e in made:
        if e.proc.poll() is None:
            assert e.stop() == 0, open(e.log.name).read()


# ---- requests and answers ----


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_methods(echo, method):
    r = requests.request(method, echo.url + "echo", data=b"body" if method != "GET" else None)
    assert r.status_code == 200
    assert r.json()["method"] == method
    assert r.json()["len"] == (0 if method == "GET" else 4)


def test_head_has_the_length_but_no_body(echo):
    r = requests.head(echo.url + "bytes?n=5000")
    assert r.status_code == 200 and r.headers["Content-Length"] == "5000" and r.content == b""


def test_unknown_method(echo):
    assert echo.ask(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 501 ")


def test_paths_and_queries(echo):
    with echo.raw(
        b"GET /echo/a+b%2Bc%20d/%C3%A4//x/../y?q=1+2%2B%26%zz&h=x HTTP/1.1\r\n"
        b"Host: a\r\nConnection: close\r\n\r\n"
    ) as s:
        j = json.loads(read_all(s).split(b"\r\n\r\n", 1)[1])
    assert j["path"] == "echo/a+b+c d/ä//x/../y"
    assert j["q"] == "1 2+&%zz"
    assert j["uri"].startswith("/echo/a+b%2Bc%20d/")


@pytest.mark.parametrize("path", ["/%", "/%4", "/%zz", "/%00", "/%ff", "/%c0%ae", "/%ed%a0%80"])
def test_paths_that_are_not_utf8(echo, path):
    answer = echo.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_absolute_form(echo):
    answer = echo.ask(
        b"GET http://h/echo/x?q=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    )
    assert b'"path":"echo/x"' in answer


def test_headers_and_cookies(echo):
    h = {
        "X-XSRFToken": "tok",
        "Sec-Fetch-Site": "same-origin",
        "Cookie": 'a=1; _xsrf="2|x"; username-localhost-8888=zz',
    }
    assert echo.get("echo?h=x-xsrftoken", headers=h).json()["header"] == "tok"
    assert echo.get("echo?h=sec-fetch-site", headers=h).json()["header"] == "same-origin"
    assert echo.get("echo?h=x-none", headers=h).json()["header"] is None
    assert echo.get("echo?c=_xsrf", headers=h).json()["cookie"] == "2|x"
    assert echo.get("echo?c=username-localhost-8888", headers=h).json()["cookie"] == "zz"
    assert echo.get("echo?c=xsrf", headers=h).json()["cookie"] is None


def test_repeated_headers_are_one_list(echo):
    answer = echo.ask(
        b"GET /echo?h=x-a HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a:  2 \r\nConnection: close\r\n\r\n"
    )
    assert b'"header":"1, 2"' in answer


def test_large_headers(echo):
    value = "v" * 60000
    assert echo.get("echo?h=x-big", headers={"X-Big": value}).json()["header"] == value
    many = {f"x-{i}": str(i) for i in range(400)}
    assert echo.get("echo?h=x-399", headers=many).json()["header"] == "399"


def test_answer_headers_cannot_be_split(echo):
    r = echo.get("headers")
    assert r.headers["X-One"] == "a  X-Evil: 1" and "X-Evil" not in r.headers
    assert r.cookies.get_dict() == {"n": "1", "m": "2"}


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_body(echo, status):
    with requests.Session() as s:
        r = s.get(f"{echo.url}empty?status={status}")
        assert r.status_code == status and "Content-Length" not in r.headers
        assert s.get(f"{echo.url}bytes?n=10&status={status}").status_code == status
        assert s.get(f"{echo.url}small").json() == {"a": 1, "b": [True, None]}


def test_redirect(echo):
    r = echo.get("redirect", allow_redirects=False)
    assert r.status_code == 302 and r.headers["Location"] == "/elsewhere"


def test_errors_are_json(echo):
    r = echo.get("nowhere")
    assert r.status_code == 404
    assert r.json() == {"message": "no such route", "reason": None}


# ---- bodies ----


@pytest.mark.parametrize("size", [0, 1, 65536, 16 * MIB, 16 * MIB + 1, 40 * MIB])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies(echo, size, chunked):
    body = random.Random(size).randbytes(size)

    def pieces():
        for i in range(0, size, 300_001):
            yield body[i : i + 300_001]

    r = requests.put(echo.url + "echo", data=pieces() if chunked else body)
    j = r.json()
    assert j["len"] == size and j["sha256"] == hashlib.sha256(body).hexdigest()
    assert j["spooled"] == (size > 16 * MIB)


def test_json_bodies(echo):
    assert requests.post(echo.url + "json", data=b'{"a": [1]}').json() == {"a": [1]}
    assert requests.post(echo.url + "json").json() == {}
    r = requests.post(echo.url + "json", data=b"{")
    assert r.status_code == 400 and "line 1" in r.json()["message"]
    big = json.dumps({"x": "y" * (17 * MIB)})
    r = requests.post(echo.url + "json", data=big)
    assert r.status_code == 201 and len(r.content) > 17 * MIB


def test_too_large_bodies_are_refused_before_they_come(echo):
    answer = echo.ask(b"PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ") and b"Connection: close" in answer


def test_filter_runs_before_the_body(echo):
    head = b"PUT /echo HTTP/1.1\r\nHost: a\r\nX-Deny: 1\r\nContent-Length: %d\r\n\r\n"
    assert echo.ask(head % 2_000_000_000).startswith(b"HTTP/1.1 403 ")
    # a small rest is swallowed and the connection goes on
    with echo.raw(head % 1000) as s:
        assert s.recv(4096).startswith(b"HTTP/1.1 403 ")
        s.sendall(b"z" * 1000 + b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert read_all(s).startswith(b"HTTP/1.1 200 ")


def test_form_posts_are_bounded(echo):
    r = requests.post(echo.url + "echo", data={"_xsrf": "x" * 100})
    assert r.status_code == 200 and r.json()["len"] == 106
    answer = echo.ask(
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: 2000000\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_expect_continue(echo, tmp_path):
    f = tmp_path / "body"
    f.write_bytes(b"e" * 3_000_000)
    out = subprocess.run(
        ["curl", "-sv", "-H", "Expect: 100-continue", "-T", str(f), echo.url + "echo"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert "HTTP/1.1 100 Continue" in out.stderr and json.loads(out.stdout)["len"] == 3_000_000
    out = subprocess.run(
        ["curl", "-sv", "-H", "Expect: 100-continue", "-H", "X-Deny: 1", "-T", str(f)]
        + [echo.url + "echo"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert "100 Continue" not in out.stderr and "403 Forbidden" in out.stderr
    head = b"PUT /echo HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 5\r\n\r\n"
    assert echo.ask(head).startswith(b"HTTP/1.1 417 ")


# ---- strictness: (request, status) ----

OK = b"GET /small HTTP/1.1\r\nHost: a\r\n"
REFUSED = {
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\r\n\r\n", 400),
    "bare LF": (b"GET /small HTTP/1.1\nHost: a\n\n", 400),
    "one bare LF": (OK + b"X: 1\nY: 2\r\n\r\n", 400),
    "bare CR": (OK + b"X: 1\rY: 2\r\n\r\n", 400),
    "no Host": (b"GET /small HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (OK + b"Host: b\r\n\r\n", 400),
    "folded": (OK + b"X: 1\r\n 2\r\n\r\n", 400),
    "blank before colon": (OK + b"X : 1\r\n\r\n", 400),
    "no colon": (OK + b"X\r\n\r\n", 400),
    "NUL": (OK + b"X: \0\r\n\r\n", 400),
    "control": (OK + b"X: \x01\r\n\r\n", 400),
    "CL and TE": (OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "two CL": (OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n", 400),
    "listed CL": (OK + b"Content-Length: 3, 3\r\n\r\n", 400),
    "signed CL": (OK + b"Content-Length: +3\r\n\r\n", 400),
    "negative CL": (OK + b"Content-Length: -3\r\n\r\n", 400),
    "hex CL": (OK + b"Content-Length: 0x3\r\n\r\n", 400),
    "endless CL": (OK + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
    "TE gzip": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "TE twice": (OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "TE in 1.0": (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "bad chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "chunk LF": (OK + b"Transfer-Encoding: chunked\r\n\r\n1\nx\r\n", 400),
    "chunk too long": (OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400),
    "chunk not ended": (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n", 400),
    "huge head": (OK + b"X: " + b"x" * 70000, 431),
    "many headers": (OK + b"".join(b"x%d: 1\r\n" % i for i in range(600)) + b"\r\n", 431),
    "version": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "no version": (b"GET /\r\n\r\n", 400),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "blanks": (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(echo, name):
    data, status = REFUSED[name]
    answer = echo.ask(data)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"Connection: close" in answer and answer.count(b"\r\nDate: ") == 1
    json.loads(answer.split(b"\r\n\r\n", 1)[1])


def test_http_1_0(echo):
    answer = echo.ask(b"GET /small HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ") and b"Connection: close" in answer
    answer = echo.ask(b"GET /stream?n=3&size=4 HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n" + b"s" * 12) and b"chunked" not in answer


def test_random_bytes_do_no_harm(echo):
    rng = random.Random(5)
    for _ in range(200):
        data = bytearray(OK + b"Content-Length: 10\r\n\r\n0123456789")
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with echo.raw(bytes(data)) as s:
            s.shutdown(socket.SHUT_WR)
            read_all(s)
    assert echo.get("small").status_code == 200


# ---- connections ----


def test_pipelining(echo):
    one = b"GET /echo/%d HTTP/1.1\r\nHost: a\r\n\r\n"
    body = b"POST /echo/b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    last = b"GET /echo/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    data = b"".join(one % i for i in range(500)) + body + last
    out = echo.ask(data)
    assert out.count(b"HTTP/1.1 200 OK") == 502
    order = [p.split(b'"')[0] for p in out.split(b'"path":"echo/')[1:]]
    assert order == [b"%d" % i for i in range(500)] + [b"b", b"last"]


def test_pipelined_behind_a_held_request(echo):
    with echo.raw(b"GET /delay?ms=300 HTTP/1.1\r\nHost: a\r\n\r\n") as s:
        s.sendall(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + b"x" * 300_000)
        out = read_all(s)
    assert out.index(b"late") < out.index(b'{"a": 1')


def test_byte_by_byte(echo):
    data = b"PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    data += b"3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
    with echo.raw() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            s.sendall(data[i : i + 1])
        j = json.loads(read_all(s).split(b"\r\n\r\n", 1)[1])
    assert j["len"] == 13 and j["sha256"] == hashlib.sha256(b"abc0123456789").hexdigest()


def test_200_parallel(echo):
    def one(i):
        with requests.Session() as s:
            return all(s.get(f"{echo.url}echo/{i}").json()["path"] == f"echo/{i}" for _ in range(3))

    with ThreadPoolExecutor(200) as pool:
        assert all(pool.map(one, range(200)))


def test_thousands_of_connects_leave_nothing(fresh):
    e = fresh()

    def burst(n):
        for i in range(n):
            with e.raw(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n") as s:
                if i % 3:
                    assert s.recv(4096).startswith(b"HTTP/1.1 200 ")

    burst(200)
    time.sleep(0.3)
    fds, rss = e.fds(), e.rss_kib()
    burst(int(os.environ.get("REITOS_CONNECTS", "2000")))
    time.sleep(0.3)
    assert e.fds() == fds
    assert e.rss_kib() - rss < (100_000 if "asan" in ECHO else 2000)


def test_idle_connections_are_small(fresh):
    e = fresh()
    e.get("small")
    before = e.rss_kib()
    held = []
    for _ in range(500):
        s = e.raw(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        held.append(s)
    per = (e.rss_kib() - before) / 500
    for s in held:
        s.close()
    assert per < (60 if "asan" in ECHO else 10), per


# ---- deadlines: "leap" puts the server's clock forward ----


def ends(s, seconds=2.5):
    """Does the server close this connection soon?"""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
        return True
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_slow_head_is_dropped(fresh):
    e = fresh()
    with e.raw(b"GET /small HTTP/1.1\r\nHost:") as slow, e.raw() as silent:
        time.sleep(0.1)
        e.get("leap?s=28")
        slow.sendall(b"x")  # a byte now and then does not help
        assert not ends(slow, 1.2) and not ends(silent, 0.1)
        e.get("leap?s=2")
        assert ends(slow) and ends(silent)
    assert e.get("small").status_code == 200


def test_idle_connection_is_closed(fresh):
    e = fresh()
    with e.raw(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n") as s:
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        e.get("leap?s=73")
        assert not ends(s, 1.2)
        e.get("leap?s=2")
        assert ends(s)


def test_stalled_body(fresh):
    e = fresh()
    with e.raw(b"PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc") as s:
        time.sleep(0.1)
        e.get("leap?s=61")
        assert read_all(s).startswith(b"HTTP/1.1 408 ")


def test_unanswered_request_gets_503(fresh):
    e = fresh()
    with e.raw(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n") as s:
        with e.raw(b"GET /delay?ms=4000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") as d:
            time.sleep(0.1)
            e.get("leap?s=118")
            s.settimeout(1.2)
            with pytest.raises(TimeoutError):
                s.recv(10)
            e.get("leap?s=2")
            s.settimeout(3)
            assert s.recv(4096).startswith(b"HTTP/1.1 503 ")
            assert read_all(d).startswith(b"HTTP/1.1 503 ")
            assert e.stats()["gone"] == 2
            s.sendall(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")  # the connection lives
            assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
            time.sleep(4)  # the late answer finds nobody
    assert e.get("small").status_code == 200


def test_reader_that_stopped_is_dropped(fresh):
    e = fresh()
    with e.raw(b"GET /stream?n=100000&size=65536 HTTP/1.1\r\nHost: a\r\n\r\n"):
        time.sleep(0.3)
        e.get("leap?s=110")
        time.sleep(1.2)
        assert e.stats()["gone"] == 0
        e.get("leap?s=11")
        e.until("gone", 1)


def test_ws_is_pinged_and_dropped_when_silent(fresh):
    e = fresh()
    w, mute = RawWs(e), RawWs(e)
    for _ in range(4):
        e.get("leap?s=31")
        w.s.settimeout(3)
        assert w.read() == (9, b"")
        w.s.sendall(frame(10, b""))
    e.until("ws_closed", 1)
    assert ends(mute.s)
    w.s.sendall(frame(1, b"alive"))
    assert w.read() == (1, b"alive")
    w.close()
    mute.close()


def test_client_gone_while_held(echo):
    before = echo.stats()["gone"]
    for path in ("/hold", "/delay?ms=400"):
        s = echo.raw(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        time.sleep(0.1)
        s.close()
    echo.until("gone", before + 2)
    time.sleep(0.5)  # the late answer goes nowhere
    assert echo.get("small").status_code == 200


def test_client_gone_while_streaming(echo):
    before = echo.stats()["gone"]
    s = echo.raw(b"GET /stream?n=100000&size=65536 HTTP/1.1\r\nHost: a\r\n\r\n")
    s.recv(1000)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    echo.until("gone", before + 1)
    s = echo.raw(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n")
    s.recv(1000)
    s.close()
    assert echo.get("small").status_code == 200


# ---- large answers ----


def test_stream(echo):
    r = echo.get("stream?n=300&size=70000")
    assert r.headers["Transfer-Encoding"] == "chunked" and r.content == b"s" * 21_000_000
    assert requests.head(echo.url + "stream").content == b""
    assert echo.get("stream?n=0").content == b""


def test_stream_is_bounded_by_the_reader(fresh):
    e = fresh()
    before = e.rss_kib()
    with e.raw(b"GET /stream?n=20000&size=65536 HTTP/1.1\r\nHost: a\r\n\r\n") as s:
        s.recv(100)
        time.sleep(0.5)
        assert e.rss_kib() - before < (60_000 if "asan" in ECHO else 4000)
        assert e.get("small").status_code == 200


@pytest.mark.parametrize("off,length", [(0, None), (0, 0), (1, 1), (1000, 2_000_000), (3_000_000, 1)])
def test_files(echo, off, length):
    data = echo.file.read_bytes()
    end = len(data) if length is None else off + length
    query = f"file?off={off}" + ("" if length is None else f"&len={length}")
    r = echo.get(query)
    assert r.content == data[off:end] and r.headers["Content-Length"] == str(end - off)
    r = requests.head(echo.url + query)
    assert r.headers["Content-Length"] == str(end - off)


def test_file_that_is_shorter_than_promised(echo):
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        echo.get("file?off=0&len=4000000")
    assert echo.get("small").status_code == 200


def test_slow_reader_gets_all_and_blocks_nobody(echo):
    with echo.raw(b"GET /bytes?n=8000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") as s:
        time.sleep(0.3)
        begun = time.monotonic()
        assert echo.get("small").status_code == 200
        assert time.monotonic() - begun < 0.5
        assert read_all(s).endswith(b"b" * 8_000_000)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_stuck_reader_costs_no_cpu(fresh):
    e = fresh()
    with e.raw(b"GET /bytes?n=80000000 HTTP/1.1\r\nHost: a\r\n\r\nGET /small HTTP/1.1\r\n"):
        time.sleep(0.5)
        before = cpu_seconds(e.proc.pid)
        time.sleep(2)
        assert cpu_seconds(e.proc.pid) - before < 0.1


# ---- addresses ----


def test_base_url(fresh):
    e = fresh(base="/x/y/")
    assert e.get("echo/z").json()["path"] == "echo/z"
    root = f"http://127.0.0.1:{e.port}"
    r = requests.get(root + "/x/y?q=1", allow_redirects=False)
    assert r.status_code in (301, 302) and r.headers["Location"] == "/x/y/?q=1"
    for path in ("/", "/x/", "/x/yz/echo", "/echo", "/x/%2e%2e/x/z/echo"):
        assert requests.get(root + path).status_code == 404, path
    w = e.ws()
    w.send("a")
    assert w.recv() == "a"
    w.close()


def test_unix_socket(fresh, tmp_path):
    path = str(tmp_path / "s")
    e = fresh(listen="unix:" + path)
    assert e.port == 0 and stat.S_IMODE(os.stat(path).st_mode) == 0o600
    out = subprocess.run(
        ["curl", "-s", "--unix-socket", path, "http://h/echo"], capture_output=True, text=True
    )
    assert json.loads(out.stdout)["peer"] == "unix"
    second = subprocess.run(
        [ECHO, "unix:" + path, "/", "f"], capture_output=True, text=True, timeout=10
    )
    assert second.returncode == 2 and "another server" in second.stderr
    e.proc.kill()
    e.proc.wait()
    assert os.path.exists(path)
    again = fresh(listen="unix:" + path)  # the dead one's socket is replaced
    assert again.port == 0
    assert again.stop() == 0
    assert not os.path.exists(path)


def test_ipv6(fresh):
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    e = fresh(listen="[::1]:0")
    assert requests.get(f"http://[::1]:{e.port}/echo").json()["peer"] == "::1"


@pytest.mark.parametrize("listen", ["127.0.0.1", "1.2.3.4.5:1", "127.0.0.1:x", "::1:1", "h:99999"])
def test_bad_addresses(listen):
    p = subprocess.run([ECHO, listen, "/", "f"], capture_output=True, text=True, timeout=20)
    assert p.returncode == 2 and len(p.stderr.strip().splitlines()) == 1
    assert listen in p.stderr


def test_port_in_use(echo):
    p = subprocess.run(
        [ECHO, f"127.0.0.1:{echo.port}", "/", "f"], capture_output=True, text=True, timeout=20
    )
    assert p.returncode == 2 and "in use" in p.stderr and len(p.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    d = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-keyout", d / "key", "-out", d / "cert", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        check=True,
        capture_output=True,
    )
    return str(d / "cert"), str(d / "key")


def test_tls(fresh, certificate):
    e = fresh(tls=certificate)
    with requests.Session() as s:
        s.trust_env = False
        s.verify = certificate[0]
        assert s.get(e.url + "echo").json()["tls"] is True
        assert s.get(e.url + "file").content == e.file.read_bytes()
        body = random.Random(3).randbytes(20_000_000)
        j = s.put(e.url + "echo", data=body).json()
        assert j["sha256"] == hashlib.sha256(body).hexdigest()
        assert s.get(e.url + "stream?n=100&size=70000").content == b"s" * 7_000_000
    context = ssl.create_default_context(cafile=certificate[0])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", e.port)) as raw:
        with context.wrap_socket(raw, server_hostname="localhost") as t:
            assert t.selected_alpn_protocol() == "http/1.1"
    w = websocket.create_connection(e.ws_url, sslopt={"ca_certs": certificate[0]}, timeout=20)
    for size in (1, 100, 70_000, 5_000_000):
        w.send_binary(b"t" * size)
        assert w.recv() == b"t" * size
    w.close()
    with e.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") as s:  # plain text to a TLS port
        read_all(s)
    with socket.create_connection(("127.0.0.1", e.port)) as idle:  # a handshake never begun
        idle.close()


def test_tls_slow_reader(fresh, certificate):
    e = fresh(tls=certificate)
    context = ssl.create_default_context(cafile=certificate[0])
    with socket.create_connection(("127.0.0.1", e.port)) as raw:
        with context.wrap_socket(raw, server_hostname="localhost") as t:
            t.sendall(b"GET /bytes?n=9000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            time.sleep(0.5)
            before = cpu_seconds(e.proc.pid)
            time.sleep(1)
            assert cpu_seconds(e.proc.pid) - before < 0.1
            assert read_all(t).endswith(b"b" * 9_000_000)


def test_bad_certificate(tmp_path, echo):
    bad = tmp_path / "bad"
    bad.write_text("no certificate")
    for files in ((str(bad), str(bad)), ("/nonexistent", "/nonexistent")):
        p = subprocess.run(
            [ECHO, "127.0.0.1:0", "/", "f", *files], capture_output=True, text=True, timeout=20
        )
        assert p.returncode == 2 and files[0] in p.stderr and len(p.stderr.splitlines()) == 1


# ---- WebSocket ----


def frame(opcode, payload=b"", fin=True, mask=b"\x01\x02\x03\x04", rsv=0, bits=None):
    head = bytes([(0x80 if fin else 0) | rsv | opcode])
    m = 0x80 if mask else 0
    n = len(payload)
    if bits == 16 or (bits is None and 126 <= n < 65536):
        head += bytes([m | 126]) + struct.pack(">H", n)
    elif bits == 64 or n >= 65536:
        head += bytes([m | 127]) + struct.pack(">Q", n)
    else:
        head += bytes([m | n])
    if mask:
        head += mask
        payload = bytes(b ^ mask[i & 3] for i, b in enumerate(payload))
    return head + payload


HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


class RawWs:
    def __init__(self, e, early=b""):
        self.s = e.raw(HANDSHAKE + b"\r\n" + early)
        self.f = self.s.makefile("rb")
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            self.head += self.f.readline()

    def read(self):
        b = self.f.read(2)
        if len(b) < 2:
            return None, b""
        n = b[1] & 0x7F
        if n == 126:
            n = struct.unpack(">H", self.f.read(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.f.read(8))[0]
        return b[0] & 15, self.f.read(n)

    def close(self):
        self.f.close()
        self.s.close()


@pytest.fixture
def rws(echo):
    made = []

    def make(*a):
        made.append(RawWs(echo, *a))
        return made[-1]

    yield make
    for w in made:
        w.close()


def test_ws_handshake(rws):
    w = rws(frame(1, b"early"))  # a frame in the same packet
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in w.head
    assert b"Sec-WebSocket-Protocol" not in w.head and b"Extensions" not in w.head
    assert w.read() == (1, b"early")


@pytest.mark.parametrize(
    "offered,chosen", [([V1], V1), (["other", V1], V1), (["other"], ""), ([], "")]
)
def test_ws_subprotocols(echo, offered, chosen):
    extra = f"Sec-WebSocket-Protocol: {', '.join(offered)}\r\n".encode() if offered else b""
    with echo.raw(HANDSHAKE + extra + b"\r\n" + frame(1, b"sub:")) as s:
        out = b""
        while b"\r\n\r\n" not in out or len(out.split(b"\r\n\r\n", 1)[1]) < 2 + len(chosen):
            out += s.recv(4096)
    head, rest = out.split(b"\r\n\r\n", 1)
    assert rest[2:].decode() == chosen
    assert (b"Sec-WebSocket-Protocol: " + V1.encode() in head) == bool(chosen)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000, 5_000_000, 50_000_000])
def test_ws_sizes(echo, size):
    w = echo.ws(skip_utf8_validation=True)
    data = random.Random(size).randbytes(size)
    w.send_binary(data)
    assert w.recv_data() == (2, data)
    w.send("x" * size)
    assert w.recv_data() == (1, b"x" * size)
    w.close()


def test_ws_fragments_with_a_ping_between(rws):
    w = rws()
    w.s.sendall(frame(1, "hä".encode()[:2], fin=False) + frame(9, b"p") + frame(0, b"", fin=False))
    assert w.read() == (10, b"p")
    w.s.sendall(frame(0, "hä".encode()[2:] + b"llo"))
    assert w.read() == (1, "hällo".encode())
    w.s.sendall(frame(2, b"", fin=False) + frame(0, b""))
    assert w.read() == (2, b"")


def test_ws_byte_by_byte(rws):
    w = rws()
    for b in frame(2, bytes(range(256)) * 2):
        w.s.sendall(bytes([b]))
    assert w.read() == (2, bytes(range(256)) * 2)


def test_ws_ping_carries_a_mark(echo, rws):
    w = rws()
    w.s.sendall(frame(1, b"ping:1311768467294899695"))
    op, mark = w.read()
    assert (op, mark.hex()) == (9, "1234567890abcdef")
    w.s.sendall(frame(10, mark))
    assert w.read() == (1, b"pong 1311768467294899695")
    w.s.sendall(frame(10, b"") + frame(10, b"1234") + frame(1, b"still"))
    assert w.read() == (1, b"still")


def test_ws_flood_of_pings_grows_nothing(fresh):
    e = fresh()
    w = RawWs(e)
    before = e.rss_kib()
    w.s.settimeout(10)

    def flood():
        try:
            w.s.sendall(frame(9, b"x" * 125) * 100_000)
        except OSError:
            pass

    t = threading.Thread(target=flood, daemon=True)
    t.start()
    time.sleep(2)
    assert e.rss_kib() - before < (60_000 if "asan" in ECHO else 6000)
    assert e.get("small").status_code == 200
    w.s.shutdown(socket.SHUT_RDWR)
    w.close()
    t.join(5)


BROKEN = {
    "not masked": (frame(1, b"a", mask=b""), 1002),
    "rsv": (frame(1, b"a", rsv=0x40), 1002),
    "opcode 3": (frame(3, b"a"), 1002),
    "opcode 11": (frame(11, b"a"), 1002),
    "long ping": (frame(9, b"a" * 126), 1002),
    "fragmented ping": (frame(9, b"a", fin=False), 1002),
    "continuation of nothing": (frame(0, b"a"), 1002),
    "new message in a message": (frame(1, b"a", fin=False) + frame(1, b"a"), 1002),
    "long form of a short length": (frame(1, b"a", bits=16), 1002),
    "64-bit form of a short length": (frame(2, b"a" * 300, bits=64), 1002),
    "negative length": (b"\x82\xff" + b"\xff" * 8 + b"mask", 1002),
    "not UTF-8": (frame(1, b"\xff"), 1007),
    "surrogate": (frame(1, b"\xed\xa0\x80"), 1007),
    "cut UTF-8": (frame(1, "ä".encode()[:1], fin=False) + frame(0, b"x"), 1007),
    "close of one byte": (frame(8, b"\x03"), 1002),
    "close code 1005": (frame(8, struct.pack(">H", 1005)), 1002),
    "close code 999": (frame(8, struct.pack(">H", 999)), 1002),
    "close reason not UTF-8": (frame(8, struct.pack(">H", 1000) + b"\xff"), 1007),
}


@pytest.mark.parametrize("name", BROKEN)
def test_ws_protocol_errors(echo, rws, name):
    data, code = BROKEN[name]
    w = rws()
    closed = echo.stats()["ws_closed"]
    w.s.sendall(data)
    op, payload = w.read()
    assert op == 8 and struct.unpack(">H", payload[:2])[0] == code
    assert w.read() == (None, b"")
    assert echo.stats()["ws_closed"] == closed + 1


@pytest.mark.parametrize("payload", [b"", struct.pack(">H", 1000), struct.pack(">H", 4000) + b"bye"])
def test_ws_client_closes(echo, rws, payload):
    w = rws()
    closed = echo.stats()["ws_closed"]
    w.s.sendall(frame(8, payload) + frame(1, b"ignored"))
    assert w.read() == (8, payload[:2])
    assert w.read() == (None, b"")
    assert echo.stats()["ws_closed"] == closed + 1


def test_ws_server_closes(echo, rws):
    w = rws()
    closed = echo.stats()["ws_closed"]
    w.s.sendall(frame(1, b"close:4001"))
    assert w.read() == (8, struct.pack(">H", 4001) + b"as you wish")
    assert echo.stats()["ws_closed"] == closed
    w.s.sendall(frame(1, b"ignored") + frame(8, struct.pack(">H", 4001)))
    assert w.read() == (None, b"")
    echo.until("ws_closed", closed + 1)
    w = rws()  # and a peer that never answers the close
    w.s.sendall(frame(1, b"close:1011"))
    assert w.read()[0] == 8
    w.s.settimeout(12)
    assert w.read() == (None, b"")
    echo.until("ws_closed", closed + 2)


def test_ws_abrupt_end(echo):
    closed = echo.stats()["ws_closed"]
    for data in (b"", frame(1, b"x" * 1000)[:500], frame(1, b"big:30000000")):
        w = RawWs(echo)
        w.s.sendall(data)
        w.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        w.close()
    echo.until("ws_closed", closed + 3)


def test_ws_oversize_message_is_dropped(fresh):
    e = fresh()
    w = RawWs(e)
    w.s.settimeout(60)
    chunk = frame(0, b"y" * (4 * MIB), fin=False, mask=b"\0\0\0\0")
    w.s.sendall(frame(2, b"head", fin=False))
    for _ in range(65):
        w.s.sendall(chunk)
    w.s.sendall(frame(0, b"end"))
    assert w.read() == (1, b"oversize 65536 head")
    w.s.sendall(frame(1, b"alive"))
    assert w.read() == (1, b"alive")
    w.close()


def test_ws_slow_reader_blocks_nobody_and_can_still_send(echo):
    slow = RawWs(echo)
    slow.s.sendall(frame(1, b"big:50000000"))
    time.sleep(0.3)
    fast = echo.ws()
    begun = time.monotonic()
    for i in range(100):
        fast.send(f"n{i}")
        assert fast.recv() == f"n{i}"
    assert time.monotonic() - begun < 2
    fast.close()
    # what it says now is read while the server still sends
    slow.s.sendall(frame(9, b"over"))
    slow.s.settimeout(30)
    first = slow.read()
    assert first == (2, b"w" * 50_000_000)
    assert slow.read() == (10, b"over")
    slow.close()


def test_ws_refused(echo):
    for path, status in (("nowhere", 404), ("ws-own", 409)):
        with pytest.raises(websocket.WebSocketBadStatusException) as x:
            websocket.create_connection(echo.ws_url[:-2] + path)
        assert x.value.status_code == status
        assert json.loads(x.value.resp_body)["message"]
    with pytest.raises(websocket.WebSocketBadStatusException) as x:
        websocket.create_connection(echo.ws_url, header={"X-Deny": "1"})
    assert x.value.status_code == 403


@pytest.mark.parametrize(
    "old,new,status",
    [
        (b"Version: 13", b"Version: 8", b"426"),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", b"400"),
        (b"keep-alive, Upgrade", b"keep-alive", b"400"),
        (b"HTTP/1.1", b"HTTP/1.0", b"400"),
    ],
)
def test_ws_bad_handshakes(echo, old, new, status):
    data = HANDSHAKE.replace(old, new) + b"Connection: close\r\n\r\n"
    assert echo.ask(data).startswith(b"HTTP/1.1 " + status)


def test_ws_random_frames(echo):
    rng = random.Random(11)
    for _ in range(150):
        w = RawWs(echo)
        data = bytearray()
        for _ in range(rng.randint(1, 6)):
            data += frame(
                rng.choice([0, 1, 2, 8, 9, 10, rng.randrange(16)]),
                rng.randbytes(rng.choice([0, 1, 5, 125, 126, 300, 70_000])),
                fin=rng.random() < 0.7,
                rsv=rng.choice([0, 0, 0, 0, 0x40]),
            )
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            w.s.sendall(data)
            w.s.shutdown(socket.SHUT_WR)
            read_all(w.s)
        except OSError:
            pass
        w.close()
    assert echo.get("small").status_code == 200


def test_ws_many(fresh):
    e = fresh()
    all_ws = [e.ws() for _ in range(200)]
    for i, w in enumerate(all_ws):
        w.send(str(i))
    for i, w in enumerate(all_ws):
        assert w.recv() == str(i)
    assert e.stats()["ws_open"] == 200
    for w in all_ws:
        w.shutdown()
    e.until("ws_closed", 200)


# ---- the end ----


def test_stop_is_graceful(fresh):
    e = fresh()
    w = RawWs(e)
    idle = e.raw(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
    idle.recv(4096)
    held = e.raw(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
    stream = e.raw(b"GET /stream?n=1000000&size=65536 HTTP/1.1\r\nHost: a\r\n\r\n")
    stuck = RawWs(e)
    stuck.s.sendall(frame(1, b"big:80000000"))
    time.sleep(0.3)
    begun = time.monotonic()
    e.proc.send_signal(signal.SIGTERM)
    assert w.read() == (8, struct.pack(">H", 1012) + b"the server stops")
    w.s.sendall(frame(8, struct.pack(">H", 1012)))
    assert read_all(held).startswith(b"HTTP/1.1 503 ")
    assert idle.recv(10) == b""
    assert e.proc.wait(10) == 0, open(e.log.name).read()
    assert time.monotonic() - begun < (6 if "asan" in ECHO else 2.5)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", e.port), timeout=2)
    for s in (idle, held, stream):
        s.close()
    w.close()
    stuck.close()


def test_stop_without_clients_is_at_once(fresh):
    e = fresh()
    begun = time.monotonic()
    assert e.stop() == 0
    assert time.monotonic() - begun < (3 if "asan" in ECHO else 0.5)


def test_python_client_keeps_connections(echo):
    c = http.client.HTTPConnection("127.0.0.1", echo.port)
    sock = None
    for _ in range(50):
        c.request("GET", "/small")
        c.getresponse().read()
        sock = sock or c.sock
        assert c.sock is sock
    c.close()
