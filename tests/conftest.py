# SPDX-License-Identifier: Apache-2.0
"""For all tests: who may run, how long a property may take, and that nothing stays behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import leftovers
import shared

if TYPE_CHECKING:
    from collections.abc import Iterator

# On a busy machine the clock says nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have the tests that may share the machine run by workers, if there are any."""
    if workers := session.config.pluginmanager.getplugin("dsession"):
        session.config.pluginmanager.register(shared.InTurn(session, workers))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked `root` where they cannot run, saying why; workers have those that may share the machine."""
    if hasattr(config, "workerinput"):
        items[:] = filter(shared.may_share, items)
    marked = [item for item in items if item.get_closest_marker("root")]
    reason = leftovers.why_no_bpf() if marked else ""
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    """Fail the session if its tests leave programs, links, processes, namespaces or devices behind."""
    leftovers.adopt_orphans()
    before = leftovers.seen()
    yield
    left = leftovers.left_since(before)
    assert not left, f"left behind by the tests: {', '.join(sorted(left))}"
