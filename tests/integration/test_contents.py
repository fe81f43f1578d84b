"""The contents and files API: what Jupyter's clients rely on, and what bad input gets.

With REITOS_CONTENTS_SERVER set to the program built from tests/lib/contents_server.c, these tests
run against the routes alone (for a sanitizer build, say) instead of a whole daemon.
"""

import base64
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
import requests

ISO = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
KEYS = {"name", "path", "type", "created", "last_modified", "size", "writable", "mimetype",
        "content", "format", "hash", "hash_algorithm"}
ALONE = os.environ.get("REITOS_CONTENTS_SERVER")


class Api:
    def __init__(self, url, token, root):
        self.url, self.root = url, Path(root)
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {token}"

    def __call__(self, method, path="", body=None, **params):
        url = f"{self.url}api/contents" + ("/" + quote(path) if path else "")
        return self.http.request(method, url, params=params, timeout=60,
                                 **({} if body is None else {"json": body}))

    def get(self, path="", status=200, **params):
        r = self("GET", path, **params)
        assert r.status_code == status, r.text
        if status == 200:
            assert set(r.json()) >= KEYS
        return r.json()

    def put(self, path, status=(200, 201), **model):
        r = self("PUT", path, model)
        assert r.status_code in (status if isinstance(status, tuple) else (status,)), r.text
        return r.json()

    def text(self, path, content):
        return self.put(path, type="file", format="text", content=content)

    def notebook(self, path, nb):
        return self.put(path, type="notebook", format="json", content=nb)

    def raw(self, method, target, body=None, headers=()):
        """A request whose path no client library has touched."""
        u = urlsplit(self.url)
        c = http.client.HTTPConnection(u.hostname, u.port, timeout=20)
        c.request(method, target, body, {**dict(headers),
                                         "Authorization": self.http.headers["Authorization"]})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r, data

    def files(self, path, **headers):
        return self.http.get(f"{self.url}files/{quote(path)}", headers=headers, timeout=20)


@pytest.fixture(scope="module")
def place(request):
    """(url, token, root)"""
    if not ALONE:
        daemon = request.getfixturevalue("daemon")
        yield daemon.url, daemon.token, daemon.root
        return
    home = tempfile.mkdtemp(prefix="reitos-contents-")
    os.mkdir(home + "/root")
    p = subprocess.Popen([ALONE, home + "/root", home], stdout=subprocess.PIPE, text=True)
    yield f"http://127.0.0.1:{p.stdout.readline().strip()}/", "none", home + "/root"
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == 0
    shutil.rmtree(home)


@pytest.fixture
def api(place):
    api = Api(*place)
    for name in os.listdir(api.root):
        path = api.root / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return api


def nb(*cells, minor=5):
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": minor}


def code(source, outputs=(), count=None, id="c1", **metadata):
    return {"cell_type": "code", "id": id, "source": source, "outputs": list(outputs),
            "execution_count": count, "metadata": metadata}


HTML = {"output_type": "display_data", "data": {"text/html": "<b>x</b>"}, "metadata": {}}


# ---- models ----

def test_root_listing(api):
    api.text("b.txt", "b")
    (api.root / "dir").mkdir()
    (api.root / "x.ipynb").write_text(json.dumps(nb()))
    (api.root / ".hidden").write_text("")
    (api.root / "junk.pyc").write_text("")
    (api.root / "old~").write_text("")
    (api.root / "__pycache__").mkdir()
    m = api.get()
    assert (m["name"], m["path"], m["type"], m["format"]) == ("", "", "directory", "json")
    assert m["mimetype"] is None and m["size"] is None
    got = {e["name"]: e for e in m["content"]}
    assert set(got) == {"b.txt", "dir", "x.ipynb"}
    assert {n: e["type"] for n, e in got.items()} == {
        "b.txt": "file", "dir": "directory", "x.ipynb": "notebook"}
    for e in got.values():
        assert set(e) >= KEYS and e["content"] is None and e["format"] is None
        assert ISO.match(e["created"]) and ISO.match(e["last_modified"])
    assert got["b.txt"]["size"] == 1 and got["b.txt"]["mimetype"] == "text/plain"
    assert api.get(content=0)["content"] is None
    assert "content" in api.get("dir") and api.get("dir")["path"] == "dir"


def test_text_file(api):
    m = api.text("ü é.txt", "héllo\n\u0000end")
    assert m["content"] is None and m["format"] is None
    assert (api.root / "ü é.txt").read_bytes() == "héllo\n\0end".encode()
    m = api.get("ü é.txt", hash=1)
    assert m["content"] == "héllo\n\0end" and m["format"] == "text"
    assert m["mimetype"] == "text/plain" and m["writable"] is True
    assert m["hash"] == hashlib.sha256("héllo\n\0end".encode()).hexdigest()
    assert m["hash_algorithm"] == "sha256"
    assert api.get("ü é.txt")["hash"] is None
    b64 = api.get("ü é.txt", format="base64")
    assert b64["format"] == "base64"
    assert base64.decodebytes(b64["content"].encode()) == "héllo\n\0end".encode()
    no = api.get("ü é.txt", content=0, hash=1)
    assert no["content"] is None and no["hash"] == m["hash"]


