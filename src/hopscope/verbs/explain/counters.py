# SPDX-License-Identifier: Apache-2.0
"""What the kernel's counters of the same time say, as far as they were recorded: the findings of ``check``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.errors import HopscopeError
from hopscope.trace.each_host import each_host
from hopscope.trace.recorded_counters import first_and_last
from hopscope.verbs.check.findings import evaluate

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.verbs.explain.explanation import Explanation


_GRAVE: Final = {"critical", "warning"}


def with_counters(trace: Trace, explanation: Explanation) -> Explanation:
    """Return the explanation with a sentence for each problem that the counters of its trace show.

    A finding that is only a notice is included if one of its causes delayed messages.
    """
    held = {each.cause for each in explanation.causes}
    told = []
    for host in each_host(trace):
        try:
            check = evaluate(*first_and_last(trace))
        except HopscopeError:
            continue  # none were recorded
        whose = f"counters of {host}" if host else "counters"
        for finding in check.findings:
            agreeing = [cause for cause in finding.causes if cause in held]
            if agreeing or finding.severity in _GRAVE:
                of = f", of {' and '.join(agreeing)}" if agreeing else ""
                told.append(f"{whose}{of}: {finding.sentence}")
    return replace(explanation, counters=tuple(told))
