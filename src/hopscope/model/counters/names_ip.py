# SPDX-License-Identifier: Apache-2.0
"""What the counters of IPv4, IPv6 and ICMP count; :mod:`hopscope.model.counters.explanation` has the form."""

from __future__ import annotations

from typing import Final

IP: Final = """
IpForwarding | plain | RFC 1213 ipForwarding
  A setting: 1 where net.ipv4.conf.all.forwarding is on, 2 where it is off.
  = Somebody changed whether this namespace routes.
IpDefaultTTL | plain | RFC 1213 ipDefaultTTL
  A setting: net.ipv4.ip_default_ttl.
  = Somebody changed it.
IpInReceives Ip6InReceives | plain | net/ipv4/ip_input.c ip_rcv_core; net/ipv6/ip6_input.c ip6_rcv_core
  Packets that came up to IP, before any check, also those that are dropped later. After GRO: one of them may be many
  packets on the wire (IpExtInNoECTPkts and its like count those).
  = What there is above can only be less than this. Where link rx_packets moves and this does not, packets go to
  a bridge, XDP, a tap or another protocol, or are dropped before IP.
IpInHdrErrors Ip6InHdrErrors | loss | ip_rcv_core, ip_forward; RFC 1213 ipInHdrErrors
  Packets dropped for their header: version, length, checksum of the header, bad options; also where the TTL (hop limit)
  ran out on the way through.
  = With IcmpOutTimeExcds beside it: a routing loop or a traceroute. Without: damage on the way, or a broken sender.
IpInAddrErrors Ip6InAddrErrors | loss | net/ipv4/route.c ip_error; net/ipv6/ip6_input.c; RFC 1213 ipInAddrErrors
  Packets dropped because they are for an address that is not ours while forwarding is off, or for one that cannot be
  anybody's.
  = Somebody's route or ARP entry leads here by mistake; a wrong or missing address on this host; promiscuous mode.
IpForwDatagrams Ip6OutForwDatagrams | plain | net/ipv4/ip_forward.c ip_forward_finish; net/ipv6/ip6_output.c ip6_forward
  Packets passed on to another host.
  = This namespace routes; that nobody forwards who should not is worth a thought.
IpInUnknownProtos Ip6InUnknownProtos | loss | ip_protocol_deliver_rcu; RFC 1213 ipInUnknownProtos
  Packets for us whose protocol nobody here speaks, and no raw socket took.
  = A module (SCTP, GRE, IPsec) is not loaded, or somebody tries protocols out.
IpInDiscards Ip6InDiscards | loss | ip_rcv_core, ip_rcv_options; RFC 1213 ipInDiscards
  Packets without fault that were dropped on their way in for want of memory (the packet could not be copied or
  trimmed). It does not count drops by netfilter, by a full socket or by the queue of a CPU.
  = The kernel had no memory at interrupt time; see memory and MemAvailable.
IpInDelivers
Ip6InDelivers | plain | net/ipv4/ip_input.c ip_local_deliver_finish; net/ipv6/ip6_input.c ip6_protocol_deliver_rcu
  Packets handed to TCP, UDP, ICMP or another protocol of this host, after netfilter and reassembly.
  = InReceives minus this is forwarded, reassembled from fragments, or dropped: by netfilter (`hopscope drops`
  says where), for want of a route, by an error that has a counter of its own.
IpOutRequests Ip6OutRequests | plain | __ip_local_out; net/ipv6/output_core.c __ip6_local_out; RFC 1213 ipOutRequests
  Packets that this host's own protocols asked IP to send. Before Linux 6.7 forwarded packets and fragments counted,
  too, and packets that were routed but not sent did not.
  = Compare with OutTransmits, which counts what left IP.
IpOutTransmits Ip6OutTransmits | plain | ip_finish_output2, ip6_finish_output2; RFC 4293 ipIfStatsOutTransmits
  Packets that IP handed to the layer below, own and forwarded, fragments each (Linux 6.7).
  = Less than OutRequests plus ForwDatagrams: dropped in between by netfilter, or waiting for a neighbour.
IpOutDiscards Ip6OutDiscards | loss | net/ipv4/ip_output.c ip_send_skb; RFC 1213 ipOutDiscards
  Packets without fault that were dropped on their way out: no memory, no room in the socket's send memory, an error of
  the layer below.
  = Often the queueing discipline, whose drops move alike. TCP's segments do not count here.
IpOutNoRoutes Ip6OutNoRoutes | loss | ip_queue_xmit, __ip_route_output_key; RFC 1213 ipOutNoRoutes
  Packets that could not be sent because no route leads to their destination.
  = The sender got ENETUNREACH or EHOSTUNREACH. `ip route get ADDRESS` shows what is missing.
IpExtInNoRoutes Ip6InNoRoutes | loss | ip_rcv_finish, ip_error; net/ipv6/route.c ip6_pkt_drop; RFC 4293
  Packets that came in and were dropped because no route leads to their destination, where this host forwards.
  = A router that lacks a route; it answers ICMP "network unreachable" (IcmpOutDestUnreachs moves, too).
IpReasmTimeout
Ip6ReasmTimeout | loss | net/ipv4/ip_fragment.c ip_expire; net/ipv6/reassembly.c ip6frag_expire_frag_queue
  Packets given up because not all of their fragments came within net.ipv4.ipfrag_time (30 s).
  = Fragments are lost on the way, often by a firewall that lets only the first of them pass, or by a queue.
IpReasmReqds Ip6ReasmReqds | plain | ip_defrag, ipv6_frag_rcv; RFC 1213 ipReasmReqds
  Fragments that came in to be put together. Each fragment counts.
  = Somebody sends packets larger than the path's MTU; correct it at the sender where you can.
IpReasmOKs Ip6ReasmOKs | plain | ip_frag_reasm, ip6_frag_reasm; RFC 1213 ipReasmOKs
  Packets put together from their fragments. Each packet counts, so that ReasmReqds is a multiple of this.
  = Works; still costs memory and time, and loses the whole packet with any fragment.
IpReasmFails Ip6ReasmFails | loss | ip_frag_queue, ip_expire, ip_defrag; RFC 1213 ipReasmFails
  Failures to put fragments together, for any reason: time over, no memory (net.ipv4.ipfrag_high_thresh), overlap, bad
  length. It counts events, not packets: one packet may count several times.
  = With ReasmTimeout: fragments are lost. Without: no memory for fragments, see sockstat FRAG.memory.
IpFragOKs Ip6FragOKs | plain | ip_do_fragment, ip6_fragment; RFC 1213 ipFragOKs
  Packets that this host cut into fragments.
  = Datagrams larger than the MTU are sent or forwarded; fine for few, costly for many.
IpFragFails Ip6FragFails | loss | ip_fragment, ip6_fragment; RFC 1213 ipFragFails
  Packets that should have been cut but could not: "don't fragment" is set, or there was no memory.
  = Path MTU discovery at work (ICMP "fragmentation needed" goes back), or where that ICMP is filtered: a black hole.
IpFragCreates Ip6FragCreates | plain | ip_do_fragment, ip6_fragment; RFC 1213 ipFragCreates
  Fragments made.
  = FragCreates / FragOKs is how many pieces a packet gives.
IpExtInTruncatedPkts Ip6InTruncatedPkts | loss | ip_rcv_core, ip6_rcv_core; RFC 4293
  Packets dropped because fewer bytes came than their header says.
  = Damage on the way, or a driver or tunnel that cuts.
Ip6InTooBigErrors | loss | net/ipv6/ip6_output.c ip6_forward; RFC 4293
  Packets to be forwarded that are larger than the next link's MTU; the sender gets "packet too big".
  = Path MTU discovery at work; for ever the same flow: its sender does not hear the ICMP.
IpExtInCsumErrors | loss | net/ipv4/ip_input.c ip_rcv_core
  Packets dropped for a wrong checksum of the IP header; they count in IpInHdrErrors, too.
  = Damage on the way: cable, port, memory of a switch or of this host.
IpExtReasmOverlaps | loss | net/ipv4/inet_fragment.c inet_frag_queue_insert, ip_frag_queue
  Fragments that overlap others; the whole packet is dropped.
  = No honest sender makes such. An attack on reassembly, or a broken middlebox.
IpExtInMcastPkts Ip6InMcastPkts IpExtOutMcastPkts Ip6OutMcastPkts | plain | ip_rcv_finish_core, ip_mc_output; RFC 4293
  Multicast packets, in or out.
  = Traffic.
IpExtInBcastPkts IpExtOutBcastPkts | plain | ip_rcv_finish_core, ip_mc_output; RFC 4293
  Broadcast packets, in or out.
  = A flood of them costs every host of the segment.
IpExtInOctets Ip6InOctets IpExtOutOctets Ip6OutOctets | plain | ip_rcv_core, ip_finish_output2; RFC 4293
  Bytes of packets, IP header included, link header not; as IpInReceives and IpOutTransmits count packets.
  = Less than link rx_bytes by the headers of Ethernet and by what is no IP.
IpExtInMcastOctets Ip6InMcastOctets
IpExtOutMcastOctets Ip6OutMcastOctets | plain | ip_rcv_finish_core, ip_mc_output; RFC 4293
  Bytes of multicast packets.
  = Traffic.
IpExtInBcastOctets Ip6InBcastOctets
IpExtOutBcastOctets Ip6OutBcastOctets | plain | ip_rcv_finish_core, ip_mc_output; RFC 4293
  Bytes of broadcast packets; IPv6 has no broadcast, and those stay 0.
  = Traffic.
IpExtInNoECTPkts Ip6InNoECTPkts | plain | include/net/ip.h ip_rcv_core: IPSTATS_MIB_NOECTPKTS; RFC 3168
  Packets without ECN, as they were on the wire: GRO's packets count as many as were put together. So with GRO this is
  more than InReceives.
  = This divided by InReceives is what GRO saves.
IpExtInECT0Pkts Ip6InECT0Pkts
IpExtInECT1Pkts Ip6InECT1Pkts | plain | ip_rcv_core: IPSTATS_MIB_NOECTPKTS and following; RFC 3168
  Packets whose sender can do ECN (ECT(0); ECT(1) is L4S's), as they were on the wire.
  = Somebody negotiated ECN.
IpExtInCEPkts Ip6InCEPkts | bad | ip_rcv_core: IPSTATS_MIB_CEPKTS; RFC 3168
  Packets that a router or a queueing discipline marked "congestion experienced" rather than drop them.
  = There is a queue on the way; senders slow down. Not a loss: that is what ECN is for.
"""

