# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501, W291 # lines are as the kernels write them
"""What kernels wrote into their text files, shortened, and who reads each; for the tests of the counters."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hopscope.kernel.counters import host_files, interrupts, per_cpu, proc_net, socket_files
from hopscope.kernel.counters.text import parse_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hopscope.kernel.counters.text import Said

SNMP = b"""\
Ip: Forwarding DefaultTTL InReceives InHdrErrors
Ip: 2 64 22512884 0
Icmp: InMsgs InErrors
Icmp: 1281 621
IcmpMsg: InType3 OutType3
IcmpMsg: 660 656
Tcp: RtoMax MaxConn ActiveOpens
Tcp: 120000 -1 2542
Udp: InDatagrams NoPorts
Udp: 5943386 656
UdpLite: InDatagrams NoPorts
UdpLite: 0 0
"""
# 5.10 has no MPTcpExt unless MPTCP is built in, and fewer names in each group.
NETSTAT_510 = b"""\
TcpExt: SyncookiesSent TW ListenDrops
TcpExt: 3 2060 17
IpExt: InNoRoutes InOctets OutOctets
IpExt: 0 329281101951 321672178208
"""
NETSTAT = NETSTAT_510 + b"MPTcpExt: MPCapableSYNRX MPCurrEstab\nMPTcpExt: 5 0\n"
SNMP6 = b"""\
Ip6InReceives                   \t77216
Icmp6InMsgs                     \t1397
Icmp6InType1                    \t155
Udp6InDatagrams                 \t10623
"""
SOCKSTAT = b"""\
sockets: used 17
TCP: inuse 1 orphan 0 tw 3 alloc 2 mem 4
UDP: inuse 5 mem 26
UDPLITE: inuse 0
RAW: inuse 0
FRAG: inuse 2 memory 4096
"""
_LITTLE = sys.byteorder == "little"
UDP = (
    b"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops            \n"
    b"  414: %s:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 81234 2 0000000000000000 0            \n"
    b"  999: 00000000:1F90 00000000:0000 07 00000000:00034A00 00:00000000 00000000     0        0 4711 2 00000000c9a8b1d2 4294967295\n"
    b" 1000: %s:0043 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0000000000000000 7            \n"
) % ((b"0100007F",) * 2 if _LITTLE else (b"7F000001",) * 2)
UDP6 = (
    b"  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"
    b" 2233: %s:0222 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 99 2 0000000000000000 13\n"
) % (b"000080FE00000000FF005450B79F00FE" if _LITTLE else b"FE800000000000005054 00FFFE009FB7".replace(b" ", b""))
# Eleven columns in old kernels; 5.10.262 has the backlog and the CPU, too, and 6.18 the backlog's two parts.
SOFTNET_11 = (
    b"1bc52371 00000002 00000129 00000000 00000000 00000000 00000000 00000000 00000000 00001187 00000003\n"
    b"045fcfa4 00000000 000000b1 00000000 00000000 00000000 00000000 00000000 00000000 000012e4 00000000\n"
)
SOFTNET_13 = b"".join(
    line + b" 00000005 0000000" + cpu + b"\n" for line, cpu in zip(SOFTNET_11.splitlines(), (b"0", b"2"), strict=True)
)
SOFTNET = b"".join(line + b" 00000004 00000001\n" for line in SOFTNET_13.splitlines())
# As the kernel writes it, also where the headings are not above their columns.
ARP = b"""\
entries  allocs   destroys hash_grows lookups  hits     res_failed table_fulls
0000000a 00003502 00003409 00000002   0000c9e7 00000134 00000008   00000001
0000000a 000033ec 000034e3 00000002   0000c7a5 00000200 00000007   00000000
"""
ROUTE = b"""\
entries  in_hit   in_slow_tot in_slow_mc in_no_route in_brd   in_martian_dst in_martian_src out_hit
00000005 00000000 00001a8f    000000b8   0000008e    00000000 00000003       00000126       00000000
00000005 00000000 0000199b    00000073   000000a0    00000000 00000000       000000a8       00000000
"""
CONNTRACK = b"""\
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new
00000003  00000000 00000000 00000000 00000011 00000000 00000000 00000000 00000000 00000002 00000001 00000000 00000000  00000000
00000003  00000000 00000000 00000000 00000012 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000  00000000
"""
INTERRUPTS = b"""\
           CPU0       CPU2       
  0:          7          0   IO-APIC   2-edge      timer
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 27:          4          0  IO-APIC   9-fasteoi   ehci_hcd:usb1, uhci_hcd:usb3
 38:          0     107851 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:         12          0 PCI-MSIX-0000:00:03.0   2-edge    
 40:          0          0 PCI-MSIX-0000:00:04.0   0-edge      virtio3-config
