# SPDX-License-Identifier: Apache-2.0
"""Packets for Wireshark, tcpdump and their kin: a pcapng file with a row for each packet on a host.

The hops of a packet are in the comment of its row, and which fields there are, with their units, in the comment of the
file: a dissector can be made of that. A recording has no bytes of packets, so that headers are made of what it has:
addresses, ports, sequence number, flags, and all lengths are the packet's; acknowledgement number, window, options,
checksums of the transport, time to live and link addresses are not known. No payload is made.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import numpy as np

from hopscope.progress import doing
from hopscope.term import pcapng
from hopscope.term.format import plural
from hopscope.trace.causes.blame import most_blamed
from hopscope.trace.gaps import loss_notes
from hopscope.trace.host_numbers import host_of_netns
from hopscope.trace.names import points
from hopscope.trace.relation import build
from hopscope.verbs.report.message_packets import follow_packets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

# Devices whose packets have a header of Ethernet's length before the network's: ARPHRD_ETHER and ARPHRD_LOOPBACK.
_WITH_LINK: Final = frozenset({1, 772})
_SLICE: Final = 1 << 16
# Messages whose packets are looked for: of one flow, this takes the square of their number.
_MOST_MESSAGES: Final = 10_000

# Packets of which at least one event is selected, whole, as far as their flow is known.
_EVENTS: Final = """
    SELECT packet, time_ns, coalesce(from_time_ns, time_ns) AS from_ns, cpu, point, skb, flow, len_bytes, header_bytes,
           seq, tcp_flags, ifindex, netns
    FROM (
        SELECT *, max(CASE WHEN {wanted} THEN 1 ELSE 0 END) OVER (PARTITION BY packet) AS wanted,
               min(time_ns) OVER (PARTITION BY packet) AS begin_ns, max(life_flow) OVER (PARTITION BY packet) AS most,
               min(life_flow) OVER (PARTITION BY packet) AS least
        FROM skb_lifetimes) l
    WHERE wanted = 1 AND (most <> 0 OR least <> 0) AND {window} ORDER BY packet, time_ns, point"""
_UNKNOWN_PACKETS: Final = """
    SELECT count(*) FROM (
        SELECT packet FROM skb_lifetimes WHERE {place}
        GROUP BY packet HAVING min(life_flow) = 0 AND max(life_flow) = 0 AND {window}) p"""
_MESSAGES: Final = """
    SELECT m.message, c.* FROM messages m LEFT JOIN message_causes c ON c.message = m.message ORDER BY m.message"""
_CARRIED: Final = """
    SELECT p.packet, min(p.message), count(DISTINCT p.message), count(r.packet)
    FROM chosen_packets p LEFT JOIN chosen_retransmissions r ON r.packet = p.packet AND r.message = p.message
    GROUP BY p.packet"""
_DROPS: Final = """
    SELECT d.time_ns, d.cpu, d.skb, coalesce(r.name, CAST(d.reason AS STRING)), coalesce(s.name, '')
    FROM drops d LEFT JOIN reasons r ON r.reason = d.reason LEFT JOIN symbols s ON s.address = d.location"""

# Whose address each is, as sockets have used it: those of one namespace.
_ADDRESSES: Final = f"""
    SELECT a.address, max(n.name), max(h.name)
    FROM (SELECT DISTINCT CASE WHEN p.name LIKE 'tx.%' THEN f.source ELSE f.destination END AS address, s.netns
          FROM sockets s JOIN flows f ON f.flow = s.flow JOIN points p ON p.point = s.point
          WHERE p.name LIKE 'tx.%' OR p.name LIKE 'rx.%') a
    LEFT JOIN netns_names n ON n.netns = a.netns LEFT JOIN hosts h ON h.host = {host_of_netns("a.netns")}
    GROUP BY a.address HAVING count(DISTINCT a.netns) = 1 ORDER BY a.address"""
# What the host's own namespace is called, after its first process.
_FIRST_PROCESS: Final = "1 ("


def write_pcapng(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write the packets; return sentences on what is missing.

    Parameters
    ----------
    trace, selection
        The recording, and the packets: those with an event that is selected, and that begin in its period.
    out
        What to write to.
    limit
        Maximum number of packets; the earliest are written. None: all.
    """
    build(trace, "skb_lifetimes", "device_names", "netns_names", "flow_owners")
    doing("following packets")
    wanted = f"{selection.flow(trace, 'life_flow')} AND {selection.place(trace, 'life_')}"
    events = trace.columns(_EVENTS.format(wanted=wanted, window=selection.window(trace, "begin_ns")))
    columns = {name: np.ma.getdata(values) for name, values in events.items()}
    starts = np.flatnonzero(np.diff(columns["packet"], prepend=columns["packet"][:1] - 1))
    found = len(starts)
    bounds = np.append(starts, len(columns["packet"]))[: found + 1 if limit is None else limit + 1]
    written = max(len(bounds) - 1, 0)
    doing("following messages")
    carried, notes = _carried(trace, selection)
    file = _File(trace, out, carried)
    file.begin(np.unique(columns["point"]).tolist())
    for first in range(0, written, _SLICE):
        doing("writing packets", first, written)
        file.packets(columns, bounds[first : first + _SLICE + 1].tolist())
    file.end()
    return [*_left_out(found - written), *notes, *_unknown(trace, selection), *loss_notes(trace)]


