# SPDX-License-Identifier: Apache-2.0
"""A TLS connection that one thread reads while another writes.

OpenSSL allows one thread at a time in a connection, and Python's SSLSocket does not see to that. Here TLS works on
memory under a lock, and each thread waits for the socket outside of it: a peer that does not read holds up no reading.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final, cast

from hopscope.agent.message import printable
from hopscope.agent.tls import ALPN
from hopscope.agent.tls_failures import hung_up, what_failed
from hopscope.errors import ConnectionLostError, RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CHUNK_BYTES: Final = 1 << 17
# The first line from an agent: how a client hears that it may come in, or why not.
_WELCOME: Final = "welcome"
_REFUSED: Final = "refused "
_LINE_BYTES: Final = 512
# For how long who closes waits until a write has ended, so that the other side learns that this is the end.
_AMID_S: Final = 0.5


class TlsConnection:
    """One connection, a `Transport`: `shake_hands` comes first, then one thread may read and one write.

    Parameters
    ----------
    sock
        Connected; it belongs to this object from now on.
    context
        Ours: the agent's or the client's.
    peer
        What to call the other side in errors.
    server_name
        On the client's side: the host that is meant.

    Attributes
    ----------
    sock
        For its addresses.
    peer
        As given.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, peer: str, server_name: str | None = None) -> None:
        self.sock = sock
        self.peer = peer
        sock.settimeout(None)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._users = 0
        self._left = threading.Condition()
        self._closed = False

    def shake_hands(self, timeout_s: float) -> None:
        """Do TLS's handshake.

        Raises
        ------
        RemoteError
            The other side does not speak TLS as we do, or one of us refuses the other.
        ConnectionLostError
            It has hung up, or took longer.
        """
        with self._using():
            try:
                self._until(self._tls.do_handshake, time.monotonic() + timeout_s)
            except ssl.SSLError as error:
                if hung_up(error):
                    raise
                with contextlib.suppress(OSError):
                    self._flush()  # the alert
                raise RemoteError(f"{self.peer} {what_failed(error)}") from error
        if self._tls.selected_alpn_protocol() != ALPN:
            raise self._stranger()

    def certificate(self) -> tuple[dict[str, Any], bytes]:
        """Return what the other side's certificate says, and all of it in DER; after the handshake."""
        return self._tls.getpeercert() or {}, self._tls.getpeercert(binary_form=True) or b""

    def welcome(self) -> None:
        """Say, as the agent, that the client may come in."""
        self._say(_WELCOME)

    def refuse(self, why: str) -> None:
        """Say, as the agent, that it may not, and why."""
        self._say(f"{_REFUSED}{why}")

    def wait_for_welcome(self, timeout_s: float) -> None:
        """Wait, as the client, for what the agent says first.

        In TLS 1.3 the agent looks at the client's certificate when the client is done with its handshake: that it is
        refused comes only now.

        Raises
        ------
        RemoteError
            The agent refuses us.
        ConnectionLostError
            It has hung up, or took longer.
        """
        said = self._line(time.monotonic() + timeout_s)
        if said.startswith(_REFUSED):
            raise RemoteError(f"{self.peer} refuses this client: {printable(said.removeprefix(_REFUSED), _LINE_BYTES)}")
        if said != _WELCOME:
            raise self._stranger()

    def read_into(self, buffer: memoryview, timeout_s: float | None) -> int:
        """As of the protocol; 0 is the end that the other side meant, never one that somebody on the way has made."""
        with self._using():
            while True:
                with self._lock:
                    count = self._read(buffer)
                if count is not None:
                    return count
                if timeout_s is not None and not _readable(self.sock, timeout_s):
                    raise TimeoutError
                arrived = self.sock.recv(_CHUNK_BYTES)
                with self._lock:
                    self._arrived(arrived)

    def write(self, buffers: Sequence[memoryview]) -> None:
        """As of the protocol."""
        with self._using(), self._writing:
            for buffer in buffers:
                for start in range(0, buffer.nbytes, _CHUNK_BYTES):
                    with self._lock:
                        self._tls.write(buffer[start : start + _CHUNK_BYTES])
                    if self._outgoing.pending >= _CHUNK_BYTES:
                        self._flush()
            self._flush()

    def linger(self, most_s: float) -> None:
        """Wait until the other side hangs up, too; call `close` then.

        A socket that is closed with something unread in it resets the connection, and our last words may be lost.
        """
        with contextlib.suppress(ConnectionLostError), self._using():
            self.sock.shutdown(socket.SHUT_WR)
            deadline_s = time.monotonic() + most_s
            while _readable(self.sock, deadline_s - time.monotonic()) and self.sock.recv(_CHUNK_BYTES):
                pass

    def close(self) -> None:
        """As of the protocol; tells the other side that this is the end, unless we are amid a record."""
        with self._left:
            if self._closed:
                return
            self._closed = True
        # Who is writing has mostly done so already; what the other side does not take holds us up for no longer.
        if self._writing.acquire(timeout=_AMID_S):
            self._say_goodbye()
            self._writing.release()
        with contextlib.suppress(OSError):  # not connected any more
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes who waits
        with self._left:
            self._left.wait_for(lambda: not self._users)
        self.sock.close()

    def why_ended(self) -> str:
        """As of the protocol: nothing is known."""
        return ""

    def _say(self, line: str) -> None:
        self.write([memoryview(f"{printable(line, _LINE_BYTES // 4)}\n".encode())])

    def _say_goodbye(self) -> None:
        with self._lock, contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()  # fails where the other side has not said goodbye yet, having written what we send
        with contextlib.suppress(OSError):
            self.sock.send(self._outgoing.read(), socket.MSG_DONTWAIT)

    def _line(self, deadline_s: float) -> str:
        line, byte = bytearray(), bytearray(1)
        with self._using():
            try:
                while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
                    if not self._until(lambda: self._tls.read(1, byte), deadline_s):
                        raise self._lost("has hung up")
                    line += byte
            except ssl.SSLError as error:
                raise RemoteError(f"{self.peer} {what_failed(error)}") from error
        return line.decode(errors="replace").rstrip("\n")

    def _read(self, buffer: memoryview) -> int | None:
        """Fill the buffer with what is at hand; None means that nothing is."""
        count = 0
        with contextlib.suppress(ssl.SSLWantReadError):
            while count < buffer.nbytes:
                # With a buffer to fill it returns how much, which its stub does not know.
                got = cast("int", self._tls.read(buffer.nbytes - count, buffer[count:]))
                if not got:
                    return count
                count += got
        return count or None

    def _arrived(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _until(self, step: Callable[[], Any], deadline_s: float) -> Any:  # noqa: ANN401 # what the step returns
        """Take a step of TLS until it needs nothing more from the other side."""
        while True:
            try:
                with self._lock:
                    done = step()
            except ssl.SSLWantReadError:
                self._flush()
                if not _readable(self.sock, deadline_s - time.monotonic()):
                    raise self._lost("takes too long for the TLS handshake") from None
                self._arrived(self.sock.recv(_CHUNK_BYTES))
            else:
                self._flush()
                return done

    def _flush(self) -> None:
        with self._lock:
            ready = self._outgoing.read()
        if ready:
            self.sock.sendall(ready)

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """Keep the socket open meanwhile, and say in our words how it broke."""
        with self._left:
            if self._closed:
                raise ConnectionLostError(f"The connection to {self.peer} was closed here", how="closed")
            self._users += 1
        try:
            yield
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                raise  # ours; the kernel's has a number and tells of a connection that is gone
            raise self._broken(error) from error
        finally:
            with self._left:
                self._users -= 1
                self._left.notify_all()

    def _broken(self, error: OSError) -> ConnectionLostError:
        if self._closed:
            return ConnectionLostError(f"The connection to {self.peer} was closed here", how="closed")
        if hung_up(error):
            return self._lost("has hung up")
        if isinstance(error, ssl.SSLError):
            return ConnectionLostError(f"{self.peer} {what_failed(error)}", how="garbled")
        return self._lost(f"is gone: {error.strerror}")

    def _lost(self, predicate: str) -> ConnectionLostError:
        return ConnectionLostError(f"{self.peer} {predicate}", how="ended")

    def _stranger(self) -> RemoteError:
        return RemoteError(f"{self.peer} speaks TLS, but is not hopscope")


def _readable(sock: socket.socket, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1e3))
