# SPDX-License-Identifier: Apache-2.0
"""``causes``: whether ``hopscope explain`` names the right cause, where scenarios of known truth are recorded.

A case whose run was not what it was meant to be, by accounts other than hopscope's, as others took the CPUs away, is
run again on another port. ``python -m bench.causes --help`` has what is good for looking at single cases.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import groupby, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from click import ClickException

from bench.measure import table
from bench.tools import ToolError
from hopscope.errors import HopscopeError
from hopscope.main import cli
from hopscope.model.cause import CAUSES, UNKNOWN
from tests.lab.causes import catalogue
from tests.lab.causes.world import NETWORK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.lab.causes.case import Case, Ran

    # Command lines → what each printed, and why it failed.
    Ask = Callable[[Sequence[Sequence[str]]], Iterable[tuple[str, str]]]

CASES: Final = 200
SEED: Final = 1
# Of one recording.
_TOGETHER: Final = 25
_ATTEMPTS: Final = 5
_WANTED: Final = 0.95
_WORTH_A_WORD: Final = 0.01
_NONE: Final = "none"
_FAILED: Final = "failed"
_OURS: Final = (sys.executable, "-m", "hopscope")
_START_S: Final = 20
_ENDS_S: Final = 60
_LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Made:
    """A case that ran, and what others than hopscope say of it.

    Attributes
    ----------
    attempt
        That was as it was meant to be, or the last.
    why_not
        Why even the last was not.
    """

    case: Case
    ran: Ran
    attempt: int
    why_not: str

    @property
    def truth(self) -> str:
        """Name of the cause that there is."""
        return self.case.plan.main or _NONE

    def row(self) -> list[str]:
        """Return the cells of the table of truths."""
        shares = sorted(self.case.plan.proof(self.ran).items(), key=lambda item: -item[1])
        said = ", ".join(f"{cause} {share:.0%}" for cause, share in shares if share >= _WORTH_A_WORD)
        words = [str(self.case.number), self.case.name, self.truth, said or _NONE, self.why_not]
        return [*words, str(len(self.ran.messages)), f"{self.ran.median_ns / 1e6:.2f}"]


@dataclass(frozen=True, slots=True)
class Explained:
    """What ``hopscope explain`` says of a case.

    Attributes
    ----------
    named
        Its finding, "none", or "failed".
    why
        It failed.
    """

    made: Made
    named: str
    causes: Sequence[dict[str, Any]] = ()
    why: str = ""

    @property
    def right(self) -> bool:
        """Whether that is the truth, or where evidence lacks at least no other name."""
        if self.made.case.plan.lacking:
            return self.named in {UNKNOWN, _NONE, self.made.truth, self.made.case.plan.shows}
        return self.named == self.made.truth

    @property
    def culprit_is_right(self) -> bool:
        """Whether whom the truth blames is in what was said of the cause."""
        named = (f"{each['culprit']} {each['sentence']}" for each in self.causes if each["cause"] == self.made.truth)
        said = next(named, "")
        return self.made.case.plan.culprit in said

    def error(self) -> float:
        """Return how far the share of the main cause is off."""
        said = next((cause["share"] for cause in self.causes if cause["cause"] == self.made.truth), 0.0)
        return abs(float(said) - self.made.case.plan.proof(self.made.ran).get(self.made.truth, 0.0))


def run(rounds: int = CASES, seed: int = SEED) -> Iterator[str]:
    """Run so many cases, and yield the report."""
    yield from judged(list(catalogue.cases(rounds, seed)), seed)


def judged(cases: Sequence[Case], seed: int, ask: Ask | None = None) -> Iterator[str]:
    """Record cases, have them explained, and yield the report.

    Parameters
    ----------
    ask
        How to ask; by default the command is run in processes that have it imported, as to start it takes longest.
    """
    if ask:
        explained = _explained(cases, ask)
    else:
        # A fork would have locks of threads that it has not.
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            explained = _explained(cases, lambda asked: pool.map(_answer, asked))
    yield from _report(explained, seed)


def _explained(cases: Sequence[Case], ask: Ask) -> list[Explained]:
    explained: list[Explained] = []
    by_recording = sorted(cases, key=lambda case: case.plan.record)
    for record, alike in groupby(by_recording, key=lambda case: case.plan.record):
        while together := list(islice(alike, _TOGETHER)):
            with tempfile.TemporaryDirectory(prefix="hopscope-bench-") as name:
                folder = Path(name) / "trace"
                with recorded(folder, record) as recorder:
                    made = [make(case, recorder) for case in together]
                ports = [each.case.at(each.attempt) for each in made]
                answers = ask([("explain", str(folder), "--port", str(port), "--json") for port in ports])
                explained += [_read(each, *answer) for each, answer in zip(made, answers, strict=True)]
            if all(each.named == _FAILED for each in explained):
                raise ToolError(f"hopscope explain: {explained[0].why}")
    return explained


def _report(explained: Sequence[Explained], seed: int) -> Iterator[str]:
    counted = [each for each in explained if not each.made.why_not]
    yield f"{len(counted)} cases of seed {seed}, rows: the truth, columns: what was named\n{matrix(counted)}\n\n"
    yield figures(counted)
    for each in explained:
        if each.made.why_not:
            yield f"left out, as it never was what it was meant to be: {_told(each, seed)}; {each.made.why_not}\n"
        elif not each.right:
            yield f"wrong: {_told(each, seed)}\n"


def make(case: Case, recorder: Recorder | None = None) -> Made:
    """Run a case until it is what it was meant to be; under a recorder, once that has attached what the case needs."""
    for attempt in range(_ATTEMPTS):
        before = recorder.links() if recorder else set()
        ran = case.run(attempt, partial(recorder.await_more, before, case.plan.links) if recorder else None)
        why_not = case.as_meant(ran)
        if not why_not:
            break
    return Made(case, ran, attempt, why_not)


@dataclass(frozen=True, slots=True)
class Recorder:
    """A process that records."""

    pid: int

    def links(self) -> set[str]:
        """Return the programs that it has attached, by the kernel's numbers."""
        found: set[str] = set()
        for info in Path(f"/proc/{self.pid}/fdinfo").iterdir():
            with suppress(FileNotFoundError):  # it was closed meanwhile
                found.update(line for line in info.read_text().splitlines() if line.startswith("link_id:"))
        return found

    def await_more(self, before: set[str], count: int) -> None:
        """Wait until it has attached so many besides these."""
        deadline_s = time.monotonic() + _START_S
        while len(self.links() - before) < count:
            if time.monotonic() > deadline_s:
                raise ToolError("the recorder did not attach to the rules of netfilter")
            time.sleep(_LOOK_EVERY_S)


