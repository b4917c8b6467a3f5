# SPDX-License-Identifier: Apache-2.0
"""SQL expressions that format an event as a line of text, JSON or CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from hopscope.model.report import Column
from hopscope.store.schema import BY_NAME, EVENT_TABLES, SQL_TYPES, TEXT
from hopscope.trace.names import CLEAN
from hopscope.trace.relation import columns, fixed
from hopscope.trace.relation_columns import FLOW_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.store.schema import Column as SchemaColumn
    from hopscope.store.schema import Table

# In the last, a line is a struct of columns.
Form: TypeAlias = Literal["text", "json", "csv", "parquet"]

_COMMON: Final = ("time_ns", "cpu", "point", "tid")
_POINT_WIDTH: Final = 14
# Negative values are error numbers, and addresses in the kernel's half of the address space.
_ERRNO: Final = -4095
_KERNEL: Final = -(1 << 55)
# Table → its columns other than the common ones.
TABLES: Final = {
    table: tuple(column.name for column in BY_NAME[table].columns if column.name not in _COMMON)
    for table in EVENT_TABLES
}
OWN_COLUMNS: Final = tuple(dict.fromkeys(name for columns in TABLES.values() for name in columns))

_TEXTS: Final = {
    "point": "coalesce(p.name, CAST(e.point AS STRING))",
    "comm": "t.comm",
    "interface": "d.name",
    "flow_name": "f.name",
}
_MEANINGS: Final = {column.name: column.meaning for table in TABLES for column in BY_NAME[table].columns}
_ALL: Final = ("time_ns", "cpu", "point", "tid", "comm", "interface", "flow_name", *OWN_COLUMNS)
_FIELDS: Final = "fields"
_TYPES: Final = {
    column.name: SQL_TYPES[np.dtype(column.dtype).name]
    for table in TABLES
    for column in BY_NAME[table].columns
    if column.name not in _TEXTS
}
_BOUND: Final = "CASE WHEN uncertain THEN CAST({} AS BIGINT) END"
COLUMNS: Final = (
    *(
        Column(name, "text", "the name, if known", name)
        if name in _TEXTS
        else Column(name, "id" if name in FLOW_NUMBERS else "number", _MEANINGS[name], name)
        for name in _ALL
    ),
    Column(_FIELDS, "text", "of an event of `record -e`: name=value of each of its fields, texts as in JSON", _FIELDS),
    Column(
        "order_bound_ns",
        "ns",
        "maximum clock error between hosts, if another host has an event within it: their order is not certain",
        "±",
    ),
)

CSV_HEADING: Final = ",".join(column.name for column in COLUMNS)

_CPU_CELL: Final = "lpad(name, CAST(greatest(length(name), 3) AS INTEGER), '0')"
# Names are padded once each instead of once per event, which would take most of the time.
fixed(
    "event_cpus",
    "a CPU as shown in a line",
    columns("cpu cell", cell="text of the line"),
    f"SELECT cpu, concat(' [', {_CPU_CELL}, '] ') AS cell FROM cpu_names",
    needs=("cpu_names",),
    report="events",
)
fixed(
    "event_points",
    "a probe point as shown in a line",
    columns("point name cell", name="name of the probe point", cell="text of the line"),
    f"SELECT point, name, concat(rpad(name, {_POINT_WIDTH}, ' '), ' ') AS cell"
    f" FROM (SELECT point, {CLEAN.format('name')} AS name FROM points) cleaned",
    report="events",
)
fixed(
    "event_threads",
    "a thread as shown in a line",
    columns("tid comm cell", cell="text of the line"),
    "SELECT tid, comm, concat(rpad(thread, 20, ' '), ' ') AS cell FROM thread_names",
    needs=("thread_names",),
    report="events",
)
fixed(
    "event_devices",
    "a device as shown in a line",
    columns("netns ifindex name", name="name of the device"),
    "SELECT netns, ifindex, name FROM device_names",
    needs=("device_names",),
    report="events",
)
fixed(
    "event_flows",
    "a flow as shown in a line",
    columns("flow name cell", cell="text of the line"),
    "SELECT flow, name, concat('  ', name) AS cell FROM flow_names",
    needs=("flow_names",),
    report="events",
)
NAMES: Final = ("event_cpus", "event_points", "event_threads", "event_devices", "event_flows")
_JOINS: Final = {
    "cpus": "LEFT JOIN event_cpus c ON c.cpu = e.cpu",
    "points": "LEFT JOIN event_points p ON p.point = e.point",
    "threads": "LEFT JOIN event_threads t ON t.tid = e.tid",
    "flow": "LEFT JOIN event_flows f ON f.flow = e.flow",
    "ifindex": "LEFT JOIN event_devices d ON d.netns = e.netns AND d.ifindex = e.ifindex",
}

# A table's own columns, in the terms of its points.
_SAYS: Final = {
    "packets": """
        '  len ', e.len_bytes, CASE WHEN e.header_bytes > 0 THEN concat(' hdr ', e.header_bytes) ELSE '' END,
        CASE WHEN e.flow <> 0 THEN concat(' seq ', e.seq) ELSE '' END,
        CASE WHEN e.tcp_flags > 0 THEN concat(' flags ', e.tcp_flags) ELSE '' END, ' skb ', lower(hex(e.skb))""",
    "sockets": """
        CASE WHEN e.len_bytes <> 0 THEN concat('  bytes ', e.len_bytes) ELSE ' ' END,
        CASE WHEN e.protocol = 6 THEN concat(' seq ', e.seq) ELSE '' END,
        CASE WHEN e.value <> 0 THEN concat(' value ', e.value) ELSE '' END, ' sock ', lower(hex(e.sock))""",
    "cpu": """
        CASE WHEN p.name LIKE 'napi%' THEN concat('  work ', e.value, '/', e.extra, ' napi ', lower(hex(e.subject)))
             WHEN p.name LIKE 'sched%' THEN concat('  tid ', e.subject, ' value ', e.value)
             WHEN p.name = 'irq.enter' AND e.value <> 0 THEN concat('  ', e.subject, ' handler ', lower(hex(e.value)))
             WHEN e.value <> 0 THEN concat('  ', e.subject, ' value ', e.value)
             ELSE concat('  ', e.subject) END""",
    "tcp": """
        '  cwnd ', e.snd_cwnd, CASE WHEN e.ssthresh < 2147483647 THEN concat(' ssthresh ', e.ssthresh) ELSE '' END,
        ' in flight ', e.in_flight, ' srtt ', e.srtt_us, ' µs snd_wnd ', e.snd_wnd, ' rcv_wnd ', e.rcv_wnd,
        ' una ', e.snd_una, ' nxt ', e.snd_nxt""",
}


def line_of(form: Form, table: str, started_ns: int) -> str:
    """Return the expression for the line of an event `e` of a table, with the names added by :func:`joins`."""
    if form == "text":
        return _text(table, started_ns)
    return _ROWS[form](_known_of(table))


def line_of_fields(form: Form, table: Table, started_ns: int) -> str:
    """Return the expression for the line of an event `e` of one of the trace's own tables, named like its point."""
    fields = [column for column in table.columns if column.name not in _COMMON]
    if form == "text":
        said = ", ".join(f"' {column.name} ', {_shown(column)}" for column in fields)
        point = f"rpad('{table.name}', {max(len(table.name), _POINT_WIDTH) + 1}, ' ')"
        return f"concat({_head(started_ns, point)}, ' '{f', {said}' if said else ''})"
    given = ", ' ', ".join(f"'{column.name}=', {_given(column)}" for column in fields)
    known: dict[str, str | None] = {name: f"e.{name}" for name in _COMMON if name != "point"}
    known |= {"point": f"'{table.name}'", "comm": _TEXTS["comm"], _FIELDS: f"concat({given})" if fields else "''"}
    return _ROWS[form](known)


