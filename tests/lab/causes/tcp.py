# SPDX-License-Identifier: Apache-2.0
"""Messages that TCP keeps in the sending socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.lab.causes.actors.locker import MESSAGE_BYTES
from tests.lab.causes.case import Plan, by_clock, by_tcp, ends
from tests.lab.causes.reader import READER
from tests.lab.causes.world import route, settings, shaped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.lab.causes.actors.common import Options
    from tests.lab.causes.case import Ran

SENDER: Final = "hs-sender"
# So that no send call waits for room.
_ROOM_BYTES: Final = 8 << 20
_ROOM: Final = {"sndbuf": _ROOM_BYTES}
_SHORTEST_RTO_MS: Final = 200


def window_far(chance: Random) -> Plan:
    """The receive buffer is smaller than what a long path holds."""
    wire = {"delay": [chance.uniform(0.3, 1), chance.uniform(3, 6)]}
    pattern = [{"size": chance.randint(40, 90) << 10, "gap": chance.uniform(20, 60)}]
    more = ends(pattern, 5, reader={"rcvbuf": 6 << 10}, sender=_ROOM)
    return Plan({"receiver-window": 1}, "too small", wire=wire, proof=by_tcp, **more)


def window_of_a_slow_reader(chance: Random) -> Plan:
    """The receive buffer is full, as the reader is slow."""
    size, ms, rcvbuf = 4096, chance.uniform(2, 4), 8 << 10
    more = ends([{"size": size}], 100, reader={"rcvbuf": rcvbuf, "steps": [("sleep", ms)]}, sender=_ROOM)

    def proof(ran: Ran) -> dict[str, float]:
        # What is in the receive buffer waits for the reader alone.
        there = min(1, len(ran.messages) * rcvbuf / size * ms * 1e6 / ran.total_ns)
        limited = by_tcp(ran)["receiver-window"]
        return {"receiver-window": limited * (1 - there), "reader-asleep": there}

    return Plan({"receiver-window": 0.95}, READER, proof=proof, **more)


def slow_start(chance: Random) -> Plan:
    """The congestion window is small again after each pause."""
    wire = {"delay": [chance.uniform(0.5, 2), chance.uniform(4, 8)]}
    segments = chance.choice((2, 3, 4))
    pattern = [{"size": chance.randint(30, 90) << 10, "gap": chance.uniform(200, 250)}]
    prepare = [route("initcwnd", f"{segments}", "rto_min", "60ms")]
    sender = _ROOM | {"congestion": chance.choice(("reno", "cubic"))}
    more = ends(pattern, 5, reader={"rcvbuf": _ROOM_BYTES}, sender=sender)

    def proof(ran: Ran) -> dict[str, float]:
        # All that is neither the path nor another limit.
        others = by_tcp(ran)
        network = wire["delay"][0] * 1e6 * len(ran.messages) / ran.total_ns
        return others | {"congestion-window": 1 - network - sum(others.values()), "network": network}

    return Plan({"congestion-window": 1}, "slow start", wire=wire, prepare=prepare, proof=proof, **more)


def paced(chance: Random) -> Plan:
    """The socket may send at so many bytes a second only (SO_MAX_PACING_RATE), by TCP's own timer."""
    return Plan({"pacing": 1}, "SO_MAX_PACING_RATE", **pacing(chance, chance.uniform(8, 30)))


