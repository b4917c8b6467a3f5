# SPDX-License-Identifier: Apache-2.0
"""What was wrong while a trace was recorded: the findings of its first and its last reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.trace.each_host import each_host
from hopscope.trace.recorded_counters import first_and_last
from hopscope.verbs.check.findings import evaluate, together

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.verbs.check.findings import Check


def check_of(trace: Trace) -> tuple[Check, int]:
    """Return what the first and the last reading of a trace say, of all hosts, and when the last was.

    Raises
    ------
    HopscopeError
        No counters were recorded.
    """
    checks = {}
    for host in each_host(trace):
        before, now = first_and_last(trace)
        checks[host] = evaluate(before, now)
    check = together(checks) if len(checks) > 1 else next(iter(checks.values()))
    return check, trace.metadata.realtime_ns + now.time_ns - trace.metadata.started_ns
