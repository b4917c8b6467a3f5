# SPDX-License-Identifier: Apache-2.0
"""Reports over the recordings of many hosts, for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.live.arguments import check_names
from hopscope.verbs.fleet.raw.asked import Asked
from hopscope.verbs.fleet.raw.asking import ask, here, on_session
from hopscope.verbs.fleet.raw.command import GROUPS, MOST, NAMES, realtime_ns

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from hopscope.model.report import Report


def fleet_report(  # noqa: PLR0913 # one parameter an option
    path: str | os.PathLike[str],
    question: str,
    *,
    spark: SparkSession | None = None,
    hosts: Sequence[str] = (),
    from_: datetime | None = None,
    until: datetime | None = None,
    group_by: str | None = None,
    limit: int | None = None,
    limits: float = 1.0,
) -> Report:
    """Return a report over the recordings of a fleet: what `hopscope fleet report QUESTION` shows.

    Parameters
    ----------
    path
        The directory that `hopscope fleet add --raw` filled.
    question
        Such as ``hops`` or ``drops``; docs/fleet-recordings.md describes them all, with their columns.
    spark
        A session whose executors answer; without it, processes on this machine.
    hosts
        Only these: names, or patterns with ``*``.
    from_, until
        Only this time of the hosts' wall clocks; without a zone, UTC.
    group_by
        ``host``: a row for each host.
    limit
        Maximum rows; of the slowest packets and messages, how many, 1,000 without it.
    limits
        A factor that raises the limits on a recording's size, as of :func:`hopscope.open`.

    Returns
    -------
    Report
        Its notes name the recordings that could not be read.

    Raises
    ------
    UsageError
        There is no such fleet or question, or it has nothing of such hosts or that time.

    Examples
    --------
    >>> report = hopscope.fleet_report("fleet", "drops", group_by="host")
    """
    check_names("question", question, NAMES, hint=f"There are {', '.join(NAMES)}")
    if group_by is not None:
        check_names("group", group_by, GROUPS, hint="Give host, or none")
    from_ns, until_ns = (None if time is None else realtime_ns(time) for time in (from_, until))
    asked = Asked(question, group_by is not None, from_ns, until_ns, limit, limit or MOST, limits)
    return ask(Path(path), asked, hosts, here() if spark is None else on_session(spark)).report
