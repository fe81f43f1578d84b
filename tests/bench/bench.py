"""`make bench`: REITOS and a stock Jupyter server side by side, in one run on one machine.

Correctness comes first: each server must give right answers before it is timed. Writes a table,
build/bench.json, and the block between the markers of docs/benchmarks.md.
    bench.py [--quick] [--kernels N] [--no-docs]
"""
import argparse
import json
import os
import platform
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from servers import (MIB, BareZmq, JupyterServer, PlainKernel, Reitos, client, cpu_ns,  # noqa: E402
                     descriptors, memory, pss)

REPO = Path(__file__).resolve().parents[2]
ANSWER = "print('x' * 10)\nsum(range(10))"


def check(server):
    """Right answers, or no figures."""
    api = client(server)
    kid = api.start_kernel(name="python3")
    channels = api.connect(kid)
    result = channels.execute(ANSWER)
    assert (result.status, result.text, result.value) == ("ok", "x" * 10 + "\n", "45")
    assert channels.execute("1 / 0").reply["ename"] == "ZeroDivisionError"
    big = channels.execute("print('y' * 3000000)")
    if server.name == "reitosd":
        assert len(big.text) == 3000001
    channels.close()
    api.stop_kernel(kid)


def settle(seconds=1.5):
    time.sleep(seconds)


def summary(samples, scale=1000.0):
    ordered = sorted(samples)
    return {"median": statistics.median(ordered) * scale,
            "p90": ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))] * scale,
            "n": len(ordered)}


def start_times(server, n, pause):
    """POST of a kernel until the reply of its first cell."""
    api = client(server)
    samples = []
    for _ in range(n):
        begin = time.perf_counter()
        kid = api.start_kernel(name="python3")
        channels = api.connect(kid)
        assert channels.execute("pass").status == "ok"
        samples.append(time.perf_counter() - begin)
        channels.close()
        api.stop_kernel(kid)
        settle(pause)
    return summary(samples)


def time_each(function, n):
    samples = []
    for _ in range(n):
        begin = time.perf_counter()
        function()
        samples.append(time.perf_counter() - begin)
    return samples


