# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from referencing import Registry, Resource

from hopscope.model.slowest import Slowest
from hopscope.term.json_lines import line
from hopscope.term.message_json import message_to_json, slowest_to_json
from tests.lab.snapshots import OFFSET_NS, SENT_NS, STARTED_NS, message

if TYPE_CHECKING:
    from hopscope.model.message import Message, ReceivedMessage

DOCS = Path(__file__).parents[2] / "docs" / "json"


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / f"hopscope.{name}-1.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def validator(name: str) -> jsonschema.Draft202012Validator:
    resources = [Resource.from_contents(schema(f"{verb}.message")) for verb in ("rx", "tx")]
    registry: Registry[Any] = Registry().with_resources((each.id() or "", each) for each in resources)
    return jsonschema.Draft202012Validator(schema(name), registry=registry)


def test_every_message_is_one_line_that_follows_the_schema(messages: list[Message]) -> None:
    for each in messages:
        text = line(message_to_json(each, OFFSET_NS))
        assert "\n" not in text
        validator("tx.message").validate(json.loads(text))


def test_every_received_message_is_one_line_that_follows_the_schema(received: list[ReceivedMessage]) -> None:
    for each in received:
        validator("rx.message").validate(json.loads(line(message_to_json(each, OFFSET_NS))))
    slowest = Slowest("interval", 10, len(received), 0, received)
    validator("rx.slowest").validate(json.loads(line(slowest_to_json(slowest, "rx", STARTED_NS, 30.2, OFFSET_NS))))


def test_slowest_follow_their_schema(slowest: Slowest) -> None:
    document = json.loads(line(slowest_to_json(slowest, "tx", STARTED_NS, 30.2, OFFSET_NS)))
    validator("tx.slowest").validate(document)
    assert [each["total_ns"] for each in document["messages"]] == [each.total_ns for each in slowest.messages]
    assert document["held"] == slowest.held()
    assert (document["kind"], document["asked"], document["seen"], document["unfinished"]) == ("total", 10, 1_234, 2)
    assert (document["time"], document["interval_s"]) == ("2026-01-02T03:04:05.250000Z", 30.2)


@pytest.mark.parametrize("change", [{"more": 1}, {"entry_ns": -1}, {"entry_ns": 0.5}, {"cause": "magic"}])
def test_schema_refuses_what_is_not_documented(change: dict[str, object]) -> None:
    assert [*validator("tx.message").iter_errors(message_to_json(message(), OFFSET_NS) | change)]


def test_members_of_a_message() -> None:
    document = message_to_json(message(retransmits=1), OFFSET_NS)
    assert document["time"] == "2026-01-02T03:04:05.250000Z"
    assert document["entry_ns"] + document["clock_offset_ns"] == STARTED_NS
    assert (document["handed_ns"], document["done_ns"]) == (SENT_NS + 3_100, SENT_NS + 110_250)
    assert document["hops_ns"]["tx.sched"] == 4_600
    assert document["hops_ns"]["tx.nic"] is None
    assert (document["held_by"], document["held_ns"]) == ("retransmission", 100_000)
    assert (document["local"], document["local_port"], document["peer_port"]) == ("10.77.0.1", 43_210, 12_345)
    assert (document["pid"], document["comm"], document["retransmits"]) == (4_711, "worker", 1)
    assert document["devices"] == [{"name": "eth0", "after_ns": 0}]


def test_what_was_not_seen_is_null_and_never_zero() -> None:
    nothing = dict.fromkeys(("entry_ns", "handed_ns", "sched_ns", "driver_ns", "done_ns", "qdisc_ns"))
    document = message_to_json(message(None, **nothing), OFFSET_NS)
    nulls = (
        "time",
        "protocol",
        "comm",
        "netns",
        "local",
        "peer",
        *nothing.keys() - {"qdisc_ns"},
        "total_ns",
        "held_by",
    )
    assert {document[name] for name in nulls} == {None}
    assert set(document["hops_ns"].values()) == {None}


def test_datagrams_have_no_place_in_a_stream() -> None:
    assert message_to_json(message(datagram=True), OFFSET_NS)["end_byte"] is None
