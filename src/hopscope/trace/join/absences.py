# SPDX-License-Identifier: Apache-2.0
"""Periods in which a host was not recorded while others were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hopscope.store.meta import Metadata
    from hopscope.trace.join.clocks import Axis
    from hopscope.trace.join.sources import Source


def absences(hosts: Sequence[Source], axes: Sequence[Axis], metadata: Metadata) -> dict[str, NDArray[Any]]:
    """Return the rows of the table ``absences``: the gaps before, between and after the parts of each host."""
    rows = []
    for source, axis in zip(hosts, axes, strict=True):
        before_ns, why = metadata.started_ns, "its recording had not begun"
        for part in source.parts:
            began_ns, ended_ns = axis.times_ns(np.array([part.started_ns, part.ended_ns], np.int64)).tolist()
            if began_ns > before_ns:
                rows.append((source.number, before_ns, began_ns, why))
            before_ns, why = max(before_ns, ended_ns), part.after or "its recording had ended"
        if metadata.ended_ns is not None and metadata.ended_ns > before_ns:
            rows.append((source.number, before_ns, metadata.ended_ns, why))
    if not rows:
        return {}
    host, from_ns, until_ns, reason = zip(*rows, strict=True)
    return {
        "host": np.array(host, np.int16),
        "from_ns": np.array(from_ns, np.int64),
        "until_ns": np.array(until_ns, np.int64),
        "reason": np.array(reason, object),
    }
