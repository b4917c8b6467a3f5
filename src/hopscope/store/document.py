# SPDX-License-Identifier: Apache-2.0
"""The JSON files of recordings, which are checked when they are read."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import numpy as np

from hopscope.errors import FormatError
from hopscope.store.limits import limits
from hopscope.store.regular import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import DTypeLike

Read = TypeVar("Read")

# A member that has a checksum of all others, by which a change of any of them is noticed.
CHECKSUM: Final = "checksum"


def packed(document: Mapping[str, Any]) -> bytes:
    """Return the file's bytes."""
    plain = json.loads(json.dumps(document, default=_type_name))  # as it will be read: keys are texts, then
    return json.dumps({**plain, CHECKSUM: _checksum(plain)}, indent=1).encode()


def read_document(
    path: Path, kind: str, version: int, convert: Callable[[dict[str, Any]], Read], *, none: FormatError
) -> Read:
    """Read the file.

    Parameters
    ----------
    path
        Of it.
    kind, version
        What it must say in ``format`` and ``version``.
    convert
        Makes of it what is returned; raises ValueError where that is not possible.
    none
        Raised where there is no such file.

    Raises
    ------
    FormatError
        There is none, or it is of another kind, or of a version that this hopscope cannot read, or damaged.
    """
    folder = path.parent
    try:
        document = parsed(_read(path))
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
            f"{folder} is a trace of version {_short(document.get('version'))}, this hopscope reads version {version}",
            f"Open it with hopscope {_short(document.get('hopscope', 'of that time'))}",
        )
    checksum = document.pop(CHECKSUM, None)
    try:
        found = convert(document)
    except ValueError as error:
        raise FormatError(f"{path} is damaged: {error}", "Restore it from a backup") from error
    if checksum is not None and checksum != _checksum(document):
        raise FormatError(
            f"{path} is damaged or was changed: its contents do not match its checksum",
            f'Restore it from a backup; if you changed it on purpose, remove "{CHECKSUM}" from it',
        )
    return found


def parsed(text: bytes) -> Any:  # noqa: ANN401 # whatever it is
    """Return a JSON document; what JSON does not have, such as NaN, raises ValueError."""
    return json.loads(text, parse_constant=_no_constant)


def has_checksum(path: Path) -> bool:
    """Tell whether a document that can be read has a checksum."""
    return CHECKSUM in parsed(_read(path))


def has_format(path: Path, kind: str) -> bool:
    """Tell whether a file says that it is of a kind, in whichever version."""
    try:
        document = parsed(_read(path))
    except (ValueError, OSError, RecursionError, FormatError):
        return False
    return isinstance(document, dict) and document.get("format") == kind


def _read(path: Path) -> bytes:
    with open_regular(path) as file:
        limits().document(path, os.fstat(file.fileno()).st_size)
        return file.read()


def _checksum(plain: Mapping[str, Any]) -> str:
    """Return the checksum of a document's values, however they are laid out."""
    return hashlib.blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).hexdigest()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _short(value: object) -> str:
    shown = str(value)
    return shown if len(shown) < 40 else f"{shown[:40]}…"


def _type_name(dtype: DTypeLike) -> str:
    """Return what a column's type is called in the file."""
    return np.dtype(dtype).name
