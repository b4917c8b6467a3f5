# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.model.categories import CATEGORIES
from hopscope.term.category_colours import COLOURS, NEUTRAL

INK = "#14181c"


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_category_has_a_colour_of_its_own() -> None:
    assert COLOURS.keys() == set(CATEGORIES)
    assert len({*COLOURS.values(), NEUTRAL}) == len(COLOURS) + 1


@pytest.mark.parametrize("colour", [*COLOURS.values(), NEUTRAL])
def test_text_can_be_read_on_it(colour: str) -> None:
    assert (luminance(colour) + 0.05) / (luminance(INK) + 0.05) >= 6
