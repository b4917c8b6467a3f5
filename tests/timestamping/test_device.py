# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.timestamping import device
from hopscope.timestamping.device import StampConfig


def test_stamping_is_told_and_set_in_the_kernels_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ioctl(interface: str, request: int, argument: bytes) -> bytes:
        asked.append((interface, request, argument))
        return bytes.fromhex("00000000 01000000 0c000000")

    monkeypatch.setattr(device, "device_ioctl", ioctl)
    config = device.stamp_config("eth9")
    assert config == StampConfig(flags=0, tx_type=1, rx_filter=12)
    assert device.set_stamp_config("eth9", config._replace(rx_filter=1)) == config
    assert asked == [
        ("eth9", device.SIOCGHWTSTAMP, bytes(12)),
        ("eth9", device.SIOCSHWTSTAMP, bytes.fromhex("00000000 01000000 01000000")),
    ]


def test_an_interface_without_hardware_does_not_tell_what_it_stamps() -> None:
    with pytest.raises(OSError, match="not supported"):
        device.stamp_config("lo")
