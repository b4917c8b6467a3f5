# SPDX-License-Identifier: Apache-2.0
"""How many of the ports for outgoing connections are in use, by local address and destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import FormatError
from hopscope.kernel.counters.socket_files import sockstat
from hopscope.kernel.counters.text import read_setting
from hopscope.kernel.sockets.address import addresses, ports
from hopscope.kernel.sockets.sock_diag import Request
from hopscope.kernel.sockets.table import TCP, State, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.kernel.counters.text import Said
    from hopscope.kernel.sockets.sock_diag import SockDiag
    from hopscope.kernel.sockets.table import Rows

_SETTINGS: Final = "/proc/sys/net/ipv4"
_TIME_WAITS: Final = Request(TCP, 1 << State.TIME_WAIT, 0)
_PORTS: Final = 1 << 16
# Destinations that use less of the range are not named.
_PART: Final = 0.5
_END: Final = np.dtype([("src", "V16"), ("dst", "V16"), ("dport", ">u2")])


def used_ports(diag: SockDiag, rows: Rows) -> Iterator[Said]:
    """Yield ``local_ports``, how many there are, and of a source and destination that use at least half, how many.

    A connection needs a local port that no other one between the same address and destination has
    (``net/ipv4/inet_hashtables.c``: __inet_hash_connect). A port that an application binds for itself is not counted.

    Parameters
    ----------
    diag
        Of the namespace that the calling thread is in.
    rows
        Its TCP sockets, without those in TIME_WAIT.
    """
    available = local_ports(read_setting(f"{_SETTINGS}/ip_local_port_range"), _reserved())
    yield "", "local_ports", len(available)
    waiting = {name: value for _, name, value in sockstat()}.get("TCP.tw", 0)
    connected = rows[(rows["protocol"] == TCP) & (rows["message"]["dport"] != 0)]
    if len(connected) + int(waiting) < _PART * len(available):
        return
    in_use = join([connected, *(part.rows for part in diag.dump([_TIME_WAITS]))])
    in_use = in_use[np.isin(ports(in_use, "local"), available)]
    for first, used, time_waits in _by_destination(in_use):
        if used >= _PART * len(available):
            subject = _named(in_use[first : first + 1])
            yield subject, "local_ports", len(available)
            yield subject, "local_ports_used", used
            yield subject, "local_ports_time_wait", time_waits


def local_ports(port_range: bytes, reserved: bytes) -> NDArray[np.int64]:
    """Return the ports that the kernel may choose.

    Parameters
    ----------
    port_range, reserved
        ``ip_local_port_range`` and ``ip_local_reserved_ports`` as their files say it.

    Raises
    ------
    FormatError
        They are laid out in another way.
    """
    try:
        low, high = map(int, port_range.split())
        spans = [[int(end) for end in span.split(b"-")] for span in reserved.strip().split(b",") if span]
    except ValueError:
        raise FormatError(f"{port_range[:40]!r} and {reserved[:40]!r} are no ranges of ports") from None
    free = np.ones(_PORTS, bool)
    free[:low] = free[high + 1 :] = False
    for span in spans:
        free[span[0] : span[-1] + 1] = False
    return np.flatnonzero(free)


def _reserved() -> bytes:
    return read_setting(f"{_SETTINGS}/ip_local_reserved_ports")


def _by_destination(rows: Rows) -> Iterator[tuple[int, int, int]]:
    """Yield the first row of each source and destination, how many there are, and how many are in TIME_WAIT."""
    keys = np.zeros(len(rows), _END)
    message = rows["message"]
    keys["dport"] = message["dport"]
    for end in ("src", "dst"):
        keys[end] = np.ascontiguousarray(message[end]).view("V16")[:, 0]
    _, first, which = np.unique(keys.view(f"V{_END.itemsize}"), return_index=True, return_inverse=True)
    waits: NDArray[Any] = message["state"] == State.TIME_WAIT
    used, time_waits = np.bincount(which, minlength=len(first)), np.bincount(which, waits, len(first))
    yield from zip(first.tolist(), used.tolist(), time_waits.astype(int).tolist(), strict=True)


def _named(row: Rows) -> str:
    local, peer = addresses(row, "local")[0], addresses(row, "peer")[0]
    return f"{local} > {f'[{peer}]' if ':' in peer else peer}:{ports(row, 'peer')[0]} tcp"
