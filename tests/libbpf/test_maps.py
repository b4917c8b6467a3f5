# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.errors import FormatError, LoadError
from hopscope.libbpf import BpfObject, Map, maps, possible_cpus

if TYPE_CHECKING:
    from pathlib import Path

TIMES = 23
BPF_NOEXIST = 1


def count_calls(loaded: BpfObject) -> None:
    with loaded.programs["on_getppid"].attach():
        for _ in range(TIMES):
            os.getppid()


def key_of(number: int) -> bytes:
    return struct.pack("=Ii", number, -number)


def value_of(number: int) -> bytes:
    return struct.pack("=QI4x", number << 33, number)


def filled(loaded: BpfObject, count: int) -> Map:
    hashed = loaded.maps["hash"]
    for number in range(count):
        hashed.update(key_of(number), value_of(number))
    return hashed


def assert_complete(hashed: Map, count: int) -> None:
    keys, values = hashed.items()
    assert keys.shape == values.shape == (count,)
    order = np.argsort(keys["left"])
    numbers = np.arange(count)
    assert np.array_equal(keys["left"][order], numbers)
    assert np.array_equal(keys["right"][order], -numbers)
    assert np.array_equal(values["count"][order], numbers << 33)
    assert np.array_equal(values["last"][order], numbers)


