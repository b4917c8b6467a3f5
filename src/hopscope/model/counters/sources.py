# SPDX-License-Identifier: Apache-2.0
"""Where counters, gauges and settings come from, as data: their layer, what they are, who else shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from hopscope.model.counters.readings import Key

Kind: TypeAlias = Literal["counter", "gauge", "setting"]
Scope: TypeAlias = Literal["host", "namespace"]

# From the wire to the application; a loss is followed upwards along them.
LAYERS: Final = (
    "nic", "interrupt", "softnet", "device", "qdisc", "neighbour", "ip", "icmp", "conntrack", "tcp", "udp", "socket",
    "memory", "cpu", "clock",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """One interface of the kernel.

    Attributes
    ----------
    name
        In :class:`hopscope.model.counters.readings.Key`.
    layer
        One of :data:`LAYERS`; empty where it depends on the counter's name (:data:`LAYERS_OF_NAMES`).
    kind
        What its numbers are; `gauges` and `counters` are the names of those that are something else.
    scope
        Whether all namespaces of a host share it, or each has its own.
    bits
        Of a counter, which after that begins again at 0; 0 where the driver decides, 32 or 64.
    seen_with
        The command or file that shows the same.
    sparse
        Zeros are left out: what is not there is 0, if its CPU is.
    """

    name: str
    layer: str
    kind: Kind
    scope: Scope
    bits: int
    seen_with: str
    gauges: frozenset[str] = frozenset()
    counters: frozenset[str] = frozenset()
    sparse: bool = False


# What queueing disciplines hold and find at the moment.
_QUEUED: Final = frozenset({
    "backlog_bytes", "qlen", "maxpacket", "count", "lastcount", "ldelay", "drop_next", "dropping", "flows",
    "inactive_flows", "throttled_flows", "time_next_delayed_flow", "unthrottle_latency_ns", "band0_pkt_count",
    "band1_pkt_count", "band2_pkt_count", "new_flows_len", "old_flows_len", "memory_usage", "hh_cur_count", "tokens",
    "ctokens", "prob", "delay", "avg_dq_rate", "dq_rate_estimating", "maxq", "maxqlen", "maxprob", "avgprob",
})  # fmt: skip
_PRESSURE_NOW: Final = frozenset(
    f"{resource}.{who}.avg10_per_10000" for resource in ("cpu", "memory", "io", "irq") for who in ("some", "full")
)

SOURCES: Final = {
    source.name: source
    for source in (
        # ethtool. subject: interface.
        Source("ethtool", "nic", "counter", "namespace", 0, "ethtool -S"),
        # netdev netlink. subject: "eth0 rx-0".
        Source("queue_stats", "nic", "counter", "namespace", 64, "ynl netdev qstats-get"),
        Source("ring", "nic", "setting", "namespace", 64, "ethtool -g"),
        Source("channels", "nic", "setting", "namespace", 64, "ethtool -l"),
        Source("coalesce", "nic", "setting", "namespace", 64, "ethtool -c"),
        Source("features", "nic", "setting", "namespace", 64, "ethtool -k"),
        Source("pause", "nic", "setting", "namespace", 64, "ethtool -a"),
        # And of the device in sysfs: numa_node, pcie_lanes, pcie_mt_per_s.
        Source("driver", "nic", "setting", "namespace", 64, "ethtool -i, ethtool, ethtool -T"),
        # subject: "24 virtio0-input.0", "LOC Local timer interrupts"; name: "cpu 0", or "total" of the whole machine.
        Source("interrupt", "interrupt", "counter", "host", 32, "/proc/interrupts", sparse=True),
        # Affinity, NUMA node, interface: of those there are. subject: as of `interrupt`; "cpu 0" for its NUMA node.
        Source("interrupt_setting", "interrupt", "setting", "host", 64, "/proc/irq/*"),
        # subject: "NET_RX", name: "cpu 0".
        Source("softirq", "interrupt", "counter", "host", 32, "/proc/softirqs"),
        # /proc/net/softnet_stat. subject: "cpu 0".
        Source(
            "softnet", "softnet", "counter", "host", 32, "/proc/net/softnet_stat",
            gauges=frozenset({"backlog_len", "input_qlen", "process_qlen"}),
        ),
        # RTM_GETLINK: struct rtnl_link_stats64 by its names, carrier_changes; mtu, ... subject: interface.
        Source("link", "device", "counter", "namespace", 64, "ip -s -s link"),
        Source("link_setting", "device", "setting", "namespace", 64, "ip -d link"),
        # Steering: rps_cpus, rps_flow_cnt, xps_cpus. subject: "eth0 rx-0"; of polling: "eth0".
        Source(
            "queue", "device", "setting", "namespace", 64, "/sys/class/net/*/queues",
            counters=frozenset({"tx_timeout"}),
        ),
        # RTM_GETQDISC, RTM_GETTCLASS. subject: "eth0 fq_codel 8001:" and "eth0 htb 1:10".
        # Drops and the like have 32 bits, bytes and packets 64. A root's subject is as here, any other's ends with its
        # parent: "eth0 fq_codel 0: parent :1".
        Source("qdisc", "qdisc", "counter", "namespace", 0, "tc -s qdisc", gauges=_QUEUED),
        Source("class", "qdisc", "counter", "namespace", 0, "tc -s class", gauges=_QUEUED),
        # /proc/net/stat/arp_cache and ndisc_cache. subject: "arp cpu 0", "ndisc cpu 0"; of gauges "arp", "ndisc".
        Source(
            "neighbour", "neighbour", "counter", "host", 32, "/proc/net/stat/arp_cache, ndisc_cache",
            gauges=frozenset({"entries"}),
        ),
        # /proc/net/stat/rt_cache, of which IPv4's routing uses some columns. subject: "cpu 0"; of gauges "".
        Source(
            "route", "ip", "counter", "host", 32, "lnstat -f rt_cache, /proc/net/stat/rt_cache",
            gauges=frozenset({"entries"}),
        ),
        # nstat's names.
        Source("snmp", "", "counter", "namespace", 64, "nstat -az"),
        Source("snmp6", "", "counter", "namespace", 64, "nstat -az"),
        Source("netstat", "", "counter", "namespace", 64, "nstat -az"),
        # /proc/net/stat/nf_conntrack, subject: "cpu 0"; of gauges, such as nf_conntrack_max as "max": "".
        Source(
            "conntrack", "conntrack", "counter", "namespace", 32, "conntrack -S",
            gauges=frozenset({"entries", "count", "max", "buckets"}),
        ),
        # Rules of nftables that drop, subject: "inet filter input handle 5". Of all together, subject "": gauges.
        Source(
            "nft", "ip", "counter", "namespace", 64, "nft -a list ruleset",
            gauges=frozenset({"drop_rules", "drop_rules_without_counter"}),
        ),
        # /proc/net/sockstat and sockstat6: name "TCP.inuse".
        Source("sockstat", "", "gauge", "namespace", 64, "ss -s, /proc/net/sockstat"),
        # sock_diag: of all sockets of a namespace; of each listener, subject "*:80 tcp listener": queue, backlog; of a
        # UDP socket whose buffer is half full or more, subject "*:53 udp": receive_bytes, receive_limit_bytes; of a
        # source and destination, subject "10.0.0.1 > 10.0.0.2:80 tcp": local_ports, local_ports_used.
        Source("socket", "socket", "gauge", "namespace", 64, "ss -tinmpo"),
        # Of each socket that dropped: subject "0.0.0.0:53 inode 81234". Of all that are open, subject "": gauges.
        Source(
            "udp_socket", "udp", "counter", "namespace", 32, "/proc/net/udp, udp6",
            gauges=frozenset({"sockets", "drops_of_open_sockets"}),
        ),
        # Of a namespace, and (netns HOST) those that all share. subject: "", name: "net.ipv4.tcp_rmem"; of interfaces
        # subject: "eth0", "all" or "default", name: "net.ipv4.conf.*.rp_filter".
        Source("sysctl", "", "setting", "namespace", 64, "sysctl"),
        # name: "memory.some.total_us".
        Source("pressure", "", "counter", "host", 64, "/proc/pressure", gauges=_PRESSURE_NOW),
        # In kB: "MemAvailable_kB".
        Source("memory", "memory", "gauge", "host", 64, "/proc/meminfo"),
        # In ticks. subject: "cpu 0".
        Source(
            "cpu", "cpu", "counter", "host", 64, "/proc/stat, mpstat -P ALL", gauges=frozenset({"ticks_per_second"})
        ),
        Source("clock", "clock", "setting", "host", 64, "/sys/devices/system/clocksource"),
        # adjtimex(2) and the clocks themselves: name "tai_minus_monotonic_ns".
        Source("timekeeping", "clock", "gauge", "host", 64, "adjtimex -p, chronyc tracking, pmc"),
    )
}  # fmt: skip

# The first that a name begins with decides.
LAYERS_OF_NAMES: Final = (
    # sysctl
    ("net.ipv4.neigh", "neighbour"), ("net.ipv6.neigh", "neighbour"), ("net.ipv4.conf.*.arp", "neighbour"),
    ("net.ipv4.tcp", "tcp"), ("net.ipv4.udp", "udp"), ("net.ipv4.icmp", "icmp"), ("net.ipv6.icmp", "icmp"),
    ("net.netfilter", "conntrack"), ("net.ipv4", "ip"), ("net.ipv6", "ip"),
    ("net.core.netdev", "softnet"), ("net.core.dev_weight", "softnet"), ("net.core.rps", "softnet"),
    ("net.core.flow_limit", "softnet"), ("net.core.gro", "softnet"), ("net.core.skb_defer", "softnet"),
    ("net.core.default_qdisc", "qdisc"), ("net.core.bpf_jit", "cpu"),
    ("net.core.mem_pcpu", "memory"), ("net.core.high_order", "memory"),
    ("net.core", "socket"), ("net.unix", "socket"),
    # pressure
    ("cpu.", "cpu"), ("irq.", "cpu"), ("memory.", "memory"), ("io.", "memory"),
    # sockstat
    ("sockets.", "socket"), ("TCP", "tcp"), ("UDP", "udp"), ("RAW", "socket"), ("FRAG", "ip"),
    # netstat: what is not TCP's has found a place there as well (include/uapi/linux/snmp.h, LINUX_MIB).
    ("TcpExtArpFilter", "neighbour"), ("TcpExtIPReversePathFilter", "ip"), ("TcpExtOutOfWindowIcmps", "icmp"),
    ("TcpExtLockDroppedIcmps", "icmp"), ("TcpExtBusyPollRxPackets", "socket"), ("TcpExtPFMemallocDrop", "memory"),
    ("TcpExt", "tcp"), ("Tcp", "tcp"), ("MPTcpExt", "tcp"),
    # snmp, snmp6
    ("Udp", "udp"), ("Icmp", "icmp"), ("Ip", "ip"),
)  # fmt: skip

# Gauges and constants among the counters of /proc/net/snmp and netstat.
_GAUGES: Final = frozenset({
    "IpForwarding", "IpDefaultTTL", "TcpRtoAlgorithm", "TcpRtoMin", "TcpRtoMax", "TcpMaxConn", "TcpCurrEstab",
    "MPTcpExtMPCurrEstab",
})  # fmt: skip


def layer_of(key: Key) -> str:
    """Return which of :data:`LAYERS` a reading belongs to."""
    source = SOURCES[key.source]
    if source.layer:
        return source.layer
    return next((layer for prefix, layer in LAYERS_OF_NAMES if key.name.startswith(prefix)), "ip")


def kind_of(key: Key) -> Kind:
    """Return whether a number counts, is a level, or is set by somebody."""
    source = SOURCES[key.source]
    if key.name in source.gauges or key.name in _GAUGES:
        return "gauge"
    if key.name in source.counters:
        return "counter"
    return source.kind