def truths(cases: Sequence[Case]) -> Iterator[str]:
    """Run cases without hopscope, and yield what clocks and the kernel say of them."""
    head = ("case", "scenario", "truth", "measured", "not as meant", "messages", "median, ms")
    yield table(head, [make(case).row() for case in cases], names=5) + "\n"


def matrix(explained: Sequence[Explained]) -> str:
    """Lay out how often which cause was named for which truth; a letter stands for a name."""
    order = [*(cause.name for cause in CAUSES), _NONE, _FAILED]
    pairs = Counter((_row_of(each), each.named) for each in explained)
    named = {name for _, name in pairs} | {row for row, _ in pairs if row in order}
    columns = sorted(named, key=lambda name: order.index(name) if name in order else len(order))
    letters = {name: chr(ord("a") + place) for place, name in enumerate(columns)}
    rows = sorted({row for row, _ in pairs}, key=lambda row: columns.index(row) if row in columns else len(columns))
    unseen = [name for name in columns if name not in rows]
    cells = [[letters.get(row, ""), row, *(str(pairs[row, name] or "") for name in columns)] for row in rows]
    cells += [[letters[name], name, *[""] * len(columns)] for name in unseen]
    return table(("", "", *letters.values()), cells, names=2)


def _row_of(explained: Explained) -> str:
    return "(evidence lacks)" if explained.made.case.plan.lacking else explained.made.truth


