# SPDX-License-Identifier: Apache-2.0
"""Tables with a row for each CPU: the receive backlog, neighbours, connection tracking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.kernel.counters.text import (
    NET,
    cpus,
    hexadecimals,
    lines_of,
    number,
    read,
    read_if_there,
    read_setting,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.kernel.counters.text import Said

# net/core/net-procfs.c, softnet_seq_show(); those without a name are always 0. Kernels have added columns at the end.
_SOFTNET: Final = (
    "processed", "dropped", "time_squeeze", "", "", "", "", "", "cpu_collision", "received_rps", "flow_limit_count",
    "backlog_len", "cpu", "input_qlen", "process_qlen",
)  # fmt: skip
_CPU: Final = _SOFTNET.index("cpu")
_LEAST: Final = _SOFTNET.index("cpu_collision") + 1
_CONNTRACK: Final = "/proc/sys/net/netfilter/nf_conntrack"


def softnet() -> Iterator[Said]:
    """Return what each CPU that is online took from its receive queues (``/proc/net/softnet_stat``)."""
    return parse_softnet(read(f"{NET}/softnet_stat"), cpus("online"))


def parse_softnet(text: bytes, online: Sequence[int]) -> Iterator[Said]:
    """Yield the columns that this kernel has, of each CPU.

    Parameters
    ----------
    text
        Of ``/proc/net/softnet_stat``.
    online
        Numbers of the CPUs that are online: older kernels do not say which row is whose, and none which is the last.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    rows = [hexadecimals(line) for line in lines_of(text)]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < _LEAST:
        raise FormatError("its rows are not as long as each other, or too short")
    numbered = len(rows[0]) > _CPU
    if [row[_CPU] for row in rows] != list(online) if numbered else len(rows) != len(online):
        raise FormatError(f"it has not one row for each of {len(online)} CPUs")
    for cpu, row in zip(online, rows, strict=True):
        # Columns of a newer kernel have no names yet.
        for name, value in zip(_SOFTNET, row, strict=False):
            if name and name != "cpu":
                yield f"cpu {cpu}", name, value


def neighbour() -> Iterator[Said]:
    """Yield the counters of the tables for ARP and neighbour discovery, which all namespaces share."""
    possible = cpus("possible")
    yield from parse_table(read(f"{NET}/stat/arp_cache"), "arp", possible)
    text = read_if_there(f"{NET}/stat/ndisc_cache")
    if text is not None:
        yield from parse_table(text, "ndisc", possible)


def route() -> Iterator[Said]:
    """Return what IPv4's routing counted (``/proc/net/stat/rt_cache``): how packets were routed, and martians."""
    return parse_table(read(f"{NET}/stat/rt_cache"), "", cpus("possible"))


def conntrack() -> Iterator[Said]:
    """Yield how full connection tracking is, and its counters.

    Without the module there is nothing of it. The counters take CONFIG_NF_CONNTRACK_PROCFS.
    """
    for name in ("count", "max", "buckets"):
        yield "", name, number(read_setting(f"{_CONNTRACK}_{name}").strip())
    text = read_if_there(f"{NET}/stat/nf_conntrack")
    if text is not None:
        yield from parse_table(text, "", cpus("possible"))


def parse_table(text: bytes, table: str, possible: Sequence[int]) -> Iterator[Said]:
    """Yield the columns of a table below ``/proc/net/stat``: of each CPU, and once the entries.

    Parameters
    ----------
    table
        What the subjects begin with.
    possible
        Numbers of the CPUs that may be there: the rows do not say which they are.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    heading, *lines = lines_of(text)
    names = words(heading)
    if not names or names[0] != "entries" or len(set(names)) != len(names):
        raise FormatError("its columns are others")
    rows = [hexadecimals(line) for line in lines]
    if len(rows) != len(possible) or not rows:
        raise FormatError(f"it has {len(rows)} rows and there may be {len(possible)} CPUs")
    if any(len(row) != len(names) for row in rows):
        raise FormatError("its rows are not as long as its heading")
    # Every row says the same of the whole table.
    yield table, "entries", rows[0][0]
    for cpu, row in zip(possible, rows, strict=True):
        for name, value in zip(names[1:], row[1:], strict=True):
            yield f"{table} cpu {cpu}".strip(), name, value
