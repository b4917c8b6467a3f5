# SPDX-License-Identifier: Apache-2.0
"""The kernel side's histogram, run in the kernel, against exact arithmetic."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import build_bpf
from hopscope.libbpf import BpfObject
from hopscope.model.histogram import SLOTS, U64_MAX, bucket_of, thresholds_ns

pytestmark = pytest.mark.root

SOURCE = Path(__file__).parent / "bpf" / "hist.bpf.c"
VALUES = 4096


class RunOptions(ctypes.Structure):
    """``struct bpf_test_run_opts``; a program of type syscall needs none of it but the size."""

    _fields_ = (("sz", ctypes.c_size_t), ("rest", ctypes.c_char * 72))


def interesting_ns() -> list[int]:
    thresholds = list(thresholds_ns())
    edges = [threshold + step for threshold in thresholds for step in (-1, 0, 1)]
    powers = [2**bit + step for bit in range(64) for step in (-1, 0, 1)]
    spread = np.random.default_rng(23).integers(0, 40 * 10**9, 800).tolist()
    logarithmic = [int(2**exponent) for exponent in np.random.default_rng(29).uniform(0, 63.9, 300)]
    return [value for value in [*edges, *powers, *spread, *logarithmic, U64_MAX] if 0 <= value <= U64_MAX]


@pytest.fixture(scope="module")
def sorted_by_the_kernel(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Durations, the slot of each, and the row that they were added to."""
    target = tmp_path_factory.mktemp("bpf") / "hist.bpf.o"
    build_bpf.compile_object(SOURCE, target, build_bpf.host_arch())
    values = interesting_ns()
    assert len(values) <= VALUES
    with BpfObject.open(target) as bpf:
        bpf.load()
        bpf.maps["durations"].array()[: len(values)] = np.array(values, np.uint64)
        bpf.data(".bss")["used"] = len(values)
        options = RunOptions(sz=ctypes.sizeof(RunOptions))
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
        assert library.bpf_prog_test_run_opts(bpf.programs["sort_all"].fd, ctypes.byref(options)) == 0
        return values, bpf.maps["found"].array()[: len(values)].copy(), bpf.maps["rows"].array()[0].copy()


def test_every_duration_gets_its_exact_slot(sorted_by_the_kernel: tuple[list[int], np.ndarray, np.ndarray]) -> None:
    values, slots, _ = sorted_by_the_kernel
    wrong = [(value, int(slot)) for value, slot in zip(values, slots, strict=True) if slot != bucket_of(value)]
    assert wrong == []
    assert set(slots.tolist()) == set(range(SLOTS))


def test_counts_sum_and_maximum_are_exact(sorted_by_the_kernel: tuple[list[int], np.ndarray, np.ndarray]) -> None:
    values, slots, row = sorted_by_the_kernel
    assert row["slots"].tolist() == np.bincount(slots.astype(np.int64), minlength=SLOTS).tolist()
    assert int(row["sum_ns"]) == sum(values) % 2**64
    assert int(row["max_ns"]) == max(values)
