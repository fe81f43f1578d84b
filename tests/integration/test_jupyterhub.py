"""Started by a real JupyterHub, with the command that the manual gives."""

import os
import re
import secrets
import signal
import subprocess
import time
import uuid
from pathlib import Path
from urllib.parse import urljoin

import pytest
import requests
import websocket
from daemon import BUILD, REPO, VENV, free_port
from jupyter_ws import V1, Channels

CONFIG = """
from jupyterhub.auth import DummyAuthenticator
from jupyterhub.spawner import SimpleLocalProcessSpawner
c.JupyterHub.bind_url = "http://127.0.0.1:{port}/"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/secret"
c.JupyterHub.log_level = 10
c.JupyterHub.authenticator_class = DummyAuthenticator
c.DummyAuthenticator.password = "pass"
c.JupyterHub.spawner_class = SimpleLocalProcessSpawner
c.SimpleLocalProcessSpawner.home_dir_template = "{home}"
c.JupyterHub.services = [{{"name": "operator", "api_token": "{token}"}},
                         {{"name": "stranger", "api_token": "not-{token}"}}]
c.JupyterHub.load_roles = [{{"name": "operator", "services": ["operator"],
                            "scopes": ["admin:users", "admin:servers", "access:servers"]}}]
"""


def recipe():
    """The lines of docs/operations.md, with the programs of this build."""
    text = (REPO / "docs" / "operations.md").read_text()
    lines = re.search(r"```python\n(c\.Spawner.*?)```", text, re.S).group(1)
    for name, path in (("/usr/local/bin/reitosd", BUILD / "reitosd"),
                       ("/opt/reitos-venv/bin/python", VENV / "bin" / "python")):
        assert name in lines
        lines = lines.replace(name, str(path))
    return lines


class Hub:
    def __init__(self, folder):
        self.home = folder / "home"
        self.home.mkdir()
        self.token = secrets.token_hex(16)
        ports = {"port": free_port(), "hub_port": free_port(), "proxy_port": free_port()}
        self.url = f"http://127.0.0.1:{ports['port']}/"
        conf = folder / "jupyterhub_config.py"
        conf.write_text(CONFIG.format(folder=folder, home=self.home, token=self.token, **ports)
                        + recipe())
        self.log_path = folder / "log"
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("JUPYTER", "REITOS_", "PYTHON", "VIRTUAL_ENV"))}
        env["PATH"] = "/usr/bin:/bin:" + env.get("PATH", "")
        env["NODE_PATH"] = "/usr/share/nodejs"  # the proxy's modules, for a node not of Debian too
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                ["/usr/bin/python3", "-m", "jupyterhub", "-f", conf], cwd=folder, env=env,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait(lambda: self.answers("hub/api/"), "the Hub does not answer")

    @property
    def log(self):
        return self.log_path.read_text()

    def wait(self, true, what, seconds=45):
        deadline = time.monotonic() + seconds
        while not true():
            assert self.process.poll() is None, self.log[-4000:]
            assert time.monotonic() < deadline, f"{what}:\n{self.log[-4000:]}"
            time.sleep(0.1)

    def answers(self, path):
        try:
            return requests.get(self.url + path, timeout=5).ok
        except requests.RequestException:
            return False

    def api(self, method, path):
        return requests.request(method, f"{self.url}hub/api/{path}", timeout=30,
                                headers={"Authorization": f"token {self.token}"})

    def ready(self):
        servers = self.api("GET", "users/ada").json()["servers"]
        return servers.get("", {}).get("ready")

    def processes(self):
        """Of the user: daemon, shim, zygotes, kernels."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"HOME={self.home}\0".encode() in (
                        entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def hub(tmp_path):
    h = Hub(tmp_path)
    yield h
    h.close()


def log_in(hub):
    s = requests.Session()
    page = s.get(hub.url + "hub/login").text
    form = {"username": "ada", "password": "pass"}
    if xsrf := re.search(r'name="_xsrf" value="([^"]+)"', page):  # Hubs since 4.0
        form["_xsrf"] = xsrf.group(1)
    action = re.search(r'<form action="([^"]+)"', page).group(1).replace("&amp;", "&")
    r = s.post(urljoin(hub.url, action), data=form)
    assert r.status_code == 200 and "/hub/login" not in r.url
    return s


def test_a_users_day(hub):
    s = log_in(hub)
    hub.wait(hub.ready, "the server is not ready")
    own = hub.url + "user/ada/"
    assert requests.get(own + "api/status").status_code == 403
    page = s.get(own + "lab")  # through the Hub's OAuth
    assert page.url == own + "lab" and '"hubUser":"ada"' in page.text
    assert s.get(own + "api/status").status_code == 200

    for token, want in ((hub.token, 200), ("not-" + hub.token, 403), ("unknown", 403)):
        r = requests.get(own + "api/status", headers={"Authorization": f"token {token}"})
        assert r.status_code == want

    origin = hub.url.rstrip("/")
    headers = {"X-XSRFToken": s.cookies.get("_xsrf", path="/user/ada/"), "Origin": origin}
    r = s.post(own + "api/kernels", json={}, headers=headers)
    assert r.status_code == 201, r.text
    client = Channels.__new__(Channels)
    client.session, client.v1 = uuid.uuid4().hex, True
    client.ws = websocket.create_connection(
        f"{own.replace('http', 'ws', 1)}api/kernels/{r.json()['id']}/channels", origin=origin,
        cookie="; ".join(f"{c.name}={c.value}" for c in s.cookies if c.path == "/user/ada/"),
        subprotocols=[V1], timeout=30)
    assert client.execute("6 * 7").value == "42"
    client.close()

    hub.wait(lambda: re.search(r"200 POST /hub/api/users/ada/activity", hub.log),
             "no activity was reported", 15)
    assert hub.processes()
    assert hub.api("DELETE", "users/ada/server").status_code in (202, 204)
    hub.wait(lambda: not hub.processes(), "processes are left", 20)
    hub.wait(lambda: not hub.ready(), "the Hub does not see the end", 20)
