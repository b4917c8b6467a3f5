# SPDX-License-Identifier: Apache-2.0
"""Every row of the categories is seen when the kernel does its work, and much less of it when it does not."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hopscope.model.categories import HOOKS, PROGRAM_ROWS, ROWS, Row
from hopscope.model.classify import Category, classify
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions
from tests.verbs.cpu import work_paths as paths
from tests.verbs.cpu import work_programs as programs
from tests.verbs.cpu import work_sockets as sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.verbs.cpu.work import Work

pytestmark = pytest.mark.root

HZ = 20_000
WORK_S = 0.5
DRAIN_EVERY_S = 0.03
LEAST_SAMPLES = 3
MOST_RUNS = 3
# Samples of a row with its work are so many times those of the same time without, at least.
TIMES = 3

# Row → what does its work. With plain datagrams between two namespaces none of it is done, but for what `ALWAYS` has.
WORK: dict[tuple[str, str], Work] = {
    ("interrupt", "softirq"): sockets.plain_udp,
    ("interrupt", "napi_schedule"): paths.polls,
    ("driver_poll", "{callee}"): paths.polls,
    ("driver_poll", "napi"): paths.polls,
    ("busy_poll", "{callee}"): sockets.busy_polling,
    ("gro", ""): paths.gro,
    ("xdp", "generic"): programs.generic_xdp,
    ("xdp", "redirect"): programs.xdp_redirect,
    ("xdp", ""): programs.xdp_redirect,
    ("tc", ""): programs.tc_classifier,
    ("bpf", "socket filter"): sockets.plain_udp,
    ("bpf", "cgroup"): programs.cgroup_program,
    ("bpf", "sockmap"): programs.sockmap,
    ("bpf", "tracing"): sockets.plain_udp,
    ("bpf", "lookup"): sockets.reuseport,
    ("receive_core", ""): sockets.plain_udp,
    ("receive_core", "backlog"): sockets.plain_udp,
    ("receive_core", "rps"): paths.rps,
    ("bridge", ""): paths.bridged,
    ("tunnel", "vxlan"): paths.vxlan,
    ("tunnel", "ipip"): paths.vxlan,
    ("tunnel", "udp"): paths.vxlan,
    ("tunnel", "mpls"): paths.seg6,
    ("virtual_device", "macvlan"): paths.macvlan,
    ("virtual_device", "tun"): paths.tap,
    ("virtual_device", "ifb"): paths.ifb,
    ("conntrack", ""): paths.tracked,
    ("conntrack", "defragment"): paths.tracked_fragments,
    ("nat", ""): paths.masqueraded,
    ("netfilter", "{hook}"): paths.masqueraded,
    ("netfilter", "nft {hook}"): paths.nft_hooks,
    ("netfilter", "iptables {hook}"): paths.iptables,
    ("ip_input", ""): sockets.plain_udp,
    ("ip_input", "fragments"): paths.fragments,
    ("local_delivery", ""): sockets.plain_udp,
    ("forwarding", ""): paths.forwarded,
    ("routing", ""): sockets.plain_udp,
    ("routing", "ipsec policy"): paths.ipsec_policy,
    ("ip_output", ""): sockets.plain_udp,
    ("ip_output", "fragments"): paths.fragments,
    ("neighbour", ""): paths.strangers,
    ("tcp", ""): sockets.plain_tcp,
    ("tcp", "mptcp"): sockets.mptcp,
    ("udp", ""): sockets.plain_udp,
    ("other_transport", "icmp"): sockets.icmp,
    ("other_transport", "raw"): sockets.plain_udp,
    ("other_transport", "packet"): sockets.tapped,
    ("other_transport", "af_xdp"): sockets.af_xdp,
    ("other_transport", "netlink"): sockets.netlink,
    ("other_transport", "vsock"): sockets.vsock,
    ("copy", "to user"): sockets.plain_tcp,
    ("copy", "from user"): sockets.plain_tcp,
    ("copy", "zero copy"): sockets.zero_copy,
    ("copy", "check"): sockets.plain_udp,
    ("transmit_core", ""): sockets.plain_udp,
    ("transmit_core", "segment"): paths.segments,
    ("qdisc", ""): paths.queued,
    ("driver_transmit", "{callee}"): sockets.plain_udp,
    ("checksum", ""): paths.checksums,
    ("socket", ""): sockets.plain_udp,
    ("socket", "system call"): sockets.plain_udp,
    ("socket", "file"): sockets.plain_udp,
    ("socket", "security"): sockets.plain_udp,
    ("socket", "splice"): sockets.zero_copy,
    ("memory", "page pool"): programs.xdp_redirect,
    ("memory", "skb"): sockets.plain_udp,
    ("memory", "socket"): sockets.plain_udp,
    ("memory", "slab"): sockets.plain_udp,
    ("memory", "cgroup"): sockets.fresh_buffers,
    ("memory", "pages"): sockets.fresh_buffers,
    ("memory", "page fault"): sockets.fresh_buffers,
    ("locks", "spin"): sockets.contended,
    ("locks", "socket"): sockets.small_segments,
    ("locks", "sleep"): sockets.af_xdp,
    ("scheduling", "wake-up"): sockets.sleeping_readers,
    ("scheduling", "switch"): sockets.sleeping_readers,
    ("crypto", "ipsec"): paths.ipsec_policy,
    ("crypto", "cipher"): sockets.signed,
    ("accounting", "time"): sockets.plain_udp,
}
# Rows whose work is part of any other, or other programs of this host do it: no run is without.
ALWAYS = {row for row, does in WORK.items() if does is sockets.plain_udp} | {
    ("tcp", ""),
    ("copy", "to user"),
    ("copy", "from user"),
    ("locks", "spin"),
    ("locks", "socket"),
    ("locks", "sleep"),
    ("driver_poll", "{callee}"),
    ("receive_core", "rps"),  # from the first device on that went with it set
    ("memory", "cgroup"),
    ("scheduling", "wake-up"),
    ("scheduling", "switch"),
}
# Rows that no test can have this kernel work for, and why.
UNREACHABLE = {
    ("interrupt", "{callee}"): "the clock that samples does not interrupt the handler of an interrupt",
    ("interrupt", ""): "the clock that samples does not interrupt the entry of an interrupt",
    ("bridge", "openvswitch"): "needs CONFIG_OPENVSWITCH",
    ("tunnel", "geneve"): "needs CONFIG_GENEVE",
    ("tunnel", "gre"): "needs CONFIG_NET_IPGRE",
    ("tunnel", "wireguard"): "needs CONFIG_WIREGUARD",
    ("tunnel", "ppp"): "needs CONFIG_PPP",
    ("virtual_device", "vlan"): "needs CONFIG_VLAN_8021Q",
    ("virtual_device", "ipvlan"): "needs CONFIG_IPVLAN",
    ("virtual_device", "bond"): "needs CONFIG_BONDING",
    ("virtual_device", "vrf"): "needs CONFIG_NET_VRF",
    ("netfilter", "ebtables {hook}"): "needs CONFIG_BRIDGE_NF_EBTABLES_LEGACY",
    ("netfilter", "flowtable"): "needs CONFIG_NF_FLOW_TABLE",
    ("netfilter", "ipvs"): "needs CONFIG_IP_VS",
    ("other_transport", "sctp"): "needs CONFIG_IP_SCTP",
    ("other_transport", "dccp"): "needs CONFIG_IP_DCCP, removed in 6.16",
    ("other_transport", "smc"): "needs CONFIG_SMC, CONFIG_RDS, CONFIG_TIPC or CONFIG_AF_KCM",
    ("socket", "io_uring"): "calls of io_uring are told by the functions of sockets, and are counted from there on",
    ("memory", "dma"): "needs a device that does DMA",
    ("crypto", "tls"): "needs CONFIG_TLS",
    ("accounting", "cpu"): "needs CONFIG_IRQ_TIME_ACCOUNTING",
}
AT_HOOK: dict[str, Work] = {
    "prerouting": paths.nft_hooks,
    "input": paths.nft_hooks,
    "forward": paths.nft_hooks,
    "output": paths.nft_hooks,
    "postrouting": paths.nft_hooks,
    "bridge": paths.nft_bridge,
    "ingress": paths.nft_device,
    "egress": paths.nft_device,
}
NO_HOOK = {"arp": "a test's worth of ARP is too few packets to be sampled"}
PROGRAMS: list[tuple[Work, Category]] = [
    (programs.xdp, Category("xdp", "burn_xdp")),
    (programs.generic_xdp, Category("xdp", "burn_xdp")),
    (programs.tc_program, Category("tc", "burn_tc")),
    (programs.tc_program_out, Category("tc", "burn_tc")),
    (programs.tcx_program, Category("tc", "burn_tc")),
    (programs.cgroup_program, Category("bpf", "burn_cgroup")),
]


class Runs:
    """What was seen while the kernel did each kind of work: one run of it at first, more where they are asked for."""

    def __init__(self, cpu: CpuCollector, folder: Path) -> None:
        self._cpu = cpu
        self._folder = folder
        self._runs: dict[Work, list[Counter[Category]]] = {}

    def of(self, kind: Work, number: int = 1) -> list[Counter[Category]]:
        runs = self._runs.setdefault(kind, [])
        while len(runs) < number:
            runs.append(sampled(self._cpu, kind, self._folder))
        return runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with CpuCollector(CpuOptions(hz=HZ)) as cpu:
        yield Runs(cpu, tmp_path_factory.mktemp("work"))


def differs(runs: Runs, kind: Work, count: Callable[[Counter[Category]], int], *, always: bool = False) -> bool:
    """Tell whether something is seen with a kind of work, and much less of it with plain datagrams.

    All of the host is seen. What others do on it meanwhile is taken for an answer only if it goes on.
    """
    for number in range(1, MOST_RUNS + 1):
        with_work = max(map(count, runs.of(kind, number)))
        without = 0 if always else min(map(count, runs.of(sockets.plain_udp, number)))
        if with_work >= max(LEAST_SAMPLES, TIMES * without):
            return True
    return False


def sampled(cpu: CpuCollector, kind: Work, folder: Path) -> Counter[Category]:
    """Have the kernel do the work for a while, and return the samples of each category."""
    with kind(folder) as act:
        act()
        cpu.interval()
        end_s = time.monotonic() + WORK_S
        drain_s = 0.0
        while (now_s := time.monotonic()) < end_s:
            act()
            if now_s > drain_s:
                cpu.drain()
                drain_s = now_s + DRAIN_EVERY_S
        snapshot = cpu.interval()
    counts: Counter[Category] = Counter()
    for stack in snapshot.stacks:
        counts[classify(stack.frames, ("cpu_",))] += stack.samples
    return counts


def of_row(counts: Counter[Category], row: Row) -> int:
    """Return the samples that a row brought about: its detail may have a name in it."""
    exact = {other.detail for other in ROWS if other.category == row.category and other is not row}
    pattern = re.escape(row.detail).replace(r"\{callee\}", ".*").replace(r"\ \{hook\}", "( .*)?")
    pattern = pattern.replace(r"\{hook\}", "|".join(hook.detail for hook in HOOKS))
    return sum(
        samples
        for (category, detail), samples in counts.items()
        if category == row.category and detail not in exact and re.fullmatch(pattern, detail)
    )


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.category}-{row.detail or 'plain'}")
def test_a_row_is_seen_when_its_work_is_done(row: Row, runs: Runs) -> None:
    key = row.category, row.detail
    if key in UNREACHABLE:
        pytest.skip(f"{row.category} {row.detail}: {UNREACHABLE[key]}")
    assert differs(runs, WORK[key], lambda counts: of_row(counts, row), always=key in ALWAYS)


@pytest.mark.slow
@pytest.mark.parametrize("row", HOOKS, ids=lambda row: row.detail)
def test_rules_are_seen_at_the_hook_where_they_are(row: Row, runs: Runs) -> None:
    if row.detail in NO_HOOK:
        pytest.skip(NO_HOOK[row.detail])
    rules = Category("netfilter", f"nft {row.detail}")
    assert differs(runs, AT_HOOK[row.detail], lambda counts: counts[rules])


@pytest.mark.parametrize(("kind", "expected"), PROGRAMS, ids=lambda each: getattr(each, "__name__", None))
def test_a_program_is_seen_where_it_runs_and_nowhere_else(kind: Work, expected: Category, runs: Runs) -> None:
    (counts, *_) = runs.of(kind)
    found = {category: samples for category, samples in counts.items() if category.detail == expected.detail}
    assert found.pop(expected) >= 20 * (sum(found.values()) + 1)


def test_every_row_has_a_test_or_a_reason() -> None:
    rows = {(row.category, row.detail) for row in ROWS}
    assert rows == WORK.keys() | UNREACHABLE.keys()
    assert not WORK.keys() & UNREACHABLE.keys()
    assert WORK.keys() >= ALWAYS
    hooks = {row.detail for row in HOOKS}
    assert hooks == AT_HOOK.keys() | NO_HOOK.keys()
    assert {row.category for row in PROGRAM_ROWS} == {category.category for _, category in PROGRAMS} - {"bpf"}


def test_little_is_left_over(runs: Runs) -> None:
    for kind in (sockets.plain_udp, sockets.plain_tcp, paths.bridged, paths.nft_hooks, paths.masqueraded):
        (counts, *_) = runs.of(kind)
        assert counts[Category("other", "")] <= 0.02 * counts.total()
