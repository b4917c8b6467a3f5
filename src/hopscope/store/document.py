# SPDX-License-Identifier: Apache-2.0
"""The JSON files of recordings, which are checked when they are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import DTypeLike


def packed(document: Mapping[str, Any]) -> bytes:
    """Return the file's bytes."""
    return json.dumps(document, indent=1, default=_type_name).encode()


def read_document(path: Path, kind: str, version: int, *, none: FormatError) -> dict[str, Any]:
    """Read the file.

    Parameters
    ----------
    path
        Of it.
    kind, version
        What it must say in ``format`` and ``version``.
    none
        Raised where there is no such file.

    Raises
    ------
    FormatError
        There is none, or it is of another kind, or of a version that this hopscope cannot read.
    """
    folder = path.parent
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise none from None
    except NotADirectoryError:
        raise FormatError(f"{folder} is a file, not a trace", "Give the folder that was recorded into") from None
    except (ValueError, OSError, RecursionError) as error:
        raise FormatError(f"{path} cannot be read: {error}", "Restore it from a backup") from error
    if not isinstance(document, dict) or document.get("format") != kind:
        raise FormatError(f"{path} does not belong to a {kind}", "Give the folder that was recorded into")
    if document.get("version") != version:
        raise FormatError(
            f"{folder} is a trace of version {document.get('version')}, this hopscope reads version {version}",
            f"Open it with hopscope {document.get('hopscope', 'of that time')}",
        )
    return document


def has_format(path: Path, kind: str) -> bool:
    """Tell whether a file says that it is of a kind, in whichever version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("format") == kind


def _type_name(dtype: DTypeLike) -> str:
    """Return what a column's type is called in the file."""
    return np.dtype(dtype).name
