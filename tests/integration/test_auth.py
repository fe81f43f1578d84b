"""Who gets in: token, cookie, login form, XSRF, Origin, Host; and what others are told."""

import re
import socket
import stat
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import websocket


def form_token(text):
    return re.search(r'name="_xsrf" value="([^"]+)"', text).group(1)


def log_in(d, password=None):
    """A session that went through the login form."""
    s = requests.Session()
    page = s.get(d.url + "login")
    assert page.status_code == 200
    r = s.post(d.url + "login", data={"_xsrf": form_token(page.text), "password": password or d.token},
               allow_redirects=False)
    return s, r


def auth(d, **headers):
    return {"Authorization": f"token {d.token}", **headers}


def raw_status(d, host, path="api/status"):
    """The status of a request with this Host header (requests would send its own)."""
    r = requests.get(d.url + path, headers=auth(d, Host=host))
    return r.status_code


# --- token ---


@pytest.mark.parametrize("scheme", ["token", "Bearer", "TOKEN", "bearer", "Token "])
def test_header_token(daemon, scheme):
    r = requests.get(daemon.url + "api/status", headers={"Authorization": f"{scheme} {daemon.token}"})
    assert r.status_code == 200
    assert "Set-Cookie" not in r.headers


@pytest.mark.parametrize("value", ["token wrong", "token ", "", "Basic abc", "token", "tokenx"])
def test_wrong_header_is_403_json(daemon, value):
    r = requests.get(daemon.url + "api/status", headers={"Authorization": value})
    assert r.status_code == 403
    assert r.headers["Content-Type"].startswith("application/json")
    assert r.json()["message"] == "Forbidden"


def test_unauthenticated_api_and_page(daemon):
    assert requests.get(daemon.url + "api").status_code == 200
    for path in ("api/status", "api/kernels", "api/contents", "metrics", "nowhere", "files/x",
                 "lab/api/settings", "reitos/api/kernels"):
        assert requests.get(daemon.url + path).status_code == 403, path
    assert requests.post(daemon.url + "api/kernels", json={}).status_code == 403
    r = requests.get(daemon.url + "lab/tree/a b.ipynb?x=1", allow_redirects=False)
    assert r.status_code == 302
    to = urlsplit(r.headers["Location"])
    assert to.path == "/login"
    assert parse_qs(to.query)["next"] == ["/lab/tree/a%20b.ipynb?x=1"]


def test_query_token_on_a_page_becomes_a_cookie(daemon):
    s = requests.Session()
    r = s.get(f"{daemon.url}lab?a=1&token={daemon.token}&b=2", allow_redirects=False)
    assert (r.status_code, r.headers["Location"]) == (302, "/lab?a=1&b=2")
    cookie = r.headers["Set-Cookie"]
    assert f"username-127-0-0-1-{daemon.port}=" in cookie
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie
    assert s.get(daemon.url + "api/status").status_code == 200
    assert daemon.token not in s.get(daemon.url + "lab").text


def test_query_token_on_the_api(daemon):
    assert requests.get(f"{daemon.url}api/status?token={daemon.token}").status_code == 200
    assert requests.get(f"{daemon.url}api/status?token=wrong").status_code == 403
    r = requests.get(f"{daemon.url}lab?token=wrong", allow_redirects=False)
    assert r.status_code == 302 and "wrong" not in r.headers["Location"]


def test_token_is_not_logged(daemon_factory):
    d = daemon_factory(log_level="debug")
    requests.get(f"{d.url}lab?token={d.token}")
    requests.get(d.url + "api/status", headers=auth(d, Referer=f"{d.url}?token={d.token}"))
    log = d.log.replace(f"lab?token={d.token}", "", 1)  # the address printed at the start
    assert "[secret]" in log and d.token not in log


# --- login form ---


def test_login_form(daemon):
    s, r = log_in(daemon)
    assert (r.status_code, r.headers["Location"]) == (302, "/")
    assert s.get(daemon.url + "api/status").status_code == 200
    assert s.get(daemon.url, allow_redirects=False).headers["Location"] == "/lab"


def test_login_wrong_password(daemon):
    s, r = log_in(daemon, "wrong")
    assert r.status_code == 401 and "not the token" in r.text
    assert s.get(daemon.url + "api/status").status_code == 403


@pytest.mark.parametrize("to,want", [
    ("/lab/tree/x", "/lab/tree/x"), ("//evil.example", "/"), ("https://evil.example", "/"),
    ("/\\evil.example", "/"), ("/a/../b", "/"), ("javascript:alert(1)", "/"),
])
def test_login_goes_only_here(daemon, to, want):
    s = requests.Session()
    page = s.get(daemon.url + "login", params={"next": to})
    assert "evil" not in page.text
    r = s.post(daemon.url + "login", params={"next": to}, allow_redirects=False,
               data={"_xsrf": form_token(page.text), "password": daemon.token})
    assert r.headers["Location"] == want


