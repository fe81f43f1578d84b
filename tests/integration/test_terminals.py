"""Terminals: a shell in a page."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
import requests
import websocket


class Terminals:
    def __init__(self, d):
        self.d = d
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {d.token}"

    def __call__(self, method, path="", status=200, **options):
        r = self.http.request(method, f"{self.d.url}api/terminals{path}", timeout=20, **options)
        assert r.status_code == status, r.text
        return r

    def new(self, **body):
        return self("POST", json=body).json()["name"]

    def open(self, name):
        return Socket(self.d, name)


class Socket:
    def __init__(self, d, name):
        url = d.url.replace("http", "ws", 1) + f"terminals/websocket/{name}"
        self.ws = websocket.create_connection(url, timeout=15,
                                              header=[f"Authorization: token {d.token}"])
        self.text = ""

    def receive(self):
        message = json.loads(self.ws.recv())
        if message[0] == "stdout":
            self.text += message[1]
        return message

    def send(self, *message):
        self.ws.send(json.dumps(message))

    def until(self, pattern, seconds=15):
        deadline = time.monotonic() + seconds
        while not (m := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, self.text[-2000:]
            self.receive()
        return m

    def run(self, command):
        self.send("stdin", command + "\r")


@pytest.fixture
def terms(daemon):
    t = Terminals(daemon)
    yield t
    for model in t("GET").json():
        t("DELETE", "/" + model["name"], 204)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pid, seconds=5):
    deadline = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.02)


def test_models(terms):
    r = terms("POST").json()
    assert set(r) == {"name", "last_activity"}
    assert re.match(r"^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{6}Z$", r["last_activity"])
    assert terms("GET", "/" + r["name"]).json()["name"] == r["name"]
    assert [t["name"] for t in terms("GET").json()] == [r["name"]]
    assert terms.new(name="mine") == "mine"
    terms("POST", status=409, json={"name": "mine"})
    for bad in ("a/b", "..", "a b", "x" * 100):
        terms("POST", status=400, json={"name": bad})
    terms("DELETE", "/mine", 204)
    terms("DELETE", "/mine", 404)
    terms("GET", "/mine", 404)


def test_session(terms, daemon):
    s = terms.open(terms.new())
    assert s.receive() == ["setup", {}]
    s.run("echo answer-$((40 + 2)); pwd; echo $TERM")
    s.until(r"answer-42\s")
    s.until(re.escape(os.path.realpath(daemon.root)))
    s.until("xterm-256color")


def test_cwd(terms, daemon):
    Path(daemon.root, "sub dir").mkdir(exist_ok=True)
    for cwd, want in (("sub dir", "/root/sub dir"), (str(Path(daemon.root, "sub dir")), "/sub dir"),
                      ("none", "/root"), ("../..", "/root"), ("/etc", "/root")):
        s = terms.open(terms.new(cwd=cwd))
        s.run("echo at=$PWD=")
        assert s.until(r"at=(/[^=\r]*)=").group(1).endswith(want), cwd


def test_size(terms):
    s = terms.open(terms.new())
    s.send("set_size", 33, 111, 600, 800)
    s.run("stty size")
    s.until(r"33 111")
    for bad in (["set_size"], ["set_size", -1, 5], ["set_size", "a", "b"], ["stdin"], ["stdin", 5],
                [], {}, "x", ["other", 1]):
        s.ws.send(json.dumps(bad))
    s.ws.send("not json")
    s.run("echo still-$((1 + 1))")
    s.until("still-2")


def test_reattach_replays(terms):
    name = terms.new()
    a = terms.open(name)
    a.run("echo before-$((1 + 1))")
    a.until("before-2")
    a.ws.close()
    b = terms.open(name)
    assert b.receive() == ["setup", {}]
    b.until("before-2", 3)


def test_replay_is_bounded_and_whole(terms):
    name = terms.new()
    a = terms.open(name)
    a.run("for i in $(seq 60000); do echo é-line-$i; done; echo end-$((1 + 1))")
    a.until("end-2", 60)
    assert "é-line-59999" in a.text and "\ufffd" not in a.text
    b = terms.open(name)
    b.until("end-2")
    assert 200_000 < len(b.text.encode()) <= 256 << 10
    assert "\ufffd" not in b.text


def test_two_clients_see_the_same(terms):
    name = terms.new()
    a, b = terms.open(name), terms.open(name)
    a.run("echo both-$((1 + 1))")
    a.until("both-2")
    b.until("both-2")
    b.run("echo back-$((2 + 2))")
    a.until("back-4")


def test_slow_reader_stalls_nobody(terms):
    name = terms.new()
    slow, quick = terms.open(name), terms.open(name)
    slow.ws.sock.settimeout(None)  # and never reads
    quick.run("head -c 3000000 /dev/zero | tr '\\0' x; echo done-$((1 + 1))")
    quick.until("done-2", 60)
    terms("GET")


def test_flood_is_held_back(terms, daemon):
    """A shell that prints for ever fills no memory while its reader sleeps."""
    def memory():
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))

    s = terms.open(terms.new())
    before = memory()
    s.run("yes")
    time.sleep(2)
    assert memory() - before < 100_000
    s.send("stdin", "\x03")
    s.run("echo out-$((1 + 1))")
    s.until("out-2", 60)


def test_large_paste(terms):
    s = terms.open(terms.new())
    s.run("stty -echo; cat > pasted.txt; echo got-$((1 + 1))")
    time.sleep(0.5)
    line = "y" * 99 + "\n"
    for _ in range(20):
        s.send("stdin", line * 500)
    s.send("stdin", "\x04")
    s.until("got-2", 30)
    assert Path(terms.d.root, "pasted.txt").stat().st_size == 20 * 500 * 100


def test_exit_disconnects(terms):
    name = terms.new()
    s = terms.open(name)
    s.run("exit")
    while s.receive() != ["disconnect", 1]:
        pass
    terms("GET", "/" + name, 404)


def test_delete_ends_everything(terms):
    name = terms.new()
    s = terms.open(name)
    s.run("nohup sleep 1000 & (trap '' HUP TERM; sleep 1001) & echo pids $! $$ end")
    job, shell = map(int, s.until(r"pids (\d+) (\d+) end").groups())
    began = time.monotonic()
    terms("DELETE", "/" + name, 204)
    assert time.monotonic() - began < 1
    while s.receive() != ["disconnect", 1]:
        pass
    wait_gone(shell)
    wait_gone(job)


def test_unknown_terminal(terms, daemon):
    with pytest.raises(websocket.WebSocketBadStatusException) as e:
        terms.open("none")
    assert e.value.status_code == 404


def test_other_connections_outlive_terminals(terms, daemon):
    """The number of a closed descriptor is soon that of another connection: it must not be touched."""
    for _ in range(10):
        name = terms.new()
        terms("DELETE", "/" + name, 204)
        fresh = [requests.Session() for _ in range(4)]
        for _ in range(4):
            for s in fresh:
                assert s.get(daemon.url + "api", timeout=5).ok
            time.sleep(0.1)


def test_no_descriptors_or_zombies_are_left(terms, daemon):
    def count():
        return len(os.listdir(f"/proc/{daemon.pid}/fd"))

    terms("DELETE", "/" + terms.new(), 204)
    time.sleep(0.5)
    before = count()
    for _ in range(15):
        name = terms.new()
        terms.open(name).ws.close()
        terms("DELETE", "/" + name, 204)
    def zombies():
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
        return [c for c in children if not alive(c)]

    deadline = time.monotonic() + 5
    while count() > before + 2 or zombies():
        assert time.monotonic() < deadline, (before, count(), zombies())
        time.sleep(0.1)


def test_secrets_stay_in_the_daemon(daemon_factory):
    d = daemon_factory(env={"REITOS_TOKEN": "env-secret-of-the-daemon"})
    s = Terminals(d).open(Terminals(d).new())
    s.run("env | grep -c env-secret; echo checked-$((1 + 1))")
    s.until("checked-2")
    assert re.search(r"[\r\n]0\r", s.text)


def test_idle_terminals_are_closed(daemon_factory):
    d = daemon_factory(cull_terminals=1)
    t = Terminals(d)
    t.new()
    deadline = time.monotonic() + 8
    while t("GET").json():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_clean_stop_leaves_nothing(daemon_factory):
    d = daemon_factory()
    t = Terminals(d)
    s = t.open(t.new())
    s.run("sleep 1000 & echo pids $! $$ end")
    pids = list(map(int, s.until(r"pids (\d+) (\d+) end").groups()))
    assert d.stop() == 0
    for pid in pids:
        wait_gone(pid, 2)


def test_terminal_dies_by_signal(terms):
    name = terms.new()
    s = terms.open(name)
    s.run("echo pid $$ end")
    os.kill(int(s.until(r"pid (\d+) end").group(1)), signal.SIGKILL)
    while s.receive() != ["disconnect", 1]:
        pass
    terms("GET", "/" + name, 404)