LOC:   60949479   38016096   Local timer interrupts
ERR:          0
MIS:          5
"""
INTERRUPTS_ARM = b"""\
           CPU0       CPU1       
 11:       3024       2960     GICv3  27 Level     arch_timer
 53:          1          0 ITS-MSI-0000:00:02.0   1 Edge      virtio1-output.0
IPI0:      4131       5128       Rescheduling interrupts
Err:          0
"""
SOFTIRQS = b"""\
                    CPU0       CPU1       
          HI:          0          0
      NET_TX:      35644      35100
      NET_RX:  424696431   60890002
         RCU:    3076838    3339579
"""
STAT = b"""\
cpu  2801266 93608 1567234 2498945 12167 0 160146 11455 0 0
cpu0 1320535 48677 806182 1260444 4878 0 132285 5354 0 0
cpu2 1480730 44930 761051 1238500 7289 0 27860 6100 0 0
intr 139120636 0 0 0
ctxt 232374674
softirq 533946829 0 2539221 70744 485586433 1661319 0 202113 3454083 34016499 6416417
"""
MEMINFO = b"""\
MemTotal:       24684084 kB
MemFree:        16151800 kB
MemAvailable:   24056020 kB
Active(anon):       1572 kB
Slab:            2175216 kB
Percpu:              864 kB
HugePages_Total:       3
DirectMap4k:       28672 kB
"""
PRESSURE = b"""\
some avg10=39.89 avg60=76.33 avg300=36.21 total=10421247358
full avg10=100.00 avg60=0.00 avg300=0.00 total=0
"""


class Text(NamedTuple):
    name: str
    text: bytes
    parse: Callable[[bytes], Iterable[Said]]


def _udp(text: bytes) -> Iterable[Said]:
    return [(subject, "drops", drops) for subject, drops in socket_files.parse_udp(text)]


TEXTS = (
    Text("snmp", SNMP, partial(proc_net.parse_pairs, groups=("Ip", "Icmp", "Tcp", "Udp"))),
    Text("netstat", NETSTAT, partial(proc_net.parse_pairs, groups=("TcpExt", "IpExt"))),
    Text("netstat-5.10", NETSTAT_510, partial(proc_net.parse_pairs, groups=("TcpExt", "IpExt"))),
    Text("snmp6", SNMP6, partial(proc_net.parse_lines, names=("Ip6InReceives", "Icmp6InMsgs", "Udp6InDatagrams"))),
    Text("sockstat", SOCKSTAT, partial(socket_files.parse_sockstat, protocols=("TCP", "UDP", "FRAG"))),
    Text("udp", UDP, _udp),
    Text("udp6", UDP6, _udp),
    Text("softnet", SOFTNET, partial(per_cpu.parse_softnet, online=(0, 2))),
    Text("softnet-13", SOFTNET_13, partial(per_cpu.parse_softnet, online=(0, 2))),
    Text("softnet-11", SOFTNET_11, partial(per_cpu.parse_softnet, online=(0, 2))),
    Text("arp", ARP, partial(per_cpu.parse_table, table="arp", possible=(0, 1))),
    Text("route", ROUTE, partial(per_cpu.parse_table, table="", possible=(0, 1))),
    Text("conntrack", CONNTRACK, partial(per_cpu.parse_table, table="", possible=(0, 1))),
    Text("interrupts", INTERRUPTS, interrupts.parse_interrupts),
    Text("interrupts-arm", INTERRUPTS_ARM, interrupts.parse_interrupts),
    Text("softirqs", SOFTIRQS, partial(interrupts.parse_softirqs, possible=(0, 1))),
    Text("stat", STAT, host_files.parse_stat),
    Text("meminfo", MEMINFO, host_files.parse_meminfo),
    Text("pressure", PRESSURE, partial(host_files.parse_pressure, resource="memory")),
    Text("cpus", b"0-3,8,10-11\n", lambda text: [("", str(cpu), cpu) for cpu in parse_cpus(text)]),
)
