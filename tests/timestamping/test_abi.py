# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from hopscope.timestamping import HwFilter, HwTx, Sof, _abi, device
from hopscope.timestamping.flags import TX_RECORD
from hopscope.timestamping.tcp_stats import TCP_NLA
from tests.headers import assert_values

NUMBERS = [
    name
    for name, value in vars(_abi).items()
    if isinstance(value, int) and name.startswith(("SO_", "SCM_", "IP_", "IPV6_", "PACKET_", "SIO"))
]


def test_flags_and_layouts_are_those_of_the_kernels_headers() -> None:
    values: dict[str, Any] = {f"SOF_TIMESTAMPING_{flag.name}": flag.value for flag in Sof}
    values |= {"SOF_TIMESTAMPING_TX_RECORD_MASK": TX_RECORD.value}
    values |= {f"HWTSTAMP_TX_{kind.name}": kind.value for kind in HwTx}
    values |= {f"HWTSTAMP_FILTER_{kind.name}": kind.value for kind in HwFilter}
    values |= {name: number for number, name in enumerate(TCP_NLA, start=1)}
    values |= {name: getattr(_abi, name) for name in NUMBERS}
    values |= {
        "SIOCSHWTSTAMP": device.SIOCSHWTSTAMP,
        "SIOCGHWTSTAMP": device.SIOCGHWTSTAMP,
        "IFNAMSIZ": device.IFNAMSIZ,
        "sizeof(struct ifreq)": device.IFREQ.size,
        "offsetof(struct ifreq, ifr_data)": 16,
        "sizeof(struct hwtstamp_config)": device.HWTSTAMP_CONFIG.size,
        "offsetof(struct hwtstamp_config, tx_type)": 4,
        "offsetof(struct hwtstamp_config, rx_filter)": 8,
        "sizeof(struct so_timestamping)": _abi.SO_TIMESTAMPING.size,
        "sizeof(struct scm_timestamping64)": _abi.SCM_TIMESTAMPING[_abi.SO_TIMESTAMPING_NEW].size,
        "sizeof(struct scm_ts_pktinfo)": _abi.SCM_TS_PKTINFO.size,
        "sizeof(struct sock_extended_err)": _abi.SOCK_EXTENDED_ERR.size,
        "offsetof(struct sock_extended_err, ee_data)": 12,
        "sizeof(struct in_pktinfo)": _abi.IN_PKTINFO.size,
        "sizeof(struct in6_pktinfo)": _abi.IN6_PKTINFO.size,
        "SK_MEMINFO_RMEM_ALLOC": 0,
        "SK_MEMINFO_RCVBUF": 1,
    }
    headers = ("asm/socket", "asm/ioctls", "linux/errqueue", "linux/if", "linux/if_packet", "linux/in", "linux/ipv6")
    more = ("linux/net_tstamp", "linux/sock_diag", "linux/sockios", "linux/tcp", "stddef")
    assert len(NUMBERS) >= 18
    assert_values(("sys/time", *headers, *more), values)


def test_headers_of_messages_are_those_of_the_c_library() -> None:
    values = {"SOL_PACKET": _abi.SOL_PACKET, "sizeof(struct cmsghdr)": _abi.CMSGHDR.size}
    for name in ("namelen", "iov", "control", "controllen", "flags"):
        values[f"offsetof(struct msghdr, msg_{name})"] = getattr(_abi._Msghdr, name).offset
    values["offsetof(struct mmsghdr, msg_len)"] = _abi._Mmsghdr.len.offset
    values |= {name: getattr(_abi, f"_{name}") for name in ("MSG_ERRQUEUE", "MSG_DONTWAIT")}
    assert_values(("sys/socket", "stddef"), values)