def test_login_needs_xsrf(daemon):
    r = requests.post(daemon.url + "login", data={"password": daemon.token})
    assert r.status_code == 403
    assert "'_xsrf' argument missing from POST" in r.text


def test_logout(daemon):
    s, _ = log_in(daemon)
    r = s.get(daemon.url + "logout", allow_redirects=False)
    assert r.status_code == 302
    assert s.get(daemon.url + "api/status").status_code == 403


def test_vscode_password_probe(daemon):
    """The steps of VS Code's "existing Jupyter server" with a password."""
    assert requests.get(daemon.url, allow_redirects=False).status_code == 302
    assert requests.get(daemon.url + "tree?", allow_redirects=False).status_code == 302
    probe = requests.get(daemon.url + "login?", allow_redirects=False)
    assert probe.status_code == 200
    xsrf = probe.cookies["_xsrf"]
    r = requests.post(daemon.url + "login?", allow_redirects=False, cookies={"_xsrf": xsrf},
                      data={"_xsrf": xsrf, "password": daemon.token})
    assert r.status_code == 302
    name = next(c for c in r.cookies.keys() if c.startswith("username-"))
    # it goes on with the XSRF token that it read before the login
    cookies, headers = {"_xsrf": xsrf, name: r.cookies[name]}, {"X-XSRFToken": xsrf}
    url = daemon.url + "api/config/probe"
    assert requests.patch(url, json={"a": 1}, cookies=cookies, headers=headers).status_code == 200


def test_guessing_is_slowed_down(daemon_factory):
    d = daemon_factory()
    s = requests.Session()
    xsrf = form_token(s.get(d.url + "login").text)

    def attempt(password):
        began = time.monotonic()
        r = s.post(d.url + "login", data={"_xsrf": xsrf, "password": password}, allow_redirects=False)
        return r.status_code, time.monotonic() - began

    for _ in range(10):
        code, took = attempt("wrong")
        assert code == 401 and took < 0.9
    code, took = attempt("wrong")
    assert code == 401 and took >= 0.9
    # others on the same address who hold the token are not held up
    began = time.monotonic()
    assert requests.get(d.url + "api/status", headers=auth(d)).status_code == 200
    assert time.monotonic() - began < 0.5
    code, took = attempt(d.token)
    assert code == 302 and 0.9 <= took < 5
    code, took = attempt("wrong")
    assert code == 401 and took < 0.9


# --- XSRF and cookies ---


def test_cookie_writes_need_xsrf(daemon):
    s, _ = log_in(daemon)
    url = daemon.url + "api/config/xsrf"
    r = s.put(url, json={"a": 1})
    assert r.status_code == 403 and "'_xsrf' argument missing" in r.json()["message"]
    xsrf = s.cookies["_xsrf"]
    assert s.put(url, json={"a": 1}, headers={"X-XSRFToken": xsrf}).status_code == 204
    assert s.put(f"{url}?_xsrf={xsrf}", json={"a": 1}).status_code == 204
    assert s.put(url, json={"a": 1}, headers={"X-XSRFToken": xsrf[:-1] + "0"}).status_code == 403
    assert s.delete(daemon.url + "api/terminals/1").status_code == 403
    assert s.get(url).json() == {"a": 1}


def test_xsrf_belongs_to_the_session(daemon):
    """A token planted by a sibling site, though made by this server, is not this session's."""
    mine, _ = log_in(daemon)
    other, _ = log_in(daemon)
    planted = other.cookies["_xsrf"]
    name = next(c for c in mine.cookies.keys() if c.startswith("username-"))
    r = requests.put(daemon.url + "api/config/xsrf", json={}, headers={"X-XSRFToken": planted},
                     cookies={name: mine.cookies[name], "_xsrf": planted})
    assert r.status_code == 403


def test_forged_cookie(daemon):
    s, _ = log_in(daemon)
    name = next(c for c in s.cookies.keys() if c.startswith("username-"))
    value = s.cookies[name]
    for bad in (value[:-1] + ("0" if value[-1] != "0" else "1"), "A" + value[1:], value.split(".")[0],
                "", "x" * 5000):
        assert requests.get(daemon.url + "api/status", cookies={name: bad}).status_code == 403


def test_cookie_survives_the_daemon_and_not_a_new_token(daemon_factory, tmp_path):
    data = str(tmp_path / "data")
    a = daemon_factory()
    s, _ = log_in(a)
    a.stop()
    a.start()
    assert s.get(a.url + "api/status").status_code == 200
    a.stop()
    a.token = "another-token-of-some-length"
    a.start()
    assert s.get(a.url + "api/status").status_code == 403
    secret = Path(a.data) / "cookie_secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert not Path(data).exists()


