# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.store.trace import Trace
from hopscope.term.terminal import Terminal
from hopscope.trace.selection import Selection
from hopscope.verbs.report.drops import drop_reasons
from hopscope.verbs.report.drops_text import render_drops
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 1_000_000_000


def dropping() -> MadeTrace:
    """23 packets by a rule, evenly over 2.3 s, and 7 without a socket, at once."""
    made = MadeTrace(reasons={2: "NETFILTER_DROP", 3: "NO_SOCKET"})
    ruled, closed = made.flow("10.0.0.1:1", "10.0.0.2:7777"), made.flow("10.0.0.1:1", "10.0.0.2:7778")
    device = made.device("veth1", 2)
    for address, name in enumerate(
        ["bpf_prog_1_record", "bpf_trace_run4", "nft_do_chain", "nf_hook_slow", "ip_rcv"], 1
    ):
        made.add("symbols", address=address, name=name, offset_bytes=-1)
    for depth, address in enumerate([1, 2, 3, 4, 5]):
        made.add("stacks", stack=8, depth=depth, address=address)
    for number in range(23):
        made.drop(number * SECOND_NS // 10, skb=number, flow=ruled, location=3, stack=8, **device)
    for number in range(7):
        made.drop(number, skb=number, cpu=1, flow=closed, reason=3, location=77, **device)
    return made


def test_drops_are_counted_exactly_by_reason_place_and_flow(tmp_path: Path) -> None:
    with Trace(dropping().write(tmp_path / "trace")) as trace:
        report = drop_reasons(trace, Selection())
    assert list(report.rows()) == [
        (23, "NETFILTER_DROP", "nft_do_chain", "10.0.0.1:1 > 10.0.0.2:7777", "veth1", 2.3, 10, 0, 2_200_000_000),
        (7, "NO_SOCKET", "4d", "10.0.0.1:1 > 10.0.0.2:7778", "veth1", 0.7, 70, 0, 6),
    ]
    assert report.heading[0] == "30 packets were dropped"


def test_a_place_has_what_is_known_of_it(tmp_path: Path) -> None:
    made = dropping()
    made.add("symbols", address=77, name="__udp4_lib_rcv", offset_bytes=0x4BC)
    for address in (3, 77):
        made.add("lines", address=address, source=f"net/{address}.c:{address}")
    with Trace(made.write(tmp_path / "trace")) as trace:
        places = drop_reasons(trace, Selection()).column("location")
    assert places == ["nft_do_chain (net/3.c:3)", "__udp4_lib_rcv+0x4bc (net/77.c:77)"]


def test_drops_are_of_what_is_chosen(tmp_path: Path) -> None:
    with Trace(dropping().write(tmp_path / "trace")) as trace:
        assert drop_reasons(trace, Selection(ports=[7778])).column("drops") == [7]
        assert drop_reasons(trace, Selection(interfaces=["veth1"], from_s=1.0)).column("drops") == [13]
        limited = drop_reasons(trace, Selection(), limit=1)
    assert (limited.column("drops"), limited.left_out) == ([23], 1)


def test_lost_events_bound_the_counts(tmp_path: Path) -> None:
    made = dropping()
    made.lose(0, 10, lost=5)
    with Trace(made.write(tmp_path / "trace")) as trace:
        assert (
            drop_reasons(trace, Selection()).notes[0].startswith("lost: 5 events, each of which may have been a drop")
        )


def test_stacks_of_the_same_functions_are_one(tmp_path: Path) -> None:
    """Another instruction of the same function makes another stack."""
    made = dropping()
    made.add("symbols", address=33, name="nft_do_chain")
    for depth, address in enumerate([1, 2, 33, 4, 5]):
        made.add("stacks", stack=9, depth=depth, address=address)
    ruled, device = made.flow("10.0.0.1:1", "10.0.0.2:7777"), made.device("veth1", 2)
    made.drop(3 * SECOND_NS, skb=99, flow=ruled, location=3, stack=9, **device)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = drop_reasons(trace, Selection(), stacks=True)
    assert report.column("stack") == ["nft_do_chain < nf_hook_slow < ip_rcv", None]
    assert report.column("drops") == [24, 7]
    assert report.column("peak_per_s") == [10, 70]


def test_stacks_are_shown_without_what_took_them(tmp_path: Path) -> None:
    with Trace(dropping().write(tmp_path / "trace")) as trace:
        report = drop_reasons(trace, Selection(), stacks=True)
    assert report.column("stack") == ["nft_do_chain < nf_hook_slow < ip_rcv", None]
    lines = render_drops(report, Terminal()).splitlines()
    assert lines[3].startswith("   23  NETFILTER_DROP  nft_do_chain")
    assert lines[4] == "    nft_do_chain < nf_hook_slow < ip_rcv"
