# SPDX-License-Identifier: Apache-2.0
"""What ``ss`` prints, as values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopscope.lab import Namespace

_PAIR = re.compile(r"(?:^| )([a-z_0-9]+):(\((?:[^()]|\([^()]*\))*\)|\S+)")
_WORDS = re.compile(r" (send|pacing_rate|delivery_rate) (\S+)")
_STATES = {
    "ESTAB": "established", "SYN-SENT": "syn-sent", "SYN-RECV": "syn-recv", "FIN-WAIT-1": "fin-wait-1",
    "FIN-WAIT-2": "fin-wait-2", "TIME-WAIT": "time-wait", "UNCONN": "unconnected", "CLOSE-WAIT": "close-wait",
    "LAST-ACK": "last-ack", "LISTEN": "listening", "CLOSING": "closing",
}  # fmt: skip

Line = dict[str, Any]


def ss(namespace: Namespace, *options: str) -> list[Line]:
    """Return the sockets that ss shows with these options and filter, a dictionary each."""
    argv = ["ss", "-H", "-O", "-n", "-e", *options]
    done = namespace.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [parse(line) for line in done.stdout.splitlines() if line.strip()]


def names(namespace: Namespace, *options: str) -> set[tuple[str, str]]:
    """Return local and peer end of the sockets that ss shows."""
    done = namespace.run(["ss", "-H", "-n", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (line.split() for line in done.stdout.splitlines())
    return {(words[-2], words[-1]) for words in lines if words}  # the state is left out where it is but one


def parse(line: str) -> Line:
    """Return a line of ``ss -HOne`` as values by their names."""
    state, recv_q, send_q, local, peer, *_ = line.split()
    rest = line.split(peer, 1)[1] if local != peer else line.split(peer, 2)[2]
    found: Line = {
        "state": _STATES[state],
        "recv-q": int(recv_q),
        "send-q": int(send_q),
        "local": local,
        "peer": peer,
        "rest": rest,
    }
    found |= dict(_PAIR.findall(rest))
    found |= dict(_WORDS.findall(rest))
    found["flags"] = set(re.findall(r"(?<= )(?:ts|sack|ecn|ecnseen|fastopen|app_limited|bbr|cubic|reno)(?= |$)", rest))
    return found
