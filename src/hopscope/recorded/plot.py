# SPDX-License-Identifier: Apache-2.0
"""The option ``--plot`` of reports: a picture besides what is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from hopscope.errors import UsageError
from hopscope.live.help import OUTPUT, option, section

if TYPE_CHECKING:
    from collections.abc import Callable

_PNG: Final = ".png"


class Picture:
    """A file that is open before the process is confined (:mod:`hopscope.recorded.confine`).

    Parameters
    ----------
    path
        Its name: what ends in ``.png`` is a bitmap, everything else SVG.
    out
        Where its bytes go.
    """

    def __init__(self, path: str, out: BinaryIO) -> None:
        self._png = path.lower().endswith(_PNG)
        self._out = out

    def write(self, svg: str) -> None:
        """Write a picture."""
        self._out.write(_bitmap(svg) if self._png else svg.encode())
        self._out.flush()


class _PictureFile(click.File):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 # as click's
        if str(value).lower().endswith(_PNG):
            _require_bitmaps()
        return Picture(str(value), cast("BinaryIO", super().convert(value, param, ctx)))


def plot_option(told: str) -> Callable[[Any], Any]:
    """Add ``--plot``; the function of the command gets a :class:`Picture`, or None."""
    kind = _PictureFile("wb", lazy=False)
    return section(OUTPUT, option("--plot", type=kind, metavar="FILE.svg|FILE.png", help=told))


def _require_bitmaps() -> None:
    """Raise a UsageError where nothing is installed that can draw SVG into a bitmap."""
    try:
        import resvg_py  # noqa: F401, PLC0415 # an extra
    except ImportError as error:
        advice = "Name a file that ends in .svg, or install it: pip install 'hopscope[png]'"
        raise UsageError("A bitmap needs resvg-py", advice) from error


def _bitmap(svg: str) -> bytes:
    import resvg_py  # noqa: PLC0415 # as above

    return bytes(resvg_py.svg_to_bytes(svg_string=svg))
