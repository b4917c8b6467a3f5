# SPDX-License-Identifier: Apache-2.0
"""What Wireshark starts to capture: a subscription of its user to ``hopscope serve --socket``, written to its pipe.

There are two interfaces: packets with their hops, and events as frames.

Wireshark asks what there is several times before: the stub (:mod:`hopscope.verbs.wireshark.install`) answers that.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import select
import signal
import sys
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from hopscope.errors import HopscopeError
from hopscope.kernel.pcap import ETHERNET, compiled, library
from hopscope.live.recorder.tables import point_names
from hopscope.live.subscribing import SOCKET, subscribed
from hopscope.verbs.wireshark.event_blocks import EventBlocks
from hopscope.verbs.wireshark.packets import FIELDS, Packets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hopscope.kernel.pcap import Program
    from hopscope.live.subscribing import Subscribed

# Names of the interfaces.
PACKETS, EVENTS = "hopscope", "hopscope-events"
# Between looks whether somebody still reads, and for packets that are complete.
_LOOK_S: Final = 0.1
_READ_BYTES: Final = 1 << 18
_PACKET_BLOCK: Final = 6
_FRAME_AT: Final = 28


class _Frame(ctypes.Structure):
    """``struct pcap_pkthdr``."""

    _fields_ = (
        ("seconds", ctypes.c_long), ("microseconds", ctypes.c_long), ("captured", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
    )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Capture until Wireshark ends it; return the exit code.

    Parameters
    ----------
    argv
        As Wireshark gives them.
    """
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    asked, _ = _options().parse_known_args(argv)
    try:
        with suppress(BrokenPipeError):
            _capture(asked)
    except HopscopeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hopscope extcap", add_help=False)
    parser.add_argument("--extcap-interface", dest="interface", default=PACKETS)
    parser.add_argument("--fifo", default="")
    parser.add_argument("--extcap-capture-filter", dest="filter", default="")
    parser.add_argument("--socket", default=SOCKET)
    parser.add_argument("--points", default="packets")
    parser.add_argument("--events", default="")
    parser.add_argument("--where", default="")
    parser.add_argument("--since", type=float, default=0.0)
    return parser


def _stop(number: int, frame: object) -> NoReturn:
    del frame
    # What is under way is not complete, and nobody reads it.
    sys.exit(0 if number == signal.SIGTERM else 128 + number)


def _capture(asked: argparse.Namespace) -> None:
    with ExitStack() as stack:
        program = stack.enter_context(compiled(asked.filter, ETHERNET)) if asked.filter else None
        if not asked.fifo:  # it only wants to know whether the filter is one
            return
        request: dict[str, Any] = {"points": _names(asked.points), "where": asked.where, "since": asked.since}
        if asked.interface == EVENTS:
            request |= {"events": _names(asked.events), "format": "wire"}
        else:
            request |= {"points": request["points"] or ["packets"], "fields": FIELDS, "format": "json"}
        subscription = subscribed(asked.socket, request)
        stack.enter_context(closing(subscription.line))
        # Without O_CREAT: where fs.protected_fifos is set, root could not open another user's pipe with it.
        pipe = os.open(asked.fifo, os.O_WRONLY)
        stack.callback(os.close, pipe)
        offset_ns, host = subscription.head["realtime_offset_ns"], platform.node()
        made = (
            EventBlocks(host, offset_ns)
            if asked.interface == EVENTS
            else Packets(point_names().values(), host, offset_ns)
        )
        _pass_on(subscription, pipe, made, program)


def _names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _pass_on(subscription: Subscribed, pipe: int, made: Packets | EventBlocks, program: Program | None) -> None:
    _write(pipe, made.begin())
    line = subscription.line
    line.settimeout(0)
    rest = bytearray(subscription.file.read1(_READ_BYTES) or b"")  # what came with the first line
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.register(pipe, 0)  # POLLERR comes when nobody reads it any more
    while True:
        for descriptor, _ in poll.poll(_LOOK_S * 1000):
            if descriptor == pipe:
                return
            data = line.recv(_READ_BYTES)
            rest += data
            if not data:
                _write_wanted(pipe, made.complete(None), program)
                return
        _write_wanted(pipe, made.take(rest), program)
        _write_wanted(pipe, made.complete(time.monotonic_ns()), program)


def _write_wanted(pipe: int, blocks: Iterable[bytes], program: Program | None) -> None:
    """Write the blocks, of packets those that the capture filter wants."""
    wanted = b"".join(block for block in blocks if program is None or _is_wanted(program, block))
    if wanted:
        _write(pipe, wanted)


def _is_wanted(program: Program, block: bytes) -> bool:
    if int.from_bytes(block[:4], "little") != _PACKET_BLOCK:
        return True
    captured, length = (int.from_bytes(block[at : at + 4], "little") for at in (20, 24))
    frame = _Frame(captured=captured, length=length)
    data = block[_FRAME_AT : _FRAME_AT + captured]
    return bool(library().pcap_offline_filter(ctypes.byref(program), ctypes.byref(frame), data))


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
