# SPDX-License-Identifier: Apache-2.0
"""``messages``: a row a message, TCP and UDP, with the time at which it passed each point of :mod:`messages_path`.

A time that cannot be right is not kept. Where events were lost, what was seen of a packet may be a later copy of it:
then a point seems to be passed after those behind it, and the earlier points are the ones to doubt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.analysis.host_numbers import hosts
from hopscope.analysis.messages_hosts import loosened, tightened
from hopscope.analysis.messages_path import PACKET_COLUMNS, STEPS, earliest, latest
from hopscope.analysis.messages_segments import TCP
from hopscope.analysis.messages_tcp import make_tcp_messages
from hopscope.analysis.messages_udp import UDP, make_udp_messages
from hopscope.analysis.names import make_names
from hopscope.analysis.translations import make_translations, name_last_translations

if TYPE_CHECKING:
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

_SENDER: Final = ("call_ns", "send_ns")
_CARRIED: Final = ("first_ns", *PACKET_COLUMNS, "ready_ns")
_READER: Final = ("copy_ns", "read_ns", "received_ns")
_ALL: Final = tuple(step.column for step in STEPS)
_OTHERS: Final = (
    "flow", "connection", "start_byte", "end_byte", "len_bytes", "sender_tid", "reader_tid", "sent_ns", "retransmits",
    "resent_ns", "dropped_ns", "sender_host", "receiver_host", "state",
)  # fmt: skip
# What TCP's messages do not have.
_OF_UDP: Final = "CAST(NULL AS BIGINT) AS dropped_ns, CAST(NULL AS STRING) AS state"
_NO_NETWORK: Final = "CAST(NULL AS BIGINT) AS network_ns, CAST(NULL AS BIGINT) AS network_bound_ns"


def make_messages(trace: Trace, selection: Selection) -> None:
    """Make the table ``messages`` of what is wanted, the views of names, and ``last_translations``.

    ``sends`` and ``reads`` are the calls that TCP's are made of.
    """
    make_names(trace)
    make_translations(trace)
    flows = replace(selection, processes=())  # whose messages they are is known better than whose sockets
    make_tcp_messages(trace, flows)
    both = f"SELECT {TCP} AS protocol, * FROM ({_right(trace, f'(SELECT *, {_OF_UDP} FROM tcp_messages)')}) tcp"
    if trace.rows(f"SELECT 1 FROM flows WHERE protocol = {UDP} LIMIT 1"):
        make_udp_messages(trace, flows)
        _name_translations_of_datagrams(trace)
        both += f" UNION ALL SELECT {UDP} AS protocol, * FROM ({_right(trace, 'udp_messages')}) udp"
    trace.make_table(
        "messages",
        f"SELECT *, ends_ns - begins_ns AS total_ns FROM"
        f" (SELECT *, {earliest(_ALL)} AS begins_ns, {latest(_ALL)} AS ends_ns FROM ({both}) b) m"
        f" WHERE {_wanted(trace, selection)}",
    )
    trace.drop("tcp_messages", "udp_messages")


def _name_translations_of_datagrams(trace: Trace) -> None:
    """Add to ``last_translations`` what became of datagrams' flows on the way."""
    found = "SELECT translated, flow, min(queue_ns) FROM udp_messages WHERE translated IS NOT NULL GROUP BY 1, 2"
    if trace.rows(f"{found} LIMIT 1"):
        name_last_translations(trace, f"SELECT flow, original, since_ns FROM translations UNION ALL {found}")


def _wanted(trace: Trace, selection: Selection) -> str:
    """Return the condition on a message: when it began, whose it is, which device its flow passes."""
    parts = [selection.window(trace, "begins_ns")]
    if selection.processes:
        threads = selection.threads(trace)
        parts.append(f"(sender_tid IN ({threads}) OR reader_tid IN ({threads}))")
    if selection.interfaces:
        passing = f"SELECT flow FROM packets WHERE {selection.device(trace)}"
        if trace.rows("SELECT 1 FROM last_translations LIMIT 1"):
            passing += f" UNION ALL SELECT original FROM last_translations WHERE flow IN ({passing})"
        parts.append(f"flow IN ({passing})")
    return " AND ".join(parts)


def _right(trace: Trace, source: str) -> str:
    """Return the query for messages without the times that cannot be right, with those on the network."""
    columns = ", ".join((*_OTHERS, *_ALL))
    if not hosts(trace):
        return f"SELECT {columns}, {_NO_NETWORK} FROM ({_checked(source, _OTHERS)}) right_ones"
    others = (*_OTHERS, "network_bound_ns")
    right = tightened(_checked(f"({loosened(trace, source, _OTHERS)})", others), _OTHERS)
    return f"SELECT {columns}, network_ns, network_bound_ns FROM ({right}) right_ones"


def _checked(source: str, others: tuple[str, ...]) -> str:
    """Return the query for messages without the times that cannot be right."""
    sound = ", ".join((*others, *_SENDER, "wake_ns", "switch_ns"))
    first = ", ".join(f"{_unless(_too_late(name), name)} AS {name}" for name in _CARRIED)
    read = ", ".join(f"{_unless(_before(name, _SENDER), name)} AS {name}" for name in _READER)
    seen = f"SELECT {sound}, {first}, {read} FROM {source} raw"
    arrived = f"SELECT *, {latest((*_SENDER, *_CARRIED))} AS arrived_ns FROM ({seen}) a"
    copied = f"{_before('copy_ns', ('arrived_ns',))} OR {_after('copy_ns', ('read_ns', 'received_ns'))}"
    bound = ("copy_ns", "read_ns", "received_ns")
    awake = f"{_before('wake_ns', ('arrived_ns',))} OR {_after('wake_ns', bound)}"
    running = f"{_before('switch_ns', ('arrived_ns', 'wake_ns'))} OR {_after('switch_ns', bound)}"
    kept = ", ".join((*others, *_SENDER, *_CARRIED, "arrived_ns", "read_ns", "received_ns"))
    copies = f"SELECT {kept}, wake_ns, switch_ns, {_unless(copied, 'copy_ns')} AS copy_ns FROM ({arrived}) c"
    wakes = f"SELECT {kept}, copy_ns, switch_ns, {_unless(awake, 'wake_ns')} AS wake_ns FROM ({copies}) w"
    switches = f"SELECT {kept}, copy_ns, wake_ns, {_unless(running, 'switch_ns')} AS switch_ns FROM ({wakes}) s"
    return f"SELECT {', '.join((*others, *_ALL))} FROM ({switches}) checked"


def _too_late(name: str) -> str:
    """Return the condition that a packet seems to pass a point after one behind it, or before the call that sent it."""
    behind = (*_CARRIED[_CARRIED.index(name) + 1 :], "read_ns", "received_ns")
    same = " OR coalesce(first_ns = queue_ns, FALSE)" if name == "first_ns" else ""
    return f"{_after(name, behind)} OR {_before(name, _SENDER)}{same}"


def _before(name: str, others: tuple[str, ...]) -> str:
    return f"coalesce({name} < {latest(others)}, FALSE)"


def _after(name: str, others: tuple[str, ...]) -> str:
    return f"coalesce({name} > {earliest(others)}, FALSE)"


def _unless(condition: str, name: str) -> str:
    return f"CASE WHEN {condition} THEN NULL ELSE {name} END"
