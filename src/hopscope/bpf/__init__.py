# SPDX-License-Identifier: Apache-2.0
"""The kernel side: BPF programs in C, and where their compiled objects lie.

Each collector has a folder with one program file, ``rx/rx.bpf.c``; ``common`` has what they share. Names in
``#include`` are relative to this folder, which is also where the objects are: ``rx.bpf.o``.
"""

from __future__ import annotations

from pathlib import Path

from hopscope.errors import KernelError


def object_path(name: str) -> Path:
    """Return the path of a compiled object.

    Parameters
    ----------
    name
        Name of the source file without ``.bpf.c``.

    Raises
    ------
    KernelError
        The object was not built.
    """
    path = Path(__file__).with_name(f"{name}.bpf.o")
    if not path.exists():
        raise KernelError(f"The BPF object {path.name} is not built", "Run `make build`, or install the wheel")
    return path
