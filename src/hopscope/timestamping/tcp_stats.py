# SPDX-License-Identifier: Apache-2.0
"""What TCP tells beside a stamp (``SCM_TIMESTAMPING_OPT_STATS``), by the kernel's names."""

from __future__ import annotations

import struct
from typing import Final

from hopscope.errors import FormatError

# include/uapi/linux/tcp.h, in the order of their numbers, which start at 1
TCP_NLA: Final = (
    "TCP_NLA_BUSY",
    "TCP_NLA_RWND_LIMITED",
    "TCP_NLA_SNDBUF_LIMITED",
    "TCP_NLA_DATA_SEGS_OUT",
    "TCP_NLA_TOTAL_RETRANS",
    "TCP_NLA_PACING_RATE",
    "TCP_NLA_DELIVERY_RATE",
    "TCP_NLA_SND_CWND",
    "TCP_NLA_REORDERING",
    "TCP_NLA_MIN_RTT",
    "TCP_NLA_RECUR_RETRANS",
    "TCP_NLA_DELIVERY_RATE_APP_LMT",
    "TCP_NLA_SNDQ_SIZE",
    "TCP_NLA_CA_STATE",
    "TCP_NLA_SND_SSTHRESH",
    "TCP_NLA_DELIVERED",
    "TCP_NLA_DELIVERED_CE",
    "TCP_NLA_BYTES_SENT",
    "TCP_NLA_BYTES_RETRANS",
    "TCP_NLA_DSACK_DUPS",
    "TCP_NLA_REORD_SEEN",
    "TCP_NLA_SRTT",
    "TCP_NLA_TIMEOUT_REHASH",
    "TCP_NLA_BYTES_NOTSENT",
    "TCP_NLA_EDT",
    "TCP_NLA_TTL",
    "TCP_NLA_REHASH",
)
_PAD: Final = 0
_HEADER: Final = struct.Struct("=HH")
_VALUES: Final = {size: struct.Struct(f"={code}") for size, code in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))}


def decode(attributes: bytes) -> dict[str, int]:
    """Return the values by name.

    Times are in microseconds, but ``TCP_NLA_EDT`` is CLOCK_MONOTONIC in nanoseconds; rates are in bytes per second;
    ``TCP_NLA_TTL`` is there only beside the stamp of an ACK. An attribute that is newer than this program is ``TCP_NLA
    N``.

    Raises
    ------
    FormatError
        The bytes are no netlink attributes.
    """
    found = {}
    at = 0
    while at + _HEADER.size <= len(attributes):
        length, kind = _HEADER.unpack_from(attributes, at)
        value = _VALUES.get(length - _HEADER.size)
        if kind != _PAD:
            if value is None or at + length > len(attributes):
                raise FormatError(f"SCM_TIMESTAMPING_OPT_STATS has an attribute {kind} of {length} bytes")
            name = TCP_NLA[kind - 1] if kind <= len(TCP_NLA) else f"TCP_NLA {kind}"
            (found[name],) = value.unpack_from(attributes, at + _HEADER.size)
        at += max(-(-length // 4) * 4, _HEADER.size)  # NLA_ALIGN
    return found