def test_sizes_are_the_declared_ones(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        hashed = opened.maps["hash"]
        assert (hashed.name, hashed.type, hashed.key_size, hashed.value_size, hashed.max_entries) == (
            "hash",
            1,
            8,
            16,
            10000,
        )
        hashed.set_max_entries(77)
        assert hashed.max_entries == 77


@pytest.mark.root
def test_set_max_entries_bounds_the_loaded_map(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        opened.maps["hash"].set_max_entries(2)
        opened.load()
        hashed = filled(opened, 2)
        with pytest.raises(LoadError, match="map hash cannot be written") as caught:
            hashed.update(key_of(3), value_of(3))
        assert caught.value.errno == errno.E2BIG
        with pytest.raises(RuntimeError, match="loaded already"):
            hashed.set_max_entries(3)


@pytest.mark.root
def test_single_entries(loaded: BpfObject) -> None:
    hashed = loaded.maps["hash"]
    assert hashed.lookup(key_of(1)) is None
    hashed.update(key_of(1), value_of(1))
    assert hashed.lookup(key_of(1)) == value_of(1)
    with pytest.raises(LoadError) as caught:
        hashed.update(key_of(1), value_of(2), BPF_NOEXIST)
    assert caught.value.errno == errno.EEXIST
    hashed.delete(key_of(1))
    assert hashed.lookup(key_of(1)) is None
    with pytest.raises(LoadError) as caught:
        hashed.delete(key_of(1))
    assert caught.value.errno == errno.ENOENT


@pytest.mark.root
def test_wrong_sizes_never_reach_the_kernel(loaded: BpfObject) -> None:
    hashed = loaded.maps["hash"]
    with pytest.raises(FormatError, match="key of map hash has 8 bytes, 7 were given"):
        hashed.lookup(bytes(7))
    with pytest.raises(FormatError, match="key of map hash has 8 bytes"):
        hashed.delete(bytes(9))
    with pytest.raises(FormatError, match="value of map hash has 16 bytes, 17 were given"):
        hashed.update(bytes(8), bytes(17))
    with pytest.raises(FormatError, match=f"value of map percpu has {8 * possible_cpus()} bytes"):
        loaded.maps["percpu"].update(bytes(4), bytes(4))


@pytest.mark.root
@pytest.mark.parametrize("count", [0, 1, 5000])
def test_items_of_a_hash_are_all_there_once(loaded: BpfObject, count: int) -> None:
    assert_complete(filled(loaded, count), count)


@pytest.mark.root
def test_items_when_a_bucket_is_larger_than_the_batch(loaded: BpfObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "_BATCH_ENTRIES", 1)
    assert_complete(filled(loaded, 5000), 5000)


@pytest.mark.root
def test_items_without_batches_are_the_same(loaded: BpfObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Map, "_items_batched", lambda _: None)
    assert_complete(filled(loaded, 0), 0)
    assert_complete(filled(loaded, 300), 300)
    keys, values = loaded.maps["percpu"].items()
    assert keys.tolist() == [0, 1, 2]
    assert values.shape == (3, possible_cpus())


@pytest.mark.root
@pytest.mark.parametrize("code", [524, errno.EINVAL])
def test_items_go_one_by_one_where_the_kernel_has_no_batch(
    loaded: BpfObject, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    hashed = filled(loaded, 10)
    library = maps.lib()

    class WithoutBatch:
        def __getattr__(self, name: str) -> object:
            return (lambda *_: -code) if name == "bpf_map_lookup_batch" else getattr(library, name)

    monkeypatch.setattr(maps, "lib", WithoutBatch)
    assert_complete(hashed, 10)


@pytest.mark.root
def test_batch_that_fails_raises(loaded: BpfObject, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = filled(loaded, 10)
    library = maps.lib()

    class Failing:
        def __getattr__(self, name: str) -> object:
            return (lambda *_: -errno.EFAULT) if name == "bpf_map_lookup_batch" else getattr(library, name)

    monkeypatch.setattr(maps, "lib", Failing)
    with pytest.raises(LoadError, match="map hash cannot be read"):
        hashed.items()


@pytest.mark.root
def test_items_of_arrays(loaded: BpfObject) -> None:
    count_calls(loaded)
    keys, values = loaded.maps["plain"].items()
    assert keys.tolist() == [0, 1, 2]
    assert values.tolist() == [0, 0, TIMES]
    keys, values = loaded.maps["percpu"].items()
    assert keys.tolist() == [0, 1, 2]
    assert values.dtype == np.uint32
    assert values.shape == (3, possible_cpus())
    assert values.sum(axis=1).tolist() == [0, TIMES, 0]


@pytest.mark.root
def test_per_cpu_values_stand_in_the_order_of_cpus(loaded: BpfObject) -> None:
    percpu = loaded.maps["percpu"]
    raw = b"".join(struct.pack("=I4x", 100 + cpu) for cpu in range(possible_cpus()))
    percpu.update(struct.pack("=I", 2), raw)
    assert percpu.lookup(struct.pack("=I", 2)) == raw
    assert percpu.items()[1][2].tolist() == [100 + cpu for cpu in range(possible_cpus())]


@pytest.mark.root
def test_mapped_array_is_live_both_ways(loaded: BpfObject) -> None:
    mapped, narrow = loaded.maps["mapped"].array(), loaded.maps["narrow"].array()
    mapped["count"][3] = 1000
    count_calls(loaded)
    assert mapped.shape == (8,)
    assert mapped["count"].tolist() == [0, 0, 0, 1000 + TIMES, 0, 0, 0, 0]
    assert narrow.tolist() == [0, 0, 0, TIMES, 0]
    assert loaded.maps["narrow"].lookup(struct.pack("=I", 3)) == struct.pack("=I", TIMES)


@pytest.mark.root
def test_mapped_array_with_a_dtype_of_ones_own(loaded: BpfObject) -> None:
    array = loaded.maps["mapped"].array(np.dtype(("u4", (4,))))
    assert array.shape == (8, 4)
    with pytest.raises(FormatError, match="values of 16 bytes, not 8"):
        loaded.maps["mapped"].array(np.dtype("u8"))


@pytest.mark.root
def test_map_that_cannot_be_mapped_raises(loaded: BpfObject) -> None:
    with pytest.raises(LoadError, match="map plain cannot be mapped"):
        loaded.maps["plain"].array()


@pytest.mark.root
def test_map_without_types_raises(loaded: BpfObject) -> None:
    with pytest.raises(FormatError, match=r"the key of map untyped has no type, declare it with __type\(key"):
        loaded.maps["untyped"].items()
