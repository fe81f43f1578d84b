"""Notebooks in other formats."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

FORMATS = {"html": "text/html", "python": "text/x-python", "script": "text/plain",
           "markdown": "text/markdown", "slides": "text/html", "notebook": "application/json"}


def notebook(source="answer = 6 * 7", **metadata):
    return json.dumps({
        "cells": [{"cell_type": "code", "source": source, "metadata": {}, "id": "a",
                   "execution_count": 1, "outputs": [
                       {"output_type": "display_data", "metadata": {},
                        "data": {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}}]},
                  {"cell_type": "markdown", "source": "# Title é", "metadata": {}, "id": "b"}],
        "metadata": {"language_info": {"name": "python", "file_extension": ".py",
                                       "nbconvert_exporter": "python"}, **metadata},
        "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def get(daemon):
    Path(daemon.root, "sub").mkdir(exist_ok=True)
    Path(daemon.root, "sub", "a é.ipynb").write_text(notebook())

    def call(path, **kw):
        return requests.get(daemon.url + path, params=kw, timeout=60,
                            headers={"Authorization": f"token {daemon.token}"})
    return call


def test_list(get):
    assert get("api/nbconvert").json() == {k: {"output_mimetype": v} for k, v in FORMATS.items()}


@pytest.mark.parametrize("name", FORMATS)
def test_formats(get, name):
    r = get(f"nbconvert/{name}/sub/a é.ipynb")
    assert r.status_code == 200, r.text
    assert r.headers["Content-Type"].split(";")[0] == FORMATS[name]
    assert "sandbox allow-scripts" in r.headers["Content-Security-Policy"]
    assert "Content-Disposition" not in r.headers
    assert "answer" in r.text and "Title é" in r.content.decode()
    if name in ("html", "markdown", "slides"):
        assert "iVBORw0KGgo=" in r.text


@pytest.mark.parametrize("name, file", [("html", "a%20%C3%A9.html"), ("script", "a%20%C3%A9.py"),
                                        ("slides", "a%20%C3%A9.slides.html")])
def test_download(get, name, file):
    r = get(f"nbconvert/{name}/sub/a é.ipynb", download="true")
    assert r.headers["Content-Disposition"] == f"attachment; filename*=utf-8''{file}"


@pytest.mark.parametrize("extension", [None, 7, "py"])
def test_no_extension(get, daemon, extension):
    """nbconvert refuses it."""
    Path(daemon.root, "odd.ipynb").write_text(
        notebook(language_info={"name": "python", "file_extension": extension}))
    r = get("nbconvert/script/odd.ipynb", download="true")
    assert r.status_code == 400 and "file_extension" in r.json()["message"]


@pytest.mark.parametrize("extension", [".", "../x", ".p\"\r\nX: y", "." + "a" * 99])
def test_bad_extension(get, daemon, extension):
    Path(daemon.root, "odd.ipynb").write_text(
        notebook(language_info={"name": "python", "file_extension": extension}))
    r = get("nbconvert/script/odd.ipynb", download="true")
    assert r.status_code == 200, r.text
    assert r.headers["Content-Disposition"] == "attachment; filename*=utf-8''odd.txt"
    assert "X" not in r.headers


def test_refused(get, daemon):
    Path(daemon.root, "text.txt").write_text("x")
    Path(daemon.root, "folder.ipynb").mkdir()
    Path(daemon.root, ".secret.ipynb").write_text(notebook())
    Path(daemon.home, "outside.ipynb").write_text(notebook())
    os.symlink(Path(daemon.home, "outside.ipynb"), Path(daemon.root, "link.ipynb"))
    os.mkfifo(Path(daemon.root, "pipe.ipynb"))
    for path, status in {
            "nothing/sub/a é.ipynb": 404, "pdf;x/sub/a é.ipynb": 404, "html/none.ipynb": 404,
            "html/text.txt": 400, "html/folder.ipynb": 400, "html/pipe.ipynb": 400, "html/": 400,
            "html/.secret.ipynb": 404, "html/link.ipynb": 404, "html/%2e%2e/outside.ipynb": 404,
            "html/sub": 400}.items():
        r = get("nbconvert/" + path)
        assert r.status_code == status, (path, r.status_code, r.text)
    assert get("nbconvert/none/x.ipynb").json()["message"] == "No exporter for format: none"
    assert requests.get(daemon.url + "nbconvert/html/sub/a.ipynb", allow_redirects=False,
                        timeout=9).status_code in (302, 403)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nbformat": 4}', "\0\xff" * 99])
def test_not_a_notebook(get, daemon, text):
    Path(daemon.root, "bad.ipynb").write_text(text)
    r = get("nbconvert/html/bad.ipynb")
    assert r.status_code == 400 and "could not be converted" in r.json()["message"]
    assert "Traceback" not in r.text


def test_modules_beside_the_notebook_are_not_imported(get, daemon):
    for folder in (daemon.root, daemon.root + "/sub"):
        Path(folder, "nbconvert.py").write_text("raise SystemExit('hijacked')")
        Path(folder, "jupyter_nbconvert_config.py").write_text("raise SystemExit('hijacked')")
    assert get("nbconvert/python/sub/a é.ipynb").status_code == 200


def fake_environment(folder, script, package=True):
    """A Python environment whose interpreter is a shell script."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    if package:
        (folder / "lib/python3.11/site-packages/nbconvert").mkdir(parents=True)
        (folder / "lib/python3.11/site-packages/nbconvert/__init__.py").touch()
    return str(python)


