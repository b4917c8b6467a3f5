# SPDX-License-Identifier: Apache-2.0
"""Types of options."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click import Context, Parameter

_OWNER: Final = 0o600
_READ_AND_WRITE: Final = 0o666
_SYSTEMS_OWN: Final = Path("/dev")
_NOT_FOLLOWED: Final = "it is a symbolic link, which is not followed; name the file itself"


class PathType(click.Path):
    """The path of a file or a folder. An empty one, of an unset variable say, is not the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Path:  # noqa: ANN401 # as click's
        """Return the path, or fail with a sentence."""
        if value == "":
            self.fail("an empty path names no file or folder; write . for the current one.", param, ctx)
        return Path(str(super().convert(value, param, ctx)))


class FleetType(PathType):
    """A fleet's directory, or where it is in object storage: ``s3://BUCKET/PREFIX``, a text."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:  # noqa: ANN401 # as click's
        """Return the path, or the text."""
        if isinstance(value, str) and value.startswith("s3://"):
            return value
        return super().convert(value, param, ctx)


class FileMode(click.ParamType[int]):
    """Who may read and write files, in octal digits; the owner may in any case."""

    name = "mode"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> int:  # noqa: ANN401 # as click's
        """Return the mode, or fail with a sentence."""
        if isinstance(value, int):
            return value
        try:
            mode = int(value, 8)
        except ValueError:
            mode = -1
        if mode < 0 or mode & ~_READ_AND_WRITE or mode & _OWNER != _OWNER:
            self.fail(f"{value!r} is not a mode of files; use 600, 640 or 644, say.", param, ctx)
        return mode


class OutputFile(click.File):
    """A file that is written: opened at once, so that a wrong name is reported before the run; ``-``: standard output.

    A link is not followed, as whoever made it decides what is overwritten, unless it leads to a pipe or a device, as
    that of the standard output may.

    Parameters
    ----------
    binary
        It takes bytes instead of text.
    """

    def __init__(self, *, binary: bool = False) -> None:
        super().__init__("wb" if binary else "w", encoding=None if binary else "utf-8", lazy=False)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:  # noqa: ANN401 # as click's
        """Return the open file, or fail with a sentence."""
        if not isinstance(value, str) or value == "-":
            return super().convert(value, param, ctx)
        try:
            file = open(value, self.mode, encoding=self.encoding, opener=_opened)  # noqa: SIM115 # it is closed with the context
        except OSError as error:
            said = _NOT_FOLLOWED if error.errno == errno.ELOOP else error.strerror
            self.fail(f"{value!r} cannot be written: {said}.", param, ctx)
        except ValueError as error:  # a character that no name has
            self.fail(f"{value!r} cannot be written: {error}.", param, ctx)
        if ctx:
            ctx.call_on_close(file.close)
        return file


def _opened(name: str, flags: int) -> int:
    path = Path(name)
    elsewhere = _SYSTEMS_OWN in path.parents or (path.exists() and not path.is_file())
    return os.open(name, flags | (0 if elsewhere else os.O_NOFOLLOW), 0o666)


PATH: Final = PathType()
FLEET: Final = FleetType()
OUTPUT_FILE: Final = OutputFile()
