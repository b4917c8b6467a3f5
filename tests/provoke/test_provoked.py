# SPDX-License-Identifier: Apache-2.0
"""That each provocation makes its trouble, as often as it says, told by nstat, ip, tc and the kernel's own files."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IFNAME
from tests.provoke import addresses, connections, devices, firewall, host, listeners, memory, neighbours, udp
from tests.provoke.common import TIMES
from tests.provoke.evidence import link, moved, nstat, wait_counted
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace
    from tests.provoke.common import Provocation

pytestmark = pytest.mark.root

EXACT = [
    *(addresses.no_route_from_here, addresses.no_route_through_here, addresses.not_for_us),
    *(addresses.time_to_live_over, addresses.too_large_to_forward, addresses.reverse_path),
    *(addresses.wrong_header_checksum, addresses.cut_off, addresses.unknown_protocol),
    *(addresses.missing_fragment, addresses.fragment_memory_full, addresses.overlapping_fragments),
    *(addresses.no_route_from_here_6, addresses.missing_fragment_6, connections.never_closed, connections.peer_gone),
    *(connections.syn_lost, connections.closed_window, connections.sent_twice, connections.reset_by_us),
    *(connections.reset_by_others, connections.unread_data_thrown_away, connections.time_waits_full),
    *(listeners.accept_queue_full, listeners.syn_flood, listeners.syn_flood_without_cookies, listeners.refused),
    *(listeners.resets_sent, listeners.wrong_checksum, memory.too_many_orphans, neighbours.too_many),
    *(udp.receive_buffer_full, udp.send_buffer_full, udp.no_listener, udp.wrong_checksum),
]
# How often is the kernel's to decide.
SOME = [
    (connections.some_lost, "TcpRetransSegs"),
    (connections.no_answer, "TcpExtTCPTimeouts"),
    (connections.reader_stopped, "TcpExtTCPWinProbe"),
    (connections.receive_queue_pruned, "TcpExtRcvPruned"),
    (memory.socket_backlog_full, "TcpExtTCPBacklogDrop"),
    (memory.tcp_memory_used_up, "TcpExtTCPMemoryPressures"),
]
CONNTRACK = [
    (firewall.followed_too_many, "drop"),
    (firewall.not_understood, "invalid"),
    (firewall.not_to_be_told_apart, "insert_failed"),
]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("provoke", EXACT, ids=lambda provoke: provoke.__name__)
def test_counted_exactly(lab: Lab, provoke: Provocation) -> None:
    before = [nstat(end) for end in (lab.client, lab.server)]
    with provoke(lab) as provoked:
        assert provoked.counts
        wait_counted(provoked.namespace, before[provoked.namespace is lab.server], provoked.counts)
        now = nstat(provoked.namespace)
    counted = moved(before[provoked.namespace is lab.server], now)
    assert {name: counted.get(name) for name in provoked.counts} == provoked.counts


@pytest.mark.parametrize(
    ("provoke", "name"),
    [
        (partial(udp.receive_buffer_full, family=6), "Udp6RcvbufErrors"),
        (partial(udp.no_listener, family=6), "Udp6NoPorts"),
    ],
    ids=["receive_buffer_full", "no_listener"],
)
def test_counted_exactly_in_version_6(lab: Lab, provoke: Provocation, name: str) -> None:
    with provoke(lab) as provoked:
        wait_counted(provoked.namespace, {}, provoked.counts)
        assert nstat(provoked.namespace)[name] == provoked.counts[name] == TIMES


@pytest.mark.parametrize(("provoke", "name"), SOME, ids=lambda each: getattr(each, "__name__", each))
def test_counted(lab: Lab, provoke: Provocation, name: str) -> None:
    before = [nstat(end)[name] for end in (lab.client, lab.server)]
    with provoke(lab) as provoked:
        wait_counted(provoked.namespace, {name: before[provoked.namespace is lab.server]}, {name: 1})


@pytest.mark.parametrize(("provoke", "name"), CONNTRACK, ids=lambda each: getattr(each, "__name__", each))
def test_counted_exactly_by_conntrack(lab: Lab, provoke: Provocation, name: str) -> None:
    with provoke(lab) as provoked:
        eventually(lambda: per_cpu("nf_conntrack", provoked.namespace)[name] >= TIMES)
        assert per_cpu("nf_conntrack", provoked.namespace)[name] == TIMES
        assert list(provoked.readings.values()) == [TIMES]


def test_conntrack_nearly_full(lab: Lab) -> None:
    folder = Path("/proc/sys/net/netfilter")
    with firewall.nearly_too_many(lab) as provoked:
        said = [
            provoked.namespace.call((folder / f"nf_conntrack_{name}").read_text).strip() for name in ("count", "max")
        ]
    assert said == ["29", "31"]
    assert Path(folder / "nf_conntrack_max").read_text().strip() != "31"


@pytest.mark.parametrize(
    ("provoke", "name"),
    [(neighbours.too_many, "table_fulls"), (neighbours.no_answer, "unresolved_discards")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_counted_by_the_table_of_neighbours(lab: Lab, provoke: Provocation, name: str) -> None:
    # The table is the host's: others may be in it.
    before = per_cpu("arp_cache")[name]
    with provoke(lab):
        assert per_cpu("arp_cache")[name] - before >= TIMES


def test_a_source_that_cannot_be_is_counted_by_no_name_of_nstat(lab: Lab) -> None:
    # As documented: only the route cache has it, and only of the whole host.
    before, source = nstat(lab.server), per_cpu("rt_cache")["in_martian_src"]
    with addresses.martian(lab):
        assert per_cpu("rt_cache")["in_martian_src"] - source >= TIMES
        counted = moved(before, nstat(lab.server))
    assert set(counted) == {"IpInReceives", "IpExtInOctets", "IpExtInNoECTPkts"}


def test_memory_of_datagrams_is_counted_by_the_socket(lab: Lab) -> None:
    with udp.receive_memory_used_up(lab):
        lines = lab.server.call(Path("/proc/thread-self/net/udp").read_text).splitlines()
        counted = nstat(lab.server)
    assert [line.split()[-1] for line in lines[1:]] == [str(TIMES)]
    if not counted["UdpMemErrors"]:
        pytest.skip("this kernel counts them at the socket only, as 6.18 does")
    assert counted["UdpMemErrors"] == TIMES


def test_a_full_queue(lab: Lab) -> None:
    with devices.queue_full(lab) as provoked:
        assert list(provoked.readings.values()) == [TIMES]  # it has asked tc itself


def test_the_other_end_takes_less(lab: Lab) -> None:
    with devices.larger_than_the_other_end_takes(lab):
        assert link(lab.server, SERVER_IFNAME)["stats64"]["rx"]["dropped"] == TIMES


def test_a_full_backlog(lab: Lab) -> None:
    before = softnet(1)
    with devices.backlog_full(lab) as provoked:
        (lost,) = provoked.readings.values()
        assert softnet(1) - before >= lost
        assert link(lab.client, CLIENT_IFNAME)["stats64"]["tx"]["dropped"] == lost


def test_squeezed_time(lab: Lab) -> None:
    before = softnet(2)
    with devices.time_squeezed(lab):
        assert softnet(2) - before >= TIMES


def test_a_carrier_that_flaps(lab: Lab) -> None:
    before = link(lab.server, SERVER_IFNAME)["stats64"]["tx"]["carrier_changes"]
    with devices.carrier_flapping(lab):
        assert link(lab.server, SERVER_IFNAME)["stats64"]["tx"]["carrier_changes"] - before == 14


def test_cpus_that_are_too_few(lab: Lab) -> None:
    before = waited_us()
    with host.cpus_too_few(lab, 1.0):
        assert waited_us() - before > 100_000


def test_one_cpu_does_it_all(lab: Lab) -> None:
    before = processed()
    with host.one_cpu_does_it_all(lab, 1.0) as provoked:
        more = [now - then for then, now in zip(before, processed(), strict=True)]
    assert f"cpu {more.index(max(more))}" == provoked.subject


def test_settings_of_the_host_are_put_back(lab: Lab) -> None:
    names = ("core/netdev_max_backlog", "core/netdev_budget", "ipv4/tcp_mem", "ipv4/udp_mem", "ipv4/tcp_max_orphans")
    paths = [Path("/proc/sys/net") / name for name in (*names, "ipv4/neigh/default/gc_thresh3")]
    before = [path.read_text() for path in paths]
    for provoke in (devices.backlog_full, udp.receive_memory_used_up, neighbours.too_many):
        with provoke(lab):
            pass
    assert [path.read_text() for path in paths] == before


def per_cpu(name: str, namespace: Namespace | None = None) -> Counter[str]:
    """Return the columns of a file of /proc/net/stat, all CPUs together."""
    read = Path(f"/proc/thread-self/net/stat/{name}").read_text
    names, *rows = [line.split() for line in (namespace.call(read) if namespace else read()).splitlines()]
    total: Counter[str] = Counter()
    for row in rows:
        total.update({column: int(value, 16) for column, value in zip(names, row, strict=False)})
    return total


def softnet(column: int) -> int:
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[column], 16) for line in lines)


def processed() -> list[int]:
    return [int(line.split()[0], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines()]


def waited_us() -> int:
    """Return for how long some task waited for a CPU, as /proc/pressure has it."""
    return int(Path("/proc/pressure/cpu").read_text().splitlines()[0].rpartition("=")[2])
