# SPDX-License-Identifier: Apache-2.0
"""For all tests: who may run, how long a property may take, and that nothing stays behind."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import leftovers, shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest_plugins = [
    "tests.lab.command_fixtures",
    "tests.lab.kernel_fixtures",
    "tests.lab.small_trace",
    "tests.lab.snapshots",
]

# On a busy machine the clock says nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have an option for what :mod:`tests.shared` does."""
    parser.addoption("--processes", type=int, default=0, metavar="COUNT", help="run most tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    """Handle signals as a program in a terminal does: nohup and background jobs have some of them ignored."""
    if config.option.processes:
        config.pluginmanager.register(shared.InTurn(config.option.processes))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs the machine alone, and what takes long, so that ``-m`` can tell."""
    if shared.is_of(shared.ALONE, item) and item.get_closest_marker("root"):
        item.add_marker(pytest.mark.alone)
    if shared.is_of(shared.SLOW, item):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `root` where they cannot run, saying why."""
    # What waits for the kernel comes first, and what only computes fills the processes at the end.
    of_kernel = {item.path for item in items if item.get_closest_marker("root")}
    items.sort(key=lambda item: item.path not in of_kernel)
    marked = [item for item in items if item.get_closest_marker("root")]
    reason = leftovers.why_no_bpf() if marked else ""
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test had to run again: what fails once in many runs is seldom seen a second time."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_sep("_", f"{report.nodeid} ran again")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(scope="session", autouse=True)
def _recordings_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests record out of this machine's state directory."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOPSCOPE_RECORDINGS", str(tmp_path_factory.mktemp("state") / "recordings"))
        yield


@pytest.fixture
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state directory of the test's own, which is not made yet."""
    monkeypatch.setenv("HOPSCOPE_RECORDINGS", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    """Fail the session if its tests leave programs, links, processes, namespaces or devices behind."""
    leftovers.adopt_orphans()
    before = leftovers.seen()
    yield
    left = leftovers.left_since(before)
    assert not left, f"left behind by the tests: {', '.join(sorted(left))}"
