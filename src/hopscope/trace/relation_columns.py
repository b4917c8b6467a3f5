# SPDX-License-Identifier: Apache-2.0
"""Default meanings of columns, unless the relation itself gives a different one.

The unit is at the end of a column's name; otherwise it is given with the meaning. Times are CLOCK_MONOTONIC; in a
joined trace, that of its first host.
"""

from __future__ import annotations

from typing import Final

from hopscope.store.schema import BY_NAME
from hopscope.trace.messages.path import STEPS

_OF_EVENTS: Final = {
    column.name: column.meaning for table in ("sockets", "packets") for column in BY_NAME[table].columns
}
_OF_MESSAGES: Final = {step.column: f"when {step.meaning}; NULL: not seen" for step in STEPS}

# Columns with the number of a flow, a hash of 64 bits.
FLOW_NUMBERS: Final = frozenset(
    {"flow", "life_flow", "original", "translated", "in_flow", "out_flow", "last_flow", "came_flow", "forth", "back"}
)

MEANINGS: Final[dict[str, str | tuple[str, str]]] = {
    **_OF_EVENTS,
    **_OF_MESSAGES,
    "flow": "number of the flow (`flows`)",
    "protocol": "IP protocol number: 6 TCP, 17 UDP",
    "netns": "inode of the network namespace",
    "host": "number of the host (`hosts`); 0 in a trace of one host",
    "name": "name as shown in reports",
    "comm": "name of the thread",
    "pid": "its process",
    # A packet and its lifetime.
    "packet": "number of the packet, unique in the trace",
    "content": "sequence number and length as one number; NULL: headers not inspected",
    "known_content": "last known `content` before this event; NULL: none",
    "place": "device and namespace as one number",
    "from_point": "point of the previous event; NULL: none",
    "from_time_ns": "time of the previous event; NULL: none",
    "from_cpu": "CPU of the previous event; NULL: none",
    "from_head": "`head` of the previous event; NULL: none",
    "from_content": "`content` of the previous event; NULL: none, or unknown",
    "from_place": "`place` of the previous event; NULL: none",
    "continues": "whether it belongs to the same packet as the previous event",
    "broken": "whether it would continue if no events were missing in between",
    "life_flow": "last known flow of the packet; 0: none yet",
    "life_ifindex": "last known device of the packet; 0: none yet",
    "life_netns": "last known namespace of the packet; 0: none yet",
    "from_ns": "beginning (inclusive)",
    "until_ns": "end",
    # Translation of addresses.
    "original": "flow that the socket sent",
    "since_ns": "when the translation was first seen",
    "translated": "flow as the receiver sees it; NULL: the same",
    # Bytes of streams.
    "connection": "number of the connection within the flow; 0: began before the recording, or UDP",
    "slice": ("ns", "beginning of the slice of time, 2^24 ns long"),
    "payload": ("bytes", "length of the payload"),
    "start_byte": "offset of the first byte in the connection; NULL: UDP",
    "end_byte": "offset after the last byte in the connection; NULL: UDP",
    "byte": ("byte", "offset in the connection"),
    "width": ("bytes", "width of the cell"),
    "cell": ("byte", "offset at which the cell begins"),
    # Between hosts.
    "link": "number of the link (`flow_links`)",
    "from_host": "sending host",
    "to_host": "receiving host; NULL: unknown",
    "address": "IP address",
    "step": "1: it left a host; -1: it arrived at one",
    "started": "whether the departure time is that of tx.start (otherwise tx.queue)",
    "left_ns": "departure time",
    "came_ns": "arrival time; NULL: did not arrive, or unknown",
    "leaves": "whether it was sent to another host",
    "slot_ns": "beginning of the half second",
    "again": "whether its bytes had been sent before",
    "missed_bytes": "bytes of it that did not arrive",
    "surplus": "how many times more often the bytes left than arrived",
    "lost": "whether it did not arrive although its receiver was recorded",
    "lost_bytes": "bytes of it that did not arrive although its receiver was recorded",
    "unsure": "whether it did not arrive while its receiver was not recorded",
    "arrived": "number of the packet at its destination; NULL: did not arrive",
    "short": "set for as many indistinguishable datagrams as did not arrive",
    "id": "IP identification, combined with the hash of the first bytes where it is usable",
    "at_ns": "`time_ns`; for arrivals, plus the maximum clock error",
    "before_step": "`step` of the previous identical datagram; NULL: none",
    "before_host": "`host` of the previous identical datagram; NULL: none",
    "before_at_ns": "`at_ns` of the previous identical datagram; NULL: none",
    "next_step": "`step` of the next identical datagram; NULL: none",
    "next_packet": "`packet` of the next identical datagram; NULL: none",
    "next_host": "`host` of the next identical datagram; NULL: none",
    "next_time_ns": "`time_ns` of the next identical datagram; NULL: none",
    "silence": "number of pauses of at least one second between identical datagrams before it",
    "on_way": "number of identical datagrams in flight at that time",
    "ends": "1: last of its batch",
    "batch": "number of the batch of identical datagrams",
    "fewest": "minimum in flight within the batch; negative: more arrived than left",
    "in_seq": "`seq` on arrival; NULL: did not arrive",
    "in_flow": "flow on arrival; NULL: did not arrive",
    "in_len": ("bytes", "payload on arrival; NULL: did not arrive"),
    "out_seq": "`seq` on departure; NULL: did not leave",
    "out_flow": "flow on departure; NULL: did not leave",
    "out_len": ("bytes", "payload on departure; NULL: did not leave"),
    "before_point": "point of the previous event; NULL: none",
    "after_begin": "whether the lifetime began with the previous event",
    "next_point": "point of the next event; NULL: none",
    "next_ns": "time of the next event; NULL: none",
    "goes_on": "whether the next event belongs to the same packet",
    "goes_on_after": "whether the event after the next one continues its packet",
    # Datagrams.
    "begins_ns": "when it was first seen",
    "ends_ns": "when it was last seen",
    "copied_ns": "when it was copied to the reader; NULL: not seen",
    "freed_tid": "thread that freed it; NULL: not seen",
    "freed_ns": "when it was freed; NULL: not seen",
    "came_cpu": "CPU that received it; NULL: not seen",
    "last_flow": "flow at its last device; NULL: no device",
    "last_len": ("bytes", "payload at its last device; NULL: no device"),
    "last_seq": "`seq` at its last device; NULL: no device",
    "last_queue_ns": "when it reached its last device; NULL: no device",
    "last_start_ns": "when the transmit function of its last driver was called; NULL: not seen",
    "came_flow": "flow on reception; NULL: not received",
    "came_seq": "`seq` on reception; NULL: not received",
    "came_len": ("bytes", "payload on reception; NULL: not received"),
    # Messages.
    "sender_host": "host of the sending socket; NULL: not seen, or a trace of one host",
    "receiver_host": "host of the receiving socket; NULL: not seen, or a trace of one host",
    "sender_tid": "thread that sent it; NULL: not seen",
    "reader_tid": "thread that read it; NULL: not seen",
    "sent_ns": "when the send call ended; NULL: not seen",
    "retransmits": "number of retransmissions that contain bytes of it",
    "resent_ns": "when bytes of it were last retransmitted; NULL: never",
    "dropped_ns": "when it was dropped; NULL: never, or TCP",
    "state": "of a datagram that left its host: `came`, `lost`, or `unsure` (indistinguishable from others); "
    "NULL: other",
    "network_ns": "time from the sender's last point to the receiver's first; NULL: one host, or unknown",
    "network_bound_ns": "maximum error of `network_ns`; NULL: one host",
    "total_ns": "time from its first point to its last; NULL: one end not seen",
    "from_byte": "offset at which the receive call began to read; NULL: its return was not seen",
    "whole": "1: one packet contains all bytes of the call",
    "notified_ns": "NULL; `ready_ns` is matched through it",
    "message": "number of the message, in the order in which messages begin",
    # Requests and answers.
    "forth": "flow of the request",
    "back": "flow of the answer",
    "side": "0: client, 1: server",
    "exchange": "number of the exchange on this side of the connection",
    "asked_byte": "offset after the last byte of the request; UDP: number of its last datagram; NULL: no request",
    "answered_byte": "offset after the last byte of the answer; UDP: number of its last datagram; NULL: no answer",
    "asked_ns": "when the server had read the request; NULL: not seen",
    "last_asked_ns": "when the client's last send call of the request began; NULL: not seen",
    "answers_ns": "when the server's last send call of the answer began; NULL: not seen",
    "last_answered_ns": "when the last call of the answer began (sending) or ended (receiving); NULL: not seen",
    "from_asked": "`asked_byte` of the previous exchange; NULL: none",
    "from_answered": "`answered_byte` of the previous exchange; NULL: none",
    "calls": "send calls of this side",
    "requests": "the client's send calls; NULL: the client was not seen",
    "answers": "the server's send calls; NULL: the server was not seen",
    "request_bytes": "length of the request; NULL: unknown",
    "answer_bytes": "length of the answer; NULL: unknown",
    "client_tid": "thread of the client; NULL: not seen",
    "server_tid": "thread of the server; NULL: not seen",
    "of_both": "whether both sides recorded it",
    "sides": "number of sides of the connection that were recorded",
    "number": "position in chronological order",
    "sends": "whether it sends (otherwise it receives)",
}
