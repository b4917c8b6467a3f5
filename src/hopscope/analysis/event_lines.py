# SPDX-License-Identifier: Apache-2.0
"""Expressions in SQL that make a line of an event: for people, as JSON, as CSV."""

from __future__ import annotations

from typing import Final, Literal

from hopscope.analysis.report import Column
from hopscope.store.schema import BY_NAME

_COMMON: Final = ("time_ns", "cpu", "point", "tid")
# Table → its columns besides those that all events have.
TABLES: Final = {
    table: tuple(column.name for column in BY_NAME[table].columns if column.name not in _COMMON)
    for table in ("packets", "sockets", "cpu")
}
OWN_COLUMNS: Final = tuple(dict.fromkeys(name for columns in TABLES.values() for name in columns))

_TEXTS: Final = {
    "point": "coalesce(p.name, CAST(e.point AS VARCHAR))",
    "comm": "t.comm",
    "interface": "d.name",
    "flow_name": "f.name",
}
_MEANINGS: Final = {column.name: column.meaning for table in TABLES for column in BY_NAME[table].columns}
_ALL: Final = ("time_ns", "cpu", "point", "tid", "comm", "interface", "flow_name", *OWN_COLUMNS)
COLUMNS: Final = tuple(
    Column(name, "text", "the name, where it is known", name)
    if name in _TEXTS
    else Column(name, "number", _MEANINGS[name], name)
    for name in _ALL
)

CSV_HEADING: Final = ",".join(_ALL)

# Names are padded once each, and not once an event: most of the time of a line would go there.
NAMES: Final = {
    "event_points": "SELECT point, name, concat(rpad(name, 14, ' '), ' ') AS cell FROM points",
    "event_threads": "SELECT tid, comm, concat(rpad(concat(comm, '-', tid), 20, ' '), ' ') AS cell FROM thread_names",
    "event_devices": "SELECT netns, ifindex, name FROM device_names",
    "event_flows": "SELECT flow, name, concat('  ', name) AS cell FROM flow_names",
}
_JOINS: Final = {
    "points": "LEFT JOIN event_points p ON p.point = e.point",
    "threads": "LEFT JOIN event_threads t ON t.tid = e.tid",
    "flow": "LEFT JOIN event_flows f ON f.flow = e.flow",
    "ifindex": "LEFT JOIN event_devices d ON d.netns = e.netns AND d.ifindex = e.ifindex",
}

# What a table's own columns say, in the words of its points.
_SAYS: Final = {
    "packets": """
        '  len ', e.len_bytes, CASE WHEN e.header_bytes > 0 THEN concat(' hdr ', e.header_bytes) ELSE '' END,
        CASE WHEN e.flow <> 0 THEN concat(' seq ', e.seq) ELSE '' END,
        CASE WHEN e.tcp_flags > 0 THEN concat(' flags ', e.tcp_flags) ELSE '' END, ' skb ', lower(to_hex(e.skb))""",
    "sockets": """
        CASE WHEN e.len_bytes <> 0 THEN concat('  bytes ', e.len_bytes) ELSE ' ' END,
        CASE WHEN e.protocol = 6 THEN concat(' seq ', e.seq) ELSE '' END,
        CASE WHEN e.value <> 0 THEN concat(' value ', e.value) ELSE '' END, ' sock ', lower(to_hex(e.sock))""",
    "cpu": """
        CASE WHEN p.name LIKE 'napi%' THEN concat('  work ', e.value, '/', e.extra, ' napi ', lower(to_hex(e.subject)))
             WHEN p.name LIKE 'sched%' THEN concat('  tid ', e.subject, ' value ', e.value)
             WHEN e.value <> 0 THEN concat('  ', e.subject, ' value ', e.value)
             ELSE concat('  ', e.subject) END""",
}


def line_of(form: Literal["text", "json", "csv"], table: str, started_ns: int) -> str:
    """Return the expression for the line of an event `e` of a table, with the names that :func:`joins` brings."""
    if form == "text":
        return _text(table, started_ns)
    return _json(table) if form == "json" else _csv(table)


def joins(table: str) -> str:
    """Return the joins that bring the names of what an event of a table has."""
    return " ".join(join for of, join in _JOINS.items() if of in {"points", "threads", *TABLES[table]})


def _text(table: str, started_ns: int) -> str:
    at_ns = f"(e.time_ns - {started_ns})"
    own = TABLES[table]
    device = "coalesce(d.name, CASE WHEN e.ifindex > 0 THEN concat('device ', e.ifindex) ELSE '' END)"
    return f"""concat(
    {_filled(at_ns, [10_000_000_000, 100_000_000_000, 1_000_000_000_000], " ")},
    CAST(CAST({at_ns} AS DECIMAL(18, 0)) * CAST(0.000000001 AS DECIMAL(10, 9)) AS VARCHAR),
    ' [', {_filled("e.cpu", [10, 100], "0")}, e.cpu, '] ', coalesce(p.cell, rpad({_TEXTS["point"]}, 15, ' ')),
    coalesce(t.cell, rpad(CASE WHEN e.tid = 0 THEN 'idle' ELSE concat('?-', e.tid) END, 21, ' ')),
    {device if "ifindex" in own else "''"}, {"coalesce(f.cell, '')" if "flow" in own else "''"},{_SAYS[table]})"""


def _filled(number: str, limits: list[int], fill: str) -> str:
    """Return the expression for what aligns a number: a character for each limit that it is below."""
    branches = " ".join(
        f"WHEN {number} < {limit} THEN '{fill * (len(limits) - place)}'" for place, limit in enumerate(limits)
    )
    return f"CASE {branches} ELSE '' END"


def _known(name: str, table: str) -> str | None:
    """Return the expression for a column, None where the table has none."""
    needs = {"interface": "ifindex", "flow_name": "flow"}.get(name, name)
    if needs in OWN_COLUMNS and needs not in TABLES[table]:
        return None
    return _TEXTS.get(name, f"e.{name}")


def _json(table: str) -> str:
    parts = ['\'{"schema":"hopscope.report.events/1"\'']
    for name in _ALL:
        value = _known(name, table)
        if value is None:
            parts.append(f"',\"{name}\":null'")
        elif name in _TEXTS:
            parts.append(f"',\"{name}\":', coalesce('\"' || {_escaped(value)} || '\"', 'null')")
        else:
            parts.append(f"',\"{name}\":', {value}")
    return f"concat({', '.join(parts)}, '}}')"


def _csv(table: str) -> str:
    parts = []
    for name in _ALL:
        value = _known(name, table)
        parts.append("''" if value is None else f"coalesce({_quoted(value)}, '')" if name in _TEXTS else value)
    return "concat(" + ", ',', ".join(parts) + ")"


def _escaped(text: str) -> str:
    """Return a text as it stands in a JSON string; names have no control characters."""
    return f"replace(replace({text}, '\\', '\\\\'), '\"', '\\\"')"


def _quoted(text: str) -> str:
    special = f"({text} LIKE '%,%' OR {text} LIKE '%\"%')"
    return f"CASE WHEN {special} THEN concat('\"', replace({text}, '\"', '\"\"'), '\"') ELSE {text} END"
