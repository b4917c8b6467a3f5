# SPDX-License-Identifier: Apache-2.0
"""Clients and servers with known behaviour, as processes of their own: ``python -m hopscope.lab.traffic WORKLOAD ...``.

A server prints ``ready PORT`` when it listens. Every workload prints one JSON object when it ends (a `Summary`), and
ends by itself: at its count, its duration, the peer's end of stream, SIGTERM or SIGINT, and in any case at ``--limit``.
The exit status is 0, but 1 when the limit ended it or the connection failed.

Start them with `hopscope.lab.workload.Workload`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.errors import HopscopeError, UsageError
from hopscope.lab.pace import LIMIT_S, Budget, Ended
from hopscope.lab.receivers import READERS, tcp_echo, tcp_sink, udp_sink
from hopscope.lab.senders import tcp_rr, tcp_send, udp_send

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from hopscope.lab.pace import Summary

_KILL_AFTER_LIMIT_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one workload; return the exit status."""
    options = _parser().parse_args(argv)
    budget = Budget(limit_s=options.limit, duration_s=options.duration, count=options.count, rate_s=options.rate)

    def stop(_number: int, _frame: FrameType | None) -> None:
        budget.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # Whatever blocks: the default action of SIGALRM ends the process.
    signal.setitimer(signal.ITIMER_REAL, options.limit + _KILL_AFTER_LIMIT_S)
    try:
        _become(options)
        summary: Summary = options.workload(options, budget)
    except (HopscopeError, OSError) as error:
        sys.stderr.write(f"{options.name}: {error}\n")
        return error.exit_code if isinstance(error, HopscopeError) else 1
    sys.stdout.write(json.dumps(asdict(summary)) + "\n")
    return int(summary.ended == Ended.LIMIT)


def _become(options: argparse.Namespace) -> None:
    # Before any socket is made: a socket belongs to the cgroup that its maker is in.
    if options.comm:
        Path("/proc/self/comm").write_text(options.comm, encoding="utf-8")
    if options.cgroup:
        (options.cgroup / "cgroup.procs").write_text(f"{os.getpid()}\n", encoding="utf-8")


def _ready(port: int) -> None:
    sys.stdout.write(f"ready {port}\n")
    sys.stdout.flush()


def _tcp_sink(options: argparse.Namespace, budget: Budget) -> Summary:
    return tcp_sink(
        (options.bind, options.port),
        budget,
        ready=_ready,
        read=READERS[options.reader],
        size_bytes=options.size,
        sleep_s=options.sleep_ms / 1e3,
        connections=options.connections,
        rcvbuf_bytes=options.rcvbuf,
    )


def _udp_sink(options: argparse.Namespace, budget: Budget) -> Summary:
    if options.reader == "splice":
        raise UsageError("A UDP socket cannot be spliced", "Choose another reader.")
    return udp_sink(
        (options.bind, options.port),
        budget,
        ready=_ready,
        read=READERS[options.reader],
        size_bytes=options.size,
        sleep_s=options.sleep_ms / 1e3,
        rcvbuf_bytes=options.rcvbuf,
    )


def _tcp_echo(options: argparse.Namespace, budget: Budget) -> Summary:
    return tcp_echo(
        (options.bind, options.port), budget, ready=_ready, size_bytes=options.size, reply_bytes=options.reply_size
    )


def _tcp_rr(options: argparse.Namespace, budget: Budget) -> Summary:
    return tcp_rr(
        (options.host, options.port),
        budget,
        size_bytes=options.size,
        reply_bytes=options.reply_size,
        stamped=options.stamped,
    )


def _tcp_send(options: argparse.Namespace, budget: Budget) -> Summary:
    return tcp_send((options.host, options.port), budget, size_bytes=options.size, stamped=options.stamped)


def _udp_send(options: argparse.Namespace, budget: Budget) -> Summary:
    return udp_send((options.host, options.port), budget, size_bytes=options.size)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hopscope.lab.traffic", description="Traffic with known behaviour.")
    verbs = parser.add_subparsers(dest="name", required=True)
    sink = _server(verbs, "tcp-sink", "read TCP connections to their end", 1 << 20)
    sink.add_argument(
        "--connections", type=_positive, default=1, help="end after as many connections (one after the other)"
    )
    sink.set_defaults(workload=_tcp_sink)
    _reader(sink)
    udp = _server(verbs, "udp-sink", "read datagrams", 65_536)
    udp.set_defaults(workload=_udp_sink)
    _reader(udp)
    echo = _server(verbs, "tcp-echo", "answer each request of --size with --reply-size bytes, one connection", 64)
    echo.add_argument("--reply-size", type=_positive, default=64, help="bytes")
    echo.set_defaults(workload=_tcp_echo)
    request = _client(verbs, "tcp-rr", "send a request, wait for its reply", 64)
    request.add_argument("--reply-size", type=_positive, default=64, help="bytes")
    request.set_defaults(workload=_tcp_rr)
    _stamps(request)
    stream = _client(verbs, "tcp-send", "send messages on one connection, as fast as it goes without --rate", 1 << 20)
    stream.set_defaults(workload=_tcp_send)
    _stamps(stream)
    datagrams = _client(verbs, "udp-send", "send datagrams, a flood without --rate", 64)
    datagrams.set_defaults(workload=_udp_send)
    return parser


def _server(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, size_bytes: int
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="IPv4 or IPv6")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    _common(parser, size_bytes)
    return parser


def _client(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, size_bytes: int
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("host", help="IPv4 or IPv6 address")
    parser.add_argument("port", type=int)
    _common(parser, size_bytes)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _positive_real(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and finite")
    return value


def _common(parser: argparse.ArgumentParser, size_bytes: int) -> None:
    parser.add_argument(
        "--size", type=_positive, default=size_bytes, help="bytes of a message, or of the buffer of a reader"
    )
    parser.add_argument("--count", type=_positive, help="end after as many messages")
    parser.add_argument("--duration", type=_positive_real, help="end after as many seconds of traffic")
    parser.add_argument("--rate", type=_positive_real, help="messages per second")
    parser.add_argument("--limit", type=_positive_real, default=LIMIT_S, help="give up after as many seconds")
    parser.add_argument("--comm", help="name of the process")
    parser.add_argument("--cgroup", type=Path, help="cgroup folder to move into first")


def _stamps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stamped", action="store_true", help="ask for time stamps of every message (SO_TIMESTAMPING) and read them"
    )


def _reader(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reader", choices=sorted(READERS), default="plain")
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="wait for data, sleep as long, then read")
    parser.add_argument(
        "--rcvbuf", type=_positive, help="size of the receive buffer in bytes, above the sysctl's limit, too"
    )


if __name__ == "__main__":
    sys.exit(main())