def finished(form: Form, bound_ns: int | None) -> str:
    """Return what is selected of a line, with what :func:`line_of` leaves open: how certain its place in the order is.

    Parameters
    ----------
    form
        As for :func:`line_of`.
    bound_ns
        The error bound of the difference of times of two hosts; None in a trace of one host. Otherwise the line has a
        column `uncertain`.
    """
    if form == "parquet":
        return f"line.*, {'CAST(NULL AS BIGINT)' if bound_ns is None else _BOUND.format(bound_ns)} AS order_bound_ns"
    if form == "text":
        return "line" if bound_ns is None else "concat(CASE WHEN uncertain THEN '~' ELSE ' ' END, line)"
    known = {"json": ("null", ',"order_bound_ns":', "}"), "csv": ("", ",", "")}[form]
    value = f"'{known[0]}'" if bound_ns is None else f"CASE WHEN uncertain THEN '{bound_ns}' ELSE '{known[0]}' END"
    return f"concat(line, '{known[1]}', {value}, '{known[2]}')"


def joins(table: str) -> str:
    """Return the joins that add the names of the objects of an event."""
    return " ".join(join for of, join in _JOINS.items() if of in {"cpus", "points", "threads", *TABLES[table]})


def joins_of_fields() -> str:
    """Return the joins that add the names of an event's CPU and thread."""
    return f"{_JOINS['cpus']} {_JOINS['threads']}"


