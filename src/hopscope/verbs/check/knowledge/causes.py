# SPDX-License-Identifier: Apache-2.0
"""What the trouble that a finding names holds messages by: the causes of ``explain`` (:mod:`hopscope.model.cause`)."""

from __future__ import annotations

from typing import Final

# Cause → the findings of which it is what a message waits for.
_FINDINGS: Final = {
    "send-buffer": "udp-send-buffer udp6-send-buffer tcp-memory-pressure tcp-memory-filling",
    "handshake": "tcp-listen-overflow tcp-listen-drop tcp-syn-queue-full tcp-syn-cookies tcp-syn-retransmission "
    "tcp-fast-open-overflow socket-listener-filling socket-descriptors-exhausted",
    "receiver-window": "tcp-zero-window-received tcp-zero-window-sent tcp-zero-window-drop socket-window-closed "
    "tcp-receive-pruned tcp-receive-collapsed",
    "congestion-window": "tcp-spurious-retransmission tcp-spurious-timeouts ip-congestion-marks "
    "note-slow-start-after-idle",
    "neighbour": "arp-table-overflow arp-table-filling arp-unresolved-drop arp-failed ndisc-table-overflow "
    "ndisc-table-filling ndisc-unresolved-drop ndisc-failed",
    "shaper": "qdisc-shaped",
    "queue-others": "qdisc-standing-queue",
    "queue-own": "qdisc-standing-queue",
    "driver": "nic-tx-timeout nic-pause-received qdisc-requeues tcp-stuck-in-host",
    "retransmission": "nic-rx-missed nic-rx-no-buffer nic-rx-discards nic-rx-drops nic-ring-small nic-rx-fifo "
    "nic-rx-crc nic-cloud-limit nic-checksum nic-tx-errors softnet-backlog-drop softnet-flow-limit device-tx-dropped "
    "device-tx-carrier device-mtu-too-small device-mtu-too-small-6 qdisc-fifo-drop qdisc-drop qdisc-flow-limit "
    "qdisc-class-drop nft-drop conntrack-full conntrack-insert-failed tcp-retransmission tcp-timeouts "
    "tcp-lost-retransmission tcp-retransmission-failed tcp-receive-pruned tcp-receive-queue-drop tcp-backlog-drop "
    "tcp-memory-reserve-drop tcp-zero-window-drop tcp-mtu-black-hole socket-no-answer",
    "stream-hole": "tcp-retransmission tcp-timeouts tcp-reordering tcp-receive-out-of-order tcp-receive-pruned",
    "softirq-wait": "softnet-time-squeeze softnet-cpu-saturated softnet-rps-off interrupt-one-cpu cpu-pressure "
    "cpu-steal",
    "backlog": "softnet-backlog-standing softnet-time-squeeze softnet-cpu-saturated softnet-rps-off",
    "netfilter": "conntrack-long-chains",
    "reader-runnable": "cpu-pressure cpu-steal softnet-cpu-saturated",
}


def causes_of(finding: str) -> tuple[str, ...]:
    """Return the names of the causes that a finding's trouble shows as; none where messages do not wait for it."""
    return _CAUSES.get(finding, ())


_CAUSES: Final = {
    finding: tuple(cause for cause, findings in _FINDINGS.items() if finding in findings.split())
    for finding in sorted({each for findings in _FINDINGS.values() for each in findings.split()})
}
