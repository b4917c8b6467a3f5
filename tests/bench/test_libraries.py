# SPDX-License-Identifier: Apache-2.0
"""What a recorded call takes more, out of figures made up here."""

from __future__ import annotations

from bench.libraries import VARIANTS, calls_table


def test_a_variant_is_held_against_what_is_not_recorded_in_the_same_round() -> None:
    rounds = [
        {name: {"push": first + 100.0 * number, "sub": first + 900.0 * number} for number, name in enumerate(VARIANTS)}
        for first in (20.0, 40.0)
    ]
    lines = [line.split() for line in calls_table(rounds).splitlines()[1:]]
    assert lines[0] == ["not", "recorded", "30", "30"]
    assert lines[1] == ["recorded", "130", "+100", "(+100..+100)", "930", "+900", "(+900..+900)"]
