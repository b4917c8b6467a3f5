# SPDX-License-Identifier: Apache-2.0
"""What ``explain`` says: the causes that held messages, each with its culprit, evidence and advice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Confidence: TypeAlias = Literal["high", "medium", "low"]

# A message that takes less is not slow.
SLOW_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Held:
    """A cause, and what it did.

    Attributes
    ----------
    cause
        Its name (:mod:`hopscope.model.cause`).
    time_ns
        For how long it held messages, in total.
    share
        Of the time of all messages, 0..1.
    messages
        How many it held longer than any other cause did.
    sentence
        What held the messages, in words, without the share.
    culprit
        Who is responsible; empty: nobody in particular, or unknown.
    evidence
        What this rests on, one sentence each.
    confidence
        ``high``; ``medium``: something that could change it was not seen; ``low``: much was not seen.
    advice
        What to try next; empty: nothing.
    """

    cause: str
    time_ns: int
    share: float
    messages: int
    sentence: str = ""
    culprit: str = ""
    evidence: Sequence[str] = ()
    confidence: Confidence = "high"
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why messages took as long as they did.

    Attributes
    ----------
    messages
        How many there were.
    slow
        How many waits took a millisecond or longer: of messages, and of requests for the server's answer.
    pending
        How many messages had waited for a millisecond or longer when the recording ended, and were not read.
    total_ns
        Their time, in total; of those that are pending, until the end of the recording.
    median_ns, worst_ns
        Of the messages' times.
    causes
        Worst first; all that held messages at all.
    finding
        Name of the main cause; None: nothing held messages for long.
    limits
        What could not be seen, one sentence each.
    dropped
        Which datagrams were dropped on this host, why and where: one sentence for each reason and place.
    counters
        What the kernel's counters say of the same time, one sentence each.
    """

    messages: int
    slow: int
    pending: int
    total_ns: int
    median_ns: int
    worst_ns: int
    causes: Sequence[Held]
    finding: str | None
    limits: Sequence[str] = field(default_factory=tuple)
    dropped: Sequence[str] = field(default_factory=tuple)
    counters: Sequence[str] = field(default_factory=tuple)
