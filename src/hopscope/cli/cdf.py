# SPDX-License-Identifier: Apache-2.0
"""``hopscope cdf``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.analysis.cdf import Curve


@click.command("cdf", short_help="Compare recorded runs: distributions of a hop's time.")
@click.option("--svg", type=click.File("w", encoding="utf-8", lazy=False), metavar="FILE", help="Write a picture, too.")
@click.argument("hops", metavar="HOP[,HOP...]")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
def command(*, svg: TextIO | None, hops: str, files: tuple[Path, ...]) -> int:
    """Compare how a hop's time is distributed in two or more runs, or several hops of one run.

    The files are what `hopscope rx --json` and `hopscope tx --json` printed; the last total of each counts, all its
    groups together. Printed are the cumulative distributions, their percentiles, by how much p50 and p99 moved, and
    how far apart the distributions are (Kolmogorov-Smirnov distance), with the error that the histograms' buckets
    leave. Needs no rights and no kernel support.

    \b
    hopscope cdf tx.ack before.jsonl after.jsonl
    hopscope cdf tx.sched,tx.ack run.jsonl --svg run.svg
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.cli.curves import MOST, show_curves  # noqa: PLC0415 # numpy only when it is needed

    names = list(dict.fromkeys(hops.split(",")))
    if len(names) * len(files) > MOST:
        raise UsageError(f"At most {MOST} curves fit a plot", "Name fewer hops or files")
    show_curves(", ".join(names), _curves(names, files), svg)
    return 0


def _curves(hops: Sequence[str], files: Sequence[Path]) -> list[Curve]:
    from hopscope.analysis.cdf import Curve  # noqa: PLC0415
    from hopscope.analysis.runs import hop_histogram, last_total  # noqa: PLC0415

    alike = len({file.name for file in files}) < len(files)
    curves = []
    for file in files:
        total = last_total(file)
        for hop in hops:
            name = [hop] if len(files) == 1 else [str(file) if alike else file.name, *([hop] if len(hops) > 1 else [])]
            curves.append(Curve(" ".join(name), hop_histogram(file, total, hop)))
    return curves
