# SPDX-License-Identifier: Apache-2.0
"""For all tests: who may run, how long a property may take, and that nothing stays behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

# On a busy machine the clock says nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `root` where they cannot run, saying why."""
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
