# SPDX-License-Identifier: Apache-2.0
"""Data that leaves a TCP socket without recv: mapped into the reader (TCP_ZEROCOPY_RECEIVE), or spliced in pieces."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import socket
import tempfile
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.lab.measure import TCP_DATA_HOPS, NetworkPath, assert_each, histogram, run, tcp_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

TCP_ZEROCOPY_RECEIVE = 35
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
AREA = 16 * mmap.PAGESIZE


class _Zerocopy(ctypes.Structure):
    """Include/uapi/linux/tcp.h: struct tcp_zerocopy_receive."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("length", ctypes.c_uint32),
        ("recv_skip_hint", ctypes.c_uint32),
        ("inq", ctypes.c_uint32),
        ("err", ctypes.c_int32),
        ("copybuf_address", ctypes.c_uint64),
        ("copybuf_len", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class Mapped:
    """Reads a socket by mapping the pages of its packets; what is no whole page is copied."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # Python's own object would keep the mapping for as long as an array looks at it: until the test ends.
        self._area = np.frombuffer(mmap.mmap(sock.fileno(), AREA, mmap.MAP_SHARED, mmap.PROT_READ), np.uint8)
        self._rest = ctypes.create_string_buffer(mmap.PAGESIZE)
        self.pages = self.copied_bytes = 0

    def read(self) -> bytes:
        """Wait for data, and return what the kernel says it handed over."""
        assert self._sock.recv(1, socket.MSG_PEEK)
        call = _Zerocopy(
            address=self._area.ctypes.data,
            length=AREA,
            copybuf_address=ctypes.addressof(self._rest),
            copybuf_len=len(self._rest),
        )
        size = ctypes.c_uint32(ctypes.sizeof(call))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.getsockopt(
            self._sock.fileno(), socket.IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, ctypes.byref(call), ctypes.byref(size)
        ):
            code = ctypes.get_errno()
            if code == errno.EINVAL:
                pytest.skip("this kernel's TCP_ZEROCOPY_RECEIVE does not copy what is no whole page (before 5.11)")
            raise OSError(code, os.strerror(code))
        self.pages += call.length // mmap.PAGESIZE
        self.copied_bytes += call.copybuf_len
        return self._area[: call.length].tobytes() + self._rest.raw[: call.copybuf_len]


def pages_to_send(count: int) -> tuple[mmap.mmap, bytes]:
    """Return whole pages that the kernel can send without a copy, and what is in them."""
    content = os.urandom(count * mmap.PAGESIZE)
    memory = mmap.mmap(-1, len(content))
    memory.write(content)
    return memory, content


@contextlib.contextmanager
def zerocopy_pair(path: NetworkPath) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a sender that may send pages without a copy, a message in one packet, and the receiver."""
    if path.ifname != "lo":
        for namespace, ifname in ((path.sender, "client0"), (path.receiver, path.ifname)):
            namespace.run(["ip", "link", "set", ifname, "mtu", "60000"], check=True)
    with tcp_pair(path) as (sender, receiver):
        sender.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        yield sender, receiver


def test_pages_that_are_mapped_into_the_reader_count(lab: Lab, path: NetworkPath) -> None:
    memory, content = pages_to_send(4)
    with zerocopy_pair(path) as (sender, receiver), run(lab) as rx:
        reader = Mapped(receiver)
        for _ in range(23):
            assert sender.send(memory, MSG_ZEROCOPY) == len(content)
            assert reader.read() == content
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)
    assert (reader.pages, reader.copied_bytes) == (4 * 23, 0)


def test_a_packet_that_the_kernel_copies_on_its_way_keeps_its_own_time(lab: Lab, path: NetworkPath) -> None:
    memory, content = pages_to_send(4)
    with zerocopy_pair(path) as (sender, receiver), run(lab) as rx:
        took_ns = 0
        for _ in range(23):
            # An older packet's stamp would be older than this packet.
            time.sleep(0.005)
            took_ns -= time.monotonic_ns()
            assert sender.send(memory, MSG_ZEROCOPY) == len(content)
            assert receiver.recv(len(content), socket.MSG_WAITALL) == content
            took_ns += time.monotonic_ns()
        snapshot = rx.interval()
    assert_each(snapshot, TCP_DATA_HOPS, 23)
    assert 0 < histogram(snapshot, "rx.tcp_total").sum_ns < took_ns


def test_what_zero_copy_receive_copies_counts(lab: Lab, either: NetworkPath) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab) as rx:
        reader = Mapped(receiver)
        for _ in range(23):
            sender.send(b"m" * 100)
            assert reader.read() == b"m" * 100
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)
    assert (reader.pages, reader.copied_bytes) == (0, 2300)


def test_pages_and_the_rest_of_a_message_count_once(lab: Lab, either: NetworkPath) -> None:
    memory, content = pages_to_send(2)
    message = content[:-96]
    with zerocopy_pair(either) as (sender, receiver), run(lab) as rx:
        reader = Mapped(receiver)
        for _ in range(23):
            assert sender.send(memoryview(memory)[:-96], MSG_ZEROCOPY) == len(message)
            had = reader.read()
            while len(had) < len(message):
                had += reader.read()
            assert had == message
        assert_each(rx.interval(), TCP_DATA_HOPS, 23)
    assert (reader.pages, reader.copied_bytes) == (23, 23 * (mmap.PAGESIZE - 96))


def test_messages_that_are_spliced_to_a_file_in_pieces_count_once(lab: Lab, either: NetworkPath) -> None:
    with (
        tempfile.TemporaryFile() as file,
        tcp_pair(either) as (sender, receiver),
        os.fdopen((pipe := os.pipe())[0], "rb") as pipe_out,
        os.fdopen(pipe[1], "wb") as pipe_in,
        run(lab) as rx,
    ):
        sent = b"".join(number.to_bytes(1, "little") * 100 for number in range(23))
        for start in range(0, len(sent), 100):
            sender.send(sent[start : start + 100])
            # In pieces that end in the middle of a message, at its end, and after it.
            for len_bytes in (30, 70):
                assert os.splice(receiver.fileno(), pipe_in.fileno(), len_bytes) == len_bytes
                assert os.splice(pipe_out.fileno(), file.fileno(), len_bytes) == len_bytes
        for _ in range(7):
            sender.send(b"together!!")
        left = 70
        while left:
            moved = os.splice(receiver.fileno(), pipe_in.fileno(), left)
            assert os.splice(pipe_out.fileno(), file.fileno(), moved) == moved
            left -= moved
        snapshot = rx.interval()
        file.seek(0)
        assert file.read() == sent + b"together!!" * 7
    assert_each(snapshot, TCP_DATA_HOPS, 30)


def test_messages_that_sendfile_takes_to_a_pipe_count_once(lab: Lab, veth: NetworkPath) -> None:
    pipe_out, pipe_in = os.pipe()
    try:
        with tcp_pair(veth) as (sender, receiver), run(lab) as rx:
            for _ in range(23):
                sender.send(b"m" * 100)
                try:
                    assert os.sendfile(pipe_in, receiver.fileno(), None, 100) == 100
                except OSError as error:
                    pytest.skip(f"this kernel's sendfile reads no socket: {error.strerror}")
                assert os.read(pipe_out, 200) == b"m" * 100
            assert_each(rx.interval(), TCP_DATA_HOPS, 23)
    finally:
        os.close(pipe_out)
        os.close(pipe_in)