def test_times_agree_with_disk(api):
    api.text("t", "x")
    os.utime(api.root / "t", ns=(10**18, 1_234_567_890_123_456_789))
    r = api("GET", "t")
    assert r.json()["last_modified"] == "2009-02-13T23:31:30.123456Z"
    assert r.headers["Last-Modified"] == "Fri, 13 Feb 2009 23:31:30 GMT"
    os.utime(api.root / "t", (0, 0))
    assert api.get("t")["last_modified"] == "1970-01-01T00:00:00.000000Z"
    os.utime(api.root / "t", (0, -5))
    assert ISO.match(api.get("t")["last_modified"])


def test_binary_file(api):
    data = bytes(range(256)) * 10
    api.put("a.bin", type="file", format="base64", content=base64.encodebytes(data).decode())
    assert (api.root / "a.bin").read_bytes() == data
    m = api.get("a.bin")
    assert m["format"] == "base64" and base64.decodebytes(m["content"].encode()) == data
    assert m["mimetype"] == "application/octet-stream"
    r = api("GET", "a.bin", format="text")
    assert r.status_code == 400 and r.json()["reason"] == "bad format"
    (api.root / "noext").write_bytes(b"\xff\xfe")
    assert api.get("noext")["mimetype"] == "application/octet-stream"
    (api.root / "noext").write_bytes(b"plain")
    assert api.get("noext")["mimetype"] == "text/plain"
    (api.root / "empty").write_bytes(b"")
    assert api.get("empty")["content"] == ""


def test_types(api):
    api.text("a.txt", "x")
    (api.root / "d").mkdir()
    api.notebook("n.ipynb", nb())
    for path, kind, word in [("a.txt", "directory", "is not a directory"),
                             ("d", "file", "is a directory, not a file"),
                             ("d", "notebook", "is a directory, not a notebook"),
                             ("d", "unknown", "is a directory, not a file")]:
        r = api("GET", path, type=kind)
        assert r.status_code == 400 and word in r.json()["message"]
        assert r.json()["reason"] == "bad type"
    assert api.get("n.ipynb", type="file")["type"] == "file"
    assert json.loads(api.get("n.ipynb", type="file")["content"]) == nb()
    assert api.get("a.txt", type="file")["type"] == "file"
    assert "Unreadable Notebook" in api("GET", "a.txt", type="notebook").json()["message"]


@pytest.mark.parametrize("params", [{"format": "json"}, {"content": "2"}, {"content": "yes"},
                                    {"hash": "x"}, {"format": ""}])
def test_bad_query(api, params):
    api.text("a.txt", "x")
    r = api("GET", "a.txt", **params)
    assert r.status_code == 400 and "invalid" in r.json()["message"]


# ---- names and places ----

@pytest.mark.parametrize("name", ["a b", "100%", "%25", "a+b", "q?&=#", "日本語", "e\u0301", "'\"",
                                  "semi;colon", "back\\slash", "tab\there", "-dash", "😀.ipynb",
                                  "n" * 255])
def test_odd_names(api, name):
    nbook = name.endswith(".ipynb")
    if nbook:
        api.notebook(name, nb())
    else:
        assert api.text(name, "x")["path"] == name
    assert (api.root / name).exists()
    assert name in [e["name"] for e in api.get()["content"]]
    assert api.get(name)["name"] == name
    assert api.files(name).status_code == 200
    moved = "moved" + name[:200]
    r = api("PATCH", name, {"path": moved})
    assert r.status_code == 200 and r.json()["path"] == moved
    assert api("DELETE", moved).status_code == 204
    assert not (api.root / moved).exists()


def test_not_utf8_names_are_skipped(api):
    open(os.fsencode(api.root) + b"/bad\xff.txt", "w").close()
    api.text("good", "x")
    assert [e["name"] for e in api.get()["content"]] == ["good"]
    r, _ = api.raw("GET", "/api/contents/bad%FF.txt")
    assert r.status in (400, 404)


def test_name_too_long(api):
    assert api.put("n" * 256, status=400, type="file", format="text", content="x")["message"]
    assert api("GET", "n" * 256).status_code in (400, 404)


OUTSIDE = ["/api/contents/../outside", "/api/contents/..%2Foutside", "/api/contents/%2e%2e/outside",
           "/api/contents/d/../../outside", "/api/contents/d/%2e%2e%2f%2e%2e%2foutside",
           "/api/contents/out", "/api/contents/up/outside", "/api/contents/abs",
           "/api/contents/%2Fetc%2Fpasswd", "/api/contents/..", "/api/contents/up",
           "/api/contents/root-sibling/x", "/api/contents/../root-sibling/x",
           "/api/contents/out%00", "/api/contents/..%5Coutside"]


