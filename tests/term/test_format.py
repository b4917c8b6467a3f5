# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.term import format as fmt


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (None, "-"),
        (0, "0ns"),
        (0.5, "0.50ns"),
        (1, "1.00ns"),
        (59.6, "59.6ns"),
        (999.4, "999ns"),
        (999.6, "1.00µs"),
        (41_300, "41.3µs"),
        (999_999, "1.00ms"),
        (16e9, "16.0s"),
        (1_234e9, "1230s"),
        (2e13, ">9999s"),
    ],
)
def test_time_has_three_digits_and_a_unit(duration_ns: float | None, text: str) -> None:
    assert fmt.time(duration_ns) == text


def test_time_with_gap_digits_and_ascii() -> None:
    assert fmt.time(1_020, unicode=False, gap=" ") == "1.02 us"
    assert fmt.time(954, digits=1) == "1µs"


@given(st.floats(0, 2.0**64))
def test_time_fits_its_column(duration_ns: float) -> None:
    assert len(fmt.time(duration_ns)) <= 6


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (23, "23"), (99_999, "99,999"), (100_000, "100k"), (999_600, "1.00M"), (1_234_567, "1.23M")],
)
def test_count_is_exact_below_a_hundred_thousand(number: int, text: str) -> None:
    assert fmt.count(number) == text


@given(st.integers(0, 2**64 - 1))
def test_count_fits_its_column(number: int) -> None:
    assert len(fmt.count(number)) <= 6


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(0, "0"), (23.0, "23"), (0.001, "<0.01"), (0.5, "0.5"), (999.4, "999"), (999.7, "1.00k"), (8_123, "8.12k")],
)
def test_rate_is_short(per_s: float, text: str) -> None:
    assert fmt.rate(per_s) == text


@given(st.floats(0, 1e12))
def test_rate_fits_its_column(per_s: float) -> None:
    assert len(fmt.rate(per_s)) <= 6


@pytest.mark.parametrize(("value", "text"), [(0, "0%"), (0.001, "<1%"), (0.71, "71%"), (1, "100%")])
def test_part_never_rounds_something_to_nothing(value: float, text: str) -> None:
    assert fmt.part(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0%"), (0.001, "<0.01%"), (0.02, "0.02%"), (0.83, "0.8%"), (9.97, "10%"), (95.2, "95%")]
)
def test_per_cent_has_two_digits(value: float, text: str) -> None:
    assert fmt.per_cent(value) == text


@pytest.mark.parametrize(
    ("number", "nouns", "shown"),
    [
        (0, ("packet",), "0 packets"),
        (1, ("packet",), "1 packet"),
        (2000, ("packet",), "2,000 packets"),
        (1, ("process", "processes"), "1 process"),
        (2, ("process", "processes"), "2 processes"),
        (1.0, ("second",), "1 second"),
        (0.5, ("second",), "0.5 seconds"),
    ],
)
def test_a_noun_agrees_with_its_number(number: float, nouns: tuple[str, ...], shown: str) -> None:
    assert fmt.plural(number, *nouns) == shown
