# SPDX-License-Identifier: Apache-2.0
"""What NICs' own counters count (``ethtool -S``), by patterns: each driver has names of its own.

The first entry that covers a name decides. :mod:`hopscope.model.counters.explanation` has the form.
"""

from __future__ import annotations

from typing import Final

# Netlink's counters of queues have the same names with all drivers.
QUEUES: Final = """
rx-packets rx-bytes tx-packets tx-bytes | plain | Documentation/netlink/specs/netdev.yaml: qstats
  Packets and bytes of this queue.
  = The spread over queues shows whether RSS and XPS work.
rx-alloc-fail | loss | netdev.yaml: qstats
  Times that no buffer was to be had for a packet or for the ring.
  = Want of memory at interrupt time (vm.min_free_kbytes).
rx-hw-drops rx-hw-drop-overruns rx-hw-drop-ratelimits | loss | netdev.yaml: qstats
  Packets that the NIC dropped: in all, for want of buffers in the ring, by its limit of rate.
  = Overruns: the host does not fetch fast enough; larger ring, more queues. Rate limits: a virtual machine's share.
tx-hw-drops tx-hw-drop-errors tx-hw-drop-ratelimits | loss | netdev.yaml: qstats
  Packets that the NIC did not send: in all, as broken, by its limit of rate.
  = As of rx; errors are the driver's.
rx-csum-bad | bad | netdev.yaml: qstats
  Packets whose checksum the NIC found wrong.
  = Damage on the way.
rx-csum-complete rx-csum-unnecessary rx-csum-none tx-csum-none tx-needs-csum | plain | netdev.yaml: qstats
  How checksums were dealt with: by the NIC, as a sum over all, or not at all.
  = none: the CPU does it.
rx-hw-gro-* tx-hw-gso-* | plain | netdev.yaml: qstats
  Packets put together or cut by the NIC; with -wire- as they are on the wire.
  = What offload saves.
tx-stop tx-wake | either | netdev.yaml: qstats; include/net/netdev_queues.h
  Times that the queue was stopped because its ring was full, and let go on.
  = More is sent than goes out; what waits is in the qdisc's backlog.
"""

QUEUE: Final = """
tx_timeout | bad | net/core/net-sysfs.c; net/sched/sch_generic.c dev_watchdog
  Times that the watchdog found this queue stuck for 5 s, and had the driver reset it.
  = Driver, firmware or hypervisor; dmesg says "transmit queue timed out".
"""

