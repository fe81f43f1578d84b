"""JupyterLab as served by the daemon: page, files, settings, workspaces and what it asks for."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from daemon import REPO


class Client:
    def __init__(self, d):
        self.url = d.url
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {d.token}"

    def __call__(self, method, path, status=200, **options):
        r = self.http.request(method, self.url + path, timeout=30, allow_redirects=False, **options)
        assert r.status_code == status, f"{method} {path}: {r.status_code} {r.text[:300]}"
        return r

    def json(self, path):
        return self("GET", path).json()


@pytest.fixture
def client(daemon):
    return Client(daemon)


def page_config(text):
    return json.loads(re.search(r'<script id="jupyter-config-data"[^>]*>(.*?)</script>', text).group(1))


def test_page(client, daemon):
    r = client("GET", "lab")
    assert r.headers["Content-Type"].startswith("text/html")
    assert "{{" not in r.text and "{%" not in r.text
    c = page_config(r.text)
    assert (c["baseUrl"], c["appUrl"], c["fullStaticUrl"]) == ("/", "/lab", "/static/lab")
    assert c["serverRoot"] == os.path.realpath(daemon.root)
    assert c["terminalsAvailable"] is True and c["token"] == ""
    assert c["buildAvailable"] is False and c["buildCheck"] is False
    for phoning in ("@jupyterlab/apputils-extension:announcements",
                    "@jupyterlab/extensionmanager-extension", "@jupyterlab/pluginmanager-extension"):
        assert phoning in c["disabledExtensions"]
    script = re.search(r'src="([^"]+/main\.[^"]+)"', r.text).group(1)
    assert requests.get(daemon.url.rstrip("/") + script).status_code == 200


@pytest.mark.parametrize("path,expect", [
    ("lab", {"mode": "multiple-document", "workspace": "default", "treePath": ""}),
    ("lab/", {"workspace": "default", "treePath": ""}),
    ("lab/tree/sub/a%20b.ipynb", {"treePath": "sub/a b.ipynb", "workspace": "default"}),
    ("lab/workspaces/w1", {"workspace": "w1", "treePath": ""}),
    ("lab/workspaces/w1/tree/x.py", {"workspace": "w1", "treePath": "x.py"}),
    ("doc/tree/x.ipynb", {"mode": "single-document", "treePath": "x.ipynb"}),
    ("lab/tree/%3C%2Fscript%3E%3Cb%3E", {"treePath": "</script><b>"}),
    ("lab/nonsense", {"notFoundUrl": "/lab/nonsense"}),
])
def test_page_paths(client, path, expect):
    c = page_config(client("GET", path).text)
    assert {k: c.get(k) for k in expect} == expect


def test_redirects(client):
    assert client("GET", "", 302).headers["Location"] == "/lab"
    assert client("GET", "notebooks/a b.ipynb", 302).headers["Location"] == "/lab/tree/a%20b.ipynb"
    assert "/lab/tree/x%22" in client("GET", "tree/x%22").text


def test_base_url(daemon_factory):
    d = daemon_factory(base_url="/user/me/")
    c = page_config(Client(d)("GET", "lab").text)
    assert c["baseUrl"] == "/user/me/"
    assert c["fullSettingsUrl"] == "/user/me/lab/api/settings"
    assert c["fullStaticUrl"] == "/user/me/static/lab"
    spec = Client(d).json("api/kernelspecs")["kernelspecs"]["python3"]
    for url in spec["resources"].values():
        assert url.startswith("/user/me/kernelspecs/python3/")


def test_static_caching(client):
    name = re.search(r'/static/lab/(main\.[^"?]+)', client("GET", "lab").text).group(1)
    r = client("GET", f"static/lab/{name}")
    assert "immutable" in r.headers["Cache-Control"]
    assert r.headers["Content-Type"].split(";")[0] in ("text/javascript", "application/javascript")
    again = client("GET", f"static/lab/{name}", 304, headers={"If-None-Match": r.headers["ETag"]})
    assert not again.content
    r = client("GET", "static/lab/package.json")
    assert r.headers["Cache-Control"] == "no-cache"
    assert len(client("HEAD", f"static/lab/{name}").content) == 0


@pytest.mark.parametrize("path", [
    "static/lab/..%2fschemas%2fx", "static/lab/%2e%2e/%2e%2e/kernels", "static/lab/",
    "static/lab/none.js", "lab/extensions/none/static/x.js", "lab/extensions/@reitos",
    "lab/extensions/jupyter-matplotlib/..%2f..%2flab%2fstatic%2findex.html",
    "lab/api/themes/..%2fstatic%2findex.html", "lab/api/nonsense", "static/favicons/other.ico",
    "lab/api/listings/other.json", "kernelspecs/python3/..%2fkernel.json",
    "kernelspecs/python3/.hidden", "kernelspecs/none/logo-64x64.png",
])
def test_nothing_there(client, path):
    s = requests.Session()
    request = requests.Request("GET", client.url, headers=client.http.headers).prepare()
    request.url = client.url + path  # as it is, without normalisation
    assert s.send(request).status_code == 404


def test_extensions(client):
    c = page_config(client("GET", "lab").text)
    exts = {x["name"]: x for x in c["federated_extensions"]}
    assert {"@jupyter-widgets/jupyterlab-manager", "jupyter-matplotlib"} <= set(exts)
    for x in exts.values():
        r = client("GET", f"lab/extensions/{x['name']}/{x['load']}")
        assert "javascript" in r.headers["Content-Type"]


def test_extension_of_the_user(client, daemon):
    """Installed while the daemon runs; its server half is named in the log, once."""
    folder = Path(daemon.jupyter_data, "labextensions", "@me", "mine")
    (folder / "static").mkdir(parents=True)
    (folder / "schemas" / "@me" / "mine").mkdir(parents=True)
    (folder / "static" / "remoteEntry.js").write_text("1")
    (folder / "schemas" / "@me" / "mine" / "plugin.json").write_text('{"title": "Mine"}')
    (folder / "package.json").write_text(json.dumps({"name": "@me/mine", "jupyterlab": {
        "_build": {"load": "static/remoteEntry.js", "extension": "./extension"},
        "discovery": {"server": {"base": {"name": "mine-server"}}}}}))
    import time
    time.sleep(2.1)
    for _ in range(2):
        c = page_config(client("GET", "lab").text)
        assert "@me/mine" in [x["name"] for x in c["federated_extensions"]]
    assert client("GET", "lab/extensions/@me/mine/static/remoteEntry.js").text == "1"
    assert client.json("lab/api/settings/@me/mine:plugin")["schema"]["title"] == "Mine"
    assert daemon.log.count("mine-server") == 1


def test_disabled_by_configuration(daemon_factory):
    d = daemon_factory(start=False)
    folder = Path(d.env["JUPYTER_CONFIG_DIR"], "labconfig")
    folder.mkdir(parents=True)
    (folder / "page_config.json").write_text(json.dumps(
        {"disabledExtensions": {"jupyter-matplotlib": True, "other": False}, "extraKey": "x"}))
    (folder / "default_setting_overrides.json").write_text(json.dumps(
        {"@jupyterlab/apputils-extension:themes": {"theme": "JupyterLab Dark"}}))
    client = Client(d.start())
    c = page_config(client("GET", "lab").text)
    assert "jupyter-matplotlib" in c["disabledExtensions"] and "other" not in c["disabledExtensions"]
    assert c["extraKey"] == "x"
    s = client.json("lab/api/settings/@jupyterlab/apputils-extension:themes")
    assert s["schema"]["properties"]["theme"]["default"] == "JupyterLab Dark"


def test_without_terminals(daemon_factory):
    d = daemon_factory(terminals=False)
    client = Client(d)
    assert page_config(client("GET", "lab").text)["terminalsAvailable"] is False
    client("GET", "api/terminals", 404)


# --- settings ---

THEMES = "lab/api/settings/@jupyterlab/apputils-extension:themes"


def test_settings_lists(client):
    ids = [s["id"] for s in client.json("lab/api/settings?ids_only=true")["settings"]]
    assert len(ids) == len(set(ids)) and len(ids) > 50
    full = client.json("lab/api/settings")["settings"]
    assert {s["id"] for s in full} == set(ids)
    for s in full:
        assert {"id", "schema", "version", "raw", "settings", "last_modified", "created"} <= set(s)


def test_settings_round_trip(client, daemon):
    raw = '// mine\n{\n  theme: \'JupyterLab Dark\', /* dark */\n  "x": [1, 0x10,],\n}'
    client("PUT", THEMES, 204, json={"raw": raw})
    s = client.json(THEMES)
    assert s["raw"] == raw
    assert s["settings"] == {"theme": "JupyterLab Dark", "x": [1, 16]}
    assert re.match(r"^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{6}Z$", s["last_modified"])
    stored = Path(daemon.env["JUPYTER_CONFIG_DIR"],
                  "lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings")
    assert stored.read_text() == raw
    stored.write_text("{ broken")
    s = client.json(THEMES)
    assert s["raw"] == "{ broken" and s["settings"] == {} and "line 1" in s["warning"]
    client("PUT", THEMES, 204, json={"raw": "{}"})


@pytest.mark.parametrize("body,status,why", [
    ({"raw": "{a: "}, 400, "line 1 column"), ({"raw": "[1]"}, 400, "object"), ({"raw": 5}, 400, "raw"),
    ({}, 400, "raw"), ({"raw": "{}" + " " * (5 << 20)}, 413, ""),
])
def test_settings_refused(client, body, status, why):
    assert why in client("PUT", THEMES, status, json=body).json()["message"]


@pytest.mark.parametrize("name", ["none:x", "nocolon", "@jupyterlab/apputils-extension:../themes",
                                  "..%2f..%2fx:y", "@jupyterlab%2fapputils-extension:none"])
def test_unknown_settings(client, name):
    client("GET", f"lab/api/settings/{name}", 404)
    client("PUT", f"lab/api/settings/{name}", 404, json={"raw": "{}"})


def test_malformed_json_names_the_place(client):
    r = client("PUT", THEMES, 400, data=b'{"raw": }')
    assert "line 1" in r.json()["message"]


# --- workspaces and small things ---


def test_workspaces(client, daemon):
    base = "lab/api/workspaces"
    assert client.json(f"{base}/nobody") == {"data": {}, "metadata": {"id": "nobody"}}
    w = {"data": {"a": 1}, "metadata": {"id": "w x"}}
    client("PUT", f"{base}/{quote('w x')}", 204, json=w)
    got = client.json(f"{base}/{quote('w x')}")
    assert got["data"] == {"a": 1} and got["metadata"]["id"] == "w x"
    assert {"created", "last_modified"} <= set(got["metadata"])
    listed = client.json(base)["workspaces"]
    assert listed["ids"] == ["w x"] and listed["values"][0]["data"] == {"a": 1}
    client("PUT", f"{base}/other", 400, json=w)
    client("PUT", f"{base}/other", 400, data=b"{")
    client("PUT", base, 400, json=w)
    evil = "../../../evil"
    client("PUT", f"{base}/{quote(evil, safe='')}", 204, json={"data": {}, "metadata": {"id": evil}})
    names = os.listdir(Path(daemon.env["JUPYTER_CONFIG_DIR"], "lab/workspaces"))
    assert sorted(names)[0].startswith("evil-")
    client("DELETE", f"{base}/{quote('w x')}", 204)
    client("DELETE", f"{base}/{quote('w x')}", 404)


def test_translations(client):
    """A real language pack, put into the environment that the daemon serves JupyterLab from."""
    listed = client.json("lab/api/translations")["data"]
    assert listed == {"en": {"displayName": "English", "nativeName": "English"}}
    assert client.json("lab/api/translations/default") == {"data": {}, "message": ""}
    missing = client.json("lab/api/translations/fr_FR")
    assert missing == {"data": {}, "message": "Language pack 'fr_FR' not installed!"}
    client("GET", f"lab/api/translations/{quote('../*', safe='')}", 404)
    name = "jupyterlab_language_pack_fr_FR"
    package = Path(importlib.util.find_spec(name).origin).parent
    site = next((REPO / "build/venv").glob("lib/python3*/site-packages"))
    link = site / name
    link.symlink_to(package)
    try:
        listed = client.json("lab/api/translations")["data"]
        assert listed["fr_FR"] == {"displayName": "French", "nativeName": "Français"}
        pack = client.json("lab/api/translations/fr_FR")
        assert pack["message"] == ""
        assert pack["data"]["jupyterlab"]["Cancel"] == ["Annuler"]
        assert pack["data"]["jupyterlab"][""]["language"] == "fr-FR"
    finally:
        link.unlink()


def test_small_things(client):
    listing = client.json("lab/api/listings/@jupyterlab/extensionmanager-extension/listings.json")
    assert listing["blocked_extensions"] == []
    licenses = client.json("lab/api/licenses/")["bundles"]["JupyterLab"]["packages"]
    assert len(licenses) > 100 and {"name", "versionInfo", "licenseId"} <= set(licenses[0])
    for name in ("favicon.ico", "static/favicons/favicon.ico", "static/favicons/favicon-busy-1.ico"):
        assert client("GET", name).headers["Content-Type"] == "image/svg+xml"
    theme = client("GET", "lab/api/themes/@jupyterlab/theme-dark-extension/index.css")
    assert theme.headers["Content-Type"].startswith("text/css")
    assert client.json("lsp/status")["sessions"] == {}


def test_kernelspecs(client):
    specs = client.json("api/kernelspecs")
    python = specs["kernelspecs"][specs["default"]]
    assert python["name"] == specs["default"] == "python3"
    assert isinstance(python["spec"]["argv"], list) and python["spec"]["language"] == "python"
    assert client.json("api/kernelspecs/python3") == python
    for url in python["resources"].values():
        assert client("GET", url.lstrip("/")).headers["Content-Type"].startswith("image/")
    client("GET", "api/kernelspecs/none", 404)


def test_new_kernelspec_appears(client, daemon):
    folder = Path(daemon.jupyter_data, "kernels", "mine")
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(
        {"argv": ["true"], "display_name": "Mine", "language": "x"}))
    import time
    time.sleep(2.1)
    assert client.json("api/kernelspecs/mine")["spec"]["display_name"] == "Mine"


def test_relative_python(daemon_factory):
    """It is taken from the folder where the daemon is started; kernels run in other folders."""
    d = daemon_factory(start=False, python="env/bin/python", spares=0)
    Path(d.root, "env").symlink_to(REPO / "build/venv")
    Path(d.root, "sub").mkdir()
    client = Client(d.start())
    client("GET", "lab")
    client("POST", "api/kernels", 201, json={"name": "python3", "path": "sub"})


def test_absent_python(daemon_factory):
    d = daemon_factory(start=False, python="env/bin/python")
    done = subprocess.run(d.command(), env=d.env, cwd=d.root, capture_output=True, text=True,
                          timeout=20)
    assert done.returncode == 2
    assert done.stderr == f"reitosd: python: {d.root}/env/bin/python: No such file or directory\n"


def test_without_jupyterlab(daemon_factory):
    d = daemon_factory(start=False, python="env/bin/python", spares=0)
    python = Path(d.root, "env/bin/python")
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/python3")
    Client(d.start())("GET", "lab", 503)
    assert "--python names the environment that has JupyterLab" in d.log
