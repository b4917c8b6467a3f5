# SPDX-License-Identifier: Apache-2.0
"""When to look at the rings, and when to empty them: in time, and no more often than it is worth."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopscope.verbs.record.pipeline import Source

# How long to wait between looks at the rings: so long that they fill by a quarter meanwhile, within these limits.
_MOST_S: Final = 0.08
_LEAST_S: Final = 0.002
_FULL: Final = 0.25
# A ring is emptied when it is so full, or after so long: what a reading costs besides its records is a third of a ms.
_WORTH: Final = 1 / 8
_LATEST_S: Final = 0.4


class Pace:
    """Follows how quickly rings fill.

    Parameters
    ----------
    recorder
        Attached.

    Attributes
    ----------
    pause_s : float
        How long to wait for the next look.
    """

    def __init__(self, recorder: Source) -> None:
        self._recorder = recorder
        self.pause_s = _LEAST_S
        self._left = 0.0
        self._emptied_s = time.monotonic()

    def is_due(self) -> bool:
        """Look; say whether the rings are to be emptied now."""
        full = self._recorder.fullness()
        more = max(full - self._left, _FULL * _LEAST_S / _MOST_S)
        self.pause_s, self._left = min(max(self.pause_s * _FULL / more, _LEAST_S), _MOST_S), full
        late = time.monotonic() - self._emptied_s >= _LATEST_S
        return full >= _WORTH or late or self._recorder.has_other_rings

    def emptied(self) -> None:
        """Take note that they were emptied."""
        self._left, self._emptied_s = 0.0, time.monotonic()
