# SPDX-License-Identifier: Apache-2.0
"""A type of option."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class Seconds(click.FloatRange):
    """A number of seconds in a range. No comparison is true of "nan", which would pass a range."""

    name = "seconds"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> float:  # noqa: ANN401 # as click's
        """Return the number, or fail with a sentence."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a number of seconds, e.g. 5 or 0.5.", param, ctx)
        return float(super().convert(number, param, ctx))
