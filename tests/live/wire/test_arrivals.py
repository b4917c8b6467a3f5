# SPDX-License-Identifier: Apache-2.0
"""Rows of a recording are the same after they were frames, and what did not arrive is counted."""

from __future__ import annotations

import numpy as np
import pytest

from hopscope.live.wire.arrivals import MOST, Arrivals
from hopscope.live.wire.frames import Frames, packed_entry, read_catalogue
from hopscope.live.wire.layout import ETHERNET_BYTES, ETHERTYPE, FRAME, VERSION, Kind, Tlv, place
from hopscope.store.schema import EVENT_TABLES
from tests.live.wired import Sender, in_order, require_same, taken


@pytest.fixture(scope="module")
def senders() -> dict[str, Sender]:
    return {name: Sender(name) for name in ("udp", "events", "drops", "tcp-rx")}


@pytest.mark.parametrize("name", ["udp", "events", "drops", "tcp-rx"])
def test_a_recording_is_the_same_after_it_was_frames(senders: dict[str, Sender], name: str) -> None:
    sender = senders[name]
    arrivals = Arrivals()
    frames = [*sender.frames, *sender.catalogue(0)]  # names come with the next one
    found = taken(arrivals, [sender.first, frames[:10], frames[10:]])
    assert arrivals.catalogue
    assert arrivals.catalogue.host == sender.metadata.host["name"]
    assert arrivals.catalogue.reasons == sender.metadata.reasons
    assert (arrivals.lost, arrivals.not_understood, arrivals.twice, arrivals.of_others) == (0, 0, 0, 0)
    require_same(sender.rows, found)
    used = {flow for table in ("packets", "sockets") for flow in sender.rows[table]["flow"].tolist()}
    flows = in_order(sender.rows["flows"], sender.rows["flows"])
    assert in_order(found["flows"], sender.rows["flows"]) == [each for each in flows if each[0] in used]
    assert set(in_order(found["devices"], ("netns", "ifindex", "name", "type"))) <= set(
        in_order(sender.rows["devices"], ("netns", "ifindex", "name", "type"))
    )
    if "threads" in found:
        assert set(found["threads"]["comm"].tolist()) <= set(sender.rows["threads"]["comm"].tolist())


def test_what_does_not_arrive_is_lost_and_what_comes_late_or_twice_is_not(senders: dict[str, Sender]) -> None:
    sender = senders["udp"]
    times = sorted(np.concatenate([sender.rows[table]["time_ns"] for table in EVENT_TABLES]).tolist())
    sent = sender.frames[:100]
    late = [*sent[:40], *sent[60:70], sent[55], *sent[70:]]
    arrivals = Arrivals()
    # Of 40 to 59, 50 and 55 come late, 55 and 99 a second time as well.
    found = taken(arrivals, [sender.first, late, [sent[50], sent[55], sent[99]]])
    assert len(sender.rows["packets"]["time_ns"]) > 60
    assert sum(len(found[table]["time_ns"]) for table in EVENT_TABLES if table in found) == 100 - 18
    assert found["losses"]["lost"].tolist() == [14, 4]
    assert arrivals.lost == 18
    assert arrivals.twice == 2
    assert found["losses"]["from_ns"][0] == times[39]
    assert found["losses"]["until_ns"][1] == times[60]


def test_what_a_sender_lost_is_lost_and_another_host_is_not_taken() -> None:
    made, other = Sender("udp"), Sender("events", "other")
    arrivals = Arrivals()
    batches = [made.first, made.frames, [*other.first, *other.frames], made.catalogue(0), made.catalogue(12)]
    found = taken(arrivals, batches)
    assert found["losses"]["lost"].tolist() == [12]
    assert arrivals.of_others == len(other.frames)
    assert sum(len(found[table]["time_ns"]) for table in EVENT_TABLES if table in found) == len(made.frames)