@pytest.fixture
def fake(daemon_factory, tmp_path):
    def make(script, package=True):
        d = daemon_factory(python=fake_environment(tmp_path / "env", script, package),
                           zygote=False)
        Path(d.root, "a.ipynb").write_text(notebook())
        return d
    return make


def ask(d, **kw):
    return requests.get(f"{d.url}nbconvert/html/a.ipynb", params={"token": d.token},
                        **{"timeout": 60, **kw})


def test_not_installed(fake):
    d = fake("exit 1", package=False)
    r = ask(d)
    assert r.status_code == 501 and "pip install nbconvert" in r.json()["message"]
    assert requests.get(d.url + "api/nbconvert", params={"token": d.token}).json() == {}


def test_a_child_that_complains_a_lot(fake):
    """More than is kept of it; only the end counts."""
    d = fake("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i is a line of some eighty letters "
             "so that many of them are more than any buffer >&2; done; echo the reason >&2; exit 3")
    for _ in range(6):
        r = ask(d, timeout=20)
        assert r.status_code == 400 and r.json()["message"].endswith(": the reason"), r.text


def test_the_child(fake):
    """Its arguments, its folder, no secrets; what it prints last is the reason."""
    d = fake('cat >/dev/null; echo "$@"; pwd; env')
    text = ask(d).text
    assert text.startswith("-I -m nbconvert --to html --stdin --stdout") and "\n/\n" in text
    assert d.token not in text


def test_failure_is_told(fake):
    d = fake('i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo "line $i of many words" >&2; done; '
             'echo "it is broken" >&2; exit 3')
    r = ask(d)
    assert r.status_code == 400 and r.json()["message"].endswith("it is broken")


def test_limits(fake):
    """Too large a result; a client that leaves; more than four at once; the end of the daemon."""
    d = fake('case $(cat) in *endless*) exec cat /dev/zero;; *) exec sleep 1000;; esac')
    nb = Path(d.root, "a.ipynb")
    nb.write_text(notebook("endless"))
    assert ask(d).status_code == 413
    nb.write_text(notebook())

    def sleepers():
        return sum(b"sleep\x001000" in Path(f"/proc/{p}/cmdline").read_bytes()
                   for p in d.processes() if os.path.exists(f"/proc/{p}"))

    def leave():
        with pytest.raises(requests.exceptions.ReadTimeout):
            ask(d, timeout=2)

    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(leave) for _ in range(4)]
        end = time.monotonic() + 10
        while sleepers() < 4:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert ask(d).status_code == 503
        for w in waiting:
            w.result()
    end = time.monotonic() + 5
    while sleepers():
        assert time.monotonic() < end
        time.sleep(0.05)
    with ThreadPoolExecutor() as pool:
        last = pool.submit(ask, d)
        while not sleepers():
            time.sleep(0.05)
        assert d.stop() == 0
        try:
            assert last.result().status_code == 503
        except requests.ConnectionError:
            pass
    assert not d.processes()