def figures(explained: Sequence[Explained]) -> str:
    """Return what share was named right, of each kind of case."""
    lacking = [each for each in explained if each.made.case.plan.lacking]
    held = [each for each in explained if each.made.case.plan.truth and not each.made.case.plan.lacking]
    kinds = {
        "right main cause": (held, _WANTED),
        "of these, with one cause": ([each for each in held if len(each.made.case.plan.truth) == 1], None),
        "of these, with two": ([each for each in held if len(each.made.case.plan.truth) > 1], None),
        "no wrong name where evidence lacks": (lacking, 1.0),
        "none named in the healthy": ([each for each in explained if not each.made.case.plan.truth], _WANTED),
    }
    rows = [
        [what, str(sum(each.right for each in some)), str(len(some)), _percent(some), f"{wanted:.0%}" if wanted else ""]
        for what, (some, wanted) in kinds.items()
    ]
    right = [each for each in held if each.right]
    text = table(("", "right", "of", "%", "wanted"), rows) + "\n"
    text += f"where evidence lacks: unknown in {sum(each.named == UNKNOWN for each in lacking)} of {len(lacking)}\n"
    if right:
        errors = [each.error() for each in right]
        culprits = sum(each.culprit_is_right for each in right)
        text += f"where the cause is right: its share is {statistics.median(errors):.1%} off (median), "
        text += f"{max(errors):.0%} at most; the culprit is right in {culprits} of {len(right)}\n"
    return text


def _percent(some: Sequence[Explained]) -> str:
    return f"{100 * sum(each.right for each in some) / len(some):.1f}" if some else "-"


def _told(explained: Explained, seed: int) -> str:
    """Return a case in words, and how to run it alone."""
    case = explained.made.case
    shares = case.plan.proof(explained.made.ran).items()
    truth = ", ".join(f"{cause} {share:.0%}" for cause, share in shares if share >= _WORTH_A_WORD)
    said = explained.why or ", ".join(f"{cause['cause']} {cause['share']:.0%}" for cause in explained.causes[:3])
    return (
        f'"{case.name}": {explained.made.truth} ({truth}), named {explained.named} ({said});'
        f" python -m bench.causes --seed {seed} --case {case.number}"
    )


@contextmanager
def recorded(folder: Path, record: Sequence[str]) -> Iterator[Recorder]:
    """Record all that happens in the worlds of cases."""
    argv = [*_OURS, "record", "-o", str(folder), *record, "--address", NETWORK, "--buffer", "64", "--counters", "0"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as recorder:
        try:
            deadline_s = time.monotonic() + _START_S
            while not (folder / "hopscope.json").exists():
                if recorder.poll() is not None or time.monotonic() > deadline_s:
                    raise ToolError("the recorder did not start")
                time.sleep(_LOOK_EVERY_S)
            yield Recorder(recorder.pid)
        finally:
            recorder.send_signal(signal.SIGINT)
            _, said = recorder.communicate(timeout=_ENDS_S)
        if recorder.returncode:
            raise ToolError(said)


def _answer(argv: Sequence[str]) -> tuple[str, str]:
    """Run a hopscope command in this process; return its output, and its error if it fails."""
    with redirect_stdout(StringIO()) as said:
        try:
            cli([*argv], prog_name="hopscope", standalone_mode=False)
        except (HopscopeError, ClickException) as error:
            return "", str(error)
    return said.getvalue(), ""


def _read(made: Made, said: str, why: str) -> Explained:
    if why:
        return Explained(made, _FAILED, why=why)
    found = json.loads(said)
    return Explained(made, found["finding"] or _NONE, found["causes"])


def main(argv: Sequence[str]) -> int:
    """Run some cases."""
    parser = argparse.ArgumentParser(prog="python -m bench.causes", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=CASES, metavar="N", help=f"how many [{CASES}]")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of their chance [{SEED}]")
    parser.add_argument("--only", choices=catalogue.SCENARIOS, metavar="NAME", help="of this scenario alone")
    parser.add_argument("--case", type=int, metavar="N", help="this one alone")
    parser.add_argument("--truth", action="store_true", help="do not record: show what clocks and the kernel say")
    parser.add_argument("--list", action="store_true", help="show the scenarios' names and end")
    options = parser.parse_args(argv)
    if options.list:
        sys.stdout.write("\n".join(catalogue.SCENARIOS) + "\n")
        return 0
    count = options.cases if options.case is None else options.case + 1
    cases = list(catalogue.cases(count, options.seed, options.only or ""))[options.case or 0 :]
    try:
        for text in truths(cases) if options.truth else judged(cases, options.seed):
            sys.stdout.write(text)
            sys.stdout.flush()
    except ToolError as error:
        sys.stderr.write(f"bench.causes: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
