# SPDX-License-Identifier: Apache-2.0
"""A condition selects the same frames in every matcher's language as it selects events."""

from __future__ import annotations

import ctypes
import shlex
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import UsageError
from hopscope.kernel.pcap import ETHERNET, compiled, library
from hopscope.live.stream.events import Assembler
from hopscope.live.wire.frames import Frames
from hopscope.live.wire.layout import ETHERNET_BYTES
from hopscope.model.event_batch import Texts, selected
from hopscope.model.event_fields import event_condition
from hopscope.store.schema import EVENT_TABLES, Column, Table
from hopscope.store.trace import Trace
from hopscope.trace.where import known_of
from hopscope.verbs.wire.match import expression, rendered, rules_of
from hopscope.verbs.wire.terms import terms_of
from tests.lab.command import complaint, hopscope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hopscope.live.stream.events import Events

RECORDINGS = Path(__file__).parents[2] / "recordings"
# Values that the recordings have, and some that they have not.
VALUES = {
    "point": ["rx.driver", "rx.core", "skb.free", "tx.start", "rx.read", "e_net_netif_rx"],
    "hop": ["0", "1us", "2us", "4096ns", "20us", "1ms"],
    "rx.core": ["1us", "10us"],
    "source": ["10.77.0.1", "10.77.0.0/31", "::/0", "0.0.0.0/0"],
    "address": ["10.77.0.2", "fd00::/8"],
    "protocol": ["tcp", "udp", "1", "0"],
    "port": ["53", "37613", "44308", "70000"],
    **{name: ["0", "1", "2", "-1", "53", "1000", "0x10"] for name in ("cpu", "tid", "pid", "ifindex", "len_bytes")},
    "netns": ["0", "4026531840"],
    "flow": ["0", "-1", "0x8000000000000000"],
    "skb": ["0", "0xffff888000000000", "0x7"],
    "time_ns": ["0", "1000000000000", "5000000000000"],
    # Of tracepoints.
    **{name: ["0", "10", "-1", "331", "2147483647"] for name in ("snd_cwnd", "data_len", "ssthresh", "dport")},
    "skbaddr": ["-131385017511680", "0", "0xffff888000000000"],
}
ONLY_EQUAL = ("point", "source", "address")


class _Header(ctypes.Structure):
    """``struct pcap_pkthdr``."""

    _fields_ = (("time", ctypes.c_long * 2), ("captured", ctypes.c_uint32), ("length", ctypes.c_uint32))


class Sent:
    """Recorded events, and their frames."""

    def __init__(self, name: str) -> None:
        with Trace(RECORDINGS / name) as trace:
            self.assembler = Assembler(trace.metadata)
            self.assembler.follow()
            own = [table.name for table in trace.metadata.tables if table.name != "e_losses"]
            for table in ("flows", "devices", "threads", *EVENT_TABLES, *own):
                order = "" if table in {"flows", "devices"} else "ORDER BY time_ns"
                self.assembler.add(table, trace.columns(f"SELECT * FROM {table} {order}"))
            self.events: Events = self.assembler.ready((1 << 63) - 1)
            frames = Frames(trace.metadata, self.assembler.point_names, bytes(6), bytes(6))
        self.tables = trace.metadata.tables
        self.frames = list(frames.of(self.events, np.ones(len(self.events), bool)).each())
        self.catalogue = frames.catalogue((0, 0, 0), self.assembler.names, 0)[0]

    def selected(self, text: str, tables: Sequence[Table]) -> NDArray[np.bool_]:
        return selected(event_condition(text, known_of(self.assembler.known.points, tables)), self.events)


@pytest.fixture(scope="module")
def sent() -> Iterator[dict[str, Sent]]:
    found = {name: Sent(name) for name in ("udp", "drops", "events")}
    yield found
    for each in found.values():
        each.assembler.close()


def by_libpcap(text: str, frames: list[bytes], tables: Sequence[Table]) -> list[bool]:
    """Return what libpcap's own interpreter says of each frame."""
    try:
        rendered(text, ["bpf"], "hop0", tables=tables)
    except UsageError as error:
        assert "No frame can be" in str(error)  # noqa: PT017 # most conditions raise nothing
        return [False] * len(frames)
    with compiled(expression(terms_of(text, tables)), ETHERNET) as program:
        headers = (_Header(captured=len(each), length=len(each)) for each in frames)
        run = library().pcap_offline_filter
        return [
            bool(run(ctypes.byref(program), ctypes.byref(head), each))
            for head, each in zip(headers, frames, strict=True)
        ]


