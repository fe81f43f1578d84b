"""Runs the REST suites of Debian's python3-notebook against reitosd, with /usr/bin/python3.

Every test listed in notebook-expected.txt must pass. Others may fail: they read the in-process
server object of their own project, or need options of it. `--record` rewrites the list from what
passes now (meant for THIRDPARTY_SERVER=jupyter-server).
"""
import os
import sys
import types

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "notebook-expected.txt")
SUITES = [f"notebook.services.{name}.tests.test_{name}_api" for name in
          ("config", "contents", "kernels", "kernelspecs", "nbconvert", "sessions")]
SUITES += ["notebook.services.api.tests.test_api", "notebook.terminal.tests.test_terminals_api"]


class Results:
    def __init__(self):
        self.outcome = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.split("dist-packages/")[-1]
            if self.outcome.get(name, "passed") == "passed":
                self.outcome[name] = report.outcome


def main():
    sys.path.insert(0, HERE)
    import launchnotebook
    package = types.ModuleType("notebook.tests")
    package.launchnotebook = launchnotebook
    sys.modules["notebook.tests"] = package
    sys.modules["notebook.tests.launchnotebook"] = launchnotebook

    record = "--record" in sys.argv
    names = [a for a in sys.argv[1:] if a != "--record"]
    results = Results()
    pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir=/usr/lib/python3", "--tb=short",
                 "-W", "ignore", "--pyargs", *(names or SUITES)], plugins=[results])
    passed = {n for n, outcome in results.outcome.items() if outcome == "passed"}
    if record:
        with open(EXPECTED, "w") as f:
            f.writelines(name + "\n" for name in sorted(passed))
        return 0
    with open(EXPECTED) as f:
        expected = {line.strip() for line in f if line.strip() and not line.startswith("#")}
    missing = sorted(n for n in expected - passed if not names or n in results.outcome)
    for name in missing:
        print("expected to pass:", name, f"({results.outcome.get(name, 'not run')})")
    # pytest counts failures that are expected; this is the line that says how it went
    print(f"notebook-suites: {len(expected & passed)} passed, {len(missing)} failed")
    return 1 if missing or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
