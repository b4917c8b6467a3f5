# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

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
