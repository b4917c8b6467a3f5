# SPDX-License-Identifier: Apache-2.0
"""Socket calls are counted exactly, each with its bytes, and nothing else is."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.lab._libc import libc
from tests.lab.measure import tcp_pair, udp_pair, way
from tests.verbs.cpu.measure import batch, calls, of_process, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hopscope.verbs.cpu.collector import CpuCollector

pytestmark = pytest.mark.root

COUNT = 23
SIZE = 100
BATCH = 5
PAYLOAD = bytes(SIZE)
NOTHING = (0, 0)
EXACT = (COUNT, COUNT * SIZE)
FLOWS = ("udp-4", "udp-6", "tcp-4", "tcp-6")


@dataclass(frozen=True)
class Setting:
    """A collector that runs, and the ends of a flow of each kind."""

    cpu: CpuCollector
    lab: Lab
    flows: dict[str, tuple[socket.socket, socket.socket]]

    def counted(self, act: Callable[[], object], times: int = COUNT) -> list[tuple[int, int]]:
        """Return runs and bytes of `send` and of `receive` that an act takes, done so many times."""
        self.cpu.interval()
        for _ in range(times):
            act()
        return calls(of_process(self.cpu.interval()), "send", "receive")


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab())
        veth = {"4": way(lab, "veth-4"), "6": way(lab, "veth-6")}
        pairs = {"udp": udp_pair, "tcp": tcp_pair}
        flows = {name: stack.enter_context(pairs[name[:3]](veth[name[-1]])) for name in FLOWS}
        yield Setting(stack.enter_context(run()), lab, flows)


SENDS: dict[str, Callable[[socket.socket], object]] = {
    "send": lambda sock: sock.send(PAYLOAD),
    "sendto": lambda sock: sock.sendto(PAYLOAD, sock.getpeername()),
    "sendmsg": lambda sock: sock.sendmsg([PAYLOAD[:1], PAYLOAD[1:]]),
    "write": lambda sock: os.write(sock.fileno(), PAYLOAD),
    "writev": lambda sock: os.writev(sock.fileno(), [PAYLOAD[:1], PAYLOAD[1:]]),
    "pwritev2": lambda sock: os.pwritev(sock.fileno(), [PAYLOAD], -1),
}
RECEIVES: dict[str, Callable[[socket.socket], object]] = {
    "recv": lambda sock: sock.recv(SIZE),
    "recvfrom": lambda sock: sock.recvfrom(SIZE),
    "recvmsg": lambda sock: sock.recvmsg(SIZE),
    "read": lambda sock: os.read(sock.fileno(), SIZE),
    "readv": lambda sock: os.readv(sock.fileno(), [bytearray(1), bytearray(SIZE - 1)]),
    "preadv2": lambda sock: os.preadv(sock.fileno(), [bytearray(SIZE)], -1),
}


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("call", SENDS)
def test_each_call_that_sends_is_a_run_with_its_bytes(setting: Setting, call: str, flow: str) -> None:
    sender, receiver = setting.flows[flow]
    assert setting.counted(lambda: SENDS[call](sender)) == [EXACT, NOTHING]
    for _ in range(COUNT):
        receiver.recv(SIZE, socket.MSG_WAITALL)


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("call", RECEIVES)
def test_each_call_that_receives_is_a_run_with_its_bytes(setting: Setting, call: str, flow: str) -> None:
    sender, receiver = setting.flows[flow]
    for _ in range(COUNT):
        sender.send(PAYLOAD)
    assert setting.counted(lambda: RECEIVES[call](receiver)) == [NOTHING, EXACT]


@pytest.mark.parametrize("flow", ["udp-4", "udp-6"])
def test_a_call_for_many_messages_is_one_run_with_all_their_bytes(setting: Setting, flow: str) -> None:
    sender, receiver = setting.flows[flow]
    sent, received = batch(SIZE, BATCH), batch(2 * SIZE, BATCH)
    whole = [(COUNT, COUNT * BATCH * SIZE)]
    assert setting.counted(lambda: libc.sendmmsg(sender.fileno(), sent, BATCH, 0)) == [*whole, NOTHING]
    assert [header.len for header in sent] == [SIZE] * BATCH
    assert setting.counted(lambda: libc.recvmmsg(receiver.fileno(), received, BATCH, 0, None)) == [NOTHING, *whole]
    assert [header.len for header in received] == [SIZE] * BATCH


def test_a_call_for_very_many_messages_is_one_run_with_all_their_bytes(setting: Setting) -> None:
    sender, receiver = setting.flows["udp-4"]
    many = 1030  # more than sendmmsg takes
    for _ in range(many):
        sender.send(b"x")
    received = batch(2, many)
    counted = setting.counted(lambda: libc.recvmmsg(receiver.fileno(), received, many, 0, None), times=1)
    assert counted == [NOTHING, (1, many)]


def test_sendfile(setting: Setting, tmp_path: Path) -> None:
    sender, receiver = setting.flows["tcp-4"]
    file = tmp_path / "content"
    file.write_bytes(PAYLOAD)
    with file.open("rb") as source:
        assert setting.counted(lambda: os.sendfile(sender.fileno(), source.fileno(), 0, SIZE)) == [EXACT, NOTHING]
    assert setting.counted(lambda: receiver.recv(SIZE, socket.MSG_WAITALL)) == [NOTHING, EXACT]


def test_splice_in_both_directions(setting: Setting) -> None:
    sender, receiver = setting.flows["tcp-6"]
    out_end, in_end = os.pipe()
    try:

        def send() -> None:
            os.write(in_end, PAYLOAD)
            assert os.splice(out_end, sender.fileno(), SIZE) == SIZE

        def receive() -> None:
            assert os.splice(receiver.fileno(), in_end, SIZE) == SIZE
            os.read(out_end, SIZE)

        assert setting.counted(send) == [EXACT, NOTHING]
        assert setting.counted(receive) == [NOTHING, EXACT]
    finally:
        os.close(out_end)
        os.close(in_end)


def test_a_look_counts_as_a_call(setting: Setting) -> None:
    sender, receiver = setting.flows["udp-4"]
    sender.send(PAYLOAD)
    assert setting.counted(lambda: receiver.recv(SIZE, socket.MSG_PEEK)) == [NOTHING, EXACT]
    receiver.recv(SIZE)


@pytest.mark.parametrize("flow", FLOWS)
def test_a_call_that_fails_is_a_run_without_bytes(setting: Setting, flow: str) -> None:
    _, receiver = setting.flows[flow]

    def receive() -> None:
        with pytest.raises(BlockingIOError):
            receiver.recv(SIZE, socket.MSG_DONTWAIT)

    assert setting.counted(receive) == [NOTHING, (COUNT, 0)]


def test_a_datagram_that_is_too_long_is_a_run_without_bytes(setting: Setting) -> None:
    sender, _ = setting.flows["udp-4"]

    def send() -> None:
        with pytest.raises(OSError, match="too long"):
            sender.send(bytes(70_000))

    assert setting.counted(send) == [(COUNT, 0), NOTHING]


def test_packet_sockets(setting: Setting) -> None:
    def opened(ifname: str) -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.bind((ifname, 0x88B5))  # for local experiments (IEEE 802)
        return made

    frame = bytes.fromhex("ffffffffffff02000077000188b5").ljust(SIZE, b"\0")
    client, server = setting.lab.client, setting.lab.server
    with client.call(opened, "client0") as sender, server.call(opened, "server0") as receiver:
        assert setting.counted(lambda: sender.send(frame)) == [EXACT, NOTHING]
        assert setting.counted(lambda: receiver.recv(SIZE)) == [NOTHING, EXACT]


def test_a_descriptor_in_a_grown_table(setting: Setting) -> None:
    sender, receiver = setting.flows["udp-4"]
    high = fcntl.fcntl(sender.fileno(), fcntl.F_DUPFD_CLOEXEC, 900)
    try:
        assert setting.counted(lambda: os.write(high, PAYLOAD)) == [EXACT, NOTHING]
    finally:
        os.close(high)
    for _ in range(COUNT):
        receiver.recv(SIZE)


def test_each_thread_counts_to_its_process(setting: Setting) -> None:
    sender, receiver = setting.flows["udp-6"]

    def both() -> None:
        sender.send(PAYLOAD)
        receiver.recv(SIZE)

    def in_thread() -> None:
        thread = threading.Thread(target=both)
        thread.start()
        thread.join()

    assert setting.counted(in_thread) == [EXACT, EXACT]


def test_what_is_no_network_socket_is_not_counted(setting: Setting, tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    out_end, in_end = os.pipe()
    pair = socket.socketpair()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix,
        contextlib.closing(pair[0]) as stream,
        contextlib.closing(pair[1]),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink,
    ):
        unix.bind(b"\0hopscope-test-%d" % os.getpid())
        unix.connect(unix.getsockname())
        netlink.bind((0, 0))

        def act() -> None:
            os.write(file, PAYLOAD)
            os.pread(file, SIZE, 0)
            os.read(file, SIZE)
            os.write(in_end, PAYLOAD)
            os.splice(out_end, file, SIZE)
            os.sendfile(in_end, file, 0, SIZE)
            os.read(out_end, SIZE)
            unix.send(PAYLOAD)
            unix.recv(SIZE)
            with pytest.raises(BlockingIOError):
                stream.recv(SIZE, socket.MSG_DONTWAIT)
            with pytest.raises(BlockingIOError):
                netlink.recv(SIZE, socket.MSG_DONTWAIT)
            for number in (-1, 1 << 20):
                with pytest.raises(OSError, match="Bad file"):
                    os.write(number, PAYLOAD)

        assert setting.counted(act) == [NOTHING, NOTHING]
    for number in (file, out_end, in_end):
        os.close(number)


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="system calls of 32 bits are numbered otherwise on x86 alone"
)
def test_a_system_call_of_32_bits_is_not_taken_for_another(setting: Setting) -> None:
    sender, _ = setting.flows["udp-4"]
    # mov $20, %eax; int $0x80; ret: getpid of 32 bits, whose number is that of writev of 64. The descriptor is where
    # writev has it.
    code = bytes.fromhex("b814000000cd80c3")
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(code)
        window = ctypes.c_char.from_buffer(page)
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(ctypes.addressof(window))
        assert call(sender.fileno()) == os.getpid()
        found = setting.counted(lambda: call(sender.fileno()))
        del window
    assert found == [NOTHING, NOTHING]