def test_outside_is_not_there(api):
    outside = api.root.parent / "outside"
    sibling = Path(str(api.root) + "-sibling")
    outside.write_text("secret")
    sibling.mkdir(exist_ok=True)
    (sibling / "x").write_text("secret")
    (api.root / "d").mkdir()
    (api.root / "out").symlink_to("../outside")
    (api.root / "up").symlink_to("..")
    (api.root / "abs").symlink_to(outside)
    (api.root / "root-sibling").symlink_to(sibling)
    body = json.dumps({"type": "file", "format": "text", "content": "x"})
    for target in OUTSIDE:
        for method, data in [("GET", None), ("PUT", body), ("POST", "{}"),
                             ("PATCH", '{"path": "stolen"}')]:
            r, text = api.raw(method, target, data)
            assert 400 <= r.status < 500, (method, target, r.status)
            assert b"secret" not in text
            if method == "GET":
                assert r.status in (400, 404), (target, r.status)
        r, text = api.raw("GET", target.replace("api/contents", "files"))
        assert r.status in (400, 403, 404) and b"secret" not in text, target
        r, _ = api.raw("GET", target + "/checkpoints")
        assert 400 <= r.status < 500
    assert outside.read_text() == "secret" and (sibling / "x").read_text() == "secret"
    assert sorted(os.listdir(sibling)) == ["x"]
    api.text("mine", "x")
    for there in ["../stolen", "/../stolen", "up/stolen", "d/../../stolen"]:
        assert api("PATCH", "mine", {"path": there}).status_code == 404
        r = api("POST", "", {"copy_from": there.replace("stolen", "outside")})
        assert r.status_code == 404, there
    names = {e["name"] for e in api.get()["content"]}
    assert names == {"d", "mine"}
    shutil.rmtree(sibling)
    outside.unlink()


def test_same_answer_outside_whether_it_exists(api):
    (api.root.parent / "there").write_text("x")
    a = api.raw("GET", "/api/contents/..%2Fthere")
    b = api.raw("GET", "/api/contents/..%2Fnone")
    assert a[0].status == b[0].status
    assert a[1].replace(b"there", b"none") == b[1]
    (api.root.parent / "there").unlink()


def test_links_inside(api):
    (api.root / "d").mkdir()
    api.text("d/real.txt", "one")
    (api.root / "link.txt").symlink_to("d/real.txt")
    (api.root / "dirlink").symlink_to(api.root / "d")
    (api.root / "dangling").symlink_to("nowhere")
    (api.root / "loop").symlink_to("loop")
    assert api.get("link.txt")["content"] == "one"
    assert api.get("dirlink/real.txt")["content"] == "one"
    os.chmod(api.root / "d/real.txt", 0o640)
    api.text("link.txt", "two")
    assert (api.root / "d/real.txt").read_text() == "two"
    assert (api.root / "link.txt").is_symlink()
    assert (api.root / "d/real.txt").stat().st_mode & 0o777 == 0o640
    assert {e["name"] for e in api.get()["content"]} == {"d", "link.txt", "dirlink"}
    assert api("DELETE", "link.txt").status_code == 204
    assert (api.root / "d/real.txt").read_text() == "two"
    assert api("GET", "loop").status_code == 404


def test_hidden(api):
    (api.root / ".git").mkdir()
    (api.root / ".git/config").write_text("x")
    (api.root / ".env").write_text("SECRET")
    for path in [".env", ".git", ".git/config"]:
        assert api("GET", path).status_code == 404
        assert api("DELETE", path).status_code == 400
        assert api.put(path, status=400, type="file", format="text", content="y")
        assert api("PATCH", path, {"path": "seen"}).status_code == 400
        assert api.files(path).status_code == 404
    api.text("a", "x")
    assert api("PATCH", "a", {"path": ".a"}).status_code == 400
    assert api("POST", "", {"copy_from": ".env"}).status_code == 400
    assert (api.root / ".env").read_text() == "SECRET"


def test_fifo_and_device_do_not_block(api):
    os.mkfifo(api.root / "fifo")
    for r in [api("GET", "fifo"), api("GET", "fifo", content=0), api.files("fifo"),
              api("PUT", "fifo", {"type": "file", "format": "text", "content": "x"}),
              api("PUT", "fifo", {"type": "file", "format": "text", "content": "x", "chunk": 2}),
              api("POST", "", {"copy_from": "fifo"}), api("POST", "fifo/checkpoints")]:
        assert 400 <= r.status_code < 500
    assert api.get()["content"] == []
    assert api("DELETE", "fifo").status_code == 204


# ---- saving ----

