# SPDX-License-Identifier: Apache-2.0
"""What the kernel lost is reported to each subscriber: all of it, once, before the next event."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING

import pytest

from hopscope.verbs.serve.publisher import Subscriber
from hopscope.verbs.serve.request import parse_request
from tests.live.replayed import Replayed
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = b'{"points": ["rx.core"], "format": "json"}'


@pytest.fixture
def losses() -> Iterator[Replayed]:
    with contextlib.closing(Replayed("losses")) as made:
        yield made


def test_losses_of_a_recording_are_those_of_its_events_as_they_come(losses: Replayed) -> None:
    ((recorded,),) = losses.trace.rows("SELECT sum(lost) FROM losses")
    assert losses.assembler.lost == recorded > 0


def test_each_loss_is_told_once(losses: Replayed) -> None:
    told = asyncio.run(_told(losses))
    assert sum(line.get("kernel_lost", 0) for line in told) == sum(range(len(losses.parts)))
    assert sum("point" in line for line in told) > 0


async def _told(losses: Replayed) -> list[dict[str, int]]:
    """Offer a subscriber all events, after the first ones so many lost ones each; return the lines that it gets."""
    ours, theirs = socket.socketpair()
    (reader, own), (_, writer) = [await asyncio.open_connection(sock=each) for each in (ours, theirs)]
    subscriber = Subscriber(parse_request(ASKED))
    subscriber.begin(losses.assembler, 0)
    for lost, events in enumerate(losses.parts):
        subscriber.offer(events, lost)
    writing = asyncio.create_task(subscriber.write_to(writer))
    lines: list[dict[str, int]] = []
    async with asyncio.timeout(TIMEOUT_S):
        while sum("lost" in line for line in lines) < len(losses.parts) - 1:
            lines.append(json.loads(await reader.readline()))
    writing.cancel()
    for each in (own, writer):
        each.close()
        await each.wait_closed()
    return lines
