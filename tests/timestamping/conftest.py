# SPDX-License-Identifier: Apache-2.0
"""Ways that packets can go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from tests.timestamping.pairs import LO_4, LO_6, Path, veth

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.fixture(
    params=[
        "lo-4",
        "lo-6",
        pytest.param("veth-4", marks=pytest.mark.root),
        pytest.param("veth-6", marks=pytest.mark.root),
    ]
)
def path(request: pytest.FixtureRequest) -> Path:
    """Each way: the host's lo, which needs no rights, and the lab's veth."""
    if request.param.startswith("lo"):
        return LO_4 if request.param == "lo-4" else LO_6
    return veth(request.getfixturevalue("lab"), int(request.param[-1]))


@pytest.fixture(params=[LO_4, LO_6], ids=["4", "6"])
def lo(request: pytest.FixtureRequest) -> Path:
    made: Path = request.param
    return made
