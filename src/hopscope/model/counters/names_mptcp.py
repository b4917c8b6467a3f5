# SPDX-License-Identifier: Apache-2.0
"""What the counters of Multipath TCP count; :mod:`hopscope.model.counters.explanation` has the form."""

from __future__ import annotations

from typing import Final

MPTCP: Final = """
MPTcpExtMPCapableSYNRX MPTcpExtMPCapableSYNTX MPTcpExtMPCapableSYNACKRX MPTcpExtMPCapableACKRX | plain
| net/mptcp/mib.h; net/mptcp/subflow.c; RFC 8684
  Handshakes with MP_CAPABLE: SYNs received and sent, SYN-ACKs received, last ACKs received.
  = Minus the fallbacks: connections that do use MPTCP.
MPTcpExtMPCapableFallbackACK MPTcpExtMPCapableFallbackSYNACK MPTcpExtMPFallbackTokenInit MPTcpExtMPCapableDataFallback
MPTcpExtMD5SigFallback MPTcpExtDssFallback MPTcpExtSimultConnectFallback MPTcpExtDSSCorruptionFallback
| bad | net/mptcp/mib.h; net/mptcp/subflow.c, options.c
  Connections that went on as plain TCP: the ACK, SYN-ACK or first data had no option, no token was to be had, TCP-MD5
  is in use, a mapping was missing or damaged, or both sides connected at once.
  = The peer does not do MPTCP, or a middlebox takes the options out.
MPTcpExtFallbackFailed MPTcpExtDSSCorruptionReset MPTcpExtDssReset | loss | net/mptcp/subflow.c (Linux 6.17)
  Subflows reset because they could not go on as plain TCP, or their mapping was damaged.
  = A middlebox changes the stream (an application gateway, FTP).
MPTcpExtMPCapableSYNTXDrop MPTcpExtMPCapableSYNTXDisabled MPTcpExtBlackhole | bad | net/mptcp/ctrl.c (Linux 6.12)
  SYNs sent again without MP_CAPABLE because those with it were lost; connections for which MPTCP was switched off, and
  times that it was, since a middlebox eats such SYNs (net.mptcp.blackhole_timeout).
  = A firewall drops SYNs with unknown options.
MPTcpExtMPCapableEndpAttempt | plain | net/mptcp/protocol.c (Linux 6.13)
  Connections begun with an endpoint of ours of type fullmesh or subflow as their first address.
  = Work.
MPTcpExtMPTCPRetrans | bad | net/mptcp/protocol.c __mptcp_retrans
  Segments sent again at the level of MPTCP, over another subflow.
  = A path is lost or slow.
MPTcpExtMPJoin*Failure MPTcpExtMPJoinNoTokenFound MPTcpExtMPJoinRejected MPTcpExtMPJoinSynTx*Err | bad
| net/mptcp/mib.h; net/mptcp/subflow.c
  Further subflows that did not come about: no such connection, a wrong code, refused by the path manager, or no socket,
  address or route for them.
  = A NAT or load balancer sends the second path to another host; or limits (`ip mptcp limits`).
MPTcpExtMPJoin* | plain | net/mptcp/mib.h; net/mptcp/subflow.c; RFC 8684 3.2
  Handshakes of further subflows: SYN, SYN-ACK, ACK, with a port of their own, as backup.
  = Paths are added.
MPTcpExtDSSNotMatching MPTcpExtDSSNoMatchTCP MPTcpExtDataCsumErr MPTcpExtNoDSSInWindow | loss
| net/mptcp/subflow.c, options.c
  Data whose mapping contradicts an earlier one or TCP, has a wrong checksum, or lies outside of the window.
  = A middlebox changes or splits segments.
MPTcpExtInfiniteMapTx MPTcpExtInfiniteMapRx | bad | net/mptcp/options.c, subflow.c; RFC 8684 3.7
  Connections told to go on as plain TCP in mid-stream.
  = As DSSCorruptionFallback.
MPTcpExtOFOQueue MPTcpExtOFOQueueTail MPTcpExtOFOMerge MPTcpExtDuplicateData | either | net/mptcp/protocol.c
  Data that came out of order over several paths: queued, at the queue's end, merged; data that came twice.
  = Paths of unequal delay; usual.
MPTcpExtAddAddrTxDrop MPTcpExtAddAddrDrop MPTcpExtEchoAddTxDrop MPTcpExtRmAddrDrop MPTcpExtRmAddrTxDrop | bad
| net/mptcp/pm.c, options.c
  Announcements of addresses that were dropped: the path manager was busy, or there was no room for the option.
  = That path may not be used.
MPTcpExtAddAddr* MPTcpExtEchoAdd* MPTcpExtPortAdd MPTcpExtRmAddr* MPTcpExtRmSubflow MPTcpExtMismatchPort* | plain
| net/mptcp/pm.c; RFC 8684 3.4
  Addresses announced, confirmed and withdrawn; subflows taken away.
  = The path manager at work. Mismatch: a join to a port that was not announced.
MPTcpExtMPPrioTx MPTcpExtMPPrioRx | plain | net/mptcp/pm.c; RFC 8684 3.3.8
  Changes of a subflow to backup and back.
  = Work.
MPTcpExtMPFailTx MPTcpExtMPFailRx MPTcpExtMPFastcloseTx MPTcpExtMPFastcloseRx MPTcpExtMPRstTx MPTcpExtMPRstRx | bad
| net/mptcp/options.c, subflow.c; RFC 8684 3.5 to 3.7
  Subflows or connections ended hard: wrong checksum, closed at once, reset with a reason.
  = Applications that abort, or middleboxes.
MPTcpExtSubflowStale MPTcpExtSubflowRecover | bad | net/mptcp/pm.c
  Subflows that went silent while another carried data, and those that came back.
  = A path is lost.
MPTcpExtSndWndShared MPTcpExtRcvWndShared MPTcpExtRcvWndConflictUpdate MPTcpExtRcvWndConflict | plain
| net/mptcp/options.c
  The window that all subflows share, and races in keeping it.
  = Work.
MPTcpExtMPCurrEstab | plain | net/mptcp/protocol.c
  A level: MPTCP connections that are established now.
  = Traffic.
MPTcpExtWinProbe | bad | net/mptcp/protocol.c mptcp_sendmsg_frag (Linux 6.18)
  Probes of a window that the peer holds closed.
  = The application at the peer does not read.
MPTcpExtBacklogDrop MPTcpExtRcvPruned MPTcpExtOFOPruned | loss | net/mptcp/protocol.c (Linux 7.x)
  Data dropped, to be sent again, for want of room: while the socket was locked, in the receive queue, out of order.
  = The application does not read fast enough.
MPTcpExt* | either | net/mptcp/mib.h; RFC 8684
  A counter of Multipath TCP that this version of hopscope does not know by name.
  = Its name, and net/mptcp/mib.h of that kernel, say what it counts.
"""
