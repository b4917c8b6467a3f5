# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hopscope.model.snapshot import Ending, PacketAccount
from hopscope.term.footer import footer
from hopscope.term.terminal import Terminal

if TYPE_CHECKING:
    from hopscope.model.snapshot import Snapshot


def test_footer_names_every_kind_of_loss_most_first(full_snapshot: Snapshot) -> None:
    lines = footer(full_snapshot, Terminal(200))
    assert [line.split(":")[0] for line in lines] == ["lost", "discarded", "missed", "cost", "note"]
    assert lines[1].startswith("discarded: 1,212 samples for 2 reasons (--json), most: 1,204 at rx.udp (95%): ")
    assert not any("must not be shown" in line for line in lines)


def test_footer_without_losses_is_the_cost(tcp_snapshot: Snapshot) -> None:
    lines = footer(tcp_snapshot, Terminal(200))
    assert lines[-1] == "cost: 0.8% CPU in BPF (62 ns/hit), 0.2% reader"
    assert lines[0].startswith("missed: 3 ")
    assert len(lines) == 2


def test_unknown_cost_is_said(full_snapshot: Snapshot) -> None:
    (line,) = (each for each in footer(full_snapshot, Terminal(200)) if each.startswith("cost: "))
    assert line == "cost: CPU in BPF unknown (takes CAP_SYS_ADMIN and Linux 5.8), <0.01% reader"


def test_what_became_of_packets_is_one_line_with_the_most_frequent_reasons(tcp_snapshot: Snapshot) -> None:
    drops = [Ending("dropped", f"R{number}", "rx.ip", number) for number in range(1, 7)]
    packets = PacketAccount(2, 1100, 1000, 7, 64, 0, [*drops, Ending("discarded", "no_data", "rx.tcp", 10)])
    assert footer(replace(tcp_snapshot, packets=packets), Terminal(200))[0] == (
        "packets: 1,100 entered, 2 from before: 1,000 read, 7 queued, 64 not known yet, 21 dropped (R6 6, R5 5, R4 4, "
        "R3 3, 3 for other reasons (--json)), 10 others (no_data 10)"
    )
