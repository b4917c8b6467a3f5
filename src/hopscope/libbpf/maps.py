# SPDX-License-Identifier: Apache-2.0
"""Maps: single entries, whole maps at once, and arrays that are mapped into memory."""

from __future__ import annotations

import ctypes
import errno
import mmap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import FormatError
from hopscope.libbpf import _abi
from hopscope.libbpf._abi import decoded
from hopscope.libbpf._failure import load_error
from hopscope.libbpf._library import lib
from hopscope.libbpf._log import captured

if TYPE_CHECKING:
    from hopscope.libbpf._handle import ObjectHandle
    from hopscope.libbpf.btf import Btf

_PER_CPU: Final = {_abi.BPF_MAP_TYPE_PERCPU_HASH, _abi.BPF_MAP_TYPE_PERCPU_ARRAY, _abi.BPF_MAP_TYPE_LRU_PERCPU_HASH}
_ARRAYS: Final = {_abi.BPF_MAP_TYPE_ARRAY, _abi.BPF_MAP_TYPE_PERCPU_ARRAY}
_ITERABLE: Final = _PER_CPU | _ARRAYS | {_abi.BPF_MAP_TYPE_HASH, _abi.BPF_MAP_TYPE_LRU_HASH}
# One system call takes this many entries, or as many as the fullest bucket of a hash needs.
_BATCH_ENTRIES: Final = 4096
# The kernel refuses a batch of this type of map with the first (ENOTSUPP), or does not know batches at all.
_NO_BATCH: Final = {524, errno.EINVAL, errno.EOPNOTSUPP}


