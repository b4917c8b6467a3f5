# SPDX-License-Identifier: Apache-2.0
"""A service ``live`` that answers as no agent of ours would; the verb's words say how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hopscope.agent.stream import Message
from hopscope.live.remote.codec import CODECS, Answer
from hopscope.model.histogram import Histogram
from hopscope.model.snapshot import HopRow, Overhead, Snapshot

if TYPE_CHECKING:
    from hopscope.agent.stream import Stream

COST = Overhead(0, None, None, 0.0, 0)


def snapshot(count: int = 1, verb: str = "rx") -> Snapshot:
    """Return one with a hop of so many samples."""
    histogram = Histogram.from_values([100] * count)
    return Snapshot(verb, "interval", 0, 1.0, [HopRow("rx.ip", "a", "b", "packet", {}, histogram)], COST)


def answer(count: int = 1) -> bytes:
    """Return the bytes of such an answer."""
    return CODECS["rx"].encode(Answer(snapshot(count), None, 0))


def serve(stream: Stream, request: dict[str, Any]) -> None:
    """Begin as asked for, and answer each question so."""
    (manner,) = request["words"]
    if manner == "block first":
        stream.send_block({}, [b""])
    elif manner != "ends":
        stream.send({"plan": [{}] if manner == "plan" else []})
    while manner != "ends" and isinstance(asked := stream.receive(), Message):
        if manner == "well":
            kind = asked.body["kind"]
            stream.send_block({"kind": kind}, [answer(23 if kind == "interval" else 46)])
        elif manner == "message":
            stream.send({"kind": "interval"})
        elif manner == "leaves":
            return
        else:
            kind, raw = ANSWERS[manner]
            stream.send_block({"kind": kind}, [raw])


ANSWERS = {
    "kind": ("surprise", answer()),
    "garbled": ("interval", answer()[:-9]),
    "other verb": ("interval", CODECS["tx"].encode(Answer(snapshot(verb="tx"), None, 0))),
    "slowest": ("interval", answer().replace(b'"slowest":null', b'"slowest":{}')),
    "negative": ("interval", answer().replace(b'"count":1', b'"count":-1')),
    "too many": ("interval", answer().replace(b'"count":1', b'"count":%d' % 2**48)),
    "messages": ("messages", b'{"offset_ns":0,"messages":[{}]}'),
}
