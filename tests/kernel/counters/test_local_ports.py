# SPDX-License-Identifier: Apache-2.0
"""Which ports the kernel may choose for connections; tests/provoke has how many are in use."""

from __future__ import annotations

import pytest

from hopscope.errors import FormatError
from hopscope.kernel.counters.local_ports import local_ports


@pytest.mark.parametrize(
    ("port_range", "reserved", "ports"),
    [
        (b"40000\t40003\n", b"\n", [40000, 40001, 40002, 40003]),
        (b"40000\t40003\n", b"80,40001-40002\n", [40000, 40003]),
        (b"40000\t40003\n", b"1-65535\n", []),
    ],
)
def test_reserved_ports_are_not_chosen(port_range: bytes, reserved: bytes, ports: list[int]) -> None:
    assert local_ports(port_range, reserved).tolist() == ports


def test_other_layouts_are_refused() -> None:
    with pytest.raises(FormatError):
        local_ports(b"one two\n", b"\n")
