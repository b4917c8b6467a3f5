# SPDX-License-Identifier: Apache-2.0
"""What the parsers of application protocols are given, and what they say."""

from __future__ import annotations

from typing import Final, NamedTuple

# Behind the operation of the first request where others followed it in one turn.
MORE: Final = ", …"
# Behind a name of which not all was recorded.
CUT: Final = "…"


class Turn(NamedTuple):
    """What one end sent before the other answered.

    Attributes
    ----------
    data
        Its beginning, as far as it was recorded without a gap.
    len_bytes
        All of it; None: not known.
    """

    data: bytes
    len_bytes: int | None

    @property
    def is_whole(self) -> bool:
        """Whether all of it was recorded."""
        return len(self.data) == self.len_bytes


class Named(NamedTuple):
    """A request of a known protocol.

    Attributes
    ----------
    protocol
        Its name.
    operation
        Method and path, or command; None: not known.
    status
        Of the answer; None: not known.
    """

    protocol: str
    operation: str | None = None
    status: str | None = None


def number(data: bytes, start: int, size: int) -> int | None:
    """Return an unsigned number in network order, None where the data end before."""
    found = data[start : start + size]
    return int.from_bytes(found, "big") if len(found) == size else None
