# SPDX-License-Identifier: Apache-2.0
"""Empty programs: they compile, they let packets pass, and they run as often as their models."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest

import build_bpf
from bench.floor import Floor, source
from hopscope.libbpf import BpfObject, enable_stats
from hopscope.probes.catalogue import RX
from hopscope.probes.resolve import Plan, Resolver

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = {"one": "tp_btf/netif_rx", "two": "netfilter", "three": "cgroup_skb/ingress", "four": "fentry/ip_rcv_core"}
KINDS = {"one": "tp_btf", "two": "netfilter", "three": "cgroup_skb", "four": "fentry"}


def test_empty_programs_compile_into_the_sections_of_their_models(tmp_path: Path) -> None:
    code = tmp_path / "floor.bpf.c"
    code.write_text(source(SECTIONS, KINDS))
    target = tmp_path / "floor.bpf.o"
    build_bpf.compile_object(code, target, build_bpf.host_arch())
    with BpfObject.open(target) as bpf:
        assert {name: program.section for name, program in bpf.programs.items()} == SECTIONS


def test_programs_that_judge_packets_let_them_pass() -> None:
    code = source(SECTIONS, KINDS)
    returned = dict(re.findall(r"int (\w+)\(void \*ctx\) { return (\d); }", code))
    assert returned == {"one": "0", "two": "1", "three": "1", "four": "0"}


@pytest.mark.root
def test_empty_programs_run_for_each_packet_and_drop_none(tmp_path: Path) -> None:
    with (
        Floor(tmp_path, "rx", Plan(Resolver(), RX).programs()).attached() as programs,
        enable_stats(),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(5)
        for number in range(23):
            sender.sendto(bytes([number]), sink.getsockname())
            assert sink.recv(10) == bytes([number])
        runs = {program.name: program.info().run_count for program in programs}
    assert {name for name in ("rx_core", "rx_netif_rx") if runs[name] < 23} == set()
