# SPDX-License-Identifier: Apache-2.0
"""Most tests run in several processes (``--processes``): they only compute, or look at namespaces of their own, and
wait a lot. The others need the machine alone and run after them.

The main process collects once and forks the others, so that nobody else has to collect, or to import. They run file by
file what they are given, and hand their reports to the main process, which runs the rest when they are done: there is
one summary, one exit code, one file of results.
"""

from __future__ import annotations

import gc
import itertools
import os
import traceback
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from multiprocessing.connection import Connection

HERE = Path(__file__).parent
# Folders and modules whose tests of the kernel count or change what the whole machine does, or tell something by time.
ALONE = frozenset(
    {"bench", "chaos", "clock", "provoke", "test_leftovers.py", "verbs/cpu", "verbs/clock", "verbs/check"}
)

# Folders and modules whose tests all take long: several hosts, other tools, the benchmarks themselves.
SLOW = frozenset({
    "agent/test_meddler.py", "bench", "chaos", "lab/causes", "packaging/test_deb.py", "verbs/join/test_apart.py",
    "verbs/record/test_five_hosts.py", "verbs/record/test_hosts.py", "verbs/record/test_slow.py",
    "verbs/report/test_apart.py", "verbs/report/test_nat.py",
})  # fmt: skip


def is_of(places: Collection[str], item: pytest.Item) -> bool:
    """Whether a test is of one of these places."""
    return any(item.path.is_relative_to(HERE / place) for place in places)


def may_share(item: pytest.Item) -> bool:
    """Whether a test does not mind what else runs."""
    return not any(map(item.get_closest_marker, ("alone", "spark")))


def first(values: Iterable[object], count: int = 1) -> list[object]:
    """Return parameters of which those after the first ones are slow: they prove the same for more cases."""
    sets = [each if isinstance(each, tuple) else (each,) for each in values]
    return [*(pytest.param(*each, marks=[pytest.mark.slow] * (at >= count)) for at, each in enumerate(sets))]


class InTurn:
    """Has forked processes run the tests that may share the machine, and the main process the others then.

    Parameters
    ----------
    processes
        How many, at most.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Run those that may share; pytest goes on with the rest."""
        if session.testsfailed or session.config.option.collectonly:
            return (yield)
        shared, session.items = _divided(session.items)
        Workers(session, shared, self._processes).run()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        # pytest takes those that have failed by now for modules that could not be collected, and would run nothing.
        failed, session.testsfailed = session.testsfailed, 0
        try:
            return (yield)
        finally:
            session.testsfailed += failed


class Workers:
    """The forked processes.

    Parameters
    ----------
    session
        Of the main process; it has collected.
    items
        What they are to run.
    count
        How many there are, at most.
    """

    def __init__(self, session: pytest.Session, items: list[pytest.Item], count: int) -> None:
        self._session = session
        self._files = [[*group] for _, group in itertools.groupby(items, key=lambda item: item.path)]
        self._waiting = deque(range(len(self._files)))
        self._count = min(count, len(self._files))
        # Process ID, and the test that it is at.
        self._of: dict[Connection, tuple[int, str]] = {}

    def run(self) -> None:
        """Fork, give each of them a file whenever it asks, and pass their reports on until all are done."""
        plugins = self._session.config.pluginmanager
        terminal = plugins.getplugin("terminalreporter")
        terminal.showfspath = False  # they are at several files at a time
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # theirs are in it
        gc.freeze()  # the collector would look at all that was collected and imported in each process, and so copy it
        try:
            for number in range(self._count):
                self._fork(number)
            while self._of:
                for connection in wait([*self._of]):
                    self._serve(connection)  # type: ignore[arg-type] # all are connections
        finally:
            for connection, (pid, _) in self._of.items():
                connection.close()  # it ends when it asks, or reports
                os.waitpid(pid, 0)
            terminal.showfspath = None

    def _fork(self, number: int) -> None:
        ours, theirs = Pipe()
        if pid := os.fork():
            theirs.close()
            self._of[ours] = pid, ""
            return
        code = 1
        try:
            for each in (ours, *self._of):
                each.close()
            Worker(self._session, self._files, theirs, number).run()
            code = 0
        except BaseException:  # noqa: BLE001 # whatever it is, this process must not go on as the main one
            traceback.print_exc()
        finally:
            os._exit(code)

    def _serve(self, connection: Connection) -> None:
        try:
            kind, said = connection.recv()
        except EOFError:
            self._ended(connection)
            return
        if kind == "next":
            stops = self._session.shouldfail or self._session.shouldstop
            connection.send(self._waiting.popleft() if self._waiting and not stops else None)
        elif kind == "start":
            self._of[connection] = self._of[connection][0], said
        else:
            hook, config = self._session.config.hook, self._session.config
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=config, data=said))

    def _ended(self, connection: Connection) -> None:
        pid, nodeid = self._of.pop(connection)
        connection.close()
        _, status = os.waitpid(pid, 0)
        if status:
            text = f"its process ended with {os.waitstatus_to_exitcode(status)}; the rest of its file was not run"
            crash = pytest.TestReport(nodeid, (nodeid, None, nodeid), {}, "failed", text, "call")
            self._session.config.hook.pytest_runtest_logreport(report=crash)


class Worker:
    """One of the forked processes; see :class:`Workers`.

    Parameters
    ----------
    session
        As it was when this was forked.
    files
        The tests of each file.
    connection
        To the main process.
    number
        Which one it is.
    """

    def __init__(
        self, session: pytest.Session, files: list[list[pytest.Item]], connection: Connection, number: int
    ) -> None:
        self._session = session
        self._files = files
        self._connection = connection
        plugins = session.config.pluginmanager
        capture = plugins.getplugin("capturemanager")
        # The files that output is caught in have been the main process's own so far.
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        plugins.unregister(name="terminalreporter")
        plugins.register(self)
        temporary = session.config._tmp_path_factory  # type: ignore[attr-defined]
        temporary._basetemp = temporary.getbasetemp() / f"worker{number}"
        temporary._basetemp.mkdir(0o700)

    def run(self) -> None:
        """Run what is given until there is no more, or until the main process stops."""
        try:
            for item, following in itertools.pairwise(itertools.chain(self._given(), [None])):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except (BrokenPipeError, EOFError, KeyboardInterrupt, pytest.exit.Exception):
            self._session._setupstate.teardown_exact(None)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test begins."""
        self._connection.send(("start", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand a report over."""
        config = self._session.config
        self._connection.send(("report", config.hook.pytest_report_to_serializable(config=config, report=report)))

    def _given(self) -> Iterator[pytest.Item]:
        while True:
            self._connection.send(("next", None))
            if (at := self._connection.recv()) is None:
                return
            yield from self._files[at]


def _divided(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that may share the machine, and the others."""
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts[may_share(item)].append(item)
    return parts[True], parts[False]
