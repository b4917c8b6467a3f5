# SPDX-License-Identifier: Apache-2.0
"""BPF objects: opened, adjusted, loaded, and gone when closed."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from hopscope.errors import FormatError
from hopscope.libbpf import _dtype
from hopscope.libbpf._abi import BpfObjectOpenOpts
from hopscope.libbpf._elf import with_function
from hopscope.libbpf._failure import load_error
from hopscope.libbpf._handle import ObjectHandle
from hopscope.libbpf._library import lib
from hopscope.libbpf._log import captured
from hopscope.libbpf.btf import Btf
from hopscope.libbpf.maps import Map
from hopscope.libbpf.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from hopscope.libbpf._types import Variable

_CONSTANTS: Final = ".rodata"


class BpfObject:
    """A compiled BPF object file; a context manager that closes it.

    Attributes
    ----------
    programs : dict of str to Program
        By the C function's name.
    maps : dict of str to Map
        By the C variable's name; sections of global data under libbpf's names.
    btf : Btf
        The object's own, not the kernel's. It stays usable when the object is closed.
    """

    def __init__(self, handle: ObjectHandle) -> None:
        self._handle = handle
        self.btf = _own_btf(handle)
        programs = [Program(handle, pointer) for pointer in _each(handle, "bpf_object__next_program")]
        maps = [Map(handle, pointer, self.btf) for pointer in _each(handle, "bpf_object__next_map")]
        self.programs = {program.name: program for program in programs}
        self.maps = {found.name: found for found in maps}

    @classmethod
    def open(cls, path: Path, functions: Mapping[str, Callable[[int], bytes]] | None = None) -> Self:
        """Read an object file; nothing is given to the kernel yet.

        Parameters
        ----------
        path
            Of the file.
        functions
            Name of a C function → what gives its instructions, asked for the number of bytes that they are to have.
            The function in the file is as long as they may become, and has no relocations.

        Raises
        ------
        LoadError
            There is no such file, or it is not a BPF object with BTF.
        FormatError
            It has no such function.
        """
        with captured() as log:
            pointer = _opened_with(path, functions) if functions else _opened(path)
        if not pointer:
            raise load_error(f"{path.name} cannot be opened", ctypes.get_errno(), log=log.text)
        handle = ObjectHandle(pointer, path.name)
        try:
            return cls(handle)
        except BaseException:
            handle.close()
            raise

    def set_const(self, name: str, value: int | bytes | np.ndarray[Any, np.dtype[Any]]) -> None:
        """Set a ``const volatile`` global before the object is loaded.

        The verifier takes it for a constant and drops the branches that cannot be reached.

        Parameters
        ----------
        name
            The C variable's name.
        value
            A number for an integer, enum or bool; otherwise an array or bytes of exactly the variable's layout.

        Raises
        ------
        FormatError
            There is no such variable, or the value does not fit it.
        """
        self._handle.check(loaded=False)
        variable = self._constant(name)
        raw = self._encoded(variable, value)
        size = ctypes.c_size_t()
        start = lib().bpf_map__initial_value(self._section(_CONSTANTS), ctypes.byref(size))
        if not start or variable.offset + variable.size > size.value:
            raise FormatError(f"{self._handle.name} has no initial value for {name}")
        ctypes.memmove(start + variable.offset, raw, variable.size)

    def load(self) -> None:
        """Give maps and programs to the kernel's verifier.

        An object that was refused cannot be tried again: open it anew, and leave the refused program out.

        Raises
        ------
        LoadError
            With the errno, the refused program's name and the end of libbpf's log.
        """
        pointer = self._handle.check(loaded=False)
        with captured() as log:
            failed = lib().bpf_object__load(pointer)
        if failed:
            raise load_error(f"{self._handle.name} cannot be loaded", failed, log=log.text)
        self._handle.loaded = True

    def data(self, section: str = ".bss") -> np.ndarray[Any, np.dtype[np.void]]:
        """Map a section of global variables of the loaded object.

        Returns
        -------
        ndarray, shape ()
            A field a variable; a live view, which stays valid for as long as it is referenced. ``.rodata`` is
            read-only.

        Raises
        ------
        FormatError
            There is no such section, or a variable in it has no dtype.
        LoadError
            The kernel does not map it.
        """
        self._handle.check(loaded=True)
        found = Map(self._handle, self._section(section), self.btf)
        where = f"{self._handle.name} {section}"
        dtype = _dtype.of_section(self.btf, self.btf.variables(section), found.value_size, where)
        return found.mapped_section(dtype, writable=not section.startswith(_CONSTANTS))

    def close(self) -> None:
        """Detach all links and free the object; again is allowed. Arrays that were handed out stay valid."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _section(self, name: str) -> int:
        pointer = lib().bpf_object__find_map_by_name(self._handle.check(), name.encode())
        if not pointer:
            raise FormatError(f"{self._handle.name} has no section {name}")
        return int(pointer)

    def _constant(self, name: str) -> Variable:
        if self.btf.has_section(_CONSTANTS):
            for variable in self.btf.variables(_CONSTANTS):
                if variable.name == name:
                    return variable
        raise FormatError(f"{self._handle.name} has no constant {name}")

    def _encoded(self, variable: Variable, value: int | bytes | np.ndarray[Any, np.dtype[Any]]) -> bytes:
        """Return the variable's bytes."""
        name = f"{self._handle.name}: constant {variable.name}"
        if isinstance(value, bytes):
            if len(value) != variable.size:
                raise FormatError(f"{name} has {variable.size} bytes, {len(value)} were given")
            return value
        dtype = self.btf.dtype_of(variable.type_id)
        if isinstance(value, np.ndarray):
            if np.dtype((value.dtype, value.shape)) != dtype:
                raise FormatError(f"{name} is {dtype}, the array is {value.shape} of {value.dtype}")
            return value.tobytes()
        if dtype.kind not in "iub":
            raise FormatError(f"{name} is {dtype} and cannot be set to a number")
        lowest, highest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not lowest <= value <= highest:
            raise FormatError(f"{name} is {dtype} and cannot hold {value}")
        return np.array(value, dtype).tobytes()


def _opened(path: Path) -> int | None:
    pointer: int | None = lib().bpf_object__open_file(os.fsencode(path), None)
    return pointer


def _opened_with(path: Path, functions: Mapping[str, Callable[[int], bytes]]) -> int | None:
    """Open a copy of a file in which functions have other instructions."""
    try:
        elf = path.read_bytes()
    except OSError as error:
        raise load_error(f"{path.name} cannot be opened", error.errno or 0) from error
    for name, made in functions.items():
        elf = with_function(elf, name, made)
    options = BpfObjectOpenOpts(ctypes.sizeof(BpfObjectOpenOpts), path.name.partition(".")[0].encode())
    pointer: int | None = lib().bpf_object__open_mem(elf, len(elf), ctypes.byref(options))
    return pointer


def _own_btf(handle: ObjectHandle) -> Btf:
    """Return a copy of the object's BTF, in which libbpf has put offsets and sizes of the global variables."""
    btf = lib().bpf_object__btf(handle.check())
    if not btf:
        raise load_error(f"{handle.name} has no BTF, compile it with -g", 0)
    size = ctypes.c_uint32()
    start = lib().btf__raw_data(btf, ctypes.byref(size))
    return Btf.of_bytes(ctypes.string_at(start, size.value), f"BTF of {handle.name}")


def _each(handle: ObjectHandle, following: str) -> Iterator[int]:
    function = getattr(lib(), following)
    pointer = function(handle.check(), None)
    while pointer:
        yield pointer
        pointer = function(handle.pointer, pointer)
