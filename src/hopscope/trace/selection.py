# SPDX-License-Identifier: Apache-2.0
"""The selected part of a trace, as SQL conditions.

Values of the same kind are alternatives; different kinds must all match.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.trace.host_numbers import own_thread
from hopscope.trace.packets.open_ends import MEANT
from hopscope.trace.packets.reverse_flows import reverses

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hopscope.store.trace import Trace

_NS_PER_S: Final = 1e9
_FLOW: Final = re.compile(r"(?P<source>\S+?)\s*(?P<way>->|>|→|<->|=)\s*(?P<destination>\S+)")
_BOTH_WAYS: Final = ("<->", "=")
_EVERYTHING: Final = "TRUE"
_PROTOCOLS: Final = {"tcp": 6, "udp": 17}


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection; empty: everything.

    Parameters
    ----------
    flows
        Number of a flow, or ``ADDRESS:PORT>ADDRESS:PORT`` (``=`` instead of ``>``: both directions).
    ports, addresses
        Of either endpoint; an address may be a network, ``10.0.0.0/8``.
    processes
        Names of threads, or PIDs, whose sockets' packets are selected.
    interfaces
        Names of devices.
    namespaces
        Names, or inodes, of network namespaces in which the packets and sockets are.
    protocol
        ``tcp`` or ``udp``; None: any.
    from_s, until_s
        Seconds since the start of the recording.
    where
        A condition on events (:mod:`hopscope.model.condition`), of those that are listed or exported one by one; empty:
        none.
    """

    flows: Sequence[str] = ()
    ports: Sequence[int] = ()
    addresses: Sequence[str] = ()
    processes: Sequence[str] = ()
    interfaces: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    protocol: str | None = None
    from_s: float | None = None
    until_s: float | None = None
    where: str = ""

    def __bool__(self) -> bool:
        """Whether it excludes anything."""
        return self.is_by_packet or self.has_window

    @property
    def is_by_packet(self) -> bool:
        """Whether it is limited to some packets, by anything but their time."""
        return self.is_by_flow or bool(self.processes) or self.is_by_place

    @property
    def has_window(self) -> bool:
        """Whether it is limited in time."""
        return self.from_s is not None or self.until_s is not None

    @property
    def is_by_flow(self) -> bool:
        """Whether it is limited to some flows by what flows have themselves."""
        return bool(self.flows or self.ports or self.addresses or self.protocol)

    @property
    def is_by_place(self) -> bool:
        """Whether it is limited to where packets pass."""
        return bool(self.interfaces or self.namespaces)

    def window(self, trace: Trace, column: str = "time_ns") -> str:
        """Return the condition that a time is within the selected period."""
        started_ns = trace.metadata.started_ns
        parts = []
        if self.from_s is not None:
            parts.append(f"{column} >= {started_ns + round(self.from_s * _NS_PER_S)}")
        if self.until_s is not None:
            parts.append(f"{column} < {started_ns + round(self.until_s * _NS_PER_S)}")
        return _all(parts)

    def flow(self, trace: Trace, column: str = "flow") -> str:
        """Return the condition that a flow is selected, itself or by the process that owns its socket.

        Raises
        ------
        UsageError
            A value is malformed, or the trace has no such process.
        """
        parts = [_any(map(_flow, self.flows)), _any(map(_port, self.ports)), _any(self._networks(trace))]
        if self.protocol:
            parts.append(f"protocol = {_PROTOCOLS[self.protocol]}")
        wanted = _all([part for part in parts if part != _EVERYTHING])
        conditions = []
        if wanted != _EVERYTHING:
            conditions.append(f"{column} IN (SELECT flow FROM flows WHERE {wanted})")
        if self.processes:
            conditions.append(f"{column} IN ({self._flows_of_processes(trace)})")
        return _all(conditions)

    def place(self, trace: Trace, prefix: str = "") -> str:
        """Return the condition that ``netns`` and ``ifindex``, with this prefix, are of a selected place.

        Raises
        ------
        UsageError
            The trace has no such device or namespace.
        """
        conditions = (self._device(trace, prefix), self.namespace(trace, prefix))
        return _all([each for each in conditions if each != _EVERYTHING])

    def namespace(self, trace: Trace, prefix: str = "") -> str:
        """Return the condition that ``netns``, with this prefix, is a selected namespace.

        Raises
        ------
        UsageError
            The trace has no such namespace.
        """
        if not self.namespaces:
            return _EVERYTHING
        named = trace.rows("SELECT DISTINCT name, netns FROM namespaces")
        numbered = trace.rows("SELECT DISTINCT CAST(netns AS STRING), netns FROM devices")
        chosen: set[int] = set()
        for each in self.namespaces:
            found = {netns for name, netns in (*named, *numbered) if each in {name, name.partition(" (")[0]}}
            if not found:
                has = ", ".join(sorted({name for name, _ in named or numbered})) or "none"
                raise UsageError(
                    f"{trace.folder} has no packets in the network namespace {each}",
                    f"The recorded namespaces are {has}",
                )
            chosen |= found
        return f"{prefix}netns IN ({', '.join(map(str, sorted(chosen)))})"

    def passing(self, trace: Trace) -> str:
        """Return the query for the flows with a packet at a selected place, or with a socket in a selected namespace.

        Raises
        ------
        UsageError
            As of :meth:`place`.
        """
        packets = f"SELECT flow FROM packets WHERE {self.place(trace)}"
        if self.interfaces:
            return packets
        return f"{packets} UNION ALL SELECT flow FROM sockets WHERE {self.namespace(trace)}"

    def _device(self, trace: Trace, prefix: str) -> str:
        if not self.interfaces:
            return _EVERYTHING
        names = _texts(self.interfaces)
        found = {name for (name,) in trace.rows(f"SELECT DISTINCT name FROM devices WHERE name IN ({names})")}
        for name in self.interfaces:
            if name not in found:
                has = ", ".join(sorted(each for (each,) in trace.rows("SELECT DISTINCT name FROM devices"))) or "none"
                raise UsageError(
                    f"{trace.folder} has no packets at interface {name}", f"The recorded interfaces are {has}"
                )
        return f"({prefix}netns, {prefix}ifindex) IN (SELECT netns, ifindex FROM devices WHERE name IN ({names}))"

    def threads(self, trace: Trace) -> str:
        """Return the query for the numbers of the selected threads.

        Raises
        ------
        UsageError
            The trace has no such process.
        """
        for each in self.processes:
            if not trace.rows(f"SELECT 1 FROM threads WHERE {_process(each)} LIMIT 1"):
                raise UsageError(f"{trace.folder} has no process {each}", "`hopscope report summary` lists them")
        return f"SELECT tid FROM threads WHERE {_any(map(_process, self.processes))}"

    def _networks(self, trace: Trace) -> list[str]:
        return [_ends_in(network, trace) for network in map(_network, self.addresses)]

    def _flows_of_processes(self, trace: Trace) -> str:
        """Return the query for the flows of the processes' sockets, in both directions."""
        calls = f"SELECT flow FROM sockets WHERE tid IN ({self.threads(trace)}) AND flow <> 0 AND {_BY_CALLER}"
        own = f"SELECT meant FROM ({MEANT}) m WHERE m.flow IN ({calls})"
        return f"{own} UNION ALL SELECT back FROM ({reverses(trace)}) r WHERE flow IN ({own})"


