# SPDX-License-Identifier: Apache-2.0
"""What is read of a process in /proc."""

from __future__ import annotations

import os

from bench.reader import resident_bytes


def test_memory_is_what_is_resident_in_bytes() -> None:
    before = resident_bytes(os.getpid())
    block = bytearray(os.urandom(1 << 16)) * 1024
    assert resident_bytes(os.getpid()) - before > 32 << 20
    assert len(block) == 64 << 20
