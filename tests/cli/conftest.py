# SPDX-License-Identifier: Apache-2.0
"""A network of our own, with traffic that a test asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.command import end_started
from hopscope.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made
