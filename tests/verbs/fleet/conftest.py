# SPDX-License-Identifier: Apache-2.0
"""A fleet with known effects, made once for all tests that ask questions of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.made_fleet import Planted, Recipe, make, shapes_of

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    """Return the directory, and what is known of it."""
    folder = tmp_path_factory.mktemp("fleets") / "fleet"
    shapes = shapes_of(RECORDINGS / "tcp-rx", most=2)
    return folder, make(folder, Recipe(60, 24, per_minute=300, slow=5, slower=6.0, shapes=shapes))
