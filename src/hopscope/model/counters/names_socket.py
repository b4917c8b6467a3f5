# SPDX-License-Identifier: Apache-2.0
"""What counters of UDP, of sockets and of connection tracking count.

:mod:`hopscope.model.counters.explanation` has the form.
"""

from __future__ import annotations

from typing import Final

UDP: Final = """
UdpInDatagrams Udp6InDatagrams UdpLiteInDatagrams UdpLite6InDatagrams | plain
| net/ipv4/udp.c udp_recvmsg; RFC 1213 udpInDatagrams
  Datagrams that the application has read. Linux counts them when they are read, not when they are queued; those taken
  by a tunnel in the kernel count, too.
  = Less than what came: they wait in sockets (sockstat UDP.mem), or were dropped (InErrors).
UdpNoPorts Udp6NoPorts UdpLiteNoPorts UdpLite6NoPorts | bad | net/ipv4/udp.c __udp4_lib_rcv; RFC 1213 udpNoPorts
  Datagrams to a port at which nobody listens. Each is answered by ICMP "port unreachable", within limits.
  = A service is down or restarts, a client sends to a wrong port, a scan. Answers to a socket that is closed already.
UdpInErrors Udp6InErrors UdpLiteInErrors UdpLite6InErrors | loss
| net/ipv4/udp.c __udp_queue_rcv_skb, udp_queue_rcv_one_skb; RFC 1213 udpInErrors
  Datagrams that came to a socket and did not get into its queue: RcvbufErrors, InCsumErrors and MemErrors are in it,
  and what a filter of the socket or IPsec refused.
  = See which of them moves.
UdpRcvbufErrors Udp6RcvbufErrors UdpLiteRcvbufErrors UdpLite6RcvbufErrors | loss | net/ipv4/udp.c __udp_queue_rcv_skb
  Datagrams dropped because the socket's receive buffer was full. UdpInErrors counts them, too.
  = The application reads too slowly for the bursts that come: net.core.rmem_max and SO_RCVBUF, or a faster reader.
  `ss -uanm`: skmem d is the socket's own count of drops.
UdpSndbufErrors Udp6SndbufErrors UdpLiteSndbufErrors UdpLite6SndbufErrors | bad
| net/ipv4/udp.c udp_sendmsg, udp_send_skb
  Sends that found no room: in the socket's send buffer, or further down (ENOBUFS): the qdisc, the neighbour table, a
  veth whose other end refuses. Also non-blocking ones that get EAGAIN, and are tried again: then nothing is lost.
  = More is sent than goes out. Datagrams that the qdisc drops are told to senders with IP_RECVERR alone; for all
  others the send seems to succeed. See qdisc drops, IpOutDiscards and link tx_dropped.
UdpInCsumErrors Udp6InCsumErrors UdpLiteInCsumErrors UdpLite6InCsumErrors | loss
| net/ipv4/udp.c udp_queue_rcv_one_skb, __udp4_lib_rcv
  Datagrams dropped for a wrong checksum; UdpInErrors counts them, too. Some are found only when they are read.
  = Damage on the way, or offloads gone wrong on a tunnel or veth.
UdpOutDatagrams Udp6OutDatagrams UdpLiteOutDatagrams UdpLite6OutDatagrams | plain | net/ipv4/udp.c udp_send_skb
  Datagrams that were sent, without those that the qdisc dropped at once; one send with UDP_SEGMENT counts once.
  = Traffic.
UdpIgnoredMulti Udp6IgnoredMulti UdpLiteIgnoredMulti UdpLite6IgnoredMulti | either
| net/ipv4/udp.c __udp4_lib_mcast_deliver
  Multicast and broadcast datagrams that no socket here wanted.
  = Groups or broadcasts that are for others (mDNS, SSDP).
UdpMemErrors Udp6MemErrors UdpLiteMemErrors UdpLite6MemErrors | loss | net/ipv4/udp.c __udp_queue_rcv_skb
  Datagrams dropped because all UDP sockets together hold net.ipv4.udp_mem. Linux 6.18 counts only some of them here:
  where datagrams are queued in batches, only the socket's own count of drops has them (udp_socket drops).
  = Many sockets that are not read, or a low udp_mem.
"""

UDP_SOCKET: Final = """
sockets | plain | /proc/net/udp, udp6
  A level: UDP sockets of this namespace.
  = Traffic, or a leak.
drops_of_open_sockets | either | /proc/net/udp, udp6: the sum of column drops
  A level: what all UDP sockets that are open now have dropped. A socket that is closed takes its count with it.
  = As drops.
drops | loss | /proc/net/udp, udp6: column drops; net/ipv4/udp.c, sk->sk_drops
  Datagrams that this socket dropped, for any reason: buffer full, checksum, filter, memory.
  = The application that owns it reads too slowly (`ss -uanpm`).
"""

