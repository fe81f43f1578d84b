"""jupyter_client drives REITOS kernels through the proxy kernelspec."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from jupyter_client import AsyncKernelManager, BlockingKernelClient, KernelManager
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.session import Session

from cli import Cli, code

SECONDS = 20


@pytest.fixture(scope="module")
def cli():
    c = Cli()
    c("kernelspec", "install", "--prefix", c.home / "env")
    yield c
    c.close()


class Kernel:
    """A started kernel with a client, and what went over its channels."""

    def __init__(self, cli, name="reitos-python3", args=(), **kwargs):
        specs = KernelSpecManager(kernel_dirs=[str(cli.home / "env/share/jupyter/kernels")],
                                  ensure_native_kernel=False)
        self.km = KernelManager(kernel_name=name, kernel_spec_manager=specs, **kwargs)
        self.km.start_kernel(env=cli.env, cwd=str(cli.work), extra_arguments=list(args))
        self.kc = self.km.client()
        self.open(self.kc)

    def client(self):
        """One more client, with a session of its own as another program would have."""
        kc = BlockingKernelClient(connection_file=self.km.connection_file)
        kc.load_connection_file()
        return self.open(kc)

    def open(self, kc):
        kc.start_channels()
        kc.wait_for_ready(timeout=60)
        return kc

    def run(self, source, kc=None, **kwargs):
        """Outputs and reply of one cell."""
        seen = []
        reply = (kc or self.kc).execute_interactive(source, output_hook=seen.append,
                                                    timeout=SECONDS, **kwargs)
        return seen, reply["content"]

    def text(self, source, **kwargs):
        seen, reply = self.run(source, **kwargs)
        assert reply["status"] == "ok", reply
        return "".join(m["content"]["text"] for m in seen if m["msg_type"] == "stream")

    def control(self, msg_type, content):
        msg = self.kc.session.msg(msg_type, content)
        self.kc.control_channel.send(msg)
        while True:
            reply = self.kc.get_control_msg(timeout=SECONDS)
            if reply["parent_header"]["msg_id"] == msg["header"]["msg_id"]:
                return reply["content"]

    def shell(self, msg_id):
        while True:
            reply = self.kc.get_shell_msg(timeout=SECONDS)
            if reply["parent_header"]["msg_id"] == msg_id:
                return reply

    def proxy_pid(self):
        return self.km.provisioner.process.pid

    def close(self):
        self.kc.stop_channels()
        if self.km.has_kernel:
            self.km.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def shared(cli):
    k = Kernel(cli)
    yield k
    k.close()


@pytest.fixture
def own(cli):
    k = Kernel(cli)
    yield k
    k.close()


def wait_for(what, seconds=SECONDS):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true in time")


def test_execute(shared, cli):
    seen, reply = shared.run("import os, sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    types = [m["msg_type"] for m in seen]
    assert types[0] == "status" and types[-1] == "status" and types[1] == "execute_input"
    assert {m["content"]["name"]: m["content"]["text"] for m in seen
            if m["msg_type"] == "stream"} == {"stdout": "out\n", "stderr": "err\n"}
    (result,) = [m for m in seen if m["msg_type"] == "execute_result"]
    assert result["content"]["data"]["text/plain"] == "42"
    assert reply["status"] == "ok" and reply["execution_count"] >= 1
    assert shared.text("print(os.getcwd())") == f"{cli.work.resolve()}\n"


def test_error_and_stop_on_error(shared):
    failing = shared.kc.execute("import time; time.sleep(0.5); 1 / 0")  # both are queued by then
    waiting = shared.kc.execute("print('never')")
    assert shared.shell(failing)["content"]["ename"] == "ZeroDivisionError"
    assert shared.shell(waiting)["content"]["status"] == "aborted"
    assert shared.text("print('again')") == "again\n"


def test_input(shared):
    asked = []

    def answer(msg):
        asked.append(msg["content"])
        shared.kc.input("forty-two")

    assert shared.text("print(input('how many? '))", allow_stdin=True,
                       stdin_hook=answer) == "forty-two\n"
    assert asked == [{"prompt": "how many? ", "password": False}]


def test_completion_inspection_history(shared):
    shared.run("alphabet = 1")
    reply = shared.shell(shared.kc.complete("alpha"))["content"]
    assert "alphabet" in reply["matches"]
    reply = shared.shell(shared.kc.inspect("print"))["content"]
    assert reply["found"] and "text/plain" in reply["data"]
    assert shared.shell(shared.kc.is_complete("for i in x:"))["content"]["status"] == "incomplete"
    reply = shared.shell(shared.kc.history(hist_access_type="tail", n=1))["content"]
    assert reply["status"] == "ok"
    assert shared.shell(shared.kc.comm_info())["content"]["comms"] == {}


def test_kernel_info_has_status(shared):
    """Clients nudge: they wait for both the reply and status messages of their request."""
    time.sleep(0.3)
    while shared.kc.iopub_channel.msg_ready():
        shared.kc.get_iopub_msg(timeout=1)
    msg_id = shared.kc.kernel_info()
    assert shared.shell(msg_id)["content"]["language_info"]["name"] == "python"
    states = []
    while states != ["busy", "idle"]:
        m = shared.kc.get_iopub_msg(timeout=5)
        if m["parent_header"].get("msg_id") == msg_id:
            states.append(m["content"]["execution_state"])


def test_comm_with_binary_buffers(shared):
    shared.run("from comm import get_comm_manager\n"
               "def echo(comm, msg):\n"
               "    @comm.on_msg\n"
               "    def _(msg):\n"
               "        comm.send(data=msg['content']['data'],\n"
               "                  buffers=[bytes(b)[::-1] for b in msg['buffers']])\n"
               "get_comm_manager().register_target('echo', echo)")
    blob = bytes(range(256)) * 5000
    session = shared.kc.session
    for kind, content in [("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {}}),
                          ("comm_msg", {"comm_id": "c1", "data": {"n": 1}})]:
        msg = session.msg(kind, content)
        session.send(shared.kc.shell_channel.socket, msg,
                     buffers=[blob, b""] if kind == "comm_msg" else None)
    while True:
        m = shared.kc.get_iopub_msg(timeout=SECONDS)
        if m["msg_type"] == "comm_msg":
            break
    assert m["content"] == {"comm_id": "c1", "data": {"n": 1}}
    assert [bytes(b) for b in m["buffers"]] == [blob[::-1], b""]


def test_debugger(shared):
    reply = shared.control("debug_request", {
        "seq": 1, "type": "request", "command": "initialize",
        "arguments": {"clientID": "test", "adapterID": "", "pathFormat": "path"}})
    assert reply["success"] and reply["command"] == "initialize"
    reply = shared.control("debug_request", {"seq": 2, "type": "request", "command": "debugInfo"})
    assert "hashMethod" in reply["body"]


def test_subshell(shared):
    reply = shared.control("create_subshell_request", {})
    assert reply["status"] == "ok"
    sub = reply["subshell_id"]
    busy = shared.kc.execute("import time\ntime.sleep(3)")
    msg = shared.kc.session.msg("execute_request", {
        "code": "print('in the subshell')", "silent": False, "store_history": False,
        "user_expressions": {}, "allow_stdin": False, "stop_on_error": True})
    msg["header"]["subshell_id"] = sub
    shared.kc.shell_channel.send(msg)
    first = shared.kc.get_shell_msg(timeout=SECONDS)
    assert first["parent_header"]["msg_id"] == msg["header"]["msg_id"]
    assert shared.shell(busy)["content"]["status"] == "ok"
    assert sub in shared.control("list_subshell_request", {})["subshell_id"]
    assert shared.control("delete_subshell_request", {"subshell_id": sub})["status"] == "ok"


@pytest.mark.parametrize("how", ["message", "signal"])
def test_interrupt(shared, how):
    msg_id = shared.kc.execute("import time\nprint('go', flush=True)\ntime.sleep(60)")
    while True:
        m = shared.kc.get_iopub_msg(timeout=SECONDS)
        if m["msg_type"] == "stream" and m["parent_header"]["msg_id"] == msg_id:
            break
    if how == "message":
        shared.km.interrupt_kernel()  # the kernelspec says interrupt_mode "message"
    else:
        os.kill(shared.proxy_pid(), signal.SIGINT)
    assert shared.shell(msg_id)["content"]["ename"] == "KeyboardInterrupt"


def test_two_clients(shared):
    """Replies go to the one who asked, output to both."""
    other = shared.client()
    try:
        assert shared.text("print('one')") == "one\n"
        seen, reply = shared.run("print('two')", kc=other)
        assert reply["status"] == "ok"
        assert [m["content"]["text"] for m in seen if m["msg_type"] == "stream"] == ["two\n"]
        while True:
            m = shared.kc.get_iopub_msg(timeout=SECONDS)
            if m["msg_type"] == "stream" and m["content"]["text"] == "two\n":
                break
        assert not shared.kc.shell_channel.msg_ready()
    finally:
        other.stop_channels()


def test_input_goes_to_the_client_that_asked(shared):
    other = shared.client()
    try:
        msg_id = other.execute("input('x')", allow_stdin=True)
        assert other.get_stdin_msg(timeout=SECONDS)["content"]["prompt"] == "x"
        assert not shared.kc.stdin_channel.msg_ready()
        other.input("y")
        reply = other.get_shell_msg(timeout=SECONDS)
        assert reply["parent_header"]["msg_id"] == msg_id and reply["content"]["status"] == "ok"
    finally:
        other.stop_channels()


def test_bad_signature_is_dropped(shared):
    forged = Session(key=b"wrong key", username="x")
    forged.send(shared.kc.shell_channel.socket, "execute_request", content={"code": "1"})
    shared.kc.shell_channel.socket.send_multipart([b"not", b"a message"])
    shared.kc.shell_channel.socket.send_multipart([b""])
    assert shared.text("print('alive')") == "alive\n"


def test_much_output_arrives_whole(shared):
    seen, _ = shared.run("for i in range(3000):\n"
                         "    display({'text/plain': str(i) + 'x' * 4000}, raw=True)")
    shown = [m["content"]["data"]["text/plain"] for m in seen if m["msg_type"] == "display_data"]
    assert [s.rstrip("x") for s in shown] == [str(i) for i in range(3000)]
    assert len(shared.text("print('y' * 10_000_000)")) == 10_000_001


def test_heartbeat(shared):
    assert shared.kc.hb_channel.is_beating()
    assert shared.kc.is_alive()


def test_shutdown(own, cli):
    pid = own.proxy_pid()
    assert own.km.is_alive()
    own.km.shutdown_kernel()
    assert not own.km.has_kernel and not os.path.exists(f"/proc/{pid}")
    wait_for(lambda: all(row["pid"] != pid for row in cli.json("ps")))


def test_restart(own):
    own.run("a = 1")
    own.km.restart_kernel()
    own.kc.wait_for_ready(timeout=60)
    _, reply = own.run("a")
    assert reply["ename"] == "NameError"


def test_kernel_info_keeps_its_place(shared):
    """The answer is cached, but comes after the reply to the client's own running cell."""
    first = shared.kc.execute("import time\ntime.sleep(1)")
    second = shared.kc.kernel_info()
    other = shared.client()  # another client does not wait
    other.stop_channels()
    got = [shared.kc.get_shell_msg(timeout=SECONDS)["parent_header"]["msg_id"] for _ in range(2)]
    assert got == [first, second]


