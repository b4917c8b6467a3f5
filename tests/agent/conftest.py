# SPDX-License-Identifier: Apache-2.0
"""Certificates, made once; and who is interrupted."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.agent.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="session")
def ours(certificates: Path) -> Authority:
    """The CA of agents and clients."""
    return Authority.new(certificates / "ours")


@pytest.fixture(scope="session")
def theirs(certificates: Path) -> Authority:
    """Another one."""
    return Authority.new(certificates / "theirs")


@pytest.fixture
def interrupt() -> Iterator[Callable[[type[BaseException]], None]]:
    """Yield what has this thread interrupted in a moment, by an error that a signal's handler raises."""
    raised: list[type[BaseException]] = []

    def handle(_number: int, _frame: object) -> None:
        raise raised[0]

    def in_a_moment(error: type[BaseException]) -> None:
        raised.append(error)
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    before = signal.signal(signal.SIGALRM, handle)
    yield in_a_moment
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