SOCKSTAT: Final = """
sockets.used | plain | net/socket.c socket_seq_show
  Sockets of all families in this namespace.
  = Rising without end: a leak.
TCP.inuse UDP.inuse RAW.inuse UDPLITE.inuse TCP6.inuse UDP6.inuse RAW6.inuse UDPLITE6.inuse | plain
| net/ipv4/proc.c sockstat_seq_show; net/ipv6/proc.c
  Sockets of this protocol in this namespace; of TCP those that are not closed, listeners among them.
  = Traffic, or a leak.
TCP.orphan | either | net/ipv4/proc.c; net.ipv4.tcp_max_orphans
  TCP sockets of the whole host that no application has any more, but which still have data or a FIN to deliver.
  = Many: peers that do not acknowledge. At the limit connections are reset (TcpExtTCPAbortOnMemory).
TCP.tw | either | net/ipv4/proc.c; net.ipv4.tcp_max_tw_buckets
  Connections of this namespace in TIME_WAIT.
  = Many short connections that this host closes first; harmless until ports get few.
TCP.alloc | plain | net/ipv4/proc.c
  TCP sockets of the whole host for which memory is there, in any state.
  = Far above inuse: closed sockets that somebody holds.
TCP.mem UDP.mem | either | net/ipv4/proc.c; net.ipv4.tcp_mem, udp_mem
  Memory of the buffers of all sockets of the host, in pages.
  = Above the second number of tcp_mem: pressure; above the third: what comes is dropped.
FRAG.inuse FRAG6.inuse | either | net/ipv4/proc.c, net/ipv6/proc.c
  Packets that wait for the rest of their fragments.
  = Fragments are lost.
FRAG.memory FRAG6.memory | either | net/ipv4/proc.c; net.ipv4.ipfrag_high_thresh
  Bytes that they take.
  = Near ipfrag_high_thresh: new ones are refused (IpReasmFails).
"""

SOCKET: Final = """
queue backlog *.queue *.backlog | either | net/ipv4/tcp_diag.c tcp_diag_get_info; `ss -ltn`: Recv-Q and Send-Q
  Of a listener: connections that wait for accept now, and how many may.
  = queue above backlog: new ones are dropped (TcpExtListenOverflows).
local_ports local_ports_used local_ports_time_wait | either
| net/ipv4/inet_hashtables.c __inet_hash_connect; net.ipv4.ip_local_port_range
  How many ports the kernel may choose for connections; of a source address and a destination that use at least half
  of them, how many are in use, and how many of these in TIME_WAIT.
  = All in use: connect() fails with EADDRNOTAVAIL.
descriptors descriptor_limit descriptor_hard_limit | either | /proc/PID/fd and /proc/PID/limits: RLIMIT_NOFILE
  Of a listener at which connections wait, and whose process has at most a tenth of its file descriptors left.
  = At the limit, accept() fails with EMFILE, and the connections stay in the queue.
tcp.busy_time* *busy_us | plain | net/ipv4/tcp.c tcp_get_info_chrono_stats
  Time that connections had something to send.
  = Of which rwnd_limited and sndbuf_limited are the parts that were not the network's.
*rwnd_limited* | bad | net/ipv4/tcp.c tcp_get_info_chrono_stats: TCP_CHRONO_RWND_LIMITED
  Connections, or time, in which the sender waited for the receiver's window.
  = The application at the peer does not read fast enough, or its buffer is too small for the path.
*sndbuf_limited* | bad | net/ipv4/tcp.c tcp_get_info_chrono_stats: TCP_CHRONO_SNDBUF_LIMITED
  Connections, or time, in which the sender had no more room in its own send buffer.
  = SO_SNDBUF is set too small: leave it to the kernel, or raise net.ipv4.tcp_wmem.
*retrans* | bad | net/ipv4/tcp.c tcp_get_info
  Segments of the present connections that were sent again, or are outstanding again.
  = Loss on the way.
*lost* *unacked* *sacked* *reordering* *cwnd* *ssthresh* *rtt* *rto* *pacing* *delivery* *delivered* | either
| include/uapi/linux/tcp.h struct tcp_info; net/ipv4/tcp.c tcp_get_info
  A figure of struct tcp_info, as `ss -ti` shows it.
  = How connections fare now.
*drops* *drop* | loss | net/core/sock.c sk_get_meminfo: SK_MEMINFO_DROPS
  What sockets dropped.
  = Readers that are too slow.
*rmem* *wmem* *rcvbuf* *sndbuf* *backlog_bytes *fwd_alloc* *optmem* *_mem* | either | net/core/sock.c sk_get_meminfo
  Memory of sockets, as `ss -m` shows it.
  = Against rcvbuf and sndbuf: how full buffers are.
tcp.full_size_stalled_sockets tcp.full_size_stalled_mss_bytes | bad
| net/ipv4/tcp_timer.c tcp_retransmit_timer, tcp_mtu_probing; include/uapi/linux/tcp.h struct tcp_info
  Connections with three timeouts in a row or more that retransmit nothing but segments of full size, while their peer
  is heard of; and the smallest MSS of these.
  = A path MTU black hole: routers that drop large packets, and ICMP messages about it that do not arrive.
tcp.* | plain | include/net/tcp_states.h; net/ipv4/tcp_diag.c
  TCP sockets in the state that the name says.
  = close_wait: the application forgets to close. syn_sent: nobody answers. syn_recv: a flood, or lost ACKs. time_wait:
  this host closes first.
udp* raw* unix* mptcp* sctp* dccp* packet* | plain | net/ipv4/udp_diag.c and its like
  Sockets of this kind, or a figure of them.
  = Traffic, or a leak.
"""

