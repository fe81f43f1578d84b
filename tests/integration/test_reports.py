"""What users of Jupyter servers have reported, where no other test covers it: docs/testing.md."""

import json
import os
import time
import uuid

import pytest

from daemon import BUILD
from jupyter_ws import Server

SLOW = "import time; time.sleep(4); from ipykernel import kernelapp; kernelapp.launch_new_instance()"


@pytest.fixture
def server(daemon):
    return Server(daemon.url, daemon.token)


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_handshake_does_not_wait_for_a_slow_kernel(daemon, server):
    """notebook#3711, jupyter_server#633: 101 at once, and what is sent meanwhile is run."""
    folder = os.path.join(daemon.jupyter_data, "kernels", "slow")
    os.makedirs(folder)
    argv = [str(BUILD / "venv/bin/python"), "-c", SLOW, "-f", "{connection_file}"]
    with open(os.path.join(folder, "kernel.json"), "w") as f:
        json.dump({"argv": argv, "display_name": "Slow", "language": "none"}, f)
    time.sleep(2.1)  # kernelspecs are looked up at most every two seconds
    start = time.monotonic()
    kid = server.start_kernel(name="slow")
    c = server.connect(kid)
    assert time.monotonic() - start < 3.9
    assert server.model(kid)["execution_state"] == "starting"
    assert c.execute("6 * 7", timeout=30).value == "42"
    server.stop_kernel(kid)


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_large_request_keeps_the_socket(server, v1):
    """notebook#3468: more than 10 MiB from the page closed the connection."""
    kid = server.start_kernel()
    c = server.connect(kid, v1=v1)
    assert c.execute(f"len('{'x' * (12 << 20)}')", timeout=60).value == str(12 << 20)
    assert c.execute("1").value == "1"
    server.stop_kernel(kid)


def test_notebook_over_100_megabytes(server):
    """notebook#650, #1478."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": f"{i} " + "z" * (20 << 20)}
               for i in range(6)]
    cells = [{"id": "a", "cell_type": "code", "metadata": {}, "source": "", "outputs": outputs,
              "execution_count": 1}]
    model = {"type": "notebook", "format": "json",
             "content": {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}}
    saved = server.api("PUT", "api/contents/huge.ipynb", model, expect=201).json()
    assert saved["size"] > 120 << 20
    got = server.api("GET", "api/contents/huge.ipynb", expect=200).json()
    assert got["content"]["cells"][0]["outputs"] == outputs
    server.api("DELETE", "api/contents/huge.ipynb", expect=204)


def test_culling_counts_from_the_end_of_a_cell(daemon_factory):
    """notebook#3896: a cell longer than the idle time; jupyterhub#3099: an open page is no work."""
    d = daemon_factory(cull_idle_timeout=3, cull_interval=1, cull_connected=True)
    server = Server(d.url, d.token)
    kid = server.start_kernel()
    c = server.connect(kid)
    assert c.execute("import time; time.sleep(5); 7", timeout=30).value == "7"
    ended = time.monotonic()
    while server.api("GET", f"api/kernels/{kid}").status_code == 200:
        assert time.monotonic() - ended < 15
        time.sleep(0.1)
    assert time.monotonic() - ended > 2.5


def test_open_page_keeps_its_kernel(daemon_factory):
    d = daemon_factory(cull_idle_timeout=1, cull_interval=1)
    server = Server(d.url, d.token)
    kid = server.start_kernel()
    c = server.connect(kid)
    c.execute("kept = 5")
    time.sleep(4)
    assert c.execute("kept").value == "5"


def test_activity_goes_on_after_a_restart(server):
    """notebook#3705, jupyter_server#481: after a restart no activity was seen any more."""
    kid = server.start_kernel()
    c = server.connect(kid)
    c.execute("1")
    server.api("POST", f"api/kernels/{kid}/restart", {}, expect=200)
    before = server.model(kid)["last_activity"]
    assert c.execute("2", timeout=30).value == "2"
    after = server.wait_state(kid, "idle")["last_activity"]
    assert after > before
    server.stop_kernel(kid)


def test_unknown_kernels_cost_no_memory(daemon, server):
    """notebook#6244, enterprise_gateway#783."""
    def ask(n):
        for _ in range(n):
            kid = uuid.uuid4()
            server.api("GET", f"api/kernels/{kid}", expect=404)
            server.api("GET", f"api/kernels/{kid}/channels?session_id={kid}")
            server.api("POST", f"api/kernels/{kid}/interrupt", expect=404)

    ask(300)
    before = resident(daemon.pid)
    ask(2000)
    assert resident(daemon.pid) - before < 1 << 20
