# SPDX-License-Identifier: Apache-2.0
"""What counters between NIC and IP count: devices, softnet, queueing disciplines, neighbours.

:mod:`hopscope.model.counters.explanation` has the form.
"""

from __future__ import annotations

from typing import Final

LINK: Final = """
rx_packets | plain | include/uapi/linux/if_link.h struct rtnl_link_stats64
  Packets that the device received without error, before GRO, those that the host drops later among them.
  = What comes in. A NIC that drops for itself counts in rx_missed_errors, not here.
tx_packets | plain | struct rtnl_link_stats64
  Packets handed to the device and taken by it. What the wire does to them it does not know. With TSO many drivers count
  what was cut, some (and veth) the large packet.
  = What goes out.
rx_bytes tx_bytes | plain | struct rtnl_link_stats64
  Bytes of those packets, Ethernet header included, checksum (FCS) not.
  = Compare with the link's speed: rx_bytes/s * 8.
rx_errors | loss | struct rtnl_link_stats64
  Bad packets: the sum of length, CRC, frame and other errors.
  = Cable, transceiver, switch port, duplex. `ethtool -S` has which.
tx_errors | loss | struct rtnl_link_stats64
  Packets that could not be transmitted: the sum of aborted, carrier, FIFO, heartbeat and window errors, and others.
  = Link lost, driver in trouble; see the parts.
rx_dropped | loss | struct rtnl_link_stats64; net/core/dev.c __netif_receive_skb_core: rx_dropped
  Packets that came in and were not processed: the driver had no memory, nobody takes their protocol (LLDP, STP, an
  unknown VLAN), or the queue of a CPU was full (softnet dropped). Not what the NIC dropped for want of buffers.
  = A few a second without complaint: protocols that nobody here speaks. Together with softnet dropped: a busy CPU.
tx_dropped | loss | struct rtnl_link_stats64; veth, virtio_net and other drivers
  Packets dropped on their way out, by the driver or, of devices without a queue, for want of a receiver. The
  drops of the queueing discipline are not in it: they are at the qdisc.
  = On veth the other end could not take them: it is down, has a smaller MTU, or its CPU's queue is full (its rx_dropped
  and softnet dropped count the same packets).
multicast | plain | struct rtnl_link_stats64
  Multicast packets received; of NICs often more than reached the host.
  = Traffic.
collisions | bad | struct rtnl_link_stats64
  Collisions while sending.
  = Half duplex: duplex mismatch, most likely.
rx_length_errors | loss | struct rtnl_link_stats64; IEEE 802.3 aFrameTooLongErrors and others
  Packets dropped for an invalid length.
  = Somebody sends jumbo frames, or a VLAN tag, that this port's MTU has no room for.
rx_over_errors rx_fifo_errors | loss | struct rtnl_link_stats64
  The receiver's FIFO overran: drivers use either name, for packets or for events.
  = Bursts that the NIC could not hand over: larger ring, less pause at interrupts, or the bus is too slow.
rx_crc_errors | loss | struct rtnl_link_stats64; IEEE 802.3 aFrameCheckSequenceErrors
  Packets with a wrong checksum on the wire.
  = The cable, the transceiver (light levels: `ethtool -m`), or the other port. Software is not it.
rx_frame_errors | loss | struct rtnl_link_stats64; IEEE 802.3 aAlignmentErrors
  Packets that did not end at a byte.
  = As rx_crc_errors; duplex mismatch.
rx_missed_errors | loss | struct rtnl_link_stats64
  Packets that the NIC dropped because the host had given it no room for them. /proc/net/dev has them under "drop".
  = The host does not fetch fast enough: larger ring (`ethtool -G`), more queues, its CPUs (see softnet), or the bus.
tx_aborted_errors tx_window_errors | loss | struct rtnl_link_stats64
  Packets given up: too many collisions, late collisions; fast NICs use the first for any discard.
  = Duplex mismatch, or see the driver's own counters.
tx_carrier_errors | loss | struct rtnl_link_stats64
  Packets lost because the link was lost while they were sent.
  = Cable, or the other side went down.
tx_fifo_errors | loss | struct rtnl_link_stats64
  The device ran out of data in the middle of a packet.
  = The bus or memory is too slow for it.
tx_heartbeat_errors | bad | struct rtnl_link_stats64
  Errors of an old half-duplex Ethernet's heartbeat.
  = Nothing, today.
rx_compressed tx_compressed | plain | struct rtnl_link_stats64
  Compressed packets, of PPP and its like.
  = Traffic.
rx_nohandler | either | struct rtnl_link_stats64; net/core/dev.c __netif_receive_skb_core
  Packets dropped because the device is not meant to receive: the idle member of a bond.
  = As it should be for a backup; else the bond is not as one thinks.
rx_otherhost_dropped | either | net/ipv4/ip_input.c ip_rcv_core, net/ipv6/ip6_input.c (Linux 5.19)
  IP packets dropped because their Ethernet address is somebody else's.
  = Promiscuous mode, or a switch that floods because it does not know the address.
carrier_changes carrier_up_count carrier_down_count | bad | net/core/dev.c, IFLA_CARRIER_CHANGES
  Times that the link came or went.
  = A flapping link.
"""

