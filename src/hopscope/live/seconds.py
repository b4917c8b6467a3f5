# SPDX-License-Identifier: Apache-2.0
"""Types of options that are numbers in a range. No comparison is true of "nan", which would pass a range of click's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class Factor(click.FloatRange):
    """A factor."""

    name = "factor"
    _what = "a number, e.g. 2 or 10"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> float:  # noqa: ANN401 # as click's
        """Return the number, or fail with a sentence."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not {self._what}.", param, ctx)
        return float(super().convert(number, param, ctx))


class Seconds(Factor):
    """A number of seconds."""

    name = "seconds"
    _what = "a number of seconds, e.g. 5 or 0.5"
