# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import click
import pytest

from hopscope.live.seconds import Seconds


def test_number_in_the_range_is_taken() -> None:
    assert Seconds(0.1, 60).convert("0.5", None, None) == 0.5


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "0", "61", "one", ""])
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Seconds(0.1, 60).convert(text, None, None)
