# SPDX-License-Identifier: Apache-2.0
"""Names of numbered objects in a trace, as SQL views with one row per number.

In a joined trace, names have the host as a suffix, and CPUs have it as a prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.gate import CONTROLS, REPLACEMENT
from hopscope.trace.host_numbers import CPUS, THREADS, host_of_cpu, host_of_netns, host_of_thread, hosts
from hopscope.trace.relation import build, columns, fixed

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

# Names may contain arbitrary bytes. Lines that the engine formats have them as the gate would print them.
CLEAN: Final = f"translate({{}}, '{CONTROLS}', '{REPLACEMENT * len(CONTROLS)}')"

# Name of a flow whose addresses are not in the trace, for its number.
UNNAMED: Final = "concat('addresses not recorded (flow ', {}, ')')"

# Suffix with the name of the host in a joined trace; otherwise empty.
_AT_HOST: Final = "CASE WHEN h.name IS NULL THEN '' ELSE concat('@', h.name) END"
_OWN: Final = "({number} - coalesce(h.host, 0) * {unit})"
_OWN_PID: Final = _OWN.format(number="pid", unit=THREADS)
_OWN_TID: Final = _OWN.format(number="tid", unit=THREADS)
_OWN_CPU: Final = _OWN.format(number="cpu", unit=CPUS)

# Devices with equal names are distinguished by their namespace. A renamed device or thread has its last name; of
# several names at the same time, the greatest is used, so that results are reproducible.
fixed(
    "flow_names",
    "a flow with its name",
    columns(
        "flow source source_port destination destination_port protocol name protocol_name",
        source="address of the sender",
        source_port="its port; 0: none",
        destination="address of the receiver",
        destination_port="its port; 0: none",
        name="`SOURCE:PORT > DESTINATION:PORT`",
        protocol_name="`tcp`, `udp`, `icmp`, `icmp6`, or the number",
    ),
    """
        SELECT flow, source, source_port, destination, destination_port, protocol,
               concat(CASE WHEN source LIKE '%:%' THEN concat('[', source, ']') ELSE source END,
                      CASE WHEN source_port > 0 THEN concat(':', source_port) ELSE '' END, ' > ',
                      CASE WHEN destination LIKE '%:%' THEN concat('[', destination, ']') ELSE destination END,
                      CASE WHEN destination_port > 0 THEN concat(':', destination_port) ELSE '' END) AS name,
               CASE protocol WHEN 1 THEN 'icmp' WHEN 6 THEN 'tcp' WHEN 17 THEN 'udp' WHEN 58 THEN 'icmp6'
                    ELSE CAST(protocol AS STRING) END AS protocol_name
        FROM flows""",
    kind="view",
)
fixed(
    "netns_names",
    "a network namespace whose counters were read, with its name",
    columns("netns name", name="of the namespace; in a joined trace with `@HOST`"),
    f"""
        SELECT n.netns, concat(n.name, {_AT_HOST}) AS name
        FROM (SELECT netns, max({CLEAN.format("name")}) AS name FROM namespaces GROUP BY netns) n
        LEFT JOIN hosts h ON h.host = {host_of_netns("n.netns")}""",
    kind="view",
)
fixed(
    "device_names",
    "a device with its name",
    columns(
        "netns ifindex name label",
        name="of the device; in a joined trace with `@HOST`",
        label="the name, with the namespace if the name is ambiguous",
    ),
    f"""
        SELECT d.netns, d.ifindex, d.name,
               CASE WHEN count(*) OVER (PARTITION BY d.name) > 1
                    THEN concat(d.name, '@', coalesce(n.name, CAST(d.netns AS STRING))) ELSE d.name END AS label
        FROM (SELECT e.netns, e.ifindex, concat(max({CLEAN.format("e.name")}), max({_AT_HOST})) AS name
              FROM devices e LEFT JOIN hosts h ON h.host = {host_of_netns("e.netns")}
              GROUP BY e.netns, e.ifindex) d
        LEFT JOIN netns_names n ON n.netns = d.netns""",
    kind="view",
    needs=("netns_names",),
)
fixed(
    "drop_places",
    "a place in the kernel that drops packets",
    columns(
        "address name",
        address="of the instruction",
        name="`FUNCTION+OFFSET (FILE:LINE)`, as far as these are known",
    ),
    f"""
        SELECT s.address, concat(s.function,
                   CASE WHEN s.offset_bytes >= 0 THEN concat('+0x', lower(hex(s.offset_bytes))) ELSE '' END,
                   CASE WHEN l.source IS NULL THEN '' ELSE concat(' (', l.source, ')') END) AS name
        FROM (SELECT address, min({CLEAN.format("name")}) AS function, min(offset_bytes) AS offset_bytes
              FROM symbols GROUP BY address) s
        LEFT JOIN (SELECT address, min({CLEAN.format("source")}) AS source FROM lines GROUP BY address) l
        ON l.address = s.address""",
    kind="view",
)
fixed(
    "thread_names",
    "a thread with its last name",
    columns(
        "tid pid comm name thread cgroup_path",
        name="`COMM (PID)`",
        thread="`COMM-TID`",
        cgroup_path="path of the cgroup that limits its CPU time; NULL or empty: not known",
    ),
    f"""
        SELECT tid, pid, comm, concat(comm, ' (', {_OWN_PID}, ')', {_AT_HOST}) AS name,
               concat(comm, '-', {_OWN_TID}, {_AT_HOST}) AS thread,
               cgroup_path
        FROM (SELECT tid, pid, {CLEAN.format("cgroup_path")} AS cgroup_path, {CLEAN.format("comm")} AS comm,
                     row_number() OVER (PARTITION BY tid ORDER BY time_ns DESC, comm DESC) AS age FROM threads) named
        LEFT JOIN hosts h ON h.host = {host_of_thread("named.pid")}
        WHERE age = 1""",
    kind="view",
)
fixed(
    "process_cgroups",
    "a process whose cgroup is known, with the last one that it was seen in",
    columns(
        "pid cgroup_path at_host",
        cgroup_path="path of the cgroup that limits its CPU time",
        at_host="in a joined trace `@HOST`; else empty",
    ),
    f"""
        SELECT pid, cgroup_path, {_AT_HOST} AS at_host
        FROM (SELECT pid, {CLEAN.format("cgroup_path")} AS cgroup_path,
                     row_number() OVER (PARTITION BY pid ORDER BY time_ns DESC, cgroup_path DESC) AS age
              FROM threads WHERE cgroup_path <> '') known
        LEFT JOIN hosts h ON h.host = {host_of_thread("known.pid")}
        WHERE age = 1""",
    kind="view",
)
fixed(
    "cpu_names",
    "a CPU with events, with its name",
    columns("cpu name", name="its number; in a joined trace `HOST:NUMBER`"),
    f"""
        SELECT cpu, CASE WHEN h.name IS NULL THEN CAST(cpu AS STRING) ELSE concat(h.name, ':', {_OWN_CPU}) END AS name
        FROM (SELECT cpu FROM packets UNION SELECT cpu FROM sockets UNION SELECT cpu FROM cpu
              UNION SELECT cpu FROM tcp UNION SELECT cpu FROM losses) c
        LEFT JOIN hosts h ON h.host = {host_of_cpu("c.cpu")}""",
    kind="view",
)


def cpu_names(trace: Trace) -> dict[int, str]:
    """Return CPU number → name in a trace of several hosts; empty for one host."""
    if not hosts(trace):
        return {}
    build(trace, "cpu_names")
    return dict(trace.rows("SELECT cpu, name FROM cpu_names"))


def points(trace: Trace) -> dict[str, int]:
    """Return name of the probe point → its number in this trace."""
    return {name: number for number, name in trace.metadata.points.items()}
