"""A kernel that the system ends for want of memory says so."""

import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from daemon import Daemon
from jupyter_ws import Server

LIMIT = 800 << 20
GREEDY = "data = [b'x' * (32 << 20) for _ in range(64)]"


def make_group():
    """A memory cgroup below ours, (folder, name of its limit); version 2, else 1."""
    name = f"reitos-test-{uuid.uuid4().hex}"
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().split())
    tries = [(f"/sys/fs/cgroup{own.get('', '/')}", "memory.max"),
             (f"/sys/fs/cgroup/memory{own.get('memory', '/')}", "memory.limit_in_bytes")]
    for folder, limit in tries:
        group = Path(folder, name)
        if not Path(folder, "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT))
            return group
        except OSError:
            if group.is_dir():
                group.rmdir()
    return None


@pytest.fixture
def limited():
    group = make_group()
    if group is None:
        pytest.skip("no right to make a memory cgroup")
    d = Daemon(spares=0)
    plain = d.command()
    d.command = lambda: ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group, *plain]
    yield d.start()
    d.close()
    group.rmdir()


def test_cause_is_told(limited):
    server = Server(limited.url, limited.token)
    kid = server.start_kernel(name="python3")
    channels = server.connect(kid)
    assert channels.execute("1 + 1").value == "2"
    result = channels.execute(GREEDY)
    assert result.status == "error"
    assert result.reply["ename"] == "KernelDied"
    assert "out of memory" in result.reply["evalue"]
    assert result.reply["execution_count"] == 2
    assert limited.process.poll() is None
    assert channels.execute("2 + 2").value == "4"  # in its new process
    channels.close()
