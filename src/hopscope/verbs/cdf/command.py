# SPDX-License-Identifier: Apache-2.0
"""``hopscope cdf``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import click

from hopscope.errors import UsageError
from hopscope.live.help import OUTPUT, Command, option, section
from hopscope.live.paths import OUTPUT_FILE, PATH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hopscope.model.cdf import Curve


@click.command(
    "cdf",
    cls=Command,
    short_help="Compare the time distributions of a hop between runs.",
    examples=(
        ("Compare a hop before and after a change", "hopscope cdf tx.ack before.jsonl after.jsonl"),
        ("Compare two hops of one run, and write a picture", "hopscope cdf tx.sched,tx.ack run.jsonl --svg run.svg"),
    ),
)
@section(
    OUTPUT,
    option("--svg", type=OUTPUT_FILE, metavar="FILE", help="Also write a picture."),
)
@click.argument("hops", metavar="HOP[,HOP...]")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
def command(*, svg: TextIO | None, hops: str, files: tuple[Path, ...]) -> int:
    """Compare how a hop's time is distributed in two or more runs, or several hops of one run.

    Each FILE is the output of `hopscope rx --json` or `hopscope tx --json`; its last total is used, with all groups
    added up. Shows the cumulative distributions, their percentiles, the changes of p50 and p99, and the distance
    between the distributions (Kolmogorov-Smirnov), with the error due to the histograms' buckets. No privileges are
    needed.
    """
    from hopscope.live.curves import MOST, show_curves  # noqa: PLC0415 # numpy only when it is needed

    names = list(dict.fromkeys(hops.split(",")))
    if len(names) * len(files) > MOST:
        raise UsageError(f"A plot has room for at most {MOST} curves", "Give fewer hops or files")
    show_curves(", ".join(names), _curves(names, files), svg)
    return 0


def _curves(hops: Sequence[str], files: Sequence[Path]) -> list[Curve]:
    from hopscope.model.cdf import Curve  # noqa: PLC0415
    from hopscope.model.runs import hop_histogram, last_total  # noqa: PLC0415

    alike = len({file.name for file in files}) < len(files)
    curves = []
    for file in files:
        total = last_total(file)
        for hop in hops:
            name = [hop] if len(files) == 1 else [str(file) if alike else file.name, *([hop] if len(hops) > 1 else [])]
            curves.append(Curve(" ".join(name), hop_histogram(file, total, hop)))
    return curves
