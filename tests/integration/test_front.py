"""What stands in front: nginx with the recipe of the manual, TLS, a Unix socket, a tunnel."""

import http.client
import os
import re
import socket
import subprocess
import threading
import time
import uuid
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
import requests
import websocket
from daemon import REPO, free_port
from jupyter_ws import V1, Channels

SITE = "notebooks.example.org"


class Page(Channels):
    """The WebSocket of a page: a given connection instead of one of its own."""

    def __init__(self, ws):
        self.session, self.v1, self.ws = uuid.uuid4().hex, True, ws


def connect(s, url, kid, origin, host=None, **kw):
    cookies = "; ".join(f"{c.name}={c.value}" for c in s.cookies)
    return Page(websocket.create_connection(
        f"{url.replace('http', 'ws', 1)}api/kernels/{kid}/channels", origin=origin, host=host,
        cookie=cookies, subprotocols=[V1], timeout=30, **kw))


def log_in(url, token, host=None):
    """As a browser that asked for JupyterLab: redirect, form, JupyterLab."""
    base = urlsplit(url).path
    s = requests.Session()
    s.trust_env = False
    s.verify = os.environ.get("REQUESTS_CA_BUNDLE", True)
    s.headers.update({"Host": host} if host else {})
    r = s.get(url + "lab", allow_redirects=False)
    to = urlsplit(r.headers["Location"])
    assert (r.status_code, to.path) == (302, base + "login")
    assert parse_qs(to.query)["next"] == [base + "lab"]
    login = f"{url}login?{to.query}"
    form = s.get(login).text
    action = re.search(r'action="([^"]+)"', form).group(1).replace("&amp;", "&")
    xsrf = re.search(r'name="_xsrf" value="([^"]+)"', form).group(1)
    r = s.post(urljoin(url, action), data={"_xsrf": xsrf, "password": token},
               allow_redirects=False)
    assert (r.status_code, r.headers["Location"]) == (302, base + "lab")
    assert {c.path for c in s.cookies} == {base}
    page = s.get(url + "lab")
    assert page.status_code == 200 and f'"baseUrl":"{base}"' in page.text
    return s


def work(url, token, origin, host=None, **kw):
    """Logs in, starts a kernel and runs code in it as a page of `origin` does."""
    s = log_in(url, token, host)
    assert s.get(url + "api/me").status_code == 200
    own = {"Origin": origin}
    assert s.post(url + "api/kernels", json={}, headers=own).status_code == 403
    own["X-XSRFToken"] = s.cookies["_xsrf"]
    r = s.post(url + "api/kernels", json={}, headers=own)
    assert r.status_code == 201, r.text
    kid = r.json()["id"]
    page = connect(s, url, kid, origin, host, **kw)
    assert page.execute("print('x' * 100000); 6 * 7").value == "42"
    page.close()
    with pytest.raises(websocket.WebSocketBadStatusException):
        connect(s, url, kid, "http://evil.example", host, **kw)
    assert s.delete(url + f"api/kernels/{kid}", headers=own).status_code == 204
    return s


# --- nginx ---


def recipe():
    """(map, location /notebooks/, the locations of restarts) as docs/operations.md has them."""
    text = (REPO / "docs" / "operations.md").read_text()
    block = re.search(r"```nginx\n(.*?)```", text, re.S).group(1)
    restart = re.search(r"`(error_page 502 [^`]*)`", text).group(1)
    at = block.index("location")
    return block[:at], block[at:], restart


class Nginx:
    def __init__(self, folder, behind, keep_host=True):
        head, location, restart = recipe()
        assert "http://127.0.0.1:8888" in location
        location = location.replace("http://127.0.0.1:8888", behind)
        if not keep_host:
            location = re.sub(r".*proxy_set_header Host .*\n", "", location)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/notebooks/"
        temp = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        conf = folder / "nginx.conf"
        conf.write_text(
            f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{temp}{head}\n"
            f"server {{ listen 127.0.0.1:{self.port};\n{restart}\n{location} }} }}\n")
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-p", folder, "-c", conf])
        deadline = time.monotonic() + 15
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)


@pytest.fixture
def nginx(tmp_path):
    made = []

    def make(*args, **kw):
        made.append(Nginx(tmp_path, *args, **kw))
        return made[-1]

    yield make
    for n in made:
        n.process.terminate()
        n.process.wait(10)


