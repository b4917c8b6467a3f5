# SPDX-License-Identifier: Apache-2.0
"""A type of option."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class PathType(click.Path):
    """The path of a file or a folder. An empty one, of an unset variable say, is not the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Path:  # noqa: ANN401 # as click's
        """Return the path, or fail with a sentence."""
        if value == "":
            self.fail("an empty path names no file or folder; write . for the current one.", param, ctx)
        return Path(str(super().convert(value, param, ctx)))


PATH: Final = PathType()