def test_put_status_and_location(api):
    r = api("PUT", "a b.txt", {"type": "file", "format": "text", "content": "1"})
    assert r.status_code == 201
    assert r.headers["Location"].endswith("api/contents/a%20b.txt")
    r = api("PUT", "a b.txt", {"type": "file", "format": "text", "content": "2"})
    assert r.status_code == 200 and r.headers["Location"] and r.headers["Last-Modified"]
    (api.root / "d").mkdir()
    assert api("PUT", "d", {"type": "directory"}).status_code == 201
    assert api("PUT", "e", {"type": "directory"}).status_code == 201
    assert (api.root / "e").is_dir()
    api.put("new.ipynb", status=201, type="notebook")
    assert json.loads((api.root / "new.ipynb").read_text()) == nb()
    assert api.put("plain", status=201, type="file")["size"] == 0


def test_put_keeps_mode_and_leaves_nothing(api):
    (api.root / "s.sh").write_text("#!/bin/sh\n")
    os.chmod(api.root / "s.sh", 0o755)
    api.text("s.sh", "#!/bin/sh\ntrue\n")
    assert (api.root / "s.sh").stat().st_mode & 0o777 == 0o755
    assert os.listdir(api.root) == ["s.sh"]


@pytest.mark.parametrize("model,word", [
    ({"content": "x", "format": "text"}, "No file type provided"),
    ({"type": "file", "format": "text"}, "No file content provided"),
    ({"type": "file", "content": "x"}, "Must specify format"),
    ({"type": "file", "content": "x", "format": "json"}, "Must specify format"),
    ({"type": "file", "content": 5, "format": "text"}, "Encoding error"),
    ({"type": "file", "content": None, "format": "text"}, "Encoding error"),
    ({"type": "file", "content": "***", "format": "base64"}, "Encoding error"),
    ({"type": "notebook", "content": "x", "format": "json"}, "not a notebook"),
    ({"type": "notebook", "content": [], "format": "json"}, "not a notebook"),
    ({"type": "notebook", "content": {}, "format": "json"}, "not a notebook"),
    ({"copy_from": "a.txt"}, "Cannot copy with PUT"),
    ({"type": "file", "content": "x", "format": "text", "chunk": "1"}, "chunk"),
    ({"type": "notebook", "content": nb(), "format": "json", "chunk": 1}, "not supported"),
])
def test_put_bad_model(api, model, word):
    api.text("a.txt", "before")
    r = api("PUT", "a.txt", model)
    assert r.status_code == 400 and word in r.json()["message"], r.text
    assert "reason" in r.json()
    assert (api.root / "a.txt").read_text() == "before"


@pytest.mark.parametrize("body", [b"{", b"[1]", b"5", b"\"x\"", b"{\"type\": \"file\",}", b"\xff",
                                  b"{\"a\":1}{", b"[" * 100000])
def test_malformed_body(api, body):
    api.text("a.txt", "before")
    for method in ("PUT", "PATCH"):
        r, text = api.raw(method, "/api/contents/a.txt", body)
        assert r.status == 400, (method, body[:20], r.status)
        assert r.getheader("Content-Type").startswith("application/json")
        assert json.loads(text)["message"]
    r, text = api.raw("POST", "/api/contents", body)
    assert r.status == 400
    assert (api.root / "a.txt").read_text() == "before"


def test_json_error_has_position(api):
    r, text = api.raw("PUT", "/api/contents/a.txt", b'{"type":\n oops}')
    assert r.status == 400 and "line 2" in json.loads(text)["message"]


def test_put_into_missing_folder(api):
    assert api("PUT", "no/such/a.txt",
               {"type": "file", "format": "text", "content": "x"}).status_code == 404
    api.text("f", "x")
    assert 400 <= api("PUT", "f/below", {"type": "file", "format": "text",
                                         "content": "x"}).status_code < 500
    (api.root / "d").mkdir()
    assert api("PUT", "d", {"type": "file", "format": "text", "content": "x"}).status_code == 400
    assert api("PUT", "f", {"type": "directory"}).status_code == 400
    assert api("PUT", "", {"type": "file", "format": "text", "content": "x"}).status_code == 400


def test_chunked_upload(api):
    data = os.urandom(1000) + b"end"
    pieces = [data[i:i + 300] for i in range(0, len(data), 300)]
    for i, piece in enumerate(pieces, 1):
        m = api.put("up.bin", type="file", format="base64", chunk=-1 if i == len(pieces) else i,
                    content=base64.b64encode(piece).decode())
    assert (api.root / "up.bin").read_bytes() == data and m["size"] == len(data)
    api.put("up.bin", type="file", format="base64", chunk=1, content="eA==")  # begins anew
    assert (api.root / "up.bin").read_bytes() == b"x"
    api.put("up.bin", type="file", format="text", chunk=-1, content="y")
    assert (api.root / "up.bin").read_bytes() == b"xy"


