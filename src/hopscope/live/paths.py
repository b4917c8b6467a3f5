# SPDX-License-Identifier: Apache-2.0
"""Types of options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click import Context, Parameter

_OWNER: Final = 0o600
_READ_AND_WRITE: Final = 0o666


class PathType(click.Path):
    """The path of a file or a folder. An empty one, of an unset variable say, is not the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Path:  # noqa: ANN401 # as click's
        """Return the path, or fail with a sentence."""
        if value == "":
            self.fail("an empty path names no file or folder; write . for the current one.", param, ctx)
        return Path(str(super().convert(value, param, ctx)))


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


PATH: Final = PathType()
