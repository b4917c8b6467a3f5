# SPDX-License-Identifier: Apache-2.0
"""Socket calls of io_uring: in its own system call, in its workers, by its polling thread; each counted once."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.probes.catalogue import POINTS
from hopscope.probes.grants import GRANTED
from hopscope.probes.resolve import Resolver
from hopscope.verbs.cpu import uring as cpu_uring
from tests.lab.measure import in_thread, tcp_pair, udp_pair, way
from tests.lab.uring import NR_ENTER, RECV, SEND, SETUP_SQPOLL, Uring
from tests.verbs.cpu.measure import assert_sane, calls, of_process, run
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Lab
    from hopscope.model.cpu import CpuSnapshot
    from tests.lab.measure import NetworkPath

    Pair = Callable[[NetworkPath], contextlib.AbstractContextManager[tuple[socket.socket, socket.socket]]]

pytestmark = pytest.mark.root

COUNT = 23
SIZE = 100
NOTHING = (0, 0)
EXACT = (COUNT, COUNT * SIZE)
PARTS = ("send", "receive", "io_uring")


@pytest.fixture
def ring() -> Iterator[Uring]:
    try:
        made = Uring()
    except OSError as error:
        pytest.skip(f"io_uring cannot be had: {error}")
    with made:
        yield made


def send_all(ring: Uring, sender: socket.socket, *, by_worker: bool = False) -> None:
    for _ in range(COUNT):
        ring.submit(SEND, sender, SIZE, by_worker=by_worker)
        assert ring.result() == SIZE


def receive_all(ring: Uring, receiver: socket.socket, *, by_worker: bool = False) -> None:
    for _ in range(COUNT):
        ring.submit(RECV, receiver, SIZE, by_worker=by_worker)
        assert ring.result() == SIZE


def assert_counted(snapshot: CpuSnapshot, *expected: tuple[int, int]) -> None:
    parts = of_process(snapshot)
    assert calls(parts, *PARTS) == list(expected)
    assert {name for name in PARTS if parts[name].ns} == {
        name for name, (runs, _) in zip(PARTS, expected, strict=True) if runs
    }
    assert_sane(snapshot)


@pytest.mark.parametrize("pair", [udp_pair, tcp_pair], ids=["udp", "tcp"])
@pytest.mark.parametrize("name", ["veth-4", "lo-6"])
def test_its_own_system_call(
    lab: Lab,
    ring: Uring,
    name: str,
    pair: Pair,
) -> None:
    with pair(way(lab, name)) as (sender, receiver), run() as cpu:
        send_all(ring, sender)
        assert_counted(cpu.interval(), EXACT, NOTHING, NOTHING)
        receive_all(ring, receiver)
        assert_counted(cpu.interval(), NOTHING, EXACT, NOTHING)
        assert cpu.total().notes == []


def test_its_workers(ring: Uring, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), run() as cpu:
        send_all(ring, sender, by_worker=True)
        assert_counted(cpu.interval(), NOTHING, NOTHING, EXACT)
        receive_all(ring, receiver, by_worker=True)
        assert_counted(cpu.interval(), NOTHING, NOTHING, EXACT)
        assert cpu.total().notes == []


def test_a_receive_that_waits_is_tried_again(ring: Uring, veth: NetworkPath) -> None:
    waiting = Path(f"/proc/self/task/{threading.get_native_id()}/syscall").resolve()

    def send_when_it_waits() -> None:
        try:
            eventually(lambda: waiting.read_text().startswith(f"{NR_ENTER} "))
        finally:
            sender.send(bytes(SIZE))

    with udp_pair(veth) as (sender, receiver), run() as cpu:
        for _ in range(COUNT):
            ring.submit(RECV, receiver, SIZE)
            with in_thread(send_when_it_waits):
                assert ring.result() == SIZE
        # First when there is nothing to receive, then in the system call that waits.
        assert_counted(cpu.interval(), EXACT, (2 * COUNT, COUNT * SIZE), NOTHING)
        assert cpu.total().notes == []


def test_a_call_on_the_way_to_user_space_is_said_to_be_missing(ring: Uring, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), run() as cpu:
        for _ in range(COUNT):
            ring.submit(RECV, receiver, SIZE)
            sender.send(bytes(SIZE))  # the receive is repeated when this call has ended
            assert ring.result() == SIZE
        assert_counted(cpu.interval(), EXACT, (COUNT, 0), NOTHING)
        (note,) = cpu.total().notes
    unseen = int(note.split()[0])
    assert unseen >= COUNT, note


@pytest.mark.usefixtures("ring")  # then it is in use already
def test_its_polling_thread(veth: NetworkPath) -> None:
    with contextlib.ExitStack() as stack:
        cpu = stack.enter_context(run())
        ring = stack.enter_context(Uring(SETUP_SQPOLL))
        sender, receiver = stack.enter_context(udp_pair(veth))
        send_all(ring, sender)
        assert_counted(cpu.interval(), NOTHING, NOTHING, EXACT)
        receive_all(ring, receiver)
        assert_counted(cpu.interval(), NOTHING, NOTHING, EXACT)
        assert cpu.total().notes == []


@pytest.mark.parametrize("by_worker", [False, True])
def test_it_is_watched_once_it_is_in_use_and_what_came_before_is_said_to_be_missing(
    ring: Uring, veth: NetworkPath, monkeypatch: pytest.MonkeyPatch, *, by_worker: bool
) -> None:
    monkeypatch.setattr(cpu_uring, "uses_uring", lambda _: False)
    with udp_pair(veth) as (sender, _), run() as cpu:
        if cpu_uring.HOOKS not in {row.point for row in cpu.plan()}:
            pytest.skip("socket calls are found by their functions, io_uring's like all others")
        ring.submit(SEND, sender, SIZE, by_worker=by_worker)
        assert ring.result() == SIZE
        assert_counted(cpu.interval(), NOTHING, NOTHING, NOTHING)
        (before,) = cpu.total().notes
        send_all(ring, sender, by_worker=by_worker)
        assert_counted(cpu.interval(), *((NOTHING, NOTHING, EXACT) if by_worker else (EXACT, NOTHING, NOTHING)))
        assert cpu.total().notes == [before]
    assert int(before.split()[0]) >= 1
    assert "io_uring" in before


def test_asked_for_by_name_it_is_watched_from_the_start(
    ring: Uring, veth: NetworkPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_uring, "uses_uring", lambda _: False)
    (wanted,) = POINTS[cpu_uring.HOOKS].ways
    if Resolver().judge(wanted) != GRANTED:
        pytest.skip("this kernel does not tell of the ends of socket calls")
    calls = next(each.name for each in POINTS["cpu.call"].ways if each.kind == "tp_btf")
    with udp_pair(veth) as (sender, _), run(ways={cpu_uring.HOOKS: wanted.name, "cpu.call": calls}) as cpu:
        send_all(ring, sender)
        assert_counted(cpu.interval(), EXACT, NOTHING, NOTHING)
        assert cpu.total().notes == []


def test_unix_sockets_are_not_counted(ring: Uring) -> None:
    one, other = socket.socketpair()
    with one, other, run() as cpu:
        send_all(ring, one)
        send_all(ring, one, by_worker=True)
        receive_all(ring, other)
        receive_all(ring, other, by_worker=True)
        assert_counted(cpu.interval(), NOTHING, NOTHING, NOTHING)


def flood(ring: Uring, sender: socket.socket, receiver: socket.socket, *, by_worker: bool) -> None:
    end_s, rounds = time.monotonic() + 0.5, 0
    while time.monotonic() < end_s or rounds < 1000:
        rounds += 1
        for opcode, sock in ((SEND, sender), (RECV, receiver)):
            ring.submit(opcode, sock, SIZE, by_worker=by_worker)
            assert ring.result() == SIZE


@pytest.mark.parametrize(("by_worker", "expected"), [(False, {"send", "receive"}), (True, {"io_uring"})])
def test_stacks_are_in_the_part_that_is_charged(
    ring: Uring, veth: NetworkPath, *, by_worker: bool, expected: set[str]
) -> None:
    with udp_pair(veth) as flow, run(hz=5000) as cpu:
        flood(ring, *flow, by_worker=by_worker)
        snapshot = cpu.interval()
    parts = of_process(snapshot)
    assert {name for name in PARTS if parts[name].ns} == expected
    seen = {stack.part for stack in snapshot.stacks if stack.group.endswith(f"({os.getpid()})")}
    assert seen
    assert seen <= expected
