# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

import pytest

from hopscope.errors import FormatError
from hopscope.timestamping.tcp_stats import TCP_NLA, decode


def attribute(kind: int, value: bytes) -> bytes:
    return (struct.pack("=HH", 4 + len(value), kind) + value).ljust(-(-(4 + len(value)) // 4) * 4, b"\0")


def test_values_of_every_size_are_decoded() -> None:
    text = attribute(1, b"\1" * 8) + attribute(0, b"") + attribute(14, b"\7") + attribute(23, b"\2\1")
    assert decode(text + attribute(8, b"\n\0\0\0")) == {
        "TCP_NLA_BUSY": 0x0101010101010101,
        "TCP_NLA_CA_STATE": 7,
        "TCP_NLA_TIMEOUT_REHASH": 0x102,
        "TCP_NLA_SND_CWND": 10,
    }


def test_attribute_that_is_newer_than_this_program_is_kept() -> None:
    number = len(TCP_NLA) + 1
    assert decode(attribute(number, b"\5\0\0\0")) == {f"TCP_NLA {number}": 5}


@pytest.mark.parametrize("text", [attribute(3, b"123"), attribute(3, b"12345678")[:8], b"\0\0\1\0" * 3])
def test_bytes_that_are_no_attributes_are_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match="has an attribute"):
        decode(text)
