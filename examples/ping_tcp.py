# SPDX-License-Identifier: Apache-2.0
"""Break a TCP request and its response into stages, with the kernel's own time stamps and without any privilege.

In one terminal:  python examples/ping_tcp.py --serve 127.0.0.1:7007
In another:       python examples/ping_tcp.py 127.0.0.1:7007

Any server that echoes will do. All stages are of one clock, CLOCK_REALTIME: it is the kernel's for these stamps, and
this program takes its own on it as well. A request during which that clock was set, so that a stage would be negative,
is not counted as a measurement; it is reported, and so is every stage of which no stamp came.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import time
from typing import TYPE_CHECKING

from hopscope.errors import HopscopeError, UsageError
from hopscope.timestamping import Message, Received, Stage, StampedSocket

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 5.0
# Name of a stage, and what it is; the first four follow one another and add up to the total.
STAGES = {
    "stack": "send called -> handed to the queueing discipline (SCHED)",
    "queue": "-> in the driver (SND)",
    "reply": "-> reply received by the kernel (RX_SOFTWARE)",
    "read": "-> reply read by this program",
    "total": "send called -> reply read",
    "send call": "send called -> send returned",
    "ack": "in the driver -> acknowledged by the peer's kernel (ACK)",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address", metavar="HOST:PORT", type=host_and_port, help="of the server")
    parser.add_argument("--serve", action="store_true", help="be the server: echo to whoever connects")
    parser.add_argument("-n", "--count", type=int, default=100, help="requests (default: 100)")
    parser.add_argument("--size", type=int, default=64, help="bytes of a request (default: 64)")
    parser.add_argument("--interval", type=float, default=0.01, help="seconds between requests (default: 0.01)")
    options = parser.parse_args(argv)
    try:
        if options.serve:
            serve(options.address)
        else:
            ping(options.address, options.count, options.size, options.interval)
    except KeyboardInterrupt:
        return 130
    except (HopscopeError, OSError) as error:
        sys.stderr.write(f"ping_tcp: {error}\n")
        return error.exit_code if isinstance(error, HopscopeError) else 1
    return 0


def host_and_port(text: str) -> tuple[str, int]:
    """Return the parts of HOST:PORT; an IPv6 address may have brackets."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def serve(address: tuple[str, int]) -> None:
    """Echo, one connection after the other, until Ctrl-C."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.create_server(address, family=family) as listener:
        print(f"echo on port {listener.getsockname()[1]}", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while data := connection.recv(1 << 16):
                    connection.sendall(data)


def ping(address: tuple[str, int], count: int, size_bytes: int, interval_s: float) -> None:
    """Send requests, one at a time, and print how long each stage took."""
    if count < 1 or size_bytes < 1:
        raise UsageError("There is nothing to send", "Give a count and a size of at least 1")
    durations_ns: dict[str, list[int]] = {name: [] for name in STAGES}
    retransmitted = clock_set = 0
    with socket.create_connection(address, TIMEOUT_S) as connection, StampedSocket(connection) as stamped:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            message, reply = request(stamped, bytes(size_bytes))
            retransmitted += bool(message.repeats)
            stages_ns = stages(message, reply)
            if any(value_ns < 0 for value_ns in stages_ns.values()):
                clock_set += 1
                continue
            for name, value_ns in stages_ns.items():
                durations_ns[name].append(value_ns)
            time.sleep(interval_s)
    show(durations_ns, count - clock_set)
    if retransmitted:
        print(f"{retransmitted} requests were stamped more than once (retransmitted, or devices on one another).")
    if clock_set:
        print(f"{clock_set} requests are left out: the clock was set meanwhile.")


def request(stamped: StampedSocket, data: bytes) -> tuple[Message, Received]:
    """Send one request, read the whole reply, and wait for the stamps of the request."""
    message = stamped.send(data)
    if message.len_bytes < len(data):
        raise UsageError("The request does not fit the send buffer", "Use a smaller --size")
    left_bytes = len(data)
    while left_bytes:
        reply = stamped.receive(left_bytes)
        if not reply.data:
            raise ConnectionResetError("the server closed the connection")
        left_bytes -= len(reply.data)
    found = stamped.finish(TIMEOUT_S)
    for error in found.errors:
        sys.stderr.write(f"ping_tcp: the network says {error}\n")
    return message, reply


def stages(message: Message, reply: Received) -> dict[str, int]:
    """Return how long each stage took that both ends are known of, ns; `reply` is the read that completed it."""
    sched_ns = message.time_ns.get(Stage.SCHED)
    driver_ns = message.time_ns.get(Stage.SND)
    times_ns = {
        "stack": (message.called_ns, sched_ns),
        "queue": (sched_ns, driver_ns),
        "reply": (driver_ns, reply.software_ns),
        "read": (reply.software_ns, reply.read_ns),
        "total": (message.called_ns, reply.read_ns),
        "send call": (message.called_ns, message.returned_ns),
        "ack": (driver_ns, message.time_ns.get(Stage.ACK)),
    }
    return {name: end - start for name, (start, end) in times_ns.items() if start is not None and end is not None}


def show(durations_ns: dict[str, list[int]], count: int) -> None:
    """Print the table, in microseconds."""
    print(f"{'µs':10}{'min':>10}{'median':>10}{'max':>10}")
    for name, what in STAGES.items():
        values_us = [value_ns / 1e3 for value_ns in durations_ns[name]]
        figures = (min(values_us), statistics.median(values_us), max(values_us)) if values_us else ()
        cells = "".join(f"{figure:10.1f}" for figure in figures) or f"{'no stamps':>30}"
        print(f"{name:10}{cells}  {what}")
    print(f"{count} requests")
    for name, values_ns in durations_ns.items():
        if len(values_ns) < count:
            print(f"{name}: {count - len(values_ns)} of them have no such stamp.")


if __name__ == "__main__":
    sys.exit(main())
