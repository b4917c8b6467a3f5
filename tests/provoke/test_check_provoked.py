# SPDX-License-Identifier: Apache-2.0
"""Each trouble is found by a check: by its name, with its count, where it is, and with nothing false beside it."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.model.counters.readings import HOST
from tests.lab.measure import TIMEOUT_S
from tests.provoke import (
    addresses,
    checking,
    connections,
    devices,
    firewall,
    host,
    limits,
    listeners,
    memory,
    neighbours,
    udp,
)
from tests.provoke.common import TIMES
from tests.provoke.evidence import moved, nstat, wait_counted
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.provoke.common import Provocation

pytestmark = pytest.mark.root


@dataclass(frozen=True)
class Case:
    """A trouble and what a check must say of it.

    Parameters
    ----------
    provoke
        What brings it about.
    finding
        The id that must be found.
    exactly
        What the readings of its evidence must have counted, by their names; None for as much as nstat says.
    also
        Other ids that are true of it, in either of the namespaces or on the host.
    on_host
        Whether the finding is of the host, where others may add to it.
    """

    provoke: Provocation
    finding: str
    exactly: Mapping[str, int | None] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    on_host: bool = False

    @property
    def name(self) -> str:
        plain: Callable[..., object] = getattr(self.provoke, "func", self.provoke)
        return f"{plain.__name__}-{self.finding}"  # type: ignore[attr-defined]


def case(
    provoke: Provocation, finding: str, *also: str, on_host: bool = False, times: int | None = TIMES, names: str = ""
) -> Case:
    return Case(provoke, finding, dict.fromkeys(names.split(), times), frozenset(also), on_host)


CASES = [
    case(udp.receive_buffer_full, "udp-receive-buffer", names="UdpRcvbufErrors"),
    case(partial(udp.receive_buffer_full, family=6), "udp6-receive-buffer", names="Udp6RcvbufErrors"),
    case(udp.receive_memory_used_up, "udp-lost-uncounted", names="drops"),
    case(udp.send_buffer_full, "udp-send-buffer", names="UdpSndbufErrors"),
    case(udp.no_listener, "udp-no-port", names="UdpNoPorts"),
    case(udp.wrong_checksum, "udp-checksum", names="UdpInCsumErrors"),
    case(listeners.accept_queue_full, "tcp-listen-overflow", "socket-listener-filling", names="TcpExtListenOverflows"),
    case(listeners.syn_flood, "tcp-syn-cookies", names="TcpExtSyncookiesSent"),
    case(listeners.syn_flood_without_cookies, "tcp-syn-queue-full", names="TcpExtTCPReqQFullDrop"),
    case(listeners.refused, "tcp-attempts-failed", "tcp-resets-sent", names="TcpAttemptFails"),
    case(listeners.resets_sent, "tcp-resets-sent", "tcp-attempts-failed", names="TcpOutRsts"),
    case(listeners.wrong_checksum, "tcp-checksum", names="TcpInCsumErrors"),
    case(addresses.no_route_from_here, "ip-no-route-out", names="IpOutNoRoutes"),
    case(addresses.no_route_from_here_6, "ip6-no-route-out", names="Ip6OutNoRoutes"),
    case(addresses.no_route_through_here, "ip-no-route-in", names="IpExtInNoRoutes"),
    case(addresses.not_for_us, "ip-not-for-us", names="IpInAddrErrors"),
    case(addresses.time_to_live_over, "ip-hops-exceeded", names="IpInHdrErrors"),
    case(addresses.too_large_to_forward, "device-mtu-too-small", names="IpFragFails"),
    case(addresses.reverse_path, "ip-reverse-path", names="TcpExtIPReversePathFilter"),
    case(addresses.wrong_header_checksum, "ip-checksum", names="IpExtInCsumErrors"),
    case(addresses.martian, "ip-martians", on_host=True, names="in_martian_src"),
    case(addresses.unknown_protocol, "ip-unknown-protocol", names="IpInUnknownProtos"),
    case(addresses.cut_off, "ip-truncated", names="IpExtInTruncatedPkts"),
    case(addresses.missing_fragment, "ip-reassembly-timeout", names="IpReasmTimeout"),
    case(addresses.missing_fragment_6, "ip6-reassembly-timeout", names="Ip6ReasmTimeout"),
    case(addresses.overlapping_fragments, "ip-reassembly-failure", names="IpReasmFails"),
    case(
        addresses.fragment_memory_full, "ip-reassembly-failure", "ip-fragment-memory", names="IpReasmFails",
        times=TIMES - 1,
    ),
    case(addresses.fragment_memory_full, "ip-fragment-memory", "ip-reassembly-failure"),
    case(connections.some_lost, "tcp-retransmission", names="TcpRetransSegs", times=None),
    case(
        connections.no_answer, "tcp-timeouts", "socket-no-answer", "tcp-retransmission", "tcp-lost-retransmission",
        names="TcpExtTCPTimeouts", times=None,
    ),
    case(
        connections.syn_lost, "tcp-syn-retransmission", "tcp-abort-timeout", "tcp-attempts-failed",
        names="TcpExtTCPSynRetrans",
    ),
    case(connections.closed_window, "tcp-zero-window-sent", names="TcpExtTCPToZeroWindowAdv", times=11),
    case(connections.reader_stopped, "tcp-zero-window-received", names="TcpExtTCPWinProbe", times=None),
    case(
        connections.receive_queue_pruned, "tcp-receive-pruned", "tcp-receive-queue-drop", names="TcpExtRcvPruned",
        times=None,
    ),
    case(connections.sent_twice, "tcp-duplicates-received", names="TcpExtTCPDSACKOldSent"),
    case(connections.out_of_order, "tcp-receive-out-of-order", names="TcpExtTCPOFOQueue"),
    case(connections.reset_by_us, "tcp-abort-data", names="TcpExtTCPAbortOnData"),
    case(connections.reset_by_others, "tcp-connections-reset", names="TcpEstabResets"),
    case(connections.unread_data_thrown_away, "tcp-abort-close", names="TcpExtTCPAbortOnClose"),
    case(connections.peer_gone, "tcp-abort-timeout", "tcp-timeouts", names="TcpExtTCPAbortOnTimeout", times=7),
    case(
        connections.time_waits_full, "tcp-time-wait-overflow", "tcp-time-wait-filling",
        names="TcpExtTCPTimeWaitOverflow",
    ),
    case(devices.queue_full, "qdisc-drop", names="drops"),
    case(
        devices.larger_than_the_other_end_takes, "device-rx-dropped", "device-tx-dropped", names="rx_dropped",
    ),
    case(
        devices.backlog_full, "softnet-backlog-drop", "device-rx-dropped", "device-tx-dropped", on_host=True,
        names="dropped", times=56,
    ),
    case(devices.backlog_full, "device-tx-dropped", "device-rx-dropped", names="tx_dropped", times=56),
    case(devices.time_squeezed, "softnet-time-squeeze", on_host=True, names="time_squeeze"),
    case(devices.carrier_flapping, "nic-carrier", names="carrier_changes", times=14),
    case(firewall.followed_too_many, "conntrack-full", "conntrack-filling", names="drop"),
    case(firewall.nearly_too_many, "conntrack-filling"),
    case(firewall.not_understood, "conntrack-invalid", names="invalid"),
    case(firewall.not_to_be_told_apart, "conntrack-insert-failed", names="insert_failed"),
    case(
        memory.tcp_memory_used_up, "tcp-memory-pressure", "tcp-receive-queue-drop", "tcp-retransmission",
        "tcp-timeouts", names="TcpExtTCPMemoryPressures", times=None,
    ),
    case(memory.too_many_orphans, "tcp-abort-memory", "tcp-timeouts", "tcp-stuck-in-host",
         names="TcpExtTCPAbortOnMemory"),
    case(memory.socket_backlog_full, "tcp-backlog-drop", "tcp-receive-pruned", "tcp-receive-queue-drop",
         names="TcpExtTCPBacklogDrop", times=None),
    case(neighbours.too_many, "arp-table-overflow", on_host=True, names="table_fulls"),
    case(neighbours.no_answer, "arp-unresolved-drop", on_host=True, names="unresolved_discards"),
    case(listeners.accept_queue_nearly_full, "socket-listener-filling"),
    case(firewall.ruled_out, "nft-drop", names="drops"),
    case(limits.ports_exhausted, "socket-ports-exhausted"),
    case(partial(limits.ports_exhausted, time_wait=True), "socket-ports-exhausted"),
    case(limits.no_descriptor_left, "socket-descriptors-exhausted"),
    case(host.cpus_too_few, "cpu-pressure", on_host=True),
    case(host.one_cpu_does_it_all, "softnet-rps-off", "softnet-cpu-saturated"),
]  # fmt: skip


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


# What sockets are at two moments, once it has lasted for a second.
LASTING = [
    (connections.never_closed, "socket-not-closed"),
    (connections.reader_stopped, "socket-window-closed"),
    (connections.no_answer, "socket-no-answer"),
    (connections.black_hole, "tcp-mtu-black-hole"),
    (partial(connections.black_hole, sacked=True), "tcp-mtu-black-hole"),
]


@pytest.mark.parametrize(("provoke", "finding"), LASTING, ids=[finding for _, finding in LASTING])
def test_lasts(lab: Lab, provoke: Provocation, finding: str) -> None:
    with provoke(lab) as provoked:
        time.sleep(1.2)
        watch = checking.of_lab(lab)
        found = [each for each in watch.look().findings if each.id == finding]
    assert [each.netns for each in found] == [provoked.namespace.inode]
    assert any(row.now for each in found for row in each.evidence)


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_found(lab: Lab, each: Case) -> None:
    start = [nstat(end) for end in (lab.client, lab.server)]
    watch = checking.of_lab(lab)
    with each.provoke(lab) as provoked:
        before = start[provoked.namespace is lab.server]
        place = HOST if each.on_host else provoked.namespace.inode
        deadline_s = time.monotonic() + TIMEOUT_S
        enough = False
        while not enough:  # what was sent arrives later where a CPU stands still
            least = moved(before, nstat(provoked.namespace))
            findings = watch.look().findings
            most = moved(before, nstat(provoked.namespace))
            found = [finding for finding in findings if (finding.id, finding.netns) == (each.finding, place)]
            counted = checking.total(found, each.exactly)
            expected = {name: least.get(name, 0) if times is None else times for name, times in each.exactly.items()}
            enough = bool(found) and all(counted.get(name, 0) >= expected[name] for name in expected)
            enough = enough or time.monotonic() > deadline_s
    assert found, checking.grave(findings)
    assert counted.keys() == expected.keys()
    for name, times in each.exactly.items():
        assert counted[name] >= expected[name]
        if not each.on_host:  # others' traffic may have it as well
            assert counted[name] <= (most[name] if times is None else times)
    assert all(finding.fixes for finding in found)
    graver = [one for one in findings if one.id not in {each.finding, *each.also}]
    assert checking.grave(graver) == []


def test_the_listener_is_named(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with listeners.accept_queue_full(lab) as provoked:
        (found,) = [each for each in watch.look().findings if each.id == "tcp-listen-overflow"]
    assert any(row.key.subject.startswith(provoked.subject) for row in found.evidence)


def test_retransmitted_syns_are_not_said_to_be_connections(lab: Lab) -> None:
    start, watch = nstat(lab.server), checking.of_lab(lab)
    with listeners.attempts_refused(lab, attempts=100) as provoked:
        wait_counted(lab.server, start, provoked.counts)
        (found,) = [each for each in watch.look().findings if each.id == "tcp-listen-overflow"]
    refused = provoked.counts["TcpExtListenOverflows"]
    assert refused >= 2 * 100
    assert (
        found.sentence == f"{refused} TCP segments (SYN or final ACK) were refused because a listener's accept queue "
        "was full"
    )
    assert "not connection attempts" in found.entry.why


def test_dead_peer_is_no_black_hole(lab: Lab) -> None:
    with connections.no_answer(lab):
        eventually(lambda: nstat(lab.client)["TcpExtTCPTimeouts"] >= 4 * 11)
        assert "tcp-mtu-black-hole" not in [each.id for each in checking.of_lab(lab).look().findings]


@pytest.mark.parametrize("time_wait", [False, True], ids=["open", "time-wait"])
def test_used_up_ports_are_counted_by_destination(lab: Lab, time_wait: bool) -> None:  # noqa: FBT001 - a case
    watch = checking.of_lab(lab)
    with limits.ports_exhausted(lab, time_wait=time_wait) as provoked:
        (found,) = [each for each in watch.look().findings if each.id == "socket-ports-exhausted"]
    assert found.sentence == f"100 of 100 local ports (100%) are in use for connections {provoked.subject}"
    assert any("tcp_tw_reuse=1" in fix for fix in found.fixes) == time_wait


def test_dropping_rule_is_named(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with firewall.ruled_out(lab) as provoked:
        eventually(lambda: bool(watch.look().findings))
        (found,) = [each for each in watch.look().findings if each.id == "nft-drop"]
        listed = subprocess.run(shlex.split(found.fixes[0].partition("  # ")[0]), capture_output=True, check=True)
    assert found.sentence == f"{TIMES} packets were dropped by the nftables rule {provoked.subject}"
    assert provoked.subject.partition(" handle ")[2] in listed.stdout.decode()


def test_process_without_descriptors_is_named(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with limits.descriptors_exhausted(lab) as (provoked, child):
        (found,) = [each for each in watch.look().findings if each.id == "socket-descriptors-exhausted"]
        fds = len(os.listdir(f"/proc/{child.pid}/fd"))  # noqa: PTH208 - names
    assert f"whose process {child.pid} (python" in found.sentence
    assert f"has {fds} of {fds} file descriptors open" in found.sentence
    assert found.subject == provoked.subject


def test_fixes_enter_the_namespace(lab: Lab) -> None:
    watch = checking.of_lab(lab)
    with devices.queue_full(lab):
        (found,) = [each for each in watch.look().findings if each.id == "qdisc-drop"]
    assert all(fix.startswith(f"nsenter -t {lab.client.pid} -n ") for fix in found.fixes if not fix.startswith("#"))