def _shown(column: SchemaColumn) -> str:
    """Return the expression for a field's value as text, with kernel addresses in hexadecimal."""
    value = f'e."{column.name}"'
    if column.dtype == TEXT:
        return f"coalesce({CLEAN.format(value)}, '-')"
    if column.dtype == "int64":
        address = f"{value} < {_ERRNO} AND {value} >= {_KERNEL}"
        return f"CASE WHEN {address} THEN lower(hex({value})) ELSE coalesce(CAST({value} AS STRING), '-') END"
    return f"coalesce(CAST({value} AS STRING), '-')"


def _given(column: SchemaColumn) -> str:
    """Return the expression for a field's value in JSON or CSV."""
    value = f'e."{column.name}"'
    if column.dtype == TEXT:
        text = f"concat('\"', {_escaped(CLEAN.format(value))}, '\"')"
        return f"CASE WHEN {value} IS NULL THEN 'null' ELSE {text} END"
    return f"coalesce(CAST({value} AS STRING), 'null')"


def _text(table: str, started_ns: int) -> str:
    own = TABLES[table]
    device = "coalesce(d.name, CASE WHEN e.ifindex > 0 THEN concat('device ', e.ifindex) ELSE '' END)"
    point = f"coalesce(p.cell, rpad({_TEXTS['point']}, {_POINT_WIDTH + 1}, ' '))"
    return f"""concat({_head(started_ns, point)},
    {device if "ifindex" in own else "''"}, {"coalesce(f.cell, '')" if "flow" in own else "''"},{_SAYS[table]})"""


def _head(started_ns: int, point: str) -> str:
    """Return the arguments of concat for the beginning of all lines: time, CPU, point, thread."""
    at_ns = f"(e.time_ns - {started_ns})"
    return f"""
    {_filled(at_ns, [10_000_000_000, 100_000_000_000, 1_000_000_000_000], " ")},
    CAST(CAST({at_ns} AS DECIMAL(18, 0)) * CAST(0.000000001 AS DECIMAL(10, 9)) AS STRING),
    coalesce(c.cell, concat(' [', e.cpu, '] ')), {point},
    coalesce(t.cell, rpad(CASE WHEN e.tid = 0 THEN 'idle' ELSE concat('?-', e.tid) END, 21, ' '))"""


def _filled(number: str, limits: list[int], fill: str) -> str:
    """Return the expression for the padding of a number: one character per limit that it is below."""
    branches = " ".join(
        f"WHEN {number} < {limit} THEN '{fill * (len(limits) - place)}'" for place, limit in enumerate(limits)
    )
    return f"CASE {branches} ELSE '' END"


def _known_of(table: str) -> dict[str, str | None]:
    """Return column → its expression, None if the table does not have it."""
    needs = {"interface": "ifindex", "flow_name": "flow"}
    absent = {name for name in OWN_COLUMNS if name not in TABLES[table]}
    return {name: None if needs.get(name, name) in absent else _TEXTS.get(name, f"e.{name}") for name in _ALL}


def _json(known: Mapping[str, str | None]) -> str:
    parts = ['\'{"schema":"hopscope.report.events/1"\'']
    for name in (*_ALL, _FIELDS):
        value = known.get(name)
        if value is None:
            parts.append(f"',\"{name}\":null'")
        elif name in {*_TEXTS, _FIELDS}:
            parts.append(f"',\"{name}\":', coalesce('\"' || {_escaped(value)} || '\"', 'null')")
        elif name in FLOW_NUMBERS:
            parts.append(f"',\"{name}\":\"', {value}, '\"'")
        else:
            parts.append(f"',\"{name}\":', {value}")
    return f"concat({', '.join(parts)})"


def _csv(known: Mapping[str, str | None]) -> str:
    parts = []
    for name in (*_ALL, _FIELDS):
        value = known.get(name) or "''"
        parts.append(f"coalesce({_quoted(value)}, '')" if name in {*_TEXTS, _FIELDS} and value != "''" else value)
    return "concat(" + ", ',', ".join(parts) + ")"


def _escaped(text: str) -> str:
    """Return a text escaped for a JSON string; names have no control characters."""
    return f"replace(replace({text}, '\\', '\\\\'), '\"', '\\\"')"


def _quoted(text: str) -> str:
    special = f"({text} LIKE '%,%' OR {text} LIKE '%\"%')"
    return f"CASE WHEN {special} THEN concat('\"', replace({text}, '\"', '\"\"'), '\"') ELSE {text} END"


def _struct(known: Mapping[str, str | None]) -> str:
    parts = [
        f"'{name}': CAST({known.get(name) or 'NULL'} AS {_TYPES.get(name, 'STRING')})" for name in (*_ALL, _FIELDS)
    ]
    return f"{{{', '.join(parts)}}}"


_ROWS: Final = {"json": _json, "csv": _csv, "parquet": _struct}
