# SPDX-License-Identifier: Apache-2.0
"""Give hopscope what it has never seen, and see that it says so in a sentence.

``python -m tests.fuzz --inputs 2000 --seed 7``: recordings, command lines, texts, what the kernel and what an agent
says, drawn by Hypothesis from a seed that is printed. Whatever is wrong is made as small as it can be and printed as
Python; ``kept.py`` takes it. Exits with 1 if something was wrong.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.conversations import conversations
from tests.fuzz.kernel_bytes import dumps
from tests.fuzz.lines import lines
from tests.fuzz.recordings import cases, columns
from tests.fuzz.texts import texts_of_languages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis import strategies as st


class Case(Protocol):
    """Something that hopscope is given."""

    def check(self) -> list[str]:
        """Return what is wrong."""


# What is drawn, and how many of so many inputs: a text takes microseconds, a recording a good part of a second.
FAMILIES: Final[dict[str, tuple[Callable[[], st.SearchStrategy[Any]], float]]] = {
    "recordings": (lambda: cases, 0.07),
    "columns": (columns, 0.03),
    "lines": (lambda: lines, 0.1),
    "texts": (lambda: texts_of_languages, 0.4),
    "kernel": (dumps, 0.35),
    "agent": (lambda: conversations, 0.05),
}
# Inputs from one seed; the next ones are from the next.
_BATCH: Final = 500


class _WrongError(AssertionError):
    """Something is wrong with a case."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, and return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description="Give hopscope what it has never seen.")
    parser.add_argument("--inputs", type=int, default=2000, help="how many, all families together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of what is drawn")
    parser.add_argument(
        "--only", choices=FAMILIES, action="append", help="families that are drawn, each in this number"
    )
    asked = parser.parse_args(arguments)
    _say(f"seed {asked.seed}")
    found = 0
    for name, (_, share) in FAMILIES.items():
        if not asked.only or name in asked.only:
            found += run(name, asked.inputs if asked.only else int(asked.inputs * share), asked.seed)
    return int(found > 0)


def run(name: str, inputs: int, seed: int) -> int:
    """Run so many inputs of a family, say what is wrong with which, and return how many different faults there were."""
    strategy = FAMILIES[name][0]()
    known: set[str] = set()
    ran = 0
    while ran < inputs:
        ran += _batch(strategy, min(_BATCH, inputs - ran), seed, known)
        seed += 1
    _say(f"{name}: {ran} inputs, {len(known)} faults")
    return len(known)


def _batch(strategy: st.SearchStrategy[Any], inputs: int, seed: int, known: set[str]) -> int:
    """Draw from a seed; what is known already is no longer a fault, so that it does not hide others."""
    ran = 0
    smallest: dict[str, tuple[str, Case]] = {}

    def check(case: Case) -> None:
        nonlocal ran
        ran += 1
        for sentence in case.check():
            if (kind := _kind(sentence)) not in known:
                smallest[kind] = sentence, case
                raise _WrongError(kind)

    drawn = settings(
        max_examples=inputs, database=None, deadline=None, phases=(Phase.generate, Phase.shrink), print_blob=False,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    try:
        hypothesis.seed(seed)(drawn(given(strategy)(check)))()
    except (_WrongError, hypothesis.errors.Flaky, BaseExceptionGroup):
        for kind, (sentence, case) in smallest.items():
            _say(f"seed {seed}: {sentence}\n    {case!r}")
            known.add(kind)
    return ran


def _kind(sentence: str) -> str:
    """Return what a fault has in common with others of its kind."""
    return re.sub(r"\d+", "_", sentence.partition(": ")[0])


def _say(text: str) -> None:
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
