# SPDX-License-Identifier: Apache-2.0
"""``fleet``: how long questions on the histograms of a thousand hosts take, and whether what was planted is found.

Fleets of several sizes are made from a recording (:mod:`bench.made_fleet`); each question is a process, as users have
it. Time and memory are the whole process's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.made_fleet import DROPPING, SLOW_FACT, Planted, Recipe, make, shapes_of
from bench.measure import table
from bench.tools import ToolError
from hopscope.store.fleet.fleet import text_of_minute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS: Final = 3
_RECORDING: Final = Path(__file__).resolve().parent.parent / "tests" / "recordings" / "tcp-rx"
_HOSTS: Final = (100, 300, 1000)
_HOURS: Final = 24
_WANTED_S: Final = 5.0
# A process's peak is at least that of who started it: so somebody small does, and says what it took.
_RUN: Final = """
import json, os, sys, time
began_s = time.monotonic()
pid = os.fork() or os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
took_s = time.monotonic() - began_s
print(json.dumps([took_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]), file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class _Answer(NamedTuple):
    """What a question took, and what it found."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    rows: list[dict[str, object]]


def run(rounds: int = ROUNDS, sizes: Sequence[int] = _HOSTS) -> Iterator[str]:
    """Measure, and yield the report."""
    shapes = shapes_of(_RECORDING)
    answered: dict[int, dict[str, list[_Answer]]] = {}
    for hosts in sizes:
        with TemporaryDirectory(prefix="hopscope-bench-") as name:
            folder = Path(name) / "fleet"
            recipe = Recipe(hosts, _HOURS, shapes=shapes, slow=max(hosts * 7 // 1000, 2))
            began_s = time.monotonic()
            planted = make(folder, recipe)
            took_s = time.monotonic() - began_s
            yield _made(folder, recipe, planted, took_s)
            questions = _questions(planted)
            found = {title: [_ask(folder, words) for _ in range(rounds)] for title, words in questions.items()}
            answered[hosts] = found
            yield from _checked(planted, found)
    yield "\nseconds of a question (CPU seconds; peak MiB), the best of each\n"
    rows = []
    for title in answered[sizes[-1]]:
        best = [min(answered[hosts][title]) for hosts in sizes]
        cells = [f"{each.wall_s:.2f} ({each.cpu_s:.2f}; {each.peak_mib:.0f})" for each in best]
        rows.append([title, *cells, "yes" if best[-1].wall_s <= _WANTED_S else "no"])
    yield table(("", *(f"{hosts:,} hosts" for hosts in sizes), f"≤ {_WANTED_S:g} s"), rows) + "\n"


def _made(folder: Path, recipe: Recipe, planted: Planted, took_s: float) -> str:
    size = sum(each.stat().st_size for each in folder.rglob("*.parquet"))
    minutes = sum(each.stat().st_size for each in folder.rglob("hop_minutes.parquet"))
    hops = len(recipe.shapes)
    of_row = minutes / (recipe.hosts * recipe.hours * 60 * hops)
    return (
        f"\n{recipe.hosts:,} hosts, {recipe.hours} hours, {hops} hops, {planted.samples / 1e9:.1f} thousand million"
        f" durations: made in {took_s:.0f} s; {size / recipe.hosts / recipe.hours * 24 / 1e6:.3f} MB a host and day,"
        f" {of_row:.1f} bytes a hop and minute\n"
    )


def _questions(planted: Planted) -> dict[str, tuple[str, ...]]:
    return {
        "hosts": ("hosts",),
        "differs, all hops": ("differs",),
        "differs, a hop by rack": ("differs", "--hop", planted.hop, "--group-by", "rack"),
        "common": ("common", "--hosts", ",".join(planted.slow)),
        "began": ("began", "--hosts", planted.late, "--hop", planted.hop),
        "drops by driver": ("drops", "--group-by", "driver"),
        "objective by role": ("objective", "--hop", planted.hop, "--above", "5us", "--group-by", "role"),
    }


def _ask(folder: Path, words: Sequence[str]) -> _Answer:
    """Run a question in a process of its own."""
    command = [sys.executable, "-m", "hopscope", "fleet", words[0], str(folder), "--json", *words[1:]]
    done = subprocess.run([sys.executable, "-c", _RUN, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"hopscope fleet {' '.join(words)} ended with {done.returncode}")
    wall_s, cpu_s, peak_mib = json.loads(done.stderr.splitlines()[-1])
    return _Answer(wall_s, cpu_s, peak_mib, [json.loads(line) for line in done.stdout.splitlines()])


def _checked(planted: Planted, found: dict[str, list[_Answer]]) -> Iterator[str]:
    """Say whether what was planted was found, and nothing else."""
    rows = {title: answers[0].rows for title, answers in found.items()}
    hosts = {str(row["group"]) for row in rows["differs, all hops"]}
    missed, others = set(planted.slow) - hosts, hosts - {*planted.slow, planted.late}
    yield (
        f"slower hosts: {len(planted.slow)} planted, {len(planted.slow) - len(missed)} found, {len(others)} others"
        f" found; on another hop: {sum(row['hop'] != planted.hop for row in rows['differs, all hops'])}\n"
    )
    facts = [f"{row['fact']} = {row['value']}" for row in rows["common"]]
    yield f"in common: {SLOW_FACT} = off planted, {', '.join(facts) or 'nothing'} found\n"
    change = rows["began"][0] if rows["began"] else {}
    yield (
        f"began: planted {text_of_minute(planted.began)}, found {change.get('began')} ({change.get('earliest')} to"
        f" {change.get('latest')})\n"
    )
    first = rows["drops by driver"][0]
    yield f"drops: {DROPPING} planted with 24 times as many, {first['group']} found with {first['ratio']}\n"