SOFTNET: Final = """
processed | plain | /proc/net/softnet_stat column 1; net/core/dev.c __netif_receive_skb_core
  Packets that this CPU took up in softirq. Those that RPS sent to another CPU count there, and packets of a tunnel
  or a VLAN once for each device that they come up through.
  = How receive work is spread over the CPUs.
dropped | loss | /proc/net/softnet_stat column 2; net/core/dev.c enqueue_to_backlog
  Packets dropped because this CPU's queue (net.core.netdev_max_backlog) was full. Only packets that pass through it
  count: of loopback, veth, tunnels, RPS, and drivers without NAPI.
  = This CPU cannot keep up with what others give it. link rx_dropped counts it, too; no protocol does.
time_squeeze | bad | /proc/net/softnet_stat column 3; net/core/dev.c net_rx_action
  Times that a round of receiving ended with work left: after net.core.netdev_budget packets or netdev_budget_usecs.
  = The CPU is busy with receiving. Harmless when rare; often, with ksoftirqd running: packets wait, and the NIC's
  ring may overflow (rx_missed_errors).
cpu_collision | plain | /proc/net/softnet_stat column 9; not counted since Linux 4.7
  Collisions for a device's lock while sending; always 0 today.
  = Nothing.
received_rps | plain | /proc/net/softnet_stat column 10; net/core/dev.c rps_trigger_softirq
  Times that another CPU woke this one by an interrupt to hand it packets (RPS).
  = RPS works.
flow_limit_count | loss | /proc/net/softnet_stat column 11; net/core/dev.c skb_flow_limit
  Packets dropped because one flow had more than its share of a queue that was half full
  (net.core.flow_limit_cpu_bitmap).
  = As dropped, but only the greedy flow suffers.
backlog_len input_qlen process_qlen | either | /proc/net/softnet_stat columns 12, 14, 15; net/core/net-procfs.c
  Levels: packets in this CPU's queue now, and its two halves: waiting, and being worked on.
  = Near net.core.netdev_max_backlog: drops are close.
"""

