# SPDX-License-Identifier: Apache-2.0
"""The object that programs and maps belong to, and whether it is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.libbpf._library import lib

if TYPE_CHECKING:
    from hopscope.libbpf.links import Link


class ObjectHandle:
    """libbpf's ``struct bpf_object *`` and what must go before it.

    Programs and maps of libbpf are parts of the object: each use asks :meth:`check` first, because a pointer into a
    closed object would crash the interpreter.
    """

    def __init__(self, pointer: int, name: str) -> None:
        self.pointer = pointer
        self.name = name
        self.loaded = False
        self.links: list[Link] = []

    def check(self, *, loaded: bool | None = None) -> int:
        """Return the pointer.

        Parameters
        ----------
        loaded
            Whether it must have been loaded, or must not have been; None where either is right.

        Raises
        ------
        RuntimeError
            The object is closed, or in the wrong state: an error in the calling code.
        """
        if not self.pointer:
            raise RuntimeError(f"{self.name} is closed")
        if loaded is not None and loaded != self.loaded:
            raise RuntimeError(f"{self.name} is {'not loaded yet' if loaded else 'loaded already'}")
        return self.pointer

    def close(self) -> None:
        """Detach every link and free the object; again is allowed."""
        if not self.pointer:
            return
        for link in self.links:
            link.close()
        self.links.clear()
        pointer, self.pointer = self.pointer, 0
        lib().bpf_object__close(pointer)
