"""An unmodified Jupyter Server 2 in front, with --gateway-url at reitosd."""
import subprocess
import time

import pytest
import requests
from daemon import REPO, free_port
from jupyter_ws import Server

PYTHON = REPO / "build/venv-test/bin/python"


@pytest.fixture(scope="module")
def front(daemon, tmp_path_factory):
    home = tmp_path_factory.mktemp("front")
    port = free_port()
    env = dict(daemon.env, HOME=str(home), JUPYTER_DATA_DIR=str(home / "data"),
               JUPYTER_CONFIG_DIR=str(home / "config"), JUPYTER_RUNTIME_DIR=str(home / "run"),
               JUPYTER_GATEWAY_AUTH_TOKEN=daemon.token, KERNEL_USERNAME="ada")
    log = open(home / "front.log", "w")
    process = subprocess.Popen(
        [PYTHON, "-m", "jupyter_server", "--allow-root", "--no-browser",
         f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={home}",
         "--IdentityProvider.token=front", f"--gateway-url={daemon.url}"],
        env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}/"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                if requests.get(url + "api", timeout=5).ok:
                    break
            except requests.RequestException:
                pass
            text = (home / "front.log").read_text()
            assert process.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.1)
        yield Server(url, "front")
    finally:
        process.kill()  # with a gateway it does not always end on SIGTERM
        process.wait()
        log.close()


def ready(front, kid):
    """The front may lose what is sent before its own connection to the back is made. It speaks
    the legacy framing only."""
    channels = front.connect(kid, v1=False)
    for _ in range(20):
        mid = channels.request("kernel_info_request")
        try:
            channels.collect(mid, timeout=2)
            return channels
        except Exception:
            continue
    raise AssertionError("no kernel_info reply")


def test_kernelspecs(front):
    specs = front.api("GET", "api/kernelspecs", expect=200).json()
    assert specs["default"] == "python3"
    assert specs["kernelspecs"]["python3"]["spec"]["language"] == "python"


def test_execute(front):
    kid = front.start_kernel(name="python3")
    channels = ready(front, kid)
    result = channels.execute("print('through two servers')\n6 * 7")
    assert result.status == "ok"
    assert result.text == "through two servers\n"
    assert result.value == "42"
    channels.close()
    front.stop_kernel(kid)


def test_interrupt_and_restart(front):
    kid = front.start_kernel(name="python3")
    channels = ready(front, kid)
    assert channels.execute("x = 1").status == "ok"
    mid = channels.execute_async("print('in', flush=True)\nimport time; time.sleep(60)")
    while channels.recv(20)["header"]["msg_type"] != "stream":
        pass
    front.api("POST", f"api/kernels/{kid}/interrupt", expect=204)
    got = channels.collect(mid, timeout=20)
    assert [m["content"]["ename"] for m in got if m["header"]["msg_type"] == "execute_reply"] == [
        "KeyboardInterrupt"]
    assert front.api("POST", f"api/kernels/{kid}/restart", expect=200).json()["id"] == kid
    channels.close()
    channels = ready(front, kid)
    assert channels.execute("x").reply["ename"] == "NameError"
    front.stop_kernel(kid)


def test_session_and_list(front, daemon):
    session = front.start_session("a.ipynb")
    kid = session["kernel"]["id"]
    back = Server(daemon.url, daemon.token)
    assert kid in [k["id"] for k in back.api("GET", "api/kernels").json()]
    assert kid in [k["id"] for k in front.api("GET", "api/kernels").json()]
    front.api("DELETE", f"api/sessions/{session['id']}", expect=204)
    deadline = time.monotonic() + 10
    while kid in [k["id"] for k in back.api("GET", "api/kernels").json()]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
