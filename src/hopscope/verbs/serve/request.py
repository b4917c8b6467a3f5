# SPDX-License-Identifier: Apache-2.0
"""What a subscriber asks for: one line of JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, get_args

from hopscope.errors import HopscopeError, UsageError
from hopscope.kernel.tracepoints import Spec
from hopscope.live.recorder.options import LIBRARY_POINTS, PREFIX, PROFILES
from hopscope.live.recorder.tables import point_names, table_of
from hopscope.model.condition import comparisons, parse
from hopscope.model.event_fields import BY_NAME, OTHERS
from hopscope.probes.catalogue import POINTS

Form: TypeAlias = Literal["arrow", "json", "wire"]

VERSION: Final = 1
LONGEST: Final = 1 << 16
# Unless others are named.
USUAL_FIELDS: Final = (
    *("time_ns", "cpu", "point", "tid", "pid", "comm", "interface", "netns", "flow", "source", "source_port"),
    *("destination", "destination_port", "protocol", "len_bytes", "hop_ns", "reason"),
)
_POINTS: Final = frozenset(name.removeprefix(PREFIX) for name in POINTS if name.startswith(PREFIX)).difference(
    LIBRARY_POINTS
)
_DEFAULTS: Final[dict[str, Any]] = {
    "version": VERSION,
    "points": ["messages"],
    "events": [],
    "where": "",
    "fields": [],
    "format": "arrow",
    "since": 0,
    "queue": 16,
}
_PACKETS: Final = frozenset(name for point, name in point_names().items() if table_of(point) == "packets")
_OF_LIFETIMES: Final = frozenset(
    {*("hop_ns", "flow", "source", "source_port", "destination", "destination_port", "protocol"), *OTHERS}
)
# But what patterns have.
_NOT_IN_NAMES: Final = re.compile(r"[^\w*?\[\]]", re.ASCII)
_MOST_NAMES: Final = 256
_MOST_QUEUE: Final = 256
_MIB: Final = 1 << 20
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request.

    Attributes
    ----------
    named
        Points and profiles, as they were asked for.
    events
        Tracepoints, as `record -e` takes them.
    where
        A condition; empty: all events of these.
    compared
        Fields that it compares.
    fields
        Columns, in this order; of tracepoints as well.
    form
        ``arrow``, ``json`` or ``wire``.
    since_s
        So much of what was kept comes first.
    queue_bytes
        What may wait for this subscriber.
    """

    named: frozenset[str]
    events: frozenset[str]
    where: str
    compared: frozenset[str]
    fields: tuple[str, ...]
    form: Form
    since_s: float
    queue_bytes: int

    @property
    def path(self) -> frozenset[str]:
        """Points that are needed besides: packets are followed by all that they pass, whatever others ask for."""
        return _PACKETS if self.needs_lifetimes else frozenset()

    def wants(self, point: str) -> bool:
        """Tell whether events of a point, or of a tracepoint by its table's name, are wanted."""
        tables = ("e_" + _NOT_IN_NAMES.sub("_", text) for text in self.events)
        return point in self.points or any(fnmatchcase(point, table) for table in tables)

    @property
    def points(self) -> frozenset[str]:
        """Probe points."""
        return frozenset(point for name in self.named for point in PROFILES.get(name, (name,)))

    @property
    def needs_lifetimes(self) -> bool:
        """Whether something is wanted that only a packet's other events say."""
        named = {*self.fields, *self.compared}
        return not named.isdisjoint(_OF_LIFETIMES) or not named.isdisjoint(self.points)


def parse_request(line: bytes) -> Request:
    """Return what a line asks for.

    Raises
    ------
    UsageError
        It is no request, or one of another version.
    """
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise UsageError(
            "The request is no JSON object", 'Send one line, such as {"points": ["drops"], "format": "json"}'
        )
    if (version := asked.get("version", VERSION)) != VERSION or isinstance(version, bool):
        raise UsageError(f"This hopscope serves version {VERSION} of subscriptions, not {version!r:.40}")
    if unknown := asked.keys() - _DEFAULTS.keys():
        raise UsageError(
            f"The request has an unknown member {min(unknown)!r:.60}", f"It may have {', '.join(_DEFAULTS)}"
        )
    found = _DEFAULTS | asked
    form = found["format"]
    if form not in get_args(Form):
        raise UsageError(f"The format {form!r:.40} is unknown", f"Use {' or '.join(get_args(Form))}")
    where = found["where"]
    if not isinstance(where, str):
        raise UsageError("where is no text", "See docs/conditions.md")
    compared = list(comparisons(parse(where))) if where else []
    # What is selected by its point is wanted at that point.
    selected = _POINTS.intersection(text for each in compared for text in (each.field, each.value))
    return Request(
        named=_named(_texts(found["points"], "points")) | selected,
        events=frozenset(_event(text) for text in _texts(found["events"], "events")),
        where=where,
        compared=frozenset(each.field for each in compared),
        fields=tuple(dict.fromkeys(_texts(found["fields"], "fields"))) or USUAL_FIELDS,
        form=form,
        since_s=_number(found["since"], "since", 0, _DAY_S),
        queue_bytes=round(_number(found["queue"], "queue", 1, _MOST_QUEUE) * _MIB),
    )


def require_fields(request: Request, own: set[str]) -> None:
    """Return if there are all fields that are wanted, of all events and of their tracepoints.

    Raises
    ------
    UsageError
        One is not.
    """
    for name in request.fields:
        if name not in BY_NAME and name not in own:
            raise UsageError(f"Events have no field {name:.60}", f"There are {', '.join([*BY_NAME, *sorted(own)])}")


def _texts(value: Any, name: str) -> list[str]:  # noqa: ANN401 # as JSON has it
    if not isinstance(value, list) or len(value) > _MOST_NAMES or not all(isinstance(each, str) for each in value):
        raise UsageError(f"{name} is no list of at most {_MOST_NAMES} texts")
    return value


def _named(names: list[str]) -> frozenset[str]:
    for name in names:
        if name not in _POINTS and name not in PROFILES:
            raise UsageError(
                f"There is no probe point or profile {name:.60}", "`hopscope probes` lists points: record.*"
            )
    return frozenset(names)


def _event(text: str) -> str:
    try:
        spec = Spec.parse(text)
    except HopscopeError as error:
        raise UsageError(error.what, error.next_step) from error
    if spec.is_function:
        raise UsageError(f"{text:.60} is no tracepoint", "Functions are recorded by `hopscope record -e` alone")
    if spec.filter:
        raise UsageError(f"{text:.60} has a filter", "Several may subscribe to a tracepoint: use `where`")
    return str(spec)


def _number(value: Any, name: str, least: float, most: float) -> float:  # noqa: ANN401 # as JSON has it
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise UsageError(f"{name} is no number from {least:g} to {most:g}")
    return value
