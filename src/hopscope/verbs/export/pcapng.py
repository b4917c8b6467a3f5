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
from hopscope.trace.messages.segments import TCP
from hopscope.trace.messages.udp import UDP
from hopscope.trace.names import points
from hopscope.trace.packets.continues import BEGINNINGS
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
# Send calls and datagrams whose packets are looked for: of one flow, this takes the square of their number. Making
# the messages of more of them would take as long as all the rest.
_MOST_SENDS: Final = 10_000

_EVENTS: Final = """
    SELECT packet, time_ns, coalesce(from_time_ns, time_ns) AS from_ns, cpu, point, skb, flow, len_bytes, header_bytes,
           seq, tcp_flags, ifindex, netns
    FROM {lifetimes} WHERE {chosen} ORDER BY packet, time_ns, point"""
# Packets of which at least one event is selected are whole.
_SELECTED: Final = """(
        SELECT *, max(CASE WHEN {wanted} THEN 1 ELSE 0 END) OVER (PARTITION BY packet) AS wanted,
               min(time_ns) OVER (PARTITION BY packet) AS begin_ns
        FROM skb_lifetimes) l"""
_CALLS: Final = """
    SELECT s.flow, count(*) AS calls FROM sockets s JOIN points p ON p.point = s.point
    WHERE p.name = 'tx.sent' AND s.protocol = {tcp} AND s.len_bytes > 0 AND {window} GROUP BY s.flow"""
_MESSAGES: Final = """
    SELECT m.message, c.* FROM messages m LEFT JOIN message_causes c ON c.message = m.message ORDER BY m.message"""
_CARRIED: Final = """
    SELECT p.packet, min(p.message), count(DISTINCT p.message), count(r.packet)
    FROM chosen_packets p LEFT JOIN chosen_retransmissions r ON r.packet = p.packet AND r.message = p.message
    GROUP BY p.packet"""
_DROPS: Final = "SELECT time_ns, cpu, skb, reason, location FROM drops"
_WHY: Final = """
    SELECT d.reason, d.location, coalesce(r.name, CAST(d.reason AS STRING)), coalesce(max(s.name), '')
    FROM (SELECT DISTINCT reason, location FROM drops) d
    LEFT JOIN reasons r ON r.reason = d.reason LEFT JOIN drop_places s ON s.address = d.location GROUP BY 1, 2, 3"""

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
    build(trace, "skb_lifetimes", "drop_places", "device_names", "netns_names", "flow_owners")
    doing("following packets")
    columns, bounds, known = _events(trace, selection)
    wanted = np.flatnonzero(known)
    written = len(wanted) if limit is None else min(len(wanted), limit)
    doing("following messages")
    sends = _sends(trace, selection, columns, bounds[:-1])
    carried = _carried(trace, selection) if sends <= _MOST_SENDS else {}
    columns["why"], why = _dropped(trace, columns)
    file = _File(trace, out, carried, why)
    file.begin(np.unique(columns["point"][np.repeat(known, np.diff(bounds))]).tolist())
    for first in range(0, written, _SLICE):
        doing("writing packets", first, written)
        part = wanted[first : min(first + _SLICE, written)]
        file.packets(columns, bounds[part[0] : part[-1] + 2])
    file.end()
    notes = [*_left_out(len(wanted) - written), *_too_many(sends), *_unknown(selection, len(known) - len(wanted))]
    return [*notes, *loss_notes(trace)]


def _left_out(packets: int) -> list[str]:
    return [f"left out: {plural(packets, 'packet')}, the latest ones (--limit)"] if packets else []


def _unknown(selection: Selection, packets: int) -> list[str]:
    """Return a sentence on packets whose flow is not known: where flows are selected, nothing is said of them."""
    if not packets or selection.is_by_flow or selection.processes:
        return []
    return [f"left out: {plural(packets, 'packet')} whose addresses were not recorded"]


