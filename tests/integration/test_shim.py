"""reitos-shim by its own protocol: life of kernels, queue, journal, clients, clean-up."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/lib"))

from shimclient import Client, Kernel, Shim, ShimError, read_journal  # noqa: E402

BUILD = Path(os.environ.get("REITOS_BUILD") or os.environ.get("BUILD") or REPO / "build").resolve()
PYTHON = REPO / "build/venv/bin/python"


def home_env(home):
    return {"HOME": home, "IPYTHONDIR": home + "/ipython", "JUPYTER_DATA_DIR": home + "/jupyter"}


@pytest.fixture
def make_shim():
    made = []

    def make(**options):
        folder = tempfile.mkdtemp(prefix="reitos-shim-")
        shim = Shim(BUILD / "reitos-shim", folder, env=home_env(folder), **options)
        made.append((shim, folder))
        return shim

    yield make
    for shim, folder in made:
        shim.stop()
        left = processes_of(folder)
        log = (shim.data / "shim.log").read_text()
        shutil.rmtree(folder)
        assert not left, f"left running: {left}"
        assert shim.process.returncode in (0, -signal.SIGKILL), log
        assert "Sanitizer" not in log and "runtime error" not in log, log
        assert "should not happen" not in log, log


@pytest.fixture
def shim(make_shim):
    return make_shim()


@pytest.fixture
def kernel(shim):
    return shim.start(PYTHON)


def processes_of(text):
    """Processes whose command line or environment names `text`, other than this one."""
    out = []
    for p in Path("/proc").iterdir():
        if not p.name.isdigit() or int(p.name) == os.getpid():
            continue
        try:
            if text.encode() in (p / "cmdline").read_bytes() + (p / "environ").read_bytes():
                out.append((int(p.name), (p / "cmdline").read_bytes().replace(b"\0", b" ")))
        except OSError:
            pass
    return out


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def eventually(test, timeout=10):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = test()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("did not happen in time")


def states(kernel, msg_id):
    return [m.content["execution_state"] for m in kernel.of(msg_id, "status")]


# ---- running cells ----

def test_start_and_execute(kernel):
    m = kernel.started
    assert m["state"] == "idle" and m["via"] == "spawn" and m["name"] == "python3"
    assert alive(m["pid"])
    reply, text = kernel.run("print('hello'); 6 * 7")
    assert reply["status"] == "ok" and reply["execution_count"] == 1 and text == "hello\n"


def test_order_and_completeness_of_the_journal(kernel):
    msg_id = kernel.execute("import sys\nprint('a')\nprint('b', file=sys.stderr)\n'r'",
                            metadata={"cellId": "cell-7"})
    kernel.reply(msg_id)
    seqs = [m.seq for m in kernel.messages]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    request = next(m for m in kernel.messages if m.header["msg_id"] == msg_id)
    assert request.channel == "shell" and request.metadata == {"cellId": "cell-7"}
    assert request.content["stop_on_error"] is True  # as the client sent it
    mine = kernel.of(msg_id)
    assert all(m.seq > request.seq for m in mine)
    assert states(kernel, msg_id) == ["busy", "idle"]
    assert kernel.text(msg_id) == "a\n" and kernel.text(msg_id, "stderr") == "b\n"
    assert [m.type for m in mine].count("execute_result") == 1
    head = kernel.client.call("list")["kernels"][0]["head"]
    assert head == kernel.messages[-1].seq


def test_nothing_of_the_shims_own_requests_is_journalled(shim, kernel):
    kernel.run("pass")
    sessions = {m.parent.get("session") for m in kernel.messages if m.parent}
    assert sessions == {shim.client.session}
    assert not [m for m in kernel.messages if m.type == "iopub_welcome"]


def test_requests_sent_while_it_starts_wait(shim):
    kid = str(uuid.uuid4())
    k = Kernel(shim.client, kid)
    number = shim.client.ask(
        "start", k=kid, name="python3", cwd="/", env={}, zygote=None, wait_s=0,
        argv=[str(PYTHON), "-m", "ipykernel_launcher", "-f", "{connection_file}"])
    info = k.message("shell", "kernel_info_request", {})
    first, second = k.execute("x = 1; print(x)"), k.execute("print(x + 1)")
    assert shim.client.answer(number)["state"] == "starting"
    assert k.reply(info).content["implementation"] == "ipython"
    k.reply(second)
    assert k.text(first) == "1\n" and k.text(second) == "2\n"


def test_kernel_info_is_answered_from_the_cache_while_busy(kernel):
    busy = kernel.execute("import time; time.sleep(1)")
    kernel.wait(lambda k: "busy" in states(k, busy))
    t = time.monotonic()
    info = kernel.message("shell", "kernel_info_request", {})
    assert kernel.reply(info).content["language_info"]["name"] == "python"
    assert time.monotonic() - t < 0.5
    last = [m for m in kernel.messages if m.type == "status"][-1]
    assert last.content["execution_state"] == "busy"  # what a page is to show
    kernel.reply(busy)


def test_stop_on_error(kernel):
    ids = [kernel.execute(c) for c in ("import time; time.sleep(.3)", "1/0", "print(1)", "print(2)")]
    kernel.reply(ids[3])
    status = [kernel.reply(i).content["status"] for i in ids]
    assert status == ["ok", "error", "aborted", "aborted"]
    assert kernel.of(ids[1], "error")[0].content["ename"] == "ZeroDivisionError"
    assert states(kernel, ids[2]) == ["busy", "idle"] and not kernel.of(ids[2], "stream")
    for _ in range(20):  # a cell sent right behind an error is not swallowed
        kernel.run("1/0")
        assert kernel.run("print(3)")[1] == "3\n"


def test_stop_on_error_false(kernel):
    ids = [kernel.execute(c, stop_on_error=False) for c in ("1/0", "print(1)")]
    kernel.reply(ids[1])
    assert kernel.text(ids[1]) == "1\n"


def test_input(kernel):
    msg_id = kernel.execute("name = input('who? '); print('hi', name)")
    ask = kernel.wait(lambda k: k.of(msg_id, "input_request"))[0]
    assert ask.channel == "stdin" and ask.content["prompt"] == "who? "
    kernel.message("stdin", "input_reply", {"value": "Ada", "status": "ok"}, parent=ask.header)
    kernel.reply(msg_id)
    assert kernel.text(msg_id) == "hi Ada\n"


def test_comm_with_binary_buffers(kernel):
    kernel.run("from ipykernel.comm import Comm\n"
               "def on_open(comm, msg):\n"
               "    def on_msg(m):\n"
               "        comm.send({'n': len(m['buffers'])}, buffers=[bytes(b)[::-1] for b in m['buffers']])\n"
               "    comm.on_msg(on_msg)\n"
               "get_ipython().kernel.comm_manager.register_target('echo', on_open)")
    comm = uuid.uuid4().hex
    kernel.message("shell", "comm_open", {"comm_id": comm, "target_name": "echo", "data": {}})
    blobs = [bytes(range(256)), b"", os.urandom(100_000)]
    sent = kernel.message("shell", "comm_msg", {"comm_id": comm, "data": {}}, buffers=blobs)
    back = kernel.wait(lambda k: k.of(sent, "comm_msg"))[0]
    assert back.content["data"] == {"n": 3}
    assert back.buffers == [b[::-1] for b in blobs]


def test_ten_megabytes_of_output(kernel):
    reply, text = kernel.run("print('x' * 10_000_000)")
    assert len(text) == 10_000_001
    reply, text = kernel.run("for i in range(20000): print(i)")
    assert text == "".join(f"{i}\n" for i in range(20000))


def test_large_request(kernel):
    reply, text = kernel.run(f"s = {'y' * 5_000_000!r}; print(len(s))")
    assert text == "5000000\n"


def test_subshell(kernel):
    made = kernel.message("control", "create_subshell_request", {})
    sub = kernel.wait(lambda k: k.of(made, "create_subshell_reply"))[0].content["subshell_id"]
    busy = kernel.execute("import time; time.sleep(1)")
    content = {"code": "print('sub')", "silent": False, "store_history": False,
               "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    side = kernel.message("shell", "execute_request", content, header={"subshell_id": sub})
    kernel.wait(lambda k: k.text(side) == "sub\n")
    assert not kernel.finished(busy)
    kernel.reply(busy)


def test_full_disk(shim, kernel):
    """What is said while nothing can be written appears, in order, when it can be again."""
    kernel.run("print('x' * 200000)")
    unlimited = resource.prlimit(shim.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(shim.pid, resource.RLIMIT_FSIZE, (100_000, unlimited[1]))
    ids = [kernel.execute(f"print({i} + 0)") for i in range(5)]
    assert kernel.wait(lambda k: k.model["journal_error"])
    time.sleep(1)
    assert not kernel.of(ids[4])
    resource.prlimit(shim.pid, resource.RLIMIT_FSIZE, unlimited)
    for i, msg_id in enumerate(ids):
        kernel.reply(msg_id)
        assert kernel.text(msg_id) == f"{i}\n"
    seqs = [m.seq for m in kernel.messages]
    assert seqs == list(range(1, len(seqs) + 1))
    kernel.wait(lambda k: not k.model["journal_error"])


# ---- interrupts ----

def test_interrupt(shim, kernel):
    msg_id = kernel.execute("import time\nprint('go', flush=True)\ntime.sleep(30)")
    later = kernel.execute("print('later')")
    kernel.wait(lambda k: k.text(msg_id))
    t = time.monotonic()
    shim.client.call("interrupt", k=kernel.id)
    assert kernel.reply(msg_id).content["ename"] == "KeyboardInterrupt"
    assert kernel.reply(later).content["status"] == "aborted"
    assert time.monotonic() - t < 2


def test_interrupt_just_after_a_request_is_not_swallowed(shim, kernel):
    for _ in range(10):
        msg_id = kernel.execute("import time; time.sleep(10)")
        shim.client.call("interrupt", k=kernel.id)
        assert kernel.reply(msg_id, timeout=5).content["status"] == "error"
    assert kernel.run("print(1)")[1] == "1\n"


def test_interrupt_while_restarting_applies_to_what_waits(shim, kernel):
    number = shim.client.ask("restart", k=kernel.id, wait_s=20)
    msg_id = kernel.execute("import time; time.sleep(20)")
    shim.client.call("interrupt", k=kernel.id)
    assert kernel.reply(msg_id, timeout=5).content["status"] == "aborted"
    shim.client.answer(number)
    assert kernel.run("print(1)")[1] == "1\n"


def test_interrupt_of_an_idle_kernel_harms_nothing(shim, kernel):
    for _ in range(5):
        shim.client.call("interrupt", k=kernel.id)
    assert kernel.run("print(1)")[1] == "1\n"


def test_interrupt_request_message(kernel):
    msg_id = kernel.execute("import time; time.sleep(20)")
    asked = kernel.message("control", "interrupt_request", {})
    assert kernel.reply(msg_id, timeout=5).content["ename"] == "KeyboardInterrupt"
    kernel.wait(lambda k: k.of(asked, "interrupt_reply"))


def test_interrupt_mode_message(shim):
    k = shim.start(PYTHON, interrupt="message")
    msg_id = k.execute("import time; time.sleep(20)")
    k.wait(lambda k: k.of(msg_id, "execute_input"))
    shim.client.call("interrupt", k=k.id)
    assert k.reply(msg_id, timeout=5).content["ename"] == "KeyboardInterrupt"


# ---- restart, crash, stop ----

def test_restart(shim, kernel):
    kernel.run("x = 1")
    old = kernel.started["pid"]
    running = kernel.execute("import time; time.sleep(30)")
    waiting = kernel.execute("print(1)")
    kernel.wait(lambda k: k.of(running, "execute_input"))
    t = time.monotonic()
    model = shim.client.call("restart", k=kernel.id, wait_s=20)
    assert time.monotonic() - t < 3
    assert model["id"] == kernel.id and model["pid"] != old and model["state"] == "idle"
    assert not alive(old)
    assert kernel.reply(running).content["status"] == "error"
    assert kernel.reply(waiting).content["status"] == "aborted"
    reply, text = kernel.run("print('x' in dir())")
    assert text == "False\n" and reply["execution_count"] == 1
    own = [m for m in kernel.messages if m.type == "status" and not m.parent]
    assert "restarting" not in [m.content["execution_state"] for m in own]


def test_restart_of_a_kernel_that_does_not_listen(shim, kernel):
    kernel.run("import signal\n"
               "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pthread_sigmask("
               "signal.SIG_BLOCK, [signal.SIGINT])")
    msg_id = kernel.execute("while True:\n  try:\n    while True: pass\n  except BaseException: pass")
    kernel.wait(lambda k: k.of(msg_id, "execute_input"))
    t = time.monotonic()
    model = shim.client.call("restart", k=kernel.id, wait_s=20)
    assert time.monotonic() - t < 4 and model["state"] == "idle"


def test_requests_sent_during_a_restart_run_in_the_new_process(shim, kernel):
    kernel.run("x = 1")
    number = shim.client.ask("restart", k=kernel.id, wait_s=20)
    msg_id = kernel.execute("print('x' in dir())")
    shim.client.answer(number)
    kernel.reply(msg_id)
    assert kernel.text(msg_id) == "False\n"


def test_crash_by_signal_restarts(shim, kernel):
    kernel.run("print('before')")
    running = kernel.execute("print('last words', flush=True)\nimport os; os.kill(os.getpid(), 11)")
    waiting = kernel.execute("print(1)")
    reply = kernel.reply(running).content
    assert reply["status"] == "error" and reply["ename"] == "KernelDied"
    assert reply["evalue"] == "killed by signal 11 (SIGSEGV)"
    assert kernel.of(running, "error")[0].content["evalue"] == reply["evalue"]
    assert kernel.reply(waiting).content["status"] == "aborted"
    kernel.wait(lambda k: [m for m in k.messages if m.type == "status" and not m.parent
                           and m.content["execution_state"] == "restarting"])
    assert kernel.run("print(2)")[1] == "2\n"
    restarting = [m for m in kernel.messages if m.type == "status"
                  and m.content["execution_state"] == "restarting"]
    assert len(restarting) == 1
    assert restarting[0].seq > kernel.of(running, "status")[-1].seq


def test_words_said_just_before_a_crash_are_kept(kernel):
    for i in range(3):
        msg_id = kernel.execute("import os, sys\nfor i in range(500): print(i)\n"
                                "sys.stdout.flush(); import time; time.sleep(.05); os._exit(3)")
        reply = kernel.reply(msg_id).content
        assert reply["evalue"] == "exit code 3"
        assert kernel.text(msg_id) == "".join(f"{i}\n" for i in range(500))
        error = kernel.of(msg_id, "error")[0]
        assert error.seq > kernel.of(msg_id, "stream")[-1].seq


def test_crash_without_restart(shim):
    k = shim.start(PYTHON, restart=False)
    msg_id = k.execute("import os; os._exit(9)")
    k.reply(msg_id)
    model = k.wait(lambda k: k.model["state"] == "dead" and k.model)
    assert model["reason"] == "exit code 9"
    k.wait(lambda k: [m for m in k.messages if m.type == "status" and not m.parent
                      and m.content["execution_state"] == "dead"])
    told = k.execute("1")
    assert "dead" in k.reply(told).content["evalue"]
    model = shim.client.call("restart", k=k.id, wait_s=20)
    assert model["state"] == "idle" and model["reason"] == ""
    assert k.run("print(1)")[1] == "1\n"


def test_a_kernel_that_keeps_crashing_is_given_up(shim):
    k = shim.start(PYTHON)
    k.run("import os, pathlib\np = pathlib.Path(os.environ['HOME'] + '/ipython/profile_default/startup')\n"
          "p.mkdir(parents=True, exist_ok=True)\n(p / 'a.py').write_text('import os; os._exit(4)')")
    k.execute("os._exit(5)")
    model = k.wait(lambda k: k.model["state"] == "dead" and k.model, timeout=60)
    assert model["reason"] == "exit code 4"
    restarting = [m for m in k.messages if m.type == "status" and not m.parent
                  and m.content["execution_state"] == "restarting"]
    assert len(restarting) == 5


def test_client_shutdown_request(shim, kernel):
    kernel.message("control", "shutdown_request", {"restart": False})
    model = kernel.wait(lambda k: k.model["state"] == "dead" and k.model)
    assert model["reason"] == "shut down by a client"


def test_stop(shim, kernel):
    pid = kernel.started["pid"]
    t = time.monotonic()
    shim.client.call("stop", k=kernel.id)
    assert time.monotonic() - t < 3
    assert not alive(pid) and not kernel.dir.exists()
    assert shim.client.call("list")["kernels"] == []
    assert not list((shim.data / "run/k").iterdir())
    assert {"op": "gone", "k": kernel.id} in shim.client.events
    with pytest.raises(ShimError, match="NOT_FOUND"):
        shim.client.call("stop", k=kernel.id)


def test_stop_takes_everything_along(shim, kernel):
    msg_id = kernel.execute(
        "import subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "a = subprocess.Popen(sleep)\n"
        "b = subprocess.Popen(sleep, start_new_session=True)\n"
        "c = subprocess.Popen(['sh', '-c', 'setsid \"$0\" -c \"import time; time.sleep(600)\" "
        "& echo $!; exit 0', sys.executable], stdout=subprocess.PIPE)\n"
        "print(a.pid, b.pid, int(c.stdout.readline())); c.wait()")
    kernel.reply(msg_id)
    pids = [int(p) for p in kernel.text(msg_id).split()]
    time.sleep(0.3)
    assert all(alive(p) for p in pids)
    shim.client.call("stop", k=kernel.id)
    assert not [p for p in pids if alive(p)]


def test_stop_of_a_frozen_and_of_a_busy_kernel(shim, kernel):
    other = shim.start(PYTHON)
    msg_id = other.execute("import time\ntry: time.sleep(60)\nfinally: open('marker', 'w').close()")
    other.wait(lambda k: k.of(msg_id, "execute_input"))
    time.sleep(0.1)
    shim.client.call("stop", k=other.id)
    assert (shim.data / "marker").exists()  # it was asked before it was killed
    os.kill(kernel.started["pid"], signal.SIGSTOP)
    t = time.monotonic()
    shim.client.call("stop", k=kernel.id, now=True)
    assert time.monotonic() - t < 1


# ---- what cannot start ----

def test_program_that_does_not_exist(shim):
    with pytest.raises(ShimError, match="(?s)KERNEL.*exit code 127.*cannot run /no/such.*No such"):
        shim.start("/no/such/python")
    assert shim.client.call("list")["kernels"] == []


def test_program_that_fails_shows_its_last_words(shim):
    argv = [str(PYTHON), "-c", "import sys; print('setup', file=sys.stderr); raise ValueError('boom')"]
    with pytest.raises(ShimError, match="(?s)exit code 1.*ValueError: boom"):
        shim.start(PYTHON, argv=argv)
    assert not list((shim.data / "kernels").iterdir())


def test_folder_that_does_not_exist(shim):
    with pytest.raises(ShimError, match="/no/such/folder"):
        shim.start(PYTHON, cwd="/no/such/folder")


def test_malformed_requests(shim):
    for fields in ({"k": "../x"}, {"k": ""}, {"argv": []}, {"argv": "x"}, {"argv": [1]},
                   {"zygote": {}}):
        with pytest.raises(ShimError, match="INVALID"):
            shim.start(PYTHON, **{"kid": fields.pop("k", None) or "a", **fields}
                       if "k" not in fields else {"kid": fields["k"] or " "})
    with pytest.raises(ShimError, match="UNSUPPORTED"):
        shim.client.call("dance")
    with pytest.raises(ShimError, match="NOT_FOUND"):
        shim.client.call("interrupt", k="nobody")


def test_same_id_twice(shim, kernel):
    with pytest.raises(ShimError, match="EXISTS"):
        shim.start(PYTHON, kid=kernel.id)


# ---- clients ----

def test_two_clients(shim, kernel):
    other = Client(shim.data)
    assert kernel.id in other.models
    seen = Kernel(other, kernel.id)
    msg_id = kernel.execute("print('for both')")
    kernel.reply(msg_id)
    seen.wait(lambda k: k.finished(msg_id))
    assert seen.text(msg_id) == "for both\n"
    assert seen.run("print('mine')")[1] == "mine\n"
    shim.client.call("annotate", k=kernel.id, annotation={"path": "a.ipynb"})
    other.wait(lambda: other.models[kernel.id]["annotation"] == {"path": "a.ipynb"})
    shim.client.call("stop", k=kernel.id)
    other.wait(lambda: kernel.id not in other.models)
    other.close()


def test_output_while_nobody_is_there(shim, kernel):
    msg_id = kernel.execute("import time\nfor i in range(20):\n    print(i, flush=True); time.sleep(.05)")
    kernel.wait(lambda k: k.text(msg_id))
    shim.client.close()
    time.sleep(0.3)
    again = Kernel(Client(shim.data), kernel.id)
    again.wait(lambda k: k.finished(msg_id))
    assert again.text(msg_id) == "".join(f"{i}\n" for i in range(20))
    shim.client = again.client


def test_client_that_is_killed_in_mid_frame(shim, kernel):
    other = Client(shim.data)
    other.sock.sendall(b"\x10\x27\x00\x00abc")
    other.close()
    for junk in (b"\xff\xff\xff\xff", b"\x08\0\0\0\1\0\0\0\0\0\0\0", b"\0\0\0\0" * 4):
        bad = Client(shim.data)
        bad.sock.sendall(junk)
        bad.sock.settimeout(5)
        while bad.sock.recv(65536):
            pass
        bad.close()
    assert kernel.run("print(1)")[1] == "1\n"


def test_client_that_does_not_read_is_dropped_alone(shim, kernel):
    lazy = Client(shim.data)
    with pytest.raises(OSError):
        for _ in range(400):
            lazy.ask("annotate", k=kernel.id, annotation={"x": "y" * 400_000})
            try:
                while True:
                    shim.client.pump(time.monotonic() + 0.001)
                    shim.client.events.clear()
            except TimeoutError:
                pass
    assert kernel.run("print(1)")[1] == "1\n"


def test_wrong_version(shim):
    c = Client(shim.data, hello=False)
    with pytest.raises(ShimError, match="UNSUPPORTED"):
        c.call("hello", version=99)


# ---- the life of the shim ----

def test_grace_expires(make_shim):
    shim = make_shim(grace=1)
    k = shim.start(PYTHON)
    pid = k.started["pid"]
    k.run("print('kept')")
    shim.client.close()
    shim.process.wait(10)
    assert not alive(pid) and not (shim.data / "run/shim.sock").exists()
    # what nobody acknowledged is shown by the next shim
    assert [m for m in read_journal(k.dir / "journal") if m.type == "stream"]
    next_one = Shim(BUILD / "reitos-shim", shim.data, env=home_env(str(shim.data)))
    try:
        model = next_one.client.models[k.id]
        assert model["state"] == "dead" and model["head"] == k.messages[-1].seq
        next_one.client.call("stop", k=k.id)
        assert not k.dir.exists()
    finally:
        next_one.stop()


def test_adoption(make_shim):
    shim = make_shim(grace=5)
    k = shim.start(PYTHON, annotation={"session": 1})
    k.run("x = 5")
    shim.client.close()
    time.sleep(0.5)
    c = Client(shim.data, grace=5)
    assert c.models[k.id]["annotation"] == {"session": 1}
    time.sleep(5.5)  # the timer was stopped
    again = Kernel(c, k.id)
    assert again.run("print(x)")[1] == "5\n"
    c.close()


def test_ends_at_once_without_kernels_and_clients(make_shim):
    shim = make_shim(grace=60)
    shim.client.close()
    shim.process.wait(5)


def test_a_client_that_comes_while_it_ends_gets_a_new_shim(make_shim):
    shim = make_shim(grace=60)
    k = shim.start(PYTHON)
    k.execute("import time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
              "while True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass")
    k.wait(lambda k: [m for m in k.messages if m.type == "execute_input"])
    time.sleep(0.1)
    shim.process.send_signal(signal.SIGTERM)
    eventually(lambda: not (shim.data / "run/shim.sock").exists())
    assert shim.process.poll() is None
    next_one = Shim(BUILD / "reitos-shim", shim.data, env=home_env(str(shim.data)))
    assert next_one.client.models[k.id]["state"] == "dead"
    shim.process.wait(1)
    next_one.stop()


def test_shutdown(shim):
    pids = [shim.start(PYTHON).started["pid"] for _ in range(2)]
    shim.client.call("shutdown")
    shim.process.wait(10)
    assert not any(alive(p) for p in pids)
    assert not list((shim.data / "kernels").iterdir())
    assert not list((shim.data / "run/k").iterdir())


def test_kill_of_the_shim_ends_kernels(make_shim):
    shim = make_shim()
    k = shim.start(PYTHON)
    k.run("print(1)")
    pid = k.started["pid"]
    shim.process.kill()
    shim.process.wait()
    eventually(lambda: not alive(pid), 2)
    assert list((shim.data / "run/k").iterdir())  # left behind ...
    next_one = Shim(BUILD / "reitos-shim", shim.data, env=home_env(str(shim.data)))
    try:
        assert not list((shim.data / "run/k").iterdir())  # ... and cleaned
        assert next_one.client.models[k.id]["reason"] == "reitos-shim ended"
        model = next_one.client.call("restart", k=k.id, wait_s=20)
        assert model["state"] == "idle"
        assert Kernel(next_one.client, k.id).run("print(2)")[1] == "2\n"
    finally:
        next_one.stop()


def test_acknowledged_kernels_are_forgotten(make_shim):
    shim = make_shim(grace=1)
    k = shim.start(PYTHON)
    k.run("print(1)")
    shim.client.call("annotate", k=k.id, annotation={})
    shim.client.send_frame({"op": "ack", "k": k.id, "seq": k.messages[-1].seq})
    assert shim.client.call("list")["kernels"][0]["acked"] == k.messages[-1].seq
    shim.client.close()
    shim.process.wait(10)
    assert not k.dir.exists()


def test_second_shim_is_refused(shim):
    r = subprocess.run([BUILD / "reitos-shim", "--data", shim.data], capture_output=True, text=True)
    assert r.returncode == 1 and "another reitos-shim" in r.stderr


def test_files_are_private(shim, kernel):
    assert (shim.data / "run").stat().st_mode & 0o777 == 0o700
    assert (shim.data / "run/k").stat().st_mode & 0o777 == 0o700
    assert kernel.dir.stat().st_mode & 0o777 == 0o700
    connection = kernel.dir / "connection.json"
    assert connection.stat().st_mode & 0o777 == 0o600
    c = json.loads(connection.read_text())
    assert c["transport"] == "ipc" and len(c["key"]) == 64
    for port in range(1, 6):
        assert Path(f"{c['ip']}-{port}").exists()


def test_environment_and_folder(shim):
    k = shim.start(PYTHON, env={"COLOUR": "grün"}, cwd="/tmp")
    reply, text = k.run("import os; print(os.environ['COLOUR'], os.getcwd(), "
                        "os.environ['PYTHONHASHSEED'].isdigit(), os.getsid(0) == os.getpid(), "
                        "os.getpgrp() == os.getpid(), len(os.listdir('/proc/self/fd')) < 70)")
    assert text == "grün /tmp True True True True\n"


def test_many_kernels_leave_nothing(shim):
    def fds():
        return len(os.listdir(f"/proc/{shim.pid}/fd"))

    shim.start(PYTHON)
    shim.client.call("stop", k=next(iter(shim.client.models)))
    before = fds()
    argv = [str(PYTHON), "-c", "raise SystemExit(1)"]
    for _ in range(30):
        with pytest.raises(ShimError):
            shim.start(PYTHON, argv=argv)
    k = [shim.start(PYTHON) for _ in range(3)]
    for one in k:
        shim.client.call("stop", k=one.id)
    eventually(lambda: fds() <= before + 2)
    assert shim.client.call("stats")["kernels"] == 0


# ---- zygotes and spares ----

ZYGOTE = {"python": str(PYTHON), "preload": ["numpy"]}


def prepared(shim, spares, **env):
    shim.client.call("prepare", zygote=ZYGOTE, spares=spares, env=env)

    def ready():
        s = shim.client.call("stats")
        return s["zygotes"] == 1 and s["spares"] >= spares
    eventually(ready, 30)
    if spares:
        time.sleep(0.5)  # until it waits for its line


def test_fork_from_a_zygote(shim):
    prepared(shim, 0)
    k = shim.start(PYTHON, zygote=ZYGOTE, env={"X": "1"}, cwd="/tmp")
    assert k.started["via"] == "zygote"
    reply, text = k.run("import os; print(os.environ['X'], os.getcwd(), os.getppid(), "
                        "os.getsid(0) == os.getpid())")
    assert text == f"1 /tmp {shim.pid} True\n"
    msg_id = k.execute("import os; os.kill(os.getpid(), 9)")
    assert k.reply(msg_id).content["evalue"] == "killed by signal 9 (SIGKILL)"
    assert k.run("print(1)")[1] == "1\n"
    shim.client.call("stop", k=k.id)


def test_spares(shim):
    prepared(shim, 1)
    kernels = []
    for i in range(3):
        t = time.monotonic()
        k = shim.start(PYTHON, zygote=ZYGOTE, env={"N": str(i)}, cwd="/tmp")
        kernels.append((k, time.monotonic() - t))
        assert k.started["via"] == "spare"
        text = k.run(f"import os; print(os.environ['N'], os.getcwd()); x = {i}; "
                     "os.write(2, b'to the log')")[1]
        assert text == f"{i} /tmp\n"
        c = json.loads((k.dir / "connection.json").read_text())
        assert Path(c["ip"] + "-1").exists()
        eventually(lambda: shim.client.call("stats")["spares"] == 1)
        time.sleep(0.5)
    for i, (k, _) in enumerate(kernels):
        assert k.run("print(x)")[1] == f"{i}\n"
    assert min(t for _, t in kernels) < 0.1
    first = kernels[0][0]
    assert shim.client.call("restart", k=first.id, wait_s=20)["via"] == "zygote"
    assert first.run("import os; print(os.environ['N'])")[1] == "0\n"
    first.execute("os._exit(1)")
    first.wait(lambda k: [m for m in k.messages if m.type == "error"])
    assert first.run("print(2)")[1] == "2\n"


def test_spare_with_an_environment_that_it_cannot_take(shim):
    prepared(shim, 1)
    k = shim.start(PYTHON, zygote=ZYGOTE, env={"PYTHONPATH": "/elsewhere", "LD_PRELOAD": ""})
    assert "/elsewhere" in k.run("import sys; print(sys.path)")[1]


def test_spare_that_dies_is_replaced(shim):
    prepared(shim, 1)
    pids = [p for p, cmd in processes_of(str(shim.data)) if b"zygote.py" in cmd]
    spare = [p for p in pids if os.getsid(p) == p and
             int(Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()[1]) == shim.pid]
    zygote = min(spare)  # started first
    for p in spare:
        if p != zygote:
            os.kill(p, 9)
    eventually(lambda: shim.client.call("stats")["spares"] == 1)
    time.sleep(0.5)
    assert shim.start(PYTHON, zygote=ZYGOTE).started["via"] == "spare"


def test_zygote_that_is_killed(shim):
    prepared(shim, 0)
    k = shim.start(PYTHON, zygote=ZYGOTE)
    zygote = next(p for p, cmd in processes_of(str(shim.data))
                  if b"zygote.py" in cmd and p != k.started["pid"])
    os.kill(zygote, 9)
    assert k.run("print(1)")[1] == "1\n"  # kernels do not depend on it
    eventually(lambda: shim.client.call("stats")["zygotes"] == 0)
    assert shim.start(PYTHON, zygote=ZYGOTE).started["via"] == "spawn"


def test_zygote_of_a_python_without_ipykernel(shim):
    which = {"python": "/usr/bin/python3", "preload": []}
    shim.client.call("prepare", zygote=which, spares=1, env={"PYTHONNOUSERSITE": "1",
                                                             "PYTHONPATH": "/nonexistent"})
    with pytest.raises(ShimError, match="(?s)KERNEL.*ipykernel"):
        shim.start(PYTHON, zygote=which, argv=["/usr/bin/python3", "-I", "-S", "-m",
                                               "ipykernel_launcher", "-f", "{connection_file}"])
    with pytest.raises(ShimError, match="INVALID"):
        shim.client.call("prepare", zygote={}, spares=1)


def test_kernels_die_with_the_shim_however_they_were_started(make_shim):
    shim = make_shim()
    prepared(shim, 1)
    shim.start(PYTHON, zygote=ZYGOTE)
    shim.start(PYTHON, zygote=ZYGOTE)
    shim.start(PYTHON)
    shim.process.kill()
    shim.process.wait()
    eventually(lambda: not processes_of(str(shim.data)), 3)
