# SPDX-License-Identifier: Apache-2.0
"""Single messages as JSON objects; ``docs/json/`` has the schemas. What was not seen is null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.views.json_lines import iso

if TYPE_CHECKING:
    from hopscope.analysis.message import Message
    from hopscope.analysis.slowest import Slowest
    from hopscope.views.json_lines import Json

_VERSION: Final = 1
_TIMES: Final = ("entry_ns", "handed_ns", "sched_ns", "driver_ns", "nic_ns", "done_ns")


def message_to_json(message: Message, offset_ns: int) -> Json:
    """Return a message as the object that schema ``hopscope.tx.message/1`` describes.

    Parameters
    ----------
    message
        What to show.
    offset_ns
        Wall clock minus CLOCK_MONOTONIC.
    """
    flow, blame = message.flow, message.blame()
    return {
        "schema": f"hopscope.tx.message/{_VERSION}",
        "time": None if message.start_ns is None else iso(message.start_ns + offset_ns),
        "clock_offset_ns": offset_ns,
        "protocol": flow.protocol if flow else None,
        "pid": message.pid,
        "comm": message.comm or None,
        "cookie": message.cookie,
        "netns": flow.netns if flow else None,
        "local": flow.local if flow else None,
        "local_port": flow.local_port if flow else None,
        "peer": flow.peer if flow else None,
        "peer_port": flow.peer_port if flow else None,
        "len_bytes": message.len_bytes,
        "end_byte": None if message.datagram else message.end_byte,
        **{name: getattr(message, name) for name in _TIMES},
        "total_ns": message.total_ns,
        "hops_ns": message.hops(),
        "held_by": blame[0] if blame else None,
        "held_ns": blame[1] if blame else None,
        "cause": message.cause,
        "slept": message.slept,
        "retransmits": message.retransmits,
        "aborted": message.aborted,
        "devices": [{"name": device.name, "after_ns": device.after_ns} for device in message.devices],
    }


def slowest_to_json(slowest: Slowest, started_ns: int, duration_s: float, offset_ns: int) -> Json:
    """Return the slowest messages as the object that schema ``hopscope.tx.slowest/1`` describes.

    Parameters
    ----------
    slowest
        What to show.
    started_ns, duration_s
        Of the interval or run, as in its :class:`~hopscope.analysis.snapshot.Snapshot`.
    offset_ns
        Wall clock minus CLOCK_MONOTONIC.
    """
    return {
        "schema": f"hopscope.tx.slowest/{_VERSION}",
        "kind": slowest.kind,
        "time": iso(started_ns),
        "interval_s": duration_s,
        "asked": slowest.asked,
        "seen": slowest.seen,
        "unfinished": slowest.unfinished,
        "held": slowest.held(),
        "messages": [message_to_json(message, offset_ns) for message in slowest.messages],
    }
