# SPDX-License-Identifier: Apache-2.0
"""An endpoint that is told what to do by messages: each asks, each is answered.

::

    open   {"address": "10.0.0.1", "port": 0}                       → {"port", "host", "bound_ns"}
    meet   {"peer": ["10.0.0.2", 9], "token", "key", "role": 0,
            "nic_stamps": false}                                    → {}
    burst  {"count": 15, "train": 5}                                → {"answered": 15}
    take   {}                                                       → the fields of `Harvest`, and "clock"
    daemons {}                                                      → {"daemons": ["chronyd (…)"]}

Every field is checked, and what cannot be done is answered by ``{"error": sentence}``. Whoever carries the messages
keeps them small and sees to it that only the right ones get here.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import threading
from contextlib import ExitStack
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from hopscope.clock import adjustment, daemons
from hopscope.clock.domain import boot_id
from hopscope.clock.exchange import BURST, TRAIN, Endpoint
from hopscope.clock.nic_clocks import NicClocks
from hopscope.clock.nic_stamps import NicStamps
from hopscope.clock.probe import Session
from hopscope.clock.realtime import RealtimeClock
from hopscope.errors import HopscopeError, KernelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    PhcOf = Callable[[str], int | None]

_MOST: Final = 2 * BURST


class Line(Protocol):
    """Messages both ways."""

    def send(self, message: Mapping[str, Any], /) -> None:
        """Send one."""

    def receive(self, timeout_s: float | None = None, /) -> Mapping[str, Any] | None:
        """Wait for one; None when there will be no more. Raises TimeoutError."""

    def close(self) -> None:
        """Say that there is no more; idempotent."""


class Peer:
    """Does what messages say, and answers probes meanwhile. A context manager.

    Parameters
    ----------
    phc_of
        As of `NicStamps`; None: NICs' stamps are not used.

    Attributes
    ----------
    endpoint
        There once the other side is known.
    """

    def __init__(self, phc_of: PhcOf | None = None) -> None:
        self._phc_of = phc_of
        self._sock: socket.socket | None = None
        self._pump: _Pump | None = None
        self._nic_clocks = NicClocks()
        self.endpoint: Endpoint | None = None

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close what is open; idempotent."""
        self._nic_clocks.close()
        if self._pump:
            self._pump.close()
        if self.endpoint:
            self.endpoint.close()
        if self._sock:
            self._sock.close()

    def do(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a command, and return the answer."""
        verbs: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "open": self._open,
            "meet": self._meet,
            "burst": self._burst,
            "take": self._take,
            "daemons": lambda _: {"daemons": daemons.running()},
        }
        verb = verbs.get(str(command.get("do")))
        if verb is None:
            return {"error": f"There is no command {str(command.get('do'))[:20]!r}"}
        try:
            return verb(command)
        except HopscopeError as error:
            return {"error": str(error)}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            return {"error": f"A field of {command['do']} is missing or wrong: {error}"[:200]}
        except OSError as error:
            return {"error": f"The kernel refuses to {command['do']}: {error.strerror}"}

    def _open(self, command: Mapping[str, Any]) -> dict[str, Any]:
        address, port = str(command["address"]), int(command.get("port", 0))
        if self._sock:
            raise UsageError("It is open already")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with ExitStack() as stack:
            sock = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            try:
                sock.bind((address, port))
            except OSError as error:
                where = f"{address[:64]} is" if not port else f"UDP port {port} of {address[:64]} is"
                raise KernelError(f"{where} nothing to bind to: {error.strerror}") from error
            with RealtimeClock() as clock:
                bound_ns = clock.to_monotonic.bound_ns
            stack.pop_all()
        self._sock = sock
        host = boot_id()
        return {"port": sock.getsockname()[1], "host": host, "bound_ns": bound_ns}

    def _meet(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if not self._sock or self.endpoint:
            raise UsageError("It is not open, or has met its peer already")
        address, port = command["peer"]
        session = Session(bytes.fromhex(command["token"]), bytes.fromhex(command["key"]))
        role = int(command["role"])
        if role not in {0, 1} or not 0 < int(port) < 1 << 16:
            raise UsageError("The role is 0 or 1, the port up to 65535")
        peer = str(ipaddress.ip_address(address)), int(port)  # no name, which would be looked up at each packet
        switch_on = command.get("nic_stamps") is True
        nic = NicStamps(self._phc_of, switch_on=switch_on) if self._phc_of else None
        self.endpoint = Endpoint(self._sock, peer, session, role, nic)
        self._pump = _Pump(self.endpoint)
        return {}

    def _burst(self, command: Mapping[str, Any]) -> dict[str, Any]:
        count, train = int(command.get("count", BURST)), int(command.get("train", TRAIN))
        if not (0 <= count <= _MOST and 0 < train <= _MOST):
            raise UsageError(f"A burst has up to {_MOST} probes")
        endpoint, lock = self._met()
        with lock:
            return {"answered": endpoint.burst(count, train)}

    def _take(self, _command: Mapping[str, Any]) -> dict[str, Any]:
        endpoint, lock = self._met()
        with lock:
            endpoint.pump()
            harvest = endpoint.harvest()
            to_monotonic = endpoint.to_monotonic
        phcs = [[name, *astuple(reading)] for name, reading in self._nic_clocks.read().items()]
        clock = {**asdict(adjustment.read()), "to_monotonic": list(to_monotonic), "phcs": phcs}
        return {**asdict(harvest), "clock": clock}

    def _met(self) -> tuple[Endpoint, threading.Lock]:
        if not self.endpoint or not self._pump:
            raise UsageError("It has not met its peer yet")
        return self.endpoint, self._pump.lock


class _Pump:
    """Answers probes in a thread of its own, whenever nobody has the lock."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.lock = threading.Lock()
        self._endpoint = endpoint
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="clock probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; idempotent."""
        if self._end >= 0:
            os.eventfd_write(self._end, 1)
            self._thread.join()
            os.close(self._end)
            self._end = -1

    def _run(self) -> None:
        poll = select.poll()  # an agent may have more descriptors than select can take
        for fd in (self._end, self._endpoint.fileno()):
            poll.register(fd, select.POLLIN)
        while all(fd != self._end for fd, _ in poll.poll()):
            with self.lock:
                self._endpoint.pump()


def serve(line: Line, phc_of: PhcOf | None = None) -> None:
    """Do what the other side of a line says until it says no more; `phc_of` is as of `Peer`."""
    with Peer(phc_of) as peer:
        while (command := line.receive()) is not None:
            line.send(peer.do(command))
