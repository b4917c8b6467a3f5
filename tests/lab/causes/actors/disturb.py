# SPDX-License-Identifier: Apache-2.0
"""Takes a CPU from the others, or stops another process, for known times."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from tests.lab.causes.actors.common import Held, Options, report, say, spin
from tests.lab.causes.actors.masked import masked_spin

_POKE = {signal.SIGUSR1}
_END = {signal.SIGTERM}


def hog(options: Options) -> None:
    """Compute until it is ended, or `seconds` are over.

    Options: `run` and `rest` (ms) in turn if not all the time; with `poked`, `run` each time that it gets SIGUSR1; with
    `masks`, softirqs are disabled meanwhile; `cause`, what that makes.
    """
    held = Held()
    signal.pthread_sigmask(signal.SIG_BLOCK, _POKE | _END)
    ran_ms = options.get("run", 5)
    work = masked_spin(ran_ms) if options.get("masks") else partial(spin, ran_ms)
    say("ready")
    end_s = time.monotonic() + options["seconds"]
    while time.monotonic() < end_s:
        rest_s = options["seconds"] if options.get("poked") else options.get("rest", 0) / 1e3
        got = signal.sigtimedwait(_POKE | _END, rest_s)
        if got and got.si_signo in _END:
            break
        with held.by(options.get("cause", "")):
            work()
    held.intervals.pop("", None)
    report(intervals=held.intervals)


def stopper(options: Options) -> None:
    """Stop the process `pid` for `stop` ms and let it run for `rest` ms, in turn, until it is ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _END)
    held = Held()
    say("ready")
    end_s = time.monotonic() + options["seconds"]
    try:
        while time.monotonic() < end_s:
            with held.by("reader-asleep"):
                os.kill(options["pid"], signal.SIGSTOP)
                ended = signal.sigtimedwait(_END, options["stop"] / 1e3)
                os.kill(options["pid"], signal.SIGCONT)
            if ended or signal.sigtimedwait(_END, options["rest"] / 1e3):
                break
    except ProcessLookupError:
        pass
    report(intervals=held.intervals)