ROUTE: Final = """
entries | plain | net/ipv4/route.c rt_cpu_seq_show
  A level: routes that are kept for reuse.
  = For those who know the algorithm.
in_martian_dst in_martian_src | loss | net/ipv4/route.c ip_handle_martian_source, ip_route_input_slow
  Packets dropped because an address in them cannot be where they came from.
  = A wrong route or netmask, two networks on one wire, or forged addresses; net.ipv4.conf.all.log_martians=1 logs them.
in_no_route | loss | net/ipv4/route.c ip_route_input_slow
  Packets received for which there is no route.
  = See IpExtInNoRoutes of the namespaces.
in_slow_tot in_slow_mc in_brd out_slow_tot out_slow_mc | plain | net/ipv4/route.c rt_cpu_seq_show
  Packets routed by a full search: received, multicast, broadcast, sent, sent as multicast.
  = Most packets need none: sockets and early demultiplexing keep their route.
in_hit out_hit gc_total gc_ignored gc_goal_miss gc_dst_overflow in_hlist_search out_hlist_search | plain
| net/ipv4/route.c rt_cpu_seq_show
  Of the routing cache that Linux 3.6 took away.
  = Nothing: they stay 0 in newer kernels.
"""

ICMP: Final = """
IcmpInMsgs Icmp6InMsgs | plain | net/ipv4/icmp.c icmp_rcv; net/ipv6/icmp.c icmpv6_rcv; RFC 1213 icmpInMsgs
  ICMP messages that came in, also those with errors.
  = The types are counted one by one below.
IcmpInErrors Icmp6InErrors | bad | icmp_rcv, icmp_unreach, tcp_v4_err, __udp4_lib_err; RFC 1213 icmpInErrors
  ICMP messages that could not be used: bad checksum or length, unknown type, or an error message about a
  connection or socket that there is none of (any more).
  = Mostly the last: answers that come too late. Unlike RFC 1213, what is wrong need not be the message itself.
IcmpInCsumErrors Icmp6InCsumErrors | loss | icmp_rcv, icmpv6_rcv
  ICMP messages dropped for a wrong checksum; in InErrors, too, but in no type's counter.
  = Damage on the way.
IcmpOutMsgs Icmp6OutMsgs | plain | icmp_out_count, icmpv6_push_pending_frames; RFC 1213 icmpOutMsgs
  ICMP messages that this host tried to send, those of raw and ping sockets among them.
  = The sum of IcmpMsgOutType counters.
IcmpOutErrors Icmp6OutErrors | bad | icmp_push_reply, icmpv6_push_pending_frames; RFC 1213 icmpOutErrors
  ICMP messages that could not be sent, for want of memory or because a lock was taken.
  = The peer waits for an answer that does not come.
IcmpOutRateLimitGlobal | bad | net/ipv4/icmp.c icmpv4_global_allow
  Answers not sent because net.ipv4.icmp_msgs_per_sec (a limit for the whole host) was reached (Linux 6.3). IPv6
  shares the limit and this counter.
  = Somebody provokes errors at a high rate: a scan, a flood of datagrams to a closed port, a traceroute from many.
IcmpOutRateLimitHost Icmp6OutRateLimitHost | bad | icmpv4_xrlim_allow, icmpv6_xrlim_allow
  Answers not sent because of the limit for each destination, net.ipv4.icmp_ratelimit or net.ipv6.icmp.ratelimit
  (Linux 6.3).
  = One peer provokes errors faster than it is told of them: it may not learn that the port is closed.
IcmpInDestUnreachs Icmp6InDestUnreachs IcmpMsgInType3 Icmp6InType1 | bad | icmp_rcv; RFC 792, RFC 4443
  "Destination unreachable" that came in: network, host, port, protocol, prohibited; for IPv4 also "fragmentation
  needed".
  = Something that this host sends does not get there; the sockets concerned get ECONNREFUSED or EHOSTUNREACH.
IcmpOutDestUnreachs Icmp6OutDestUnreachs
IcmpMsgOutType3 Icmp6OutType1 | bad | __icmp_send, icmp6_send; RFC 792, RFC 4443
  "Destination unreachable" sent by this host.
  = Datagrams come to a port where nobody listens (UdpNoPorts moves alike), or this router has no route.
Icmp6InPktTooBigs Icmp6OutPktTooBigs Icmp6InType2 Icmp6OutType2 | either | net/ipv6/icmp.c; RFC 4443, RFC 8201
  "Packet too big": what IPv6 has in place of fragments on the way.
  = Path MTU discovery at work. Without it large packets vanish while small ones pass.
IcmpInTimeExcds Icmp6InTimeExcds IcmpMsgInType11 Icmp6InType3 | bad | icmp_rcv; RFC 792, RFC 4443
  "Time exceeded" that came in: a packet of ours ran out of hops, or of time for its fragments.
  = A routing loop, a traceroute, or fragments lost on the way.
IcmpOutTimeExcds Icmp6OutTimeExcds
IcmpMsgOutType11 Icmp6OutType3 | bad | ip_forward, ip_expire, ip6_forward; RFC 792, RFC 4443
  "Time exceeded" sent by this host.
  = Somebody traces routes through it, there is a loop, or reassembly gave up (IpReasmTimeout).
IcmpInParmProbs IcmpOutParmProbs Icmp6InParmProblems Icmp6OutParmProblems IcmpMsgInType12
IcmpMsgOutType12 Icmp6InType4 Icmp6OutType4 | bad | RFC 792, RFC 4443
  "Parameter problem": a header that the receiver did not understand.
  = A broken or unusual sender; for IPv6 often an extension header that somebody does not know.
IcmpInSrcQuenchs IcmpOutSrcQuenchs IcmpMsgInType4 IcmpMsgOutType4 | plain | icmp_rcv; RFC 6633 made it obsolete
  "Source quench", which nobody sends any more; Linux ignores it.
  = An ancient or hostile peer.
IcmpInRedirects IcmpOutRedirects Icmp6InRedirects Icmp6OutRedirects IcmpMsgInType5 IcmpMsgOutType5
Icmp6InType137 Icmp6OutType137 | either | icmp_redirect, ip_rt_send_redirect, ndisc_rcv
  "Redirect": there is a better gateway in the same network.
  = Routes are not as they should be, or somebody tries to lead traffic elsewhere (accept_redirects).
IcmpInEchos IcmpOutEchos Icmp6InEchos Icmp6OutEchos IcmpMsgInType8 IcmpMsgOutType8 Icmp6InType128
Icmp6OutType128 | plain | icmp_echo, icmpv6_rcv; RFC 792
  Pings: echo requests.
  = Monitoring; a flood of them costs time in softirq.
IcmpInEchoReps IcmpOutEchoReps Icmp6InEchoReplies Icmp6OutEchoReplies IcmpMsgInType0 IcmpMsgOutType0
Icmp6InType129 Icmp6OutType129 | plain | icmp_reply, ping_rcv; RFC 792
  Answers to pings.
  = Requests minus answers is what was lost, or forbidden (net.ipv4.icmp_echo_ignore_all).
IcmpInTimestamps IcmpOutTimestamps IcmpMsgInType13 IcmpMsgOutType13 | plain | icmp_timestamp; RFC 792
  Requests for the time of day by ICMP.
  = A scan; nobody else uses them.
IcmpInTimestampReps IcmpOutTimestampReps IcmpMsgInType14 IcmpMsgOutType14 | plain | icmp_timestamp; RFC 792
  Answers to them.
  = This host tells strangers its time.
IcmpInAddrMasks IcmpOutAddrMasks IcmpInAddrMaskReps IcmpOutAddrMaskReps IcmpMsgInType17
IcmpMsgOutType17 IcmpMsgInType18 IcmpMsgOutType18 | plain | RFC 950, obsolete
  Requests for a subnet's mask and their answers; Linux ignores both.
  = A scan.
Icmp6InRouterSolicits Icmp6OutRouterSolicits Icmp6InType133 Icmp6OutType133 | plain | net/ipv6/ndisc.c; RFC 4861
  Router solicitations: a host asks whether there is a router.
  = A host came up, or has had no answer.
Icmp6InRouterAdvertisements Icmp6OutRouterAdvertisements
Icmp6InType134 Icmp6OutType134 | plain | net/ipv6/ndisc.c ndisc_router_discovery; RFC 4861
  Router advertisements.
  = From a host that should not send them: its neighbours lose their default route.
Icmp6InNeighborSolicits Icmp6OutNeighborSolicits
Icmp6InType135 Icmp6OutType135 | plain | net/ipv6/ndisc.c ndisc_rcv; RFC 4861
  Neighbour solicitations: IPv6's ARP requests.
  = Many more than answers: addresses where nobody is, or a scan of the subnet.
Icmp6InNeighborAdvertisements Icmp6OutNeighborAdvertisements
Icmp6InType136 Icmp6OutType136 | plain | net/ipv6/ndisc.c ndisc_rcv; RFC 4861
  Answers to them.
  = Solicitations minus these went unanswered; see neighbour res_failed.
Icmp6InGroupMembQueries Icmp6OutGroupMembQueries Icmp6InType130 Icmp6OutType130 | plain | net/ipv6/mcast.c; RFC 3810
  Multicast listener queries.
  = A multicast router asks who wants what.
Icmp6InGroupMembResponses Icmp6OutGroupMembResponses Icmp6InType131 Icmp6OutType131 | plain | net/ipv6/mcast.c; RFC 2710
  Multicast listener reports, version 1.
  = Somebody joined a group.
Icmp6InGroupMembReductions Icmp6OutGroupMembReductions
Icmp6InType132 Icmp6OutType132 | plain | net/ipv6/mcast.c; RFC 2710
  Multicast listener done.
  = Somebody left a group.
Icmp6InMLDv2Reports Icmp6OutMLDv2Reports Icmp6InType143 Icmp6OutType143 | plain | net/ipv6/mcast.c; RFC 3810
  Multicast listener reports, version 2.
  = Somebody joined or left a group; each address brings its solicited-node group.
IcmpMsgInType# IcmpMsgOutType# | plain | include/net/icmp.h, net/ipv4/icmp.c icmp_rcv; IANA's list of ICMP types
  ICMP messages of the type that the number says. The line is there only once there was one.
  = See the counter that has the type's name, where there is one.
Icmp6InType# Icmp6OutType# | plain | include/net/ipv6.h, net/ipv6/icmp.c icmpv6_rcv; IANA's list of ICMPv6 types
  ICMPv6 messages of the type that the number says. The line is there only once there was one.
  = See the counter that has the type's name, where there is one.
"""
