# SPDX-License-Identifier: Apache-2.0
"""Expressions in SQL that make a line of an event: for people, as JSON, as CSV."""

from __future__ import annotations

from typing import Final, Literal

# Table → its columns besides those that all events have.
TABLES: Final = {
    "packets": ("skb", "head", "flow", "len_bytes", "header_bytes", "seq", "tcp_flags", "ifindex", "netns"),
    "sockets": ("sock", "flow", "seq", "len_bytes", "value", "protocol", "netns"),
    "cpu": ("subject", "value", "extra", "ifindex", "netns"),
}
OWN_COLUMNS: Final = tuple(dict.fromkeys(name for columns in TABLES.values() for name in columns))

_NUMBERS: Final = {name: f"e.{name}" for name in ("time_ns", "cpu", "tid", *OWN_COLUMNS)}
_TEXTS: Final = {
    "point": "coalesce(p.name, CAST(e.point AS VARCHAR))",
    "comm": "t.comm",
    "interface": "d.name",
    "flow_name": "f.name",
}
_ORDER: Final = ("time_ns", "cpu", "point", "tid", "comm", "interface", "flow_name", *OWN_COLUMNS)

CSV_HEADING: Final = ",".join(_ORDER)

# What a table's own columns say, in the words of its points; a part is left out where its column is NULL.
_SAYS: Final = """
    CASE WHEN f.name IS NULL THEN '' ELSE concat('  ', f.name) END,
    CASE WHEN e.skb IS NULL THEN '' ELSE concat(
        '  len ', e.len_bytes, CASE WHEN e.header_bytes > 0 THEN concat(' hdr ', e.header_bytes) ELSE '' END,
        CASE WHEN e.flow <> 0 THEN concat(' seq ', e.seq) ELSE '' END,
        CASE WHEN e.tcp_flags > 0 THEN concat(' flags ', e.tcp_flags) ELSE '' END,
        ' skb ', lower(to_hex(e.skb))) END,
    CASE WHEN e.sock IS NULL THEN '' ELSE concat(
        CASE WHEN e.len_bytes <> 0 THEN concat('  bytes ', e.len_bytes) ELSE ' ' END,
        CASE WHEN e.protocol = 6 THEN concat(' seq ', e.seq) ELSE '' END,
        CASE WHEN e.value <> 0 THEN concat(' value ', e.value) ELSE '' END, ' sock ', lower(to_hex(e.sock))) END,
    CASE WHEN e.subject IS NULL THEN ''
         WHEN p.name LIKE 'napi%' THEN concat('  work ', e.value, '/', e.extra, ' napi ', lower(to_hex(e.subject)))
         WHEN p.name LIKE 'sched%' THEN concat('  tid ', e.subject, ' value ', e.value)
         ELSE concat('  ', e.subject, CASE WHEN e.value <> 0 THEN concat(' value ', e.value) ELSE '' END) END"""


def line_of(form: Literal["text", "json", "csv"], started_ns: int) -> str:
    """Return the expression for an event's line; `e` is the event, `p`, `f`, `d`, `t` have its names."""
    return {"text": _text(started_ns), "json": _json(), "csv": _csv()}[form]


def _text(started_ns: int) -> str:
    at_ns = f"(e.time_ns - {started_ns})"
    return f"""concat(
    lpad(CAST({at_ns} // 1000000000 AS VARCHAR), 4, ' '), '.', lpad(CAST({at_ns} % 1000000000 AS VARCHAR), 9, '0'),
    ' [', lpad(CAST(e.cpu AS VARCHAR), 3, '0'), '] ', rpad({_TEXTS["point"]}, 14, ' '), ' ',
    rpad(CASE WHEN e.tid = 0 THEN 'idle' ELSE concat(coalesce(t.comm, '?'), '-', e.tid) END, 20, ' '), ' ',
    coalesce(d.name, CASE WHEN e.ifindex > 0 THEN concat('device ', e.ifindex) ELSE '' END),{_SAYS})"""


def _json() -> str:
    parts = []
    for name in _ORDER:
        text = _TEXTS.get(name)
        value = f"'\"', {_escaped(text)}, '\"'" if text else _NUMBERS[name]
        known = f"concat({value})" if text else f"CAST({value} AS VARCHAR)"
        parts.append(f"',\"{name}\":', CASE WHEN {text or value} IS NULL THEN 'null' ELSE {known} END")
    return f"concat('{{\"schema\":\"hopscope.report.events/1\"', {', '.join(parts)}, '}}')"


def _csv() -> str:
    parts = []
    for name in _ORDER:
        text = _TEXTS.get(name)
        parts.append(f"coalesce({_quoted(text)}, '')" if text else f"coalesce(CAST({_NUMBERS[name]} AS VARCHAR), '')")
    return "concat(" + ", ',', ".join(parts) + ")"


def _escaped(text: str) -> str:
    """Return a text as it stands in a JSON string; names have no control characters."""
    return f"replace(replace({text}, '\\', '\\\\'), '\"', '\\\"')"


def _quoted(text: str) -> str:
    special = f"({text} LIKE '%,%' OR {text} LIKE '%\"%')"
    return f"CASE WHEN {special} THEN concat('\"', replace({text}, '\"', '\"\"'), '\"') ELSE {text} END"
