# SPDX-License-Identifier: Apache-2.0
"""Numbers as short text of bounded width."""

from __future__ import annotations

from typing import Final

MISSING: Final = "-"

_EXACT_BELOW = 100_000
_SUFFIXES = ("", "k", "M", "G", "T", "P", "E")
_TIME_UNITS = ("ns", "µs", "ms", "s")
_MOST_S = 9999


def time(duration_ns: float | None, *, unicode: bool = True, gap: str = "", digits: int = 3) -> str:
    """Return a duration with 3 significant digits and its unit, at most 6 columns: ``41.3µs``.

    None is ``-``. `gap` goes between number and unit.
    """
    if duration_ns is None:
        return MISSING
    if not duration_ns:
        return f"0{gap}ns"
    mantissa, power = _rounded(duration_ns, digits)
    group = min(max(power, 0) // 3, len(_TIME_UNITS) - 1)
    unit = _TIME_UNITS[group] if unicode else _TIME_UNITS[group].replace("µ", "u")
    if duration_ns > _MOST_S * 1e9:
        return f">{_MOST_S}{gap}{unit}"
    value = mantissa * 10.0 ** (power - 3 * group)
    return f"{value:.{_decimals(value, digits)}f}{gap}{unit}"


def count(number: int) -> str:
    """Return a count, at most 6 columns: exact below 100,000, else 3 significant digits and k, M, G, …."""
    if number < _EXACT_BELOW:
        return f"{number:,}"
    return _suffixed(number)


def plural(number: float, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, which agrees with it: ``1 packet``, ``2,000 packets``.

    `nouns` is the plural where it is not the noun with an ``s``.
    """
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun_of(number, noun, nouns)}"


def noun_of(number: float, noun: str, nouns: str = "") -> str:
    """Return a noun alone as it agrees with a number."""
    return noun if number == 1 else nouns or f"{noun}s"


def rate(per_s: float) -> str:
    """Return a rate, at most 5 columns: ``23``, ``0.5``, ``8.12k``."""
    smallest = 0.01
    if 0 < per_s < smallest:
        return f"<{smallest}"
    return f"{per_s:.3g}" if per_s < 999.5 else _suffixed(per_s)


def part(value: float) -> str:
    """Return a part (0..1) as a whole percentage, at most 4 columns; ``<1%`` for what would round to nothing."""
    return "<1%" if 0 < value < 0.005 else f"{value:.0%}"


def per_cent(value: float) -> str:
    """Return a percentage for a sentence: two digits, ``0.8%``, ``<0.01%``."""
    for limit, decimals in ((9.95, 0), (0.095, 1), (0.0095, 2)):
        if value >= limit:
            return f"{value:.{decimals}f}%"
    return "<0.01%" if value else "0%"


def _suffixed(number: float) -> str:
    mantissa, power = _rounded(number, 3)
    group = min(power // 3, len(_SUFFIXES) - 1)
    value = mantissa * 10.0 ** (power - 3 * group)
    return f"{value:.{_decimals(value, 3)}f}{_SUFFIXES[group]}"


def _rounded(value: float, digits: int) -> tuple[float, int]:
    """Return mantissa and power of ten after rounding, so that 999.9 is 1.00 of the next unit and not 1000."""
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return float(mantissa), int(power)


def _decimals(value: float, digits: int) -> int:
    whole = len(str(int(value + 1e-9)))
    return max(digits - whole, 0)
