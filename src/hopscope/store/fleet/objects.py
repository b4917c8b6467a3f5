# SPDX-License-Identifier: Apache-2.0
"""A fleet's batches in object storage (S3): the same names and files, and no renaming.

Objects come to be whole, one by one. A batch's document is put last and removed first, and a batch without it does not
count. What is read is fetched into a temporary folder, a table of the hours that are asked for at a time: batches never
change. Object storage has no locks, so that one process alone may compact.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import DiskFullError, UsageError
from hopscope.store.fleet.place import DOCUMENT, HIST, SUFFIX, Place, parsed_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.store.fleet.place import Name

SCHEME: Final = "s3://"
_CHUNK: Final = 1 << 20
# So long after its last object came, nobody is putting a batch any more.
_LEFT_S: Final = 86_400.0


def place_of(where: str | Path) -> Place:
    """Return a fleet's directory, or its bucket and prefix, as ``s3://BUCKET/PREFIX``.

    Raises
    ------
    UsageError
        The storage cannot be used.
    """
    return ObjectPlace(where) if isinstance(where, str) and where.startswith(SCHEME) else Place(Path(where))


class ObjectPlace(Place):
    """A prefix in a bucket.

    Parameters
    ----------
    url
        As pyarrow's S3FileSystem takes it: ``s3://BUCKET/PREFIX``, with ``?region=…&endpoint_override=…&scheme=http``
        where that is needed. Keys come from the environment, as AWS's own programs have it.
    """

    def __init__(self, url: str) -> None:
        try:
            from pyarrow import fs  # noqa: PLC0415 # an extra
        except ImportError:
            raise UsageError("Object storage needs pyarrow", "Install it: pip install 'hopscope[arrow]'") from None
        try:
            self._store, self._base = fs.S3FileSystem.from_uri(url)
        except (OSError, ValueError) as error:
            raise UsageError(f"{shown(url)} cannot be used: {error}", "Give s3://BUCKET/PREFIX") from error
        self._fs = fs
        fetched = tempfile.mkdtemp(prefix="hopscope-fleet-")
        weakref.finalize(self, shutil.rmtree, fetched, ignore_errors=True)
        self._sizes: dict[str, dict[str, Any]] = {}
        super().__init__(Path(fetched), shown(url))

    def exists(self) -> bool:
        """Tell whether there is any batch."""
        return bool(self.names()[0])

    def names(self, only: str | None = None) -> tuple[list[Name], list[str]]:
        """Return the batches that are there, and what is none."""
        below = HIST if only is None else f"{HIST}/day={only}"
        with self._errors():
            infos = self._store.get_file_info(
                self._fs.FileSelector(f"{self._base}/{below}", allow_not_found=True, recursive=True)
            )
        batches: dict[str, dict[str, Any]] = {}
        for info in infos:
            if info.type == self._fs.FileType.File:
                *folders, file = info.path.removeprefix(f"{self._base}/{HIST}/").split("/")
                batches.setdefault("/".join(folders), {})[file] = info
        found, foreign = [], []
        for path, files in batches.items():
            if name := parsed_name(path):
                found.append(name)
                self._sizes[name.path] = files
            else:
                foreign.append(f"{HIST}/{path}")
        return sorted(found), foreign

    def is_whole(self, name: Name) -> bool:
        """Tell whether its document is there."""
        return DOCUMENT in self._files(name)

    def tables(self, name: Name) -> set[str]:
        """Return the tables that a batch has."""
        return {each.removesuffix(SUFFIX) for each in self._files(name) if each.endswith(SUFFIX)}

    def file(self, name: Name, table: str) -> Path:
        """Fetch the file of a table, if it was not yet, and return it."""
        local = super().file(name, table)
        if not local.exists():
            local.parent.mkdir(parents=True, exist_ok=True)
            with (
                self._errors(),
                self._store.open_input_stream(self._object(name, local.name)) as found,
                local.open("wb") as out,
            ):
                while chunk := found.read(_CHUNK):
                    out.write(chunk)
        return local

    def document(self, name: Name) -> bytes:
        """Return what a batch says of itself."""
        with self._store.open_input_stream(self._object(name, DOCUMENT)) as found:
            return bytes(found.read())

    def labels(self) -> str | None:
        """Return the text of ``hosts.csv``."""
        try:
            with self._store.open_input_stream(f"{self._base}/{self.LABELS}") as found:
                return bytes(found.read()).decode()
        except FileNotFoundError:
            return None

    def size_bytes(self, name: Name) -> int:
        """Return the size of a batch's files."""
        return sum(info.size for info in self._files(name).values())

    def age_s(self, name: Name) -> float:
        """Return how long ago its last object came to be."""
        return time.time() - float(max(info.mtime_ns for info in self._files(name).values())) / 1e9

    def add(self, name: Name, write: Callable[[Path], bytes]) -> bool:
        """Put a batch, its document last."""
        with self._errors():
            there = self._store.get_file_info(self._object(name, DOCUMENT)).type != self._fs.FileType.NotFound
        if there:
            return False
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            document = write(Path(made))
            try:
                for file in sorted(Path(made).iterdir()):
                    with file.open("rb") as data, self._store.open_output_stream(self._object(name, file.name)) as out:
                        while chunk := data.read(_CHUNK):
                            out.write(chunk)
                with self._store.open_output_stream(self._object(name, DOCUMENT)) as out:
                    out.write(document)
            except OSError as error:
                raise DiskFullError(
                    f"{self.shown} cannot be written: {error}", "Look whether the bucket is there, and may be written"
                ) from error
        return True

    def recordings(self) -> list[tuple[int, Path]]:
        """Return none: recordings are on a file system."""
        return []

    def remove(self, name: Name) -> None:
        """Remove a batch, its document first."""
        with self._errors():
            for file in sorted(self._files(name), key=lambda file: file != DOCUMENT):
                with contextlib.suppress(FileNotFoundError):
                    self._store.delete_file(self._object(name, file))
        self._sizes.pop(name.path, None)

    def sweep(self) -> int:
        """Remove what writers left that were killed."""
        left = [name for name in self.names()[0] if not self.is_whole(name) and self.age_s(name) > _LEFT_S]
        for name in left:
            self.remove(name)
        return len(left)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Do nothing: there are no locks."""
        yield

    def _files(self, name: Name) -> dict[str, Any]:
        return self._sizes.get(name.path, {})

    def _object(self, name: Name, file: str) -> str:
        return f"{self._base}/{HIST}/{name.path}/{file}"

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"{self.shown} cannot be used: {error}",
                "Look at the bucket's name, the endpoint, and the keys in the environment",
            ) from error


def shown(url: str) -> str:
    """Return an URL without keys and settings; what is none, as it is."""
    return SCHEME + url.removeprefix(SCHEME).partition("?")[0].rpartition("@")[2] if url.startswith(SCHEME) else url
