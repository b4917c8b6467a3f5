# SPDX-License-Identifier: Apache-2.0
"""``struct tcp_info`` (include/uapi/linux/tcp.h), as data: what the kernel tells of a TCP connection.

The struct only ever grew at its end, so one table does for every kernel: each sends as much of it as it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

Unit: TypeAlias = Literal["", "us", "ms", "bytes", "bytes_per_s"]


@dataclass(frozen=True, slots=True)
class Field:
    """A member of the struct, or some bits of one.

    Attributes
    ----------
    name
        As in C, without ``tcpi_``.
    unit
        What it counts; empty for segments, packets, events and flags.
    meaning
        A few words for people.
    size
        Bytes; 0 for a bit field that lies in the byte of the field before it.
    bits
        Of a bit field: its lowest bit, and how many.
    offset
        In bytes, from the beginning of the struct.
    """

    name: str
    unit: Unit
    meaning: str
    size: int = 4
    bits: tuple[int, int] | None = None
    offset: int = 0

    @property
    def column(self) -> str:
        """The name with its unit, as in JSON."""
        if not self.unit or (self.unit == "bytes" and "bytes" in self.name):
            return self.name
        return f"{self.name}_{self.unit}"


def _laid_out(*fields: Field) -> tuple[Field, ...]:
    """Put fields one behind the other; there is no padding that is not a field."""
    placed, offset = [], 0
    for field in fields:
        at = offset if field.size else offset - 1
        placed.append(Field(field.name, field.unit, field.meaning, field.size or 1, field.bits, at))
        offset += field.size
    return tuple(placed)


FIELDS: Final = _laid_out(
    Field("state", "", "state, as idiag_state", 1),
    Field("ca_state", "", "congestion avoidance: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss", 1),
    Field("retransmits", "", "timeouts in a row that nothing was heard after", 1),
    Field("probes", "", "window or keepalive probes in a row without an answer", 1),
    Field("backoff", "", "how often the timeout was doubled", 1),
    Field("options", "", "1 timestamps, 2 SACK, 4 window scaling, 8 ECN, 16 ECN seen, 32 SYN data, 64 usec TS", 1),
    Field("snd_wscale", "", "window scale of the peer's windows", 1, bits=(0, 4)),
    Field("rcv_wscale", "", "window scale of our windows", 0, bits=(4, 4)),
    Field("delivery_rate_app_limited", "", "1: delivery_rate is of a time with too little to send", 1, bits=(0, 1)),
    Field("fastopen_client_fail", "", "why Fast Open failed: 1 no answer, 2 not acked, 3 retransmitted", 0, (1, 2)),
    Field("rto", "us", "retransmission timeout"),
    Field("ato", "us", "delayed acknowledgement timeout"),
    Field("snd_mss", "bytes", "largest segment sent"),
    Field("rcv_mss", "bytes", "largest segment seen from the peer, an estimate"),
    Field("unacked", "", "segments on their way; of a listener: connections waiting to be accepted"),
    Field("sacked", "", "segments that SACK reported; of a listener: the backlog"),
    Field("lost", "", "segments held for lost"),
    Field("retrans", "", "segments retransmitted that are on their way"),
    Field("fackets", "", "not used any more (Linux 4.15)"),
    Field("last_data_sent", "ms", "since data was sent"),
    Field("last_ack_sent", "ms", "not kept"),
    Field("last_data_recv", "ms", "since data was received"),
    Field("last_ack_recv", "ms", "since an acknowledgement was received"),
    Field("pmtu", "bytes", "path MTU"),
    Field("rcv_ssthresh", "bytes", "limit of the window we advertise"),
    Field("rtt", "us", "round-trip time, smoothed"),
    Field("rttvar", "us", "its mean deviation"),
    Field("snd_ssthresh", "", "slow start threshold, segments; none before the first loss"),
    Field("snd_cwnd", "", "congestion window, segments"),
    Field("advmss", "bytes", "largest segment we advertised"),
    Field("reordering", "", "segments that may be out of order before one counts as lost"),
    Field("rcv_rtt", "us", "round-trip time as the receiver sees it"),
    Field("rcv_space", "bytes", "what the application reads in a round trip"),
    Field("total_retrans", "", "segments retransmitted"),
    Field("pacing_rate", "bytes_per_s", "pace of sending; none where it is not paced", 8),
    Field("max_pacing_rate", "bytes_per_s", "limit of the pace (SO_MAX_PACING_RATE), if there is one", 8),
    Field("bytes_acked", "bytes", "acknowledged by the peer; 1 more after a SYN of ours", 8),
    Field("bytes_received", "bytes", "received in order; 1 more after a FIN", 8),
    Field("segs_out", "", "segments sent, empty ones as well"),
    Field("segs_in", "", "segments received, empty ones as well"),
    Field("notsent_bytes", "bytes", "written by the application and not yet sent"),
    Field("min_rtt", "us", "smallest round-trip time of late"),
    Field("data_segs_in", "", "segments with data received"),
    Field("data_segs_out", "", "segments with data sent, retransmissions as well"),
    Field("delivery_rate", "bytes_per_s", "most recent rate at which the peer got data", 8),
    Field("busy_time", "us", "time with something to send or unacknowledged", 8),
    Field("rwnd_limited", "us", "of that, stopped by the peer's window", 8),
    Field("sndbuf_limited", "us", "of that, stopped by our own send buffer", 8),
    Field("delivered", "", "segments delivered, retransmissions as well"),
    Field("delivered_ce", "", "of these, marked ECN congestion experienced"),
    Field("bytes_sent", "bytes", "data sent, retransmissions as well", 8),
    Field("bytes_retrans", "bytes", "data retransmitted", 8),
    Field("dsack_dups", "", "segments that the peer had got twice (DSACK)"),
    Field("reord_seen", "", "reordering events"),
    Field("rcv_ooopack", "", "segments received out of order"),
    Field("snd_wnd", "bytes", "window that the peer advertises"),
    Field("rcv_wnd", "bytes", "window that we advertise"),
    Field("rehash", "", "times the flow hash was changed for another path"),
    Field("total_rto", "", "timeouts", 2),
    Field("total_rto_recoveries", "", "recoveries from timeouts", 2),
    Field("total_rto_time", "ms", "time in recoveries from timeouts"),
    Field("received_ce", "", "segments received with ECN congestion experienced"),
    Field("delivered_e1_bytes", "bytes", "AccECN: payload delivered as ECT(1)"),
    Field("delivered_e0_bytes", "bytes", "AccECN: payload delivered as ECT(0)"),
    Field("delivered_ce_bytes", "bytes", "AccECN: payload delivered as CE"),
    Field("received_e1_bytes", "bytes", "AccECN: payload received as ECT(1)"),
    Field("received_e0_bytes", "bytes", "AccECN: payload received as ECT(0)"),
    Field("received_ce_bytes", "bytes", "AccECN: payload received as CE"),
    Field("accecn_fail_mode", "", "AccECN: why it is not used", 2),
    Field("accecn_opt_seen", "", "AccECN: whether its option was seen", 2),
)  # fmt: skip

BY_COLUMN: Final = {field.column: field for field in FIELDS}

# Values that stand for "none yet" or "no limit".
NO_RTT_US: Final = 0xFFFF_FFFF
_NO_PACE: Final = 0xFFFF_FFFF_FFFF_FFFF
NONE: Final = {
    "min_rtt_us": NO_RTT_US,
    "snd_ssthresh": 0x7FFF_FFFF,
    "pacing_rate_bytes_per_s": _NO_PACE,
    "max_pacing_rate_bytes_per_s": _NO_PACE,
}

OPTIONS: Final = ("ts", "sack", "wscale", "ecn", "ecnseen", "fastopen", "usec_ts")
CA_STATES: Final = ("open", "disorder", "cwr", "recovery", "loss")


def _dtype() -> np.dtype[np.void]:
    whole = [field for field in FIELDS if field.bits is None or not field.bits[0]]
    names = [field.name if field.bits is None else f"bits_{field.offset}" for field in whole]
    formats = [f"<u{field.size}" for field in whole]
    return np.dtype({"names": names, "formats": formats, "offsets": [field.offset for field in whole]})


# The whole struct; bytes of bit fields are `bits_6` and `bits_7`.
DTYPE: Final = _dtype()
