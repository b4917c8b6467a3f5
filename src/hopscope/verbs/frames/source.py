# SPDX-License-Identifier: Apache-2.0
"""What a source of frames is asked for and what it sends: it runs in a thread of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from queue import SimpleQueue

    from hopscope.verbs.frames.frame import Answer, Frame, Question


@dataclass(frozen=True, slots=True)
class Filter:
    """Show other traffic: the options' values by their names in Python."""

    chosen: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer this from now on, of a frame of a recording by its number; None: nothing any more."""

    question: Question | None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Fill:
    """Complete a frame of a recording, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """Start a recording of what is shown, or end it."""


Request: TypeAlias = "Filter | Ask | Fill | Record | None"


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence for the user, and whether a recording runs (None: as before)."""

    sentence: str
    recording: bool | None = None


@dataclass(frozen=True, slots=True)
class Filled:
    """A frame of a recording, complete."""

    number: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Frames:
    """All frames of a recording, or, live, that those before are of other traffic."""

    frames: Sequence[Frame]


Event: TypeAlias = "Frame | Frames | Filled | Answer | Said"


class Source(Protocol):
    """Where frames come from.

    Attributes
    ----------
    live
        Whether it measures; else it reads a recording.
    title
        What is shown, for the heading.
    folder
        The recording as the user named it; empty: none.
    """

    live: bool
    title: str
    folder: str

    def run(self, post: Callable[[Event], object], requests: SimpleQueue[Request]) -> None:
        """Send events until None is requested; whatever was attached is detached then.

        Raises
        ------
        HopscopeError
            It cannot go on.
        """