def by_u32(text: str, frames: list[bytes], tables: Sequence[Table]) -> tuple[list[bool], str] | None:
    """Return what tc's u32 says of each frame by its rules, as tc-u32(8) describes them."""
    rules, remark = rules_of(terms_of(text, tables))
    if rules is None:
        return None
    words = [[word for (word,) in struct.iter_unpack("!I", each[ETHERNET_BYTES:])] for each in frames]
    found = [
        any(
            all(at // 4 < len(each) and each[at // 4] & mask == value for at, (value, mask) in rule.items())
            for rule in rules
        )
        for each in words
    ]
    return found, remark


def comparisons() -> st.SearchStrategy[str]:
    def compared(field: str) -> st.SearchStrategy[str]:
        signs = ["==", "!="] if field in ONLY_EQUAL else ["==", "!=", "<", "<=", ">", ">="]
        signs += ["&"] if field in {"tid", "len_bytes", "skb", "netns"} else []
        return st.builds("{} {} {}".format, st.just(field), st.sampled_from(signs), st.sampled_from(VALUES[field]))

    return st.sampled_from(sorted(VALUES)).flatmap(compared)


def conditions() -> st.SearchStrategy[str]:
    return st.recursive(
        comparisons(),
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner) | inner.map("not {}".format)
        ),
        max_leaves=4,
    )


@settings(max_examples=150, deadline=None)
@given(text=conditions())
def test_matchers_select_the_frames_of_the_events_that_a_condition_selects(sent: dict[str, Sent], text: str) -> None:
    every = sent["events"].tables
    for each in sent.values():
        wanted = each.selected(text, every)
        some = np.unique(np.linspace(0, len(wanted) - 1, 60).astype(int))
        frames = [*(each.frames[at] for at in some), each.catalogue]
        expected = [*wanted[some].tolist(), False]
        assert by_libpcap(text, frames, every) == expected
        if by_rules := by_u32(text, frames, every):
            found, remark = by_rules
            assert found == expected if not remark else all(a >= b for a, b in zip(found, expected, strict=True))


def test_conditions_select_something(sent: dict[str, Sent]) -> None:
    points = sent["udp"].events.column("point")
    assert isinstance(points, Texts)
    for text in ("hop > 2us", "point == rx.core and port == 37613", "not hop > 0", "len_bytes & 0x10"):
        assert sent["udp"].selected(text, ()).any() or sent["drops"].selected(text, ()).any(), text
    for text in ("snd_cwnd >= 10", "point == e_net_net_dev_queue", "skbaddr < 0 and len > 40"):
        assert sent["events"].selected(text, sent["events"].tables).any(), text


def test_a_hop_of_a_power_of_two_is_one_exact_rule_of_u32() -> None:
    rules, remark = rules_of(terms_of("hop >= 1048576ns"))
    assert rules is not None
    assert [rule[24] for rule in rules] == [(1 << 20, 1 << 20)]
    assert remark == ""
    assert "selects more, hops of 524288 ns or longer" in rendered("hop > 1ms", ["u32"], "hop0")


def test_too_many_rules_are_named_and_not_printed() -> None:
    text = " and ".join(f"(tid > {at} or pid > {at})" for at in range(1, 8))
    assert rendered(text, ["u32", "nft"], "hop0").splitlines() == [
        "# tc u32: more than 64 rules; use bpf", "", "# nft: more than 64 rules; use bpf"
    ]  # fmt: skip


def test_a_name_is_one_word_for_a_shell() -> None:
    for line in rendered("hop > 1ms", ["tcpdump", "bpf", "u32"], "a;b").splitlines():
        assert not line or line.startswith("#") or "a;b" in shlex.split(line)


def test_a_text_of_a_tracepoint_is_at_no_fixed_place(sent: dict[str, Sent]) -> None:
    with pytest.raises(UsageError, match="saddr of e_tcp_tcp_probe is at no fixed place"):
        terms_of("saddr == 10.77.0.1", sent["events"].tables)


def test_nft_reaches_no_further_than_byte_255() -> None:
    names = ["time_ns", "cpu", "tid", *(f"field_{at}" for at in range(14))]
    table = Table("e_a_b", "", tuple(Column(name, np.int64, "") for name in names))
    for name, said in (
        ("field_11", "# nft: exact"),
        ("field_12", "# nft: what is behind byte 255 is out of its reach"),
    ):
        assert rendered(f"{name} > 1", ["nft"], "hop0", tables=[table]).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [("comm == sshd", "Frames do not have the field comm"), ("hop > 5s", "Frames have hops up to 4.29 s")],
)
def test_what_frames_do_not_have_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        terms_of(text)
    assert said in complaint(hopscope("wire", "match", text), 2)
