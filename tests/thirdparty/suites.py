"""Runs test suites of other projects against REITOS, with Debian's Python and packages.

    /usr/bin/python3 tests/thirdparty/suites.py SUITE... [--plain] [--record]

notebook      the REST suites of python3-notebook, against reitosd
kernel-test   python3-jupyter-kernel-test, against kernels behind `reitos kernel-proxy`
message-spec  the kernel and message suites of python3-ipykernel, likewise
nbclient      the suite of python3-nbclient, likewise

Every test listed in expected/SUITE.txt must pass: those that pass on the reference. Others may fail:
they read the in-process objects of their own project, or need a configuration that only it has.
`--plain` runs against the reference, and `--record` rewrites the list from what passes.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("REITOS_BUILD", HERE.parents[1] / "build")).resolve()
SUITES = {
    "notebook": [f"notebook.services.{name}.tests.test_{name}_api" for name in
                 ("config", "contents", "kernels", "kernelspecs", "nbconvert", "sessions")]
    + ["notebook.services.api.tests.test_api", "notebook.terminal.tests.test_terminals_api"],
    "kernel-test": [str(HERE / "python_kernel.py")],
    "message-spec": ["ipykernel.tests.test_message_spec", "ipykernel.tests.test_kernel"],
    "nbclient": ["nbclient.tests.test_client"],
}


class Results:
    def __init__(self):
        self.outcome = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.split("dist-packages/")[-1].split("thirdparty/")[-1]
            if self.outcome.get(name, "passed") == "passed":
                self.outcome[name] = report.outcome


def use_launcher():
    """The launcher module that python3-notebook leaves out."""
    sys.path.insert(0, str(HERE))
    import launchnotebook
    package = types.ModuleType("notebook.tests")
    package.launchnotebook = launchnotebook
    sys.modules["notebook.tests"] = package
    sys.modules["notebook.tests.launchnotebook"] = launchnotebook


def use_proxy(home, plain):
    """python3 is a kernel behind the proxy, run by the same interpreter as on the reference."""
    os.environ.update(HOME=home, JUPYTER_DATA_DIR=home + "/jupyter", IPYTHONDIR=home + "/ipython",
                      JUPYTER_CONFIG_DIR=home + "/config", JUPYTER_RUNTIME_DIR=home + "/run",
                      REITOS_DATA=home + "/reitos", REITOS_PYTHON="/usr/bin/python3")
    os.mkdir(home + "/run", 0o700)
    if plain:
        return
    folder = Path(home, "proxy/kernels/python3")
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({
        "argv": [str(BUILD / "reitos"), "kernel-proxy", "-f", "{connection_file}",
                 "--kernel", "python3"],
        "display_name": "Python 3 (REITOS)", "language": "python", "interrupt_mode": "signal"}))
    # as an environment variable of this process only: the kernel behind is found without it
    os.environ["JUPYTER_PATH"] = home + "/proxy"


def end_leftovers(home):
    """Whatever a failed test left running under this home folder."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if f"HOME={home}".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    os.kill(int(entry), signal.SIGKILL)
            except OSError:
                pass


def run(suite, record, plain):
    home = tempfile.mkdtemp(prefix="thirdparty-")
    expected_file = HERE / "expected" / f"{suite}.txt"
    results = Results()
    try:
        if suite == "notebook":
            os.environ["THIRDPARTY_SERVER"] = "jupyter-server" if plain else "reitosd"
            use_launcher()
        else:
            use_proxy(home, plain)
        pytest.main(["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=/", "--tb=short",
                     "-W", "ignore", "--pyargs", *SUITES[suite]], plugins=[results])
    finally:
        end_leftovers(home)
        shutil.rmtree(home, ignore_errors=True)
    passed = {n for n, outcome in results.outcome.items() if outcome == "passed"}
    if record:
        expected_file.write_text("".join(name + "\n" for name in sorted(passed)))
    expected = set(expected_file.read_text().split("\n")) - {""}
    missing = sorted(expected - passed)
    for name in missing:
        print(f"expected to pass: {name} ({results.outcome.get(name, 'not run')})")
    print(f"{suite}: {len(expected) - len(missing)} passed, {len(missing)} failed")
    return not missing and bool(expected)


def main():
    options = [a for a in sys.argv[1:] if a.startswith("--")]
    suites = [a for a in sys.argv[1:] if not a.startswith("--")] or list(SUITES)
    if len(suites) == 1:
        return 0 if run(suites[0], "--record" in options, "--plain" in options) else 1
    # a process for each, so that one cannot change another's environment
    return max(subprocess.run([sys.executable, __file__, s, *options]).returncode for s in suites)


if __name__ == "__main__":
    sys.exit(main())
