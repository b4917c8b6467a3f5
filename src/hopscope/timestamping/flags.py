# SPDX-License-Identifier: Apache-2.0
"""The names that the kernel gives to time stamps (include/uapi/linux/net_tstamp.h, errqueue.h)."""

from __future__ import annotations

import enum
from typing import Final


class Sof(enum.IntFlag):
    """``SOF_TIMESTAMPING_*``: what to stamp, what to report, and how."""

    TX_HARDWARE = 1 << 0
    TX_SOFTWARE = 1 << 1
    RX_HARDWARE = 1 << 2
    RX_SOFTWARE = 1 << 3
    SOFTWARE = 1 << 4
    SYS_HARDWARE = 1 << 5
    RAW_HARDWARE = 1 << 6
    OPT_ID = 1 << 7
    TX_SCHED = 1 << 8
    TX_ACK = 1 << 9
    OPT_CMSG = 1 << 10
    OPT_TSONLY = 1 << 11
    OPT_STATS = 1 << 12
    OPT_PKTINFO = 1 << 13
    OPT_TX_SWHW = 1 << 14
    BIND_PHC = 1 << 15
    OPT_ID_TCP = 1 << 16
    OPT_RX_FILTER = 1 << 17
    TX_COMPLETION = 1 << 18


# SOF_TIMESTAMPING_TX_RECORD_MASK: what a control message of one send may ask for
TX_RECORD: Final = Sof.TX_HARDWARE | Sof.TX_SOFTWARE | Sof.TX_SCHED | Sof.TX_ACK | Sof.TX_COMPLETION


class HwTx(enum.IntEnum):
    """``HWTSTAMP_TX_*``: which sent packets a NIC stamps."""

    OFF = 0
    ON = 1
    ONESTEP_SYNC = 2
    ONESTEP_P2P = 3


class HwFilter(enum.IntEnum):
    """``HWTSTAMP_FILTER_*``: which received packets a NIC stamps."""

    NONE = 0
    ALL = 1
    SOME = 2
    PTP_V1_L4_EVENT = 3
    PTP_V1_L4_SYNC = 4
    PTP_V1_L4_DELAY_REQ = 5
    PTP_V2_L4_EVENT = 6
    PTP_V2_L4_SYNC = 7
    PTP_V2_L4_DELAY_REQ = 8
    PTP_V2_L2_EVENT = 9
    PTP_V2_L2_SYNC = 10
    PTP_V2_L2_DELAY_REQ = 11
    PTP_V2_EVENT = 12
    PTP_V2_SYNC = 13
    PTP_V2_DELAY_REQ = 14
    NTP_ALL = 15


class Stage(enum.StrEnum):
    """Where a send was when it was stamped.

    The kernel's ``SCM_TSTAMP_*``; a stamp of the NIC is told apart, because it is of another clock.
    """

    SCHED = "sched"  # on its way to the queueing discipline (__dev_queue_xmit)
    SND = "snd"  # in the driver, before the NIC has it (skb_tx_timestamp); CLOCK_REALTIME
    SND_HARDWARE = "snd_hardware"  # on the wire, by the NIC's clock
    ACK = "ack"  # acknowledged by the peer, with all before it (TCP)
    COMPLETION = "completion"  # the driver has it back from the NIC


# Stages by the flag that asks for them, in the order of a send's life
STAGES: Final = {
    Sof.TX_SCHED: Stage.SCHED,
    Sof.TX_SOFTWARE: Stage.SND,
    Sof.TX_HARDWARE: Stage.SND_HARDWARE,
    Sof.TX_COMPLETION: Stage.COMPLETION,
    Sof.TX_ACK: Stage.ACK,
}


def sof_names(flags: Sof) -> str:
    """Return the kernel's names of flags with commas; a bit that is newer than this program is ``bit N``."""
    named = [f"SOF_TIMESTAMPING_{flag.name}" for flag in Sof if flag in flags]
    newer = [f"bit {bit}" for bit in range(len(Sof), flags.bit_length()) if flags >> bit & 1]
    return ", ".join(named + newer)
