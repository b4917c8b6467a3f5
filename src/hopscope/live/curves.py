# SPDX-License-Identifier: Apache-2.0
"""Print cumulative distributions, and write them as a picture where that is asked for."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

from hopscope.term.cdf import LETTERS, render_cdf
from hopscope.term.cdf_svg import render_svg
from hopscope.term.format import plural
from hopscope.term.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.cdf import Curve

MOST: Final = len(LETTERS)


def show_curves(title: str, curves: Sequence[Curve], svg: TextIO | None) -> None:
    """Print at most `MOST` curves, and say how many more there are; write the picture to an open file, if any."""
    terminal = Terminal.of(sys.stdout, os.environ)
    lines = [render_cdf(curves[:MOST], terminal)]
    if len(curves) > MOST:
        lines += terminal.fold(f"{plural(len(curves) - MOST, 'more curve')} not shown: those with the fewest samples")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    if svg:
        svg.write(render_svg(title, curves[:MOST]))
