"""Smaller APIs: status, identity, configuration, events, metrics; malformed input everywhere."""

import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
import requests
import websocket

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from jupyter_ws import Server

NOTEBOOK = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
KERNEL_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"


class Client:
    def __init__(self, d):
        self.d = d
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {d.token}"

    def __call__(self, method, path, status=200, **options):
        r = self.http.request(method, self.d.url + path, timeout=30, **options)
        assert r.status_code == status, f"{method} {path}: {r.status_code} {r.text[:300]}"
        return r

    def subscribe(self):
        return websocket.create_connection(
            self.d.url.replace("http", "ws", 1) + "api/events/subscribe", timeout=10,
            header=[f"Authorization: token {self.d.token}"])


@pytest.fixture
def client(daemon):
    return Client(daemon)


def test_status(client):
    assert re.match(r"\d+\.\d+\.\d+", client("GET", "api").json()["version"])
    s = client("GET", "api/status").json()
    assert set(s) == {"started", "last_activity", "connections", "kernels"}
    for key in ("started", "last_activity"):
        assert re.match(r"^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{6}Z$", s[key])


def test_polls_are_no_activity(client):
    def last():
        return client("GET", "api/status").json()["last_activity"]

    client("PUT", "api/config/activity", 204, json={})
    before = last()
    time.sleep(0.01)
    for path in ("api/status", "api/kernels?1", "api/terminals", "api/me", "lab", "metrics"):
        client("GET", path)
    assert last() == before
    client("PUT", "api/config/activity?no_track_activity=1", 204, json={})
    assert last() == before
    client("PUT", "api/config/activity", 204, json={})
    assert last() > before


def test_me(client):
    me = client("GET", "api/me", params={"permissions": '{"contents": ["read", "write"]}'}).json()
    assert me["permissions"]["contents"] == ["read", "write"]
    assert {"username", "name", "display_name", "initials", "avatar_url", "color"} == set(me["identity"])
    for bad in ("{", "[]", '{"a": 1}', '{"a": [1]}'):
        client("GET", "api/me", 400, params={"permissions": bad})
    client("PATCH", "api/me", 400, json={"color": "red"})


def test_spec_and_reports(client):
    assert client("GET", "api/spec.yaml").text.startswith("openapi: 3")
    client("POST", "api/security/csp-report", 204, data=b'{"csp-report": {}}')


def test_restart_in_a_folder_that_was_moved_or_removed(client, daemon):
    """The kernel follows its notebook; where the folder is gone, it starts above it."""
    server = Server(daemon.url, daemon.token)
    where = "import os; os.getcwd()"
    root = Path(daemon.root).resolve()
    for name in ("moved/from", "moved/to"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "moved/from/a.ipynb").write_text(NOTEBOOK)
    session = server.start_session("moved/from/a.ipynb")
    kid = session["kernel"]["id"]
    channels = server.connect(kid)
    assert channels.execute(where).value == repr(str(root / "moved/from"))
    client("PATCH", "api/contents/moved/from/a.ipynb", json={"path": "moved/to/a.ipynb"})
    client("PATCH", f"api/sessions/{session['id']}", json={"path": "moved/to/a.ipynb"})
    client("POST", f"api/kernels/{kid}/restart")
    assert channels.execute(where).value == repr(str(root / "moved/to"))
    shutil.rmtree(root / "moved/to")
    client("POST", f"api/kernels/{kid}/restart")
    assert channels.execute(where).value == repr(str(root / "moved"))
    channels.close()
    server.stop_kernel(kid)


def test_unknown_path_and_method(client):
    r = client("GET", "api/nonsense", 404)
    assert r.headers["Content-Type"].startswith("application/json") and "message" in r.json()
    client("PATCH", "api/kernels", 405)
    client("DELETE", "api/status", 405)


# --- configuration ---


