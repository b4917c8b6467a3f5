# SPDX-License-Identifier: Apache-2.0
"""``messages``: one row per TCP or UDP message, with the times at its points (:mod:`.path`).

Inconsistent times are discarded. If events were lost, the observed packet may be a later copy: a point then appears to
be passed after later points, and the earlier points are the doubtful ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.trace.host_numbers import hosts
from hopscope.trace.messages.hosts import loosened, tightened
from hopscope.trace.messages.path import PACKET_COLUMNS, STEPS, earliest, latest
from hopscope.trace.messages.segments import TCP
from hopscope.trace.messages.udp import UDP, has_udp
from hopscope.trace.packets.translations import final_translations
from hopscope.trace.relation import SELECTION, columns, relation

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

_SENDER: Final = ("call_ns", "send_ns")
_CARRIED: Final = ("first_ns", *PACKET_COLUMNS, "order_ns", "ready_ns")
_READER: Final = ("copy_ns", "read_ns", "received_ns")
_ALL: Final = tuple(step.column for step in STEPS)
_OTHERS: Final = (
    "flow", "connection", "start_byte", "end_byte", "len_bytes", "sender_tid", "reader_tid", "sent_ns", "retransmits",
    "resent_ns", "dropped_ns", "sender_host", "receiver_host", "state",
)  # fmt: skip
# Columns that TCP messages do not have.
_OF_UDP: Final = "CAST(NULL AS BIGINT) AS dropped_ns, CAST(NULL AS STRING) AS state"
_NO_NETWORK: Final = "CAST(NULL AS BIGINT) AS network_ns, CAST(NULL AS BIGINT) AS network_bound_ns"


@relation(
    "final_translations",
    "a period in which the receiver of a flow saw it under another address or port",
    columns(
        "flow original from_ns until_ns",
        flow="flow as the receiver sees it",
        original="flow that the socket sent",
        from_ns="beginning; 0: always",
        until_ns="end; 2^63 - 1: end of the recording",
    ),
    needs=("flow_translations",),
    needs_if={"udp_messages": has_udp},
)
def _final_translations(context: Context) -> str:
    known = "SELECT flow, original, since_ns FROM flow_translations"
    of_datagrams = "SELECT translated, flow, min(queue_ns) FROM udp_messages WHERE translated IS NOT NULL GROUP BY 1, 2"
    if has_udp(context) and context.trace.rows(f"{of_datagrams} LIMIT 1"):
        known += f" UNION ALL {of_datagrams}"
    return final_translations(known)


# The columns of a message, in all relations that have one.
MESSAGE: Final = columns(
    "protocol flow connection start_byte end_byte len_bytes sender_tid reader_tid sent_ns retransmits resent_ns",
    "dropped_ns sender_host receiver_host state",
    *_ALL,
    "network_ns network_bound_ns begins_ns ends_ns total_ns message",
    len_bytes="length of the message",
)


def _is_joined(context: Context) -> bool:
    return bool(hosts(context.trace))


@relation(
    "messages",
    "a message: the data of one send call on a TCP connection, or a UDP datagram",
    MESSAGE,
    needs=("tcp_messages", "final_translations"),
    needs_if={"udp_messages": has_udp, "clock_bounds": _is_joined},
    parameters=(SELECTION,),
)
def _messages(context: Context) -> str:
    trace = context.trace
    both = f"SELECT {TCP} AS protocol, * FROM ({_right(trace, f'(SELECT *, {_OF_UDP} FROM tcp_messages)')}) tcp"
    if has_udp(context):
        both += f" UNION ALL SELECT {UDP} AS protocol, * FROM ({_right(trace, 'udp_messages')}) udp"
    return (
        "SELECT *, ends_ns - begins_ns AS total_ns, row_number() OVER (ORDER BY begins_ns, flow, connection,"
        " start_byte NULLS LAST, ends_ns) AS message FROM"
        f" (SELECT *, {earliest(_ALL)} AS begins_ns, {latest(_ALL)} AS ends_ns FROM ({both}) b) m"
        f" WHERE {_wanted(trace, context.selection)}"
    )


def _wanted(trace: Trace, selection: Selection) -> str:
    """Return the condition on a message: its beginning, its threads, and where its flow passes."""
    parts = [selection.window(trace, "begins_ns")]
    if selection.processes:
        threads = selection.threads(trace)
        parts.append(f"(sender_tid IN ({threads}) OR reader_tid IN ({threads}))")
    if selection.is_by_place:
        passing = selection.passing(trace)
        if trace.rows("SELECT 1 FROM final_translations LIMIT 1"):
            passing += f" UNION ALL SELECT original FROM final_translations WHERE flow IN ({passing})"
        parts.append(f"flow IN ({passing})")
    return " AND ".join(parts)


def _right(trace: Trace, source: str) -> str:
    """Return the query for messages without inconsistent times, with network times."""
    columns = ", ".join((*_OTHERS, *_ALL))
    if not hosts(trace):
        return f"SELECT {columns}, {_NO_NETWORK} FROM ({_checked(source, _OTHERS)}) right_ones"
    others = (*_OTHERS, "network_bound_ns")
    right = tightened(_checked(f"({loosened(source, _OTHERS)})", others), _OTHERS)
    return f"SELECT {columns}, network_ns, network_bound_ns FROM ({right}) right_ones"


def _checked(source: str, others: tuple[str, ...]) -> str:
    """Return the query for messages without inconsistent times."""
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
    """Return the condition that a packet appears to pass a point after a later one, or before its send call."""
    behind = (*_CARRIED[_CARRIED.index(name) + 1 :], "read_ns", "received_ns")
    same = " OR coalesce(first_ns = queue_ns, FALSE)" if name == "first_ns" else ""
    return f"{_after(name, behind)} OR {_before(name, _SENDER)}{same}"


def _before(name: str, others: tuple[str, ...]) -> str:
    return f"coalesce({name} < {latest(others)}, FALSE)"


def _after(name: str, others: tuple[str, ...]) -> str:
    return f"coalesce({name} > {earliest(others)}, FALSE)"


def _unless(condition: str, name: str) -> str:
    return f"CASE WHEN {condition} THEN NULL ELSE {name} END"
