"""Forks ipykernels: one process per Python environment, with what kernels import imported already.

Run as a script by the shim, in any Python environment with ipykernel, which it leaves untouched:
nothing is installed or written, and this package need not be importable there. Descriptor 3 is a
SOCK_SEQPACKET socket, one JSON object per packet; docs/protocol.md, "Shim and zygote", describes
the messages. Ends when the socket closes. Never prints to stdout.

A forked kernel has to agree with one started by `python -m ipykernel_launcher -f FILE`:
 - Modules of the preload list are taken out of sys.modules and given back, as they are, by a
   finder on their first import (class Stash). Thread counts of BLAS and OpenMP are then set from
   the environment as it is at that time.
 - Where the kernel's environment would have made the interpreter start differently, nothing is
   forked; a spare that is given such an environment becomes a plainly started kernel by exec.
 - Session, signals, descriptors, argv, sys.path and random generators are those of a new process.
What still differs: one entry in sys.meta_path, gc.get_freeze_count(), IPython's history (in
memory, unless a file is configured), the command line in /proc; where BLAS is told to use one
thread, some versions of OpenBLAS keep others that sleep.

Words of --preload that begin with "-X" are options of the interpreter, not modules.
Syntax of Python 3.8.
"""

import importlib.util
import json
import os
import signal
import socket
import sys
import time
import traceback
import warnings

FD = 3
PACKET_MAX = 4 << 20
PR_SET_PDEATHSIG = 1

# Read by the interpreter, the loader, the C library or IPython before user code runs.
START_VARIABLES = {"HOME", "LANG", "LANGUAGE", "LOCPATH", "GLIBC_TUNABLES", "VIRTUAL_ENV",
                   "IPYTHON_SUPPRESS_CONFIG_ERRORS"}
START_PREFIXES = ("PYTHON", "PYDEVD_", "LC_", "LD_", "MALLOC_")
START_EXCEPT = {"PYTHONHASHSEED", "PYTHONSTARTUP", "PYTHONBREAKPOINT", "PYTHONINSPECT"}
# Read while a spare initialises.
SPARE_VARIABLES = {"IPYTHONDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
SPARE_PREFIXES = ("JUPYTER_",)
# Read by numeric libraries when they are loaded. Thread counts can be set later as well.
LIBRARY_PREFIXES = ("OPENBLAS_", "GOTO_", "OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "NPY_",
                    "NUMPY_", "PANDAS_")
THREADS = {"openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
           "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
           "blis": ("BLIS_NUM_THREADS", "OMP_NUM_THREADS"),
           "omp": ("OMP_NUM_THREADS",)}
# Set by scikit-learn as it is imported, for Intel's OpenMP.
SET_BY_LIBRARIES = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}
THREAD_VARIABLES = {name for names in THREADS.values() for name in names}

# Imported ahead as well, and visible only once a kernel imports them: at its start, or on the first
# use of a function. Which of these a version has, and when it imports them, differs.
KERNEL_MODULES = (
    "ipykernel.debugger", "sqlite3", "faulthandler", "bdb", "cmd", "pdb", "timeit",
    "pstats", "cProfile", "tornado.platform.asyncio", "IPython.core.completerlib",
    "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect",
    "IPython.extensions.storemagic", "IPython.utils.wildcard", "executing", "stack_data", "jedi")


class Refused(Exception):
    """The request is not carried out; `discard`: nor will any other be."""

    def __init__(self, message, discard):
        super().__init__(message)
        self.discard = discard


def thread_count():
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("Threads:"):
                return int(line.split()[1])
    raise RuntimeError("/proc/self/status tells no thread count")


