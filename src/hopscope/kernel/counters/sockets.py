# SPDX-License-Identifier: Apache-2.0
"""What all sockets of a namespace say together, and what each listener says: from sock_diag, a few figures of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.kernel.counters.descriptors import of_listeners
from hopscope.kernel.counters.local_ports import used_ports
from hopscope.kernel.counters.stalled import full_size_stalled
from hopscope.kernel.sockets.address import ends
from hopscope.kernel.sockets.change import change
from hopscope.kernel.sockets.filter_parse import USUAL
from hopscope.kernel.sockets.signs import signs
from hopscope.kernel.sockets.sock_diag import SKMEMINFO, Request, SockDiag
from hopscope.kernel.sockets.table import PROTOCOLS, STATE_NAMES, TCP, UDP, UDPLITE, Sockets, State, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.kernel.counters.text import Said

# Not tcp_info, for which the kernel takes each socket's lock: where a thread waits in a send call for a page that does
# not come (NFS, FUSE), so would we, and nothing could end us (net/ipv4/tcp.c: tcp_get_info). `stalled` asks for that of
# a few sockets which have waited for an answer for long.
_REQUESTS: Final = [Request(protocol, USUAL, SKMEMINFO) for protocol in (TCP, UDP, UDPLITE)]
# TIME_WAIT is in `sockstat`, and would have to be read socket by socket.
_STATES: Final = [state for state in State if USUAL >> state & 1 and state not in {State.CLOSE, State.NEW_SYN_RECV}]
# Signs that say something of now, and need no tcp_info.
_SIGNS: Final = ("no_answer", "window_closed", "receive_buffer")


def socket() -> Iterator[Said]:
    """Yield what the sockets of the namespace that the calling thread is in say.

    Subject "" has counts of TCP sockets by state (``tcp.close-wait``), of those with a sign of trouble
    (``tcp.no_answer_sockets``; :data:`hopscope.kernel.sockets.signs.SIGNS`), and sums of what waits in queues, bytes.
    A listener has ``queue`` and ``backlog``, those of the fullest where several share a port (SO_REUSEPORT); if
    connections wait and its process is close to RLIMIT_NOFILE, ``descriptors`` and ``descriptor_limit``. A UDP socket
    whose buffer is at least half full has ``receive_bytes`` and ``receive_limit_bytes``. A source and destination that
    use at least half of the ports for outgoing connections have ``local_ports`` and ``local_ports_used``.

    Raises
    ------
    OSError
        The kernel has no sock_diag.
    FormatError
        Its answer cannot be decoded.
    """
    diag = SockDiag()
    try:
        rows = join([part.rows for part in diag.dump(_REQUESTS)])
        yield from used_ports(diag, rows)
    finally:
        diag.close()
    sockets = Sockets(rows, 0, 0)
    yield from _of_all(sockets)
    yield from full_size_stalled(rows)
    yield from _of_listeners(sockets)
    yield from _of_full_buffers(sockets)


def _of_all(sockets: Sockets) -> Iterator[Said]:
    rows = sockets.rows
    message, is_tcp = rows["message"], rows["protocol"] == TCP
    states = np.bincount(message["state"][is_tcp], minlength=32)
    for state in _STATES:
        yield "", f"tcp.{STATE_NAMES[state]}", int(states[state])
    values = signs(rows, change(sockets)).values
    for name in _SIGNS:
        yield "", f"tcp.{name}_sockets", int(np.count_nonzero(is_tcp & ~np.isnan(values[name])))
    yield "", "udp.sockets", int(np.count_nonzero(~is_tcp))
    yield "", "udp.receive_buffer_sockets", int(np.count_nonzero(~is_tcp & ~np.isnan(values["receive_buffer"])))
    connected = is_tcp & (message["state"] != State.LISTEN)
    yield "", "tcp.receive_queue_bytes", int(message["rqueue"][connected].sum())
    yield "", "tcp.send_queue_bytes", int(message["wqueue"][connected].sum())
    yield "", "udp.receive_queue_bytes", int(message["rqueue"][~is_tcp].sum())


def _of_listeners(sockets: Sockets) -> Iterator[Said]:
    message = sockets.rows["message"]
    listening = (sockets.rows["protocol"] == TCP) & (message["state"] == State.LISTEN)
    share = message["rqueue"] / np.maximum(message["wqueue"], 1)
    waiting = {}
    for name, row in _fullest(sockets, listening, share):
        subject = f"{name} tcp listener"
        yield subject, "queue", int(message["rqueue"][row])
        yield subject, "backlog", int(message["wqueue"][row])
        if message["rqueue"][row]:
            waiting[int(message["inode"][row])] = subject
    yield from of_listeners(waiting)


def _of_full_buffers(sockets: Sockets) -> Iterator[Said]:
    memory = sockets.rows["memory"]
    share = memory["rmem_alloc"] / np.maximum(memory["rcvbuf"], 1)
    full = (sockets.rows["protocol"] != TCP) & (share >= 0.5)
    for name, row in _fullest(sockets, full, share):
        subject = f"{name} {PROTOCOLS[int(sockets.rows['protocol'][row])]}"
        yield subject, "receive_bytes", int(memory["rmem_alloc"][row])
        yield subject, "receive_limit_bytes", int(memory["rcvbuf"][row])


def _fullest(sockets: Sockets, chosen: NDArray[Any], share: NDArray[Any]) -> Iterator[tuple[str, int]]:
    """Yield the local end of the chosen ones and their row: of those that share one, the fullest."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(-share[rows], kind="stable")]
    names = ends(Sockets(sockets.rows[rows], 0, 0), "local")
    first: dict[str, int] = {}
    for name, row in zip(names, rows.tolist(), strict=True):
        first.setdefault(name, row)
    yield from first.items()
