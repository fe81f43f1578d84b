"""Stands in for `notebook.tests.launchnotebook`, which Debian's python3-notebook leaves out.

The REST suites of that package then run against a server in a process of its own: `reitosd`, or
with THIRDPARTY_SERVER=jupyter-server the reference. run_notebook.py registers this module.
"""
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from unittest import TestCase

import requests

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KIND = os.environ.get("THIRDPARTY_SERVER", "reitosd")
# names of the reference's options, as the suites give them, and ours
OPTIONS = {
    "MappingKernelManager.cull_idle_timeout": "cull-idle-timeout",
    "MappingKernelManager.cull_interval": "cull-interval",
    "TerminalManager.cull_inactive_timeout": "cull-terminals",
    "TerminalManager.cull_interval": "cull-interval",
}


@contextmanager
def assert_http_error(status, msg=None):
    try:
        yield
    except requests.HTTPError as e:
        assert e.response.status_code == status, (e.response.status_code, e.response.text)
        if msg:
            assert msg in str(e), (msg, str(e))
    else:
        raise AssertionError(f"expected HTTP {status}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class NotebookTestBase(TestCase):
    url_prefix = "/nb/"
    config = None

    @classmethod
    def get_argv(cls):
        return []

    @classmethod
    def options(cls):
        given = dict(arg[2:].split("=", 1) for arg in cls.get_argv() if "=" in arg)
        for section, values in (cls.config or {}).get("NotebookApp", {}).items():
            given.update({f"{section}.{k}": str(v) for k, v in dict(values).items()})
        return given

    @classmethod
    def command(cls):
        if KIND == "jupyter-server":
            args = ["/usr/bin/python3", "-m", "jupyter_server", "--allow-root", "--no-browser",
                    f"--ServerApp.port={cls.port}", f"--ServerApp.base_url={cls.url_prefix}",
                    f"--ServerApp.token={cls.token}", f"--ServerApp.root_dir={cls.notebook_dir}"]
            return args + [f"--{k}={v}" for k, v in cls.options().items()]
        build = os.environ.get("REITOS_BUILD", REPO + "/build")
        args = [build + "/reitosd", "--listen", f"127.0.0.1:{cls.port}", "--root", cls.notebook_dir,
                "--data", f"{cls.home}/reitos",
                "--token", cls.token, "--base-url", cls.url_prefix]
        for name, value in cls.options().items():
            if name in OPTIONS:
                args += ["--" + OPTIONS[name], value]
        return args

    @classmethod
    def setup_class(cls):
        cls.home = tempfile.mkdtemp(prefix="thirdparty-")
        cls.notebook_dir = os.path.join(cls.home, "notebooks")
        cls.data_dir = os.path.join(cls.home, "data")
        cls.config_dir = os.path.join(cls.home, "config")
        for folder in (cls.notebook_dir, cls.data_dir, cls.config_dir):
            os.mkdir(folder)
        cls.port, cls.token = free_port(), secrets.token_hex(16)
        env = dict(os.environ, HOME=cls.home, JUPYTER_DATA_DIR=cls.data_dir,
                   JUPYTER_CONFIG_DIR=cls.config_dir, IPYTHONDIR=cls.home + "/ipython")
        cls.log = open(cls.home + "/server.log", "w")
        cls.process = subprocess.Popen(cls.command(), env=env, cwd=cls.notebook_dir,
                                       stdin=subprocess.DEVNULL, stdout=cls.log, stderr=cls.log)
        deadline = time.monotonic() + 60
        while True:
            try:
                if requests.get(cls.base_url() + "api", timeout=5).ok:
                    return
            except requests.ConnectionError:
                pass
            if cls.process.poll() is not None or time.monotonic() > deadline:
                with open(cls.log.name) as log:
                    sys.stderr.write(log.read())
                cls.teardown_class()
                raise RuntimeError("the server did not start")
            time.sleep(0.1)

    @classmethod
    def teardown_class(cls):
        cls.process.terminate()
        try:
            cls.process.wait(30)
        except subprocess.TimeoutExpired:
            cls.process.kill()
            cls.process.wait()
        cls.log.close()
        if keep := os.environ.get("THIRDPARTY_LOGS"):
            shutil.copy(cls.log.name, os.path.join(keep, f"{cls.__module__}.{cls.__name__}.log"))
        shutil.rmtree(cls.home, ignore_errors=True)

    @classmethod
    def base_url(cls):
        return f"http://127.0.0.1:{cls.port}{cls.url_prefix}"

    @classmethod
    def auth_headers(cls):
        return {"Authorization": f"token {cls.token}"}

    @classmethod
    def request(cls, verb, path, **kwargs):
        headers = {**cls.auth_headers(), **kwargs.pop("headers", {})}
        return requests.request(verb, cls.base_url() + path.lstrip("/"), headers=headers,
                                timeout=60, **kwargs)
