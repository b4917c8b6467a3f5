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
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import numpy as np

from hopscope.progress import doing
from hopscope.term import pcapng
from hopscope.term.format import plural
from hopscope.term.pcapng_packets import LINK_BYTES, Flows, Headers, Options, blocks
from hopscope.term.ragged import Joined, Ragged, decimals, together
from hopscope.trace.causes.blame import most_blamed
from hopscope.trace.gaps import loss_notes
from hopscope.trace.host_numbers import host_of_netns
from hopscope.trace.names import points
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.report.message_packets import follow_packets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.term.ragged import Bytes

# Devices whose packets have a header of Ethernet's length before the network's: ARPHRD_ETHER and ARPHRD_LOOPBACK.
_WITH_LINK: Final = frozenset({1, 772})
# Packets that are laid out at once, so few that they stay in the CPU's cache.
_SLICE: Final = 1 << 12
_DROP: Final = "skb.drop"
# Bits for numbers of devices, and of points.
_PLACE, _POINT = 24, 16
# Messages whose packets are looked for: of one flow, this takes the square of their number.
_MOST_MESSAGES: Final = 10_000

_EVENTS: Final = """
    SELECT packet, time_ns, coalesce(from_time_ns, time_ns) AS from_ns, cpu, point, skb, flow, len_bytes, header_bytes,
           seq, tcp_flags, ifindex, netns
    FROM {lifetimes} WHERE {chosen} ORDER BY packet, time_ns, point"""
# Packets of which at least one event is selected are whole.
_SELECTED: Final = """(
        SELECT *, max(CASE WHEN {wanted} THEN 1 ELSE 0 END) OVER (PARTITION BY packet) AS wanted,
               min(time_ns) OVER (PARTITION BY packet) AS begin_ns
        FROM skb_lifetimes) l"""
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
    columns, starts, unknown = _events(trace, selection)
    found = len(starts)
    bounds = np.append(starts, len(columns["packet"]))[: found + 1 if limit is None else limit + 1]
    written = max(len(bounds) - 1, 0)
    doing("following messages")
    carried, notes = _carried(trace, selection)
    file = _File(trace, out, carried)
    file.begin(np.unique(columns["point"]).tolist())
    for first in range(0, written, _SLICE):
        doing("writing packets", first, written)
        file.packets(columns, bounds[first : first + _SLICE + 1])
    file.end()
    return [*_left_out(found - written), *notes, *unknown, *loss_notes(trace)]


def _left_out(packets: int) -> list[str]:
    return [f"left out: {plural(packets, 'packet')}, the latest ones (--limit)"] if packets else []


