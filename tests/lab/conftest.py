# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], bool], what: str) -> None: ...


@pytest.fixture
def eventually() -> Eventually:
    """Wait for what the kernel does in its own time; a bound for a hung test, not a measurement."""

    def wait(condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline_s, what
            time.sleep(0.01)

    return wait