QDISC: Final = """
bytes packets | plain | net/core/gen_stats.c; `tc -s qdisc`: Sent
  What left the queueing discipline, segments of a large packet each.
  = What goes out.
drops | loss | include/net/sch_generic.h qdisc_qstats_drop; `tc -s qdisc`: dropped
  Packets that the discipline dropped: its queue was full (limit, bytes, memory), or an algorithm that keeps queues
  short
  chose them. Those of its children count, too.
  = More is sent than the link or the shaper lets out. TCP repairs it (TcpRetransSegs); UDP's are gone, and only some
  senders are told.
overlimits | either | include/net/sch_generic.h qdisc_qstats_overlimit
  Times that a packet had to wait for the rate (TBF, HTB), or a queue was over a mark. Not a drop.
  = A shaper at work.
requeues | either | net/sched/sch_generic.c dev_requeue_skb
  Packets put back because the driver was busy, or its ring full.
  = The NIC is slower than what is sent: normal at full speed.
qlen backlog_bytes | either | include/net/sch_generic.h; `tc -s qdisc`: backlog
  Levels: packets and bytes that wait now.
  = Divided by the rate: the delay that it adds. `hopscope tx` measures it.
drop_overlimit drop_overmemory | loss | net/sched/sch_fq_codel.c fq_codel_enqueue
  Packets dropped because the queue had its limit of packets, or of memory; the part of drops that is no choice of
  CoDel.
  = Bursts larger than limit or memory_limit.
ecn_mark ce_mark marked | bad | net/sched/sch_fq_codel.c, sch_red.c
  Packets marked "congestion experienced" in place of a drop; ce_mark: above ce_threshold.
  = There is a queue, and senders are told.
new_flow_count new_flows_len old_flows_len packets_in | plain | net/sched/sch_fq_codel.c
  Flows that began anew in the list of flows; of the levels, how many lists have now.
  = Traffic.
maxpacket | plain | net/sched/sch_fq_codel.c
  The largest packet so far: with GSO up to 64 KiB.
  = Nothing.
memory_used memory_usage | either | net/sched/sch_fq_codel.c
  A level: memory of waiting packets.
  = Near memory_limit: drops by memory.
flows_plimit | loss | net/sched/sch_fq.c fq_enqueue
  Packets dropped because their flow had flow_limit (100) packets waiting.
  = One flow sends faster than it is let out.
horizon_drops | loss | net/sched/sch_fq.c fq_enqueue
  Packets dropped because their time to be sent lies further ahead than `horizon`.
  = An application or a clock sets wrong times (SO_TXTIME).
horizon_caps | bad | net/sched/sch_fq.c fq_enqueue
  Packets whose time was cut to the horizon.
  = As horizon_drops.
allocation_errors | loss | net/sched/sch_fq.c fq_classify
  Times that there was no memory for a new flow.
  = The host is short of memory.
throttled throttled_flows | plain | net/sched/sch_fq.c fq_dequeue
  Times that a flow had to wait for its pacing rate; of the level, flows that wait now.
  = Pacing works (BBR, SO_MAX_PACING_RATE).
highprio_packets internal_packets fastpath_packets | plain | net/sched/sch_fq.c
  Packets that passed without their flow's queue: of the kernel's own, or because nothing else waited.
  = Traffic.
gc_flows inactive_flows flows | plain | net/sched/sch_fq.c fq_gc
  Flows that were forgotten; of the levels, those known and those idle.
  = Traffic.
tcp_retrans | bad | net/sched/sch_fq.c
  TCP retransmissions that passed.
  = Loss beyond this qdisc.
pkts_too_long | bad | net/sched/sch_fq.c
  Packets longer than `maxrate` can pace.
  = Nothing to worry about.
band#_drops | loss | net/sched/sch_fq.c (Linux 6.7)
  Packets dropped of this band of priority.
  = As drops.
band#_pkt_count | either | net/sched/sch_fq.c
  A level: packets of this band that wait.
  = As qlen.
early pdrop other matched earlydrop penaltydrop bucketdrop queuedrop childdrop dropped overlimit overmemory
hh_overlimit | loss | net/sched/sch_red.c, sch_choke.c, sch_sfb.c, sch_pie.c, sch_fq_pie.c, sch_hhf.c
  Packets that RED, CHOKe, SFB, PIE or HHF dropped: early, because the queue was full, or for another reason.
  = The queue is longer than the algorithm means it to be.
lends borrows giants | plain | net/sched/sch_htb.c htb_charge_class
  Packets that a class sent at its own rate, at its parent's, and packets too large for the table of rates.
  = borrows: the class has more to send than its own rate.
tokens ctokens | either | net/sched/sch_htb.c
  Levels: tokens left, negative for debt.
  = Below 0 the class has to wait.
deficit allot count lastcount dropping ldelay* drop_next* prob delay* avg_dq_rate* dq_rate* interval* time_next*
unthrottle_latency* maxq maxqlen maxprob avgprob period level overactions hh_tot_count hh_cur_count | either
| net/sched/sch_codel.c, sch_fq.c, sch_pie.c, sch_hfsc.c
  State of the algorithm now.
  = For those who know the algorithm.
"""

NEIGHBOUR: Final = """
entries | either | /proc/net/stat/arp_cache, ndisc_cache; net/core/neighbour.c
  A level: entries in the table of all namespaces.
  = Near net.ipv4.neigh.default.gc_thresh3 (1024): new neighbours are refused.
table_fulls | loss | net/core/neighbour.c neigh_alloc
  Neighbours refused because the table had gc_thresh3 entries and none could go.
  = Packets to them fail with ENOBUFS ("neighbour table overflow" in dmesg). Raise gc_thresh1 to 3, or mend a netmask
  that is too wide.
unresolved_discards | loss | net/core/neighbour.c __neigh_event_send
  Packets dropped because too many waited already for the address of their neighbour (unres_qlen_bytes).
  = Somebody sends much to an address that does not answer.
res_failed | bad | net/core/neighbour.c neigh_invalidate
  Addresses given up because nobody answered.
  = The neighbour is down, or not in this network; senders get EHOSTUNREACH.
allocs destroys hash_grows | plain | net/core/neighbour.c neigh_alloc, neigh_destroy, neigh_hash_grow
  Entries made, freed, and times that the table grew.
  = Many of each: a scan, or a large subnet.
lookups hits | plain | net/core/neighbour.c neigh_lookup
  Searches in the table, and those that found something.
  = Most packets need none: sockets and routes keep their neighbour.
rcv_probes_mcast rcv_probes_ucast | plain | net/ipv6/ndisc.c ndisc_recv_ns
  Neighbour solicitations received, to a group and to us alone.
  = Neighbours look for us.
periodic_gc_runs | plain | net/core/neighbour.c neigh_periodic_work
  Rounds that throw out old entries.
  = Time passes.
forced_gc_runs | bad | net/core/neighbour.c neigh_forced_gc
  Rounds forced because the table had more than gc_thresh2 (512) entries.
  = The table is nearly full.
"""
