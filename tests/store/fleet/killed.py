# SPDX-License-Identifier: Apache-2.0
"""Kills a process that adds to a fleet's directory and packs it, again and again, and counts what is there.

``python killed.py DIRECTORY ROUNDS SEED`` prints how many were killed before they had ended. It is a process of its
own, as the engine has threads, which a fork does not copy.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.histogram import Histogram
from hopscope.store.fleet.batches import add_rows, compact, identity
from hopscope.store.fleet.fleet import Fleet
from hopscope.store.fleet.place import Place
from hopscope.verbs.fleet.add import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR: Final = 498_648
# Prime, so that no sum of others is one of them.
COUNTS: Final = (2, 3, 5, 7, 11, 13)
# So often in an hour.
_KILLS: Final = 4
_LONGEST_S: Final = 0.3


def work(folder: Path, hour: int) -> None:
    """Add what is not there yet, pack after each, and remove what was packed."""
    place = Place(folder)
    for host, count in enumerate(COUNTS):
        minute = hour * 60 + host
        rows = rows_of(
            f"host-{host}",
            "boot",
            {("hop", minute, ""): Histogram.from_values([1000 * host] * count)},
            {minute: (60 * 10**9, "hops drops", 0, 1.0)},
            {(minute, "NO_SOCKET", "udp_rcv"): count},
            {},
        )
        add_rows(place, hour, identity(host, hour), rows)
        compact(place, before_hour=hour + 1, grace_s=0)


def counts(folder: Path, hours: range) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return host and hour → the samples in its minutes, in their buckets, in its hours, and its drops."""
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    try:
        with Fleet(folder, from_hour=hours.start, until_hour=hours.stop) as fleet:
            for query in (
                "SELECT host, minute // 60, sum(count), sum(list_sum(counts)) FROM hop_minutes GROUP BY ALL",
                "SELECT host, hour, sum(count), sum(list_sum(counts)) FROM hop_hours GROUP BY ALL",
                "SELECT host, minute // 60, sum(count) FROM drops GROUP BY ALL",
            ):
                for host, hour, *figures in fleet.rows(query):
                    found[host, hour] = (*found.get((host, hour), ()), *map(int, figures))
    except UsageError:  # there is nothing
        return {}
    return found


def check(folder: Path, known: Path, hours: range) -> None:
    """Fail unless each host and hour is there once or not at all, and nothing is gone."""
    found = counts(folder, hours)
    for (host, hour), figures in found.items():
        assert figures == (COUNTS[int(host[-1])],) * 5, (host, hour, figures)
    before = set(known.read_text().split()) if known.exists() else set()
    now = {f"{host}/{hour}" for host, hour in found}
    gone = {each for each in before - now if int(each.partition("/")[2]) in hours}
    assert not gone, gone
    known.write_text(" ".join(before | now))


def forked(function: Callable[[], None], after_s: float | None = None) -> int:
    """Run it in a process; kill that after so long."""
    if not (pid := os.fork()):
        try:
            function()
        except BaseException:  # noqa: BLE001 # whatever it is, this process ends
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 # moments, no secrets
    killed = 0
    known = folder.parent / "known"
    every = range(HOUR, HOUR + -(-rounds // _KILLS))
    for number in range(rounds):
        hour = HOUR + number // _KILLS
        killed += forked(lambda: work(folder, hour), chance.random() * _LONGEST_S) == -signal.SIGKILL  # noqa: B023
        assert forked(lambda: check(folder, known, range(hour, hour + 1))) == 0  # noqa: B023 # it runs at once
    for hour in every:
        assert forked(lambda: work(folder, hour)) == 0  # noqa: B023 # as above
    assert forked(lambda: check(folder, known, every)) == 0
    assert len(known.read_text().split()) == len(COUNTS) * len(every)
    sys.stdout.write(f"{killed}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
