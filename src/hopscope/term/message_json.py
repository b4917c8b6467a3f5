# SPDX-License-Identifier: Apache-2.0
"""Single messages as JSON objects, and back; ``docs/json/`` has the schemas. What was not seen is null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.model.message import CAUSES, CONGESTION_STATES, FIELDS, STAGES, Device, Flow, ReceivedMessage, SentMessage
from hopscope.model.slowest import Slowest
from hopscope.term.json_lines import KINDS, iso

if TYPE_CHECKING:
    from hopscope.model.checked_json import Fields
    from hopscope.model.message import Message
    from hopscope.term.json_lines import Json

_VERSION: Final = 1
_SENT_TIMES: Final = ("entry_ns", "handed_ns", "sched_ns", "driver_ns", "nic_ns", "done_ns")
_RECEIVED_TIMES: Final = (
    "entry_ns", "core_ns", "ip_ns", "transport_ns", "queued_ns", "ordered_ns", "asleep_ns", "runnable_ns", "done_ns",
)  # fmt: skip
_SCHEMAS: Final = tuple(f"hopscope.{verb}.message/{_VERSION}" for verb in ("rx", "tx"))


def message_to_json(message: Message, offset_ns: int) -> Json:
    """Return a message as the object that schema ``hopscope.rx.message/1`` or ``hopscope.tx.message/1`` describes.

    Parameters
    ----------
    message
        What to show.
    offset_ns
        Wall clock minus CLOCK_MONOTONIC.
    """
    flow, blame = message.flow, message.blame()
    times = _SENT_TIMES if isinstance(message, SentMessage) else _RECEIVED_TIMES
    document: Json = {
        "schema": f"hopscope.{message.verb}.message/{_VERSION}",
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
        **{name: getattr(message, name) for name in times},
        "total_ns": message.total_ns,
        "hops_ns": message.hops(),
        "held_by": blame[0] if blame else None,
        "held_ns": blame[1] if blame else None,
    }
    if isinstance(message, SentMessage):
        document |= {
            "cause": message.cause,
            "slept": message.slept,
            "retransmits": message.retransmits,
            "aborted": message.aborted,
            "devices": [{"name": device.name, "after_ns": device.after_ns} for device in message.devices],
            "tcp": message.tcp and {stage: state and dict(state) for stage, state in message.tcp.items()},
        }
    return document


def message_from_json(document: Fields) -> Message:
    """Return the message that an object was made from. Its process stands for the one that had the socket first.

    Raises
    ------
    FormatError
        It does not fit a schema.
    """
    sent = document.choice("schema", _SCHEMAS) != _SCHEMAS[0]
    datagram = document.whole_or_none("end_byte") is None
    times = _SENT_TIMES if sent else _RECEIVED_TIMES
    common: dict[str, Any] = {
        "flow": _flow_from(document, named=sent),
        "cookie": document.whole("cookie"),
        "pid": document.whole("pid"),
        "len_bytes": document.whole("len_bytes"),
        "end_byte": document.whole_or_none("end_byte") or 0,
        "datagram": datagram,
        **{name: document.whole_or_none(name) for name in times},
    }
    if not sent:
        return ReceivedMessage(reader=document.text_or_none("comm") or "", **common)
    return SentMessage(
        qdisc_ns=document.part("hops_ns").whole_or_none("tx.udp_qdisc" if datagram else "tx.qdisc"),
        devices=[Device(device.text("name"), device.whole("after_ns")) for device in document.parts("devices")],
        retransmits=document.whole("retransmits"),
        cause=document.choice("cause", CAUSES),
        slept=document.flag("slept"),
        aborted=document.flag("aborted"),
        tcp=_tcp_from(document.part_or_none("tcp")),
        **common,
    )


def _tcp_from(stages: Fields | None) -> dict[str, dict[str, int | str | None] | None] | None:
    if stages is None:
        return None
    states = {stage: stages.part_or_none(stage) for stage in STAGES}
    return {
        stage: {name: _field(state, name) for name in FIELDS if state.has(name)} if state else None
        for stage, state in states.items()
    }


def _field(state: Fields, name: str) -> int | str | None:
    return state.choice(name, CONGESTION_STATES) if name == "state" else state.whole_or_none(name)


def _flow_from(document: Fields, *, named: bool) -> Flow | None:
    """Return the flow, with the process that had the socket first, where that is `named`."""
    protocol = document.text_or_none("protocol")
    if protocol is None:
        return None
    return Flow(
        protocol=protocol,
        local=document.text("local"),
        local_port=document.whole("local_port"),
        peer=document.text("peer"),
        peer_port=document.whole("peer_port"),
        netns=document.text("netns"),
        pid=document.whole("pid") if named else 0,
        comm=(document.text_or_none("comm") or "") if named else "",
    )


def slowest_to_json(slowest: Slowest, verb: str, started_ns: int, duration_s: float, offset_ns: int) -> Json:
    """Return the slowest messages as the object that schema ``hopscope.rx.slowest/1`` or its like of ``tx`` describes.

    Parameters
    ----------
    slowest
        What to show.
    verb
        What found them.
    started_ns, duration_s
        Of the interval or run, as in its :class:`~hopscope.model.snapshot.Snapshot`.
    offset_ns
        Wall clock minus CLOCK_MONOTONIC.
    """
    return {
        "schema": f"hopscope.{verb}.slowest/{_VERSION}",
        "kind": slowest.kind,
        "time": iso(started_ns),
        "interval_s": duration_s,
        "asked": slowest.asked,
        "seen": slowest.seen,
        "unfinished": slowest.unfinished,
        "held": slowest.held(),
        "messages": [message_to_json(message, offset_ns) for message in slowest.messages],
    }


def slowest_from_json(document: Fields) -> Slowest:
    """Return the slowest messages that an object was made from.

    Raises
    ------
    FormatError
        It does not fit the schema.
    """
    document.choice("schema", [f"hopscope.{verb}.slowest/{_VERSION}" for verb in ("rx", "tx")])
    return Slowest(
        kind=document.choice("kind", KINDS),
        asked=document.whole("asked"),
        seen=document.whole("seen"),
        unfinished=document.whole("unfinished"),
        messages=[message_from_json(message) for message in document.parts("messages")],
    )
