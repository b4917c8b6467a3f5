# SPDX-License-Identifier: Apache-2.0
"""Where libbpf is found, and that it is new enough.

It is opened when it is needed for the first time: importing the package costs nothing, and works, on a machine
without libbpf.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Final, Protocol

from hopscope.errors import KernelError
from hopscope.libbpf._abi import PROTOTYPES
from hopscope.libbpf._log import PRINT

OLDEST_VERSION: Final = (1, 1)
BUNDLED: Final = Path(__file__).parent / "_lib" / "libbpf.so.1"
SYSTEM: Final = "libbpf.so.1"
HOW_TO_GET: Final = (
    "Install libbpf 1.1 or newer (Debian, Ubuntu: apt-get install libbpf1; Fedora: dnf install libbpf), "
    "or use hopscope's wheel, which brings it along"
)


class Opener(Protocol):
    """Anything that opens a shared library as :class:`ctypes.CDLL` does."""

    def __call__(self, name: str, *, use_errno: bool) -> ctypes.CDLL:
        """Open the library of that name or path; OSError where it cannot."""


def open_library(bundled: Path = BUNDLED, opener: Opener = ctypes.CDLL) -> ctypes.CDLL:
    """Open libbpf, the bundled copy where there is one, and declare the functions in use.

    Raises
    ------
    KernelError
        There is no libbpf, or it is older than 1.1.
    """
    name = str(bundled) if bundled.exists() else SYSTEM
    try:
        library = opener(name, use_errno=True)
    except OSError as error:
        raise KernelError(f"libbpf cannot be opened: {error}", HOW_TO_GET) from error
    try:
        version = (int(library.libbpf_major_version()), int(library.libbpf_minor_version()))
    except AttributeError:
        version = (0, 0)
    if version < OLDEST_VERSION:
        found = "older than 0.6" if version == (0, 0) else ".".join(map(str, version))
        raise KernelError(f"libbpf is too old: {name} is {found}, 1.1 is needed", HOW_TO_GET)
    for function, (restype, argtypes) in PROTOTYPES.items():
        prototype = getattr(library, function)
        prototype.restype = restype
        prototype.argtypes = argtypes
    return library


@functools.cache
def lib() -> ctypes.CDLL:
    """Return libbpf, opened at the first call, its messages going to :mod:`hopscope.libbpf._log`."""
    library = open_library()
    library.libbpf_set_print(PRINT)
    return library
