# SPDX-License-Identifier: Apache-2.0
"""What a recording is asked for: as the user's options say it, here or on another host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hopscope.bpf.layout import HopRule
from hopscope.errors import UsageError
from hopscope.live.lookup import record_options
from hopscope.live.options import BUFFERS
from hopscope.live.recorder.options import PREFIX, EventClass
from hopscope.verbs.record.flight import Trigger
from hopscope.verbs.record.pipeline import Flight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.live.recorder.options import RecordOptions

_DEFAULT: Final = ("messages",)
_MIB: Final = 1 << 20
# Of a class of events.
_NAME: Final = re.compile(r"[A-Za-z][\w-]{0,30}", re.ASCII)
# Where the beginning of what packets carry is recorded.
_CARRYING: Final = ("rx.driver", "tx.queue")
# Options of the command that another host may be asked for: they say what to record there, and nothing else.
SENT: Final = frozenset(
    {
        *(
            "profiles",
            "points",
            "events",
            "pcap",
            "keep",
            "drop",
            "classes",
            "stacks",
            "libraries",
            "tls_bytes",
            "sample",
            "snap",
            "bytes",
            "counters",
            "interfaces",
            "protocol",
        ),
        *(
            "pids",
            "comms",
            "cgroups",
            "namespaces",
            "addresses",
            "ports",
            "buffer",
            "class_buffers",
            "flight",
            "triggers",
            "flight_memory",
        ),
        "ways",
    }
)


class Asked(NamedTuple):
    """What a recording is asked for.

    Attributes
    ----------
    options
        Of the recorder.
    flight
        Keep the last seconds only.
    counters_s
        Read the kernel's counters so often; None: never.
    """

    options: RecordOptions
    flight: Flight | None
    counters_s: float | None


def asked(values: Mapping[str, Any]) -> Asked:
    """Return what the values of the options in :data:`SENT` ask for.

    Raises
    ------
    UsageError
        Something of it does not exist on this host, or two options do not go together.
    """
    given = dict(values)
    snap, buffer, counters = given.pop("snap"), given.pop("buffer"), given.pop("counters")
    last_s, triggers, memory = given.pop("flight"), given.pop("triggers"), given.pop("flight_memory")
    if triggers and not last_s:
        raise UsageError("--trigger needs --flight", "Specify how many seconds to keep: --flight 10")
    if given["tls_bytes"] and not given["libraries"]:
        raise UsageError("--tls-bytes needs --library", "Specify whose calls: --library auto")
    events = given.pop("events")
    given["classes"] = _classes(given["classes"], given.pop("class_buffers"), buffer)
    given["profiles"] = given["profiles"] or (() if given["points"] or events else _DEFAULT)
    given |= {"snap_bytes": snap or 0, "tls_bytes": given["tls_bytes"] or 0, "ring_bytes": int(buffer) * _MIB}
    given["payload_bytes"] = given.pop("bytes") or 0
    options = record_options(**given, tracepoints=events, marks=True)
    if options.payload_bytes and not {f"{PREFIX}{name}" for name in _CARRYING} & set(options.names()):
        raise UsageError("--bytes needs packets, which this profile does not record", "Add -P messages")
    flight = Flight(last_s, memory * _MIB, [_trigger(text, options) for text in triggers]) if last_s else None
    return Asked(options, flight, counters or None)


def _classes(texts: Sequence[str], buffers: Sequence[str], buffer: str) -> list[EventClass]:
    """Return the classes of --class and --class-buffer."""
    conditions = _by_name("--class", texts, "drops='point == skb.drop'")
    sizes = _by_name("--class-buffer", buffers, "drops=64")
    if len(conditions) > HopRule.HOP_CLASSES:
        raise UsageError(
            f"--class was given {len(conditions)} times, and there can be {int(HopRule.HOP_CLASSES)} classes",
            "Join two of them by `or`",
        )
    for name, size in sizes.items():
        if name not in conditions:
            raise UsageError(f"--class-buffer {name}={size}: there is no class {name}", f"Add --class {name}=CONDITION")
        if size not in BUFFERS:
            raise UsageError(
                f"--class-buffer {name}={size}: a ring cannot have this size", f"Choose from {', '.join(BUFFERS)} MiB"
            )
    return [EventClass(name, text, int(sizes.get(name, buffer)) * _MIB) for name, text in conditions.items()]


def _by_name(option: str, texts: Sequence[str], example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not _NAME.fullmatch(name) or not value:
            raise UsageError(f"{option} {text} has no name before a `=`", f"Write it as in {option} {example}")
        if name in found:
            raise UsageError(f"{option} {name} is given twice", "Give each class a name of its own")
        found[name] = value
    return found


def _trigger(text: str, options: RecordOptions) -> Trigger:
    """Return a trigger that can fire in this recording."""
    trigger = Trigger.parse(text)
    trigger.require_recorded({name.removeprefix(PREFIX) for name in options.names()})
    return trigger
