# SPDX-License-Identifier: Apache-2.0
"""What is known of network cards: what they lose before the kernel has a packet.

Drivers name their counters as they like. The names here are those of e1000e, igb, ixgbe, i40e, ice (Intel), mlx5
(NVIDIA), bnxt, tg3 (Broadcom), ena (Amazon), vmxnet3 (VMware) and virtio, from their sources in drivers/net.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import All, Any, Figure, Hit, Judged, Level, Rises, Share, Word, counted, standing
from hopscope.verbs.check.figures import Now, UpTo
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, link, nic, optional

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_NO_BUFFER: Final = nic(
    "rx_no_buffer_count", "rx_out_of_buffer", "rxbds_empty", "rx_total_ring_discards", "*pkts rx OOB",
    drivers="e1000e, igb, ixgbe, mlx5, tg3, bnxt, vmxnet3",
)  # fmt: skip
_DISCARDS: Final = nic(
    "port.rx_discards", "port.rx_dropped", "rx_missed_errors", "rx_discards_phy", "rx_dropped.nic", "rx_discards",
    drivers="e1000e, ixgbe, mlx5, i40e, ice, tg3",
)  # fmt: skip
_RING: Final = Ref("ring", ("rx",))
_RING_MOST: Final = Ref("ring", ("rx_max",))
_RECEIVED: Final = link("rx_packets")
_CARRIER: Final = link("carrier_changes")
_KIND: Final = Ref("link_setting", ("kind",))
# Their carrier is that of their ports, of the process that made them, or of the interface below.
_WITHOUT_CABLE: Final = frozenset({
    "bridge", "tun", "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "vxlan", "geneve", "dummy", "vrf",
})  # fmt: skip
_CRC: Final = nic(
    "rx_crc_errors_phy", "port.rx_crc_errors", "rx_crc_errors.nic", "rx_fcs_err_frames", "rx_fcs_errors",
    drivers="mlx5, i40e, ice, bnxt, tg3",
)  # fmt: skip

_DROP_FIXES: Final = (
    "ethtool -G {device} rx {ring_max}  # now {ring}: the maximum ring size",
    "ethtool -L {device} combined {queues_max}  # now {queues}: spread the load over more queues and CPUs",
    "hopscope cpu  # what keeps the CPU from handling packets?",
)
_QUEUES: Final = Ref("channels", ("combined",))
_RINGS: Final = {
    "ring": Now(_RING), "ring_max": UpTo(_RING, _RING_MOST),
    "queues": Now(_QUEUES), "queues_max": UpTo(_QUEUES, Ref("channels", ("combined_max",))),
}  # fmt: skip


def _ring_too_small(scene: Scene, place: Place) -> Hit | None:
    ring, most = scene.value(_RING, place), scene.value(_RING_MOST, place)
    lost = [ref for ref in (link("rx_missed_errors"), link("rx_fifo_errors"), _NO_BUFFER) if scene.by(ref, place)]
    if ring is None or most is None or ring >= most or not lost:
        return None
    by = max(scene.by(ref, place) for ref in lost)
    if by < _FEW or by <= 0.0001 * scene.by(_RECEIVED, place):
        return None
    rows = [row for ref in (_RING, _RING_MOST) for row in standing(ref, scene, place)]
    figures = {"by": Figure(by), "ring": Figure(ring, "number", "first"), "ring_max": Figure(most, "number", "first")}
    return Hit((*rows, *(row for ref in lost for row in counted(ref, scene, place))), figures)


def _flapped(scene: Scene, place: Place) -> Hit | None:
    by = scene.by(_CARRIER, place)
    if by < 2 or scene.word(_KIND, place) in _WITHOUT_CABLE:
        return None
    return Hit(tuple(counted(_CARRIER, scene, place)), {"by": Figure(by)})


def _hardware(scene: Scene, place: Place) -> Hit | None:
    return None if scene.word(_KIND, place) else Hit((), {})


# So few in a few seconds are nothing to wake somebody for.
_FEW: Final = 10

ENTRIES: Final = (
    Entry(
        "nic-rx-missed",
        "critical",
        "nic",
        Share(link("rx_missed_errors"), (_RECEIVED, link("rx_missed_errors")), above=0.0001, at_least=_FEW),
        "{by} packets ({share}) were lost by {where}: the NIC had no room left to receive them",
        "The NIC's own memory was full: the bus or the host did not fetch the packets in time. They are lost "
        "before any counter of the kernel sees them.",
        _DROP_FIXES,
        "include/uapi/linux/if_link.h rtnl_link_stats64.rx_missed_errors",
        "A NIC that is served in time misses none; up to 1 in 10,000 in a burst is hardly noticeable.",
        advice=_RINGS,
    ),
    Entry(
        "nic-rx-no-buffer",
        "warning",
        "nic",
        Share(_NO_BUFFER, (_RECEIVED, _NO_BUFFER), above=0.0001, at_least=_FEW),
        "{where} had no receive buffer ready {times}",
        "The CPU does not return buffers as fast as packets arrive. NICs with memory of their own hold the "
        "packet for a while; others lose it.",
        _DROP_FIXES,
        "drivers/net/ethernet/intel/e1000e/ethtool.c; networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
        "A sufficiently large ring never runs empty; up to 1 in 10,000 in a burst is hardly noticeable.",
        advice=_RINGS,
    ),
    Entry(
        "nic-rx-discards",
        "critical",
        "nic",
        Share(_DISCARDS, (_RECEIVED, _DISCARDS), above=0.0001, at_least=_FEW),
        "{by} packets ({share}) were discarded at the port of {where}, which had no buffers left",
        "The NIC as a whole cannot keep up with the link: too many packets a second, or too little bus bandwidth.",
        _DROP_FIXES,
        "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst rx_discards_phy",
        "As for missed packets: none on a NIC that is served in time.",
        advice=_RINGS,
    ),
    Entry(
        "nic-rx-drops",
        "warning",
        "nic",
        Share(nic("rx_drops", "*drv dropped rx total", drivers="ena, virtio_net, vmxnet3"), (_RECEIVED,), above=0.0001,
              at_least=_FEW),
        "{by} packets ({share}) were dropped by {where} or by its driver",
        "A virtual NIC drops packets if the guest does not supply buffers in time, or has no memory for them.",
        _DROP_FIXES,
        "drivers/net/virtio_net.c virtnet_rq_stats_desc; drivers/net/ethernet/amazon/ena/ena_netdev.c rx_drops",
        "A NIC that is served in time drops none; up to 1 in 10,000 in a burst is hardly noticeable.",
        advice=_RINGS,
    ),
    Entry(
        "nic-ring-small",
        "warning",
        "nic",
        Judged((_RING, _RING_MOST, optional(link("rx_missed_errors")), optional(link("rx_fifo_errors")),
                optional(_NO_BUFFER), optional(_RECEIVED)), _ring_too_small),
        "The receive ring of {where} overflowed {times}; it holds {ring} packets but could hold {ring_max}",
        "A larger ring bridges longer pauses of the CPU, at the cost of some memory and cache.",
        ("ethtool -G {device} rx {ring_max}  # now {ring}",),
        "Documentation/networking/ethtool-netlink.rst RINGS_GET",
        "A small ring is not a fault as long as nothing is lost: reported only if the ring overflowed 10 "
        "times, and for 1 packet in 10,000.",
    ),
    Entry(
        "nic-rx-fifo",
        "warning",
        "nic",
        Any((Rises(link("rx_fifo_errors"), at_least=_FEW), Rises(link("rx_over_errors"), at_least=_FEW))),
        "{where} overran its receive queue {times}",
        "Packets arrived faster than the NIC or its driver passed them on; they are lost.",
        _DROP_FIXES,
        "include/uapi/linux/if_link.h rtnl_link_stats64.rx_fifo_errors, rx_over_errors",
        "None on a NIC that is served in time; a handful may be one stall.",
        advice=_RINGS,
    ),
    Entry(
        "nic-rx-crc",
        "warning",
        "nic",
        Any((Rises(link("rx_crc_errors"), at_least=3), Rises(link("rx_frame_errors"), at_least=3),
             Rises(_CRC, at_least=3))),
        "{by} damaged frames were received at {where}",
        "Cable, connector, transceiver, or the port at the other end. TCP retransmits the lost data, which is slow.",
        ("ethtool -m {device}  # the transceiver's light levels", "ethtool {device}  # speed, duplex, link"),
        "include/uapi/linux/if_link.h rtnl_link_stats64.rx_crc_errors, rx_frame_errors",
        "A link within its specification (1 wrong bit in 10^12) damages less than one frame a minute at 10 Gbit/s.",
    ),
    Entry(
        "nic-rx-length",
        "warning",
        "nic",
        Any((Rises(link("rx_length_errors"), at_least=_FEW),
             Rises(nic("rx_oversize_pkts_phy", "rx_oversize.nic", "rx_long_length_errors", "rx_ovrsz_frames",
                       drivers="mlx5, ice, e1000e, ixgbe, bnxt"), at_least=_FEW))),
        "{by} frames of a wrong length were received at {where}",
        "Frames that are too long for the receiver indicate a larger MTU at the other end: connections open, "
        "but hang as soon as full-sized packets are sent.",
        ("ip link show dev {device}  # its mtu, to compare with the other hosts' and the switch's",),
        "include/uapi/linux/if_link.h rtnl_link_stats64.rx_length_errors",
        "In a network with one MTU there are none.",
    ),
    Entry(
        "nic-rx-alloc",
        "critical",
        "nic",
        Any((Rises(nic("alloc_rx_*failed", "rx_buff_alloc_err", "queue_*_rx_*_alloc_fail", "*rx buf alloc fail",
                       "rx_total_oom_discards", "rx_no_memory",
                       drivers="e1000e, ixgbe, mlx5, ena, vmxnet3, bnxt, hv_netvsc")),
             Rises(Ref("queue_stats", ("rx-alloc-fail",), subjects="{device} rx-*",
                       since="drivers with queue statistics")))),
        "{where} could not allocate memory for {by} received [packet|packets]",
        "The kernel had no free page at that moment; the ring runs dry and packets are lost.",
        ("sysctl -w vm.min_free_kbytes=N  # twice what it is now", "dmesg | grep 'page allocation failure'"),
        "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c ixgbe_alloc_mapped_page",
        "A host with free memory never fails here.",
    ),
    Entry(
        "nic-dma",
        "warning",
        "nic",
        Rises(nic("rx_no_dma_resources", "rx_dma_failed", "queue_*_dma_mapping_err", "tx_dma_failed",
                  drivers="ixgbe, e1000e, ena"), at_least=3),
        "{where} lacked DMA resources {times}",
        "No descriptor or no mapping was available when a packet arrived: the ring was empty, or the IOMMU is "
        "short of space.",
        _DROP_FIXES,
        "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c ixgbe_update_stats (QPRDC)",
        "None on a NIC that is served in time.",
        advice=_RINGS,
    ),
    Entry(
        "nic-tx-timeout",
        "critical",
        "nic",
        Any((Rises(Ref("queue", ("tx_timeout",), subjects="{device} tx-*", optional=True)),
             Rises(nic("tx_timeout_count", "tx_timeout", "tx_tx_timeouts", "port.tx_timeout", "tx_timeout.nic",
                       "tx timeout count", drivers="e1000e, ixgbe, ena, virtio_net, i40e, ice, vmxnet3")))),
        "The transmit queue of {where} stalled {times} until the watchdog reset it",
        "The NIC did not send for seconds, and the reset interrupts the link. Causes: firmware, driver, or a "
        "switch that sends pause frames endlessly.",
        ("dmesg | grep -e 'NETDEV WATCHDOG' -e {device}", "ethtool -i {device}  # firmware and driver: up to date?"),
        "net/sched/sch_generic.c dev_watchdog",
        "A working NIC never reaches this timeout.",
    ),
    Entry(
        "nic-pause-received",
        "warning",
        "nic",
        Rises(nic("rx_flow_control_xoff", "rx_pause_ctrl_phy", "port.link_xoff_rx", "link_xoff_rx.nic",
                  "rx_pause_frames", "rx_xoff_pause_rcvd", drivers="e1000e, ixgbe, mlx5, i40e, ice, bnxt, tg3"),
              at_least=_FEW, per_s=10),
        "{where} was told to pause {per_s} times a second ({by} pause frames received)",
        "The switch, or a host behind it, cannot keep up with this host. Everything that leaves through this "
        "port waits, even for other destinations.",
        ("ethtool -a {device}  # what was negotiated", "ethtool -A {device} rx off  # if loss is better than waiting"),
        "IEEE 802.3 annex 31B; Documentation/networking/ethtool-netlink.rst PAUSE_GET",
        "An occasional pause is what flow control is for; ten a second indicate a standing queue elsewhere.",
    ),
    Entry(
        "nic-pause-sent",
        "warning",
        "nic",
        Rises(nic("tx_flow_control_xoff", "tx_pause_ctrl_phy", "port.link_xoff_tx", "link_xoff_tx.nic",
                  "tx_pause_frames", "tx_xoff_sent", drivers="e1000e, ixgbe, mlx5, i40e, ice, bnxt, tg3"),
              at_least=_FEW, per_s=10),
        "{where} told its switch to pause {per_s} times a second ({by} pause frames sent)",
        "This host does not handle packets in time: the loss moves to the switch, where it affects others, too.",
        _DROP_FIXES,
        "IEEE 802.3 annex 31B; Documentation/networking/ethtool-netlink.rst PAUSE_GET",
        "An occasional pause is what flow control is for; ten a second indicate a host that does not keep up.",
        advice=_RINGS,
    ),
    Entry(
        "nic-carrier",
        "critical",
        "nic",
        Any((Judged((_CARRIER, optional(_KIND)), _flapped),
             Rises(nic("link_down_events_phy", drivers="mlx5")))),
        "The link of {where} went down and up ({by} changes)",
        "All traffic on it stops for that long. Causes: cable, transceiver, the switch's port, or somebody "
        "reconfiguring it.",
        ("dmesg | grep {device}", "ethtool -m {device}  # the transceiver's light levels"),
        "net/core/dev.c dev->carrier_up_count, carrier_down_count",
        "One change may be an interface being set up; down and up again within seconds is not. Bridges, "
        "tunnels and the like are excluded: their state follows that of other interfaces.",
    ),
    Entry(
        "nic-half-duplex",
        "critical",
        "nic",
        Word(Ref("driver", ("duplex",)), ill=frozenset({"half"})),
        "{where} runs at half duplex",
        "One side cannot negotiate, so that both send at the same time and damage each other's frames: only a "
        "few Mbit/s remain.",
        ("ethtool -s {device} autoneg on  # at both ends",),
        "Documentation/networking/ethtool-netlink.rst LINKMODES_GET",
        "No modern network uses it.",
    ),
    Entry(
        "nic-collisions",
        "warning",
        "nic",
        Rises(link("collisions"), at_least=_FEW),
        "{where} counted {by} collisions",
        "Collisions occur on half duplex only: the two ends of the link disagree about the duplex mode.",
        ("ethtool {device}  # duplex, here and at the other end",),
        "include/uapi/linux/if_link.h rtnl_link_stats64.collisions",
        "On full duplex there are none.",
    ),
    Entry(
        "nic-slow-link",
        "notice",
        "nic",
        All((Level(Ref("driver", ("speed_mbps",)), above=0, below=1000, name="speed"),
             Rises(_RECEIVED, per_s=100))),
        "{where} runs at {speed} Mbit/s only",
        "A damaged pair in the cable is enough for a link to fall back from 1,000 to 100 Mbit/s.",
        ("ethtool {device}  # what both ends advertise", "ethtool -r {device}  # negotiate again"),
        "Documentation/networking/ethtool-netlink.rst LINKMODES_GET",
        "Only where there is traffic (100 packets a second): a management port may be slow.",
    ),
    Entry(
        "nic-cloud-limit",
        "warning",
        "nic",
        Rises(nic("*_allowance_exceeded", drivers="ena"), at_least=_FEW),
        "{by} packets of {where} were queued or dropped because this instance exceeded its network allowance",
        "The cloud limits bandwidth, packets and tracked connections by the instance's size; the counter's name says "
        "which of them it was.",
        ("ethtool -S {device} | grep allowance  # which one?", " # a larger instance, or less traffic"),
        "drivers/net/ethernet/amazon/ena/ena_ethtool.c ena_stats_eni_strings",
        "Below the allowance nothing is counted; a handful may be one burst.",
    ),
    Entry(
        "nic-checksum",
        "warning",
        "nic",
        Share(nic("rx_csum_offload_errors", "port.rx_csum_bad", "rx_csum_bad.nic", "queue_*_rx_csum_bad",
                  "queue_*_rx_bad_csum", "rx_total_l4_csum_errors", drivers="e1000e, ixgbe, i40e, ice, ena, bnxt"),
              (_RECEIVED,), above=0.0001, at_least=_FEW),
        "{by} packets ({share}) came in at {where} with a wrong checksum",
        "They were damaged after the sender computed the checksum, but not on the local cable: by a router, a "
        "switch, or a sender whose offload is broken.",
        ("tcpdump -vvni {device} | grep 'bad cksum'  # from whom?",),
        "drivers/net/ethernet/intel/e1000e/netdev.c e1000_rx_checksum",
        "Some senders compute it wrongly; 1 in 10,000 is no longer chance.",
    ),
    Entry(
        "nic-pci",
        "warning",
        "nic",
        Rises(nic("*_pci_signal_integrity", drivers="mlx5"), at_least=3),
        "The bus of {where} had {by} signal errors",
        "The NIC is not seated properly, or the slot is faulty; transfers are repeated, and the bus is slow.",
        ("dmesg | grep -i -e aer -e pcie", "lspci -vv  # LnkSta: speed and width as they should be?"),
        "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst rx_pci_signal_integrity",
        "A working bus counts none.",
    ),
    Entry(
        "nic-module",
        "critical",
        "nic",
        Rises(nic("module_*", drivers="mlx5"), at_least=1),
        "The transceiver of {where} reported {by} [fault|faults]",
        "Too hot, short-circuited, or pulled out: the link will fail or has failed.",
        ("ethtool -S {device} | grep module  # which one?", "ethtool -m {device}"),
        "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst module_high_temp",
        "A working transceiver reports none.",
    ),
    Entry(
        "nic-tx-errors",
        "warning",
        "nic",
        Share(link("tx_errors"), (link("tx_packets"), link("tx_errors")), above=0.001, at_least=_FEW),
        "{by} packets ({share}) could not be sent by {where}",
        "The NIC, its driver, or the tunnel behind the interface discarded them.",
        ("ip -s -s link show dev {device}  # which kind?", "ethtool -S {device}"),
        "include/uapi/linux/if_link.h rtnl_link_stats64.tx_errors",
        "A working interface sends all packets; below 1 in 1,000, it may just have been set up.",
    ),
    Entry(
        "nic-gro-off",
        "notice",
        "nic",
        All((Word(Ref("features", ("generic-receive-offload",)), ill=frozenset({"off", "off [fixed]"})),
             Rises(_RECEIVED, per_s=50_000),
             Judged((_RECEIVED, optional(_KIND)), _hardware))),
        "{where} receives {per_s} packets a second without merging them (GRO is off)",
        "Each packet passes through the whole stack individually, which takes several times the CPU time for "
        "bulk traffic.",
        ("ethtool -K {device} gro on",),
        "Documentation/networking/segmentation-offloads.rst",
        "Some routers and captures need it off; below 50,000 packets a second it costs little. Virtual devices "
        "(veth and the like) are excluded: their packets were merged before, and their default is off.",
    ),
)  # fmt: skip
