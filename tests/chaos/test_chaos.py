# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.root
def test_whatever_ends_a_verb_leaves_nothing_behind() -> None:
    words = [sys.executable, "-m", "tests.chaos", "--rounds", "20"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
