# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hopscope.model.cpu import Counted, CpuRow, CpuSnapshot, Part, added
from hopscope.model.parts import PARTS
from hopscope.model.snapshot import Overhead, PlanRow, ProgramCost
from hopscope.model.stacks import Stack
from hopscope.term.cpu_json import cpu_to_json
from hopscope.term.json_lines import line
from hopscope.term.terminal import Terminal, columns
from hopscope.verbs.cpu.table import render_cpu
from tests.lab.command import assert_fits

if TYPE_CHECKING:
    from collections.abc import Callable

STARTED_NS = 1_767_323_045_250_000_000  # 2026-01-02 03:04:05.25 UTC
SOFTIRQ = ("handle_softirqs", "net_rx_action", "__napi_poll", "process_backlog")
OVERHEAD = Overhead(11_124, 162.4, 1.83, 0.21, 0, [ProgramCost("cpu_switch", 4_001, 97.9, 33.5)])
NOTHING = Part(0, 0, 0, 0)


def row(name: str, value: str, **parts: Part) -> CpuRow:
    return CpuRow({name: value}, dict.fromkeys(PARTS, NOTHING) | parts)


def snapshot(rows: list[CpuRow], stacks: list[Stack] | None = None) -> CpuSnapshot:
    return CpuSnapshot(
        kind="interval",
        started_ns=STARTED_NS,
        duration_s=2.0,
        cpus=2,
        total=CpuRow({}, added(rows)),
        rows=rows,
        overhead=OVERHEAD,
        hz=999 if stacks else 0,
        stacks=stacks or [],
        plan=[PlanRow("cpu.switch", "tp_btf:sched_switch", "attached")],
    )


@pytest.fixture
def by_cpu() -> CpuSnapshot:
    stacks = [
        Stack("net_rx", (*SOFTIRQ, "ip_rcv", "nf_hook_slow", "nft_do_chain_inet", "nft_do_chain"), 40),
        Stack("net_rx", (*SOFTIRQ, "ip_local_deliver", "tcp_v4_rcv"), 60),
        Stack("send", ("do_syscall_64", "ksys_write", "tcp_sendmsg", "tcp_sendmsg_locked", "_copy_from_iter"), 300),
        Stack("send", ("do_syscall_64", "ksys_write", "tcp_sendmsg", "tcp_sendmsg_locked"), 200),
    ]
    rows = [
        row("cpu", "0", net_rx=Part(150_000_000, 40_000, 61_234, 0), irq=Part(1_000_000, 3_000, 0, 0)),
        row("cpu", "1", send=Part(1_900_000_000, 17_302, 0, 2_267_177_803), receive=Part(400_000, 4, 0, 327)),
    ]
    return snapshot(rows, stacks)


@pytest.fixture
def by_process() -> CpuSnapshot:
    names = [f"service-{number} ({1000 + number})" for number in range(30)]
    return snapshot([row("process", name, send=Part(10**7 * (31 - n), 100, 0, 10**6)) for n, name in enumerate(names)])


@pytest.fixture
def with_counters() -> CpuSnapshot:
    nothing = dict.fromkeys(PARTS, Part(0, 0, 0, 0, Counted(0, 0, None)))
    net_rx = Part(150_000_000, 40_000, 61_234, 0, Counted(450_000_000, 540_000_000, None))
    send = Part(1_900_000_000, 17_302, 0, 2_267_177_803, Counted(5_320_000_000, 4_256_000_000, None))
    return snapshot(
        [CpuRow({"cpu": "0"}, nothing | {"net_rx": net_rx}), CpuRow({"cpu": "1"}, nothing | {"send": send})]
    )


@pytest.fixture
def by_samples(by_cpu: CpuSnapshot) -> CpuSnapshot:
    net_rx, send = Part(150_000_000, 0, 0, 0, samples=30), Part(1_900_000_000, 0, 0, 0, samples=380)
    rows = [row("cpu", "0", net_rx=net_rx, timer=Part(5_000_000, 0, 0, 0, samples=1)), row("cpu", "1", send=send)]
    return replace(by_cpu, rows=rows, total=CpuRow({}, added(rows)), hz=200, ticks=800)


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("name", ["by_cpu", "by_process", "with_counters", "by_samples"])
def test_tables_look_as_agreed(
    name: str, width: int, golden: Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    text = render_cpu(request.getfixturevalue(name), Terminal(width), limit=5, breakdown=name == "by_cpu")
    golden(f"cpu_{name}_{width}", text)


@pytest.mark.parametrize("name", ["by_cpu", "by_process", "with_counters", "by_samples"])
def test_no_line_is_wider_than_the_terminal(name: str, request: pytest.FixtureRequest) -> None:
    for width in range(40, 161, 7):
        for text in render_cpu(request.getfixturevalue(name), Terminal(width), limit=5, breakdown=True).splitlines():
            assert columns(text) <= width, text


def test_ascii_is_enough(by_cpu: CpuSnapshot) -> None:
    assert render_cpu(by_cpu, Terminal(80, unicode=False), limit=5, breakdown=True).isascii()


def test_what_is_missing_is_said(by_cpu: CpuSnapshot) -> None:
    text = render_cpu(
        replace(by_cpu, lost=7, notes=["something is"], energy_j=12.34), Terminal(80), limit=5, breakdown=False
    )
    assert "lost: 7 stacks" in text
    assert "note: something is" in text
    assert "energy: 12.3 J" in text


def test_an_idle_host_is_told() -> None:
    text = render_cpu(snapshot([row("cpu", "0")]), Terminal(80), limit=5, breakdown=True)
    assert "No CPU time was spent on networking" in text


def test_groups_beyond_the_top_are_counted(by_process: CpuSnapshot) -> None:
    assert "and 25 more with less CPU time (--limit)" in render_cpu(by_process, Terminal(80), limit=5, breakdown=False)


@pytest.mark.parametrize("name", ["by_cpu", "by_process", "with_counters", "by_samples"])
def test_json_is_one_line_that_follows_the_schema_and_adds_up(name: str, request: pytest.FixtureRequest) -> None:
    text = line(cpu_to_json(request.getfixturevalue(name)))
    assert "\n" not in text
    document = json.loads(text)
    assert_fits(document, "cpu-1")
    assert sum(each["ns"] for each in document["rows"]) == document["total"]["ns"]
    for each in (document["total"], *document["rows"]):
        assert sum(part["ns"] for part in each["parts"]) == each["ns"]
        assert [part["part"] for part in each["parts"]] == list(PARTS)
    for part in document["total"]["parts"]:
        shares = [share for share in document["breakdown"] if share["part"] == part["part"]]
        assert sum(share["ns"] for share in shares) == part["ns"] * bool(document["sampling_hz"])


def test_counters_are_in_json_where_they_were_asked_for(by_cpu: CpuSnapshot, with_counters: CpuSnapshot) -> None:
    parts = {part["part"]: part["counters"] for part in cpu_to_json(with_counters)["total"]["parts"]}
    assert parts["net_rx"] == {"cycles": 450_000_000, "instructions": 540_000_000, "cache_misses": None}
    assert {part["counters"] for part in cpu_to_json(by_cpu)["total"]["parts"]} == {None}


def test_the_netfilter_rules_have_their_share(by_cpu: CpuSnapshot) -> None:
    (share,) = [each for each in by_cpu.breakdown() if each.category == "netfilter"]
    assert (share.part, share.samples, share.ns) == ("net_rx", 40, 60_000_000)
    assert share.low < 0.4 < share.high
