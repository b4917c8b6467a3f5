# SPDX-License-Identifier: Apache-2.0
"""The first bytes each way: a line that names the protocol, then who is there.

Each side says its own at once and then reads the other's. Before the agent's, there may be what a login shell prints.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from hopscope import __version__
from hopscope.agent.message import decode, encode, printable
from hopscope.clock.domain import boot_id
from hopscope.errors import ConnectionLostError, FormatError, HopscopeError, VersionError

if TYPE_CHECKING:
    from hopscope.agent.frames import FrameReader

Side = Literal["agent", "client"]
PROTOCOL: Final = 1
BANNER_BYTES: Final = 64 << 10
HELLO_BYTES: Final = 16 << 10
_QUOTED_CHARACTERS: Final = 200
_VERSION_CHARACTERS: Final = 40
_LENGTH: Final = struct.Struct("<I")
_ANCESTORS: Final = 16


class Connection(NamedTuple):
    """Both ends of a connection over TCP.

    Attributes
    ----------
    client, client_port
        Of the one that connected.
    server, server_port
        Of the other.
    """

    client: str
    client_port: int
    server: str
    server_port: int


@dataclass(frozen=True, slots=True)
class Hello:
    """Who is on the other side of a channel.

    Attributes
    ----------
    version
        hopscope's.
    host
        The host's own name.
    boot_id
        The same for as long as its CLOCK_MONOTONIC goes on.
    monotonic_ns, realtime_ns
        Its clocks when it said hello.
    connection
        By which the client came to the agent, as the agent sees it; None if it does not know.
    """

    version: str = __version__
    host: str = field(default_factory=socket.gethostname)
    boot_id: str = field(default_factory=boot_id)
    monotonic_ns: int = field(default_factory=time.monotonic_ns)
    realtime_ns: int = field(default_factory=time.time_ns)
    connection: Connection | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the agent is reached, as far as it knows."""
        return (self.connection.server,) if self.connection else ()


def greeting(side: Side, hello: Hello) -> bytes:
    """Return the first bytes that a side sends."""
    raw = encode(asdict(hello), HELLO_BYTES)
    return b"%s%d\n%s%s" % (_magic(side), PROTOCOL, _LENGTH.pack(len(raw)), raw)


def read_greeting(reader: FrameReader, side: Side, name: str) -> Hello:
    """Read the first bytes of the other side, which is the agent or the client.

    Raises
    ------
    ConnectionLostError
        They end before they are complete.
    FormatError
        They are something else.
    VersionError
        It is another version of hopscope.
    """
    if reader.find(_magic(side), BANNER_BYTES) is None:
        raise _no_greeting(reader.held(), name)
    protocol = reader.find(b"\n", 8) or b""
    if protocol != b"%d\n" % PROTOCOL:
        raise VersionError(
            f"The {side} on {name} speaks protocol {printable(protocol.decode(errors='replace').strip(), 8) or '?'}"
            f" and this is hopscope {__version__} with protocol {PROTOCOL}",
            "Install the same version on both",
        )
    raw = bytearray(_LENGTH.size)
    reader.take(memoryview(raw))
    (length,) = _LENGTH.unpack(raw)
    if length > HELLO_BYTES:
        raise FormatError(f"The {side} on {name} sent a greeting of {length:,} bytes; the maximum is {HELLO_BYTES:,}")
    raw = bytearray(length)
    reader.take(memoryview(raw))
    message = decode(raw)
    if message.get("version") != __version__:  # which may say hello otherwise, too
        version = printable(message.get("version"), _VERSION_CHARACTERS)
        raise VersionError(
            f"The {side} on {name} is hopscope {version}, this is {__version__}", "Install the same version on both"
        )
    return _checked(message)


def ssh_connection() -> Connection | None:
    """Return the connection of the ssh session that this process runs in, None if it runs in none.

    sudo drops the variable that says so: then an ancestor of this process has it.
    """
    words = os.environ.get("SSH_CONNECTION", "") or _of_ancestors(rb"SSH_CONNECTION=([^\0]*)")
    try:
        client, client_port, server, server_port = words.split()
        return _connection([client, int(client_port), server, int(server_port)])
    except ValueError:
        return None


def _magic(side: Side) -> bytes:
    return f"hopscope-{side}/".encode()


def _no_greeting(said: bytes, name: str) -> HopscopeError:
    quote = printable(" ".join(said.decode(errors="replace").split()), _QUOTED_CHARACTERS)
    if len(said) >= BANNER_BYTES:
        return FormatError(
            f"{name} did not answer as a hopscope agent, but with: {quote}",
            "Check what its shell prints at the start, and --remote-command",
        )
    after = f", but said: {quote}" if quote else ""
    return ConnectionLostError(f"{name} sent no greeting{after}", how="ended")


def _checked(message: dict[str, Any]) -> Hello:
    texts = {name: message.get(name) for name in ("version", "host", "boot_id")}
    times = {name: message.get(name) for name in ("monotonic_ns", "realtime_ns")}
    connection = message.get("connection")
    if not (
        all(isinstance(text, str) and re.fullmatch(r"[\w.:+-]{1,255}", text, re.ASCII) for text in texts.values())
        and all(type(time_ns) is int and 0 <= time_ns < 1 << 63 for time_ns in times.values())
        and message.keys() == {*texts, *times, "connection"}
    ):
        raise FormatError("The other side's hello has a field that is missing or wrong")
    return Hello(**texts, **times, connection=_connection(connection))  # type: ignore[arg-type]


def _connection(said: object) -> Connection | None:
    match said:
        case None:
            return None
        case [str(client), int(client_port), str(server), int(server_port)]:
            ports = {client_port, server_port}
            if all(0 < port < 1 << 16 for port in ports) and all(map(_is_address, (client, server))):
                return Connection(client, client_port, server, server_port)
    raise FormatError("The other side says nothing of its connection that there is")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _of_ancestors(pattern: bytes) -> str:
    pid = os.getppid()
    for _ in range(_ANCESTORS):
        try:
            found = re.search(pattern, Path(f"/proc/{pid}/environ").read_bytes())
            if found:
                return found[1].decode(errors="replace")
            pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:
            break
        if not pid:
            break
    return ""
