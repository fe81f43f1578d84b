"""As the single-user server of a JupyterHub, played here by a small server with the Hub's API."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

SCOPE = "access:servers!server=ada/"


class Hub:
    """Knows tokens {text: user model} and OAuth codes {text: token}; records what it is told."""

    def __init__(self):
        self.tokens = {"good": {"name": "ada", "scopes": [SCOPE]},
                       "stranger": {"name": "eve", "scopes": ["access:servers!server=eve/"]}}
        self.codes = {"code-1": "good", "code-2": "stranger"}
        self.activity, self.asked, self.exchanges = [], [], []
        self.hangs = False
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                token = self.headers.get("Authorization", "").removeprefix("token ")
                if self.path == "/hub/api/":
                    return self.answer(200, {"version": "3.1.4"})
                hub.asked.append(token)
                if hub.hangs:
                    time.sleep(5)
                known = hub.tokens.get(token)
                return self.answer(200 if known else 403, known or {"message": "no"})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.path == "/hub/api/oauth2/token":
                    form = {k: v[0] for k, v in parse_qs(body).items()}
                    hub.exchanges.append(form)
                    token = hub.codes.get(form.get("code"))
                    return self.answer(200 if token else 400, {"access_token": token})
                hub.activity.append((self.headers["Authorization"], json.loads(body)))
                return self.answer(200, {})

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hub():
    h = Hub()
    yield h
    h.server.shutdown()


@pytest.fixture
def spawned(daemon_factory, hub):
    d = daemon_factory(start=False, base_url="/ignored/")
    own = d.listen
    d.listen = "127.0.0.1:1"  # what the Hub says counts
    d.url = f"http://{own}/user/ada/"
    d.env.update({
        "JUPYTERHUB_API_TOKEN": "server-secret", "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-ada",
        "JUPYTERHUB_HOST": "", "JUPYTERHUB_USER": "ada", "JUPYTERHUB_SERVER_NAME": "",
        "JUPYTERHUB_OAUTH_CALLBACK_URL": "/user/ada/oauth_callback",
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps([SCOPE]),
        "JUPYTERHUB_API_URL": hub.url + "/hub/api", "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_ACTIVITY_URL": hub.url + "/hub/api/users/ada/activity",
        "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/",
        "JUPYTERHUB_SERVICE_URL": d.url})
    return d.start()


def begin(d, path="lab/tree/x"):
    s = requests.Session()
    r = s.get(d.url + path, allow_redirects=False)
    assert r.status_code == 302
    to = urlsplit(r.headers["Location"])
    assert to.path == "/hub/api/oauth2/authorize"
    return s, {k: v[0] for k, v in parse_qs(to.query).items()}


def finish(d, s, query, code="code-1", **changes):
    return s.get(d.url + "oauth_callback", allow_redirects=False,
                 params={"code": code, "state": query["state"], **changes})


def test_probe(spawned):
    deadline = time.monotonic() + 5
    while True:
        r = requests.get(spawned.url + "api")
        assert r.status_code == 200
        if "X-JupyterHub-Version" in r.headers:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert r.headers["X-JupyterHub-Version"] == "3.1.4"


def test_oauth(spawned, hub):
    s, query = begin(spawned)
    assert query["client_id"] == "jupyterhub-user-ada" and query["response_type"] == "code"
    assert query["redirect_uri"] == "/user/ada/oauth_callback"
    r = finish(spawned, s, query)
    assert (r.status_code, r.headers["Location"]) == (302, "/user/ada/lab/tree/x")
    assert hub.exchanges[0]["client_secret"] == "server-secret"
    assert hub.exchanges[0]["grant_type"] == "authorization_code"
    assert s.get(spawned.url + "api/me").json()["identity"]["username"] == "ada"
    page = s.get(spawned.url + "lab").text
    assert '"hubPrefix":"/hub/"' in page and '"hubUser":"ada"' in page
    assert s.put(spawned.url + "api/config/x", json={}).status_code == 403
    xsrf = {"X-XSRFToken": s.cookies["_xsrf"]}
    assert s.put(spawned.url + "api/config/x", json={}, headers=xsrf).status_code == 204
    r = s.get(spawned.url + "logout", allow_redirects=False)
    assert r.headers["Location"] == "/hub/logout"


def test_oauth_refused(spawned, hub):
    s, query = begin(spawned)
    assert finish(spawned, s, query, state="0" * 32).status_code == 403
    assert finish(spawned, requests.Session(), query).status_code == 403
    assert finish(spawned, s, query, code="").status_code == 403
    assert finish(spawned, s, query, code="unknown").status_code == 403
    assert finish(spawned, s, query, code="code-2").status_code == 403  # another user
    assert s.get(spawned.url + "api/me").status_code == 403


def test_hub_that_does_not_answer(spawned, hub):
    """It is asked once, not for every token, and what it said before holds."""
    def status(token):
        return requests.get(spawned.url + "api/kernels",
                            headers={"Authorization": f"token {token}"}).status_code
    assert status("good") == 200
    hub.hangs = True
    asked = len(hub.asked)
    assert [status(f"made-up-{i}") for i in range(4)] == [403] * 4
    assert status("good") == 200
    assert len(hub.asked) == asked + 1


def test_hub_tokens(spawned, hub):
    def status(token):
        return requests.get(spawned.url + "api/status",
                            headers={"Authorization": f"token {token}"}).status_code

    assert status("good") == 200
    assert status("good") == 200
    assert hub.asked.count("good") == 1  # cached
    assert status("stranger") == 403
    assert status("unknown") == 403
    began = time.monotonic()
    assert {status(f"guess-{i}") for i in range(12)} == {403}
    assert time.monotonic() - began > 1  # guessing is slowed down
    assert status("good") == 200


def test_activity(spawned, hub):
    deadline = time.monotonic() + 5
    while not hub.activity:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    auth, body = hub.activity[0]
    assert auth == "token server-secret"
    assert body["servers"][""]["last_activity"] == body["last_activity"]


def test_hub_is_down(spawned, hub):
    hub.server.shutdown()
    hub.server.server_close()
    began = time.monotonic()
    r = requests.get(spawned.url + "api/status", headers={"Authorization": "token good"})
    assert r.status_code == 403 and time.monotonic() - began < 5
    assert requests.get(spawned.url + "api").status_code == 200
