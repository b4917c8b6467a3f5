# SPDX-License-Identifier: Apache-2.0
"""The kernel's own account of what BPF programs cost."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hopscope.libbpf._abi import BPF_STATS_RUN_TIME
from hopscope.libbpf._failure import load_error
from hopscope.libbpf._library import lib

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def enable_stats() -> Iterator[None]:
    """Let the kernel count runs and their time, of all programs of the host, for the duration of the block.

    It costs each run of each program two looks at the clock, some 20 to 60 ns. It is switched off by the kernel when
    the last who asked for it has ended, however it ended.

    Raises
    ------
    LoadError
        The kernel refuses (before 5.8, or a right is missing).
    """
    fd = int(lib().bpf_enable_stats(BPF_STATS_RUN_TIME))
    if fd < 0:
        raise load_error("BPF statistics cannot be enabled", fd)
    try:
        yield
    finally:
        os.close(fd)
