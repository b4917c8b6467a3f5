# SPDX-License-Identifier: Apache-2.0
"""``hopscope cdf``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TextIO

import click

from hopscope.errors import UsageError
from hopscope.live.help import OTHER, OUTPUT, Command, option, section
from hopscope.live.paths import OUTPUT_FILE, PATH
from hopscope.recorded.options import limits_option, opened

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hopscope.model.cdf import Curve


# Of `report hops`.
_GROUPS: Final = ("flow", "interface", "cpu", "process", "netns", "host")


@click.command(
    "cdf",
    cls=Command,
    short_help="Compare the time distributions of a hop between runs.",
    examples=(
        ("Compare a hop before and after a change", "hopscope cdf tx.ack before.jsonl after.jsonl"),
        ("Compare the messages of two recordings, and draw them", "hopscope cdf message before after --svg cdf.svg"),
    ),
)
@section(
    OUTPUT,
    option(
        "-g",
        "--group-by",
        "by",
        type=click.Choice(_GROUPS),
        metavar="KEY",
        help="Of recordings: one curve per flow, interface, cpu, process, netns or host.",
    ),
    option("--svg", type=OUTPUT_FILE, metavar="FILE", help="Also write a picture."),
)
@section(OTHER, limits_option())
@click.argument("hops", metavar="HOP[,HOP...]")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
def command(*, svg: TextIO | None, hops: str, files: tuple[Path, ...], by: str | None) -> int:
    """Compare how a hop's time is distributed in two or more runs, or several hops of one run.

    Each FILE is the output of `hopscope rx --json` or `hopscope tx --json`, whose last total is used, with all groups
    added up; or a recording, which has the hops of `hopscope report hops`, such as `rx.core:rx.l4` (or `rx.l4`, if no
    other one ends there), and `message`, from the send call to the read. Shows the cumulative distributions, their
    percentiles, the changes of p50 and p99, and the distance between the distributions (Kolmogorov-Smirnov), with the
    error due to the histograms' buckets. No privileges are needed.
    """
    from hopscope.live.curves import MOST, show_curves  # noqa: PLC0415 # numpy only when it is needed

    names = list(dict.fromkeys(hops.split(",")))
    if len(names) * len(files) > MOST:
        raise UsageError(f"A plot has room for at most {MOST} curves", "Give fewer hops or files")
    show_curves(", ".join(names), _curves(names, files, by, MOST // (len(names) * len(files))), svg)
    return 0


def _curves(hops: Sequence[str], files: Sequence[Path], by: str | None, most: int) -> list[Curve]:
    alike = len({file.name for file in files}) < len(files)
    found = []
    for number, file in enumerate(files):
        for curve in _recorded(hops, files[number:], by, most) if file.is_dir() else _live(hops, file, by):
            shown = str(file) if alike else file.name
            name = shown if curve.name in hops and len(hops) == 1 else f"{shown} {curve.name}"
            found.append(curve if len(files) == 1 else replace(curve, name=name))
    return found


def _recorded(hops: Sequence[str], files: Sequence[Path], by: str | None, most: int) -> list[Curve]:
    """Return the curves of the first of these."""
    from hopscope.verbs.cdf.recorded import curves  # noqa: PLC0415 # DuckDB when it is needed

    with opened(files[0], beside=[each for each in files[1:] if each.is_dir()]) as trace:
        return [curve for hop in hops for curve in curves(trace, hop, by, most)]


def _live(hops: Sequence[str], file: Path, by: str | None) -> list[Curve]:
    from hopscope.model.cdf import Curve  # noqa: PLC0415
    from hopscope.model.runs import hop_histogram, last_total  # noqa: PLC0415

    if by:
        raise UsageError(f"{file} is no recording, and --group-by is for recordings", "Leave it out")
    total = last_total(file)
    return [Curve(hop, hop_histogram(file, total, hop)) for hop in hops]
