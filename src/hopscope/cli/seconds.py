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
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number