def _events(trace: Trace, selection: Selection) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the events of packets, where each packet begins and the last one ends, and whose flow is known."""
    lifetimes, chosen = "skb_lifetimes", "TRUE"
    if selection != Selection():  # to find whole packets takes its time
        wanted = f"{selection.flow(trace, 'life_flow')} AND {selection.place(trace, 'life_')}"
        lifetimes = _SELECTED.format(wanted=wanted)
        chosen = f"wanted = 1 AND {selection.window(trace, 'begin_ns')}"
    events = trace.columns(_EVENTS.format(lifetimes=lifetimes, chosen=chosen))
    columns = {name: np.ma.getdata(values) for name, values in events.items()}
    starts = np.flatnonzero(np.diff(columns["packet"], prepend=columns["packet"][:1] - 1))
    known = np.logical_or.reduceat(columns["flow"] != 0, starts) if len(starts) else np.zeros(0, bool)
    return columns, np.append(starts, len(columns["packet"])), known


def _dropped(trace: Trace, columns: Mapping[str, Any]) -> tuple[NDArray[np.int16], list[list[str]]]:
    """Return of each event its place among the words on why and where a packet was dropped, -1: none; and these."""
    drops = {name: np.ma.getdata(values) for name, values in trace.columns(_DROPS).items()}
    rows = np.flatnonzero(columns["point"] == points(trace).get(_DROP, -1))
    why = trace.rows(_WHY)
    of_pair = {(reason, location): at for at, (reason, location, _, _) in enumerate(why)}
    pairs, which = np.unique(np.stack([drops["reason"], drops["location"]]), axis=1, return_inverse=True)
    own = np.array([of_pair[reason, location] for reason, location in pairs.T.tolist()], np.int16)
    said = np.append(own[which.reshape(-1)] if len(own) else own, np.full(len(rows), -1, np.int16))
    # In this order, a drop is the first of those of one time, CPU and packet.
    keys = [np.append(drops[name], columns[name][rows]) for name in ("time_ns", "cpu", "skb")]
    order = np.lexsort((np.arange(len(said)), *keys))
    begins = np.any([np.diff(key[order], prepend=key[order][:1] - 1) != 0 for key in keys], axis=0)
    found = np.empty(len(said), np.int16)
    found[order] = said[order[np.flatnonzero(begins)]][np.cumsum(begins) - 1]
    made = np.full(len(columns["point"]), -1, np.int16)
    made[rows] = found[len(drops["skb"]) :]
    words = [
        [f"dropped={pcapng.quoted(reason)}", *([f"at={pcapng.quoted(place)}"] if place else [])]
        for _, _, reason, place in why
    ]
    return made, words


class _Carried(NamedTuple):
    """Which message's bytes a packet carries (the first one's), of how many, what held that, and whether again."""

    message: int
    messages: int
    cause: str
    again: bool


def _sends(trace: Trace, selection: Selection, columns: Mapping[str, Any], starts: NDArray[np.int64]) -> int:
    """Return about how many messages packets carry: datagrams that begin, and send calls on their TCP connections."""
    flows = columns["flow"]
    udp = np.array([flow for (flow,) in trace.rows(f"SELECT flow FROM flows WHERE protocol = {UDP}")], np.int64)
    begins = [number for name, number in points(trace).items() if name in BEGINNINGS and name.startswith("tx.")]
    datagrams = np.isin(columns["point"][starts], begins)
    datagrams &= np.logical_or.reduceat(np.isin(flows, udp), starts) if len(starts) else False
    calls = trace.columns(_CALLS.format(tcp=TCP, window=selection.window(trace, "s.time_ns")))
    carried = np.isin(np.ma.getdata(calls["flow"]), np.unique(flows))
    return int(np.count_nonzero(datagrams)) + int(np.ma.getdata(calls["calls"])[carried].sum())


def _too_many(sends: int) -> list[str]:
    if sends <= _MOST_SENDS:
        return []
    many = f"they are of {sends:,} send calls and datagrams, more than {_MOST_SENDS:,}"
    return [f"no messages and causes of packets: {many}. Select a part with --from, --until or --flow"]


def _carried(trace: Trace, selection: Selection) -> dict[int, _Carried]:
    """Return packet → what it carries."""
    build(trace, "messages", selection=selection)
    build(trace, "message_causes", selection=selection)
    follow_packets(trace, selection)
    rows = trace.columns(_MESSAGES)
    causes = np.ma.filled(most_blamed(rows)[0], "").tolist()
    held_by = dict(zip(np.ma.getdata(rows["message"]).tolist(), causes, strict=True))
    return {
        packet: _Carried(message, messages, held_by[message], again > 0)
        for packet, message, messages, again in trace.rows(_CARRIED)
    }


class _File:
    """The file as it is written, block by block in order of time."""

    def __init__(
        self, trace: Trace, out: BinaryIO, carried: Mapping[int, _Carried], why: Sequence[Sequence[str]]
    ) -> None:
        self._out = out
        self._carried = carried
        self._why = [*why, ()]  # the last one of packets that were not dropped
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
        # Of each packet, the event at which its headers are known; the first one at a device; and why it was dropped.
        known = _first(self._flows.places(events["flow"]) >= 0, starts)
        place = _first(events["ifindex"] != 0, starts)
        drop = _first(events["why"] >= 0, starts)
        why = np.where(drop >= 0, events["why"][drop], -1)
        kept = np.flatnonzero(known >= 0)
        packets = _Packets(events, starts[kept], (starts + sizes - 1)[kept], known[kept], place[kept], why[kept])
        data, lengths = self._flows.headers(self._headers(packets))
        interface = np.where(packets.place >= 0, self._numbers_of(packets, packets.place), 0)
        sends = np.isin(events["point"][packets.first], list(self._sends))
        comments = self._comments(packets, sends)
        at_ns = events["time_ns"][packets.first]
        number = events["packet"][packets.first]
        options = Options(interface, at_ns + self._to_realtime_ns, number, sends, comments)
        made, places = blocks(data, lengths, options)
        self._write(made, at_ns, places)
        self._counts = self._counts + np.bincount(interface, minlength=len(self._counts))
        self._dropped = self._dropped + np.bincount(interface[packets.why >= 0], minlength=len(self._dropped))
        self._last_ns = max(self._last_ns, int(events["time_ns"][packets.last].max(initial=0)))

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

    def _comments(self, packets: _Packets, sends: NDArray[np.bool_]) -> Joined:
        """Return the comments of packets."""
        events, count = packets.events, len(packets.first)
        row, point, spent_ns = packets.hops()
        total_ns = events["time_ns"][packets.last] - events["time_ns"][packets.first]
        tails, tail = self._tails(packets, sends)
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
        return Joined(texts.chosen(which), pieces)

    def _tails(self, packets: _Packets, sends: NDArray[np.bool_]) -> tuple[Ragged, NDArray[np.int64]]:
        """Return ends of comments, of which packets have few different ones; and which each has."""
        number, flow = packets.events["packet"][packets.first], packets.events["flow"][packets.known]
        kinds = (self._flows.places(flow) * 2 + sends) * len(self._why) + packets.why + 1
        _, firsts, tail = np.unique(kinds, return_index=True, return_inverse=True)
        own = [self._own(*each) for each in zip(*(a[firsts].tolist() for a in (flow, sends, packets.why)), strict=True)]
        texts = [_tail(words) for words in own]
        chosen = tail.copy()
        for at in np.flatnonzero(np.isin(number, self._carrying)).tolist():
            chosen[at] = len(texts)
            texts.append(_tail([*own[tail[at]], *self._words(int(number[at]))]))
        return Ragged.of(texts), chosen

    def _own(self, flow: int, sends: bool, why: int) -> list[str]:  # noqa: FBT001 # a key of the owners
        """Return why a packet was dropped, and whose it is."""
        pid, comm = self._owners.get((flow, sends), (None, ""))
        return [*self._why[why], *([] if pid is None else [f"pid={pid}", f"comm={pcapng.quoted(comm)}"])]

    def _words(self, packet: int) -> list[str]:
        """Return which message a packet carries, and what held that."""
        if not (carried := self._carried.get(packet)):
            return []
        words = [f"message={carried.message}", f"messages={carried.messages}"]
        words += [f"cause={pcapng.quoted(carried.cause)}"] * bool(carried.cause)
        return words + ["retransmission"] * carried.again

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
    why
        Which words say why the kernel dropped it; -1: it did not.
    """

    events: Mapping[str, NDArray[np.int64]]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    known: NDArray[np.int64]
    place: NDArray[np.int64]
    why: NDArray[np.int64]

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
