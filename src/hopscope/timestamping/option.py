# SPDX-License-Identifier: Apache-2.0
"""The socket option: switch stamps on, and find out what this kernel knows of them."""

from __future__ import annotations

import errno as errnos
import functools
import socket
from typing import Final

from hopscope.errors import KernelError, UsageError
from hopscope.timestamping import _abi
from hopscope.timestamping.flags import TX_RECORD, Sof, sof_names

# What a flag cannot be without (sock_set_timestamping)
_NEEDS: Final = {Sof.OPT_STATS: Sof.OPT_TSONLY, Sof.OPT_ID_TCP: Sof.OPT_ID}


@functools.cache
def supported() -> Sof:
    """Return the flags that this kernel knows. Each is tried, on a socket that is thrown away; no version is asked.

    That it knows a flag does not mean that a driver heeds it: see ``hopscope probes`` for the interfaces.

    Raises
    ------
    KernelError
        The kernel has no such option (before Linux 5.1), or refuses to make a socket.
    """
    # A local socket: trying RX_SOFTWARE on one of the internet would switch stamps on for the whole host meanwhile.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
        return functools.reduce(Sof.__or__, (flag for flag in Sof if _knows(trial, flag)), Sof(0))


def _knows(trial: socket.socket, flag: Sof) -> bool:
    try:
        _set(trial, flag | _NEEDS.get(flag, Sof(0)))
    except OSError as error:
        if error.errno == errnos.ENOPROTOOPT:
            raise KernelError("This kernel has no SO_TIMESTAMPING_NEW", "Use Linux 5.1 or newer") from error
        # BIND_PHC on a socket without an interface is refused otherwise.
        return error.errno != errnos.EINVAL
    return True


def enable(sock: socket.socket, flags: Sof, *, phc: int | None = None) -> None:
    """Set the flags of a socket; no flag switches its stamps off. No privilege is needed.

    ``RX_SOFTWARE`` makes the kernel stamp every packet that this host receives, as long as any socket asks for it.
    It does so from some time after the call on: the first packets may come without.

    Parameters
    ----------
    sock
        TCP, UDP, raw, packet or another; a TCP socket has to be connected for ``OPT_ID``.
    flags
        Exactly these, nothing is added.
    phc
        Number N of a virtual clock ``/dev/ptpN`` that hardware stamps are converted to, with ``BIND_PHC``; the socket
        has to be bound to an interface.

    Raises
    ------
    UsageError
        The flags do not go together, or not with this socket.
    KernelError
        This kernel does not know a flag.
    """
    if Sof.BIND_PHC in flags and phc is None:
        raise UsageError("SOF_TIMESTAMPING_BIND_PHC needs the number of a clock", "Pass phc=N for /dev/ptpN")
    if Sof.BIND_PHC not in flags and phc is not None:
        raise UsageError("A clock is named, but SOF_TIMESTAMPING_BIND_PHC is not set", "Add it to the flags")
    try:
        _set(sock, flags, phc)
    except OSError as error:
        raise _refusal(sock, flags, phc, error) from error


def enabled(sock: socket.socket) -> Sof:
    """Return the flags that are set on a socket, by whomever.

    Raises
    ------
    OSError
        It is closed.
    """
    return settings(sock)[0]


def settings(sock: socket.socket) -> tuple[Sof, int | None]:
    """Return what `enable` was given: the flags, and with ``BIND_PHC`` the clock."""
    # The old number answers whichever of the two the flags were set with.
    value = sock.getsockopt(socket.SOL_SOCKET, _abi.SO_TIMESTAMPING_OLD, _abi.SO_TIMESTAMPING.size)
    flags = Sof(_abi.U32.unpack_from(value)[0])
    # Before Linux 5.14 there is but the flags.
    return flags, _abi.SO_TIMESTAMPING.unpack(value)[1] if Sof.BIND_PHC in flags else None


def send_control(record: Sof | None = None, packet_id: int | None = None) -> list[_abi.ControlMessage]:
    """Return control messages for one `socket.sendmsg`.

    Parameters
    ----------
    record
        Stages to stamp of this send alone, instead of those that the socket's flags say; none stamps nothing.
    packet_id
        The id that its stamps carry, 32 bits, with ``OPT_ID`` (``SCM_TS_OPT_ID``, Linux 6.13). The socket's own counter
        stands still. TCP refuses it with EINVAL, as older kernels do for all sockets.

    Raises
    ------
    UsageError
        A flag that is none of a stage.
    """
    control = []
    if record is not None:
        if record & ~TX_RECORD:
            what = f"One send cannot be given {sof_names(record & ~TX_RECORD)}"
            raise UsageError(what, f"Choose from {sof_names(TX_RECORD)}")
        control.append((socket.SOL_SOCKET, _abi.SO_TIMESTAMPING_NEW, _abi.U32.pack(record)))
    if packet_id is not None:
        control.append((socket.SOL_SOCKET, _abi.SCM_TS_OPT_ID, _abi.U32.pack(packet_id)))
    return control


def is_tcp(sock: socket.socket) -> bool:
    """Tell whether a socket is of TCP."""
    return sock.getsockopt(socket.SOL_SOCKET, _abi.SO_PROTOCOL) == socket.IPPROTO_TCP and sock.family in {
        socket.AF_INET,
        socket.AF_INET6,
    }


def _set(sock: socket.socket, flags: Sof, phc: int | None = None) -> None:
    value = _abi.U32.pack(flags) if phc is None else _abi.SO_TIMESTAMPING.pack(flags, phc)
    sock.setsockopt(socket.SOL_SOCKET, _abi.SO_TIMESTAMPING_NEW, value)


def _refusal(sock: socket.socket, flags: Sof, phc: int | None, error: OSError) -> KernelError | UsageError:
    unknown = Sof(int(flags) & ~int(supported()))  # Sof's own inversion leaves out bits that it has no name for
    if unknown:
        return KernelError(f"This kernel does not know {sof_names(unknown)}", "See hopscope.timestamping.supported()")
    for flag, other in _NEEDS.items():
        if flag in flags and other not in flags:
            return UsageError(f"{sof_names(flag)} does not work without {sof_names(other)}", "Add it to the flags")
    if phc is not None:
        what = f"Hardware stamps cannot be bound to /dev/ptp{phc}: {error.strerror}"
        return UsageError(what, "Bind the socket to an interface that has this virtual clock (SO_BINDTODEVICE)")
    if Sof.OPT_ID in flags and is_tcp(sock):
        return UsageError("A TCP socket that is not connected has no ids", "Connect it first")
    return UsageError(f"The socket refuses the flags: {error.strerror}", "Is it a network socket?")
