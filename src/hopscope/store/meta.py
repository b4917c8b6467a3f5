# SPDX-License-Identifier: Apache-2.0
"""What a trace says of itself: one JSON file beside its tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Required, TypeAlias, TypedDict

from hopscope.errors import FormatError
from hopscope.store.declared import In, Read, read_as
from hopscope.store.document import packed, parsed, read_document
from hopscope.store.schema import VERSION, Table, described_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE: Final = "hopscope.json"
FORMAT: Final = "hopscope trace"
# Fields that a trace has only if it was made of another one.
_OF_MADE: Final = frozenset({"lead_ns", "notes"})

State: TypeAlias = Literal["recording", "complete", "stopped: the disk is full"]

# What the fields of the file can have, which is checked as it is read.
_Ns: TypeAlias = Annotated[int, In(range(1 << 62))]
_Count: TypeAlias = Annotated[int, In(range(1 << 63))]
_Number: TypeAlias = Annotated[int, In(range(1 << 32))]
_Place: TypeAlias = Annotated[int, In(range(1 << 15))]
_Own: TypeAlias = Annotated[Table, Read(described_table)]


class ComparedPair(TypedDict, total=False):
    """Two hosts of a joined trace, as :class:`hopscope.trace.join.clocks.Compared` has them."""

    first: Required[_Place]
    second: Required[_Place]
    probes: Required[tuple[_Count, _Count]]
    packets: Required[tuple[_Count, _Count]]
    breaks: _Count
    contradictory: _Count
    refused: _Count
    residual_ns: Required[tuple[float, float]]
    by_nics: _Count | None


class Cost(TypedDict):
    """What recording took: per cent of one CPU, in the programs and in the recorder, and ns a run. None: not known."""

    bpf_cpu_percent: float | None
    reader_cpu_percent: float
    ns_per_hit: float | None


Joined = TypedDict(
    "Joined",
    {
        "from": list[str],
        "files": str,
        "pairs": list[ComparedPair],
        "notes": list[str],
        "alone": dict[_Place, list[int]],
        "trusted": dict[str, str],
    },
    total=False,
)


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
    cost
        What recording it took; None: not known.
    joined
        Of a trace that was joined from those of several hosts: ``from``, the folders; ``files``, what was in them;
        ``pairs``, by what clocks were compared and how well that agreed; ``notes``, sentences on what is not there.
        Empty of a trace of one host.
    state
        How it ended; ``recording`` if the recorder was killed.
    lead_ns
        Of an hour of a longer recording (:mod:`hopscope.store.fleet.hours`): from how long before `started_ns` on it
        has events, which count in the hour before; 0: all events are its own.
    notes
        Sentences on what is missing, of a trace that was made of another one.
    """

    hopscope: str
    started_ns: _Ns
    realtime_ns: _Ns
    points: dict[_Number, str]
    reasons: dict[_Number, str] = field(default_factory=dict)
    host: dict[str, str] = field(default_factory=dict)
    plan: list[dict[str, str]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    tables: list[_Own] = field(default_factory=list)
    missed: _Count = 0
    cost: Cost | None = None
    joined: Joined = field(default_factory=Joined)
    state: State = "recording"
    ended_ns: _Ns | None = None
    lead_ns: _Ns = 0
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Metadata:
        """Read the file.

        Raises
        ------
        FormatError
            There is none, or it is not a trace's, or of a version that this hopscope cannot read.
        """
        none = FormatError(f"{folder} is not a trace: it has no {FILE}", "`hopscope record -o DIR` makes one")
        return read_document(folder / FILE, FORMAT, VERSION, cls._of, none=none)

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
            document = parsed(raw)
            if document["version"] != VERSION:
                raise ValueError("it is of another version")  # noqa: TRY301 # as what `_of` raises
            found = cls._of(document)
            if found.joined:
                raise ValueError("it is not of one host's trace")  # noqa: TRY301 # as above
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise FormatError(f"What another host says of its trace is damaged: {error}") from error
        return found

    def _document(self) -> dict[str, Any]:
        said = {name: value for name, value in asdict(self).items() if value or name not in _OF_MADE}
        return {"format": FORMAT, "version": VERSION, **said}

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Metadata:
        found = read_as(cls, document)
        if len({table.name.lower() for table in found.tables}) < len(found.tables):
            raise ValueError("two of its tables have one name")
        if found.ended_ns is not None and found.ended_ns < found.started_ns:
            raise ValueError("it ends before it begins")
        return found
