"""Outputs reach the notebook file by cell id, whoever watches; no save loses any, and no client is
told that the file changed on disk because of us."""

import hashlib
import json
import os
import time
import uuid
from pathlib import Path

import pytest

from jupyter_ws import Server

VISIBLE = ("hash", "last_modified")


def nb(*sources):
    cells = [{"id": f"c{i}", "cell_type": "code", "metadata": {}, "source": s, "outputs": [],
              "execution_count": None} for i, s in enumerate(sources)]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def text_of(cell):
    return "".join("".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream")


def wait_for(check, timeout=20):
    end = time.monotonic() + timeout
    while not (value := check()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)
    return value


class Book:
    """A notebook with a session, as JupyterLab has it open."""

    def __init__(self, daemon, *sources):
        self.daemon = daemon
        self.server = Server(daemon.url, daemon.token)
        self.name = uuid.uuid4().hex[:8] + ".ipynb"
        self.save(nb(*sources))
        self.kid = self.server.start_session(self.name)["kernel"]["id"]
        self.client = None

    @property
    def file(self):
        return Path(self.daemon.root, self.name)

    def connect(self):
        self.client = self.server.connect(self.kid)
        return self.client

    def run(self, i, code=None):
        code = code if code is not None else self.disk()["cells"][i]["source"]
        return self.client.execute_async("".join(code), cell_id=f"c{i}")

    def done(self, mid):
        return self.client.collect(mid)

    def leave(self):
        self.client.drop()

    def save(self, content):
        r = self.server.api("PUT", f"api/contents/{self.name}",
                            {"type": "notebook", "format": "json", "content": content})
        assert r.status_code in (200, 201), r.text
        return r.json()

    def model(self, content=0):
        return self.server.api("GET", f"api/contents/{self.name}?content={content}&hash=1",
                               expect=200).json()

    def visible(self):
        m = self.model()
        return {k: m[k] for k in VISIBLE}

    def load(self):
        return self.model(1)["content"]

    def disk(self):
        return json.loads(self.file.read_text())

    def disk_hash(self):
        return hashlib.sha256(self.file.read_bytes()).hexdigest()

    def text(self, i=0):
        return text_of(self.disk()["cells"][i])

    def close(self):
        if self.client:
            self.client.close()
        self.server.api("DELETE", f"api/kernels/{self.kid}")


@pytest.fixture
def book(daemon):
    made = []

    def make(*sources):
        made.append(Book(daemon, *sources))
        return made[-1]

    yield make
    for b in made:
        b.close()


SLOW = "import time\nfor i in range(8):\n    print('line', i, flush=True); time.sleep(0.25)\n"
LINES = "".join(f"line {i}\n" for i in range(8))


def test_outputs_without_a_client(book):
    b = book(SLOW, "1/0")
    before = b.visible()
    assert before["hash"] == b.disk_hash()
    b.connect()
    b.run(0)
    b.run(1)
    time.sleep(0.5)
    b.leave()
    wait_for(lambda: "line 1\n" in b.text())  # while it runs
    wait_for(lambda: b.disk()["cells"][1]["outputs"])
    cells = b.disk()["cells"]
    assert text_of(cells[0]) == LINES and cells[0]["execution_count"] == 1
    assert cells[1]["outputs"][0]["ename"] == "ZeroDivisionError"
    assert b.disk_hash() != before["hash"]
    assert b.visible() == before  # clients are told of no change
    got = b.load()
    assert text_of(got["cells"][0]) == LINES
    listing = b.server.api("GET", "api/contents").json()["content"]
    assert [e["last_modified"] for e in listing if e["name"] == b.name] == [before["last_modified"]]


def test_reload_in_mid_cell_and_save(book):
    b = book(SLOW, "other")
    b.connect()
    b.run(0)
    time.sleep(0.8)
    b.leave()
    page = b.load()  # the page that is reloaded
    seen = text_of(page["cells"][0])
    assert seen.startswith("line 0\n") and seen != LINES
    b.connect()
    time.sleep(0.5)
    page["cells"][1]["source"] = "edited"
    saved = b.save(page)
    assert {k: saved[k] for k in VISIBLE} == b.visible()
    assert b.text().startswith(seen) and len(b.text()) > len(seen)
    time.sleep(1.5)
    page["cells"][1]["source"] = "edited again"
    saved = b.save(page)  # the page still has only what it was loaded with
    assert b.text() == LINES
    saved = b.save(page)
    assert b.text() == LINES
    b.leave()
    time.sleep(0.5)
    assert b.visible() == {k: saved[k] for k in VISIBLE}
    assert b.disk()["cells"][1]["source"] == ["edited again"] and b.text() == LINES


def test_stale_page_saves_after_the_cell_ended(book):
    """Laptop asleep and back: the page saves before it has caught up."""
    b = book(SLOW)
    page = b.load()
    b.connect()
    b.run(0)
    time.sleep(0.3)
    b.leave()
    wait_for(lambda: b.text() == LINES)
    time.sleep(1.2)
    b.connect()
    page["metadata"]["edited"] = 1
    b.save(page)
    assert b.text() == LINES and b.disk()["cells"][0]["execution_count"] == 1
    page["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": LINES[:20]}]
    b.save(page)
    assert b.text() == LINES


