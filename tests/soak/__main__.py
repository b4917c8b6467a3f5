# SPDX-License-Identifier: Apache-2.0
"""Run `hopscope serve` for long, with all that it can serve, and see that nothing grows and no count drifts.

``python -m tests.soak --seconds 3600``: metrics, OTLP, a subscriber and the flight recorder over traffic in
namespaces of its own. Six times, the traffic is held: then each count is what the kernel's own counters say
(``counts.py``), and a recording is written. Memory and descriptors are looked at all the time (``steady.py``). Exits
with 1 if something was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hopscope
from hopscope.lab import Lab
from tests import leftovers
from tests.lab.command import HOPSCOPE, environ, only
from tests.soak.counts import POINT, Counts, Subscriber, of_kernel
from tests.soak.steady import Process
from tests.soak.traffic import Traffic
from tests.verbs.serve.receiver import receiving
from tests.verbs.serve.served import Served
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.verbs.serve.receiver import Receiver

_ROUNDS: Final = 6
_LOOKS: Final = 240
_PATIENCE_S: Final = 60.0
_DUMPS_MIB: Final = 64
_WORDS: Final = (
    *("--listen=127.0.0.1:0", "--interval=1", "--budget=none", "--buffer=4"),
    *("--flight=10", "--flight-memory=32", "--dump-every=0", f"--dump-size={_DUMPS_MIB}"),
)
_EXPLAINING: Final = (
    *("hopscope_receive_packets_total", "hopscope_receive_discarded_samples_total"),
    *("hopscope_missed_runs_total", "hopscope_lost_records_total"),
)
# In the order in which they are started.
_PROCESSES: Final = (
    *("command", "measures", "pushes metrics", "serves metrics", "records", "serves subscribers"),
    "keeps the last seconds",
)


class Soak:
    """A server with all that it serves, over traffic.

    Attributes
    ----------
    wrong
        Sentences on what should not be.
    """

    def __init__(self, lab: Lab, served: Served, receiver: Receiver, folder: Path) -> None:
        self._lab, self._served, self._receiver, self._folder = lab, served, receiver, folder
        pids = served.child.pid, *served.children()
        self._processes = [Process(*each) for each in zip(pids, _PROCESSES, strict=True)]
        self._subscriber = Subscriber(hopscope.subscribe(path=folder / "socket", where=f"point == {POINT}",
                                                         points=[POINT], fields=["len_bytes"]))  # fmt: skip
        self._written = 0
        self.wrong: list[str] = []

    def run(self, seconds: float) -> None:
        """Run for so long."""
        with Traffic(self._lab) as traffic:
            eventually(lambda: bool(self._receiver.requests), "nothing is pushed")
            before = self._counts(traffic)
            for number in range(1, _ROUNDS + 1):
                traffic.go()
                self._look(seconds / _ROUNDS)
                traffic.hold()
                found = self._settled(before, traffic)
                counted = ", ".join(f"{what} {count:,}" for what, count in found.kernel.items())
                _say(f"{number} of {_ROUNDS}: {traffic.turns} turns; {counted}; {found.lost:,} lost")
                if differences := found.differences():
                    self.wrong += differences
                    self._explain()
                self._record()
        for process in self._processes:
            _say(process.summary())
            self.wrong += process.wrong(seconds)

    def finish(self) -> None:
        """Look at what is said at the end, once the server has been told to end."""
        self._subscriber.join()

    def _look(self, seconds: float) -> None:
        """Look at processes until so much time is over."""
        end_s, every_s = time.monotonic() + seconds, seconds * _ROUNDS / _LOOKS
        while time.monotonic() < end_s:
            for process in self._processes:
                process.look()
            time.sleep(every_s)

    def _counts(self, traffic: Traffic) -> Counts:
        return Counts.now(of_kernel(self._lab, traffic.turns), self._served, self._subscriber, self._receiver)

    def _settled(self, before: Counts, traffic: Traffic) -> Counts:
        """Return all counts when they agree, or as they are when they should."""
        end_s = time.monotonic() + _PATIENCE_S
        while (found := self._counts(traffic).since(before)).differences() and time.monotonic() < end_s:
            time.sleep(0.5)
        return found

    def _explain(self) -> None:
        """Say what became of packets that have no count."""
        for (name, labels), value in self._served.samples().items():
            if value and name.startswith(_EXPLAINING):
                _say(f"  {name}{{{labels}}} {value:,.0f}")

    def _record(self) -> None:
        """Have the last seconds written."""
        self._served.child.send_signal(signal.SIGUSR1)
        self._written += 1
        name = "hopscope_flight_recordings_total"

        def results() -> dict[str, float]:
            return {key[1]: value for key, value in self._served.samples().items() if key[0] == name}

        eventually(lambda: sum(results().values()) >= self._written, "no recording is written")
        if (found := results()) != {'result="written"': self._written, 'result="failed"': 0, 'result="skipped"': 0}:
            self.wrong.append(f"of {self._written} recordings: {found}")
        stored = sum(path.stat().st_size for path in (self._folder / "dumps").rglob("*") if path.is_file())
        if stored > _DUMPS_MIB << 20:
            self.wrong.append(f"recordings take {stored:,} bytes")


@contextlib.contextmanager
def _serving(lab: Lab, receiver: Receiver, folder: Path) -> Iterator[Served]:
    """Run the server until the end; it ends well."""
    own = f"--socket={folder / 'socket'}", f"--dumps={folder / 'dumps'}", f"--otlp={receiver.url}"
    argv = [*HOPSCOPE, "serve", *_WORDS, *own, *only(lab)]
    said = folder / "stderr"
    with (
        said.open("w") as errors,
        subprocess.Popen(
            argv, env=environ(), stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as child,
    ):
        assert child.stdout
        try:
            url = child.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), said.read_text()
            served = Served(child, int(url.split(":")[2].partition("/")[0]))
            eventually(served.is_ready)
            yield served
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait()
    lines = [line for line in said.read_text().splitlines() if "SIGUSR1: the last 10 s are in" not in line]
    assert (child.returncode, lines) == (0, []), lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.soak", description="Run `hopscope serve` for long.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for how long")
    given = parser.parse_args(arguments)
    if refusal := leftovers.why_no_bpf():
        parser.error(refusal)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    leftovers.adopt_orphans()
    before = leftovers.seen()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, Lab() as lab, receiving(keeps_last=True) as receiver:
        with _serving(lab, receiver, Path(folder)) as served:
            soak = Soak(lab, served, receiver, Path(folder))
            soak.run(given.seconds)
        soak.finish()
    wrong = [*soak.wrong, *(f"left behind: {name}" for name in sorted(leftovers.left_since(before)))]
    for sentence in wrong:
        _say(f"WRONG: {sentence}")
    _say(f"{given.seconds:g} s, {len(wrong)} wrong")
    return int(bool(wrong))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