def round_trips(ours, stock, n):
    """`pass` to reply and idle; rounds are interleaved so that all see the same machine."""
    api, other = client(ours), client(stock)
    kid, other_kid = api.start_kernel(name="python3"), other.start_kernel(name="python3")
    v1, legacy = api.connect(kid), api.connect(kid, v1=False)
    stock_v1 = other.connect(other_kid)
    plain = PlainKernel()
    bare_plain = BareZmq(plain.file)
    bare = BareZmq(f"{ours.data}/kernels/{kid}/connection.json")
    ways = {
        "bare ZMQ, plain ipykernel": lambda: bare_plain.execute("pass"),
        "bare ZMQ, the same kernel as REITOS": lambda: bare.execute("pass"),
        "REITOS v1": lambda: v1.execute("pass"),
        "REITOS legacy": lambda: legacy.execute("pass"),
        "jupyter-server v1": lambda: stock_v1.execute("pass"),
    }
    samples = {name: [] for name in ways}
    for way in ways.values():
        time_each(way, 10)
    rounds = 10
    for _ in range(rounds):
        for name, way in ways.items():
            # those that only listen must not fall behind
            samples[name] += time_each(way, max(1, n // rounds))
    for closing in (bare, bare_plain, plain, v1, legacy, stock_v1):
        closing.close()
    api.stop_kernel(kid)
    other.stop_kernel(other_kid)
    return {name: summary(s) for name, s in samples.items()}


def cpu_per_execute(server, n):
    api = client(server)
    kid = api.start_kernel(name="python3")
    channels = api.connect(kid)
    for _ in range(10):
        channels.execute("pass")
    pids = server.server_pids()
    before = cpu_ns(pids)
    for _ in range(n):
        channels.execute("pass")
    used = cpu_ns(pids) - before
    channels.close()
    api.stop_kernel(kid)
    return used / n / 1e6


def idle_memory(server, n):
    """The server's own PSS before and with n idle kernels; one kernel's memory."""
    api = client(server)
    warm = api.start_kernel(name="python3")  # so that whatever is started once is there
    api.connect(warm).execute("pass")
    settle()
    base, base_fds = pss(server.server_pids()), descriptors(server.server_pids())
    kids, pids = [], []
    for _ in range(n):
        kid = api.start_kernel(name="python3")
        channels = api.connect(kid)
        pids.append(int(channels.execute("import os; os.getpid()").value))
        channels.close()
        kids.append(kid)
    settle()
    kernels = [memory(p) for p in pids]
    out = {
        "server MiB": base / MIB,
        "server MiB per kernel": (pss(server.server_pids()) - base) / n / MIB,
        "descriptors per kernel": (descriptors(server.server_pids()) - base_fds) / n,
        "kernel PSS MiB": statistics.median(k[0] for k in kernels) / MIB,
        "kernel private MiB": statistics.median(k[1] for k in kernels) / MIB,
    }
    for kid in [*kids, warm]:
        api.stop_kernel(kid)
    return out


def many(server, n, workers=8):
    """n kernels opened at once, each with its first answer; then all idle."""
    api = client(server)

    def one(i):
        mine = client(server)
        kid = mine.start_kernel(name="python3")
        channels = mine.connect(kid, timeout=240)
        result = channels.execute(f"{i} * 2", timeout=240)
        assert result.value == str(i * 2), result.messages
        return kid, channels

    begin = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        opened = list(pool.map(one, range(n)))
    seconds = time.perf_counter() - begin
    settle(3)
    pids = server.server_pids()
    before = cpu_ns(pids)
    settle(10)
    idle_cpu = (cpu_ns(pids) - before) / 1e9 / 10
    out = {"kernels": n, "seconds": seconds, "server MiB": pss(pids) / MIB,
           "server CPU while idle, %": idle_cpu * 100, "descriptors": descriptors(pids)}
    for i, (kid, channels) in enumerate(opened):
        assert channels.execute(f"{i} + 1").value == str(i + 1)
        channels.close()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda pair: client(server).stop_kernel(pair[0]), opened))
    assert api.api("GET", "api/kernels").json() == []
    return out


def measure(args):
    n_start, n_pass, n_memory = (4, 60, 3) if args.quick else (12, 400, 10)
    result = {"machine": machine(), "start ms": {}, "memory": {}, "server CPU ms per execute": {}}
    stock = JupyterServer().start()
    try:
        check(stock)
        with Running(spares=1) as ours:
            check(ours)
            settle(2)
            result["start ms"]["REITOS, spare"] = start_times(ours, n_start, 1.0)
            result["start ms"]["jupyter-server"] = start_times(stock, n_start, 0.2)
            result["pass ms"] = round_trips(ours, stock, n_pass)
            for server, label in ((ours, "REITOS"), (stock, "jupyter-server")):
                result["server CPU ms per execute"][label] = cpu_per_execute(server, n_pass)
        with Running(spares=0) as ours:
            check(ours)
            result["start ms"]["REITOS, zygote"] = start_times(ours, n_start, 0.2)
            result["memory"]["REITOS"] = idle_memory(ours, n_memory)
            result["memory"]["jupyter-server"] = idle_memory(stock, n_memory)
        with Running(zygote=False, spares=0) as ours:
            result["start ms"]["REITOS, plain start"] = start_times(ours, max(3, n_start // 3), 0.2)
    finally:
        stock.close()
    with Running(spares=0) as ours:
        result["many"] = many(ours, args.kernels)
    return result


class Running:
    def __init__(self, **options):
        self.server = Reitos(**options)

    def __enter__(self):
        return self.server.start()

    def __exit__(self, *exc):
        self.server.close()


def machine():
    model = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"cpu": model[0] if model else platform.machine(), "cores": os.cpu_count(),
            "kernel": platform.release(), "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d"),
            "command": " ".join(["make bench", *sys.argv[1:]])}


