# SPDX-License-Identifier: Apache-2.0
"""The kernel's stamps of what arrives, which begin some time after somebody asked for them."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from hopscope.timestamping import Sof, enable, receive
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60.0


@contextlib.contextmanager
def stamping() -> Iterator[None]:
    """Have the kernel stamp whatever arrives, on any socket that wants it, from the first packet on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(PATIENCE_S)
        enable(sock, Sof.RX_SOFTWARE | Sof.SOFTWARE)

        def is_stamped() -> bool:
            sock.sendto(b"", sock.getsockname())
            return receive(sock, 1).software_ns is not None

        eventually(is_stamped, "the kernel does not stamp what it receives")
        yield
