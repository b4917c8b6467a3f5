# SPDX-License-Identifier: Apache-2.0
"""Addresses of sockets as text, as ``ss -n`` writes them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hopscope.kernel.sockets.table import Seen, has

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hopscope.kernel.sockets.table import Rows, Sockets

End = Literal["local", "peer"]
_ADDRESS = {"local": "src", "peer": "dst"}
_PORT = {"local": "sport", "peer": "dport"}


def ports(rows: Rows, end: End) -> NDArray[np.int64]:
    """Return the ports of one end; 0: none."""
    found: NDArray[np.int64] = rows["message"][_PORT[end]].astype(np.int64)
    return found


def words(rows: Rows, end: End) -> NDArray[np.uint32]:
    """Return the addresses of one end as four numbers; those of IPv4 are the first."""
    found: NDArray[np.uint32] = rows["message"][_ADDRESS[end]].astype(np.uint32)
    return found


def addresses(rows: Rows, end: End) -> list[str]:
    """Return the addresses of one end: ``10.0.0.1``, ``fd00::1``, ``::ffff:10.0.0.1``, and ``*`` for both families."""
    raw = np.ascontiguousarray(rows["message"][_ADDRESS[end]]).view("V16")[:, 0]
    both = ~has(rows, Seen.SKV6ONLY) | (rows["v6only"] == 0)
    keys = np.zeros(len(rows), [("family", "u1"), ("both", "?"), ("address", "V16")])
    keys["family"], keys["both"], keys["address"] = rows["message"]["family"], both, raw
    return _each_once(keys)


def _each_once(keys: NDArray[Any]) -> list[str]:
    """Return texts; an address that many sockets have is written once."""
    known: dict[bytes, str] = {}
    plain = keys.tobytes()
    size = keys.dtype.itemsize
    texts = []
    for at in range(0, len(plain), size):
        key = plain[at : at + size]
        text = known.get(key)
        if text is None:
            text = known[key] = _text(key[0], both=bool(key[1]), address=key[2:])
        texts.append(text)
    return texts


def _text(family: int, *, both: bool, address: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[:4])
    if both and not any(address):
        return "*"
    return socket.inet_ntop(socket.AF_INET6, address)


def ends(sockets: Sockets, end: End) -> list[str]:
    """Return address, interface and port of one end of each socket: ``[fe80::1]%eth0:80``, ``*:53``."""
    rows = sockets.rows
    devices = device_names(rows, sockets.devices) if end == "local" else [""] * len(rows)
    return [
        f"{f'[{address}]' if ':' in address else address}{f'%{device}' if device else ''}:{port or '*'}"
        for address, device, port in zip(addresses(rows, end), devices, ports(rows, end).tolist(), strict=True)
    ]


def device_names(rows: Rows, devices: Mapping[tuple[int, int], str]) -> list[str]:
    """Return the interface that each socket is bound to; empty where it is bound to none."""
    indices = rows["message"]["ifindex"].tolist()
    return [
        devices.get((netns, index), f"if{index}") if index else ""
        for netns, index in zip(rows["netns"].tolist(), indices, strict=True)
    ]
