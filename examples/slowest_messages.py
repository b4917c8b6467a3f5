# SPDX-License-Identifier: Apache-2.0
"""Say of the slowest messages of a recording what else the reader's CPU did meanwhile.

hopscope record -d 5 -P messages,cpu -o trace
python examples/slowest_messages.py trace
"""

from __future__ import annotations

import sys

import hopscope

# The threads that had a CPU while a message was on its way, those that had it longest first.
RAN = """
    SELECT coalesce(t.thread, 'idle') AS thread, sum(least(until_ns, {end}) - greatest(time_ns, {begin})) AS ran_ns
    FROM (SELECT time_ns, cpu, subject AS tid,
                 lead(time_ns) OVER (PARTITION BY cpu ORDER BY time_ns) AS until_ns
          FROM cpu JOIN points USING (point) WHERE name = 'sched.switch') s
    LEFT JOIN thread_names t ON t.tid = s.tid
    WHERE s.cpu = (SELECT arg_max(cpu, time_ns) FROM sockets WHERE tid = {reader} AND time_ns <= {end})
      AND time_ns < {end} AND until_ns > {begin}
    GROUP BY ALL ORDER BY ran_ns DESC LIMIT 3"""


def main(path: str, count: int = 5) -> None:
    """Print the slowest messages that were read."""
    with hopscope.open(path) as recording:
        slowest = recording.sql(f"""
            SELECT total_ns, begins_ns, ends_ns, reader_tid, len_bytes, name FROM messages JOIN flow_names USING (flow)
            WHERE reader_tid > 0 ORDER BY total_ns DESC LIMIT {count}""")
        for message in slowest:
            total_us, after_s = message["total_ns"] / 1e3, (message["begins_ns"] - recording.started_ns) / 1e9
            print(f"{total_us:9,.1f} µs  at {after_s:.6f} s, {message['len_bytes']} bytes, {message['name']}")
            query = RAN.format(begin=message["begins_ns"], end=message["ends_ns"], reader=message["reader_tid"])
            for ran in recording.sql(query):
                print(f"{ran['ran_ns'] / 1e3:20,.1f} µs  {ran['thread']}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} TRACE")
    try:
        main(sys.argv[1])
    except hopscope.HopscopeError as error:
        sys.exit(str(error))
