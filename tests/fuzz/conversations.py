# SPDX-License-Identifier: Apache-2.0
"""Conversations of an agent and its client in which somebody has changed something."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.agent.conversation import greeted
from tests.agent.test_hostile_bytes import CHANGES, changed, frames, lost_to, said

if TYPE_CHECKING:
    from hopscope.agent.handshake import Side


@dataclass(frozen=True)
class Conversation:
    """What one side says: a whole conversation, or frames after a greeting, with these changes."""

    side: Side
    frames: bytes | None
    changes: tuple[tuple[str, float, float, int], ...]

    def check(self) -> list[str]:
        """Return what is wrong."""
        whole = said(self.side) if self.frames is None else greeted(self.side, self.frames)
        try:
            lost_to(changed(whole, list(self.changes)), self.side)
        except Exception as error:  # noqa: BLE001 # what this looks for
            last = traceback.extract_tb(error.__traceback__)[-1]
            return [f"{type(error).__name__} in {last.name}: {str(error)[:100]}"]
        return []


conversations: st.SearchStrategy[Conversation] = st.builds(
    Conversation,
    st.sampled_from(["agent", "client"]),
    st.none() | st.lists(frames(), max_size=12).map(b"".join),
    CHANGES.map(tuple),
)
