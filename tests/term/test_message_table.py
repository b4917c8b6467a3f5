# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hopscope.model.slowest import Slowest
from hopscope.term.message_table import Columns, message_lines, render_slowest, titles
from hopscope.term.terminal import Terminal, columns
from tests.lab.snapshots import FLOW_6, OFFSET_NS, SENT_NS, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.model.message import Message, ReceivedMessage


def shown(messages: list[Message], terminal: Terminal) -> list[str]:
    widths = Columns("tx").fitting(messages, terminal)
    lines = titles(widths, terminal)
    for each in messages:
        lines += message_lines(each, OFFSET_NS, widths, terminal)
    return lines


def cells(each: Message) -> dict[str, str]:
    """Return title → what stands under it, in a line that has room."""
    terminal = Terminal(200)
    title, line = (
        lines[0] for lines in (titles(Columns("tx"), terminal), message_lines(each, OFFSET_NS, Columns("tx"), terminal))
    )
    ends = {match.group(): match.span() for match in re.finditer(r"time UTC|\S+", title)}
    found = {name: line[max(end - 7, 0) : end].strip() for name, (_, end) in ends.items()}
    start, last = ends["flow"][0], ends["ack"][1]
    return found | {
        "time": line[:15],
        "process": line[ends["process"][0] : start].strip(),
        "flow": line[start : ends["length"][0] - 1].strip(),
        "remarks": line[last:].strip(),
    }


@pytest.mark.parametrize("width", [40, 80, 120, 140])
def test_messages_look_as_agreed(width: int, messages: list[Message], golden: Callable[[str, str], None]) -> None:
    ipv4 = [each for each in messages if each.flow != FLOW_6]
    golden(f"messages_{width}", "\n".join(shown(ipv4, Terminal(width))))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_long_flows_look_as_agreed(width: int, messages: list[Message], golden: Callable[[str, str], None]) -> None:
    golden(f"messages_ipv6_{width}", "\n".join(shown(messages, Terminal(width))))


@pytest.mark.parametrize("width", [40, 80, 140])
def test_slowest_look_as_agreed(width: int, slowest: Slowest, golden: Callable[[str, str], None]) -> None:
    golden(f"slowest_{width}", render_slowest(slowest, "tx", OFFSET_NS, Terminal(width)))


@pytest.mark.parametrize("width", [40, 80, 150])
def test_received_messages_look_as_agreed(
    width: int, received: list[ReceivedMessage], golden: Callable[[str, str], None]
) -> None:
    slowest = Slowest("interval", 10, 1_234, 0, received)
    golden(f"received_{width}", render_slowest(slowest, "rx", OFFSET_NS, Terminal(width)))


def test_slowest_in_ascii_are_ascii(slowest: Slowest) -> None:
    assert render_slowest(slowest, "tx", OFFSET_NS, Terminal(80, unicode=False)).isascii()


def test_no_line_is_wider_than_the_terminal(messages: list[Message], slowest: Slowest) -> None:
    for width in range(40, 241):
        for line in [
            *shown(messages, Terminal(width)),
            *render_slowest(slowest, "tx", OFFSET_NS, Terminal(width)).split("\n"),
        ]:
            assert columns(line) <= width, line
            assert line == line.rstrip()


def test_nothing_is_cut_off_in_40_columns(messages: list[Message]) -> None:
    wide, narrow = ("".join("".join(shown(messages, Terminal(width))).split()) for width in (400, 40))
    assert wide == narrow


def test_figures_of_a_message_stand_under_their_titles() -> None:
    assert cells(message()) == {
        "time UTC": cells(message())["time UTC"],
        "time": "03:04:05.250000",
        "process": "4711 worker",
        "flow": "10.77.0.1:43210 > 10.77.0.2:12345",
        "length": "64",
        "total": "110µs",
        "tcp/udp": "3.10µs",
        "sched": "4.60µs",
        "qdisc": "1.80µs",
        "driver": "750ns",
        "nic": "-",
        "ack": "100µs",
        "remarks": "",
    }


def test_what_was_not_seen_is_a_dash_and_what_is_not_there_is_blank() -> None:
    unseen = cells(message(entry_ns=None, sched_ns=None, driver_ns=None, qdisc_ns=None, done_ns=None))
    assert [unseen[name] for name in ("total", "tcp/udp", "sched", "qdisc", "driver", "nic", "ack")] == ["-"] * 7
    datagram = cells(message(datagram=True))
    assert [datagram[name] for name in ("sched", "nic", "ack")] == [""] * 3
    assert cells(message(None))["flow"] == "-"
    assert cells(message(entry_ns=None, handed_ns=None))["time"].strip() == "-"


@pytest.mark.parametrize(
    ("changes", "remarks"),
    [
        ({"cause": "nagle"}, "nagle"),
        ({"retransmits": 1}, "1 retransmit"),
        (
            {
                "tcp": {
                    "handed": {"cwnd": 10, "srtt_ns": 26_000},
                    "sched": {"cwnd": 11, "srtt_ns": None},
                    "driver": None,
                }
            },
            "cwnd=10/11/-  srtt=26.0µs/-/-",
        ),
        ({"retransmits": 3, "cause": "congestion-window"}, "congestion-window  3 retransmits"),
        ({"slept": True}, "slept"),
        ({"aborted": True}, "closed"),
        ({"aborted": True, "datagram": True}, "dropped"),
    ],
)
def test_what_is_special_stands_at_the_end(changes: dict[str, object], remarks: str) -> None:
    assert cells(message(**changes))["remarks"] == remarks


def test_devices_have_the_time_between_them(messages: list[Message]) -> None:
    assert cells(messages[-1])["remarks"] == "vxlan0+1.20µs br0+700ns eth0"


def test_time_is_the_wall_clock_to_the_microsecond() -> None:
    assert cells(message(entry_ns=SENT_NS + 749_999))["time"] == "03:04:05.250749"
    assert cells(message(entry_ns=SENT_NS + 750_000_001))["time"] == "03:04:06.000000"


def test_columns_only_grow() -> None:
    terminal = Terminal(200)
    long = Columns("tx").fitting([message(FLOW_6)], terminal)
    assert long.flow > Columns("tx").flow
    assert long.fitting([message()], terminal) == long


def test_slowest_are_blamed_in_words(slowest: Slowest) -> None:
    lines = render_slowest(slowest, "tx", OFFSET_NS, Terminal(250)).split("\n")
    assert lines[0].startswith("slowest 6 of 1,234 messages in the whole run, held by: ")
    assert lines[1] == "without a total (not acknowledged, or start not observed): 2"
    assert lines[3].endswith("receiver-window 812ms of 815ms")
    assert lines[4].endswith("retransmission 201ms of 201ms  slept  congestion-window  2 retransmits")
