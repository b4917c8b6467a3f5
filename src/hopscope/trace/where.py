# SPDX-License-Identifier: Apache-2.0
"""A condition on events as SQL: the same events that it selects where they are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.model.condition import Comparison, Joined, Not, comparisons
from hopscope.model.event_fields import Kind, Known, event_condition, is_in_network
from hopscope.store.schema import EVENT_TABLES, TEXT
from hopscope.trace.host_numbers import NAMESPACES, own_cpu, own_thread
from hopscope.trace.names import points

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.condition import Condition, Sign
    from hopscope.store.schema import Table
    from hopscope.store.trace import Trace

_SIGNS: Final[dict[Sign, str]] = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OF_FLOWS: Final = ("source", "source_port", "destination", "destination_port", "protocol")
_LAST_NAMES: Final = "SELECT tid, max_by(pid, time_ns) AS pid, max_by(comm, time_ns) AS comm FROM threads GROUP BY tid"
_OF_THREADS: Final = {"pid": own_thread("pid"), "comm": "comm"}
# In a recording of several hosts, numbers are above those that the hosts have.
_OWN_NUMBERS: Final = {"cpu": own_cpu("cpu"), "tid": own_thread("tid"), "netns": f"(netns % {NAMESPACES})"}


class Where:
    """A condition on the events of a trace.

    Parameters
    ----------
    trace
        The trace.
    text
        As :func:`~hopscope.model.condition.parse` reads it.

    Raises
    ------
    UsageError
        It is no condition, or it compares what events do not have.
    """

    def __init__(self, trace: Trace, text: str) -> None:
        self._trace = trace
        self._points: dict[str, int] = points(trace)
        self._condition = event_condition(text, known_of(self._points, trace.metadata.tables))

    @property
    def needs_lifetimes(self) -> bool:
        """Whether it compares what only a packet's other events say: when they were, and its flow."""
        return any(each.field in {"hop_ns", "flow", *_OF_FLOWS} for each in comparisons(self._condition))

    def sql(self, table: Table) -> str:
        """Return the condition on an event of a table: TRUE or FALSE, never NULL.

        Where lifetimes are needed, packets are those of ``skb_lifetimes``.
        """
        return self._of(self._condition, table)

    def _of(self, condition: Condition, table: Table) -> str:
        match condition:
            case Comparison(field, sign, value):
                return self._compared(table, field, sign, value)
            case Not(inner):
                return f"(NOT {self._of(inner, table)})"
            case Joined(both, left, right):
                return f"({self._of(left, table)} {'AND' if both else 'OR'} {self._of(right, table)})"

    def _compared(  # noqa: PLR0911 # one a kind of field
        self,
        table: Table,
        field: str,
        sign: Sign,
        value: Any,  # noqa: ANN401 # a number or a text
    ) -> str:
        own = {column.name for column in table.columns}
        standard = table.name in EVENT_TABLES
        if field == "point":
            return self._at_point(table, sign, value)
        if field in _OF_FLOWS and standard:
            flow = "life_flow" if table.name == "packets" else "flow"
            return f"{flow} IN ({self._flows(field, sign, value)})" if "flow" in own else "FALSE"
        if field in _OF_THREADS:
            return f"tid IN (SELECT tid FROM ({_LAST_NAMES}) n WHERE {_sql(_OF_THREADS[field], sign, value)})"
        if field == "hop_ns":
            return _known("time_ns - from_time_ns", sign, value) if table.name == "packets" else "FALSE"
        if field == "interface" and "ifindex" in own:
            return f"(netns, ifindex) IN (SELECT netns, ifindex FROM devices WHERE {_sql('name', sign, value)})"
        if field == "reason" and table.name == "packets":
            named = f"SELECT reason FROM reasons WHERE {_sql('name', sign, value)}"
            dropped = f"SELECT time_ns, cpu, skb FROM drops WHERE reason IN ({named})"
            return f"(time_ns, cpu, skb) IN ({dropped})"
        if field == "flow" and table.name == "packets":
            return _known("life_flow", sign, value)
        if field not in own:
            return "FALSE"
        return _known(_OWN_NUMBERS.get(field, f'"{field}"') if standard else f'"{field}"', sign, value)

    def _at_point(self, table: Table, sign: Sign, value: str) -> str:
        if table.name not in EVENT_TABLES:
            return str((table.name == value) == (sign == "==")).upper()
        number = self._points.get(value)
        return f"point {_SIGNS[sign]} {number}" if number is not None else str(sign == "!=").upper()

    def _flows(self, field: str, sign: Sign, value: int | str) -> str:
        if field not in {"source", "destination"}:
            return f"SELECT flow FROM flows WHERE {_sql(field, sign, value)}"
        known = self._trace.rows(f"SELECT DISTINCT {field} FROM flows")
        members = [text for (text,) in known if is_in_network(text or "", str(value)) == (sign == "==")]
        listed = ", ".join(map(_text, members)) or "NULL"
        return f"SELECT flow FROM flows WHERE {field} IN ({listed})"


def tables_of_events(tables: Iterable[Table]) -> list[Table]:
    """Return those of a trace's own tables whose rows are events."""
    return [table for table in tables if {"time_ns", "cpu", "tid"} <= {each.name for each in table.columns}]


def known_of(names: Iterable[str], own: Iterable[Table]) -> Known:
    """Return what conditions can name, besides the fields of all events, of points and of tables of tracepoints."""
    tables = tables_of_events(own)
    kinds = {
        column.name: Kind.TEXT if column.dtype == TEXT else Kind.NUMBER
        for table in tables
        for column in table.columns
        if column.dtype == TEXT or np.issubdtype(np.dtype(column.dtype), np.integer)
    }
    return Known([*names, *(table.name for table in tables)], kinds)


def _known(expression: str, sign: Sign, value: int | str) -> str:
    return f"coalesce({_sql(expression, sign, value)}, FALSE)"


def _sql(expression: str, sign: Sign, value: int | str) -> str:
    if sign == "&":
        return f"({expression}) & {value} <> 0"
    return f"{expression} {_SIGNS[sign]} {_text(value) if isinstance(value, str) else value}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