def _left_out(packets: int) -> list[str]:
    return [f"left out: {plural(packets, 'packet')}, the latest ones (--limit)"] if packets else []


def _unknown(trace: Trace, selection: Selection) -> list[str]:
    """Return a sentence on packets of no known flow, unless flows are selected, which they have not."""
    if selection.is_by_flow or selection.processes:
        return []
    window = selection.window(trace, "min(time_ns)")
    query = _UNKNOWN_PACKETS.format(place=selection.place(trace, "life_"), window=window)
    ((count,),) = trace.rows(query)
    return [f"left out: {plural(count, 'packet')} whose addresses were not recorded"] if count else []


class _Carried(NamedTuple):
    """Which message's bytes a packet carries (the first one's), of how many, what held that, and whether again."""

    message: int
    messages: int
    cause: str
    again: bool


def _carried(trace: Trace, selection: Selection) -> tuple[dict[int, _Carried], list[str]]:
    """Return packet → what it carries; and a sentence if messages are too many for that."""
    build(trace, "messages", selection=selection)
    ((count,),) = trace.rows("SELECT count(*) FROM messages WHERE total_ns > 0")
    if count > _MOST_MESSAGES:
        many = f"they carry {count:,} messages, more than {_MOST_MESSAGES:,}"
        return {}, [f"no messages and causes of packets: {many}. Select a part with --from, --until or --flow"]
    build(trace, "message_causes", selection=selection)
    follow_packets(trace, selection)
    rows = trace.columns(_MESSAGES)
    causes = np.ma.filled(most_blamed(rows)[0], "").tolist()
    held_by = dict(zip(np.ma.getdata(rows["message"]).tolist(), causes, strict=True))
    found = {
        packet: _Carried(message, messages, held_by[message], again > 0)
        for packet, message, messages, again in trace.rows(_CARRIED)
    }
    return found, []


