# SPDX-License-Identifier: Apache-2.0
"""``libraries``: what a recorded function of a library costs its caller, by the instruction with which it begins.

A program calls two functions that do nothing, which bear the names of OpenSSL's, and reads the clock around each call.
The kernel emulates the first instruction of one (``push``), and executes that of the other one (``sub``) by a single
step. The cost of the clock is in all of it, and in none of the differences. x86-64 alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench.measure import Spread, table, turns
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROUNDS: Final = 6
_OFF, _RECORDED, _COMM, _PID = "not recorded", "recorded", "another --comm", "another --pid"
VARIANTS: Final = (_OFF, _RECORDED, _COMM, _PID)
FUNCTIONS: Final = {"push": "SSL_write", "sub": "SSL_read"}
_CALLS: Final = 50_000
_SOURCE: Final = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
__asm__(".globl SSL_write\n.type SSL_write, @function\nSSL_write: push %rbp; mov $100, %eax; pop %rbp; ret\n"
        ".globl SSL_read\n.type SSL_read, @function\nSSL_read: sub $8, %rsp; mov $100, %eax; add $8, %rsp; ret\n");
int SSL_write(void *ssl, const void *data, int len_bytes);
int SSL_read(void *ssl, void *data, int len_bytes);
static int took[CALLS];
static int by_size(const void *a, const void *b) { return *(int *)a - *(int *)b; }
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}
static void median(int reads) {
    for (int i = 0; i < CALLS; i++) {
        long begin = now();
        reads ? SSL_read(took, took, 100) : SSL_write(took, took, 100);
        took[i] = now() - begin;
    }
    qsort(took, CALLS, sizeof(*took), by_size);
    printf("%d\n", took[CALLS / 2]);
}
int main(void) { median(0); median(1); }
"""


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with TemporaryDirectory(prefix="hopscope-bench-") as scratch:
        program = Path(scratch) / "calls"
        code = program.with_suffix(".c")
        code.write_text(_SOURCE)
        words = (sys.executable, "-m", "ziglang", "cc", "-O2", f"-DCALLS={_CALLS}", "-o", program, code)
        subprocess.run(words, check=True)
        measured = [{name: _medians(program, name) for name in order} for order in turns(VARIANTS, rounds)]
    yield f"ns a call, and more than not recorded; medians of {_CALLS:,} calls; median of {rounds} rounds (quartiles)\n"
    yield calls_table(measured) + "\n"


def calls_table(rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> str:
    """Lay out what a call takes in each variant, ns."""
    rows = []
    for name in VARIANTS:
        row = [name]
        for function in FUNCTIONS:
            taken = Spread.of(each[name][function] for each in rounds)
            more = Spread.of(each[name][function] - each[_OFF][function] for each in rounds)
            row += [f"{taken.median:.0f}", "" if name == _OFF else more.shown("+.0f")]
        rows.append(row)
    return table(("", *(word for function in FUNCTIONS for word in (function, "more"))), rows)


def _medians(program: Path, name: str) -> dict[str, float]:
    if name == _OFF:
        return _run(program)
    pids, comms = (os.getpid(),) if name == _PID else (), ("nobody",) if name == _COMM else ()
    with Recorder(RecordOptions(profiles=(), libraries=(str(program),), pids=pids, comms=comms)) as recorder:
        taken = _run(program)
        recorder.take()
    return taken


def _run(program: Path) -> dict[str, float]:
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(FUNCTIONS, map(float, said), strict=True))
