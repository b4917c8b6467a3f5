# SPDX-License-Identifier: Apache-2.0
"""Commands that a test starts end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.command import end_started, environ
from tests.lab.preloaded import preloaded

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _commands_are_preloaded() -> Iterator[None]:
    with preloaded(environ()):
        yield


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()