NFT: Final = """
drops | either | net/netfilter/nft_counter.c; net/netfilter/nf_tables_core.c nft_do_chain
  Packets that a rule, or the policy of a chain, has dropped: what its counter says, where that counts nothing else.
  = What the firewall is told to drop.
drop_rules drop_rules_without_counter | plain | net/netfilter/nf_tables_api.c
  Rules and policies that drop packets, and how many of them do not count exactly what they drop.
  = What the latter drop is in no counter.
"""

CONNTRACK: Final = """
count entries | either | net/netfilter/nf_conntrack_standalone.c
  A level: connections that are tracked now.
  = Against max: at it new connections are dropped.
max buckets | plain | net.netfilter.nf_conntrack_max, nf_conntrack_buckets
  Settings: how many connections may be tracked, and the size of the table for them.
  = More than four entries a bucket makes each packet search.
drop | loss | net/netfilter/nf_conntrack_core.c nf_conntrack_alloc: insert failed for want of room
  Packets dropped because the table was full, and nothing in it could be thrown out early; those of insert_failed, too.
  = Without insert_failed: "nf_conntrack: table full, dropping packet" in dmesg. Raise nf_conntrack_max, shorten
  time-outs, or do not track.
early_drop | bad | net/netfilter/nf_conntrack_core.c early_drop
  Connections thrown out (not yet answered, or closing) to make room for new ones in a full table.
  = As drop, one step before.
insert_failed | loss | net/netfilter/nf_conntrack_core.c __nf_conntrack_confirm, nf_ct_resolve_clash
  New connections whose first packet was dropped because an equal one was entered at the same time.
  = Two packets of one flow raced, over DNAT of UDP (DNS) most often. Clients repeat after seconds.
clashres | either | net/netfilter/nf_conntrack_core.c nf_ct_resolve_clash (`conntrack -S`: clash_resolve)
  Such races that were settled without loss.
  = Many: as insert_failed, but harmless.
invalid | bad | net/netfilter/nf_conntrack_core.c nf_conntrack_in
  Packets that fit no connection and cannot begin one. They are not dropped, unless a rule drops "ct state invalid".
  = Late or out-of-window segments, asymmetric routing, a restarted firewall.
icmp_error | either | net/netfilter/nf_conntrack_core.c nf_conntrack_in
  ICMP errors that belong to no connection.
  = As invalid.
chainlength chaintoolong | loss | net/netfilter/nf_conntrack_core.c nf_conntrack_hash_check_insert
  New connections dropped because their bucket's chain was too long.
  = An attack on the hash, or too few buckets (nf_conntrack_buckets).
search_restart | either | net/netfilter/nf_conntrack_core.c ____nf_conntrack_find
  Searches begun again because the table changed meanwhile.
  = A busy table.
found new insert delete ignore searched delete_list expect_new expect_create expect_delete | plain
| net/netfilter/nf_conntrack_core.c, nf_conntrack_expect.c
  Entries looked up, made, entered, taken out, left alone, and expectations (of FTP and its like). Most of these the
  kernel no longer counts: they stay 0.
  = Work.
"""
