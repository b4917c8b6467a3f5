# SPDX-License-Identifier: Apache-2.0
"""What a trace says of itself: one JSON file beside its tables."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from hopscope.errors import FormatError
from hopscope.store.schema import VERSION, Table, described_table

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import DTypeLike

FILE: Final = "hopscope.json"
_FORMAT: Final = "hopscope trace"

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
    state: State = "recording"
    ended_ns: int | None = None

    def write(self, folder: Path) -> None:
        """Write the file, in one step: a reader finds the old or the new one."""
        document = {"format": _FORMAT, "version": VERSION, **asdict(self)}
        fresh = folder / f".{FILE}.partial"
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump(document, file, indent=1, default=_type_name)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(folder / FILE)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    @classmethod
    def read(cls, folder: Path) -> Metadata:
        """Read the file.

        Raises
        ------
        FormatError
            There is none, or it is not a trace's, or of a version that this hopscope cannot read.
        """
        try:
            document = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FormatError(f"{folder} is no trace: it has no {FILE}", "`hopscope record -o DIR` makes one") from None
        except NotADirectoryError:
            raise FormatError(f"{folder} is no trace, but a file", "Give the folder that was recorded into") from None
        except (ValueError, OSError) as error:
            raise FormatError(f"{folder / FILE} cannot be read: {error}", "Restore it from a copy") from error
        return cls._checked(document, folder)

    @classmethod
    def _checked(cls, document: Any, folder: Path) -> Metadata:  # noqa: ANN401 # JSON can be anything
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise FormatError(f"{folder / FILE} is not of a hopscope trace", "Give the folder that was recorded into")
        if document.get("version") != VERSION:
            raise FormatError(
                f"{folder} is a trace of version {document.get('version')}, this hopscope reads version {VERSION}",
                f"Open it with hopscope {document.get('hopscope', 'of that time')}",
            )
        known = {each.name for each in fields(cls)}
        try:
            found = cls(**{name: value for name, value in document.items() if name in known})
            found.points = {int(number): str(name) for number, name in found.points.items()}
            found.reasons = {int(number): str(name) for number, name in found.reasons.items()}
            found.tables = [described_table(each) for each in document.get("tables", ())]
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise FormatError(f"{folder / FILE} is damaged: {error}", "Restore it from a copy") from error
        return found


def _type_name(dtype: DTypeLike) -> str:
    """Return what a column's type is called in the file."""
    return np.dtype(dtype).name