class _File:
    """The file as it is written, block by block in order of time."""

    def __init__(self, trace: Trace, out: BinaryIO, carried: Mapping[int, _Carried]) -> None:
        self._out = out
        self._carried = carried
        self._trace = trace
        metadata = trace.metadata
        self._to_realtime_ns = metadata.realtime_ns - metadata.started_ns
        self._points: Mapping[int, str] = {number: name for name, number in points(trace).items()}
        self._flows = dict(self._read_flows())
        self._owners = {
            (flow, bool(sends)): (pid, comm)
            for flow, sends, pid, comm in trace.rows("SELECT flow, sends, pid, comm FROM flow_owners")
        }
        self._drops = {(at_ns, cpu, skb): (reason, place) for at_ns, cpu, skb, reason, place in trace.rows(_DROPS)}
        losses = trace.rows("SELECT from_ns, until_ns, cpu, lost FROM losses WHERE lost > 0 ORDER BY from_ns, cpu")
        self._losses: Iterator[tuple[int, ...]] = iter(losses)
        self._next_loss = next(self._losses, None)
        self._devices = {
            (netns, ifindex): (number, name, kind in _WITH_LINK)
            for number, (netns, ifindex, name, kind) in enumerate(
                trace.rows(
                    "SELECT d.netns, d.ifindex, max(n.label), max(d.type) FROM devices d"
                    " JOIN device_names n ON n.netns = d.netns AND n.ifindex = d.ifindex"
                    " GROUP BY d.netns, d.ifindex ORDER BY d.netns, d.ifindex"
                ),
                1,
            )
        }
        self._counts = [0] * (len(self._devices) + 1)
        self._dropped = [0] * (len(self._devices) + 1)
        self._last_ns = metadata.started_ns

    def begin(self, numbers: Iterable[int]) -> None:
        """Write what comes before packets: of the file, its fields; of each device, its name."""
        names = sorted(self._points[number] for number in numbers)
        fields = ["packet:number", "total:us", *(f"{name}:us" for name in names)]
        fields += ["dropped:text", "at:text", "pid:number", "comm:text", "message:number"]
        fields += ["messages:number", "cause:text", "retransmission:flag", "synthetic:flag"]
        host = self._trace.metadata.host
        recorded = f"hopscope, recorded on {host.get('name', '')} {host.get('release', '')}"
        self._out.write(pcapng.section(fields, recorded))
        self._out.write(pcapng.interface("-", "no device is known"))
        for (netns, ifindex), (_, name, _) in self._devices.items():
            self._out.write(pcapng.interface(name, f"device {ifindex} in network namespace {netns}"))
        if named := dict(self._names()):
            self._out.write(pcapng.names(named))

    def packets(self, columns: Mapping[str, Any], bounds: Sequence[int]) -> None:
        """Write packets, whose events lie between these places of the columns."""
        base = bounds[0]
        part = {name: values[base : bounds[-1]].tolist() for name, values in columns.items()}
        for first, last in itertools.pairwise(bounds):
            self._packet({name: values[first - base : last - base] for name, values in part.items()})

    def end(self) -> None:
        """Write what comes after packets: losses after the last of them, and of each device how many there were.

        What was lost is of no device that is known, and its events are counted, as it is not known of how many packets.
        """
        self._lose(None)
        ((lost,),) = self._trace.rows("SELECT coalesce(sum(lost), 0) FROM losses")
        for number, (count, dropped) in enumerate(zip(self._counts, self._dropped, strict=True)):
            counts = {pcapng.RECEIVED: count, pcapng.DROPPED: dropped} | ({} if number else {pcapng.LOST: lost})
            self._out.write(pcapng.statistics(number, self._last_ns + self._to_realtime_ns, counts))

    def _names(self) -> Iterator[tuple[str, str]]:
        """Yield addresses that one namespace alone has, and what that is called: a container, or the host."""
        host = self._trace.metadata.host.get("name", "")
        for address, namespace, of_hosts in self._trace.rows(_ADDRESSES):
            own = namespace or of_hosts or ""
            name = (of_hosts or host) if own.startswith(_FIRST_PROCESS) else own
            with contextlib.suppress(ValueError):  # of a stranger's recording
                known = ipaddress.ip_address(address)
                if name and not (known.is_loopback or known.is_unspecified or known.is_multicast):
                    yield address, name

    def _packet(self, event: Mapping[str, list[Any]]) -> None:
        times = event["time_ns"]
        self._lose(times[0])
        known = next((place for place, flow in enumerate(event["flow"]) if flow in self._flows), None)
        if known is None:
            return
        names = [self._points[number] for number in event["point"]]
        sends = names[0].startswith(("tx.", "tcp."))
        where = next((each for each in zip(event["netns"], event["ifindex"], strict=True) if each[1]), (0, 0))
        number, _, _ = self._devices.get(where, (0, "", False))
        data, length = self._headers(event, known, names[known])
        # From the point before on the packet's path; on a further device, a point comes again, and adds to its time.
        spent: dict[str, int] = {}
        for name, from_ns, time_ns in list(zip(names, event["from_ns"], times, strict=True))[1:]:
            spent[name] = spent.get(name, 0) + time_ns - from_ns
        words = [f"packet={event['packet'][0]}", f"total={(times[-1] - times[0]) / 1000:.3f}us"]
        words += [f"{name}={spent_ns / 1000:.3f}us" for name, spent_ns in spent.items()]
        ends = self._ends(event)
        words += ends
        pid, comm = self._owners.get((event["flow"][known], sends), (None, ""))
        if pid is not None:
            words += [f"pid={pid}", f"comm={pcapng.quoted(comm)}"]
        if carried := self._carried.get(event["packet"][0]):
            words += [f"message={carried.message}", f"messages={carried.messages}"]
            words += [f"cause={pcapng.quoted(carried.cause)}"] * bool(carried.cause)
            words += ["retransmission"] * carried.again
        at_ns = times[0] + self._to_realtime_ns
        options = (
            (pcapng.COMMENT, f"hopscope {' '.join(words)} synthetic".encode()),
            (pcapng.FLAGS, struct.pack("<I", pcapng.OUTBOUND if sends else pcapng.INBOUND)),
            (pcapng.PACKET_ID, struct.pack("<Q", event["packet"][0] & 0xFFFFFFFFFFFFFFFF)),
        )
        self._out.write(pcapng.packet(number, at_ns, data, length, options))
        self._counts[number] += 1
        self._dropped[number] += bool(ends)
        self._last_ns = max(self._last_ns, times[-1])

    def _ends(self, event: Mapping[str, list[Any]]) -> list[str]:
        """Return why and where the kernel dropped the packet, if it did."""
        for key in zip(event["time_ns"], event["cpu"], event["skb"], strict=True):
            if key in self._drops:
                reason, place = self._drops[key]
                return [f"dropped={pcapng.quoted(reason)}", *([f"at={pcapng.quoted(place)}"] if place else [])]
        return []

    def _headers(self, event: Mapping[str, list[Any]], known: int, point: str) -> tuple[bytes, int]:
        """Return the headers of a packet as they were at this event, and the packet's length with Ethernet's."""
        flow = self._flows[event["flow"][known]]
        place = (event["netns"][known], event["ifindex"][known])
        link = pcapng.LINK_BYTES if point.startswith("tx.") and self._devices.get(place, (0, "", False))[2] else 0
        told = {name: event[name][known] for name in ("seq", "tcp_flags", "header_bytes", "len_bytes")}
        return flow.headers(**told, link=link)

    def _lose(self, until_ns: int | None) -> None:
        """Write the losses that began before a time; None: the rest."""
        while self._next_loss and (until_ns is None or self._next_loss[0] <= until_ns):
            from_ns, lost_ns, cpu, lost = self._next_loss
            message = f"lost: {plural(lost, 'event')} on CPU {cpu} within {(lost_ns - from_ns) / 1e6:.3f} ms"
            self._out.write(pcapng.journal(message, from_ns + self._to_realtime_ns))
            self._next_loss = next(self._losses, None)

    def _read_flows(self) -> Iterator[tuple[int, pcapng.Flow]]:
        rows = self._trace.rows("SELECT flow, source, source_port, destination, destination_port, protocol FROM flows")
        for number, *ends in rows:
            if flow := pcapng.Flow.of(*ends):
                yield number, flow