def pacing(chance: Random, ms: float, **reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of the reader
    """Return traffic whose messages take so many ms at their socket's rate."""
    size = chance.randint(20, 60) << 10
    rate = round(size / ms * 1e3)
    more = ends([{"size": size, "gap": ms * 1.6}], round(600 / ms), reader=reader, sender=_ROOM | {"pacing": rate})

    def proof(ran: Ran) -> dict[str, float]:
        return by_clock(ran) | {"pacing": min(1, len(ran.messages) * ms * 1e6 / ran.total_ns)}

    # Where round trips are as short as here, TCP would make a few large segments of it.
    return more | {"prepare": [settings(tcp_tso_rtt_log=0)], "proof": proof}


def nagle(chance: Random) -> Plan:
    """A message follows another one that is not yet acknowledged, and that the receiver acknowledges late."""
    return Plan({"nagle": 1}, SENDER, **nagling(chance))


def nagling(chance: Random, **reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of the reader
    """Return traffic in which every second message is kept by Nagle's algorithm, for 40 ms at most."""
    pattern: list[Options] = [
        {"size": chance.randint(16, 200)},
        {"size": chance.randint(16, 900), "gap": chance.uniform(80, 100)},
    ]
    more = ends(pattern, 12, reader={"delack": True, **reader}, sender={"nagle": True})
    return more | {"proof": _second_waits}


def _second_waits(ran: Ran) -> dict[str, float]:
    """Tell what Nagle's algorithm kept: until the other end acknowledged, as it does after 40 ms."""
    others = by_clock(ran)
    kept = sum(min(40_000_000, read - sent) for sent, read, _ in ran.messages if read - sent > 30_000_000)
    return others | {"nagle": kept / ran.total_ns}


def corked(chance: Random) -> Plan:
    """The application asks TCP to wait for more, and says late that there is none (TCP_CORK)."""
    return Plan({"cork": 1}, SENDER, **corking(chance, chance.uniform(5, 50)))


def corking(chance: Random, ms: float, **reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of the reader
    """Return traffic whose messages are corked for so many ms."""
    pattern = [{"size": chance.randint(16, 1000), "cork": ms, "gap": chance.uniform(1, 5) + ms / 2}]
    return ends(pattern, max(6, round(500 / ms)), reader=reader)


def more_to_come(chance: Random) -> Plan:
    """The application says that more is to come (MSG_MORE), and sends that late."""
    ms = chance.uniform(5, 50)
    first: Options = {"size": chance.randint(16, 500), "more": True, "gap": ms, "meanwhile": "cork"}
    pattern = [first, {"size": chance.randint(16, 500), "gap": chance.uniform(1, 5)}]
    return Plan({"cork": 1}, SENDER, **ends(pattern, max(12, 2 * round(500 / ms))))


def small_queue(chance: Random) -> Plan:
    """The device is slow, and TCP gives it no more than a few segments at a time."""
    rate_bit_s = chance.randint(4, 10) * 10**6
    size = chance.randint(60, 150) << 10
    ms = size * 8 / rate_bit_s * 1e3
    sender = _ROOM | {"congestion": chance.choice(("reno", "cubic"))}
    more = ends(
        [{"size": size, "gap": ms * 1.3}], max(3, round(700 / ms)), reader={"rcvbuf": _ROOM_BYTES}, sender=sender
    )
    prepare = [shaped(rate_bit_s, 3200), route("initcwnd", "500")]

    def proof(ran: Ran) -> Mapping[str, float]:
        return by_clock(ran) | {"small-queue": min(1, len(ran.messages) * ms * 1e6 / ran.total_ns)}

    return Plan({"small-queue": 0.85}, "TCP small queues", prepare=prepare, proof=proof, **more)


def send_buffer(chance: Random) -> Plan:
    """The send buffer holds less than the path does."""
    wire = {"delay": [chance.uniform(0.3, 1), chance.uniform(2, 4)]}
    pattern = [{"size": chance.randint(40, 80) << 10, "gap": chance.uniform(5, 20)}]
    # Who sends is in the call for as long as there is no room.
    more = ends(pattern, 6, reader={"rcvbuf": 4 << 20}, sender={"sndbuf": 4 << 10, "calls": "send-buffer"})
    return Plan({"send-buffer": 1}, SENDER, wire=wire, **more)


def send_lock(chance: Random) -> Plan:
    """One thread holds the lock of the socket for long, and others want to send on it."""
    waiters, ms = chance.randint(3, 6), chance.uniform(3, 15)
    count = (waiters + 1) * max(5, round(400 / (2 * ms)))
    options = {"waiters": waiters, "hold": ms, "gap": ms / 2, "count": count}
    reader = {"count": count, "sizes": [MESSAGE_BYTES]}
    # The one that holds it copies meanwhile.
    truth = {"send-lock": waiters / (waiters + 1), "send-copy": 1 / (waiters + 1)}

    def proof(ran: Ran) -> dict[str, float]:
        locked = by_clock(ran)["send-lock"]
        return {cause: share * locked for cause, share in truth.items()}

    return Plan(truth, "hs-locker", reader, options, role="locker", proof=proof)