def test_what_the_client_shows_is_what_is_saved(book):
    b = book("print('a')", "print('b')")
    b.connect()
    b.done(b.run(0))
    b.done(b.run(1))
    page = b.load()
    assert text_of(page["cells"][0]) == "a\n"
    page["cells"][0]["outputs"][0]["text"] = "mine\n"
    saved = b.save(page)
    assert b.text(0) == "mine\n" and b.text(1) == "b\n"
    assert saved["hash"] == b.disk_hash()
    b.leave()
    time.sleep(1.5)
    assert b.text(0) == "mine\n"
    assert b.visible()["hash"] == saved["hash"] == b.disk_hash()


@pytest.mark.parametrize("reload", [False, True])
def test_cleared_outputs_stay_cleared(book, reload):
    b = book("print('secret')", "print('kept')")
    b.connect()
    b.done(b.run(0))
    b.done(b.run(1))
    page = nb("print('secret')", "print('kept')")
    if reload:
        b.leave()
        wait_for(lambda: b.text(0) == "secret\n")
        b.connect()
        page = b.load()
        assert text_of(page["cells"][0]) == "secret\n"
        page["cells"][0].update(outputs=[], execution_count=None)
    else:
        page["cells"][1].update(b.load()["cells"][1])
    b.save(page)
    assert "secret" not in b.file.read_text().replace("print('secret')", "")
    assert b.text(1) == "kept\n"
    b.leave()
    time.sleep(1.5)
    assert b.text(0) == "" and b.text(1) == "kept\n"


def test_outside_edit_is_seen(book):
    b = book("print('x')")
    before = b.visible()
    b.connect()
    b.done(b.run(0))
    b.leave()
    wait_for(lambda: b.text() == "x\n")
    assert b.visible() == before
    edited = b.disk()
    edited["metadata"]["by"] = "someone else"
    b.file.write_text(json.dumps(edited))
    after = b.visible()
    assert after["hash"] == b.disk_hash() != before["hash"]
    assert after["last_modified"] != before["last_modified"]
    b.connect()
    b.run(0, "print('y')")
    time.sleep(0.3)
    b.leave()
    wait_for(lambda: b.text() == "y\n")
    assert b.disk()["metadata"]["by"] == "someone else"
    assert b.visible() == after


def test_rename_in_mid_cell(book):
    b = book(SLOW)
    b.connect()
    b.run(0)
    time.sleep(0.3)
    b.leave()
    wait_for(lambda: "line 0" in b.text())
    visible = b.visible()
    old, new = b.name, "moved-" + b.name
    assert b.server.api("PATCH", f"api/contents/{old}", {"path": new}).status_code == 200
    b.name = new
    assert b.visible() == visible
    session = next(s for s in b.server.api("GET", "api/sessions").json()
                   if s["kernel"]["id"] == b.kid)
    r = b.server.api("PATCH", f"api/sessions/{session['id']}", {"path": new})
    assert r.status_code == 200
    wait_for(lambda: b.text() == LINES)
    assert b.visible() == visible
    assert not Path(b.daemon.root, old).exists()


