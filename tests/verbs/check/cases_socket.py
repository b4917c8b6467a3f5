# SPDX-License-Identifier: Apache-2.0
"""What makes each entry a finding, and what just does not: UDP, sockets and the host."""

from __future__ import annotations

from typing import Final

from tests.verbs.check.world import Case

_PORTS: Final = {
    "socket:10.0.0.1 > 10.0.0.2;80 tcp:local_ports": 1000,
    "socket:10.0.0.1 > 10.0.0.2;80 tcp:local_ports_time_wait": 40,
    "sysctl::net.ipv4.ip_local_port_range": "40000 40999",
    "sysctl::net.ipv4.tcp_tw_reuse": 2,
}

CASES: Final = (
    Case(
        "udp-receive-buffer",
        {
            "snmp::UdpRcvbufErrors": 10,
            "snmp::UdpInDatagrams": 9990,
            "udp_socket:0.0.0.0;53 inode 7:drops": 10,
            "sysctl::net.core.rmem_max": 4_194_304,
        },
        "10 UDP datagrams over IPv4 (0.1%) were dropped because a socket's receive buffer was full",
        {"snmp::UdpRcvbufErrors": 9},
    ),
    Case(
        "udp-send-buffer",
        {"snmp::UdpSndbufErrors": 102, "snmp::UdpOutDatagrams": 9999},
        "102 UDP datagrams over IPv4 (1.0%) could not be sent: the send buffer or the queue was full",
        {"snmp::UdpSndbufErrors": 100},
    ),
    Case(
        "udp-checksum",
        {"snmp::UdpInCsumErrors": 3},
        "3 UDP datagrams over IPv4 with a wrong checksum were received",
        {"snmp::UdpInCsumErrors": 2},
    ),
    Case(
        "udp-no-port",
        {"snmp::UdpNoPorts": 50},
        "50 UDP datagrams over IPv4 (10 a second) arrived for ports without a listener",
        {"snmp::UdpNoPorts": 49},
    ),
    Case(
        "udp-memory",
        {"snmp::UdpMemErrors": 3},
        "3 UDP datagrams over IPv4 were dropped because UDP's memory (udp_mem) is exhausted",
        {"snmp::UdpMemErrors": 2},
    ),
    Case(
        "udp6-receive-buffer",
        {
            "snmp6::Udp6RcvbufErrors": 10,
            "snmp6::Udp6InDatagrams": 9990,
            "udp_socket:0.0.0.0;53 inode 7:drops": 10,
            "sysctl::net.core.rmem_max": 4_194_304,
        },
        "10 UDP datagrams over IPv6 (0.1%) were dropped because a socket's receive buffer was full",
        {"snmp6::Udp6RcvbufErrors": 9},
    ),
    Case(
        "udp6-send-buffer",
        {"snmp6::Udp6SndbufErrors": 102, "snmp6::Udp6OutDatagrams": 9999},
        "102 UDP datagrams over IPv6 (1.0%) could not be sent: the send buffer or the queue was full",
        {"snmp6::Udp6SndbufErrors": 100},
    ),
    Case(
        "udp6-checksum",
        {"snmp6::Udp6InCsumErrors": 3},
        "3 UDP datagrams over IPv6 with a wrong checksum were received",
        {"snmp6::Udp6InCsumErrors": 2},
    ),
    Case(
        "udp6-no-port",
        {"snmp6::Udp6NoPorts": 50},
        "50 UDP datagrams over IPv6 (10 a second) arrived for ports without a listener",
        {"snmp6::Udp6NoPorts": 49},
    ),
    Case(
        "udp6-memory",
        {"snmp6::Udp6MemErrors": 3},
        "3 UDP datagrams over IPv6 were dropped because UDP's memory (udp_mem) is exhausted",
        {"snmp6::Udp6MemErrors": 2},
    ),
    Case(
        "udp-lost-uncounted",
        {"snmp::UdpInErrors": 5, "snmp6::Udp6InErrors": 0, "udp_socket:0.0.0.0;53 inode 7:drops": 15},
        "UDP sockets lost 10 datagrams that no other counter includes: UDP's memory (udp_mem) is exhausted",
        {"udp_socket:0.0.0.0;53 inode 7:drops": 14},
        shows=("snmp::UdpInErrors", "udp_socket:0.0.0.0;53 inode 7:drops"),
    ),
    Case(
        "udp-memory-filling",
        {"sockstat::UDP.mem": 21_601, "sysctl::net.ipv4.udp_mem": "18000 24000 36000"},
        "UDP uses 21,601 of at most 36,000 pages (60%)",
        {"sockstat::UDP.mem": 21_600},
        shows=("sockstat::UDP.mem", "sysctl::net.ipv4.udp_mem"),
        fix="sysctl -w net.ipv4.udp_mem='36000 48000 72000'  # now 18000 24000 36000",
    ),
    Case(
        "socket-listener-filling",
        {
            "socket:0.0.0.0;80 tcp listener:queue": 104,
            "socket:0.0.0.0;80 tcp listener:backlog": 128,
            "sysctl::net.core.somaxconn": 4096,
        },
        "104 connections are waiting to be accepted by the listener 0.0.0.0:80 tcp listener, whose limit is 128",
        {"socket:0.0.0.0;80 tcp listener:queue": 102},
        subject="0.0.0.0:80 tcp listener",
    ),
    Case(
        "socket-ports-exhausted",
        {**_PORTS, "socket:10.0.0.1 > 10.0.0.2;80 tcp:local_ports_used": 990},
        "990 of 1,000 local ports (99%) are in use for connections 10.0.0.1 > 10.0.0.2:80 tcp",
        {"socket:10.0.0.1 > 10.0.0.2;80 tcp:local_ports_used": 980},
        subject="10.0.0.1 > 10.0.0.2:80 tcp",
        fix="sysctl -w net.ipv4.ip_local_port_range='1024 65535'  # now 40000 40999; keep services' ports out of it "
        "with ip_local_reserved_ports",
    ),
    Case(
        "socket-ports-filling",
        {**_PORTS, "socket:10.0.0.1 > 10.0.0.2;80 tcp:local_ports_used": 980},
        "980 of 1,000 local ports (98%) are in use for connections 10.0.0.1 > 10.0.0.2:80 tcp",
        {"socket:10.0.0.1 > 10.0.0.2;80 tcp:local_ports_used": 800},
        subject="10.0.0.1 > 10.0.0.2:80 tcp",
    ),
    Case(
        "socket-descriptors-exhausted",
        {
            "socket:0.0.0.0;80 tcp listener:descriptors": 64,
            "socket:0.0.0.0;80 tcp listener:descriptor_limit": 64,
            "socket:0.0.0.0;80 tcp listener:descriptor_hard_limit": 9000,
            "socket:0.0.0.0;80 tcp listener:pid": "7",
            "socket:0.0.0.0;80 tcp listener:comm": "nginx",
            "socket:0.0.0.0;80 tcp listener:queue": 5,
        },
        "5 connections wait at the listener 0.0.0.0:80 tcp listener, whose process 7 (nginx) has 64 of 64 file "
        "descriptors open",
        {"socket:0.0.0.0;80 tcp listener:descriptors": 63},
        subject="0.0.0.0:80 tcp listener",
        shows=[f"socket:0.0.0.0;80 tcp listener:{name}" for name in ("descriptors", "descriptor_limit", "queue")],
        fix="prlimit --pid 7 --nofile=4096:9000  # now 64; for good: LimitNOFILE= of its systemd unit",
    ),
    Case(
        "tcp-mtu-black-hole",
        {
            "socket::tcp.full_size_stalled_sockets": 1,
            "socket::tcp.full_size_stalled_mss_bytes": 1448,
            "sysctl::net.ipv4.tcp_mtu_probing": 0,
        },
        "1 TCP connection retransmits segments of full size (MSS 1,448) in vain, while its peer still answers",
        {"socket::tcp.full_size_stalled_sockets": 0},
        shows=("socket::tcp.full_size_stalled_sockets",),
        fix="sysctl -w net.ipv4.tcp_mtu_probing=1  # now 0; TCP then finds a segment size that arrives",
    ),
    Case(
        "socket-not-closed",
        {"socket::tcp.close-wait": 50},
        "50 TCP connections were closed by their peers, but not on this host (CLOSE_WAIT)",
        {"socket::tcp.close-wait": 49},
    ),
    Case(
        "socket-no-answer",
        {"socket::tcp.no_answer_sockets": 12, "socket::tcp.established": 600},
        "12 TCP connections receive no answer: their data was retransmitted at least twice",
        {"socket::tcp.established": 601},
    ),
    Case(
        "socket-window-closed",
        {"socket::tcp.window_closed_sockets": 5},
        "5 TCP connections of this host cannot send: their peers have closed the window",
        {"socket::tcp.window_closed_sockets": 4},
    ),
    Case(
        "memory-pressure",
        {"pressure::memory.some.total_us": 500_001},
        "Some tasks waited for memory 10% of the time",
        {"pressure::memory.some.total_us": 500_000},
    ),
    Case(
        "memory-low",
        {"memory::MemAvailable_kB": 479_999, "memory::MemTotal_kB": 16_000_000},
        "Only 469 MiB of memory (3.0%) is still available",
        {"memory::MemAvailable_kB": 480_000},
    ),
    Case(
        "cpu-steal",
        {
            "cpu:cpu 0:user": 0,
            "cpu:cpu 0:nice": 0,
            "cpu:cpu 0:system": 0,
            "cpu:cpu 0:idle": 949,
            "cpu:cpu 0:iowait": 0,
            "cpu:cpu 0:irq": 0,
            "cpu:cpu 0:steal": 50,
            "cpu:cpu 0:softirq": 0,
        },
        "The hypervisor took 5.0% of this machine's CPU time away",
        {"cpu:cpu 0:idle": 950},
        shows=("cpu:cpu 0:steal",),
    ),
    Case(
        "cpu-pressure",
        {"pressure::cpu.some.total_us": 3_000_001},
        "Some tasks waited for a CPU 60% of the time",
        {"pressure::cpu.some.total_us": 3_000_000},
    ),
    Case(
        "clock-slow",
        {"clock::current_clocksource": "hpet"},
        "The kernel's clock is read from hpet, which is slow",
        {"clock::current_clocksource": "tsc"},
    ),
    Case(
        "note-slow-start-after-idle",
        {"sysctl::net.ipv4.tcp_slow_start_after_idle": 1},
        "TCP returns to slow start after a connection was idle for a retransmission timeout",
        {"sysctl::net.ipv4.tcp_slow_start_after_idle": 0},
        shows=("sysctl::net.ipv4.tcp_slow_start_after_idle",),
    ),
    Case(
        "note-busy-poll",
        {"sysctl::net.core.busy_read": 50},
        "Sockets poll the card for 50 microseconds before they sleep (busy polling)",
        {"sysctl::net.core.busy_read": 0},
        shows=("sysctl::net.core.busy_read",),
    ),
    Case(
        "note-timestamping",
        {"driver:eth0:phc_index": 0},
        "eth0 can time-stamp packets itself, with its own clock /dev/ptp0",
        {"driver:eth0:phc_index": -1},
        subject="eth0",
    ),
    Case(
        "note-ecn",
        {"sysctl::net.ipv4.tcp_ecn": 1},
        "TCP asks for ECN when it opens connections",
        {"sysctl::net.ipv4.tcp_ecn": 2},
        shows=("sysctl::net.ipv4.tcp_ecn",),
    ),
)
