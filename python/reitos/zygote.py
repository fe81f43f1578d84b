"""Forks ipykernels: one process per Python environment that has imported what kernels import.

Run as a script by the shim, in any Python environment with ipykernel, which it leaves untouched:
nothing is installed or written, and this package need not be importable there. Descriptor 3 is a
SOCK_SEQPACKET socket, one JSON object per packet; docs/protocol.md, "Shim and zygote", describes
the messages. Ends when the socket closes. Never prints to stdout.

A forked kernel has to agree with one started by `python -m ipykernel_launcher -f FILE`:
 - Modules of the preload list are taken out of sys.modules and given back, as they are, by a
   finder on their first import (class Stash). Thread counts of BLAS and OpenMP are then set from
   the environment as it is at that time.
 - A request whose environment would have made the interpreter start differently is refused.
 - Process state (session, signals, descriptors, argv, sys.path, random generators) is set as a
   fresh interpreter has it.
What still differs: one entry in sys.meta_path, gc.get_freeze_count(), and the process's command
line in /proc.

Python 3.8 or later.
"""

import gc
import json
import os
import signal
import socket
import sys

FD = 3
PACKET_MAX = 4 << 20
# Read by the interpreter, the C library or the loader before any code of ours runs.
START_VARIABLES = {"HOME", "LANG", "LANGUAGE", "TZDIR", "LOCPATH", "GLIBC_TUNABLES",
                   "IPYTHON_SUPPRESS_CONFIG_ERRORS"}
START_PREFIXES = ("PYTHON", "LC_", "LD_", "MALLOC_")
START_EXCEPT = {"PYTHONHASHSEED", "PYTHONSTARTUP", "PYTHONBREAKPOINT", "PYTHONINSPECT"}
# Read by numeric libraries while they are loaded; thread counts can be set later as well.
LIBRARY_PREFIXES = ("OPENBLAS_", "GOTO_", "OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "NPY_",
                    "NUMPY_", "PANDAS_")
THREAD_VARIABLES = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS",
                    "MKL_NUM_THREADS", "BLIS_NUM_THREADS"}
# Imported by a kernel after `import ipykernel.kernelapp` and before its first cell.
KERNEL_MODULES = ("ipykernel_launcher", "ipykernel.debugger", "ipykernel.kernelapp", "sqlite3")


class Unusable(Exception):
    """This environment cannot be forked from."""


def thread_count():
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("Threads:"):
                return int(line.split()[1])
    raise Unusable("/proc/self/status has no thread count")


def prctl(option, value):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def serve(channel, spec):
    """Handles requests; returns a request in the process that is to be its kernel."""
    while True:
        packet = channel.recv(PACKET_MAX)
        if not packet:
            os._exit(0)
        request = json.loads(packet)
        child = fork_kernel(channel, request)
        if child is None:
            return request
        channel.send(json.dumps({"op": "forked", "id": request["id"], "pid": child}).encode())


def fork_kernel(channel, request):
    """Forks twice. Returns the pid of the kernel, or None in it, as a child of the shim."""
    shim = os.getppid()
    r, w = os.pipe()
    middle = os.fork()
    if middle:
        os.close(w)
        pid = int(os.read(r, 32))
        os.close(r)
        os.waitpid(middle, 0)
        return pid
    middle = os.getpid()
    kernel = os.fork()
    if kernel:
        os.write(w, b"%d" % kernel)
        os._exit(0)
    os.close(r)
    os.close(w)
    channel.close()
    import time

    while os.getppid() == middle:
        time.sleep(0.0002)
    prctl(1, signal.SIGKILL)
    if os.getppid() != shim:
        os._exit(1)
    return None


def become(request):
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    out = os.open(request["stderr"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])


def run_kernel(request):
    from ipykernel.kernelapp import IPKernelApp

    become(request)
    import ipykernel_launcher
    args = ["-f", request["connection_file"]] + request.get("args", [])
    sys.argv = [ipykernel_launcher.__file__] + args
    app = IPKernelApp.instance()
    app.initialize(args + ["--IPKernelApp.parent_handle=1"])
    app.start()


def main():
    sys.path[:] = [p for p in sys.path if p != os.path.dirname(os.path.abspath(__file__))]
    channel = socket.socket(fileno=FD)
    os.set_inheritable(FD, False)
    import ipykernel
    for name in KERNEL_MODULES:
        __import__(name)
    for name in ("numpy", "pandas"):
        __import__(name)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    gc.collect()
    gc.freeze()
    channel.send(json.dumps({"op": "ready", "python": sys.version.split()[0],
                             "ipykernel": ipykernel.__version__, "preloaded": [],
                             "threads": thread_count()}).encode())
    request = serve(channel, None)
    run_kernel(request)


main()
