# SPDX-License-Identifier: Apache-2.0
"""Most tests run in several processes (``-n``): they only compute, or look at namespaces of their own, and wait a lot.
The others need the machine alone and run after them.

The processes are pytest-xdist's, which knows nothing of tests that it is not to run: this collects in the main process
as well, which leaves to the workers what they take, and runs the rest when they are done. So there is one summary, one
exit code, one file of results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from xdist.dsession import DSession
    from xdist.workermanage import WorkerController

HERE = Path(__file__).parent
# Folders and modules whose tests of the kernel count or change what the whole machine does, or tell something by time.
ALONE = frozenset(
    {"bench", "chaos", "clock", "provoke", "test_leftovers.py", "verbs/cpu", "verbs/clock", "verbs/check"}
)

# Folders and modules whose tests all take long: several hosts, other tools, the benchmarks themselves.
SLOW = frozenset({
    "agent/test_meddler.py", "bench", "chaos", "lab/causes", "verbs/join/test_apart.py",
    "verbs/record/test_five_hosts.py",
    "verbs/record/test_hosts.py", "verbs/record/test_slow.py", "verbs/report/test_apart.py", "verbs/report/test_nat.py",
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
    """Has the workers run theirs first and the main process the others then.

    Parameters
    ----------
    session
        Of the main process.
    workers
        xdist's part of it.
    """

    def __init__(self, session: pytest.Session, workers: DSession) -> None:
        self._session = session
        self._plugins = session.config.pluginmanager
        self._workers = workers
        self._shared: list[str] = []
        self._count = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect here, too, while the workers do: xdist would not."""
        session.perform_collect()
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take away what the workers are to run."""
        self._count = len(items)
        self._shared = [item.nodeid for item in items if may_share(item)]
        items[:] = [item for item in items if not may_share(item)]

    def pytest_xdist_node_collection_finished(self, node: WorkerController, ids: Sequence[str]) -> None:
        """See that no test is lost between the processes."""
        if list(ids) != self._shared:
            differ = sorted({*ids} ^ {*self._shared})[:3]
            pytest.exit(f"{node.gateway.id} has other tests than it was left, or in another order: {differ}", 3)

    def pytest_runtest_logstart(self) -> None:
        """Have the progress in all tests shown: xdist counts those of a worker."""
        self._session.testscollected = self._count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> object:
        """Wait for the workers and end them; the rest runs as if they had never been."""
        uncollected = session.testsfailed
        if not uncollected:
            self._workers.pytest_runtestloop()
        self._workers.pytest_sessionfinish()
        self._plugins.unregister(self._workers)
        session.testscollected = self._count
        # pytest runs nothing where something could not be collected, and takes those that failed by now for that.
        failed, session.testsfailed = session.testsfailed - uncollected, uncollected
        try:
            return self._plugins.getplugin("main").pytest_runtestloop(session)
        finally:
            session.testsfailed += failed