class Map:
    """One map of an object; made by :class:`~hopscope.libbpf.object.BpfObject`.

    Attributes
    ----------
    name
        The C variable's name; for a section of data, libbpf's name for it (``prog.bss``).
    type
        ``enum bpf_map_type``.
    key_size, value_size, max_entries
        In bytes, and entries, as declared or set.
    """

    def __init__(self, handle: ObjectHandle, pointer: int, btf: Btf) -> None:
        self._handle = handle
        self._pointer = pointer
        self._btf = btf
        library = lib()
        self.name = decoded(library.bpf_map__name(pointer))
        self.type = int(library.bpf_map__type(pointer))
        self.key_size = int(library.bpf_map__key_size(pointer))
        self.value_size = int(library.bpf_map__value_size(pointer))
        self.max_entries = int(library.bpf_map__max_entries(pointer))

    @property
    def fd(self) -> int:
        """The file descriptor of the loaded map."""
        self._handle.check(loaded=True)
        return int(lib().bpf_map__fd(self._pointer))

    @property
    def per_cpu(self) -> bool:
        """Whether each key has a value for every possible CPU."""
        return self.type in _PER_CPU

    def set_max_entries(self, n: int) -> None:
        """Set the number of entries before the object is loaded (bytes, for a ring)."""
        self._handle.check(loaded=False)
        failed = lib().bpf_map__set_max_entries(self._pointer, n)
        if failed:
            raise load_error(f"map {self.name} cannot have {n} entries", failed)
        self.max_entries = int(lib().bpf_map__max_entries(self._pointer))

    def share(self, other: Map) -> None:
        """Let this be another object's map, which is loaded; before this one's object is.

        Raises
        ------
        LoadError
            They are not alike.
        """
        self._handle.check(loaded=False)
        failed = lib().bpf_map__reuse_fd(self._pointer, other.fd)
        if failed:
            raise load_error(f"map {self.name} cannot be shared", failed)

    def key_dtype(self) -> np.dtype[Any]:
        """Return the key's layout by BTF.

        Raises
        ------
        FormatError
            It was declared by its size only, or NumPy cannot hold it.
        """
        if self.type in _ARRAYS:
            return np.dtype(np.uint32)
        self._handle.check()
        return self._dtype("key", int(lib().bpf_map__btf_key_type_id(self._pointer)), self.key_size)

    def value_dtype(self) -> np.dtype[Any]:
        """Return the value's layout by BTF, as :meth:`key_dtype` does for the key."""
        self._handle.check()
        return self._dtype("value", int(lib().bpf_map__btf_value_type_id(self._pointer)), self.value_size)

    def array(self, dtype: np.dtype[Any] | None = None) -> np.ndarray[Any, np.dtype[Any]]:
        """Map an array that was declared with BPF_F_MMAPABLE.

        Parameters
        ----------
        dtype
            Of one value; by default the one in BTF.

        Returns
        -------
        ndarray, shape (max_entries,)
            A live view: the kernel's programs and the reader see each other's writes. It stays valid, with the memory
            behind it, for as long as it is referenced, even when the object is closed.

        Raises
        ------
        FormatError
            `dtype` does not have the value's size.
        LoadError
            The kernel does not map it.
        """
        if dtype is None:
            dtype = self.value_dtype()
        if dtype.itemsize != self.value_size:
            raise FormatError(f"map {self.name} has values of {self.value_size} bytes, not {dtype.itemsize}")
        stride = _round_up(self.value_size, 8)
        memory = self._mapped(stride * self.max_entries)
        return np.ndarray((self.max_entries,), dtype, memory, strides=(stride,))

    def mapped_section(self, dtype: np.dtype[Any], *, writable: bool) -> np.ndarray[Any, np.dtype[Any]]:
        """Map a section of global data as one value of shape ()."""
        return np.ndarray((), dtype, self._mapped(self.value_size, writable=writable))

    def lookup(self, key: bytes) -> bytes | None:
        """Return a key's value, None where there is none.

        For a per-CPU map, the values of all possible CPUs in a row, each on a multiple of 8 bytes.
        """
        self._check_size("key", key, self.key_size)
        value = ctypes.create_string_buffer(self._read_size)
        failed = lib().bpf_map_lookup_elem(self.fd, key, value)
        if failed == -errno.ENOENT:
            return None
        if failed:
            raise load_error(f"map {self.name} cannot be read", failed)
        return value.raw

    def update(self, key: bytes, value: bytes, flags: int = 0) -> None:
        """Write a value; `flags` are BPF_ANY (0), BPF_NOEXIST (1), BPF_EXIST (2)."""
        self._check_size("key", key, self.key_size)
        self._check_size("value", value, self._read_size)
        failed = lib().bpf_map_update_elem(self.fd, key, value, flags)
        if failed:
            raise load_error(f"map {self.name} cannot be written", failed)

    def delete(self, key: bytes) -> None:
        """Delete a key.

        Raises
        ------
        LoadError
            There is no such key (ENOENT), or the type of map cannot delete.
        """
        self._check_size("key", key, self.key_size)
        failed = lib().bpf_map_delete_elem(self.fd, key)
        if failed:
            raise load_error(f"the key cannot be deleted from map {self.name}", failed)

    def items(self) -> tuple[np.ndarray[Any, np.dtype[Any]], np.ndarray[Any, np.dtype[Any]]]:
        """Copy a whole hash or array.

        An entry that a program adds or deletes meanwhile may or may not be among them; one that is there all the time
        is there once.

        Returns
        -------
        keys : ndarray, shape (n,)
        values : ndarray, shape (n,), of a per-CPU map (n, possible CPUs)

        Raises
        ------
        FormatError
            The map was declared without BTF types, or NumPy cannot hold them.
        LoadError
            The kernel refuses.
        """
        if self.type not in _ITERABLE:
            raise FormatError(f"map {self.name} is neither a hash nor an array")
        key_dtype, value_dtype = self.key_dtype(), self.value_dtype()
        raw = self._items_batched()
        keys, values = raw if raw is not None else self._items_one_by_one()
        stride = _round_up(self.value_size, 8) if self.per_cpu else self.value_size
        shape = (len(keys), possible_cpus()) if self.per_cpu else (len(keys),)
        strides = (self._read_size, stride) if self.per_cpu else (stride,)
        return keys.view(key_dtype)[:, 0], np.ndarray(shape, value_dtype, values, strides=strides)

    @property
    def _read_size(self) -> int:
        """The bytes that the kernel copies to and from user space for one key."""
        return _round_up(self.value_size, 8) * possible_cpus() if self.per_cpu else self.value_size

    def _items_batched(self) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], np.ndarray[Any, np.dtype[np.uint8]]] | None:
        """Copy by BPF_MAP_LOOKUP_BATCH; None where the kernel has none for this map."""
        capacity = min(_BATCH_ENTRIES, self.max_entries)
        # Where to go on: an index of 4 bytes for a hash, a key for the others.
        place = ctypes.create_string_buffer(max(8, self.key_size))
        keys: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        values: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        failed = 0
        while failed != -errno.ENOENT:
            some_keys = np.empty((capacity, self.key_size), np.uint8)
            some_values = np.empty((capacity, self._read_size), np.uint8)
            count = ctypes.c_uint32(capacity)
            start = place if keys else None
            failed = lib().bpf_map_lookup_batch(
                self.fd, start, place, some_keys.ctypes.data, some_values.ctypes.data, ctypes.byref(count), None
            )
            if failed == -errno.ENOSPC and capacity < self.max_entries:
                capacity = min(2 * capacity, self.max_entries)
                continue
            if -failed in _NO_BATCH and not keys:
                return None
            if failed not in (0, -errno.ENOENT):
                raise load_error(f"map {self.name} cannot be read", failed)
            keys.append(some_keys[: count.value])
            values.append(some_values[: count.value])
        return np.concatenate(keys), np.concatenate(values)

    def _items_one_by_one(self) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], np.ndarray[Any, np.dtype[np.uint8]]]:
        found: dict[bytes, bytes] = {}
        key: bytes | None = None
        following = ctypes.create_string_buffer(self.key_size)
        # A key that is deleted under our feet makes the kernel begin anew: more steps than entries are needed then,
        # but a map that changes faster than it can be read must not hold us for ever.
        for _ in range(4 * self.max_entries + 1):
            if lib().bpf_map_get_next_key(self.fd, key, following):
                break
            key = following.raw
            value = self.lookup(key)
            if value is not None:
                found[key] = value
        keys = np.frombuffer(b"".join(found.keys()), np.uint8).reshape(len(found), self.key_size)
        values = np.frombuffer(b"".join(found.values()), np.uint8).reshape(len(found), self._read_size)
        return keys, values

    def _mapped(self, size: int, *, writable: bool = True) -> mmap.mmap:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            return mmap.mmap(self.fd, _round_up(size, mmap.PAGESIZE), mmap.MAP_SHARED, protection)
        except OSError as error:
            raise load_error(f"map {self.name} cannot be mapped", error.errno or 0) from error

    def _dtype(self, which: str, type_id: int, size: int) -> np.dtype[Any]:
        if not type_id:
            raise FormatError(f"the {which} of map {self.name} has no type, declare it with __type({which}, …)")
        dtype = self._btf.dtype_of(type_id)
        if dtype.itemsize != size:
            raise FormatError(f"the {which} of map {self.name} has {size} bytes, its type {dtype.itemsize}")
        return dtype

    def _check_size(self, which: str, given: bytes, size: int) -> None:
        # The kernel would read or write beyond the end of what it was given.
        if len(given) != size:
            raise FormatError(f"the {which} of map {self.name} has {size} bytes, {len(given)} were given")


def possible_cpus() -> int:
    """Return the number of CPUs that this kernel could ever have, which per-CPU maps are made for."""
    with captured() as log:
        found = int(lib().libbpf_num_possible_cpus())
    if found < 0:
        raise load_error("the possible CPUs cannot be counted", found, log=log.text)
    return found


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
