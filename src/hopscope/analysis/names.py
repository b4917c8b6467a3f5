# SPDX-License-Identifier: Apache-2.0
"""Names for what traces have numbers for, as views in SQL, one row a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

# Names are whatever bytes somebody chose; as lines for people and programs they have no control characters.
_CONTROLS: Final = "".join(map(chr, (*range(1, 32), 127)))
_CLEAN: Final = f"translate({{}}, '{_CONTROLS}', '{'?' * len(_CONTROLS)}')"

# Devices of one name are told apart by their namespace. A device or thread that was renamed goes by its last name;
# where names clash, by the greatest, so that runs agree.
_VIEWS: Final = {
    "flow_names": """
        SELECT flow, source, source_port, destination, destination_port, protocol,
               concat(CASE WHEN source LIKE '%:%' THEN concat('[', source, ']') ELSE source END,
                      CASE WHEN source_port > 0 THEN concat(':', source_port) ELSE '' END, ' > ',
                      CASE WHEN destination LIKE '%:%' THEN concat('[', destination, ']') ELSE destination END,
                      CASE WHEN destination_port > 0 THEN concat(':', destination_port) ELSE '' END) AS name,
               CASE protocol WHEN 1 THEN 'icmp' WHEN 6 THEN 'tcp' WHEN 17 THEN 'udp' WHEN 58 THEN 'icmp6'
                    ELSE CAST(protocol AS VARCHAR) END AS protocol_name
        FROM flows""",
    "device_names": f"""
        SELECT netns, ifindex, name,
               CASE WHEN count(*) OVER (PARTITION BY name) > 1 THEN concat(name, '@', netns) ELSE name END AS label
        FROM (SELECT netns, ifindex, max({_CLEAN.format("name")}) AS name FROM devices GROUP BY netns, ifindex) d""",
    "thread_names": f"""
        SELECT tid, pid, comm, concat(comm, ' (', pid, ')') AS name
        FROM (SELECT tid, pid, {_CLEAN.format("comm")} AS comm,
                     row_number() OVER (PARTITION BY tid ORDER BY time_ns DESC, comm DESC) AS age FROM threads) named
        WHERE age = 1""",
}


def make_names(trace: Trace) -> None:
    """Make the views ``flow_names``, ``device_names`` and ``thread_names``; again is allowed."""
    for name, query in _VIEWS.items():
        trace.make_view(name, query)


def points(trace: Trace) -> dict[str, int]:
    """Return probe point's name → its number in this trace."""
    return {name: number for number, name in trace.metadata.points.items()}
