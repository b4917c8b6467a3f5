# SPDX-License-Identifier: Apache-2.0
"""What hopscope itself sends and receives, for the kernel side to leave out."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from hopscope.bpf.layout import HopRecordLimits
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from hopscope.libbpf import BpfObject

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# An address and a port; None is any.
End: TypeAlias = tuple[Address | None, int | None]

_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
_PROTOCOLS: Final = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}
_PORTS: Final = 1 << 16
_NONE: Final = 0xFFFFFFFF


class OwnFlow(NamedTuple):
    """Two ends that talk to each other; what is None may be any.

    Attributes
    ----------
    protocol
        ``tcp`` or ``udp``.
    address, port
        Of one end.
    peer_address, peer_port
        Of the other one; address and port are 0 for a socket that is connected to none.
    """

    protocol: str
    address: Address | None
    port: int
    peer_address: Address | None = None
    peer_port: int | None = None


class OwnFlows:
    """What the kernel side leaves out, which may change while it runs.

    Parameters
    ----------
    own : ndarray of ``struct hop_own``, shape ()
        As the kernel side has it.
    """

    def __init__(self, own: NDArray[np.void]) -> None:
        self._own = own
        self._places: dict[tuple[End, End, str], int] = {}

    def set(self, flows: Iterable[OwnFlow]) -> None:
        """Leave these out from now on, in both directions, and no others.

        Raises
        ------
        UsageError
            They are more than the kernel side takes.
        """
        wanted = {each for flow in flows for each in _directions(flow)}
        if len(wanted) > HopRecordLimits.HOP_OWN_FLOWS:
            raise UsageError(
                "hopscope has too many connections of its own to exclude", "Give fewer hosts in one command"
            )
        for gone in self._places.keys() - wanted:
            # What no packet has: all bits of a protocol.
            self._own["flows"][self._places.pop(gone)]["word"][-1] = _NONE
        free = (place for place in range(HopRecordLimits.HOP_OWN_FLOWS) if place not in {*self._places.values()})
        for new, place in zip(sorted(wanted - self._places.keys(), key=repr), free, strict=False):
            self._put(*new, place)
            self._places[new] = place

    def _put(self, source: End, destination: End, protocol: str, place: int) -> None:
        ends = [_words(*source), _words(*destination)]
        entry = self._own["flows"][place]
        for name, part in (("word", 0), ("mask", 1)):
            addresses, ports = zip(*(end[part] for end in ends), strict=True)
            entry[name] = np.frombuffer(b"".join((*addresses, *ports)) + bytes(4), np.uint32)
        entry["word"][-1], entry["mask"][-1] = _PROTOCOLS[protocol], _NONE
        self._own["count"] = max(int(self._own["count"]), place + 1)
        # The last step: from here on, packets of that port are compared.
        for _, port in (source, destination):
            if port:
                index = int.from_bytes(port.to_bytes(2, "big"), "little")
                self._own["ports"][index >> 6] |= np.uint64(1 << (index & 63))


class SelfTrafficFilter:
    """A collector whose kernel side leaves out what is ours (``bpf/common/own.h``)."""

    _own: list[OwnFlow] | None = None
    _own_flows: OwnFlows | None = None

    def leave_out(self, flows: Iterable[OwnFlow]) -> None:
        """Leave out these flows from now on, whatever was left out before.

        Before it is entered, too, if there may ever be any: the programs are made for that.

        Raises
        ------
        UsageError
            They are too many.
        """
        self._own = list(flows)
        if self._own_flows:
            self._own_flows.set(self._own)

    def _configure_own(self, bpf: BpfObject) -> None:
        """Set the constant."""
        bpf.set_const("cfg_own", int(self._own is not None))

    def _start_own(self, bpf: BpfObject) -> None:
        """Tell the loaded programs what is ours."""
        self._own_flows = OwnFlows(bpf.data(".bss.own")["own"])
        self._own_flows.set(self._own or ())


def _directions(flow: OwnFlow) -> Iterator[tuple[End, End, str]]:
    ends = (flow.address, flow.port), (flow.peer_address, flow.peer_port)
    yield ends[0], ends[1], flow.protocol
    yield ends[1], ends[0], flow.protocol


def own_flow(fields: Sequence[Any]) -> OwnFlow:
    """Return what another host says to be a flow of ours: the fields of :class:`OwnFlow`, with addresses as text.

    Raises
    ------
    UsageError
        It is none.
    """
    wrong = UsageError("A flow to exclude is malformed", "Give the protocol, and the address and port of each end")
    try:
        protocol, address, port, peer_address, peer_port = fields
        addresses = [None if text is None else _address(text) for text in (address, peer_address)]
    except (TypeError, ValueError) as error:
        raise wrong from error
    if protocol not in list(_PROTOCOLS) or not _is_port(port, 1) or not (peer_port is None or _is_port(peer_port, 0)):
        raise wrong
    return OwnFlow(protocol, addresses[0], port, addresses[1], peer_port)


def _address(text: object) -> Address:
    if not isinstance(text, str):  # a number would do for Python
        raise TypeError(text)
    return ipaddress.ip_address(text)


def _is_port(number: object, least: int) -> bool:
    return type(number) is int and least <= number < _PORTS


def _words(address: Address | None, port: int | None) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """Return an end's address and port as packets have them, and which bits of them count."""
    if address is None:
        packed, mask = bytes(16), bytes(16)
    else:
        packed = (_MAPPED if address.version == 4 else b"") + address.packed  # of IP
        mask = b"\xff" * 16
    return (packed, (port or 0).to_bytes(2, "big")), (mask, (b"\0\0" if port is None else b"\xff\xff"))
