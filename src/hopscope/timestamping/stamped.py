# SPDX-License-Identifier: Apache-2.0
"""A socket whose sends come back with their stamps."""

from __future__ import annotations

import errno as errnos
import fcntl
import functools
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hopscope.errors import HopscopeError, UsageError
from hopscope.timestamping import _abi
from hopscope.timestamping.errqueue import ErrorQueue, NetworkError, Stamp
from hopscope.timestamping.flags import STAGES, Sof, Stage
from hopscope.timestamping.messages import Correlator, Message, Missing
from hopscope.timestamping.option import enable, is_tcp, send_control, settings, supported
from hopscope.timestamping.receive import Received, receive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    Buffer = bytes | bytearray | memoryview

DEFAULT: Final = Sof.TX_SCHED | Sof.TX_SOFTWARE | Sof.TX_ACK | Sof.RX_SOFTWARE
_RECEIVE: Final = Sof.RX_SOFTWARE | Sof.RX_HARDWARE
_MSG_MORE: Final = int(socket.MSG_MORE)  # the enum's own operators take a microsecond
_RETRIES: Final = 100


class Collected(NamedTuple):
    """What came out of the error queue.

    Attributes
    ----------
    messages
        Those that have all their stamps, and those of which none will come any more (`Message.missing`).
    errors
        What else was there.
    """

    messages: list[Message]
    errors: list[NetworkError]


@dataclass(slots=True)
class Counts:
    """What happened in the error queue so far.

    Attributes
    ----------
    stamps
        Stamps that were read.
    unmatched
        Of these, how many belong to no message that waits: sent past this object, or late.
    overflows
        How many times the queue was found full.
    """

    stamps: int = 0
    unmatched: int = 0
    overflows: int = 0


