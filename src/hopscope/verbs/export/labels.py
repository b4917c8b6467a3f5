# SPDX-License-Identifier: Apache-2.0
"""Names of threads, devices and flows for arrays of their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.trace.packets.continues import PLACE, PLACE_STEP
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

UNKNOWN: Final = "-"
# What a number is of → the query for numbers and names.
_QUERIES: Final = {
    "comm": ("thread_names", "SELECT CAST(tid AS BIGINT) AS number, comm AS name FROM thread_names"),
    "interface": ("device_names", f"SELECT {PLACE} AS number, label AS name FROM device_names"),
    "flow_name": ("flow_names", "SELECT flow AS number, name FROM flow_names"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Names of one kind of object.

    Attributes
    ----------
    texts
        The names, each once; the first is :data:`UNKNOWN`.
    """

    texts: list[str]
    _numbers: NDArray[np.int64]
    _places: NDArray[np.uint32]  # and one more, of what has no name

    @staticmethod
    def of(trace: Trace, kind: str, most: int | None = None) -> Labels:
        """Return the names of the trace, of so many numbers at most."""
        relation, query = _QUERIES[kind]
        build(trace, relation)
        limit = "" if most is None else f" LIMIT {most}"
        found = trace.columns(
            f"SELECT number, max(name) AS name FROM ({query}) n GROUP BY number ORDER BY number{limit}"
        )
        texts, places = np.unique(np.asarray(np.ma.filled(found["name"], UNKNOWN), dtype=object), return_inverse=True)
        numbers = np.ma.getdata(found["number"]).astype(np.int64)
        return Labels([UNKNOWN, *texts.tolist()], numbers, np.append(places + 1, 0).astype(np.uint32))

    def numbers_with(self, text: str) -> list[int]:
        """Return the numbers of which a text is in the name, whatever its case."""
        wanted = text.casefold()
        matching = np.array([wanted in each.casefold() for each in self.texts])
        found: list[int] = self._numbers[matching[self._places[:-1]]].tolist()
        return found

    def places(self, numbers: NDArray[Any]) -> NDArray[np.uint32]:
        """Return the place in `texts` of the name of each of these numbers."""
        if not len(self._numbers):
            return np.zeros(len(numbers), np.uint32)
        found = np.searchsorted(self._numbers, numbers)
        found[found == len(self._numbers)] = 0
        found[self._numbers[found] != numbers] = len(self._numbers)
        places: NDArray[np.uint32] = self._places[found]
        return places


def number_of(kind: str, columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the numbers of what events are named by, from their columns."""
    if kind == "interface":
        places: NDArray[Any] = columns["netns"].astype(np.int64) * PLACE_STEP + columns["ifindex"]
        return places
    return columns["tid" if kind == "comm" else "flow"]