def test_big_bodies_are_spooled(api):
    text = "0123456789abcdef" * (24 << 16)  # 24 MiB
    m = api.text("big.txt", text)
    assert m["size"] == len(text) and m["hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert api.get("big.txt")["content"] == text
    out = {"output_type": "stream", "name": "stdout", "text": text}
    api.notebook("big.ipynb", nb(code("x", [out])))
    got = api.get("big.ipynb")["content"]["cells"][0]["outputs"][0]["text"]
    assert got == text


def test_parallel_saves_are_whole(api):
    def save(n):
        for _ in range(10):
            api.put("p.txt", type="file", format="text", content=str(n) * 200000)

    threads = [threading.Thread(target=save, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    for _ in range(50):
        try:
            seen = (api.root / "p.txt").read_text()
        except FileNotFoundError:
            continue
        assert len(seen) == 200000 and len(set(seen)) == 1
    [t.join() for t in threads]
    assert os.listdir(api.root) == ["p.txt"]


# ---- notebooks ----

def test_notebook_round_trip(api):
    out = {"output_type": "stream", "name": "stdout", "text": "1\n2\n"}
    given = nb(code("a = 1\nprint(a)", [out], 3),
               {"cell_type": "markdown", "id": "m", "source": "# é", "metadata": {}})
    given["metadata"] = {"kernelspec": {"name": "python3"}, "n": 0.1, "big": 2**53 + 1}
    m = api.notebook("n.ipynb", given)
    assert m["type"] == "notebook" and m["mimetype"] is None and "message" not in m
    disk = (api.root / "n.ipynb").read_text()
    assert json.loads(disk)["cells"][0]["source"] == ["a = 1\n", "print(a)"]
    assert json.loads(disk)["cells"][0]["outputs"][0]["text"] == ["1\n", "2\n"]
    assert disk.startswith('{\n "cells": [') and disk.endswith("}\n") and "é" in disk
    got = api.get("n.ipynb", hash=1)
    assert got["format"] == "json"
    assert got["hash"] == hashlib.sha256(disk.encode()).hexdigest() == m["hash"]
    for cell in got["content"]["cells"]:
        cell["metadata"].pop("trusted", None)
    assert got["content"] == given
    assert api.notebook("n.ipynb", got["content"])["hash"] == m["hash"]  # saving changes nothing


def test_notebook_bytes_are_nbformats(api):
    nbformat = pytest.importorskip("nbformat")
    given = nb(code("x = 1\r\ny", [
        {"output_type": "execute_result", "execution_count": 2, "metadata": {},
         "data": {"text/plain": "a\nb", "application/json": {"k": [1, 2.5, 1e300, None]},
                  "image/png": "QUJD\n"}},
        {"output_type": "error", "ename": "E", "evalue": "\u2028", "traceback": ["a", "b\n"]},
    ], 2))
    given["metadata"] = {"z": 1, "a": [], "e": {}, "u": "\u00e9\ud83d\ude00\u007f\u0001"}
    given = json.loads(json.dumps(given))
    api.notebook("n.ipynb", given)
    want = nbformat.writes(nbformat.from_dict(given), version=nbformat.NO_CONVERT) + "\n"
    assert (api.root / "n.ipynb").read_text() == want


def test_first_save_makes_a_checkpoint(api):
    api.notebook("n.ipynb", nb())
    assert (api.root / ".ipynb_checkpoints/n-checkpoint.ipynb").exists()
    api.text("a.txt", "x")
    assert not (api.root / ".ipynb_checkpoints/a-checkpoint.txt").exists()


def test_invalid_notebook_is_saved_with_a_message(api):
    bad = nb({"cell_type": "code", "id": "x", "source": 5, "outputs": [], "metadata": {}})
    assert "Notebook validation failed" in api.notebook("n.ipynb", bad)["message"]
    assert json.loads((api.root / "n.ipynb").read_text())["cells"][0]["source"] == 5


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"a": 1}', "\ufeff{}", '{"cells": {}}'])
def test_unreadable_notebook(api, text):
    (api.root / "n.ipynb").write_text(text)
    r = api("GET", "n.ipynb")
    assert r.status_code == 400 and "Unreadable Notebook: n.ipynb" in r.json()["message"]
    assert api.get("n.ipynb", content=0)["type"] == "notebook"
    assert api.get("n.ipynb", type="file")["content"] == text


def trusted(api, path):
    return [c["metadata"].get("trusted") for c in api.get(path)["content"]["cells"]]


def test_trust(api):
    (api.root / "n.ipynb").write_text(json.dumps(nb(code("1", [HTML]))))
    assert trusted(api, "n.ipynb") == [False]
    assert api("POST", "n.ipynb/trust").status_code == 201
    assert trusted(api, "n.ipynb") == [True]
    api("POST", "", {"copy_from": "n.ipynb"})
    assert trusted(api, "n-Copy1.ipynb") == [True]
    (api.root / "n.ipynb").write_text(json.dumps(nb(code("2", [HTML]))))
    assert trusted(api, "n.ipynb") == [False]  # changed from outside
    api.notebook("n.ipynb", nb(code("3", [HTML])))  # a client that does not trust it
    assert trusted(api, "n.ipynb") == [False]
    api.notebook("n.ipynb", nb(code("3", [HTML], trusted=True)))
    assert trusted(api, "n.ipynb") == [True]
    assert "trusted" not in (api.root / "n.ipynb").read_text()
    api.notebook("m.ipynb", nb(code("4")))  # nothing to distrust
    assert trusted(api, "m.ipynb") == [True]
    assert api("POST", "none.ipynb/trust").status_code >= 400


# ---- new, copy, rename, delete ----

def test_untitled(api):
    names = [api("POST", "", body).json()["path"] for body in
             [{}, {}, {"type": "notebook"}, {"ext": ".ipynb"}, {"type": "directory"},
              {"type": "directory"}, {"ext": ".py"}, {"type": "file", "ext": ".tar.gz"},
              {"type": "file", "ext": ".tar.gz"}, {"type": "odd"}]]
    assert names == ["untitled", "untitled1", "Untitled.ipynb", "Untitled1.ipynb",
                     "Untitled Folder", "Untitled Folder 1", "untitled.py", "untitled.tar.gz",
                     "untitled1.tar.gz", "untitled2"]
    r = api("POST", "Untitled Folder")
    assert r.status_code == 201 and r.json()["path"] == "Untitled Folder/untitled"
    assert r.headers["Location"].endswith("api/contents/Untitled%20Folder/untitled")
    assert api("POST", "untitled", {}).status_code == 400
    assert api("POST", "missing", {}).status_code == 404
    assert api("POST", "", {"ext": "/../x"}).status_code == 400
    assert api("PUT", "Untitled Folder").json()["path"] == "Untitled Folder/untitled1"


def test_untitled_in_parallel(api):
    made = []
    threads = [threading.Thread(target=lambda: made.append(
        api("POST", "", {"type": "notebook"}).json()["path"])) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(set(made)) == 8


def test_copy(api):
    (api.root / "d").mkdir()
    api.text("a.txt", "x")
    copies = [api("POST", "", {"copy_from": c}).json()["path"]
              for c in ["a.txt", "a.txt", "a-Copy1.txt"]]
    assert copies == ["a-Copy1.txt", "a-Copy2.txt", "a-Copy3.txt"]
    api.notebook("n.v1.ipynb", nb())
    assert api("POST", "", {"copy_from": "/n.v1.ipynb"}).json()["path"] == "n.v1-Copy1.ipynb"
    assert api("POST", "d", {"copy_from": "a.txt"}).json()["path"] == "d/a.txt"
    assert api("POST", "d", {"copy_from": "a.txt"}).json()["path"] == "d/a-Copy1.txt"
    assert api("POST", "d/b.txt", {"copy_from": "a.txt"}).json()["path"] == "d/b.txt"
    assert api("POST", "", {"copy_from": "none"}).status_code == 404
    assert api("POST", "no/where", {"copy_from": "a.txt"}).status_code == 404
    r = api("POST", "", {"copy_from": "d"})
    assert r.status_code == 201 and r.json()["path"] == "d-Copy1"
    assert sorted(os.listdir(api.root / "d-Copy1")) == ["a-Copy1.txt", "a.txt", "b.txt"]
    assert api("POST", "d", {"copy_from": "d"}).status_code == 400
    assert sorted(os.listdir(api.root / "d")) == ["a-Copy1.txt", "a.txt", "b.txt"]


def test_rename(api):
    (api.root / "d").mkdir()
    api.notebook("a.ipynb", nb())
    api.text("b.txt", "b")
    r = api("PATCH", "a.ipynb", {"path": "/d/c.ipynb"})
    assert r.status_code == 200 and r.json()["path"] == "d/c.ipynb"
    assert r.headers["Location"].endswith("api/contents/d/c.ipynb")
    assert (api.root / "d/.ipynb_checkpoints/c-checkpoint.ipynb").exists()
    assert not (api.root / ".ipynb_checkpoints/a-checkpoint.ipynb").exists()
    r = api("PATCH", "b.txt", {"path": "d/c.ipynb"})
    assert r.status_code == 409 and "already exists" in r.json()["message"]
    assert api("PATCH", "none", {"path": "x"}).status_code == 404
    assert api("PATCH", "b.txt", {"path": "no/dir"}).status_code == 404
    assert api("PATCH", "b.txt", {"path": 5}).status_code == 400
    assert api("PATCH", "b.txt", {}).json()["path"] == "b.txt"
    assert api("PATCH", "b.txt").status_code == 400
    assert api("PATCH", "d", {"path": "e"}).json()["type"] == "directory"
    assert api("PATCH", "e", {"path": "e/f"}).status_code == 400
    assert api("PATCH", "", {"path": "x"}).status_code == 400
    assert (api.root / "b.txt").read_text() == "b"


def test_move_to_another_file_system(api):
    other = api.root / "other"
    other.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", other]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs the right to mount")
    try:
        api.text("moved.txt", "text")
        (api.root / "moved.txt").chmod(0o640)
        (api.root / "folder").mkdir(exist_ok=True)
        r = api("PATCH", "moved.txt", {"path": "other/here.txt"})
        assert r.status_code == 200, r.text
        assert (other / "here.txt").read_text() == "text"
        assert (other / "here.txt").stat().st_mode & 0o777 == 0o640
        assert not (api.root / "moved.txt").exists()
        api.text("second.txt", "2")
        assert api("PATCH", "second.txt", {"path": "other/here.txt"}).status_code == 409
        assert (api.root / "second.txt").read_text() == "2"
        r = api("PATCH", "folder", {"path": "other/folder"})
        assert r.status_code == 400
        assert "another file system" in r.json()["message"]
        assert (api.root / "folder").is_dir()
    finally:
        subprocess.run(["umount", other], check=True)


def test_delete(api):
    api.notebook("n.ipynb", nb())
    r = api("DELETE", "n.ipynb")
    assert r.status_code == 204 and r.content == b""
    assert api("DELETE", "n.ipynb").status_code == 404
    assert os.listdir(api.root / ".ipynb_checkpoints") == []
    (api.root / "d").mkdir()
    api.notebook("d/n.ipynb", nb())
    r = api("DELETE", "d")
    assert r.status_code == 400 and "not empty" in r.json()["message"]
    api("DELETE", "d/n.ipynb")
    assert api("DELETE", "d").status_code == 204  # only checkpoints are left in it
    assert not (api.root / "d").exists()
    assert api("DELETE", "").status_code == 400
    assert api("DELETE", "none").status_code == 404


# ---- checkpoints ----

def test_checkpoints(api):
    api.text("a.txt", "one")
    assert api("GET", "a.txt/checkpoints").json() == []
    r = api("POST", "a.txt/checkpoints")
    assert r.status_code == 201 and set(r.json()) == {"id", "last_modified"}
    assert r.json()["id"] == "checkpoint" and ISO.match(r.json()["last_modified"])
    assert r.headers["Location"].endswith("api/contents/a.txt/checkpoints/checkpoint")
    assert (api.root / ".ipynb_checkpoints/a-checkpoint.txt").read_text() == "one"
    assert api("GET", "a.txt/checkpoints").json() == [r.json()]
    os.chmod(api.root / "a.txt", 0o600)
    api.text("a.txt", "two")
    assert api("POST", "a.txt/checkpoints/checkpoint").status_code == 204
    assert (api.root / "a.txt").read_text() == "one"
    assert (api.root / "a.txt").stat().st_mode & 0o777 == 0o600
    assert api("DELETE", "a.txt/checkpoints/checkpoint").status_code == 204
    assert api("DELETE", "a.txt/checkpoints/checkpoint").status_code == 404
    assert api("POST", "a.txt/checkpoints/checkpoint").status_code == 404
    assert api("POST", "a.txt/checkpoints/..").status_code >= 400
    assert api("PUT", "a.txt/checkpoints", {}).status_code == 405
    assert api("GET", "a.txt/checkpoints/checkpoint").status_code == 405
    assert api("POST", "none.txt/checkpoints").status_code == 404


def test_folder_called_checkpoints(api):
    """Machine learning is full of them."""
    (api.root / "run/checkpoints/step1").mkdir(parents=True)
    api.text("run/checkpoints/model.pt", "x")
    assert api.get("run/checkpoints")["type"] == "directory"
    assert api.get("run/checkpoints/step1")["type"] == "directory"
    assert api.get("run/checkpoints/model.pt")["content"] == "x"
    api.text("run/checkpoints/step1/trust", "y")
    assert api.get("run/checkpoints/step1/trust")["content"] == "y"
    assert api("POST", "run/checkpoints", {}).json()["path"] == "run/checkpoints/untitled"


# ---- methods and old names ----

def test_head_and_methods(api):
    api.text("a.txt", "x")
    r = api("HEAD", "a.txt")
    assert r.status_code == 200 and r.content == b""
    assert api.raw("TRACE", "/api/contents")[0].status >= 400
    assert api.http.post(api.url + "files/a.txt").status_code == 405
    r = api.http.get(api.url + "api/notebooks/a%20b", allow_redirects=False)
    assert r.status_code in (301, 302) and r.headers["Location"].endswith("api/contents/a%20b")


# ---- files ----

def test_files_headers(api):
    api.text("page.html", "<script>1</script>")
    r = api.files("page.html")
    assert r.status_code == 200 and r.text == "<script>1</script>"
    assert r.headers["Content-Type"].startswith("text/html")
    assert "sandbox allow-scripts" in r.headers["Content-Security-Policy"]
    assert ALONE or r.headers["X-Content-Type-Options"] == "nosniff"
    assert r.headers["Accept-Ranges"] == "bytes" and "Content-Disposition" not in r.headers
    r = api.http.get(api.url + "files/page.html?download=1")
    assert r.headers["Content-Disposition"] == "attachment; filename*=utf-8''page.html"
    api.text("é \"x\".txt", "x")
    r = api.http.get(api.url + "files/" + quote('é "x".txt') + "?download=1")
    assert r.headers["Content-Disposition"] == (
        "attachment; filename*=utf-8''%C3%A9%20%22x%22.txt")
    api.notebook("n.ipynb", nb())
    r = api.files("n.ipynb")
    assert r.headers["Content-Type"] == "application/x-ipynb+json"
    assert r.headers["Content-Disposition"].startswith("attachment")
    for name, kind in [("a.txt", "text/plain; charset=UTF-8"), ("a.tar.gz", "application/gzip"),
                       ("a.png", "image/png"), ("a.PNG", "image/png"),
                       ("a.unknown", "application/octet-stream"),
                       ("a.csv.xz", "application/octet-stream"), ("a.svg", "image/svg+xml")]:
        api.text(name, "x")
        assert api.files(name).headers["Content-Type"] == kind, name
    assert api.files("none").status_code == 404
    (api.root / "d").mkdir()
    assert api.files("d").status_code == 403
    r = api.http.head(api.url + "files/page.html")
    assert r.status_code == 200 and r.headers["Content-Length"] == "18" and r.content == b""


@pytest.mark.parametrize("header,status,want", [
    ("bytes=0-4", 206, (0, 5)), ("bytes=5-", 206, (5, 26)), ("bytes=-3", 206, (23, 26)),
    ("bytes=25-25", 206, (25, 26)), ("bytes=10-99", 206, (10, 26)), ("bytes=0-", 200, (0, 26)),
    ("bytes=-100", 200, (0, 26)), ("bytes=26-", 416, None), ("bytes=-0", 416, None),
    ("bytes=5-2", 200, (0, 26)), ("bytes=a-b", 200, (0, 26)), ("lines=1-2", 200, (0, 26)),
    ("bytes=0-1,5-6", 200, (0, 26)), ("bytes=99999999999999999999-", 200, (0, 26)),
])
def test_ranges(api, header, status, want):
    data = "abcdefghijklmnopqrstuvwxyz"
    api.text("r.txt", data)
    r = api.files("r.txt", Range=header)
    assert r.status_code == status, r.text
    if status == 416:
        assert r.headers["Content-Range"] == "bytes */26"
        return
    assert r.text == data[want[0]:want[1]]
    assert r.headers["Content-Length"] == str(want[1] - want[0])
    if status == 206:
        assert r.headers["Content-Range"] == f"bytes {want[0]}-{want[1] - 1}/26"


def test_conditional(api):
    api.text("c.txt", "one")
    first = api.files("c.txt")
    tag, date = first.headers["Etag"], first.headers["Last-Modified"]
    r = api.files("c.txt", **{"If-None-Match": tag})
    assert r.status_code == 304 and r.content == b""
    assert api.files("c.txt", **{"If-Modified-Since": date}).status_code == 304
    assert api.files("c.txt", **{"If-None-Match": '"other"'}).status_code == 200
    assert api.files("c.txt", **{"If-Modified-Since": "garbage"}).status_code == 200
    assert api.files("c.txt", **{"If-Range": tag, "Range": "bytes=0-0"}).status_code == 206
    time.sleep(0.01)
    api.text("c.txt", "two")
    assert api.files("c.txt", **{"If-None-Match": tag}).text == "two"
    assert api.files("c.txt", **{"If-Range": tag, "Range": "bytes=0-0"}).status_code == 200


def test_big_download(api):
    data = os.urandom(40 << 20)
    (api.root / "big.bin").write_bytes(data)
    assert api.files("big.bin").content == data
    r = api.files("big.bin", Range="bytes=20000000-39999999")
    assert r.content == data[20000000:40000000]


def test_client_that_leaves(api):
    (api.root / "big.bin").write_bytes(bytes(30 << 20))
    for _ in range(5):
        with api.http.get(api.url + "files/big.bin", stream=True) as r:
            next(r.iter_content(1000))
        u = urlsplit(api.url)
        c = http.client.HTTPConnection(u.hostname, u.port)
        c.request("GET", "/api/contents/big.bin",
                  headers={"Authorization": api.http.headers["Authorization"]})
        c.close()
    assert api.get("big.bin", content=0)["size"] == 30 << 20
