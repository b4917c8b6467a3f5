# SPDX-License-Identifier: Apache-2.0
"""BTF, the description of types of a kernel or an object: looked up by name, as NumPy dtypes and enums."""

from __future__ import annotations

import ctypes
import functools
import os
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import FormatError, KernelError
from hopscope.libbpf import _dtype
from hopscope.libbpf._failure import load_error
from hopscope.libbpf._library import lib
from hopscope.libbpf._log import captured
from hopscope.libbpf._types import Kind, TypeTable

if TYPE_CHECKING:
    import numpy as np

KERNEL_BTF: Final = Path("/sys/kernel/btf/vmlinux")


class Btf(TypeTable):
    """Types by name; made by :meth:`kernel`, :meth:`of_object` or :meth:`of_bytes`."""

    def __init__(self, handle: int, source: str) -> None:
        super().__init__(handle, source)
        self._dtypes: dict[int, np.dtype[Any]] = {}

    @classmethod
    def kernel(cls) -> Btf:
        """Return the running kernel's, read once.

        Raises
        ------
        KernelError
            The kernel was built without CONFIG_DEBUG_INFO_BTF, or libbpf cannot read it.
        """
        return _kernel()

    @classmethod
    def of_object(cls, path: Path) -> Btf:
        """Return the ``.BTF`` section of an ELF file, or a file of raw BTF.

        Raises
        ------
        LoadError
            The file cannot be read, or has no BTF.
        """
        with captured() as log:
            handle = lib().btf__parse(os.fsencode(path), None)
        if not handle:
            raise load_error(f"BTF of {path} cannot be read", ctypes.get_errno(), log=log.text)
        return cls(handle, str(path))

    @classmethod
    def of_bytes(cls, raw: bytes, source: str = "BTF") -> Btf:
        """Return BTF from memory; `source` names it in errors.

        Raises
        ------
        FormatError
            The bytes are not BTF.
        """
        with captured() as log:
            handle = lib().btf__new(raw, len(raw))
        if not handle:
            raise FormatError(f"{source} is not valid: {log.text.strip() or os.strerror(ctypes.get_errno())}")
        return cls(handle, source)

    def dtype(self, type_name: str) -> np.dtype[np.void]:
        """Return a struct's layout, exact to the byte.

        Offsets and size are the ones in BTF; anonymous structs' members stand among the outer ones, as in C. Pointers
        are ``u8``, enums their integers, arrays of ``char`` are ``S``, which ends at the last byte that is not NUL
        (``__u8`` is for bytes).

        Raises
        ------
        FormatError
            There is no such struct, or a member is a bitfield, a union, a floating point number or of a kind that
            NumPy does not have. The sentence names the member.
        """
        found = self.find(type_name, Kind.STRUCT)
        if found is None:
            raise FormatError(f"{self.source} has no struct {type_name}")
        return self.dtype_of(found)

    def dtype_of(self, type_id: int) -> np.dtype[Any]:
        """Return the layout of any type of known size, as :meth:`dtype` does for a struct."""
        if type_id not in self._dtypes:
            self._dtypes[type_id] = _dtype.of_type(self, type_id)
        return self._dtypes[type_id]

    def enum(self, name: str) -> type[IntEnum]:
        """Return an enum as a class, with the names that it has in C.

        Raises
        ------
        FormatError
            There is no such enum, or only its declaration.
        """
        # mypy takes this for the look-up of a value, not for the making of a class.
        return IntEnum(name, self.enum_values(name))  # type: ignore[return-value]

    def enum_values(self, name: str) -> dict[str, int]:
        """Return an enum's names and values in the order of their definition.

        Raises
        ------
        FormatError
            There is no such enum, or only its declaration.
        """
        for kind in (Kind.ENUM, Kind.ENUM64):
            found = self.find(name, kind)
            if found is not None and (values := self.enumerators(self.type(found))):
                return values
        raise FormatError(f"{self.source} has no enum {name}")

    def has_func(self, name: str) -> bool:
        """Tell whether there is a function of that name, which fentry could attach to."""
        return self.find(name, Kind.FUNC) is not None

    def has_struct(self, name: str) -> bool:
        """Tell whether a struct of that name is defined."""
        return self.find(name, Kind.STRUCT) is not None

    def has_tracepoint(self, name: str) -> bool:
        """Tell whether a BTF-enabled raw tracepoint (``tp_btf/name``) exists in the kernel proper."""
        return self.find(f"btf_trace_{name}", Kind.TYPEDEF) is not None

    def tracepoint_arguments(self, name: str) -> int:
        """Return how many arguments a tracepoint gives to its programs; 0 where there is no such tracepoint."""
        found = self.find(f"btf_trace_{name}", Kind.TYPEDEF)
        if found is None:
            return 0
        prototype = self.resolve(self.resolve(found).ref)
        return prototype.vlen - 1  # the first is the tracepoint's own


@functools.cache
def _kernel() -> Btf:
    if not KERNEL_BTF.exists():
        raise KernelError(
            f"This kernel has no BTF ({KERNEL_BTF} is missing)",
            "Boot a kernel that was built with CONFIG_DEBUG_INFO_BTF=y, as those of the distributions are",
        )
    return Btf.of_object(KERNEL_BTF)