def test_what_is_no_frame_of_ours_is_counted_and_harms_nothing(senders: dict[str, Sender]) -> None:
    sender = senders["udp"]
    generator = np.random.default_rng(7)
    kind_at, time_at = (ETHERNET_BYTES + place(name).offset_bytes for name in ("kind", "time_ns"))
    broken = [frame[: int(generator.integers(1, len(frame)))] for frame in sender.frames[100:140]]
    late = [frame[:time_at] + b"\x7f" + frame[time_at + 1 :] for frame in sender.frames[140:150]]
    kinds = [frame[:kind_at] + b"\x42" + frame[kind_at + 1 :] for frame in sender.frames[150:160]]
    arrivals = Arrivals()
    found = taken(arrivals, [sender.first, [*sender.frames[:100], *broken, *kinds, *late]])
    assert sum(len(found[table]["time_ns"]) for table in EVENT_TABLES if table in found) == 100
    assert arrivals.not_understood == 60


def test_events_without_all_columns_are_left_out() -> None:
    sender = Sender("events")
    sender.making = Frames(sender.metadata, sender.assembler.point_names, bytes(6), bytes(6))
    first = sender.catalogue(0)
    arrivals = Arrivals()
    events = sender.assembler
    for table, columns in sender.rows.items():
        events.add(table, columns)
    ready = events.ready((1 << 63) - 1)
    found = taken(arrivals, [first, list(sender.making.of(ready, np.ones(len(ready), bool)).each())])
    assert found.keys().isdisjoint(EVENT_TABLES)
    assert arrivals.short == sum(len(sender.rows[table]["time_ns"]) for table in EVENT_TABLES) > 0
    own = [len(columns["time_ns"]) for table, columns in sender.rows.items() if table.startswith("e_")]
    assert sum(len(columns["time_ns"]) for table, columns in found.items() if table.startswith("e_")) == sum(own)
    assert arrivals.not_understood == 0


def test_what_a_stranger_can_make_it_remember_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, most in {"flows": 2, "threads": 3, "devices": 1, "catalogues": 4}.items():
        monkeypatch.setitem(MOST, kind, most)
    sender = Sender("tcp-rx")
    strangers = [Sender("udp", f"stranger-{number}") for number in range(6)]
    arrivals = Arrivals()
    names = sender.catalogue(0)
    batches = [sender.first, sender.frames, names, names, *(stranger.first for stranger in strangers)]
    found = taken(arrivals, batches)
    # Of one that is known, nothing is beyond.
    assert {kind: len(next(iter(found[kind].values()))) for kind in ("flows", "threads", "devices")} == {
        kind: MOST[kind] for kind in ("flows", "threads", "devices")
    }
    assert arrivals.beyond["flows"] > 0
    assert arrivals.beyond["catalogues"] == len(strangers) - 3
    threads = {each[:4] for each in entries(names, Tlv.THREAD)}
    assert arrivals.beyond["threads"] == 2 * (len(threads) - 3)
    events = sum(len(found[table]["time_ns"]) for table in EVENT_TABLES if table in found)
    assert events == sum(len(sender.rows[table]["time_ns"]) for table in EVENT_TABLES)


def entries(frames: list[bytes], wanted: Tlv) -> list[bytes]:
    return [value for frame in frames for kind, value in read_catalogue(frame) if kind is wanted]


def test_a_catalogue_without_end_is_none() -> None:
    reasons = packed_entry(Tlv.REASON, bytes(1000))
    head = np.zeros(1, FRAME)
    head["ethertype"] = ETHERTYPE
    head["event"]["version"], head["event"]["kind"], head["event"]["catalogue"] = VERSION, Kind.CATALOGUE, 7
    head["event"]["tlv_bytes"] = len(reasons)
    arrivals = Arrivals()
    taken(arrivals, [[head.tobytes() + reasons]] * 400)
    assert arrivals.not_understood == 400 - (1 << 18) // len(reasons)


def test_random_bytes_raise_nothing(senders: dict[str, Sender]) -> None:
    generator = np.random.default_rng(11)
    sender = senders["events"]
    for _ in range(100):
        arrivals = Arrivals()
        batch = []
        for frame in [*sender.first, *sender.frames[:20]]:
            raw = np.frombuffer(frame, np.uint8).copy()
            at = generator.integers(ETHERNET_BYTES, len(raw), int(generator.integers(0, 3)))
            raw[at] = generator.integers(0, 256, len(at))
            batch.append(raw.tobytes())
        taken(arrivals, [sender.first, batch])
