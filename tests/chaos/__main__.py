# SPDX-License-Identifier: Apache-2.0
"""End every long-running verb at random moments, and see that nothing is left and nothing is lost unsaid.

``python -m tests.chaos --rounds 30``: each round has a verb, a moment and a deed (``rounds.py``), chosen from
a seed that is printed. After it, the kernel is as before (``kernel.py``), a recording opens and says what it lost, and
the next one works. Exits with 1 if something was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.lab import Lab
from tests import leftovers
from tests.chaos.kernel import be_alone, left_since, seen, tracefs
from tests.chaos.rounds import SIGNALS, STOP, Round
from tests.lab.command import hopscope, only
from tests.lab.measure import ping, tcp_pair, udp_pair, way

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_AT_ONCE = 50
_PAUSE_S = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds, and return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.chaos", description="End long-running verbs at random moments.")
    parser.add_argument("--rounds", type=int, default=20, help="how many")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of what is chosen")
    parser.add_argument("--signals-only", action="store_true", help="do nothing to them but send signals")
    given = parser.parse_args(arguments)
    if refusal := leftovers.why_no_bpf():
        parser.error(refusal)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT before a verb handles it
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # nohup and background jobs have them ignored
        signal.signal(number, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was mounted goes away
    os.environ["PYTHONFAULTHANDLER"] = "1"  # a crash says where
    be_alone()
    leftovers.adopt_orphans()
    _say(f"seed {given.seed}")
    source = random.Random(given.seed)  # noqa: S311 # nothing secret
    wrong = run(given.rounds, source, signals_only=given.signals_only)
    _say(f"{given.rounds} rounds, {wrong} wrong")
    return int(wrong > 0)


def run(rounds: int, source: random.Random, *, signals_only: bool = False) -> int:
    """Run so many rounds, say of each how it was, and return how many were wrong."""
    wrong = 0
    done: Counter[tuple[str, str]] = Counter()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        lab = stack.enter_context(Lab())
        stack.enter_context(_traffic(lab))
        counted = stack.enter_context(udp_pair(way(lab, "veth-4")))
        tracing = stack.enter_context(tracefs())
        before = seen(lab, tracing)
        for number in range(1, rounds + 1):
            each = Round.of(source, signals_only=signals_only)
            each.run(lab, counted, scratch)
            each.wrong += [f"left behind: {name}" for name in sorted(left_since(before, lab, tracing, each.made))]
            each.wrong += _next_start(lab, scratch / f"next-{number}")
            _say(f"round {number}: {each.verb}, {each.deed} after {each.after_s:.2f} s: {each.found}")
            for sentence in each.wrong:
                _say(f"  WRONG: {sentence}")
            wrong += bool(each.wrong)
            done[each.verb, each.deed] += 1
    _summarize(done)
    return wrong


def _summarize(done: Counter[tuple[str, str]]) -> None:
    """Say how often each signal was sent, to which verb, and how often anything else was done."""
    kills = Counter({pair: count for pair, count in done.items() if pair[1] in {*SIGNALS, STOP}})
    for title, chosen in (("killed by a signal", kills), ("otherwise", done - kills)):
        for what, at in (("deed", 1), ("verb", 0)):
            sums: Counter[str] = Counter()
            for pair, count in chosen.items():
                sums[pair[at]] += count
            each = ", ".join(f"{name} {count}" for name, count in sorted(sums.items()))
            _say(f"{title}: {chosen.total()}, by {what}: {each}")


def _next_start(lab: Lab, folder: Path) -> list[str]:
    done = hopscope("record", "-d", 0.1, "-o", folder, *only(lab))
    return [f"the next start ends with {done.returncode}: {done.stderr}"] if done.returncode else []


@contextlib.contextmanager
def _traffic(lab: Lab) -> Iterator[None]:
    """Have datagrams and a stream go through the laboratory."""
    over = threading.Event()
    with udp_pair(way(lab, "veth-4")) as udp, tcp_pair(way(lab, "veth-4")) as tcp:

        def send() -> None:
            while not over.wait(_PAUSE_S):
                ping(*udp, _AT_ONCE)
                ping(*tcp, _AT_ONCE)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
