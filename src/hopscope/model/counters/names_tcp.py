# SPDX-License-Identifier: Apache-2.0
"""What TCP's counters of connections, memory and segments count; ``counter_names_recovery`` has those of losses.

:mod:`hopscope.model.counters.explanation` has the form.
"""

from __future__ import annotations

from typing import Final

TCP: Final = """
TcpRtoAlgorithm | plain | RFC 2012 tcpRtoAlgorithm
  A constant: 1, "other".
  = Nothing.
TcpRtoMin TcpRtoMax | plain | RFC 2012; net/ipv4/tcp.c tcp_init
  Constants: 200 and 120,000 ms, also where a route or net.ipv4.tcp_rto_min_us says otherwise.
  = Nothing.
TcpMaxConn | plain | RFC 2012 tcpMaxConn
  A constant: -1, "no fixed limit".
  = Nothing.
TcpActiveOpens | plain | net/ipv4/tcp_output.c tcp_connect; RFC 1213 tcpActiveOpens
  Connections that this host began: a SYN was made for them.
  = Minus those that became established: see TcpAttemptFails.
TcpPassiveOpens | plain | net/ipv4/tcp_minisocks.c tcp_create_openreq_child; RFC 1213 tcpPassiveOpens
  Connections that were opened to this host. Linux counts them when the handshake's last ACK makes them a socket, not
  when the SYN comes, as the RFC has it.
  = SYNs that get no further are not in it: they are TcpExtListenDrops, TcpExtTCPReqQFull*, or nothing at all.
TcpAttemptFails | bad | net/ipv4/tcp.c tcp_done, tcp_check_req; RFC 1213 tcpAttemptFails
  Connections that ended in the handshake: ours were refused or timed out, or those of others were reset.
  = A port where nobody listens, a firewall, or a peer that gives up.
TcpEstabResets | bad | net/ipv4/tcp.c tcp_set_state; RFC 1213 tcpEstabResets
  Connections that went from ESTABLISHED or CLOSE_WAIT to closed at once, because a RST came or was sent.
  = Applications that close with data unread, that crash, or whose time is over; see TcpExtTCPAbort*.
TcpCurrEstab | plain | net/ipv4/tcp.c tcp_set_state; RFC 1213 tcpCurrEstab
  A level: connections in ESTABLISHED or CLOSE_WAIT now.
  = Rising without end: nobody closes (`ss -tan state close-wait`).
TcpInSegs | plain | net/ipv4/tcp_ipv4.c tcp_v4_rcv, tcp_segs_in; RFC 1213 tcpInSegs
  Segments that came in. Since GRO: one of them may be many on the wire.
  = Compare with TcpOutSegs, which counts segments as they are on the wire.
TcpOutSegs | plain | net/ipv4/tcp_output.c __tcp_transmit_skb; RFC 1213 tcpOutSegs
  Segments sent, as many as they are after segmentation (TSO): data sent for the first time, pure ACKs, SYNs, resets.
  Retransmitted data do not count.
  = TcpRetransSegs divided by this understates the loss of a host that mostly receives: its segments are ACKs. Divide
  by TcpExtTCPOrigDataSent.
TcpRetransSegs | bad | net/ipv4/tcp_output.c __tcp_retransmit_skb; RFC 1213 tcpRetransSegs
  Segments sent again, for whatever reason, those of SYN and SYN-ACK among them.
  = Something sent was not acknowledged in time. Which way it was found out: TcpExtTCPFastRetrans, TCPSlowStartRetrans,
  TCPLossProbes, TCPSynRetrans. Whether in vain: TcpExtTCPDSACKRecv.
TcpInErrs | loss | net/ipv4/tcp_ipv4.c tcp_v4_rcv, tcp_v4_do_rcv; RFC 1213 tcpInErrs
  Segments dropped for a bad header or checksum, and SYNs in the middle of a connection.
  = Damage on the way, most often.
TcpInCsumErrors | loss | tcp_v4_rcv, tcp_checksum_complete
  Segments dropped for a wrong checksum; TcpInErrs counts them, too.
  = Damage after the NIC looked, or on a way without its own checksum; a tunnel or a veth with offloads gone wrong.
TcpOutRsts | bad | net/ipv4/tcp_ipv4.c tcp_v4_send_reset, tcp_send_active_reset; RFC 1213 tcpOutRsts
  Resets that this host tried to send: to ports where nobody listens, on connections it aborts.
  = With TcpExtTCPAbort*: our applications abort. Without: somebody knocks at closed ports.
TcpExtSyncookiesSent | bad | net/ipv4/tcp_input.c tcp_conn_request, cookie_v4_init_sequence
  SYN-ACKs with a cookie, sent because the queue of half-open connections of a listener was full.
  = A SYN flood, or a listener with too small a backlog. Connections still succeed, without some options.
TcpExtSyncookiesRecv | either | net/ipv4/syncookies.c cookie_v4_check
  ACKs that brought a valid cookie back: these connections were saved.
  = Near SyncookiesSent: real clients. Far below: a flood with made-up addresses.
TcpExtSyncookiesFailed | either | net/ipv4/syncookies.c cookie_v4_check
  ACKs with a cookie that is none of ours, or too old.
  = Also stray ACKs after a listener was restarted, while cookies are in use.
TcpExtEmbryonicRsts | either | net/ipv4/tcp_minisocks.c tcp_check_req
  Half-open connections that ended because a RST, or a segment that does not fit, came for them.
  = Clients that change their mind; scanners.
TcpExtListenOverflows | loss | net/ipv4/tcp_ipv4.c tcp_v4_syn_recv_sock; tcp_input.c tcp_conn_request
  SYNs, or ACKs that end a handshake, dropped because the listener's queue of finished connections is full.
  = The application does not call accept fast enough, or its backlog (`listen`, cut to net.core.somaxconn) is too small.
  `ss -ltn`: Recv-Q against Send-Q. Clients see connects of 1, 3, 7 s.
TcpExtListenDrops | loss | net/ipv4/tcp_ipv4.c tcp_v4_syn_recv_sock; tcp_input.c tcp_conn_request, tcp_listendrop
  All SYNs and handshakes that listeners dropped, ListenOverflows among them.
  = Beyond ListenOverflows: no memory, no route back, a policy, or a full queue of half-open connections.
TcpExtTCPReqQFullDoCookies | bad | net/ipv4/tcp_input.c tcp_syn_flood_action
  SYNs that met a full queue of half-open connections and were answered with a cookie.
  = As SyncookiesSent.
TcpExtTCPReqQFullDrop | loss | net/ipv4/tcp_input.c tcp_syn_flood_action
  SYNs dropped for the same reason where net.ipv4.tcp_syncookies is 0.
  = Switch cookies on, or raise the backlog and net.ipv4.tcp_max_syn_backlog.
TcpExtTCPDeferAcceptDrop | either | net/ipv4/tcp_minisocks.c tcp_check_req
  Bare ACKs of handshakes ignored because the listener has TCP_DEFER_ACCEPT and waits for data.
  = As asked for.
TcpExtTCPMigrateReqSuccess | plain | net/core/sock_reuseport.c, inet_reqsk_clone; net.ipv4.tcp_migrate_req
  Half-open connections moved to another listener of the same port when theirs was closed.
  = A restart that lost no client.
TcpExtTCPMigrateReqFailure | loss | inet_connection_sock.c reqsk_migrate_reset
  Those that could not be moved and were given up.
  = A restart that lost clients.
TcpExtTCPFastOpenActive | plain | net/ipv4/tcp_input.c tcp_rcv_fastopen_synack; RFC 7413
  Connections of ours whose data in the SYN was accepted.
  = A round trip saved.
TcpExtTCPFastOpenActiveFail | bad | tcp_input.c tcp_rcv_fastopen_synack, tcp_timer.c tcp_write_timeout
  Those whose data in the SYN was not accepted, or whose SYN timed out.
  = The peer does not do it, or a middlebox eats such SYNs.
TcpExtTCPFastOpenPassive | plain | net/ipv4/tcp_fastopen.c tcp_try_fastopen
  SYNs with data that we accepted.
  = A round trip saved.
TcpExtTCPFastOpenPassiveAltKey | plain | net/ipv4/tcp_fastopen.c tcp_try_fastopen
  Those whose cookie was made with the previous key.
  = A change of keys at work.
TcpExtTCPFastOpenPassiveFail | bad | net/ipv4/tcp_fastopen.c tcp_try_fastopen
  SYNs whose cookie was wrong, or for which no socket could be made.
  = The client goes on with a usual handshake.
TcpExtTCPFastOpenListenOverflow | loss | net/ipv4/tcp_fastopen.c tcp_fastopen_queue_check
  SYNs with data not taken because too many such connections are half open (TCP_FASTOPEN's queue length).
  = Raise the number that the application gives.
TcpExtTCPFastOpenCookieReqd | plain | net/ipv4/tcp_fastopen.c tcp_try_fastopen
  SYNs that asked for a cookie.
  = New clients.
TcpExtTCPFastOpenBlackhole | bad | net/ipv4/tcp_fastopen.c tcp_fastopen_active_disable
  Times that this host stopped to use Fast Open, because connections with it went dead.
  = A middlebox on the way breaks it; net.ipv4.tcp_fastopen_blackhole_timeout_sec says for how long.
TcpExtTW | plain | net/ipv4/inet_timewait_sock.c tw_timer_handler
  Connections that stayed in TIME_WAIT to the end.
  = This host closes first; that is what TIME_WAIT is for.
TcpExtTWRecycled | plain | net/ipv4/inet_hashtables.c __inet_check_established
  Ports in TIME_WAIT that a new connection of ours took (net.ipv4.tcp_tw_reuse).
  = Many connections to one address; ports are getting few.
TcpExtTWKilled | either | net/ipv4/inet_timewait_sock.c tw_timer_handler
  Those whose time was shorter than 4 s, and is over.
  = A short net.ipv4.tcp_fin_timeout or TCP_LINGER2.
TcpExtTCPTimeWaitOverflow | bad | net/ipv4/tcp_minisocks.c tcp_time_wait
  Connections closed without TIME_WAIT because there are net.ipv4.tcp_max_tw_buckets of them already.
  = Late segments may meet a new connection. Raise the limit, or keep connections open.
TcpExtTCPAbortOnData | either | net/ipv4/tcp.c __tcp_close; tcp_input.c tcp_rcv_state_process
  Connections reset because data came after the application closed, or because it closed with SO_LINGER 0.
  = Usual for clients that hang up before the answer ends; else an application error.
TcpExtTCPAbortOnClose | bad | net/ipv4/tcp.c __tcp_close; RFC 2525 2.17
  Connections reset because the application closed while data lay unread.
  = The peer loses what it may count as delivered.
TcpExtTCPAbortOnMemory | loss | net/ipv4/tcp_timer.c tcp_out_of_resources
  Connections without an application reset for want of memory: above net.ipv4.tcp_mem, or more than tcp_max_orphans.
  = Look at sockstat TCP.orphan and TCP.mem.
TcpExtTCPAbortOnTimeout | loss | net/ipv4/tcp_timer.c tcp_write_err, tcp_keepalive_timer
  Connections given up because nothing was acknowledged until the last retransmission, probe or keepalive.
  = The peer or the way to it is gone. The application gets ETIMEDOUT.
TcpExtTCPAbortOnLinger | either | net/ipv4/tcp.c __tcp_close
  Connections reset in FIN_WAIT2 because TCP_LINGER2 is negative.
  = As asked for.
TcpExtTCPAbortFailed | bad | net/ipv4/tcp_output.c tcp_send_active_reset
  Resets that could not be sent: no memory, or the queueing discipline dropped them.
  = The peer does not learn that the connection is over.
TcpExtTCPAbortOnSyn | either | kernels before 4.0: net/ipv4/tcp_input.c
  Connections reset because a SYN came in the middle; no longer there, since challenge ACKs (RFC 5961).
  = See TCPSYNChallenge.
TcpExtTCPMemoryPressures | bad | net/ipv4/tcp.c tcp_enter_memory_pressure
  Times that TCP's memory went above the middle number of net.ipv4.tcp_mem, which is of the whole host: buffers stop
  growing. It counts in the namespace of the socket that asked when it happened.
  = Many connections with full buffers. Look at sockstat TCP.mem, and for applications that do not read.
TcpExtTCPMemoryPressuresChrono | bad | net/ipv4/tcp.c tcp_leave_memory_pressure
  Milliseconds that it was so, added when it ends.
  = How long throughput was held down.
TcpExtPruneCalled | bad | net/ipv4/tcp_input.c tcp_prune_queue
  Times that a socket's receive buffer was full and TCP tried to make room, by packing segments together.
  = A slow reader, or small segments in big buffers (truesize). Nothing is lost yet.
TcpExtRcvPruned | loss | net/ipv4/tcp_input.c tcp_prune_queue
  Times that no room could be made: what came was dropped, and the sender will retransmit it.
  = The application does not read, or net.ipv4.tcp_rmem is too small for the path.
TcpExtOfoPruned | loss | net/ipv4/tcp_input.c tcp_prune_ofo_queue
  Times that segments out of order, which were acknowledged by SACK, were thrown away to make room.
  = The sender has to send them again; it finds out late (TCPSACKReneging at its side).
TcpExtTCPRcvCollapsed | bad | net/ipv4/tcp_input.c tcp_collapse_one
  Segments packed together for want of room: each costs a copy.
  = As PruneCalled.
TcpExtTCPRcvQDrop | loss | net/ipv4/tcp_input.c tcp_data_queue, tcp_send_rcvq
  Segments in order that were dropped because the receive buffer, or TCP's memory, was full.
  = The sender will retransmit. A reader that is too slow, or memory pressure.
TcpExtTCPZeroWindowDrop | loss | net/ipv4/tcp_input.c tcp_data_queue
  Segments with data dropped because our window is zero: mostly the peer's probes for room.
  = The application here does not read.
TcpExtTCPBacklogDrop | loss | net/ipv4/tcp_ipv4.c tcp_add_backlog
  Segments dropped because the socket was locked by its application and the queue for that case was full.
  = A thread holds the socket in a long system call, or its buffer is small; the sender will retransmit.
TcpExtTCPBacklogCoalesce | plain | net/ipv4/tcp_ipv4.c tcp_add_backlog
  Segments put together in that queue.
  = Saves room.
TcpExtPFMemallocDrop | loss | net/core/filter.c sk_filter_trim_cap
  Packets dropped because they lay in the reserve for emergencies, which is for swap over the network alone.
  = The host is out of memory.
TcpExtTCPMinTTLDrop | loss | net/ipv4/tcp_ipv4.c tcp_v4_rcv
  Segments dropped because their TTL is below the socket's IP_MINTTL (or IPV6_MINHOPCOUNT).
  = As asked for (BGP's GTSM): a peer from further away than it should be.
TcpExtTCPWqueueTooBig | loss | net/ipv4/tcp_output.c tcp_fragment
  Times that a segment was not cut in two because the send queue is far over its limit, as a guard against an attack by
  tiny SACKs; the connection may stall.
  = A small SO_SNDBUF with a small MSS, or an attack.
TcpExtIPReversePathFilter | loss | net/ipv4/ip_input.c ip_rcv_finish_core; fib_frontend.c fib_validate_source
  IPv4 packets dropped by rp_filter: the way back to their sender does not lead out where they came in. It stands among
  TCP's counters, but is of all protocols.
  = Asymmetric routing, a wrong netmask, or forged addresses. net.ipv4.conf.*.rp_filter=2 is the loose check.
TcpExtArpFilter | either | net/ipv4/arp.c arp_filter
  ARP requests not answered because of the setting arp_filter.
  = As asked for.
TcpExtBusyPollRxPackets | plain | net/core/dev.c napi_busy_loop
  Packets that were found by busy polling.
  = Busy polling works; compare with softnet processed.
TcpExtTCPMD5NotFound TcpExtTCPMD5Unexpected TcpExtTCPMD5Failure | loss | net/ipv4/tcp.c tcp_inbound_md5_hash; RFC 2385
  Segments dropped: without the signature that they should have, with one that is not expected, or with a wrong one.
  = The two sides (of BGP, most often) do not have the same key.
TcpExtTCPAOGood | plain | net/ipv4/tcp_ao.c tcp_ao_verify_hash; RFC 5925
  Segments whose authentication (TCP-AO) was right.
  = It works.
TcpExtTCPAORequired TcpExtTCPAOBad TcpExtTCPAOKeyNotFound | loss | net/ipv4/tcp_ao.c tcp_inbound_ao_hash; RFC 5925
  Segments dropped: without TCP-AO where it is required, with a wrong code, or with a key that we do not have.
  = The two sides do not have the same keys.
TcpExtTCPAODroppedIcmps | either | net/ipv4/tcp_ao.c tcp_ao_ignore_icmp
  ICMP errors for authenticated connections that were ignored, as asked for.
  = Harmless, or somebody tries to break connections by forged ICMP.
"""