def test_secure_cookie_behind_tls(daemon):
    r = requests.get(f"{daemon.url}lab?token={daemon.token}", allow_redirects=False,
                     headers={"X-Forwarded-Proto": "https"})
    assert r.headers["Set-Cookie"].count("Secure") == 2


# --- Origin ---


def test_cross_origin(daemon):
    s, _ = log_in(daemon)
    evil = {"Origin": "https://evil.example"}
    assert s.get(daemon.url + "api/status", headers=evil).status_code == 404
    assert s.get(daemon.url + "api/status", headers={"Origin": "null"}).status_code == 404
    same = {"Origin": f"http://127.0.0.1:{daemon.port}"}
    r = s.get(daemon.url + "api/status", headers=same)
    assert r.status_code == 200 and "Access-Control-Allow-Origin" not in r.headers
    # who has the token may come from anywhere, but gets no cookie rights
    r = requests.get(daemon.url + "api/status", headers=auth(daemon, **evil))
    assert r.headers["Access-Control-Allow-Origin"] == evil["Origin"]
    assert "Access-Control-Allow-Credentials" not in r.headers


def test_forwarded_host_is_not_believed(daemon):
    s, _ = log_in(daemon)
    r = s.get(daemon.url + "api/status",
              headers={"Origin": "https://evil.example", "X-Forwarded-Host": "evil.example"})
    assert r.status_code == 404


def ws(d, path="api/events/subscribe", **options):
    return websocket.create_connection(d.url.replace("http", "ws", 1) + path, timeout=5, **options)


def ws_status(d, **options):
    try:
        ws(d, **options).close()
        return 101
    except websocket.WebSocketBadStatusException as e:
        return e.status_code


def test_websocket_access(daemon):
    s, _ = log_in(daemon)
    cookie = "; ".join(f"{c.name}={c.value}" for c in s.cookies)
    here = f"http://127.0.0.1:{daemon.port}"
    assert ws_status(daemon, suppress_origin=True) == 403
    assert ws_status(daemon, cookie=cookie, origin=here) == 101
    assert ws_status(daemon, cookie=cookie, suppress_origin=True) == 101
    assert ws_status(daemon, cookie=cookie, origin="https://evil.example") == 403
    token = [f"Authorization: token {daemon.token}"]
    assert ws_status(daemon, header=token, origin="https://vscode.dev") == 101
    assert ws_status(daemon, path=f"api/events/subscribe?token={daemon.token}") == 101


def test_allowed_origins(daemon_factory):
    d = daemon_factory(allow_origin_pat="https://[a-z]+[.]example")
    s, _ = log_in(d)

    def get(origin):
        return s.get(d.url + "api/status", headers={"Origin": origin})

    r = get("https://lab.example")
    assert r.status_code == 200
    assert r.headers["Access-Control-Allow-Origin"] == "https://lab.example"
    assert r.headers["Access-Control-Allow-Credentials"] == "true"
    assert r.headers["Vary"] == "Origin"
    for bad in ("https://lab.example.evil.com", "https://evil.com/https://lab.example",
                "http://lab.example", "https://lab.example:8443"):
        assert get(bad).status_code == 404, bad


def test_wildcard_origin_does_not_cover_cookies(daemon_factory):
    d = daemon_factory(allow_origin="*")
    s, _ = log_in(d)
    evil = {"Origin": "https://evil.example"}
    assert s.get(d.url + "api/status", headers=evil).status_code == 404
    r = requests.get(d.url + "api/status", headers=auth(d, **evil))
    assert r.headers["Access-Control-Allow-Origin"] == "*"