def test_config(client, daemon):
    url = "api/config/section_1"
    assert client("GET", url).json() == {}
    client("PUT", url, 204, json={"a": {"b": 1, "c": 2}, "d": [1]})
    assert client("PATCH", url, json={"a": {"b": None}, "e": "é"}).json() == {
        "a": {"c": 2}, "d": [1], "e": "é"}
    assert client("GET", url).json() == {"a": {"c": 2}, "d": [1], "e": "é"}
    stored = Path(daemon.env["JUPYTER_CONFIG_DIR"], "serverconfig/section_1.json")
    assert json.loads(stored.read_text())["e"] == "é"
    extra = stored.with_suffix(".d")
    extra.mkdir()
    (extra / "x.json").write_text('{"d": "hidden", "f": 6}')
    assert client("GET", url).json() == {"a": {"c": 2}, "d": [1], "e": "é", "f": 6}


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"5", b'{"a": 1} x', b'{"a":1,"a":2}', b"\xff"])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_config_bad_body(client, method, body):
    client(method, "api/config/bad", 400, data=body)
    assert client("GET", "api/config/bad").json() == {}


@pytest.mark.parametrize("name", ["a%2fb", "..", "a.b", "a%20b", "%2e%2e%2fx"])
def test_config_bad_name(client, name):
    s = requests.Request("PUT", client.d.url, headers=client.http.headers, data=b"{}").prepare()
    s.url = client.d.url + "api/config/" + name
    assert requests.Session().send(s).status_code in (400, 404, 405)


def test_config_concurrent_patches(client):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: Client(client.d)("PATCH", "api/config/many", json={f"k{i}": i}),
                      range(40)))
    assert client("GET", "api/config/many").json() == {f"k{i}": i for i in range(40)}


# --- events ---


def test_events(client):
    a, b = client.subscribe(), client.subscribe()
    event = {"schema_id": KERNEL_ACTIONS, "version": 1, "data": {"action": "start", "x": [1]}}
    client("POST", "api/events", 204, json=event)
    for s in (a, b):
        got = json.loads(s.recv())
        assert got == {"schema_id": KERNEL_ACTIONS, "action": "start", "x": [1]}
    b.close()
    client("POST", "api/events", 204, json=dict(event, version="1"))
    assert json.loads(a.recv())["action"] == "start"
    a.send("anything")
    client("POST", "api/events", 204, json=event)
    a.recv()


@pytest.mark.parametrize("change,why", [
    ({"schema_id": None}, "schema_id"), ({"version": None}, "version"), ({"data": None}, "data"),
    ({"schema_id": "http://unknown"}, "not registered"), ({"version": 2}, "version"),
    ({"data": [1]}, "object"), ({"schema_id": 5}, "not registered"),
])
def test_bad_events(client, change, why):
    event = {"schema_id": KERNEL_ACTIONS, "version": 1, "data": {}, **change}
    event = {k: v for k, v in event.items() if v is not None}
    assert why in client("POST", "api/events", 400, json=event).json()["message"]


def test_saving_is_an_event(client):
    s = client.subscribe()
    client("PUT", "api/contents/e.txt", 201, json={"type": "file", "format": "text", "content": "x"})
    got = json.loads(s.recv())
    assert got["schema_id"].endswith("contents_service/v1") and got["path"] == "e.txt"


# --- metrics ---


def test_metrics(client):
    client("GET", "api/kernels/none", 404)
    s = client.subscribe()
    text = client("GET", "metrics").text
    for line in text.splitlines():
        labels = r'(\{([a-z_]+="[^"\n]*",?)+\})?'
        assert re.match(rf"^(# (HELP|TYPE) \S+ .+|[a-z_]+{labels} [-+.e\d]+)$", line), line
    assert 'handler="api/kernels/{}",status_code="404"' in text
    assert int(re.search(r"\nreitos_event_subscribers (\d+)\n", text).group(1)) >= 1
    assert "terminal_currently_running_total 0\n" in text
    count = int(re.search(r'count\{method="GET",handler="metrics",status_code="200"\} (\d+)',
                          client("GET", "metrics").text).group(1))
    assert count >= 1
    s.close()


def test_shutdown(daemon_factory):
    d = daemon_factory()
    Client(d)("POST", "api/shutdown")
    assert d.process.wait(15) == 0
