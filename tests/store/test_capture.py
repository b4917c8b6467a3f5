# SPDX-License-Identifier: Apache-2.0
"""Captured bytes as a file that others read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from hopscope.errors import DiskFullError
from hopscope.store.capture import Captured, CaptureWriter

# A frame of Ethernet with IPv4 and UDP, 10.0.0.1:23 > 10.0.0.2:1009, length 5.
FRAME = bytes.fromhex(
    "0000000000020000000000010800" + "4500002100010000401100000a0000010a000002" + "001703f1000d0000" + "68656c6c6f"
)
WALL_NS = 1_767_323_045_000_000_000  # 2026-01-02 03:04:05 UTC


def captured(lengths: list[int], *, ifindex: int = 2, snap: int = 64) -> Captured:
    """Return packets of which so many bytes each were captured, a millisecond apart, received and sent in turn."""
    count = len(lengths)
    frames = np.full((count, snap), 0xAA, np.uint8)
    for row, length in zip(frames, lengths, strict=True):
        row[:length] = np.frombuffer(FRAME, np.uint8)[:length]
    return Captured(
        time_ns=np.arange(count, dtype=np.int64) * 1_000_000 + 7,
        ifindex=np.full(count, ifindex),
        netns=np.full(count, 4711),
        len_bytes=np.full(count, len(FRAME)),
        captured_bytes=np.array(lengths, np.int64),
        sent=np.arange(count) % 2 == 1,
        frames=frames,
    )


def devices(name: str, kind: int, ifindex: int = 2) -> dict[str, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    return {
        "netns": np.array([4711], object),
        "ifindex": np.array([ifindex], object),
        "name": np.array([name], object),
        "type": np.array([kind], object),
    }


def read(path: Path, *options: str) -> list[str]:
    """Return what tcpdump says of it, a line a packet."""
    command = ["tcpdump", "-nn", "-r", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={"TZ": "UTC"}).stdout.splitlines()


def test_each_packet_is_read_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    with CaptureWriter(path.open("wb"), WALL_NS) as writer:
        writer.learn(devices("eth7", 1))
        writer.write(captured([len(FRAME)] * 1009))
    lines = read(path, "--nano")
    assert len(lines) == 1009
    assert lines[0] == "03:04:05.000000007 IP 10.0.0.1.23 > 10.0.0.2.1009: UDP, length 5"
    assert lines[1008].startswith("03:04:06.008000007 ")
    assert path.stat().st_size == writer.bytes_written


def test_only_captured_bytes_are_written(tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    with CaptureWriter(path.open("wb"), WALL_NS) as writer:
        writer.learn(devices("eth7", 1))
        writer.write(captured([*range(14, len(FRAME) + 1)]))
    assert b"\xaa\xaa" not in path.read_bytes()
    assert len(read(path)) == len(FRAME) - 13


def test_device_without_link_layer_has_ip_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    packets = captured([33])
    packets.frames[0, :33] = np.frombuffer(FRAME, np.uint8)[14:]
    with CaptureWriter(path.open("wb"), WALL_NS) as writer:
        writer.learn(devices("tun0", 65534))
        writer.write(packets)
    assert "10.0.0.1.23 > 10.0.0.2.1009" in read(path)[0]


def test_each_interface_has_its_name_once(tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    with CaptureWriter(path.open("wb"), WALL_NS) as writer:
        writer.learn(devices("eth7", 1))
        for _ in range(3):
            writer.write(captured([40]))
            writer.write(captured([40], ifindex=5))
    raw = path.read_bytes()
    assert raw.count(b"eth7@4711") == 1
    assert raw.count(b"device 5@4711") == 1
    assert len(read(path)) == 6


def test_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    with CaptureWriter(path.open("wb"), WALL_NS) as writer:
        writer.write(captured([40] * 23))
    path.write_bytes(path.read_bytes()[:-7])
    done = subprocess.run(["tcpdump", "-nn", "-r", path], capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 22


def test_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(DiskFullError, match="Free some space"):
        CaptureWriter(full, WALL_NS)