def test_deleted_cell_and_deleted_file(book):
    b = book(SLOW, "x")
    b.connect()
    b.run(0)
    time.sleep(0.3)
    page = b.load()
    del page["cells"][0]
    b.save(page)
    b.leave()
    time.sleep(2.5)
    assert [c["id"] for c in b.disk()["cells"]] == ["c1"]
    assert "line" not in b.file.read_text()
    b.connect()
    b.run(1, "print('more')")
    b.client.recv()
    assert b.server.api("DELETE", f"api/contents/{b.name}").status_code == 204
    b.leave()
    time.sleep(1.5)
    assert not b.file.exists()  # a merge makes no file anew


def test_rules_of_outputs(book):
    b = book("a", "b", "c", "d")
    b.connect()
    b.run(0, "from IPython.display import display, HTML, clear_output\n"
             "h = display(HTML('<b>1</b>'), display_id='d1')\nprint('one\\rtwo\\n', end='')\n42")
    b.run(1, "h.update(HTML('<b>2</b>'))")
    b.run(2, "print('gone'); clear_output(wait=True); print('stays')")
    mid = b.run(3, "import sys; print('err', file=sys.stderr); raise ValueError('bad')")
    b.done(mid)
    b.leave()
    wait_for(lambda: b.disk()["cells"][3]["outputs"])
    cells = b.disk()["cells"]
    kinds = [[o["output_type"] for o in c["outputs"]] for c in cells]
    assert kinds == [["display_data", "stream", "execute_result"], [], ["stream"],
                     ["stream", "error"]]
    assert cells[0]["outputs"][0]["data"]["text/html"] == ["<b>2</b>"]
    assert cells[0]["outputs"][2]["execution_count"] == 1
    assert text_of(cells[0]) == "two\n" and text_of(cells[2]) == "stays\n"
    assert [c["execution_count"] for c in cells] == [1, 2, 3, 4]


def test_aborted_cells_keep_what_they_show(book):
    b = book("1/0", "print('old')")
    b.connect()
    b.done(b.run(1))
    page = b.load()
    b.save(page)
    b.run(0)
    mid = b.run(1, "print('never')")
    assert any(m["content"].get("status") == "aborted" for m in b.done(mid)
               if m["channel"] == "shell")
    b.leave()
    wait_for(lambda: b.disk()["cells"][0]["outputs"])
    time.sleep(0.3)
    assert b.text(1) == "old\n"


def test_output_of_threads_after_the_cell(book):
    b = book("")
    b.connect()
    b.done(b.run(0, "import threading, time\ndef f():\n    for i in range(4):\n"
                    "        time.sleep(0.8); print('late', i, flush=True)\n"
                    "print('first')\nthreading.Thread(target=f).start()"))
    b.leave()
    wait_for(lambda: b.text() == "first\nlate 0\nlate 1\nlate 2\nlate 3\n")


def test_run_again_replaces(book):
    b = book("print(1)")
    b.connect()
    b.done(b.run(0, "print('first run')"))
    b.done(b.run(0, "print('second run')"))
    b.leave()
    wait_for(lambda: b.text() == "second run\n")
    b.connect()
    b.done(b.run(0, "pass"))
    b.leave()
    wait_for(lambda: b.disk()["cells"][0]["outputs"] == [])
    assert b.disk()["cells"][0]["execution_count"] == 3


def test_deleted_kernel_leaves_its_outputs(book):
    b = book("print('x')")
    b.connect()
    b.done(b.run(0, "print('last words')"))
    assert b.server.api("DELETE", f"api/kernels/{b.kid}").status_code == 204
    wait_for(lambda: b.text() == "last words\n")


def test_daemon_killed_in_mid_cell(daemon_factory):
    d = daemon_factory(grace=60)
    b = Book(d, SLOW, "x")
    before = b.visible()
    b.connect()
    b.done(b.run(1, "print('done')"))
    b.run(0)
    time.sleep(0.5)
    d.kill()
    time.sleep(1)
    d.start()
    wait_for(lambda: b.text(0) == LINES, 30)
    assert b.text(1) == "done\n"
    assert b.visible() == before
    d.kill()
    d.start()
    assert b.visible() == before  # remembered
    assert b.text(0) == LINES
    page = nb(SLOW, "x")
    page["metadata"]["edited"] = 1
    b.save(page)  # a page that had been asleep all the while
    assert b.text(0) == LINES and b.text(1) == "done\n"


