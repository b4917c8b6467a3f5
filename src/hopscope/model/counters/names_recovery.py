# SPDX-License-Identifier: Apache-2.0
"""What TCP's counters of losses, windows, acknowledgements and congestion control count.

:mod:`hopscope.model.counters.explanation` has the form.
"""

from __future__ import annotations

from typing import Final

RECOVERY: Final = """
TcpExtTCPTimeouts | bad | net/ipv4/tcp_timer.c tcp_retransmit_timer
  Times that a retransmission timer ran out, of data or of a SYN of ours. Each time counts, also where a counter below
  (TCPLossFailures and its like) says more about it.
  = The last resort: for a whole RTO (200 ms and more) nothing came back. Look for a dead path, a lost tail, a full
  queue. Nearly all of a user's "sometimes slow" is here.
TcpExtTCPFastRetrans | bad | net/ipv4/tcp_output.c tcp_xmit_retransmit_queue
  Segments sent again in fast recovery, because ACKs or SACKs showed a gap.
  = Loss (or reordering taken for it) on the way, repaired within about a round trip.
TcpExtTCPSlowStartRetrans | bad | net/ipv4/tcp_output.c tcp_xmit_retransmit_queue
  Segments sent again after a timeout, while the state is Loss. The name is of old.
  = As TCPTimeouts: whole windows are sent anew.
TcpExtTCPForwardRetrans | bad | kernels before 4.11
  Segments sent again before they were known to be lost, with FACK; no longer there.
  = Loss on the way.
TcpExtTCPLoss | bad | kernels before 4.0: tcp_input.c tcp_fastretrans_alert
  Times that FACK found segments lost again in recovery; not losses as such, whatever netstat calls it ("TCP data loss
  events"). No longer there.
  = For losses look at TcpRetransSegs.
TcpExtTCPLostRetransmit | bad | net/ipv4/tcp_recovery.c tcp_mark_skb_lost
  Retransmissions that were lost themselves, by SACK or because the next timeout struck; SYNs sent a third time, too.
  = Heavy loss, a policer, or a peer that does not answer: each costs a further round trip or a timeout.
TcpExtTCPRetransFail | bad | net/ipv4/tcp_output.c __tcp_retransmit_skb
  Retransmissions that the layer below refused (no memory, no route, a full queue of the qdisc).
  = The loss is on this very host: see qdisc drops and IpOutDiscards.
TcpExtTCPSpuriousRtxHostQueues | bad | net/ipv4/tcp_output.c skb_still_in_host_queue
  Retransmissions not made because the first copy still waits in this host's qdisc or driver.
  = The way out of this host is what is slow: qdisc backlog, driver, interrupts.
TcpExtTCPSynRetrans | bad | net/ipv4/tcp_output.c __tcp_retransmit_skb, tcp_rtx_synack
  SYNs and SYN-ACKs sent again.
  = Clients: the server or the way does not answer, or drops (its TcpExtListenDrops). Each costs 1 s and more.
TcpExtTCPLossProbes | either | net/ipv4/tcp_output.c tcp_send_loss_probe; RFC 8985
  Tail loss probes sent: two round trips after the last segment there was no ACK.
  = A lost tail, or a receiver that delays its ACKs longer than that.
TcpExtTCPLossProbeRecovery | either | net/ipv4/tcp_input.c tcp_process_tlp_ack
  Losses at the tail that a probe repaired.
  = Loss on the way, and a timeout that was saved.
TcpExtTCPRenoRecovery TcpExtTCPSackRecovery | bad | net/ipv4/tcp_input.c tcp_enter_recovery
  Times that fast recovery began: loss was inferred, and the window cut. Reno: the peer cannot do SACK.
  = One an event, however many segments it takes.
TcpExtTCPRenoRecoveryFail TcpExtTCPSackRecoveryFail | bad | net/ipv4/tcp_timer.c tcp_retransmit_timer
  Timeouts that struck in the middle of fast recovery.
  = Retransmissions are lost, too.
TcpExtTCPRenoFailures TcpExtTCPSackFailures | bad | net/ipv4/tcp_timer.c tcp_retransmit_timer
  Timeouts that struck while there were signs of disorder (duplicate ACKs or SACKs), not enough for fast recovery.
  = Small windows, or few packets in flight.
TcpExtTCPLossFailures | bad | net/ipv4/tcp_timer.c tcp_retransmit_timer
  Timeouts that struck when the state was Loss already.
  = Recovery from the last timeout failed as well.
TcpExtTCPFullUndo TcpExtTCPPartialUndo | either | net/ipv4/tcp_input.c tcp_try_undo_recovery, tcp_try_undo_partial
  Recoveries taken back because timestamps prove that the original had arrived: all of it, or so far.
  = Not loss but delay or reordering; the window is restored.
TcpExtTCPDSACKUndo | either | net/ipv4/tcp_input.c tcp_try_undo_dsack
  Recoveries taken back because the peer reported every retransmission as a duplicate.
  = As TCPFullUndo.
TcpExtTCPLossUndo | either | net/ipv4/tcp_input.c tcp_try_undo_loss
  Timeouts taken back.
  = The path stalled for longer than the RTO (a radio link, a sleeping virtual machine), but lost nothing.
TcpExtTCPSpuriousRTOs | either | net/ipv4/tcp_input.c tcp_try_undo_loss; RFC 5682
  Timeouts that F-RTO found to be in vain.
  = As TCPLossUndo.
TcpExtTCPSACKReneging | bad | net/ipv4/tcp_input.c tcp_check_sack_reneging
  Times that the peer no longer had what it had acknowledged by SACK.
  = Its memory is short (OfoPruned at its side), or a middlebox lies.
TcpExtTCPSACKReorder TcpExtTCPRenoReorder TcpExtTCPTSReorder TcpExtTCPFACKReorder | either
| net/ipv4/tcp_input.c tcp_check_sack_reordering, tcp_try_undo_partial
  Times that reordering was seen in ACKs: by SACK, without it, by timestamps. (FACK: kernels before 4.15.)
  = Several paths, several queues, or a link that retransmits. The threshold adapts (`ss -ti`: reordering).
TcpExtTCPDSACKOldSent | either | net/ipv4/tcp_input.c tcp_dsack_set
  Duplicates of data that we had, reported to the sender.
  = It retransmits without need: our ACKs are lost or late.
TcpExtTCPDSACKOfoSent | either | net/ipv4/tcp_input.c tcp_dsack_set
  The same of data beyond a gap.
  = As TCPDSACKOldSent.
TcpExtTCPDSACKRecv | either | net/ipv4/tcp_input.c tcp_check_dsack
  Reports from peers that they had what we sent again.
  = Retransmissions in vain: delay or reordering, not loss. Divide by TcpRetransSegs.
TcpExtTCPDSACKOfoRecv | either | net/ipv4/tcp_input.c tcp_check_dsack
  The same of data beyond a gap.
  = As TCPDSACKRecv.
TcpExtTCPDSACKRecvSegs | either | net/ipv4/tcp_input.c tcp_dsack_seen
  Segments that those reports cover.
  = As TCPDSACKRecv, in segments.
TcpExtTCPDSACKIgnoredOld TcpExtTCPDSACKIgnoredNoUndo TcpExtTCPDSACKIgnoredDubious | either
| net/ipv4/tcp_input.c tcp_sacktag_write_queue
  Reports of duplicates that were not believed: too old, of nothing that we retransmitted, or of more than we sent.
  = The network duplicates packets, or a peer is confused.
TcpExtTCPSACKDiscard | bad | net/ipv4/tcp_input.c tcp_sacktag_write_queue
  SACK blocks that cannot be true.
  = A middlebox changes sequence numbers but not SACK, or a broken peer.
TcpExtTCPSackShifted TcpExtTCPSackMerged TcpExtTCPSackShiftFallback | plain | net/ipv4/tcp_input.c tcp_shift_skb_data
  How SACKs were filed in the send queue: part of a segment moved, all of it, or not possible.
  = How much work SACKs are.
TcpExtTCPHPHits | plain | net/ipv4/tcp_input.c tcp_rcv_established
  Segments with data that took the short way ("header prediction").
  = Good; where it is small against TcpInSegs there is disorder, or data flow both ways.
TcpExtTCPHPHitsToUser TcpExtTCPPrequeued TcpExtTCPPrequeueDropped TcpExtTCPDirectCopyFromBacklog
TcpExtTCPDirectCopyFromPrequeue TcpExtTCPSchedulerFailed | plain | kernels before 4.14
  How segments were handed to a waiting reader by the queue that 4.14 took away.
  = No longer there.
TcpExtTCPHPAcks TcpExtTCPPureAcks | plain | net/ipv4/tcp_input.c tcp_ack
  ACKs without data: on the short way, and on the other.
  = Many a segment sent: the peer acknowledges often.
TcpExtTCPRcvCoalesce | plain | net/ipv4/tcp_input.c tcp_try_coalesce
  Segments appended to the one before in the receive queue.
  = Saves memory; the reader is not waiting for each.
TcpExtTCPOFOQueue | bad | net/ipv4/tcp_input.c tcp_data_queue_ofo
  Segments that came out of order, and wait for what is missing.
  = Loss or reordering on the way to this host: the sender's retransmissions, seen from here.
TcpExtTCPOFOMerge | bad | net/ipv4/tcp_input.c tcp_data_queue_ofo
  Segments out of order that cover what was there already.
  = Retransmissions in vain.
TcpExtTCPOFODrop | loss | net/ipv4/tcp_input.c tcp_data_queue_ofo
  Segments out of order dropped for want of buffer.
  = As RcvPruned.
TcpExtDelayedACKs | plain | net/ipv4/tcp_timer.c tcp_delack_timer_handler
  ACKs sent because the timer for delayed ones (40 ms and more) ran out.
  = A request that comes in two small writes pays this: TCP_NODELAY at the sender, or one write.
TcpExtDelayedACKLocked | plain | net/ipv4/tcp_timer.c tcp_delack_timer
  Those put off further because the application held the socket.
  = Harmless.
TcpExtDelayedACKLost | either | net/ipv4/tcp_input.c tcp_send_dupack, tcp_data_queue
  Segments that came again although we had them.
  = Our ACK was lost or late, or the network duplicates: the sender retransmitted in vain.
TcpExtTCPAckCompressed | plain | net/ipv4/tcp_input.c __tcp_ack_snd_check
  ACKs for disorder that were held back and sent as one (net.ipv4.tcp_comp_sack_nr).
  = As designed.
TcpExtTCPAutoCorking | plain | net/ipv4/tcp.c tcp_should_autocork
  Times that a small write waited because the last one still is in the qdisc or driver.
  = Fewer, larger segments.
TcpExtTCPFromZeroWindowAdv TcpExtTCPToZeroWindowAdv | bad | net/ipv4/tcp_output.c tcp_select_window
  Times that the window we offer opened again from zero, and closed to zero.
  = The application here reads slower than the peer sends: that is flow control at work, the peer waits.
TcpExtTCPWantZeroWindowAdv | bad | net/ipv4/tcp_output.c tcp_select_window
  Times that we would have liked to offer nothing, but had already promised more.
  = The receive buffer is nearly full.
TcpExtTCPWinProbe | bad | net/ipv4/tcp_output.c tcp_xmit_probe_skb
  Probes sent to a peer with a closed window.
  = The application at the peer does not read.
TcpExtTCPKeepAlive | plain | net/ipv4/tcp_timer.c tcp_keepalive_timer
  Keepalives sent.
  = Idle connections with SO_KEEPALIVE.
TcpExtTCPOrigDataSent | plain | net/ipv4/tcp_output.c tcp_event_new_data_sent, tcp_connect
  Segments with data sent for the first time.
  = TcpRetransSegs divided by this is the rate of retransmission.
TcpExtTCPDelivered | plain | net/ipv4/tcp_input.c tcp_count_delivered, tcp_newly_delivered
  Segments that peers acknowledged, SYN among them.
  = What got there.
TcpExtTCPDeliveredCE | bad | net/ipv4/tcp_input.c tcp_count_delivered_ce
  Those acknowledged with an ECN echo: a router marked them.
  = A queue on the way that signals rather than drops.
TcpExtTCPHystartTrainDetect TcpExtTCPHystartDelayDetect | plain | net/ipv4/tcp_cubic.c hystart_update
  Times that CUBIC left slow start early, because of the length of ACK trains or a rising delay.
  = A queue was about to build up; on paths with jitter, too early.
TcpExtTCPHystartTrainCwnd TcpExtTCPHystartDelayCwnd | plain | net/ipv4/tcp_cubic.c hystart_update
  The sum of the windows at those times.
  = Divided by the number of times: the window at which slow start ended.
TcpExtTCPMTUPSuccess | plain | net/ipv4/tcp_input.c tcp_mtup_probe_success; RFC 4821
  Probes for a larger MTU that got through.
  = Segments grow (net.ipv4.tcp_mtu_probing).
TcpExtTCPMTUPFail | either | net/ipv4/tcp_input.c tcp_mtup_probe_failed
  Probes that did not.
  = The path's MTU is found.
TcpExtPAWSActive TcpExtPAWSEstab TcpExtPAWSPassive | loss | net/ipv4/tcp_input.c tcp_validate_incoming; RFC 7323
  Segments dropped because their timestamp is older than the last one: in SYN_SENT, later, or (before 4.12) at a
  listener.
  = Old duplicates. Many: several hosts behind one address (NAT), whose clocks differ.
TcpExtPAWSOldAck | either | net/ipv4/tcp_input.c tcp_validate_incoming: tcp_disordered_ack_check
  Pure ACKs with an old timestamp, dropped in silence (Linux 6.14).
  = Reordered ACKs.
TcpExtPAWSTimewait | loss | net/ipv4/tcp_minisocks.c tcp_timewait_state_process
  Segments with an old timestamp dropped by a connection in TIME_WAIT (Linux 6.16).
  = A client that takes the same port again with a clock that goes back: NAT.
TcpExtTSEcrRejected | loss | net/ipv4/tcp_minisocks.c tcp_check_req
  ACKs of a handshake dropped because they echo a timestamp that we never sent (Linux 6.15).
  = Forged or stale ACKs.
TcpExtBeyondWindow | loss | net/ipv4/tcp_input.c tcp_validate_incoming
  Segments dropped because they end beyond the window that we offered (Linux 6.17).
  = A sender that does not keep to the window, or one that had a larger one from us before.
TcpExtOutOfWindowIcmps | either | net/ipv4/tcp_ipv4.c tcp_v4_err
  ICMP errors ignored because they quote a segment that is not in flight.
  = Late or forged.
TcpExtLockDroppedIcmps | either | net/ipv4/tcp_ipv4.c tcp_v4_err
  ICMP errors ignored because the application held the socket.
  = Harmless: the timer will find out.
TcpExtTCPChallengeACK TcpExtTCPSYNChallenge | either | net/ipv4/tcp_input.c tcp_send_challenge_ack; RFC 5961
  ACKs sent to make sure that a RST, SYN or odd ACK in the middle of a connection is real; those that a SYN provoked.
  = A peer that restarted, a middlebox, or an attempt to break connections.
TcpExtTCPACKSkippedSynRecv TcpExtTCPACKSkippedPAWS TcpExtTCPACKSkippedSeq TcpExtTCPACKSkippedFinWait2
TcpExtTCPACKSkippedTimeWait TcpExtTCPACKSkippedChallenge | either | net/ipv4/tcp_input.c tcp_oow_rate_limited
  ACKs not sent because one was sent less than net.ipv4.tcp_invalid_ratelimit (500 ms) ago: by state, or by reason.
  = Somebody sends segments that do not fit, again and again: an ACK loop that was broken, or an attack.
TcpExtTcpTimeoutRehash | either | net/ipv4/tcp_timer.c tcp_write_timeout
  Times that a timeout made us choose another hash, and with it perhaps another path.
  = Loss on one of several paths (ECMP); also plain timeouts.
TcpExtTcpDuplicateDataRehash | either | net/ipv4/tcp_input.c tcp_rcv_spurious_retrans
  Times that duplicates made us choose another hash for our ACKs.
  = The way back may be what is broken.
TcpExtTCPPLBRehash | either | net/ipv4/tcp_plb.c tcp_plb_check_rehash
  Times that congestion made us choose another path (net.ipv4.tcp_plb_enabled).
  = Load balancing at work.
"""
