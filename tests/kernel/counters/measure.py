# SPDX-License-Identifier: Apache-2.0
"""Readings of the kernel's counters in a namespace, for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.kernel.counters.reader import CounterReader

if TYPE_CHECKING:
    from hopscope.model.counters.readings import Readings

OWN_NETNS: Final = Path("/proc/thread-self/ns/net")
# Kernel threads live in the first namespace.
HOST_NETNS: Final = Path("/proc/2/ns/net").stat().st_ino


def read(inode: int, *sources: str) -> Readings:
    with CounterReader([inode], sources or None) as reader:
        return reader.read()
