# SPDX-License-Identifier: Apache-2.0
"""What goes over a stream of the service ``record``, and how much of it is believed.

::

    request    {"words": [option, ...], "own": [flow, ...] or null}
    from the client
        {"own": [flow, ...]}             leave out these, rather than those before
        {"stop": true}                   complete the trace
    from the agent
        block {"metadata": "began"}      what the trace says of itself; it is being recorded
        {"not_granted": [point, ...]}
        block {"table"}                  a complete Parquet file
        block {"capture": true}          more bytes of capture.pcapng
        {"until_ns"}                     all events before have been sent
        {"progress": {...}}              each second
        block {"metadata": "ended"}
        {"ended": {...}, "remarks": [sentence, ...], "cpu_s": of the agent}
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from hopscope.agent.message import printable
from hopscope.errors import DiskFullError, FormatError
from hopscope.model.checked_json import Fields
from hopscope.store.destination import write_all
from hopscope.store.meta import Metadata
from hopscope.store.schema import BY_NAME
from hopscope.store.unwritable import unwritable_file
from hopscope.term.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from hopscope.agent.stream import Block
    from hopscope.store.destination import Folder

SERVICE: Final = "record"
METADATA_BYTES: Final = 16 << 20
_MAGIC: Final = b"PAR1"
_MOST_REMARKS: Final = 32
_WHAT: Final = "What another host says of its recording"
# Sizes and counts of one recording, so that sums of them are numbers of 64 bits.
_MOST: Final = 1 << 56
_TIMES: Final = 1 << 63


def said(recording: Recording) -> dict[str, Any]:
    """Return how far a recording is, as a message has it."""
    return asdict(recording)


def heard(fields: Fields) -> Recording:
    """Return how far a recording is, of a message.

    Raises
    ------
    FormatError
        Something of it cannot be.
    """
    events, lost, size_bytes = (fields.whole(name) for name in ("events", "lost", "size_bytes"))
    found = Recording(fields.number("elapsed_s"), events, lost, size_bytes)
    if max(found.elapsed_s, found.events, found.lost, found.size_bytes) >= _MOST:
        raise FormatError(f"{_WHAT} is too much")
    return found


def until_ns(fields: Fields) -> int:
    """Return the time of a message before which all is there.

    Raises
    ------
    FormatError
        It cannot be.
    """
    found = fields.whole("until_ns")
    if found >= _TIMES:
        raise FormatError(f"{_WHAT} has a time that cannot be")
    return found


def texts(message: Mapping[str, Any], name: str) -> list[str]:
    """Return the sentences or names in a message, fit to be shown."""
    found = Fields(message, _WHAT).texts(name)
    return [printable(text) for text in found[:_MOST_REMARKS]]


def fields_of(message: Mapping[str, Any]) -> Fields:
    """Return the fields of a message, to be checked one by one."""
    return Fields(message, _WHAT)


class Incoming:
    """Puts what an agent sends of a trace into a folder; nothing of it can be outside. A context manager.

    Parameters
    ----------
    metadata
        What the trace says of itself at its start; changed at its end.
    folder
        For the trace.

    Attributes
    ----------
    metadata
        As given.

    Raises
    ------
    UsageError, DiskFullError
        The folder cannot be used.
    """

    def __init__(self, metadata: Metadata, folder: Folder) -> None:
        self.metadata = metadata
        metadata.state, metadata.ended_ns = "recording", None
        self._tables = {*BY_NAME, *(table.name for table in metadata.tables)}
        self._numbers = dict.fromkeys(self._tables, 0)
        self._capture: BinaryIO | None = None
        self._folder = folder
        folder.begin(metadata)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the trace; it is complete if its end came."""
        if self._capture:
            self._capture.close()
        if isinstance(error, DiskFullError):
            self.metadata.state = "stopped: the disk is full"
        self._folder.end(self.metadata)

    def take(self, block: Block) -> None:
        """Take a block.

        Raises
        ------
        FormatError
            It is none of a recording.
        DiskFullError
            There is no room for it.
        """
        if "table" in block.head:
            self._write(block.head["table"], block.data)
        elif block.head == {"capture": True}:
            self._append(block.data)
        else:
            ended = metadata_of(block, "ended")
            self.metadata.options, self.metadata.missed, self.metadata.cost = ended.options, ended.missed, ended.cost
            self.metadata.state, self.metadata.ended_ns = "complete", ended.ended_ns

    def _write(self, table: object, data: memoryview) -> None:
        if not isinstance(table, str) or table not in self._tables:
            raise FormatError(f"{_WHAT} is of no table that it has")
        if not bytes(data[: len(_MAGIC)]) == bytes(data[-len(_MAGIC) :]) == _MAGIC:
            raise FormatError(f"{_WHAT} is no Parquet file")
        self._numbers[table] += 1
        self._folder.write(table, self._numbers[table], lambda path: _put(path, data))

    def _append(self, data: memoryview) -> None:
        self._capture = self._capture or self._folder.capture()
        try:
            write_all(self._capture, data)
        except OSError as error:
            raise unwritable_file(Path(self._capture.name), error) from error


def _put(path: Path, data: memoryview) -> None:
    path.write_bytes(data)


def metadata_of(block: Block, what: str) -> Metadata:
    """Return what a trace says of itself, of a block.

    Raises
    ------
    FormatError
        It is another block.
    """
    if block.head != {"metadata": what} or len(block.data) > METADATA_BYTES:
        raise FormatError(f"{_WHAT} does not say how it {what}")
    return Metadata.unpacked(bytes(block.data))
