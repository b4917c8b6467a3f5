# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests import waiting

if TYPE_CHECKING:
    from collections.abc import Callable


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], bool], what: str) -> object: ...


@pytest.fixture
def eventually() -> Eventually:
    """Return what waits for what the kernel does in its own time."""
    return waiting.eventually
