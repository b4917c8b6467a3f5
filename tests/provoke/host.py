# SPDX-License-Identifier: Apache-2.0
"""Trouble of the whole host: CPUs that are too few, or one of them that has all the work."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from tests.lab.measure import in_thread
from tests.provoke.common import Provoked, rules
from tests.provoke.devices import SEGMENTS, bursts

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from hopscope.lab import Lab

_RULES: Final = 300


@contextlib.contextmanager
def cpus_too_few(lab: Lab, duration_s: float = 2.0) -> Iterator[Provoked]:
    """Twice as many tasks want to run as there are CPUs."""
    script = f"import time\nend = time.monotonic() + {duration_s + 20}\nwhile time.monotonic() < end: pass"
    with contextlib.ExitStack() as stack:
        for _ in range(2 * len(os.sched_getaffinity(0))):
            child = subprocess.Popen([sys.executable, "-IS", "-c", script])
            stack.callback(child.wait)
            stack.callback(child.kill)
        time.sleep(duration_s)
        yield Provoked(lab.client)


@contextlib.contextmanager
def one_cpu_does_it_all(lab: Lab, duration_s: float = 2.0) -> Iterator[Provoked]:
    """A flood is received by the CPU that it came to, as no other is told to help (RPS); it goes on meanwhile.

    A long firewall, whose last rule takes all, makes receiving dearer than sending, which the same CPU does.
    """
    first, *_ = sorted(os.sched_getaffinity(0))
    ended = threading.Event()

    def flood(sender: socket.socket) -> None:
        me = threading.get_native_id()
        os.sched_setaffinity(me, {first})
        # What others do on this CPU meanwhile would make it look less busy with this.
        os.sched_setscheduler(me, os.SCHED_RR, os.sched_param(50))
        while not ended.is_set():
            sender.send(bytes(SEGMENTS * 100))

    several = (f"udp dport {port} drop" for port in range(1, _RULES))
    with (
        rules(lab.server, "input", *several, "udp dport >= 1 drop"),
        bursts(lab) as sender,
        in_thread(lambda: flood(sender)),
    ):
        try:
            time.sleep(duration_s)
            yield Provoked(lab.server, subject=f"cpu {first}")
        finally:
            ended.set()
