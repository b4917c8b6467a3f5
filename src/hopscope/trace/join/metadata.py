# SPDX-License-Identifier: Apache-2.0
"""The metadata of a joined trace, combined from the traces of its hosts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope import __version__
from hopscope.store.meta import Metadata
from hopscope.trace.join.numbers import Numbers, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.store.schema import Table
    from hopscope.trace.join.clocks import Axis
    from hopscope.trace.join.sources import Source


def merged_metadata(hosts: Sequence[Source], axes: Sequence[Axis]) -> tuple[Metadata, list[list[Numbers]]]:
    """Return the metadata of the joined trace, and the conversion of numbers for each part of each host."""
    first = hosts[0].parts[0]
    found = Metadata(__version__, first.started_ns, first.metadata.realtime_ns, dict(first.metadata.points))
    found.host = {"name": ", ".join(host.name for host in hosts)}
    found.options = _options(hosts)
    numbers: list[list[Numbers]] = []
    spans = []
    for host, axis in zip(hosts, axes, strict=True):
        numbers.append([])
        for part in host.parts:
            meta = part.metadata
            found.points, points = merged(found.points, meta.points)
            found.reasons, reasons = merged(found.reasons, meta.reasons)
            of_part = Numbers(host.number, axis, points, reasons, meta.points)
            of_part.tables = {table.name: _placed(table, found.tables, host.name) for table in meta.tables}
            numbers[-1].append(of_part)
            found.missed += meta.missed
            spans.append(axis.times_ns(np.array([part.started_ns, part.ended_ns], np.int64)).tolist())
        found.plan += [{**row, "host": host.name} for row in host.parts[0].metadata.plan]
    found.started_ns, found.ended_ns = min(span[0] for span in spans), max(span[1] for span in spans)
    found.realtime_ns += found.started_ns - first.started_ns
    return found, numbers


def _placed(table: Table, tables: list[Table], host: str) -> str:
    """Return the name of a trace's own table in the joined trace, and add the table if it is new."""
    name, count = table.name, 0
    while (same := next((each for each in tables if each.name == name), None)) is not None:
        if _columns(same) == _columns(table):
            return name
        # The event has different fields on the other kernel.
        name = f"{table.name}_{re.sub(r'[^A-Za-z0-9]', '_', host)}{f'_{count}' if count else ''}"
        count += 1
    tables.append(replace(table, name=name))
    return name


def _columns(table: Table) -> list[tuple[str, str]]:
    return [(column.name, np.dtype(column.dtype).name) for column in table.columns]


def _options(hosts: Sequence[Source]) -> dict[str, Any]:
    """Return the options common to all hosts, and the others by name of the host."""
    every = {host.name: host.parts[0].metadata.options for host in hosts}
    first = every[hosts[0].name]
    same = {name for name in first if all(each.get(name) == first[name] for each in every.values())}
    found = {name: value for name, value in first.items() if name in same}
    for host, options in every.items():
        found |= {f"{host}.{name}": value for name, value in options.items() if name not in same}
    return found
