# SPDX-License-Identifier: Apache-2.0
"""The numbers of what this kernel holds of a kind: programs, links."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def numbers(following: Callable[..., Any]) -> tuple[int, ...] | None:
    """Return all numbers, in order, by libbpf's function for the one after another; None where it is refused."""
    found = []
    number = ctypes.c_uint32(0)
    while not (failed := following(number, ctypes.byref(number))):
        found.append(number.value)
    return tuple(found) if failed == -errno.ENOENT else None
