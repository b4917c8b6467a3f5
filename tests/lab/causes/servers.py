# SPDX-License-Identifier: Apache-2.0
"""Requests to nginx, redis and PostgreSQL, healthy and with a known cause.

What else a server does is asked for over its Unix socket, so that the recording has the requests that wait alone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.case import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.lab.causes.actors.common import Options

_HEALTHY_COUNT: Final = 60


def _query(text: str) -> bytes:
    """Return PostgreSQL's message for a query."""
    data = text.encode() + b"\0"
    return struct.pack("!cI", b"Q", len(data) + 4) + data


# Protocol 3.0, user and database; and that it is ready for a query, outside of a transaction.
_PARAMETERS: Final = b"user\0postgres\0database\0postgres\0\0"
_STARTUP: Final = struct.pack("!II", len(_PARAMETERS) + 8, 3 << 16) + _PARAMETERS
_READY: Final = b"Z\0\0\0\x05I"
# What is sent first; a request; and how an answer ends.
_SPOKEN: Final[dict[str, tuple[bytes, bytes, bytes]]] = {
    "nginx": (b"", b"GET / HTTP/1.1\r\nHost: hopscope\r\n\r\n", b"end of the page\n"),
    "redis": (b"", b"PING\r\n", b"+PONG\r\n"),
    "postgres": (_STARTUP, _query("SELECT count(*) FROM things"), _READY),
}


def _plan(server: str, truth: dict[str, float], culprit: str, pattern: Sequence[Options], **more: Any) -> Plan:  # noqa: ANN401 - of the plan
    hello, request, until = (each.hex() for each in _SPOKEN[server])
    sender = {"pattern": list(pattern), "hello": hello, "request": request, "until": until, **more.pop("sender")}
    return Plan(truth, culprit, {"server": server}, sender, role="asker", reader_role="server", **more)


def healthy(server: str) -> Callable[[Random], Plan]:
    """Return the scenario of requests at a moderate rate, which nothing holds."""

    def scenario(chance: Random) -> Plan:
        return _plan(server, {}, "", [{"gap": chance.uniform(2, 6)}], sender={"count": _HEALTHY_COUNT})

    return scenario


def nginx_without_cpu(chance: Random) -> Plan:
    """One of higher priority begins to compute on the CPU of nginx when the request is sent."""
    ms = chance.uniform(3, 12)
    hogs = [{"poked": True, "run": ms, "policy": "fifo", "priority": 10}]
    pattern = [{"poke": True, "gap": ms * 0.5 + 1}]
    return _plan("nginx", {"reader-runnable": 1}, "hs-hog", pattern, hogs=hogs, sender={"count": round(400 / ms)})


def redis_asleep(chance: Random) -> Plan:
    """Redis sleeps, as somebody else asked it to (DEBUG SLEEP)."""
    ms = chance.uniform(4, 15)
    return _behind("redis", "reader-asleep", ms, f"DEBUG SLEEP {ms / 1e3:.4f}\r\n".encode(), b"+OK\r\n")


def redis_computing(chance: Random) -> Plan:
    """Redis runs a script of somebody else."""
    ms = chance.uniform(4, 15)
    # There is no clock in scripts: it takes about so long, and how long shows in the answer's time.
    script = f"local n = 0 for i = 1, {ms * 2.5e5:.0f} do n = n + i end return 1"
    return _behind("redis", "reader-running", ms, f'EVAL "{script}" 0\r\n'.encode(), b":1\r\n")


def postgres_locked(chance: Random) -> Plan:
    """Somebody else has locked the table."""
    ms = chance.uniform(5, 20)
    statement = f"BEGIN; LOCK TABLE things; SELECT pg_sleep({ms / 1e3:.6f}); COMMIT"
    return _behind("postgres", "application", ms, _query(statement), _READY)


def _behind(server: str, cause: str, ms: float, command: bytes, until: bytes) -> Plan:
    """Return the plan of requests that wait for somebody else's command, which takes so many ms."""
    other = {"hello": _SPOKEN[server][0].hex(), "request": command.hex(), "until": until.hex(), "cause": cause}
    culprit = {"redis": "redis-server"}.get(server, server)
    sender = {"count": round(400 / ms), "other": other}
    return _plan(server, {cause: 0.95}, culprit, [{"gap": 2, "behind": True}], sender=sender)
