# SPDX-License-Identifier: Apache-2.0
"""Queries take a part of the memory that this process may have, whoever limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.store.budget import memory_bytes, threads

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
_V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
_V1 = "31 23 0:27 /docker/x /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        ({"proc/meminfo": "MemTotal: 99 kB\nMemAvailable:    1146880 kB\n"}, 512),
        ({"proc/meminfo": "MemAvailable: 999999999 kB\n"}, 3072),
        ({}, 1488),
        (
            {
                "proc/meminfo": "MemAvailable: 999999999 kB\n",
                "proc/self/mountinfo": _V2,
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": f"{224 * MIB}\n",
            },
            64,
        ),
        (
            {
                "proc/self/mountinfo": _V1,
                "proc/self/cgroup": "4:cpu:/\n3:memory:/docker/x/y\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{200 * MIB}\n",
                "sys/fs/cgroup/memory/y/memory.limit_in_bytes": "9223372036854771712\n",
            },
            52,
        ),
        ({"proc/self/mountinfo": _V2, "proc/self/cgroup": "0::/../other\n", "sys/fs/memory.max": "1\n"}, 1488),
    ],
)
def test_the_least_of_what_limits_it(tmp_path: Path, files: dict[str, str], mib: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_bytes(tmp_path) == mib * MIB


def test_little_memory_is_for_one_thread() -> None:
    assert threads(64 * MIB) == 1
