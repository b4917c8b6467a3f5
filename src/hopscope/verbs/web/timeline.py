# SPDX-License-Identifier: Apache-2.0
"""What the page draws of a timeline: one level of detail per column of the picture.

The timeline is the one that `hopscope export` writes. It is sorted once; a view is then found by binary search, and
what is narrower than a column is counted. Nothing is left out: the counts of a view add up to what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.verbs.web.timeline_layers import ArrowLayer, MarkLayer, SpanLayer
from hopscope.verbs.web.timeline_rows import Rows, Texts, View

if TYPE_CHECKING:
    from hopscope.verbs.export.timeline import Timeline


class Drawn:
    """A timeline, or a part of one, to look at.

    Parameters
    ----------
    found
        The timeline.
    """

    def __init__(self, found: Timeline) -> None:
        self._texts = found.names.texts
        self._started_ns = found.started_ns
        self._rows = Rows(found)
        self._marks = MarkLayer(found, self._rows)
        self._spans = SpanLayer(found, self._rows)
        self._arrows = ArrowLayer(found)
        self.notes = found.notes

    def extent(self) -> tuple[int, int] | None:
        """Return the times of the first event and just after the last one; None: there is none."""
        ends = [each for each in (self._marks.extent(), self._spans.extent()) if each]
        return (min(first for first, _ in ends), max(last for _, last in ends) + 1) if ends else None

    def seen(self, from_ns: int, until_ns: int, columns: int) -> dict[str, Any]:
        """Return what a view shows: rows, strips (row, line, kind), marks, intervals and arrows.

        Times are ns since the begin of the view. Names are places in ``texts``.
        """
        view = View(from_ns, until_ns, columns)
        used = Texts(self._texts)
        return {
            "rows": self._rows.listed(),
            "strips": [self._marks.strips, self._spans.strips],
            "marks": self._marks.seen(view, used),
            "spans": self._spans.seen(view, used),
            "arrows": self._arrows.seen(view),
            "texts": used.texts,
        }

    def search(self, text: str, after_ns: int) -> dict[str, Any] | None:
        """Return the first mark or interval after a time whose name or detail has a text; None: there is none."""
        wanted = text.casefold()
        matching = np.array([bool(each) and wanted in each.casefold() for each in self._texts])
        found = [hit for each in (self._marks, self._spans) if (hit := each.after(matching, after_ns))]
        if not found:
            return None
        at_ns, row, name = min(found)
        return {"at_ns": at_ns - self._started_ns, "row": row, "name": self._texts[name]}