def test_preflight(daemon):
    r = requests.options(daemon.url + "api/kernels", headers={
        "Origin": "https://vscode.dev", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type"})
    assert r.status_code == 204
    assert r.headers["Access-Control-Allow-Origin"] == "https://vscode.dev"
    assert "x-xsrftoken" in r.headers["Access-Control-Allow-Headers"]
    assert "DELETE" in r.headers["Access-Control-Allow-Methods"]
    r = requests.options(daemon.url + "api/kernels", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in r.headers


def test_files_are_not_embedded_elsewhere(daemon):
    s, _ = log_in(daemon)
    Path(daemon.root, "a.js").write_text("1")

    def get(**headers):
        return s.get(daemon.url + "files/a.js",
                     headers={k.replace("_", "-"): v for k, v in headers.items()}).status_code

    assert get() == 200
    assert get(Sec_Fetch_Site="same-origin") == 200
    assert get(Sec_Fetch_Site="none") == 200
    assert get(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script") == 403
    assert get(Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors") == 403
    assert get(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate",
               Sec_Fetch_Dest="document") == 200
    assert get(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate",
               Sec_Fetch_Dest="iframe") == 403


# --- Host ---


def test_host_header(daemon):
    for host in ("localhost", "localhost:1234", "127.0.0.1", "[::1]:99", "LOCALHOST:80"):
        assert raw_status(daemon, host) == 200, host
    for host in ("evil.example", f"evil.example:{daemon.port}", "localhost.evil.example", "10.0.0.1"):
        assert raw_status(daemon, host) == 403, host
        assert requests.get(daemon.url + "api", headers={"Host": host}).status_code == 403


def test_allowed_hosts(daemon_factory):
    d = daemon_factory(allow_host="lab.example,10.0.0.1")
    assert raw_status(d, "lab.example") == 200
    assert raw_status(d, "10.0.0.1:80") == 200
    assert raw_status(d, "x.lab.example") == 403


class Forwarder:
    """A tunnel, or a proxy that puts a Host header of its own."""

    def __init__(self, port, rewrite=None):
        self.port_to, self.rewrite = port, rewrite
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.socket.accept()
            except OSError:
                return
            s = socket.create_connection(("127.0.0.1", self.port_to))
            threading.Thread(target=self.pump, args=(c, s, self.rewrite), daemon=True).start()
            threading.Thread(target=self.pump, args=(s, c, None), daemon=True).start()

    @staticmethod
    def pump(a, b, rewrite):
        try:
            while data := a.recv(65536):
                b.sendall(rewrite(data) if rewrite else data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_tunnel_on_another_port(daemon):
    f = Forwarder(daemon.port)
    here = f"http://localhost:{f.port}"
    s = requests.Session()
    assert s.get(f"{here}/lab?token={daemon.token}").status_code == 200
    r = s.put(f"{here}/api/config/tunnel", json={}, headers={
        "Origin": here, "X-XSRFToken": s.cookies["_xsrf"]})
    assert r.status_code == 204
    f.socket.close()


def test_behind_a_proxy_that_forwards_the_host(daemon_factory):
    d = daemon_factory(allow_host="lab.example", base_url="/x/")
    f = Forwarder(d.port, lambda b: b.replace(f"Host: 127.0.0.1:{f.port}".encode(),
                                              b"Host: lab.example"))
    s = requests.Session()
    r = s.get(f"http://127.0.0.1:{f.port}/x/lab?token={d.token}", allow_redirects=False)
    assert r.headers["Location"] == "/x/lab"
    assert "username-lab-example=" in r.headers["Set-Cookie"] and "Path=/x/" in r.headers["Set-Cookie"]
    r = s.get(f"http://127.0.0.1:{f.port}/x/api/status", headers={"Origin": "https://lab.example"})
    assert r.status_code == 200
    f.socket.close()


# --- the rest ---


def test_security_headers(daemon):
    r = requests.get(daemon.url + "api/status", headers=auth(daemon))
    assert r.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in r.headers["Content-Security-Policy"]
    r = requests.get(daemon.url + "login")
    assert "frame-ancestors 'self'" in r.headers["Content-Security-Policy"]
    assert "default-src" not in r.headers["Content-Security-Policy"]


def test_base_url(daemon_factory):
    d = daemon_factory(base_url="/me/")
    r = requests.get(f"{d.url}lab?token={d.token}", allow_redirects=False)
    assert r.headers["Location"] == "/me/lab"
    assert "Path=/me/" in r.headers["Set-Cookie"]
    r = requests.get(d.url, allow_redirects=False)
    assert r.headers["Location"].startswith("/me/login?next=")
    s, r = log_in(d)
    assert r.headers["Location"] == "/me/"


def test_no_authentication_must_be_asked_for(daemon_factory):
    d = daemon_factory(token="none")
    assert "authentication is off" in d.log
    assert requests.get(d.url + "api/status").status_code == 200
    assert requests.get(d.url + "tree?", allow_redirects=False).status_code == 200
    assert requests.put(d.url + "api/config/open", json={}).status_code == 204
    # other sites still may not use it through the user's browser
    evil = {"Origin": "https://evil.example"}
    assert requests.put(d.url + "api/config/open", json={}, headers=evil).status_code == 404
    assert requests.get(d.url + "api/status", headers={"Host": "evil.example"}).status_code == 403


def test_random_token_is_printed(daemon_factory):
    d = daemon_factory(start=False)
    d.token = ""
    d.start()
    token = re.search(r"token=([0-9a-f]{48})\b", d.log).group(1)
    assert requests.get(d.url + "api/status", headers={"Authorization": f"token {token}"}).ok
    assert requests.get(d.url + "api/status").status_code == 403


def test_bad_origin_pattern_is_a_configuration_error(daemon_factory):
    d = daemon_factory(start=False, allow_origin_pat="[")
    d.url = None
    d.start()
    assert d.process.wait(10) == 2
    assert "allow-origin-pat" in d.log
