# SPDX-License-Identifier: Apache-2.0
"""What the page draws of a timeline: one level of detail per column of the picture.

The timeline is the one that `hopscope export` writes. It is sorted once; a view is then found by binary search, and
what is narrower than a column is counted. Nothing is left out: the counts of a view add up to what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.verbs.web.timeline_layers import ArrowLayer, SpanLayer
from hopscope.verbs.web.timeline_marks import MarkLayer, RecordedEvents
from hopscope.verbs.web.timeline_rows import Rows, Texts, View

if TYPE_CHECKING:
    from hopscope.verbs.export.tracks import Place


class Drawn:
    """A timeline, or a part of one, to look at.

    Parameters
    ----------
    place
        The timeline, and what it is of.
    with_events
        Whether the events of the recording's tables are shown, too, which the timeline need not have.
    """

    def __init__(self, place: Place, *, with_events: bool) -> None:
        found = place.timeline
        self._texts = found.names.texts
        self._started_ns = found.started_ns
        self._rows = Rows(found)
        self._marks = MarkLayer(found, self._rows, RecordedEvents(place, self._rows) if with_events else None)
        self._spans = SpanLayer(found, self._rows)
        self._arrows = ArrowLayer(found)
        self.notes = found.notes

    def extent(self) -> tuple[int, int] | None:
        """Return the times of the first event and just after the last one; None: there is none."""
        ends = [each for each in (self._marks.extent(), self._spans.extent()) if each]
        return (min(first for first, _ in ends), max(last for _, last in ends) + 1) if ends else None

    def seen(self, from_ns: int, until_ns: int, columns: int, *, with_flows: bool) -> dict[str, Any]:
        """Return what a view shows: rows, strips (row, line, kind), marks, intervals and arrows.

        Times are ns since the begin of the view. Names are places in ``texts``. The flows of events take longer than
        all else, and are there if the view has few events.
        """
        view = View(from_ns, until_ns, columns)
        used = Texts(self._texts)
        return {
            "rows": self._rows.listed(),
            "strips": [self._marks.strips, self._spans.strips],
            "marks": self._marks.seen(view, used, with_flows=with_flows),
            "spans": self._spans.seen(view, used),
            "arrows": self._arrows.seen(view),
            "texts": used.texts,
        }

    def search(self, text: str, after_ns: int) -> dict[str, Any] | None:
        """Return the first mark or interval after a time whose name or detail has a text; None: there is none."""
        wanted = text.casefold()
        matching = np.array([bool(each) and wanted in each.casefold() for each in self._texts])
        found = self._marks.after(matching, text, after_ns), self._spans.after(matching, after_ns)
        if not any(found):
            return None
        at_ns, row, name = min(filter(None, found))
        return {"at_ns": at_ns - self._started_ns, "row": row, "name": self._texts[name]}
