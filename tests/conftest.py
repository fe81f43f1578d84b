"""Fixtures for whole-daemon tests: `daemon` (one per test file) and `daemon_factory`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "lib"))

from daemon import Daemon  # noqa: E402


@pytest.fixture(scope="module")
def daemon():
    d = Daemon()
    try:
        yield d.start()
    finally:
        d.close()


@pytest.fixture
def daemon_factory():
    """Calls give started daemons with the options named; all end with the test."""
    made = []

    def make(start=True, **options):
        d = Daemon(**options)
        made.append(d)
        return d.start() if start else d

    yield make
    for d in made:
        d.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the end of its daemon's log."""
    report = (yield).get_result()
    if report.when != "call" or not report.failed:
        return
    for name in ("daemon", "d"):
        d = getattr(item, "funcargs", {}).get(name)
        if isinstance(d, Daemon):
            report.sections.append(("daemon log", d.log[-4000:]))