def test_nginx(daemon_factory, nginx):
    d = daemon_factory(base_url="/notebooks/", allow_host=SITE)
    n = nginx(f"http://127.0.0.1:{d.port}")
    s = work(n.url, d.token, f"http://{SITE}", SITE)
    assert requests.get(n.url + "api", headers={"Host": "other.example"}).status_code == 403
    body = {"type": "file", "format": "text", "content": "y" * 3_000_000}  # nginx's own limit: 1 MB
    r = s.put(n.url + "api/contents/large.txt", json=body,
              headers={"X-XSRFToken": s.cookies["_xsrf"]})
    assert r.status_code == 201
    d.stop()
    assert s.get(n.url + "api").status_code == 503


def test_nginx_to_a_unix_socket(daemon_factory, nginx, tmp_path):
    path = tmp_path / "s"
    d = daemon_factory(listen=f"unix:{path}", base_url="/notebooks/", allow_host=SITE)
    wait_unix(d, path)
    n = nginx(f"http://unix:{path}:")
    work(n.url, d.token, f"http://{SITE}", SITE)


def test_nginx_that_does_not_keep_the_host(daemon_factory, nginx):
    """Pages have another origin than the Host header says: it must be allowed by name."""
    d = daemon_factory(base_url="/notebooks/", allow_origin=f"http://{SITE}")
    n = nginx(f"http://127.0.0.1:{d.port}", keep_host=False)
    work(n.url, d.token, f"http://{SITE}", SITE)


# --- TLS ---


def test_tls(daemon_factory, tmp_path, monkeypatch):
    cert, key = str(tmp_path / "cert"), str(tmp_path / "key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", cert)
    d = daemon_factory(start=False, tls_cert=cert, tls_key=key)
    d.url = d.url.replace("http", "https")
    d.start()
    s = work(d.url, d.token, d.url.rstrip("/"), sslopt={"ca_certs": cert})
    assert all(c.secure for c in s.cookies)
    with socket.create_connection(("127.0.0.1", d.port), timeout=10) as plain:
        plain.sendall(b"GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            while plain.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert s.get(d.url + "api").status_code == 200


# --- Unix socket ---


def unix_connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(str(path))
    return s


def unix_request(path, method, url, **headers):
    c = http.client.HTTPConnection("localhost")
    c.sock = unix_connect(path)
    try:
        c.request(method, url, headers=headers)
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def wait_unix(d, path):
    deadline = time.monotonic() + 30
    while True:
        try:
            unix_request(path, "GET", d.base_url + "api")
            return
        except OSError:
            assert d.process.poll() is None and time.monotonic() < deadline, d.log
            time.sleep(0.02)


def test_unix_socket(daemon_factory, tmp_path):
    path = tmp_path / "s"
    d = daemon_factory(listen=f"unix:{path}")
    wait_unix(d, path)
    own = {"Authorization": f"token {d.token}"}
    assert unix_request(path, "GET", "/api/status")[0] == 403
    assert unix_request(path, "GET", "/api/status", **own)[0] == 200
    status, text = unix_request(path, "POST", "/api/kernels", **own)
    assert status == 201
    kid = re.search(r'"id": ?"([^"]+)"', text).group(1)
    page = Page(websocket.create_connection(
        f"ws://localhost/api/kernels/{kid}/channels", socket=unix_connect(path), timeout=30,
        header=[f"Authorization: token {d.token}"], subprotocols=[V1], suppress_origin=True))
    assert page.execute("6 * 7").value == "42"
    page.close()
    assert unix_request(path, "DELETE", f"/api/kernels/{kid}", **own)[0] == 204


# --- tunnel, base URL ---


def forward(to):
    """Passes bytes on, as `ssh -L` does; gives the listening socket."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve():
        while True:
            try:
                a, _ = listener.accept()
            except OSError:
                return
            b = socket.create_connection(("127.0.0.1", to))
            for pair in ((a, b), (b, a)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener


def test_tunnel(daemon_factory):
    d = daemon_factory()
    with forward(d.port) as listener:
        origin = f"http://localhost:{listener.getsockname()[1]}"
        work(origin + "/", d.token, origin)


def test_base_url(daemon_factory):
    d = daemon_factory(base_url="/x/")
    work(d.url, d.token, f"http://127.0.0.1:{d.port}")
    r = requests.get(f"http://127.0.0.1:{d.port}/api", allow_redirects=False)
    assert r.status_code == 404