def test_extra_arguments_reach_the_kernel(cli, shared):
    k = Kernel(cli, args=["--InteractiveShell.ast_node_interactivity=none"])
    try:
        assert k.text("print(get_ipython().ast_node_interactivity)") == "none\n"
    finally:
        k.close()


@pytest.mark.parametrize("source, code", [
    ("import os\nos.kill(os.getpid(), 9)", 1), ("import os\nos._exit(7)", 1)])
def test_kernel_death_ends_the_proxy(own, source, code):
    own.kc.execute(source)
    while True:  # the cause is shown; no reply tells a dead kernel from a failed cell
        m = own.kc.get_iopub_msg(timeout=SECONDS)
        if m["msg_type"] == "error":
            break
    assert m["content"]["ename"] == "KernelDied"
    wait_for(lambda: not own.km.is_alive())
    assert own.km.provisioner.process.returncode == code
    assert not own.kc.shell_channel.msg_ready()


def test_error_called_like_ours_is_a_reply(shared):
    _, reply = shared.run("class KernelDied(Exception):\n    pass\nraise KernelDied()")
    assert reply["ename"] == "KernelDied" and shared.km.is_alive()


def test_termination_stops_the_kernel(own, cli):
    kernel = int(own.text("import os\nprint(os.getpid())"))
    os.kill(own.proxy_pid(), signal.SIGTERM)
    wait_for(lambda: not own.km.is_alive())
    wait_for(lambda: not os.path.exists(f"/proc/{kernel}"))


