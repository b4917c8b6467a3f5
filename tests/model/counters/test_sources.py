# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.kernel.counters import sysctl_names
from hopscope.model.counters.readings import HOST, Key
from hopscope.model.counters.sources import LAYERS, LAYERS_OF_NAMES, SOURCES, kind_of, layer_of


@pytest.mark.parametrize(
    ("source", "name", "layer"),
    [
        ("snmp", "IpInHdrErrors", "ip"),
        ("snmp", "IcmpOutDestUnreachs", "icmp"),
        ("snmp", "IcmpMsgOutType3", "icmp"),
        ("snmp", "TcpRetransSegs", "tcp"),
        ("snmp", "UdpRcvbufErrors", "udp"),
        ("snmp", "UdpLiteInErrors", "udp"),
        ("snmp6", "Ip6ReasmFails", "ip"),
        ("snmp6", "Icmp6InType135", "icmp"),
        ("snmp6", "Udp6RcvbufErrors", "udp"),
        ("netstat", "TcpExtListenDrops", "tcp"),
        ("netstat", "TcpExtTCPTimeouts", "tcp"),
        ("netstat", "TcpExtTcpTimeoutRehash", "tcp"),
        ("netstat", "TcpExtIPReversePathFilter", "ip"),
        ("netstat", "TcpExtArpFilter", "neighbour"),
        ("netstat", "TcpExtPFMemallocDrop", "memory"),
        ("netstat", "IpExtInNoRoutes", "ip"),
        ("netstat", "MPTcpExtMPTCPRetrans", "tcp"),
        ("sockstat", "TCP.mem", "tcp"),
        ("sockstat", "TCP6.inuse", "tcp"),
        ("sockstat", "UDP.mem", "udp"),
        ("sockstat", "FRAG6.memory", "ip"),
        ("sockstat", "sockets.used", "socket"),
        ("pressure", "cpu.some.total_us", "cpu"),
        ("pressure", "irq.full.total_us", "cpu"),
        ("pressure", "memory.full.total_us", "memory"),
        ("sysctl", "net.core.netdev_max_backlog", "softnet"),
        ("sysctl", "net.core.rps_sock_flow_entries", "softnet"),
        ("sysctl", "net.core.rmem_max", "socket"),
        ("sysctl", "net.core.somaxconn", "socket"),
        ("sysctl", "net.core.default_qdisc", "qdisc"),
        ("sysctl", "net.ipv4.tcp_rmem", "tcp"),
        ("sysctl", "net.ipv4.udp_mem", "udp"),
        ("sysctl", "net.ipv4.icmp_ratelimit", "icmp"),
        ("sysctl", "net.ipv4.neigh.default.gc_thresh3", "neighbour"),
        ("sysctl", "net.ipv4.conf.*.arp_ignore", "neighbour"),
        ("sysctl", "net.ipv4.conf.*.rp_filter", "ip"),
        ("sysctl", "net.ipv6.conf.*.mtu", "ip"),
        ("sysctl", "net.netfilter.nf_conntrack_tcp_loose", "conntrack"),
        ("sysctl", "net.unix.max_dgram_qlen", "socket"),
        ("softnet", "dropped", "softnet"),
        ("conntrack", "drop", "conntrack"),
    ],
)
def test_layer_of_a_name(source: str, name: str, layer: str) -> None:
    assert layer_of(Key(HOST, source, "", name)) == layer


def test_every_layer_is_one_of_the_list() -> None:
    assert {source.layer for source in SOURCES.values()} - {""} <= set(LAYERS)
    assert {layer for _, layer in LAYERS_OF_NAMES} <= set(LAYERS)
    assert len(set(LAYERS)) == len(LAYERS)


def test_no_name_is_shadowed_by_one_before_it() -> None:
    prefixes = [prefix for prefix, _ in LAYERS_OF_NAMES]
    for at, prefix in enumerate(prefixes):
        assert not [before for before in prefixes[:at] if prefix.startswith(before)]


def test_every_setting_has_a_layer_by_its_name() -> None:
    names = {*sysctl_names.HOST_WIDE, *sysctl_names.OF_NAMESPACE}
    names |= {f"{folder}.*.{leaf}" for folder, leaves in sysctl_names.OF_INTERFACES.items() for leaf in leaves}
    assert not [name for name in names if not name.startswith(tuple(prefix for prefix, _ in LAYERS_OF_NAMES))]


def test_sources_are_known_by_their_own_name() -> None:
    assert all(name == source.name for name, source in SOURCES.items())


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        ("snmp", "TcpCurrEstab", "gauge"),
        ("snmp", "TcpActiveOpens", "counter"),
        ("netstat", "MPTcpExtMPCurrEstab", "gauge"),
        ("netstat", "TcpExtTCPMemoryPressures", "counter"),
        ("sockstat", "TCP.mem", "gauge"),
        ("softnet", "backlog_len", "gauge"),
        ("softnet", "time_squeeze", "counter"),
        ("udp_socket", "drops", "counter"),
        ("udp_socket", "drops_of_open_sockets", "gauge"),
        ("pressure", "memory.some.total_us", "counter"),
        ("pressure", "memory.some.avg10_per_10000", "gauge"),
        ("cpu", "ticks_per_second", "gauge"),
        ("neighbour", "entries", "gauge"),
        ("conntrack", "max", "gauge"),
        ("sysctl", "net.core.somaxconn", "setting"),
    ],
)
def test_what_counts_and_what_does_not(source: str, name: str, kind: str) -> None:
    assert kind_of(Key(HOST, source, "", name)) == kind
