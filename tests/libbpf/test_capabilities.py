# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.libbpf import missing_capabilities

if TYPE_CHECKING:
    from pathlib import Path

ALL = (1 << 41) - 1


@pytest.mark.parametrize(
    ("effective", "missing"),
    [
        (ALL, []),
        (1 << 39 | 1 << 38 | 1 << 12, []),
        (1 << 21 | 1 << 12, []),
        (1 << 21, []),
        (1 << 39, ["CAP_PERFMON", "CAP_NET_ADMIN"]),
        (0, ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"]),
    ],
)
def test_missing_capabilities(tmp_path: Path, effective: int, missing: list[str]) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapPrm:\t{ALL:016x}\nCapEff:\t{effective:016x}\nCapBnd:\t{ALL:016x}\n")
    assert missing_capabilities(status=status) == missing
