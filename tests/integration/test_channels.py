"""Kernel channels end to end: nothing a kernel says is lost, and everyone gets what is theirs."""

import json
import os
import signal
import threading
import time
import uuid

import pytest
import requests
import websocket

from jupyter_ws import Server


@pytest.fixture
def server(daemon):
    return Server(daemon.url, daemon.token)


@pytest.fixture
def kernel(server):
    kid = server.start_kernel()
    yield kid
    if server.api("GET", f"api/kernels/{kid}").status_code == 200:
        server.stop_kernel(kid)


def notebook(daemon, name, sources):
    cells = [
        {
            "id": f"cell-{i}",
            "cell_type": "code",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for i, source in enumerate(sources)
    ]
    nb = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = os.path.join(daemon.root, name)
    with open(path, "w") as f:
        json.dump(nb, f)
    return path


def file_text(server, name, cell=0):
    nb = server.api("GET", f"api/contents/{name}?content=1", expect=200).json()["content"]
    return "".join(
        o["text"] if isinstance(o["text"], str) else "".join(o["text"])
        for o in nb["cells"][cell]["outputs"]
        if o["output_type"] == "stream"
    )


def wait_for(check, timeout=20):
    end = time.monotonic() + timeout
    while not (value := check()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)
    return value


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_execute(server, kernel, v1):
    c = server.connect(kernel, v1=v1)
    r = c.execute("print('hello'); 6 * 7")
    assert (r.text, r.value, r.status) == ("hello\n", "42", "ok")
    types = [m["header"]["msg_type"] for m in r.messages if m["channel"] == "iopub"]
    assert types[0] == "status" and types[-1] == "status"
    assert types.count("execute_input") == 1
    c.close()


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_binary_buffers_round_trip(server, kernel, v1):
    c = server.connect(kernel, v1=v1)
    code = """
from comm import get_comm_manager
def target(comm, msg):
    comm.on_msg(lambda m: comm.send(data={'n': len(m['buffers'])},
                                    buffers=[bytes(b)[::-1] for b in m['buffers']]))
get_comm_manager().register_target('echo', target)
"""
    assert c.execute(code).status == "ok"
    cid = uuid.uuid4().hex
    c.request("comm_open", {"comm_id": cid, "target_name": "echo", "data": {}})
    payload = bytes(range(256)) * 64
    c.request("comm_msg", {"comm_id": cid, "data": {}}, buffers=[payload, b"\x00\xff"])
    while True:
        m = c.recv(20)
        if m["header"]["msg_type"] == "comm_msg":
            break
    assert m["buffers"] == [payload[::-1], b"\xff\x00"]
    assert m["content"]["data"] == {"n": 2}


def test_input(server, kernel):
    c = server.connect(kernel)
    mid = c.execute_async("name = input('who? '); print('hi', name)", allow_stdin=True)
    while (m := c.recv(20))["header"]["msg_type"] != "input_request":
        pass
    assert m["channel"] == "stdin" and m["content"]["prompt"] == "who? "
    c.request("input_reply", {"value": "Ada", "status": "ok"}, channel="stdin")
    text = ""
    while not (m["header"]["msg_type"] == "execute_reply" and m["parent_header"]["msg_id"] == mid):
        m = c.recv(20)
        text += m["content"].get("text", "")
    assert text == "hi Ada\n"


def test_stop_on_error_aborts_what_waits(server, kernel):
    c = server.connect(kernel)
    bad = c.execute_async("import time; time.sleep(0.3); 1/0")
    waiting = [c.execute_async(f"x{i} = 1") for i in range(3)]
    statuses = {}
    while len(statuses) < 4:
        m = c.recv(20)
        if m["header"]["msg_type"] == "execute_reply":
            statuses[m["parent_header"]["msg_id"]] = m["content"]["status"]
    assert statuses == {bad: "error", **{w: "aborted" for w in waiting}}
    assert c.execute("1 + 1").value == "2"
    c.execute_async("1/0", stop_on_error=False)
    assert c.execute("'goes on'").value == "'goes on'"


def test_ten_megabytes_in_one_print(server, kernel):
    c = server.connect(kernel)
    r = c.execute("print('x' * 10_000_000)")
    assert len(r.text) == 10_000_001
    assert not r.of("error")


def settle(channels, msg_id, seen):
    """Reads until nothing comes for a moment: this client answers pings only while it reads, and a
    position that was not confirmed is sent again."""
    try:
        while True:
            m = channels.recv(0.045)
            if m["header"]["msg_type"] == "stream" and m["parent_header"]["msg_id"] == msg_id:
                seen.extend(m["content"]["text"].split())
    except websocket.WebSocketTimeoutException:
        pass


def test_same_session_resumes_once_and_in_order(server, kernel):
    c = server.connect(kernel)
    mid = c.execute_async(
        "import time\nfor i in range(30):\n    print(f'L{i}', flush=True); time.sleep(0.05)"
    )
    seen = []

    def take(ch, until):
        while len(seen) < until:
            m = ch.recv(20)
            if m["header"]["msg_type"] == "stream" and m["parent_header"]["msg_id"] == mid:
                seen.extend(m["content"]["text"].split())

    take(c, 8)
    settle(c, mid, seen)
    c.drop()
    time.sleep(0.5)
    c = server.connect(kernel, session=c.session)
    take(c, 30)
    assert seen == [f"L{i}" for i in range(30)]


def test_new_session_gets_the_running_cell_from_its_start(server, kernel):
    a = server.connect(kernel)
    a.execute("print('old')")
    settle(a, None, [])
    mid = a.execute_async("import time\nfor i in range(8):\n    print(i, flush=True); time.sleep(0.1)")
    wait_for(lambda: server.model(kernel)["execution_state"] == "busy")
    time.sleep(0.35)
    a.drop()
    b = server.connect(kernel)
    text, old = "", 0
    while True:
        m = b.recv(20)
        if m["parent_header"].get("msg_id") == mid:
            text += m["content"].get("text", "")
            if m["content"].get("execution_state") == "idle":
                break
        elif m["header"]["msg_type"] == "stream":
            old += 1
    assert text.split() == [str(i) for i in range(8)]
    assert old == 0


def test_several_clients(server, kernel):
    a, b = server.connect(kernel), server.connect(kernel, v1=False)
    b.execute("0")  # both are live now
    r = a.execute("print('to all')")
    assert r.text == "to all\n"
    got = []
    while not any(m["content"].get("execution_state") == "idle" for m in got[-1:]) or not any(
        m["content"].get("text") == "to all\n" for m in got
    ):
        got.append(b.recv(20))
    replies = [m for m in got if m["header"]["msg_type"] == "execute_reply"]
    assert not [m for m in replies if m["parent_header"]["session"] == a.session]
    assert server.model(kernel)["connections"] == 2


def test_slow_reader_stalls_nobody(server, kernel):
    slow, fast = server.connect(kernel), server.connect(kernel)
    fast.execute("0")
    r = fast.execute("for i in range(40): print('y' * 500_000)", timeout=60)
    assert len(r.text) == 40 * 500_001
    total = 0  # the slow one starts to read only now
    while total < len(r.text):
        m = slow.recv(30)
        if m["header"]["msg_type"] == "stream":
            total += len(m["content"]["text"])
    assert total == len(r.text)


def test_kernel_info_is_answered_while_a_cell_runs(server, kernel):
    c = server.connect(kernel)
    c.execute("0")
    mid = c.execute_async("import time; time.sleep(2)")
    wait_for(lambda: server.model(kernel)["execution_state"] == "busy")
    d = server.connect(kernel)
    start = time.monotonic()
    got = d.collect(d.request("kernel_info_request"), timeout=10)
    assert time.monotonic() - start < 1.5
    reply = [m for m in got if m["header"]["msg_type"] == "kernel_info_reply"][0]["content"]
    assert reply["status"] == "ok" and reply["language_info"]["name"] == "python"
    # what the page shows at last must be that the kernel is busy
    last = "idle"
    try:
        while True:
            m = d.recv(0.3)
            if m["header"]["msg_type"] == "status":
                last = m["content"]["execution_state"]
    except websocket.WebSocketTimeoutException:
        pass
    assert last == "busy"
    assert Server and c.collect(mid)


def test_interrupt(server, kernel):
    c = server.connect(kernel)
    mid = c.execute_async("import time; time.sleep(30)")
    wait_for(lambda: server.model(kernel)["execution_state"] == "busy")
    server.api("POST", f"api/kernels/{kernel}/interrupt", expect=204)
    got = c.collect(mid, timeout=10)
    assert [m for m in got if m["header"]["msg_type"] == "error"][0]["content"]["ename"] == (
        "KeyboardInterrupt"
    )


def test_interrupt_at_once_is_not_lost(server, kernel):
    c = server.connect(kernel)
    c.execute("import time")
    for _ in range(10):
        mid = c.execute_async("time.sleep(20)")
        server.api("POST", f"api/kernels/{kernel}/interrupt", expect=204)
        got = c.collect(mid, timeout=10)
        assert [m["content"]["status"] for m in got if m["channel"] == "shell"] != ["ok"]


def test_interrupt_while_restarting_applies(server, kernel):
    c = server.connect(kernel)
    c.execute("0")
    t = threading.Thread(target=server.api, args=("POST", f"api/kernels/{kernel}/restart"))
    t.start()
    time.sleep(0.05)
    mid = c.execute_async("import time; time.sleep(20)")
    time.sleep(0.02)
    server.api("POST", f"api/kernels/{kernel}/interrupt", expect=204)
    t.join()
    got = c.collect(mid, timeout=10)
    assert [m["content"]["status"] for m in got if m["channel"] == "shell"][0] != "ok"


def test_restart_keeps_the_id_and_clears_state(server, kernel):
    c = server.connect(kernel)
    c.execute("marker = 1")
    assert server.api("POST", f"api/kernels/{kernel}/restart", expect=200).json()["id"] == kernel
    r = c.execute("marker")
    assert r.of("error")[0]["content"]["ename"] == "NameError"
    assert r.reply["execution_count"] == 1


def test_death_is_told_with_its_cause(server, kernel):
    c = server.connect(kernel)
    pid = int(c.execute("import os; os.getpid()").value)
    mid = c.execute_async("import time; time.sleep(60)")
    wait_for(lambda: server.model(kernel)["execution_state"] == "busy")
    waiting = c.execute_async("1")
    os.kill(pid, signal.SIGKILL)
    got = c.collect(mid, timeout=15)
    error = [m for m in got if m["header"]["msg_type"] == "error"][0]["content"]
    assert error["ename"] == "KernelDied" and "SIGKILL" in error["evalue"]
    got = c.collect(waiting, timeout=15)
    assert [m for m in got if m["channel"] == "shell"][0]["content"]["status"] == "aborted"
    assert c.execute("2 + 2", timeout=20).value == "4"


def test_kernel_that_cannot_start_says_why(daemon, server):
    spec = os.path.join(daemon.jupyter_data, "kernels", "broken")
    os.makedirs(spec, exist_ok=True)
    with open(os.path.join(spec, "kernel.json"), "w") as f:
        argv = ["python3", "-c", "import sys; sys.exit('the reason is here')", "{connection_file}"]
        json.dump({"argv": argv, "display_name": "Broken", "language": "none"}, f)
    time.sleep(2.1)  # kernelspecs are looked up at most every two seconds
    r = server.api("POST", "api/kernels", {"name": "broken"})
    assert r.status_code == 500
    assert "the reason is here" in r.json()["message"]
    assert server.api("POST", "api/kernels", {"name": "no-such"}).status_code in (500, 501)


def test_handshake_refusals(daemon, server):
    ws_url = daemon.url.replace("http", "ws", 1)
    for path, header, status in (
        (f"api/kernels/{uuid.uuid4()}/channels", [f"Authorization: token {daemon.token}"], 404),
        (f"api/kernels/{uuid.uuid4()}/channels", [], 403),
    ):
        with pytest.raises(websocket.WebSocketBadStatusException) as info:
            websocket.create_connection(ws_url + path, header=header, suppress_origin=True)
        assert info.value.status_code == status


def test_malformed_frames_do_not_end_the_connection(server, kernel):
    c = server.connect(kernel)
    for junk in (b"", b"\x00", b"\xff" * 64, b"\x06" + b"\x00" * 7, os.urandom(500)):
        c.ws.send_binary(junk)
    c.ws.send("{not json")
    assert c.execute("1").value == "1"


# ---- outputs reach the file ----


def test_outputs_reach_the_file_without_a_client(daemon, server):
    name = "headless.ipynb"
    notebook(daemon, name, ["loop"])
    kid = server.start_session(name)["kernel"]["id"]
    c = server.connect(kid)
    c.execute_async(
        "import time\nfor i in range(8):\n    print(f'L{i}', flush=True); time.sleep(0.15)", "cell-0"
    )
    while c.recv(20)["header"]["msg_type"] != "stream":
        pass
    c.drop()
    want = [f"L{i}" for i in range(8)]
    wait_for(lambda: file_text(server, name).split() == want)
    with open(os.path.join(daemon.root, name)) as f:  # and on disk, not only in the reply
        cell = wait_for(lambda: json.load(f)["cells"][0])
    assert cell["execution_count"] == 1
    assert "".join(cell["outputs"][0]["text"]).split() == want


def test_reload_in_mid_cell_then_save_loses_nothing(daemon, server):
    name = "reload.ipynb"
    notebook(daemon, name, ["loop", "other"])
    kid = server.start_session(name)["kernel"]["id"]
    a = server.connect(kid)
    mid = a.execute_async(
        "import time\nfor i in range(12):\n    print(f'L{i}', flush=True); time.sleep(0.15)", "cell-0"
    )
    time.sleep(0.6)
    a.drop()
    b = server.connect(kid)  # the reloaded page: new session, reads the file
    model = server.api("GET", f"api/contents/{name}?content=1&hash=1", expect=200).json()
    page = model["content"]
    partial = "".join(o["text"] for o in page["cells"][0]["outputs"])
    assert partial.split() == [f"L{i}" for i in range(len(partial.split()))] and partial
    page["cells"][1]["source"] = "edited by the user"
    wait_for(lambda: server.model(kid)["execution_state"] == "idle")
    fresh = server.api("GET", f"api/contents/{name}?content=0&hash=1", expect=200).json()
    assert fresh["hash"] == model["hash"], "the page would say: file changed on disk"
    assert fresh["last_modified"] == model["last_modified"]
    body = {"type": "notebook", "format": "json", "content": page}
    server.api("PUT", f"api/contents/{name}", body, expect=200)
    assert file_text(server, name).split() == [f"L{i}" for i in range(12)]
    saved = server.api("GET", f"api/contents/{name}?content=1", expect=200).json()["content"]
    assert saved["cells"][1]["source"] == "edited by the user"
    assert mid and b


def test_an_edit_from_outside_is_seen(daemon, server):
    name = "outside.ipynb"
    path = notebook(daemon, name, ["x"])
    before = server.api("GET", f"api/contents/{name}?content=0&hash=1", expect=200).json()
    with open(path) as f:
        nb = json.load(f)
    nb["cells"][0]["source"] = "changed elsewhere"
    time.sleep(0.02)
    with open(path, "w") as f:
        json.dump(nb, f)
    after = server.api("GET", f"api/contents/{name}?content=0&hash=1", expect=200).json()
    assert after["hash"] != before["hash"]


# ---- the daemon dies ----


def test_daemon_killed_and_back(daemon_factory):
    d = daemon_factory(grace=30)
    server = Server(d.url, d.token)
    notebook(d, "killed.ipynb", ["x"])
    s = server.start_session("killed.ipynb")
    kid = s["kernel"]["id"]
    c = server.connect(kid)
    c.execute("kept = 41")
    mid = c.execute_async(
        "import time\nfor i in range(20):\n    print(f'L{i}', flush=True); time.sleep(0.1)", "cell-0"
    )
    queued = c.execute_async("kept += 1; kept")
    seen = []
    while len(seen) < 5:
        m = c.recv(20)
        if m["header"]["msg_type"] == "stream":
            seen += m["content"]["text"].split()
    settle(c, mid, seen)
    d.kill()
    c.drop()
    d.start()
    server = Server(d.url, d.token)
    assert [k["id"] for k in server.api("GET", "api/kernels").json()] == [kid]
    assert [x["id"] for x in server.api("GET", "api/sessions").json()] == [s["id"]]
    c = server.connect(kid, session=c.session)
    value = None
    while value is None:
        m = c.recv(20)
        if m["header"]["msg_type"] == "stream" and m["parent_header"]["msg_id"] == mid:
            seen += m["content"]["text"].split()
        if m["header"]["msg_type"] == "execute_result" and m["parent_header"]["msg_id"] == queued:
            value = m["content"]["data"]["text/plain"]
    assert seen == [f"L{i}" for i in range(20)]
    assert value == "42"


def test_daemon_killed_for_good(daemon_factory):
    d = daemon_factory(grace=1)
    server = Server(d.url, d.token)
    kid = server.start_kernel()
    pid = int(server.connect(kid).execute("import os; os.getpid()").value)
    d.kill()

    def gone():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_for(gone, timeout=15)


def test_culling(daemon_factory):
    d = daemon_factory(cull_idle_timeout=1, cull_interval=1)
    server = Server(d.url, d.token)
    kid = server.start_kernel()
    wait_for(lambda: server.api("GET", f"api/kernels/{kid}").status_code == 404, timeout=15)


def test_unauthenticated_rest(daemon):
    assert requests.get(daemon.url + "api/kernels", timeout=10).status_code == 403