ETHTOOL: Final = """
rx_no_buffer_count *rnbc* *no_rx_buff* | loss | drivers/net/ethernet/intel: e1000, igb, ixgbe (RNBC)
  Times that a packet came and the ring had no free descriptor; the packet may still have waited in the NIC's FIFO
  and been saved.
  = The CPU does not give buffers back fast enough: larger ring (`ethtool -G`), more queues, less else on that CPU. With
  rx_missed_errors beside it packets were lost.
rx_missed_errors *rx_missed* rx_no_dma_resources *imissed* | loss
| drivers/net/ethernet/intel (MPC, QPRDC); rtnl_link_stats64
  Packets that the NIC dropped because its FIFO was full: the host did not fetch them in time.
  = Not enough bus bandwidth, a sleeping CPU or link (PCIe ASPM, deep C-states), or no descriptors (rx_no_buffer_count).
*fifo_err* *rx_over_err* *rx_overflow* *rx_ovrn* | loss | struct rtnl_link_stats64
  The NIC's FIFO overran.
  = As rx_missed_errors.
*rx_discards_phy *rx_out_of_buffer* *rx_prio*_discards *rx_buff_alloc_err* rx*_wqe_err | loss
| drivers/net/ethernet/mellanox/mlx5/core/en_stats.c; mellanox/mlx5/counters.rst
  mlx5: packets dropped by the port for want of its buffers (discards_phy), by a queue for want of descriptors
  (out_of_buffer), or for want of memory (buff_alloc_err).
  = discards_phy: the host's bus or CPUs are too slow, or bursts too long. out_of_buffer: larger ring, more queues.
*tx_discards_phy *tx_errors_phy *tx*_dropped_link_down* | loss | mlx5 counters.rst
  mlx5: packets that the port could not send.
  = Head of line blocking, pause frames from the switch, or no link.
*_crc_errors* *_crc_err* *fcs_err* rx_symbol_err_phy *align_err* *rx_frame_err* *_code_err* | loss | IEEE 802.3 30.3.1.1
  Packets damaged on the wire: wrong checksum, symbols, or alignment.
  = Cable, transceiver (`ethtool -m`), or the other port.
*symbol_err* *pcs_* *fec_* *link_down_events* *lane* *signal_integrity* *carrier_change* *link_fail* | bad
| IEEE 802.3 clause 45; struct ethtool_fec_stats
  What the physical layer repaired or could not, and how often the link went.
  = Cable or transceiver. Corrected FEC blocks are usual, uncorrectable ones are losses.
*length_err* *undersize* *oversize* *fragments* *jabber* *too_long* *too_short* *runt* *in_range_len* *out_of_range_len*
| loss | RFC 2819; IEEE 802.3 30.3.1.1
  Packets of invalid length.
  = A larger MTU at the other side, or damage.
*pause* *xon* *xoff* *flow_control* *_pfc* | bad | IEEE 802.3 31B; struct ethtool_pause_stats
  Pause frames received or sent.
  = Received: the switch asks us to wait, and our queues grow. Sent: this host cannot keep up, and makes others wait.
*tx_timeout* *tx_tx_timeouts | bad | net/sched/sch_generic.c dev_watchdog; virtio_net tx_tx_timeouts
  Times that the watchdog found a transmit queue stuck for 5 s, and reset it.
  = Driver, firmware or hypervisor; dmesg says "transmit queue timed out".
bw_in_allowance_exceeded bw_out_allowance_exceeded pps_allowance_exceeded conntrack_allowance_exceeded
linklocal_allowance_exceeded | loss | drivers/net/ethernet/amazon/ena/ena_ethtool.c
  ENA: packets queued or dropped because the instance's limit of bandwidth, packets, tracked connections, or requests to
  local services (DNS, metadata) was reached.
  = Nothing on this host mends it: a larger instance, fewer packets, a local DNS cache.
conntrack_allowance_available | either | drivers/net/ethernet/amazon/ena/ena_ethtool.c
  ENA, a level: connections that may still be tracked.
  = Near 0: conntrack_allowance_exceeded is next.
*refil_partial *empty_rx_ring | bad | drivers/net/ethernet/amazon/ena/ena_netdev.c
  ENA: the receive ring could not be filled, or was found empty.
  = Want of memory, or a CPU that is too slow.
*queue_stop* *_stopped *_restart* *tx_busy* *ring_full* *_wake* *tx_kicks | either
| drivers' netif_tx_stop_queue; virtio_net, mlx5, ena
  Times that a transmit queue was stopped because its ring was full, woken again, or the device told of new packets.
  = Stopped often: more is sent than goes out; the qdisc's backlog has the rest. Kicks are plain work.
*alloc_*fail* *_alloc_err* *alloc_rx* *page_alloc* *skb_alloc* *no_mem* *buf_alloc* *dma_map* *dma_err*
*mapping_err* | loss | drivers; e1000, ixgbe alloc_rx_page_failed
  Buffers that could not be had: no memory, or no mapping for the device.
  = Want of memory at interrupt time (vm.min_free_kbytes), or an IOMMU that is full.
*csum_err* *csum_bad* *_csum_none *bad_csum* *hw_csum_err* rx_csum_offload_errors | bad | drivers; mlx5 counters.rst
  Packets whose checksum the NIC found wrong, or could not look at; the stack looks again.
  = Wrong ones: damage on the way, TcpInCsumErrors will follow. Not looked at: only CPU time.
*xdp*drop* | either | drivers; Documentation/networking/device_drivers
  Packets that the XDP program dropped.
  = As its author wanted; look at who loaded it (`bpftool net`).
*xdp*err* *xdp*full* *xdp*exception* *xdp_invalid* *xdp_aborted* | loss | drivers; trace_xdp_exception
  Packets lost in XDP: the program failed, or the ring to redirect into was full.
  = `bpftrace -e 'tracepoint:xdp:xdp_exception {…}'` says which program.
*xdp* *xsk* | plain | drivers
  Packets that took the way of XDP or AF_XDP.
  = Work.
*drop* *discard* *lost* | loss | the driver's own; `ethtool -S`
  Packets that the NIC or its driver dropped.
  = Of receive: ring, memory, filters. Of transmit: ring, link. The driver's documentation has the details.
*collision* *deferred* *late_coll* *carrier_sense* | bad | IEEE 802.3 30.3.1.1
  What half-duplex Ethernet had to wait for.
  = Duplex mismatch, today.
*reset* *recover* *hang* *watchdog* *tx_hwtstamp_timeouts *tx_hwtstamp_skipped | bad | the driver's own
  Times that the NIC or a queue was found stuck and begun anew; or that a transmit time stamp did not come.
  = Driver or firmware.
*_err *_errs *err_* *error* *errors *_fail* *fail_* *bad* *invalid* *unknown* *unsupported* *exceeded* | bad
| the driver's own
  Something that went wrong, by the driver's account.
  = Its documentation or source says what.
*broadcast* *multicast* *ucast* *mcast* *bcast* *unicast* | plain | RFC 2863 ifInBroadcastPkts and its like
  Packets of this kind of address.
  = A flood of broadcasts is a loop, or a chatty segment.
*_to_*_* *octets* *size_* *_64 *_bytes_phy *_packets_phy *_bytes *_packets *bytes *packets *_pkts *_cnt* *frames*
*_count *_good* *_ok* | plain | RFC 2819, RFC 2863; the driver's own
  Packets or bytes, by direction, queue, size or priority.
  = The spread over queues shows whether RSS works.
*lro* *gro* *tso* *gso* *csum* *vlan* *coal* *aggregat* *flow_dir* *fdir* *rss* *arfs* *cache* *recycle*
*pp_* *page_pool* | plain | drivers; Documentation/networking/page_pool.rst
  Offloads, caches of pages, and filters of flows at work.
  = Work saved; where a cache's full or empty grows, pages come from the allocator.
*kick* *poll* *irq* *intr* *napi* *eq_* *arm* *doorbell* *unmask* *busy* | plain | the driver's own
  Notifications between host and device.
  = How many packets one of them serves.
*tx* *rx* *queue* | plain | the driver's own
  A figure of a queue or direction.
  = The driver's documentation or source says what.
*ptp* *ts_* *hwtstamp* *temp* *speed* *link* | plain | the driver's own
  Clock, time stamps, temperature or link.
  = The driver's documentation or source says what.
peer_ifindex | plain | drivers/net/veth.c veth_get_ethtool_stats
  The number of the interface at the other end of a veth pair: no counter.
  = It tells which two belong together.
"""
