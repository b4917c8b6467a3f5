# SPDX-License-Identifier: Apache-2.0
"""What the kernel answers, with other bytes in it: everything that asks over netlink reads it, and it alone."""

from __future__ import annotations

import contextlib
import errno
import functools
import socket
import struct
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from unittest import mock

from hypothesis import strategies as st

from hopscope.errors import HopscopeError
from hopscope.kernel import netlink, nft
from hopscope.kernel.counters import ethtool_features, ethtool_settings, link, qdisc, queue_stats
from hopscope.kernel.sockets.sock_diag import Request, SockDiag
from hopscope.kernel.sockets.table import TCP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DONE: Final = struct.pack("=i", 0)
_REAL: Final = socket.socket
_CONTROLLER: Final = 16
_FAMILY: Final = 30


def _sockets() -> Iterator[object]:
    asked = SockDiag()
    try:
        yield from asked.dump([Request(TCP)])
    finally:
        asked.close()


# What asks.
READERS: Final[dict[str, Callable[[], Any]]] = {
    "links": link.statistics,
    "link settings": link.settings,
    "qdiscs": qdisc.qdiscs,
    "classes": qdisc.classes,
    "queues": queue_stats.statistics,
    "rings": ethtool_settings.rings,
    "channels": ethtool_settings.channels,
    "coalesce": ethtool_settings.coalesce,
    "pause": ethtool_settings.pause,
    "features": ethtool_features.features,
    "rules": nft.drop_rules,
    "hooks": nft.hooks_with_rules,
    "sockets": _sockets,
}


class _Answering:
    """Stands in for a socket: whatever is asked, the same buffers come."""

    def __init__(self, bodies: tuple[bytes, ...], changes: tuple[tuple[float, int], ...], *_of: int) -> None:
        self._bodies, self._changes = bodies, changes
        self._waiting: list[bytes] = []

    def sendto(self, data: bytes, _address: object = None) -> int:
        _, kind, flags, sequence, _ = netlink.HEADER.unpack_from(data)
        if kind == _CONTROLLER:
            self._waiting = [_message(kind, sequence, bytes(4) + netlink.attribute(1, b"\x1e\0")) + _end(sequence)]
            return len(data)
        listed = bytearray(b"".join(_message(_FAMILY, sequence, body) for body in self._bodies))
        for where, value in self._changes if listed else ():
            listed[int(where * len(listed))] = value
        self._waiting = [
            bytes(listed),
            _end(sequence, netlink.NLMSG_DONE if flags & netlink.NLM_F_DUMP else netlink.NLMSG_ERROR),
        ]
        return len(data)

    def send(self, data: bytes) -> int:
        return self.sendto(data)

    def recvfrom_into(self, buffer: bytearray, _size: int, _flags: int) -> tuple[int, tuple[int, int]]:
        if not self._waiting:
            raise OSError(errno.EIO, "There is no more")
        data = self._waiting.pop(0)
        buffer[: len(data)] = data
        return len(data), (0, 0)

    def recv_into(self, buffer: Any, _size: int, flags: int) -> int:  # noqa: ANN401 # as of a socket
        if not self._waiting and flags & socket.MSG_DONTWAIT:
            raise BlockingIOError
        return self.recvfrom_into(buffer, 0, 0)[0]

    def close(self) -> None:
        pass


def _message(kind: int, sequence: int, body: bytes) -> bytes:
    return netlink.HEADER.pack(netlink.HEADER.size + len(body), kind, 2, sequence, 0) + body + bytes(-len(body) % 4)


def _end(sequence: int, kind: int = netlink.NLMSG_ERROR) -> bytes:
    return _message(kind, sequence, _DONE)


@dataclass(frozen=True)
class Dump:
    """What a reader gets: messages with these bodies, in which some bytes are others."""

    reader: str
    bodies: tuple[bytes, ...]
    changes: tuple[tuple[float, int], ...] = ()

    def check(self) -> list[str]:
        """Return what is wrong."""
        made = functools.partial(_Answering, self.bodies, self.changes)
        with (
            mock.patch("socket.socket", side_effect=made),
            mock.patch.object(nft, "has_nftables", return_value=True),
        ):
            try:
                list(READERS[self.reader]())
            except (HopscopeError, OSError):
                return []
            except Exception as error:  # noqa: BLE001 # what this looks for
                last = traceback.extract_tb(error.__traceback__)[-1]
                return [f"{type(error).__name__} in {last.name}: {str(error)[:100]}"]
        return []

    @classmethod
    def real(cls, reader: str) -> Self:
        """Return what this kernel says."""
        bodies: list[bytes] = []

        class Listening(_REAL):
            def recvfrom_into(self, *given: Any) -> Any:  # noqa: ANN401 # as of a socket
                length, sender = super().recvfrom_into(*given)
                _keep(bytes(given[0][:length]))
                return length, sender

            def recv_into(self, *given: Any) -> int:  # noqa: ANN401 # as of a socket
                length = super().recv_into(*given)
                _keep(bytes(given[0][:length]))
                return length

        def _keep(data: bytes) -> None:
            bodies.extend(each.body for each in netlink.messages(data) if each.kind not in {2, 3, _CONTROLLER})

        # What this kernel does not have, it refuses.
        with mock.patch("socket.socket", Listening), contextlib.suppress(HopscopeError, OSError):
            list(READERS[reader]())
        return cls(reader, tuple(bodies[:4]))


def _attributes(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(st.tuples(st.integers(0, 24), inner), max_size=4).map(
        lambda each: b"".join(netlink.attribute(kind, value) for kind, value in each)
    )


# Names and numbers as the kernel has them, or any bytes; and attributes of attributes.
_leaves = (
    st.sampled_from(
        [b"", b"lo\0", b"immediate\0", b"counter\0", b"lookup\0", b"target\0", b"fq\0", b"mq\0", bytes(4), bytes(8)]
    )
    | st.sampled_from([b"\0\0\0\1", b"\1\0\0\0", b"\xff" * 4, b"\xff" * 8, b"a\x1b[31m\0"])
    | st.binary(max_size=40)
)
_trees = _attributes(st.recursive(_leaves, _attributes, max_leaves=8))
_heads = st.sampled_from([b"", bytes(4), bytes(16), bytes(20), bytes(72)]) | st.binary(max_size=24)
_bodies = st.lists(st.tuples(_heads, _trees).map(b"".join), max_size=3).map(tuple)
_changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6).map(tuple)


def dumps() -> st.SearchStrategy[Dump]:
    """Draw dumps of this kernel that were meddled with, and such as it never makes."""
    real = [each for each in map(Dump.real, READERS) if each.bodies]
    meddled = st.builds(lambda dump, changes: Dump(dump.reader, dump.bodies, changes), st.sampled_from(real), _changes)
    return meddled | st.builds(Dump, st.sampled_from(sorted(READERS)), _bodies, _changes)