def settle():
    """Thread count after a fork: OpenBLAS ends its threads before one, and starts them on use."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    for _ in range(50):
        if thread_count() == 1:
            return 1
        time.sleep(0.001)
    return thread_count()


def chosen(env, names, prefixes):
    return {k: v for k, v in env.items() if k in names or k.startswith(prefixes)}


def start_variables(env):
    found = chosen(env, START_VARIABLES, START_PREFIXES)
    return {k: v for k, v in found.items() if k not in START_EXCEPT}


def fixed_library_variables(env):
    found = chosen(env, (), LIBRARY_PREFIXES)
    return {k: v for k, v in found.items() if k not in THREAD_VARIABLES | SET_BY_LIBRARIES}


def given_environment():
    """What this process was started with: without the LC_CTYPE that Python sets where no locale is
    configured (PEP 538)."""
    with open("/proc/self/environ", "rb") as f:
        given = dict(entry.split(b"=", 1) for entry in f.read().split(b"\0") if b"=" in entry)
    env = dict(os.environ)
    if b"LC_CTYPE" not in given:
        env.pop("LC_CTYPE", None)
    return env


def differing(a, b):
    return sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))


# ---- thread counts of native libraries ----


class NativeThreads:
    """Thread count of one loaded BLAS or OpenMP library."""

    def __init__(self, kind, getter, setter, openmp, stop):
        self.kind, self.getter, self.setter, self.stop = kind, getter, setter, stop
        self.names = THREADS["omp"] if openmp else THREADS[kind]
        self.loaded = self.getter()
        self.basis = self.state()

    def state(self):
        values = [os.environ.get(name) for name in self.names]
        return values, len(os.sched_getaffinity(0))

    def apply(self):
        """What the library would do if it were loaded now; OpenBLAS starts its threads, too."""
        wanted = self.loaded
        if self.state() != self.basis:
            values, cpus = self.state()
            wanted = next((n for n in map(leading_int, values) if n > 0), cpus)
            wanted = min(wanted, cpus) if self.kind == "openblas" else wanted
        if self.kind == "openblas" or wanted != self.getter():
            self.setter(wanted)
            if wanted == 1 and self.stop:
                self.stop()  # the threads of the former count, which setting it has started


def leading_int(text):
    digits = ""
    for c in (text or "").strip():
        if not c.isdigit():
            break
        digits += c
    return int(digits[:9] or 0)


def native_threads(path):
    import ctypes

    base = os.path.basename(path)
    lib = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    if "openblas" in base:
        kind, pairs = "openblas", [
            (pre + "openblas_get_num_threads" + post, pre + "openblas_set_num_threads" + post,
             pre + "openblas_get_parallel" + post)
            for pre in ("", "scipy_") for post in ("", "64_", "_64")]
    elif "mkl_rt" in base:
        kind, pairs = "mkl", [("MKL_Get_Max_Threads", "MKL_Set_Num_Threads", "")]
    elif "blis" in base:
        kind, pairs = "blis", [("bli_thread_get_num_threads", "bli_thread_set_num_threads", "")]
    else:
        kind, pairs = "omp", [("omp_get_max_threads", "omp_set_num_threads", "")]
    for get, put, parallel in pairs:
        if hasattr(lib, get) and hasattr(lib, put):
            openmp = bool(parallel) and hasattr(lib, parallel) and getattr(lib, parallel)() == 2
            stop = getattr(lib, "blas_thread_shutdown_", None)
            return NativeThreads(kind, getattr(lib, get), getattr(lib, put), openmp, stop)
    return None


def native_libraries():
    marks = ("openblas", "mkl_rt", "libblis", "libgomp", "libiomp", "libomp")
    with open("/proc/self/maps") as f:
        paths = {line.split(maxsplit=5)[5].strip() for line in f if "/" in line}
    return {p for p in paths if any(m in os.path.basename(p) for m in marks)}


# ---- modules imported ahead ----


class Group:
    """What the import of one module of the preload list brought."""

    def __init__(self):
        self.names = set()
        self.filters = []
        self.natives = []
        self.environ = {}


class StashLoader:
    """Hands over a module that is loaded already; else as its own loader."""

    def __init__(self, stash, module):
        self.stash, self.module = stash, module
        self.spec = module.__spec__

    def __getattr__(self, name):
        return getattr(self.spec.loader, name)

    def create_module(self, spec):
        self.stash.restore(spec.name)
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec


class Stash:
    """Modules imported ahead, invisible until user code imports them.

    As a finder it stands first in sys.meta_path. A module is handed over only where a plain import
    would find the same file, unchanged. The first import of a module of the preload list gives back
    all that its import brought; the import of another one (a dependency) its own package.
    """

    def __init__(self):
        self.hidden = {}
        self.groups = {}
        self.files = {}
        self.touched = set()
        self.basis = {}

    # -- in the zygote --

    def load(self, name):
        """Imports `name`. Its group includes those of earlier ones that it imports."""
        modules, filters = set(sys.modules), list(warnings.filters)
        libraries, environ = native_libraries(), dict(os.environ)
        self.touched = set()
        __import__(name)
        group = self.groups[name] = Group()
        for other in self.touched & self.groups.keys():
            self.merge(group, self.groups[other])
        group.names |= set(sys.modules) - modules
        group.filters = [f for f in warnings.filters if f not in filters] + group.filters
        group.natives += filter(None, map(native_threads, native_libraries() - libraries))
        group.environ.update((k, v) for k, v in os.environ.items() if k not in environ)
        for variable in group.environ:
            os.environ.pop(variable, None)

    @staticmethod
    def merge(group, other):
        group.names |= other.names
        group.filters += other.filters
        group.natives += other.natives
        group.environ.update(other.environ)

    def hide(self, names, filters):
        """Takes modules out of sys.modules and out of the packages that stay."""
        for name in names:
            self.hidden[name] = sys.modules.pop(name)
        for name in names:
            parent, _, child = name.rpartition(".")
            owner = sys.modules.get(parent)
            if owner is not None and vars(owner).get(child) is self.hidden[name]:
                delattr(owner, child)
            if not parent:
                self.files[name] = file_identity(self.hidden[name])
        set_filters(filters)

    # -- in the kernel --

    def find_spec(self, name, path=None, target=None):
        module = self.hidden.get(name)
        if module is None or getattr(module, "__spec__", None) is None:
            return None
        own = module.__spec__
        if "." not in name:
            found = self.plain_spec(name, path, target)
            if found is None or found.origin != own.origin:
                return None
        loader = StashLoader(self, module)
        spec = importlib.util.spec_from_loader(name, loader, origin=own.origin, is_package=False)
        spec.submodule_search_locations = own.submodule_search_locations
        spec.has_location, spec.cached = own.has_location, own.cached
        return spec

    def plain_spec(self, name, path, target):
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def restore(self, name):
        top = name.partition(".")[0]
        self.touched |= {name, top}
        group = self.groups.get(name) or self.groups.get(top)
        names = group.names if group else {n for n in self.hidden if n.partition(".")[0] == top}
        names = sorted(names & self.hidden.keys())
        self.check_files(names)
        for n in names:
            sys.modules.setdefault(n, self.hidden[n])
        for n in names:
            parent, _, child = n.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], child, self.hidden[n])
        for n in names:
            del self.hidden[n]
        if group:
            set_filters(group.filters + [f for f in warnings.filters if f not in group.filters])
            for variable, value in group.environ.items():
                os.environ.setdefault(variable, value)
            self.apply_environment(group)

    def check_files(self, names):
        for n in names:
            if n in self.files and file_identity(self.hidden[n]) != self.files[n]:
                raise ImportError("%s was changed on disk after this kernel was started: restart "
                                  "the kernel to use it" % n, name=n)

    def apply_environment(self, group):
        late = differing(self.basis, fixed_library_variables(os.environ))
        if late:
            warnings.warn("%s: set too late, numeric libraries are loaded when the kernel starts. "
                          "Set it in the kernelspec or before the start." % ", ".join(late))
        for native in group.natives:
            native.apply()


def file_identity(module):
    try:
        st = os.stat(module.__file__)
        return st.st_ino, st.st_mtime_ns
    except (OSError, TypeError, AttributeError):
        return None


def set_filters(filters):
    warnings.filters[:] = filters
    mutated = getattr(warnings, "_filters_mutated", None) or getattr(
        warnings, "_filters_mutated_lock_held", None)
    if mutated:
        try:
            mutated()
        except RuntimeError:  # Python 3.14 wants its lock held
            with warnings._lock:
                mutated()


# ---- has the Python environment changed? ----


class Site:
    """The packages installed when the zygote started."""

    def __init__(self):
        names = ("site-packages", "dist-packages")
        self.dirs = [p for p in sys.path if os.path.basename(p.rstrip("/")) in names]
        self.python = self.identity(sys.executable)
        self.times = self.read_times()
        self.content = self.read_content()

    @staticmethod
    def identity(path):
        try:
            st = os.stat(path)
            return st.st_ino, st.st_mtime_ns
        except OSError:
            return None

    def read_times(self):
        return [self.identity(d) for d in self.dirs]

    def read_content(self):
        """Whatever installs, removes or upgrades a package changes one of these."""
        ends = (".dist-info", ".egg-info", ".egg-link", ".pth")
        found = []
        for d in self.dirs:
            if os.path.isdir(d):
                found += [(e.path, e.stat().st_ino, e.stat().st_mtime_ns) for e in os.scandir(d)
                          if e.name.endswith(ends)]
        return sorted(found)

    def changed(self):
        if self.identity(sys.executable) != self.python:
            return True
        times = self.read_times()
        if times == self.times:
            return False
        if self.read_content() != self.content:
            return True
        self.times = times  # something else, such as __pycache__
        return False


# ---- the zygote ----


def fill_pools():
    """Takes every free block of Python's small-object allocator; the result is kept.

    A kernel's own objects then lie together in new memory, instead of in the gaps of pages that it
    would have shared with the zygote.
    """
    fd, saved = os.memfd_create("pools"), os.dup(2)
    sys.stderr.flush()
    os.dup2(fd, 2)
    try:
        sys._debugmallocstats()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    with open(fd, "rb") as f:
        f.seek(0)
        rows = [line.split() for line in f.read().decode("ascii", "replace").splitlines()]
    filling = []
    for row in rows:  # class, size, pools, blocks in use, free blocks
        if len(row) == 5 and all(word.isdigit() for word in row):
            size, free = int(row[1]), int(row[4])
            if size >= 48:
                filling += [bytes(size - 40) for _ in range(free)]
            else:
                filling += [float(i) if size == 32 else object() for i in range(free)]
    return filling


class Zygote:
    def __init__(self, preload, options):
        self.preload, self.options = preload, options
        self.site = Site()
        self.stash = Stash()
        self.environ = given_environment()
        self.shim = os.getppid()
        self.channel = socket.socket(fileno=FD)
        self.libc = None
        self.set_by_ipykernel = {}
        self.filling = []

    def send(self, **message):
        self.channel.send(json.dumps(message).encode())

    def prepare(self):
        """Imports everything. Ends in exec where a module of the preload list starts threads."""
        import ipykernel.kernelapp
        import runpy  # noqa: F401 - as `python -m` does

        self.set_by_ipykernel = {k: v for k, v in os.environ.items() if k not in self.environ}
        if settle() != 1:
            raise RuntimeError("importing ipykernel starts threads")
        modules, filters = set(sys.modules), list(warnings.filters)
        sys.meta_path.insert(0, self.stash)
        for name in KERNEL_MODULES:
            self.load(name)
        for name in list(self.preload):
            if not self.load(name):
                self.preload.remove(name)
        import ctypes
        import gc

        self.libc = ctypes.CDLL(None, use_errno=True)
        self.stash.hide(sorted(set(sys.modules) - modules), filters)
        self.stash.basis = fixed_library_variables(os.environ)
        os.set_inheritable(FD, False)
        gc.collect()
        self.filling = fill_pools()
        gc.freeze()  # the collector would write to every object, and so copy every page
        return ipykernel.__version__

    def load(self, name):
        """Imports and hides a module; false when this environment does not have it."""
        modules, filters = set(sys.modules), list(warnings.filters)
        try:
            self.stash.load(name)
        except Exception as e:
            if name in self.preload and not (isinstance(e, ImportError) and e.name == name):
                self.again_without(name, traceback.format_exc())
            return False
        if settle() != 1:
            self.again_without(name, "its import starts threads")
        self.stash.hide(sorted(set(sys.modules) - modules), filters)
        return True

    def again_without(self, name, reason):
        print("zygote: %s is not preloaded: %s" % (name, reason), file=sys.stderr, flush=True)
        words = [n for n in self.preload if n != name]
        restart(words, self.options, self.environ)

    def serve(self):
        """Answers requests. Returns, with its request, in a process that is to be a kernel."""
        while True:
            packet = self.channel.recv(PACKET_MAX)
            if not packet:
                os._exit(0)
            request = {}
            try:
                request = self.parse(packet)
                self.check(request)
                pid = self.fork(request)
            except Refused as e:
                self.send(op="refused", id=request.get("id"), message=str(e), discard=e.discard)
                continue
            except OSError as e:
                self.send(op="refused", id=request.get("id"), message=str(e), discard=False)
                continue
            if pid is None:
                return request
            self.send(op="forked", id=request["id"], pid=pid)

    @staticmethod
    def parse(packet):
        try:
            request = json.loads(packet)
        except ValueError as e:
            raise Refused("malformed request: %s" % e, False)
        if not isinstance(request, dict):
            raise Refused("malformed request", False)
        return request

    def check(self, request):
        if request.get("op") != "fork":
            raise Refused("unknown request", False)
        for key, kind in (("id", str), ("connection_file", str), ("stderr", str), ("cwd", str),
                          ("env", dict), ("args", list)):
            if not isinstance(request.get(key), kind):
                raise Refused("%s is missing or malformed" % key, False)
        threads = thread_count()
        if threads != 1:
            raise Refused("%d threads" % threads, True)
        if self.site.changed():
            raise Refused("the installed packages have changed", True)
        names = self.misfits(request["env"])
        if names:
            raise Refused("needs an interpreter of its own: %s" % ", ".join(names), False)

    def misfits(self, env):
        """Variables of `env` that this process has been started without."""
        return (differing(start_variables(self.environ), start_variables(env)) +
                differing(fixed_library_variables(self.environ), fixed_library_variables(env)))

    def fork(self, request):
        """The pid of the kernel; None in the kernel, which is a child of the shim by then."""
        r, w = os.pipe()
        try:
            middle = os.fork()
            if middle == 0:
                self.fork_again(r, w)
                return None
        except OSError:
            os.close(r)
            raise
        finally:
            os.close(w)
        answer = os.read(r, 32)
        os.close(r)
        os.waitpid(middle, 0)
        if not answer:
            raise Refused("fork failed", False)
        return int(answer)

    def fork_again(self, r, w):
        middle = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os._exit(1)
        if pid:
            os.write(w, b"%d" % pid)
            os._exit(0)
        os.close(r)
        self.channel.close()
        while os.getppid() == middle:
            time.sleep(0.0002)
        # Only now: the signal is bound to the parent at the time of the call.
        self.libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != self.shim:
            os._exit(1)


# ---- the kernel ----


def become(request, options, environ):
    """Makes this process like one that was just started for the request."""
    os.setsid()
    redirect(os.devnull, os.O_RDONLY, (0,))
    redirect(request["stderr"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    set_environment({**environ, **request["env"]})
    os.chdir(request["cwd"])
    random = sys.modules.get("numpy.random.mtrand") or stash_module("numpy.random.mtrand")
    if random is not None:
        random.seed()  # Python's own generator is seeded by fork itself
    args = ["-f", request["connection_file"]] + request["args"]
    sys.argv[:] = [run_launcher()] + args
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [sys.orig_argv[0]] + options + ["-m", "ipykernel_launcher"] + args
    return args


def run_launcher():
    """Treats sys.path as the launcher of this ipykernel version does. Returns its file name."""
    from ipykernel import kernelapp

    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.getcwd())
    spec = importlib.util.find_spec("ipykernel_launcher")
    start, kernelapp.launch_new_instance = kernelapp.launch_new_instance, lambda: None
    exec(spec.loader.get_code("ipykernel_launcher"), {"__name__": "__main__"})
    kernelapp.launch_new_instance = start
    return spec.origin


def stash_module(name):
    finder = sys.meta_path[0]
    return finder.hidden.get(name) if isinstance(finder, Stash) else None


def redirect(path, flags, targets):
    fd = os.open(path, flags, 0o600)
    for target in targets:
        os.dup2(fd, target)
    os.close(fd)


def set_environment(env):
    # The hash seed is this interpreter's; what it starts is to have its own.
    wanted = {k: v for k, v in env.items() if k != "PYTHONHASHSEED"}
    for name in [n for n in os.environ if n not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    time.tzset()


def keep_history_in_memory():
    """Without a configured file, history goes to memory: each cell would wait for SQLite's fsync.

    Takes the place of the default only, so that a file named in a configuration is still used.
    """
    from IPython.core.history import HistoryManager

    HistoryManager._get_hist_file_name = lambda self, profile=None: ":memory:"


def lose_no_output(app_class):
    """Output that is not read at once waits, also beyond the 1000 messages that ZeroMQ keeps.

    Past them it would drop the rest; now the kernel stops until the shim has read some.
    """
    import zmq

    plain = app_class.init_iopub

    def init_iopub(self, context):
        context.setsockopt(zmq.XPUB_NODROP, 1)  # of sockets made from here on
        try:
            plain(self, context)
        finally:
            context.sockopts.pop(zmq.XPUB_NODROP, None)

    app_class.init_iopub = init_iopub


def make_app(args):
    from ipykernel.kernelapp import IPKernelApp

    keep_history_in_memory()
    lose_no_output(IPKernelApp)
    # 1: someone else looks after the parent; here the kernel does (PR_SET_PDEATHSIG)
    app = IPKernelApp.instance(parent_handle=1)
    app.initialize(args)
    return app


def wait_for_go(zygote, request, app):
    """A spare: waits for the directory and environment of the notebook that it will serve."""
    before = dict(os.environ)
    with open(request["go"], "rb", buffering=0) as fifo:
        line = b""
        while not line.endswith(b"\n"):
            part = fifo.read(1 << 16)
            if not part:
                os._exit(0)
            line += part
    go = json.loads(line)
    own = {k: v for k, v in before.items() if request["env"].get(k) != v}
    late = differing(chosen(request["env"], SPARE_VARIABLES, SPARE_PREFIXES),
                     chosen(go["env"], SPARE_VARIABLES, SPARE_PREFIXES))
    if late or zygote.misfits(go["env"]):
        start_plainly(zygote.options, request, go)
    set_environment(go["env"])
    for name, value in own.items():  # set by ipykernel: MPLBACKEND as a default, the rest always
        if name != "MPLBACKEND" or not os.environ.get(name):
            os.environ[name] = value
    at = os.getcwd()
    os.chdir(go["cwd"])
    sys.path[:] = [os.getcwd() if p == at else p for p in sys.path]
    move_shell(app.shell)


def move_shell(shell):
    from pathlib import Path

    shell.starting_dir = os.getcwd()
    history = shell.history_manager
    history.dir_hist[:] = [type(d)(os.getcwd()) for d in history.dir_hist[:1]] or [Path.cwd()]
    if kernel_names_session() and os.environ.get("JPY_SESSION_NAME"):
        shell.user_ns["__session__"] = os.environ["JPY_SESSION_NAME"]


def kernel_names_session():
    """Whether this version of ipykernel sets __session__."""
    from ipykernel.ipkernel import IPythonKernel

    return "JPY_SESSION_NAME" in IPythonKernel.__init__.__code__.co_consts


def start_plainly(options, request, go):
    """Same process, same connection file, new interpreter."""
    redirect(request["stderr"], os.O_WRONLY | os.O_APPEND, (1, 2))  # ipykernel captures these
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(go["cwd"])
    os.execve(sys.executable, [sys.executable] + options + ["-m", "ipykernel_launcher"] +
              sys.argv[1:], go["env"])


# ---- start ----


def restart(preload, options, env):
    script = os.path.abspath(__file__)
    os.execve(sys.executable, [sys.executable] + options +
              [script, "--options", ",".join(options), "--preload", ",".join(preload)], env)


def words(flag):
    args = sys.argv[1:]
    text = args[args.index(flag) + 1] if flag in args[:-1] else ""
    return [w for w in text.split(",") if w]


def close_inherited():
    for name in os.listdir("/proc/self/fd"):
        if int(name) > FD:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one that listed them


def leave_script_folder():
    """sys.path as `python -m` has it, without the working directory, which ipykernel adds."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.realpath(folder):
        del sys.path[0]


def main():
    options, preload = words("--options"), words("--preload")
    wanted = [w for w in preload if w.startswith("-X")]
    if wanted and not options:
        restart([w for w in preload if not w.startswith("-X")], wanted,
                given_environment())
    close_inherited()
    leave_script_folder()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    zygote = Zygote(preload, options)
    try:
        version = zygote.prepare()
        zygote.send(op="ready", python=sys.version.split()[0], ipykernel=version,
                    preloaded=zygote.preload, threads=thread_count())
    except Exception:
        zygote.send(op="failed", message=traceback.format_exc(limit=-3))
        sys.exit(1)
    request = zygote.serve()
    args = become(request, options, zygote.set_by_ipykernel)
    app = make_app(args)
    if request.get("go"):
        wait_for_go(zygote, request, app)
    app.start()


if __name__ == "__main__":
    main()
