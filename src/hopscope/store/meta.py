# SPDX-License-Identifier: Apache-2.0
"""What a trace says of itself: one JSON file beside its tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from hopscope.errors import FormatError
from hopscope.store.document import packed, read_document
from hopscope.store.schema import VERSION, Table, described_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE: Final = "hopscope.json"
FORMAT: Final = "hopscope trace"

State: TypeAlias = Literal["recording", "complete", "stopped: the disk is full"]


@dataclass(slots=True)
class Metadata:
    """Everything about a trace that is no table.

    Parameters
    ----------
    hopscope
        The version that wrote it.
    started_ns, ended_ns
        CLOCK_MONOTONIC; `ended_ns` is None while it is being recorded, and stays so if the recorder was killed.
    realtime_ns
        CLOCK_REALTIME at `started_ns`.
    points
        Number of a probe point → its name.
    reasons
        Number of a drop reason on that kernel → its name.
    host
        ``release``, ``machine``, ``name`` of the host, ``boot`` (its boot's id).
    plan
        How each probe point was attached.
    options
        What was asked for, as shown.
    tables
        Those that this trace has besides :data:`~hopscope.store.schema.TABLES`.
    missed
        Runs of the recording programs that the kernel suppressed: events that are missing, of no known place or time.
    joined
        Of a trace that was joined from those of several hosts: ``from``, the folders; ``files``, what was in them;
        ``pairs``, by what clocks were compared and how well that agreed; ``notes``, sentences on what is not there.
        Empty of a trace of one host.
    state
        How it ended; ``recording`` if the recorder was killed.
    """

    hopscope: str
    started_ns: int
    realtime_ns: int
    points: dict[int, str]
    reasons: dict[int, str] = field(default_factory=dict)
    host: dict[str, str] = field(default_factory=dict)
    plan: list[dict[str, str]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    missed: int = 0
    joined: dict[str, Any] = field(default_factory=dict)
    state: State = "recording"
    ended_ns: int | None = None

    @classmethod
    def read(cls, folder: Path) -> Metadata:
        """Read the file.

        Raises
        ------
        FormatError
            There is none, or it is not a trace's, or of a version that this hopscope cannot read.
        """
        none = FormatError(f"{folder} is not a trace: it has no {FILE}", "`hopscope record -o DIR` makes one")
        document = read_document(folder / FILE, FORMAT, VERSION, none=none)
        try:
            return cls._of(document)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise FormatError(f"{folder / FILE} is damaged: {error}", "Restore it from a backup") from error

    def packed(self) -> bytes:
        """Return the file's bytes; also for :meth:`unpacked` on another host."""
        return packed(self._document())

    @classmethod
    def unpacked(cls, raw: bytes) -> Metadata:
        """Return what another host packed.

        Raises
        ------
        FormatError
            It is none, or a field of it is not what it should be.
        """
        try:
            document = json.loads(raw)
            found = cls._of(document)
            times = (found.started_ns, found.realtime_ns, found.missed, found.ended_ns or 0)
            if document["version"] != VERSION or not all(type(time) is int and 0 <= time < 1 << 63 for time in times):
                raise ValueError("a time is none")  # noqa: TRY301 # as what `_of` raises
            if not all(0 <= number < 1 << 32 for number in (*found.points, *found.reasons)):
                raise ValueError("a number of a point or a reason is none")  # noqa: TRY301 # as above
            if not isinstance(found.hopscope, str) or not isinstance(found.options, dict) or found.joined != {}:
                raise ValueError("it is not of one host's trace")  # noqa: TRY301 # as above
            found.host, *found.plan = [{str(k): str(v) for k, v in each.items()} for each in (found.host, *found.plan)]
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
            raise FormatError(f"What another host says of its trace is damaged: {error}") from error
        return found

    def _document(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Metadata:
        known = {each.name for each in fields(cls)}
        found = cls(**{name: value for name, value in document.items() if name in known})
        found.points = {int(number): str(name) for number, name in found.points.items()}
        found.reasons = {int(number): str(name) for number, name in found.reasons.items()}
        found.tables = [described_table(each) for each in document.get("tables", ())]
        return found