class StampedSocket:
    """Sends through a socket, and tells of each send when it was where.

    The socket stays the caller's, who reads and closes it. As a context manager it puts the flags of the socket back;
    what is in the error queue by then stays there: call `finish` before. One thread at a time.

    Parameters
    ----------
    sock
        A connected TCP socket, or a UDP, raw or packet socket. Blocking or not.
    flags
        What to stamp, for sends that do not say otherwise (``TX_*``; none with ``record`` for sampling), for what is
        received (``RX_*``), and options. What is needed to report and to tell stamps apart is added: ``SOFTWARE``,
        ``RAW_HARDWARE``, ``OPT_ID``, ``OPT_ID_TCP``, ``OPT_TX_SWHW``, and, without ``OPT_CMSG``, ``OPT_TSONLY``.
        ``TX_ACK`` is left out where the socket is not of TCP; where it is not and ``RX_*`` is asked for, SO_RXQ_OVFL
        counts what is dropped (`Received.dropped`).
    phc
        As for `enable`.
    limit
        How many sends may wait for stamps; one more, and the oldest is given up.

    Attributes
    ----------
    counts
        What happened in the error queue so far.

    Raises
    ------
    UsageError, KernelError
        As from `enable`.
    """

    def __init__(
        self, sock: socket.socket, flags: Sof = DEFAULT, *, phc: int | None = None, limit: int = 65_536
    ) -> None:
        self._sock = sock
        self._tcp = is_tcp(sock)
        self._queue = ErrorQueue(sock)
        if sock.type == socket.SOCK_STREAM and not self._tcp:
            raise UsageError("Sends of this stream socket cannot be stamped", "Use TCP, or a datagram socket")
        self._before = settings(sock)
        self._phc = phc
        self._flags = _with_reports(flags, tcp=self._tcp)
        self._next_id = 0  # TCP: offset in the stream; else the number of the next datagram
        try:
            first_packet_id = self._switch_on()
        except HopscopeError:
            enable(sock, self._before[0], phc=self._before[1])
            raise
        self._counted_drops = sock.getsockopt(socket.SOL_SOCKET, _abi.SO_RXQ_OVFL)
        if flags & _RECEIVE and not self._tcp:
            sock.setsockopt(socket.SOL_SOCKET, _abi.SO_RXQ_OVFL, 1)
        self._sends_ids: bool | None = False if self._tcp else None  # not known before the first try
        self._counter_lost = False
        self._correlator = Correlator(stream=self._tcp, limit=limit, first_packet_id=first_packet_id)
        self._errors: list[NetworkError] = []
        self.counts = Counts()
        # POLLERR cannot be asked for alone with poll or asyncio: they would report readable data as well, and an error
        # that is pending over and over. This tells once of each event.
        self._epoll = select.epoll()
        self._epoll.register(sock, select.EPOLLET)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Put back what the socket had; idempotent."""
        if self._epoll.closed:
            return
        self._epoll.close()
        if self._sock.fileno() >= 0:
            self._sock.setsockopt(socket.SOL_SOCKET, _abi.SO_RXQ_OVFL, self._counted_drops)
            enable(self._sock, self._before[0], phc=self._before[1])

    def fileno(self) -> int:
        """Return a descriptor that is readable when `collect` may have something, for `select` and its like."""
        return self._epoll.fileno()

    @property
    def waiting(self) -> int:
        """How many sends wait for stamps."""
        return self._correlator.waiting

    def send(self, data: Buffer, flags: int = 0, *, record: Sof | None = None) -> Message:
        """Send as `socket.send` does; as `sendmsg` otherwise."""
        return self.sendmsg([data], flags=flags, record=record)

    def sendto(self, data: Buffer, address: Any, flags: int = 0, *, record: Sof | None = None) -> Message:  # noqa: ANN401 - as the family has them
        """Send as `socket.sendto` does; as `sendmsg` otherwise."""
        return self.sendmsg([data], flags=flags, address=address, record=record)

    def sendmsg(
        self,
        buffers: Iterable[Buffer],
        ancdata: Sequence[_abi.ControlMessage] = (),
        flags: int = 0,
        address: Any = None,  # noqa: ANN401 - as the family has them
        *,
        record: Sof | None = None,
    ) -> Message:
        """Send as `socket.sendmsg` does, and wait for the stamps of it.

        Parameters
        ----------
        buffers, ancdata, flags, address
            As for `socket.sendmsg`.
        record
            ``TX_*`` flags for this send alone, to sample; none leaves it without stamps. None takes the socket's.

        Returns
        -------
        Message
            Its stamps come later; `collect` returns it again when it has them. A send that asked for no stamps is not
            returned again.

        Raises
        ------
        OSError
            As from `socket.sendmsg`; then nothing was sent.
        UsageError
            `record` has a flag that is none of a stage; or MSG_MORE, which merges datagrams, on a datagram socket.
        """
        if flags & _MSG_MORE and not self._tcp:
            raise UsageError("Datagrams that MSG_MORE merges cannot be told apart by their stamps", "Send them whole")
        wanted = _stages(self._flags if record is None else record, self._tcp)
        missing = None
        if wanted and self._counter_lost and not self._recount():
            record, missing = Sof(0), Missing.UNCOUNTED
        control = [*ancdata, *send_control(record)]
        buffers = list(buffers)
        called_ns = time.time_ns()
        len_bytes = self._hand_over(buffers, control, flags, address, counted=bool(wanted) and not missing)
        returned_ns = time.time_ns()
        if self._tcp:
            self._next_id += len_bytes
            message = Message(self._next_id - 1, len_bytes, called_ns, returned_ns, wanted if len_bytes else ())
        else:
            message = Message(self._next_id, len_bytes, called_ns, returned_ns, wanted, missing=missing)
            self._next_id += bool(wanted)
        if message.wanted:
            self._correlator.sent(message)
        return message

    def sent_elsewhere(self, len_bytes: int) -> None:
        """Tell of bytes that were sent through the TCP socket without this object, such as by ``sendfile``.

        Raises
        ------
        UsageError
            The socket is not of TCP.
        """
        if not self._tcp:
            raise UsageError("Only a TCP socket counts bytes", "Send datagrams through this object")
        self._next_id += len_bytes

    def receive(self, size_bytes: int, flags: int = 0) -> Received:
        """Receive from the socket; as the function `receive`."""
        return receive(self._sock, size_bytes, flags)

    def collect(self, timeout_s: float | None = 0.0) -> Collected:
        """Return what is there, or the first that comes.

        Parameters
        ----------
        timeout_s
            How long to wait if nothing is there, None for as long as it takes. Whether the socket is blocking does not
            matter.

        Raises
        ------
        OSError
            The socket is closed.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._epoll.poll(0)  # takes note of events up to now; what comes while the queue is read ends the next wait
        while True:
            self._read_queue()
            found = Collected(self._correlator.take(), self._errors)
            self._errors = []
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            if found.messages or found.errors or (remaining_s is not None and remaining_s <= 0):
                return found
            self._epoll.poll(remaining_s)

    def finish(self, timeout_s: float = 1.0) -> Collected:
        """Wait until no send waits for stamps any more; give those up that still do after the time-out.

        Raises
        ------
        OSError
            The socket is closed.
        """
        deadline_s = time.monotonic() + timeout_s
        found = self.collect()
        while self.waiting and (remaining_s := deadline_s - time.monotonic()) > 0:
            more = self.collect(remaining_s)
            found.messages.extend(more.messages)
            found.errors.extend(more.errors)
        self._correlator.give_up_all()
        found.messages.extend(self._correlator.take())
        return found

    def _read_queue(self) -> None:
        records, full = self._queue.read()
        if full:  # before the records are looked at: they tell of others that are missing
            self.counts.overflows += 1
            self._correlator.overflowed()
        for record in records:
            if isinstance(record, Stamp):
                self.counts.stamps += 1
                self._correlator.stamped(record)
            else:
                self._errors.append(record)
        self.counts.unmatched = self._correlator.unmatched

    def _hand_over(
        self,
        buffers: list[Buffer],
        control: list[_abi.ControlMessage],
        flags: int,
        address: Any,  # noqa: ANN401 - as the family has them
        *,
        counted: bool,
    ) -> int:
        destination = () if address is None else (address,)
        if counted and self._sends_ids is not False:
            own_id = send_control(packet_id=self._next_id % 2**32)
            try:
                sent = self._sock.sendmsg(buffers, [*control, *own_id], flags, *destination)
            except OSError as error:
                if self._sends_ids or error.errno != errnos.EINVAL:
                    raise
            else:
                self._sends_ids = True
                return sent
        try:
            sent = self._sock.sendmsg(buffers, control, flags, *destination)
        except OSError:
            # Up to Linux 6.8 the counter goes on although nothing was sent (commit 488b6d91b071).
            self._counter_lost = counted and not self._tcp
            raise
        if counted:
            self._sends_ids = False
        return sent

    def _recount(self) -> bool:
        # Stamps of old sends would be taken for those of new ones with the same number.
        if self._correlator.waiting:
            return False
        self._correlator.first_packet_id = self._switch_on() - self._next_id
        self._counter_lost = False
        return True

    def _switch_on(self) -> int:
        """Set the flags so that ids begin anew; return the first."""
        for _ in range(_RETRIES):
            enable(self._sock, self._before[0] & ~(Sof.OPT_ID | Sof.OPT_ID_TCP | Sof.BIND_PHC))
            before_bytes = self._unacknowledged_bytes()
            enable(self._sock, self._flags, phc=self._phc)
            # Without OPT_ID_TCP (before Linux 6.2) offsets begin at the first byte that is not acknowledged.
            if self._unacknowledged_bytes() == before_bytes:
                return before_bytes
        raise UsageError("Acknowledgements keep coming, so that offsets are not known", "Begin when nothing is sent")

    def _unacknowledged_bytes(self) -> int:
        if not self._tcp or Sof.OPT_ID_TCP in self._flags:
            return 0
        (len_bytes,) = struct.unpack("i", fcntl.ioctl(self._sock, _abi.SIOCOUTQ, bytes(4)))
        return int(len_bytes)


@functools.cache
def _stages(flags: Sof, tcp: bool) -> tuple[Stage, ...]:  # noqa: FBT001 - a key of the cache
    return tuple(stage for flag, stage in STAGES.items() if flag in flags and (tcp or flag != Sof.TX_ACK))


def _with_reports(flags: Sof, *, tcp: bool) -> Sof:
    flags |= Sof.SOFTWARE | Sof.RAW_HARDWARE | Sof.OPT_ID | Sof.OPT_TX_SWHW
    if Sof.OPT_CMSG not in flags:
        flags |= Sof.OPT_TSONLY
    if tcp:
        return flags | Sof.OPT_ID_TCP & supported()
    return flags ^ flags & Sof.TX_ACK  # an inverted flag would drop bits that Sof has no name for