def _events(trace: Trace, selection: Selection) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64], list[str]]:
    """Return the events of packets whose flow is known, where each packet begins, and a sentence on the others.

    Where flows are selected, others are not: nothing is said of them.
    """
    lifetimes, chosen = "skb_lifetimes", "TRUE"
    if selection != Selection():  # to find whole packets takes its time
        wanted = f"{selection.flow(trace, 'life_flow')} AND {selection.place(trace, 'life_')}"
        lifetimes = _SELECTED.format(wanted=wanted)
        chosen = f"wanted = 1 AND {selection.window(trace, 'begin_ns')}"
    events = trace.columns(_EVENTS.format(lifetimes=lifetimes, chosen=chosen))
    columns = {name: np.ma.getdata(values) for name, values in events.items()}
    starts = np.flatnonzero(np.diff(columns["packet"], prepend=columns["packet"][:1] - 1))
    known = np.logical_or.reduceat(columns["flow"] != 0, starts) if len(starts) else np.zeros(0, bool)
    count = int(np.count_nonzero(~known))
    if not count:
        return columns, starts, []
    sizes = np.diff(np.append(starts, len(columns["packet"])))
    columns = {name: values[np.repeat(known, sizes)] for name, values in columns.items()}
    starts = np.cumsum(sizes[known]) - sizes[known]
    said = f"left out: {plural(count, 'packet')} whose addresses were not recorded"
    return columns, starts, [] if selection.is_by_flow or selection.processes else [said]


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
        self._carrying = np.array(list(carried), np.int64)
        self._trace = trace
        metadata = trace.metadata
        self._to_realtime_ns = metadata.realtime_ns - metadata.started_ns
        self._points: Mapping[int, str] = {number: name for name, number in points(trace).items()}
        self._flows = Flows(
            trace.rows("SELECT flow, source, source_port, destination, destination_port, protocol FROM flows")
        )
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
        self._counts = self._dropped = np.zeros(len(self._devices) + 1, np.int64)
        self._last_ns = metadata.started_ns
        self._places = np.array(sorted(self._devices), np.int64).reshape(-1, 2)
        self._sends = {number for number, name in self._points.items() if name.startswith(("tx.", "tcp."))}
        self._transmits = [number for number, name in self._points.items() if name.startswith("tx.")]
        self._drop = next((number for number, name in self._points.items() if name == _DROP), -1)
        self._named = Ragged.of([b"hopscope packet=", b" total=", *(self._hop(number) for number in self._numbers())])

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

    def packets(self, columns: Mapping[str, Any], bounds: NDArray[np.int64]) -> None:
        """Write packets, whose events lie between these places of the columns."""
        events = {name: values[bounds[0] : bounds[-1]].astype(np.int64) for name, values in columns.items()}
        starts, sizes = bounds[:-1] - bounds[0], np.diff(bounds)
        # Of each packet, the event at which its headers are known; and the first one at a device.
        known = _first(self._flows.places(events["flow"]) >= 0, starts)
        place = _first(events["ifindex"] != 0, starts)
        kept = np.flatnonzero(known >= 0)
        packets = _Packets(events, starts[kept], (starts + sizes - 1)[kept], known[kept], place[kept])
        data, lengths = self._flows.headers(self._headers(packets))
        interface = np.where(packets.place >= 0, self._numbers_of(packets, packets.place), 0)
        sends = np.isin(events["point"][packets.first], list(self._sends))
        comments, dropped = self._comments(packets, sends)
        at_ns = events["time_ns"][packets.first]
        number = events["packet"][packets.first]
        options = Options(interface, at_ns + self._to_realtime_ns, number, sends, comments)
        made, places = blocks(data, lengths, options)
        self._write(made, at_ns, places)
        self._counts = self._counts + np.bincount(interface, minlength=len(self._counts))
        self._dropped = self._dropped + np.bincount(interface[dropped], minlength=len(self._dropped))
        self._last_ns = max(self._last_ns, int(events["time_ns"].max(initial=0)))

    def _write(self, made: Bytes, at_ns: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Write blocks of packets, and before each the losses that began until then."""
        written = 0
        while self._next_loss and len(at_ns) and self._next_loss[0] <= at_ns[-1]:
            place = int(places[np.searchsorted(at_ns, self._next_loss[0])])
            self._out.write(made[written:place].data)
            self._lose(int(at_ns[np.searchsorted(places, place)]))
            written = place
        self._out.write(made[written:].data)

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

    def _headers(self, packets: _Packets) -> Headers:
        """Return what is known of headers at the events at which they are."""
        told = {
            name: packets.events[name][packets.known]
            for name in ("flow", "point", "seq", "tcp_flags", "header_bytes", "len_bytes")
        }
        linked = np.array([False, *(with_link for _, _, with_link in self._devices.values())])
        has_link = linked[self._numbers_of(packets, packets.known)] & np.isin(told.pop("point"), self._transmits)
        flow = self._flows.places(told.pop("flow"))
        return Headers(flow, **told, link_bytes=np.where(has_link, LINK_BYTES, 0))

    def _numbers_of(self, packets: _Packets, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the devices of events; 0: none that is known."""
        keys, own = ((each[0] << _PLACE) + each[1] for each in (self._places.T, packets.places(rows)))
        if not len(keys):
            return np.zeros(len(rows), np.int64)
        found = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
        return np.where(keys[found] == own, found + 1, 0)

    def _numbers(self) -> list[int]:
        return list(range(max(self._points, default=-1) + 1))

    def _hop(self, number: int) -> bytes:
        return f"us {self._points.get(number, number)}=".encode()

    def _comments(self, packets: _Packets, sends: NDArray[np.bool_]) -> tuple[Joined, NDArray[np.bool_]]:
        """Return the comments of packets, and which packets the kernel dropped."""
        events, count = packets.events, len(packets.first)
        row, point, spent_ns = packets.hops()
        total_ns = events["time_ns"][packets.last] - events["time_ns"][packets.first]
        tails, tail, dropped = self._tails(packets, sends)
        numbers = (decimals(events["packet"][packets.first]), decimals(total_ns, 3), decimals(spent_ns, 3))
        texts, (named, of_packet, of_total, of_hop, of_tail) = together(self._named, *numbers, tails)
        hops = np.bincount(row, minlength=count)
        pieces = 2 * hops + 5
        begin = np.cumsum(pieces) - pieces
        which = np.empty(int(pieces.sum()), np.int64)
        which[begin], which[begin + 1] = named, of_packet + np.arange(count)
        which[begin + 2], which[begin + 3] = named + 1, of_total + np.arange(count)
        at = begin[row] + 4 + 2 * (np.arange(len(row)) - (np.cumsum(hops) - hops)[row])
        which[at], which[at + 1] = named + 2 + point, of_hop + np.arange(len(row))
        which[begin + pieces - 1] = of_tail + tail
        return Joined(texts.chosen(which), pieces), dropped

    def _tails(
        self, packets: _Packets, sends: NDArray[np.bool_]
    ) -> tuple[Ragged, NDArray[np.int64], NDArray[np.bool_]]:
        """Return ends of comments, of which packets have few different ones; which each has; and what was dropped."""
        number, flow = packets.events["packet"][packets.first], packets.events["flow"][packets.known]
        pairs, tail = np.unique(np.stack([flow, sends.astype(np.int64)]), axis=1, return_inverse=True)
        owners = [self._owners.get((flow, bool(out)), (None, "")) for flow, out in pairs.T.tolist()]
        owned = [[] if pid is None else [f"pid={pid}", f"comm={pcapng.quoted(comm)}"] for pid, comm in owners]
        found = {_tail(words): at for at, words in reversed(list(enumerate(owned)))}
        ways = np.array([found[_tail(words)] for words in owned], np.int64)
        texts = [_tail(words) for words in owned]
        tail = tail.reshape(-1)
        drops = self._drops_of(packets)
        chosen = ways[tail]
        carrying = np.flatnonzero(np.isin(number, self._carrying)).tolist()
        for at in sorted({*drops, *carrying}):
            words = [*drops.get(at, ()), *owned[tail[at]], *self._words(int(number[at]))]
            chosen[at] = found.setdefault(_tail(words), len(texts))
            if chosen[at] == len(texts):
                texts.append(_tail(words))
        dropped = np.zeros(len(number), bool)
        dropped[list(drops)] = True
        return Ragged.of(texts), chosen, dropped

    def _words(self, packet: int) -> list[str]:
        """Return which message a packet carries, and what held that."""
        if not (carried := self._carried.get(packet)):
            return []
        words = [f"message={carried.message}", f"messages={carried.messages}"]
        words += [f"cause={pcapng.quoted(carried.cause)}"] * bool(carried.cause)
        return words + ["retransmission"] * carried.again

    def _drops_of(self, packets: _Packets) -> dict[int, list[str]]:
        """Return packet, by its place → why and where the kernel dropped it."""
        rows = np.flatnonzero(packets.events["point"] == self._drop)
        owner = np.searchsorted(packets.first, rows, side="right") - 1
        inside = (owner >= 0) & (rows <= packets.last[owner])
        keys = zip(*(packets.events[name][rows].tolist() for name in ("time_ns", "cpu", "skb")), strict=True)
        found: dict[int, list[str]] = {}
        for at, key, is_inside in zip(owner.tolist(), keys, inside.tolist(), strict=True):
            if is_inside and key in self._drops and at not in found:
                reason, place = self._drops[key]
                found[at] = [f"dropped={pcapng.quoted(reason)}", *([f"at={pcapng.quoted(place)}"] if place else [])]
        return found

    def _lose(self, until_ns: int | None) -> None:
        """Write the losses that began before a time; None: the rest."""
        while self._next_loss and (until_ns is None or self._next_loss[0] <= until_ns):
            from_ns, lost_ns, cpu, lost = self._next_loss
            message = f"lost: {plural(lost, 'event')} on CPU {cpu} within {(lost_ns - from_ns) / 1e6:.3f} ms"
            self._out.write(pcapng.journal(message, from_ns + self._to_realtime_ns))
            self._next_loss = next(self._losses, None)


class _Packets(NamedTuple):
    """Packets, by places of their events: arrays of int64, shape (n,).

    Attributes
    ----------
    events
        Columns of the events of all packets, and of others between them.
    first, last
        A packet's first event and its last one.
    known, place
        The event at which its headers are known, and the first one at a device; -1: none.
    """

    events: Mapping[str, NDArray[np.int64]]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    known: NDArray[np.int64]
    place: NDArray[np.int64]

    def places(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return namespace and number of the devices of events."""
        return self.events["netns"][rows], self.events["ifindex"][rows]

    def hops(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return which packets were on the way to which points, and for how long, as they came there first.

        From the point before on the packet's path; on a further device, a point comes again, and adds to its time.
        """
        sizes = self.last - self.first
        packet = np.repeat(np.arange(len(sizes)), sizes)
        rows = np.arange(len(packet)) + np.repeat(self.first + 1 - (np.cumsum(sizes) - sizes), sizes)
        point = self.events["point"][rows]
        spent_ns = self.events["time_ns"][rows] - self.events["from_ns"][rows]
        _, firsts, groups = np.unique((packet << _POINT) + point, return_index=True, return_inverse=True)
        sums = np.zeros(len(firsts), np.int64)
        np.add.at(sums, groups, spent_ns)
        order = np.argsort(firsts)
        return packet[firsts][order], point[firsts][order], sums[order]


def _first(chosen: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first chosen place of each part that begins at a place; -1: there is none."""
    if not len(starts):
        return starts
    none = len(chosen)
    found = np.minimum.reduceat(np.where(chosen, np.arange(none), none), starts)
    return np.where(found < none, found, -1)


def _tail(words: Sequence[str]) -> bytes:
    return f"us{''.join(f' {word}' for word in words)} synthetic".encode()
