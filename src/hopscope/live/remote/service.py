# SPDX-License-Identifier: Apache-2.0
"""The live collectors on another host: attached while a stream lasts, looked at when the other side asks.

The other side says when, so that several hosts are looked at together. Between looks, rings are emptied here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.agent.stream import Message
from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.errors import FormatError
from hopscope.live.contract import batches
from hopscope.live.own_flows import SelfTrafficFilter
from hopscope.live.remote.codec import CODECS, Answer, encode_messages
from hopscope.live.remote.own import OwnTraffic
from hopscope.model.checked_json import Fields
from hopscope.term.json_lines import KINDS, plan_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.agent.stream import Stream
    from hopscope.live.contract import Collector

# How long a ring may wait to be emptied, by the verb; what has none is looked at only when it is asked for.
_EMPTY_S: Final = {"rx": 0.1, "tx": 0.1, "cpu": 0.2, "drops": 0.05}
_WITH_MESSAGES: Final = frozenset({"rx", "tx"})
_MOST_WINDOW_S: Final = 1.0
# So long single messages are sent before something else is looked at.
_MOST_EMPTY_S: Final = 0.25


def serve(stream: Stream, request: Mapping[str, Any], verb: str, collector: Collector[Any]) -> None:
    """Attach the collector of a request, and answer until the stream ends.

    Raises
    ------
    HopscopeError
        What it could not do.
    """
    # CPU time is what it is: that of our own stays in it.
    own = OwnTraffic(collector, stream.connection, request) if isinstance(collector, SelfTrafficFilter) else None
    with collector:
        stream.send({"plan": [plan_to_json(row) for row in collector.plan()]})
        while True:
            try:
                asked = stream.receive(_EMPTY_S.get(verb))
            except TimeoutError:
                _empty(stream, verb, collector)
                continue
            if asked is None:
                return
            if not isinstance(asked, Message):
                raise FormatError("A live collector takes no blocks")
            if not own or not own.changed(asked.body):
                _answer(stream, verb, collector, Fields(asked.body, "What is asked"))


def _answer(stream: Stream, verb: str, collector: Any, asked: Fields) -> None:  # noqa: ANN401 # any of the collectors
    kind = asked.choice("kind", KINDS)
    if kind == "interval":
        collector.measure_cost(min(asked.number("window_s"), _MOST_WINDOW_S))
    _empty(stream, verb, collector)
    if kind == "total" and verb in _WITH_MESSAGES:
        collector.found.close()
    snapshot = collector.interval() if kind == "interval" else collector.total()
    slowest = collector.found.slowest(kind) if verb in _WITH_MESSAGES else None
    stream.send_block({"kind": kind}, [CODECS[verb].encode(Answer(snapshot, slowest, wall_offset_ns()))])


def _empty(stream: Stream, verb: str, collector: Any) -> None:  # noqa: ANN401 # any of the collectors
    if verb in _WITH_MESSAGES:
        for messages in batches(collector.found, _MOST_EMPTY_S):
            stream.send_block({"kind": "messages"}, [encode_messages(messages, collector.found.offset_ns)])
    elif verb in _EMPTY_S:
        collector.drain()