def test_killed_proxy_leaves_no_kernel(own, cli, shared):
    """As shutdown_kernel(now=True) of jupyter_client does."""
    kernel = int(own.text("import os\nprint(os.getpid())"))
    os.kill(own.proxy_pid(), signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{kernel}"))
    assert shared.text("print('alive')") == "alive\n"


def test_death_of_the_parent_ends_the_proxy(cli):
    source = (
        "import os, sys\n"
        "from jupyter_client import KernelManager\n"
        "from jupyter_client.kernelspec import KernelSpecManager\n"
        f"specs = KernelSpecManager(kernel_dirs=[{str(cli.home / 'env/share/jupyter/kernels')!r}],"
        " ensure_native_kernel=False)\n"
        "km = KernelManager(kernel_name='reitos-python3', kernel_spec_manager=specs)\n"
        "km.start_kernel()\n"
        "kc = km.client()\n"
        "kc.start_channels()\n"
        "kc.wait_for_ready(timeout=60)\n"
        "print(km.provisioner.process.pid, flush=True)\n"
        "os._exit(0)\n")
    out = subprocess.run([sys.executable, "-c", source], env=cli.env, capture_output=True,
                         text=True, timeout=60, check=True).stdout
    wait_for(lambda: not os.path.exists(f"/proc/{int(out)}"))


def test_ipc_transport(cli):
    k = Kernel(cli, transport="ipc", ip=str(cli.home / "ipc"))
    try:
        assert k.text("print('ipc')") == "ipc\n"
    finally:
        k.close()


def test_spec_that_is_its_own_kernel(cli):
    """Installed under the name python3, the proxy runs the plain Python kernel."""
    cli("kernelspec", "install", "--prefix", cli.home / "env", "--name", "python3")
    cli.env["JUPYTER_PATH"] = str(cli.home / "env/share/jupyter")
    try:
        k = Kernel(cli, name="python3")
        try:
            assert k.text("print('plain')") == "plain\n"
        finally:
            k.close()
        cli.notebook("p.ipynb", code("print(1)"), kernelspec={"name": "reitos-python3"})
        cli("run", "p.ipynb")
    finally:
        del cli.env["JUPYTER_PATH"]


def test_async_client(cli):
    async def use():
        specs = KernelSpecManager(kernel_dirs=[str(cli.home / "env/share/jupyter/kernels")],
                                  ensure_native_kernel=False)
        km = AsyncKernelManager(kernel_name="reitos-python3", kernel_spec_manager=specs)
        await km.start_kernel(env=cli.env)
        kc = km.client()
        kc.start_channels()
        await kc.wait_for_ready(timeout=60)
        reply = await kc.execute_interactive("1", timeout=SECONDS, output_hook=lambda m: None)
        kc.stop_channels()
        await km.shutdown_kernel()
        return reply["content"]["status"]

    assert asyncio.run(use()) == "ok"


def test_kernel_that_cannot_start(cli):
    broken = cli.home / "jupyter/kernels/broken"
    broken.mkdir(parents=True)
    (broken / "kernel.json").write_text(json.dumps({
        "argv": ["/bin/sh", "-c", "echo it is broken >&2; exit 3", "{connection_file}"],
        "display_name": "Broken", "language": "python"}))
    file = cli.home / "c.json"
    file.write_text(json.dumps({
        "ip": str(cli.home / "c"), "transport": "ipc", "key": "", "shell_port": 1,
        "control_port": 2, "stdin_port": 3, "iopub_port": 4, "hb_port": 5}))
    p = cli("kernel-proxy", "-f", file, "--kernel", "broken", rc=1)
    assert p.err.startswith("reitos kernel-proxy: ") and "it is broken" in p.err
    cli.notebook("b.ipynb", code("1"))
    assert "it is broken" in cli("run", "b.ipynb", "--kernel", "broken", rc=1).err


def test_bad_connection_files(cli):
    file = cli.home / "bad.json"
    for content, says in [("{", "connection file"), ("{}", "shell_port"),
                          ('{"shell_port": 1, "transport": "carrier"}', "carrier"),
                          ('{"signature_scheme": "hmac-md5"}', "hmac-md5")]:
        file.write_text(content)
        p = cli("kernel-proxy", "-f", file, rc=2)
        assert says in p.err and p.err.count("\n") == 1
    cli("kernel-proxy", rc=2)
    cli("kernel-proxy", "-f", cli.home / "none.json", rc=1)
