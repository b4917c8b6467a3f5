# SPDX-License-Identifier: Apache-2.0
"""What the service manager is told: sd_notify(3), a datagram to the socket that it names."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*states: str) -> None:
    """Tell the service manager of a state, such as ``READY=1``; nothing where there is none."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock, contextlib.suppress(OSError):
        sock.sendto("\n".join(states).encode(), path.replace("@", "\0", 1) if path.startswith("@") else path)
