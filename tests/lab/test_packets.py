# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.packets import Datagram, Segment, TcpFlag, build, checksum, parse

HOSTS = {4: ("10.78.0.2", "10.78.0.1"), 6: ("fd78::2", "fd78::1")}
words = st.integers(0, 0xFFFFFFFF)
ports = st.integers(1, 65_535)


def ones_complement_sum(data: bytes) -> int:
    # Another way than the code's: the sum of the words modulo 65,535 is the number itself modulo 65,535.
    return int.from_bytes(data + b"\0" * (len(data) % 2), "big") % 0xFFFF


def test_checksum_of_the_example_of_rfc_1071() -> None:
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2


@pytest.mark.parametrize("version", [4, 6])
@given(numbers=st.tuples(words, words), ends=st.tuples(ports, ports), payload=st.binary(max_size=1500))
def test_parse_returns_what_was_built(
    version: int, numbers: tuple[int, int], ends: tuple[int, int], payload: bytes
) -> None:
    here, there = HOSTS[version]
    flags = TcpFlag.ACK | TcpFlag.PSH
    segment = Segment((here, ends[0]), (there, ends[1]), *numbers, flags, 1234, payload)
    assert parse(build(segment)) == segment


@pytest.mark.parametrize("version", [4, 6])
@given(seq=words, port=ports, payload=st.binary(max_size=100), mss_bytes=st.none() | st.integers(500, 1500))
def test_checksums_add_up(version: int, seq: int, port: int, payload: bytes, mss_bytes: int | None) -> None:
    here, there = HOSTS[version]
    packet = build(Segment((here, 40_000), (there, port), seq, 0, TcpFlag.SYN, payload=payload, mss_bytes=mss_bytes))
    header, addresses = (packet[:20], packet[12:20]) if version == 4 else (packet[:40], packet[8:40])
    tcp = packet[len(header) :]
    pseudo = addresses + len(tcp).to_bytes(4, "big") + socket.IPPROTO_TCP.to_bytes(4, "big")
    assert ones_complement_sum(pseudo + tcp) == 0
    if version == 4:
        assert ones_complement_sum(header) == 0


@given(ends=st.tuples(ports, ports), payload=st.binary(max_size=1400), error=st.integers(0, 0xFFFE))
def test_the_checksum_of_a_datagram_is_as_wrong_as_it_shall_be(
    ends: tuple[int, int], payload: bytes, error: int
) -> None:
    packet = Datagram((HOSTS[4][0], ends[0]), (HOSTS[4][1], ends[1]), payload, checksum_error=error).build()
    assert ones_complement_sum(packet[:20]) == 0
    udp = packet[20:]
    pseudo = packet[12:20] + socket.IPPROTO_UDP.to_bytes(2, "big") + len(udp).to_bytes(2, "big")
    assert udp[6:8] != b"\0\0"
    assert ones_complement_sum(pseudo + udp) == error
    assert (int.from_bytes(packet[2:4], "big"), udp[8:]) == (len(packet), payload)


def test_parse_leaves_the_link_layer_s_padding_out() -> None:
    segment = Segment(("10.78.0.2", 1), ("10.78.0.1", 2), 3, 4, TcpFlag.ACK, payload=b"abc")
    parsed = parse(build(segment) + b"\0" * 6)
    assert parsed is not None
    assert parsed.payload == b"abc"


def test_parse_is_none_for_another_protocol() -> None:
    packet = bytearray(build(Segment(("10.78.0.2", 1), ("10.78.0.1", 2), 3, 4, TcpFlag.ACK)))
    packet[9] = socket.IPPROTO_UDP
    assert parse(bytes(packet)) is None
