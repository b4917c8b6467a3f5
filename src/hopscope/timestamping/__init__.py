# SPDX-License-Identifier: Apache-2.0
"""Time stamps of the kernel and the NIC for the sockets of one's own application (SO_TIMESTAMPING), without privilege.

`StampedSocket` tells of each send when it was handed over, left TCP, reached the driver and was acknowledged; `receive`
when what is read had arrived. `enable`, `send_control` and `ErrorQueue` are the same without the book-keeping,
`hopscope.timestamping.aio` is for asyncio, and `hardware_stamping` switches a NIC (CAP_NET_ADMIN).
"""

from __future__ import annotations

from hopscope.timestamping.errqueue import ErrorQueue, NetworkError, Stamp
from hopscope.timestamping.flags import HwFilter, HwTx, Sof, Stage
from hopscope.timestamping.hardware import HardwareConfig, hardware_config, hardware_stamping
from hopscope.timestamping.messages import Message, Missing
from hopscope.timestamping.option import enable, enabled, send_control, supported
from hopscope.timestamping.receive import Received, receive
from hopscope.timestamping.stamped import DEFAULT, Collected, Counts, StampedSocket

__all__ = [
    "DEFAULT",
    "Collected",
    "Counts",
    "ErrorQueue",
    "HardwareConfig",
    "HwFilter",
    "HwTx",
    "Message",
    "Missing",
    "NetworkError",
    "Received",
    "Sof",
    "Stage",
    "Stamp",
    "StampedSocket",
    "enable",
    "enabled",
    "hardware_config",
    "hardware_stamping",
    "receive",
    "send_control",
    "supported",
]
