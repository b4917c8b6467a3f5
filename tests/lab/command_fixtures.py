# SPDX-License-Identifier: Apache-2.0
"""Commands that a test starts end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.command import end_started

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()
