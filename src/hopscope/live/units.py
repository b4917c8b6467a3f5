# SPDX-License-Identifier: Apache-2.0
"""Types of options: an age, a duration and a size, each a number with its unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

if TYPE_CHECKING:
    from click import Context, Parameter

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


class _WithUnit(click.ParamType[float]):
    """A number with a unit; the value is in the smallest one."""

    what: str
    examples: str
    units: ClassVar[dict[str, int]]

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> float:  # noqa: ANN401 # as click's
        """Return the number, or fail with a sentence."""
        if isinstance(value, int | float):
            return value
        found = _NUMBER.fullmatch(value.strip())
        if not found or found[2] not in self.units:
            self.fail(f"{value!r} is not {self.what}, e.g. {self.examples}.", param, ctx)
        return float(found[1]) * self.units[found[2]]


class Age(_WithUnit):
    """A time in seconds."""

    name = "age"
    what = "an age"
    examples = "12h or 7d"
    units: ClassVar = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Duration(_WithUnit):
    """A short time in nanoseconds."""

    name = "duration"
    what = "a duration"
    examples = "500us or 10ms"
    units: ClassVar = {"ns": 1, "us": 1000, "µs": 1000, "ms": 1_000_000, "s": 1_000_000_000}


class Size(_WithUnit):
    """A number of bytes; units are powers of 1024."""

    name = "size"
    what = "a size"
    examples = "500M or 10G"
    units: ClassVar = {
        unit + suffix: 1 << 10 * (power + 1) for power, unit in enumerate("KMGT") for suffix in ("", "iB")
    }
