# SPDX-License-Identifier: Apache-2.0
"""The schemas of what ``hopscope sockets --json`` prints, made from the tables that the lines are made of.

``python -m hopscope.verbs.sockets.schema FOLDER`` writes ``hopscope.sockets-1.schema.json``, that of a socket and that
of a group.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from hopscope.kernel.sockets.signs import SIGNS
from hopscope.kernel.sockets.table import BBR, DCTCP, PROTOCOLS, STATE_NAMES, VEGAS
from hopscope.kernel.sockets.tcp_info import FIELDS
from hopscope.term.json_lines import VERSION
from hopscope.term.schema_files import line_schema, object_schema, write_schemas
from hopscope.verbs.sockets.groups import GROUPS
from hopscope.verbs.sockets.json import MEMORY_NAMES, SOCKET_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Schema = dict[str, Any]

_LATER: Final = (
    "A later version of hopscope may add members without a new schema version; it never changes or removes one."
)
_COMMON: Final = "urn:hopscope:schema:rx:1#/properties/"


def _typed(kind: str, meaning: str, *, null: bool = False) -> Schema:
    return {"type": [kind, "null"] if null else kind, "description": meaning}


def _count(meaning: str, *, null: bool = False) -> Schema:
    return _typed("integer", meaning, null=null) | {"minimum": 0}


def _list(items: Schema, meaning: str, *, null: bool = False) -> Schema:
    return {"type": ["array", "null"] if null else "array", "description": meaning, "items": items}


_PART: Final = {"minimum": 0, "maximum": 1}


def _report() -> dict[str, Schema]:
    states = object_schema(
        {
            "protocol": _typed("string", "tcp, udp or udplite."),
            "state": {"enum": _states()},
            "sockets": _count("How many."),
        }
    )
    unread = object_schema({"netns": _count("Inode of the namespace."), "reason": _typed("string", "Why.")})
    return {
        "kind": {"enum": ["snapshot", "interval", "total"]},
        "time": {"$ref": f"{_COMMON}time"},
        "interval_s": _typed("number", "Length of the interval; null for a snapshot.", null=True),
        "read_in_s": _typed("number", "How long reading took: each socket was as it is shown at some time in it."),
        "sockets": _count("Sockets that the filter let pass."),
        "read": _count("Sockets that were read."),
        "states": _list(states, "Of those that the filter let pass."),
        "new": _count("Of these, those that were not there before; null for a snapshot.", null=True),
        "gone": _count("Sockets that are not there any more, whatever the filter; null for a snapshot.", null=True),
        "twice": _count("Sockets that the kernel gave twice, because its tables changed; others may be missing."),
        "interrupted": _count("Answers that the kernel itself called inconsistent."),
        "tcp_info_bytes": _count("How much of struct tcp_info this kernel tells; 0 where no socket had one."),
        "namespaces": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Inode → name."},
        "unread": _list(unread, "What could not be read."),
        "filters": {"$ref": f"{_COMMON}filters"},
        "reader_cpu_percent": _typed("number", "What reading took, of one CPU; null for a snapshot.", null=True),
        "notes": {"$ref": f"{_COMMON}notes"},
    }


def _group() -> dict[str, Schema]:
    return {
        "time": {"$ref": f"{_COMMON}time"},
        "interval_s": _typed("number", "Null: sums are since each socket began.", null=True),
        "group": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "propertyNames": {"enum": list(GROUPS)},
            "description": "Grouping key → value. `-`: not known.",
        },
        "sockets": _count("How many."),
        "in_trouble": _count("Those with a sign of trouble."),
        "sent_bytes": _count("Data sent for the first time."),
        "received_bytes": _count("Data received in order."),
        "retransmitted": _count("Segments sent again."),
        "data_segments": _count("Segments with data sent, those sent again as well."),
        "drops": _count("Packets dropped at the sockets."),
        "rtt_us": _typed("number", "Median round-trip time.", null=True),
        "rtt_max_us": _typed("number", "Largest round-trip time.", null=True),
        "rtt_inflation": _typed("number", "Largest round-trip time over its minimum.", null=True),
        "receive_queue_bytes": _count("Received and not read, without listeners."),
        "send_queue_bytes": _count("Written and not acknowledged, without listeners."),
    }


def _change() -> Schema:
    shares = {
        "retransmit_share": "Segments sent again, of those with data.",
        "busy_share": "Time with something to send or unacknowledged, of the interval.",
        "rwnd_limited_share": "Time in which the peer's window stopped us, of the busy time.",
        "sndbuf_limited_share": "Time in which the send buffer stopped us, of the busy time.",
    }
    return object_schema(
        {
            "new": _typed("boolean", "It was not there before: counts are since it began."),
            "sent_bytes": _count("Data sent for the first time."),
            "received_bytes": _count("Data received in order."),
            "sent_bytes_per_s": _typed("number", "The same by the length of the interval."),
            "received_bytes_per_s": _typed("number", "The same by the length of the interval."),
            "retransmitted": _count("Segments sent again."),
            "data_segments_sent": _count("Segments with data sent, those sent again as well."),
            "timeouts": _count("Retransmission timeouts; 0 on kernels that do not count them."),
            "drops": _count("Packets dropped at the socket."),
            **{name: _typed("number", meaning, null=True) | _PART for name, meaning in shares.items()},
        },
        null=True,
        meaning="What happened in the interval; null in a snapshot, or if the namespace was not read before.",
    )


def _control() -> Schema:
    kinds = (("bbr", BBR), ("vegas", VEGAS), ("dctcp", DCTCP))
    properties = {name: {"type": "integer"} for _, dtype in kinds for name in dtype.names or ()}
    return {
        "type": ["object", "null"],
        "description": "What the congestion control tells of itself, by the kernel's names (inet_diag.h).",
        "additionalProperties": False,
        "required": ["kind"],
        "properties": {"kind": {"enum": [name for name, _ in kinds]}, **properties},
    }


def _socket() -> dict[str, Schema]:
    owner = object_schema(
        {"pid": _count("Process."), "comm": _typed("string", "Its name."), "fd": _count("Descriptor.")}
    )
    timer = {
        "name": _typed("string", "on (retransmission), keepalive, timewait or persist (window probe)."),
        "expires_ms": _count("Until it expires."),
        "retransmits": _count("How often it expired in a row."),
    }
    return {
        "time": {"$ref": f"{_COMMON}time"},
        "interval_s": _typed("number", "Null in a snapshot.", null=True),
        "protocol": {"enum": list(PROTOCOLS.values())},
        "family": {"enum": ["inet", "inet6"]},
        "state": {"enum": _states()},
        "local": _typed("string", "Address; `*` stands for those of both families."),
        "local_port": _count("0: none."),
        "peer": _typed("string", "Address of the other end."),
        "peer_port": _count("0: none."),
        "interface": _typed("string", "The one it is bound to.", null=True),
        "netns": _typed("string", "Name of the network namespace."),
        "netns_inode": _count("Its number."),
        "cookie": _count("The kernel's own number of the socket, never used twice."),
        "inode": _count("0 where no descriptor stands for it."),
        "uid": _count("Its owner."),
        "processes": _list(owner, "Who has it open."),
        "cgroup": _typed("string", "Path below the root, or container.", null=True),
        "receive_queue_bytes": _count("Received and not read; null for a listener.", null=True),
        "send_queue_bytes": _count("Written and not acknowledged; null for a listener.", null=True),
        "accept_queue": _count("Connections that wait for accept(); null unless it is a listener.", null=True),
        "backlog": _count("How many may; null unless it is a listener.", null=True),
        "timer": object_schema(timer, null=True),
        "mark": _count("SO_MARK; null without CAP_NET_ADMIN.", null=True),
        "tos": _count("Type of service.", null=True),
        "tclass": _count("Traffic class of IPv6.", null=True),
        "class_id": _count("Of net_cls, or SO_PRIORITY.", null=True),
        "v6only": _count("IPV6_V6ONLY.", null=True),
        "shutdown": _count("1: for reading, 2: for writing.", null=True),
        "socket_options": _list({"enum": list(SOCKET_OPTIONS)}, "Those that are set.", null=True),
        "congestion": _typed("string", "Congestion control.", null=True),
        "congestion_info": _control(),
        "ulp": _typed("string", "Upper layer protocol, such as tls or mptcp.", null=True),
        "memory": object_schema(
            {name: _count("Packets." if name == "drops" else "SK_MEMINFO_*.") for name in MEMORY_NAMES.values()},
            null=True,
        ),
        "rtt_inflation": _typed("number", "Round-trip time over its minimum.", null=True),
        "signs": {
            "type": "object",
            "additionalProperties": False,
            "description": "Signs of trouble, the worst kind first.",
            "properties": {sign.name: _typed("number", f"{sign.meaning} ({sign.unit}).") for sign in SIGNS},
        },
        "change": _change(),
        "tcp": object_schema(
            {field.column: _typed("integer", f"{field.meaning}.", null=True) for field in FIELDS},
            null=True,
            meaning="struct tcp_info; null: what this kernel does not tell, or there is none of.",
        ),
    }


def _states() -> list[str]:
    return list(dict.fromkeys(STATE_NAMES.values()))


SCHEMAS: Final[Mapping[str, tuple[str, Callable[[], dict[str, Schema]]]]] = {
    "sockets": ("The first line of each report: what was read.", _report),
    "sockets.socket": ("A socket.", _socket),
    "sockets.group": ("Sockets that have something in common (--group-by).", _group),
}


def schema(name: str) -> Schema:
    """Return the JSON schema of a kind of line."""
    what, make = SCHEMAS[name]
    return line_schema(name, VERSION, f"A line of `hopscope sockets --json`. {what} {_LATER}", object_schema(make()))


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], map(schema, SCHEMAS)))
