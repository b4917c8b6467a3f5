# SPDX-License-Identifier: Apache-2.0
"""Tests that only compute run in several processes (``-n auto``), before the others, which need the machine alone.

The processes are pytest-xdist's, which knows nothing of tests that it is not to run: this collects in the main process
as well, which leaves to the workers what they take, and runs the rest when they are done. So there is one summary, one
exit code, one file of results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xdist.dsession import DSession
    from xdist.workermanage import WorkerController

HERE = Path(__file__).parent
# Folders and modules whose tests, but for those marked `root` or `spark`, tell nothing by time and change nothing
# outside.
COMPUTING = frozenset({
    "analysis", "cli", "probes", "store", "views", "vmtest", "test_house.py", "test_shared.py",
    "test_trace_docs.py",
})  # fmt: skip


def may_share(item: pytest.Item) -> bool:
    """Whether a test does not mind what else runs."""
    place = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    return place in COMPUTING and not any(map(item.get_closest_marker, ("root", "spark")))


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
