# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket

import pytest

from hopscope.timestamping import Message, Missing, NetworkError, Sof, Stage, StampedSocket
from hopscope.timestamping.aio import AsyncStamps
from tests.timestamping.pairs import TIMEOUT_S, Path, count_calls, in_order, reset

N = 23


def test_requests_over_the_same_loop_are_followed(path: Path) -> None:
    async def talk(sender: socket.socket, receiver: socket.socket) -> tuple[list[Message], list[object]]:
        loop = asyncio.get_running_loop()
        found: list[object] = []

        async def collect() -> None:
            async for item in AsyncStamps(stamped):
                found.append(item)
                if len(found) == N:
                    return

        async def echo() -> None:
            for _ in range(N):
                await loop.sock_sendall(receiver, await loop.sock_recv(receiver, 100))

        with StampedSocket(sender) as stamped:
            others = asyncio.gather(collect(), echo())
            sent = []
            for _ in range(N):
                sent.append(stamped.send(b"request"))
                assert await loop.sock_recv(sender, 100) == b"request"
            await others
        return sent, found

    with path.tcp() as (sender, receiver):
        sender.settimeout(0)
        receiver.settimeout(0)
        sent, found = asyncio.run(asyncio.wait_for(talk(sender, receiver), TIMEOUT_S))
    assert found == sent
    assert all(in_order(message) for message in sent)


def test_waiting_is_idle_though_data_wait_to_be_read_and_an_error_is_pending(
    lo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait() -> int:
        looks = count_calls(monkeypatch, asyncio.get_running_loop()._selector, "select")
        assert await AsyncStamps(stamped).collect(0.3) == ([], [])
        return len(looks)

    with lo.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.settimeout(0)
        reset(sender, receiver)
        assert asyncio.run(wait()) < 10


def test_loop_does_not_spin_while_stamps_wait_and_nobody_does(lo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        stamps = AsyncStamps(stamped)
        stamped.send(b"x")
        await anext(stamps)
        message = stamped.send(b"x")
        looks = count_calls(monkeypatch, asyncio.get_running_loop()._selector, "select")
        await asyncio.sleep(0.3)
        assert len(looks) < 10
        assert await anext(stamps) is message

    with lo.udp() as (sender, _), StampedSocket(sender) as stamped:
        asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


def test_network_errors_come_between_the_messages(lo: Path) -> None:
    async def two() -> set[type]:
        stamps = AsyncStamps(stamped)
        return {type(await anext(stamps)) for _ in range(2)}

    with lo.udp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.setsockopt(*((socket.SOL_IP, 11) if lo.family == socket.AF_INET else (socket.IPPROTO_IPV6, 25)), 1)
        receiver.close()
        stamped.send(b"to nobody")
        assert asyncio.run(asyncio.wait_for(two(), TIMEOUT_S)) == {Message, NetworkError}


@pytest.mark.parametrize("comes", [True, False])
def test_finish_waits_and_gives_up(lo: Path, comes: bool) -> None:  # noqa: FBT001 - parameter
    with lo.udp() as (sender, _), StampedSocket(sender, Sof.TX_SOFTWARE if comes else Sof.TX_HARDWARE) as stamped:
        message = stamped.send(b"x")
        found = asyncio.run(AsyncStamps(stamped).finish(TIMEOUT_S if comes else 0.1))
    assert found == ([message], [])
    assert (message.missing, Stage.SND in message.time_ns) == ((None, True) if comes else (Missing.NO_STAMP, False))


def test_cancelled_wait_leaves_nothing_in_the_loop(lo: Path) -> None:
    async def cancel() -> None:
        stamps = AsyncStamps(stamped)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stamps.collect(), 0.05)
        assert not asyncio.get_running_loop().remove_reader(stamped.fileno())
        message = stamped.send(b"x")
        assert await anext(stamps) is message

    with lo.udp() as (sender, _), StampedSocket(sender) as stamped:
        asyncio.run(asyncio.wait_for(cancel(), TIMEOUT_S))
