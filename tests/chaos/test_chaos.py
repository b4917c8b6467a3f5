# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.chaos.__main__ import main


@pytest.mark.root
def test_whatever_ends_a_verb_leaves_nothing_behind() -> None:
    assert main(["--rounds", "20"]) == 0