def rows(r):
    """(what, ours, reference, target, met) of each figure with a target."""
    start, trip, memory_ = r["start ms"], r["pass ms"], r["memory"]
    cpu = r["server CPU ms per execute"]
    stock = start["jupyter-server"]["median"]
    fork, spare = start["REITOS, zygote"]["median"], start["REITOS, spare"]["median"]
    bare = trip["bare ZMQ, the same kernel as REITOS"]["median"]
    v1 = trip["REITOS v1"]["median"]
    ours, theirs = memory_["REITOS"], memory_["jupyter-server"]
    many_ = r["many"]
    yield ("kernel start to first reply, fork", f"{fork:.0f} ms", f"jupyter-server {stock:.0f} ms",
           "<= 1/5", fork <= stock / 5)
    yield ("kernel start to first reply, spare", f"{spare:.0f} ms",
           f"jupyter-server {stock:.0f} ms", "<= 30 ms", spare <= 30)
    yield ("`pass` round trip", f"{v1:.2f} ms", f"bare ZMQ {bare:.2f} ms, jupyter-server "
           f"{trip['jupyter-server v1']['median']:.2f} ms", "<= bare + 0.5 ms", v1 <= bare + 0.5)
    yield ("server CPU per execute", f"{cpu['REITOS']:.3f} ms",
           f"jupyter-server {cpu['jupyter-server']:.2f} ms", "<= 0.1 ms", cpu["REITOS"] <= 0.1)
    yield ("server memory (daemon and shim, PSS)", f"{ours['server MiB']:.1f} MiB",
           f"jupyter-server {theirs['server MiB']:.0f} MiB", "<= 20 MiB", ours["server MiB"] <= 20)
    yield ("server memory per kernel", f"{ours['server MiB per kernel']:.2f} MiB",
           f"jupyter-server {theirs['server MiB per kernel']:.2f} MiB", "<= 0.1 MiB",
           ours["server MiB per kernel"] <= 0.1)
    yield ("private memory of an idle kernel", f"{ours['kernel private MiB']:.0f} MiB",
           f"ipykernel {theirs['kernel private MiB']:.0f} MiB", "<= 18 MiB",
           ours["kernel private MiB"] <= 18)
    yield (f"{many_['kernels']} idle kernels opened at once", f"{many_['seconds']:.1f} s",
           f"server {many_['server MiB']:.0f} MiB, "
           f"{many_['server CPU while idle, %']:.2f}% CPU idle", "-", None)


def table(r):
    lines = ["| what | REITOS | beside it | target | |", "|---|---|---|---|---|"]
    for what, ours, theirs, target, met in rows(r):
        mark = "" if met is None else "met" if met else "missed"
        lines.append(f"| {what} | {ours} | {theirs} | {target} | {mark} |")
    lines += ["", "Round trips of `pass`, milliseconds:", "",
              "| way | median | p90 | n |", "|---|---|---|---|"]
    for name, s in r["pass ms"].items():
        lines.append(f"| {name} | {s['median']:.2f} | {s['p90']:.2f} | {s['n']} |")
    lines += ["", "Kernel start to first reply, milliseconds:", "",
              "| way | median | p90 | n |", "|---|---|---|---|"]
    for name, s in r["start ms"].items():
        lines.append(f"| {name} | {s['median']:.0f} | {s['p90']:.0f} | {s['n']} |")
    m = r["machine"]
    lines += ["", f"{m['cores']} cores of {m['cpu']}, Linux {m['kernel']}, load {m['load']:.1f} "
              f"at the start; {m['date']}, `{m['command']}`."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--no-docs", action="store_true")
    args = parser.parse_args()
    result = measure(args)
    (REPO / "build/bench.json").write_text(json.dumps(result, indent=1) + "\n")
    text = table(result)
    print(text)
    docs = REPO / "docs/benchmarks.md"
    if not args.no_docs and docs.exists():
        begin, end = "<!-- bench begin -->", "<!-- bench end -->"
        content = docs.read_text()
        head, rest = content.split(begin)
        docs.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