# Other socket events may occur in any thread that a softirq interrupted.
_BY_CALLER: Final = "point IN (SELECT point FROM points WHERE name IN ('tx.send', 'tx.sent', 'rx.read', 'rx.received'))"


def _flow(text: str) -> str:
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        return f"flow = {text}"
    found = _FLOW.fullmatch(text)
    if not found:
        raise UsageError(
            f"--flow {text} is not a flow",
            "Give the number of a flow, or ADDRESS:PORT>ADDRESS:PORT (= instead of > for both directions)",
        )
    source, destination = (_end(found[side]) for side in ("source", "destination"))
    forth = _between(source, destination)
    return _any([forth, _between(destination, source)]) if found["way"] in _BOTH_WAYS else forth


def _end(text: str) -> tuple[str, str]:
    """Return the address and port of an endpoint, as SQL."""
    address, _, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port):
        raise UsageError(f"{text} is not an endpoint of a flow", "Give ADDRESS:PORT, or [ADDRESS]:PORT for IPv6")
    return _texts([_address(address.strip("[]"))]), port


def _between(source: tuple[str, str], destination: tuple[str, str]) -> str:
    return (
        f"(source = {source[0]} AND source_port = {source[1]}"
        f" AND destination = {destination[0]} AND destination_port = {destination[1]})"
    )


def _port(port: int) -> str:
    return f"(source_port = {port} OR destination_port = {port})"


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise UsageError(f"{text} is not an IP address", "Give a numeric address") from None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise UsageError(
            f"--address {text} is not an IP address", "Give a numeric address, with /LENGTH for a network"
        ) from None


def _ends_in(network: ipaddress.IPv4Network | ipaddress.IPv6Network, trace: Trace) -> str:
    if network.num_addresses == 1:
        members = [str(network.network_address)]
    else:
        known = trace.rows("SELECT DISTINCT source FROM flows UNION SELECT DISTINCT destination FROM flows")
        members = [text for (text,) in known if _is_in(text, network)]
    listed = _texts(members) if members else "NULL"
    return f"(source IN ({listed}) OR destination IN ({listed}))"


def _is_in(text: str | None, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Tell whether what a recording has for an address is in a network."""
    try:
        return ipaddress.ip_address(text or "") in network
    except ValueError:
        return False


def _process(text: str) -> str:
    return f"{own_thread('pid')} = {text}" if re.fullmatch(r"[0-9]{1,9}", text) else f"comm = {_texts([text])}"


def _texts(values: Iterable[str]) -> str:
    return ", ".join("'" + _encodable(value).replace("'", "''") + "'" for value in values)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!r} is not text in UTF-8", "Recordings have no such names") from None
    return text


def _all(parts: Sequence[str]) -> str:
    return " AND ".join(parts) if parts else _EVERYTHING


def _any(parts: Iterable[str]) -> str:
    listed = list(parts)
    return f"({' OR '.join(listed)})" if listed else _EVERYTHING