def test_clean_stop_writes_what_is_pending(daemon_factory):
    d = daemon_factory()
    b = Book(d, "print('x')")
    b.connect()
    b.done(b.run(0))
    assert b.text() == ""
    assert d.stop() == 0
    assert b.text() == "x\n"


def test_much_output(book):
    """More than is kept in memory, and more than a cell keeps before it goes on from the file."""
    b = book("x")
    b.connect()
    b.run(0, "s = 'y' * 999 + '\\n'\nimport time\n"
             "for k in range(6):\n    for i in range(50): print(s * 80, end='')\n"
             "    time.sleep(0.5)\nprint('end')")
    b.client.recv()
    b.leave()
    wait_for(lambda: b.file.stat().st_size > 24_000_000 and b.text().endswith("end\n"), 60)
    assert b.text() == ("y" * 999 + "\n") * 24000 + "end\n"


def test_output_after_much_comes_once(book):
    """What is added to a long output that is in the file already does not come twice."""
    b = book("x")
    b.connect()
    b.run(0, "import os, time\ns = 'y' * 999 + '\\n'\nfor i in range(150): print(s * 80, end='')\n"
             "for i in range(4):\n    print('step', i)\n"
             f"    while not os.path.exists('{b.name}.go%d' % i): time.sleep(0.05)\n"
             "print('end')")
    b.client.recv()
    b.leave()
    for i in range(4):
        wait_for(lambda i=i: b.file.stat().st_size > 12_000_000 and f"step {i}\n" in b.text(), 60)
        if i == 2:
            b.save(b.load())  # a page that has all of it
        Path(b.daemon.root, f"{b.name}.go{i}").touch()
    wait_for(lambda: b.text().endswith("end\n"), 60)
    tail = "".join(f"step {i}\n" for i in range(4)) + "end\n"
    assert b.text() == ("y" * 999 + "\n") * 12000 + tail


def test_save_of_a_big_notebook(book):
    b = book("x")
    page = nb(*["print(1)"] * 50)
    line = "z" * 99 + "\n"
    for c in page["cells"]:
        c["outputs"] = [{"output_type": "stream", "name": "stdout", "text": line * 20000}]
    saved = b.save(page)
    assert saved["hash"] == b.disk_hash()
    assert [c["outputs"] for c in b.load()["cells"]] == [c["outputs"] for c in page["cells"]]


def test_two_clients(book):
    b = book(SLOW)
    one, two = b.connect(), b.server.connect(b.kid)
    one.execute_async(SLOW, cell_id="c0")
    time.sleep(0.4)
    one.drop()
    time.sleep(0.3)
    assert b.text() == ""  # someone watches: the file is the client's
    wait_for(lambda: b.server.model(b.kid)["execution_state"] == "idle")
    page = b.load()
    assert text_of(page["cells"][0]) == LINES
    two.close()


def test_no_such_notebook(book, daemon):
    b = book("print('x')")
    os.unlink(b.file)
    b.connect()
    b.done(b.run(0, "print('x')"))
    b.leave()
    time.sleep(0.5)
    b.connect()
    assert b.done(b.run(0, "1"))
    assert "cannot be brought into the notebook" in daemon.log


def test_many_renames_while_cells_run(daemon):
    """The session keeps its old path, as that of a client that has not told of the rename yet."""
    source = "import time\nfor i in range(40):\n    print('line', i, flush=True); time.sleep(0.1)\n"
    books = [Book(daemon, source) for _ in range(2)]
    for b in books:
        b.connect()
        b.run(0)
        b.client.recv()
        b.leave()
    end, n = time.monotonic() + 4, 0
    while time.monotonic() < end:
        for b in books:
            n += 1
            new = f"r{n}-{b.name[-13:]}"
            r = b.server.api("PATCH", f"api/contents/{b.name}", {"path": new})
            assert r.status_code == 200, r.text
            b.name = new
            if n % 5 == 0:
                b.save(b.load())
    for b in books:
        wait_for(lambda b=b: b.text() == "".join(f"line {i}\n" for i in range(40)))
        b.close()
