# SPDX-License-Identifier: Apache-2.0
"""The table of tcp_info against this kernel's own description of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.sockets.tcp_info import DTYPE, FIELDS
from hopscope.libbpf._types import Kind
from hopscope.libbpf.btf import KERNEL_BTF, Btf

if TYPE_CHECKING:
    from hopscope.libbpf._types import Member

pytestmark = pytest.mark.skipif(not KERNEL_BTF.exists(), reason="this kernel has no BTF")


def members() -> tuple[list[Member], int]:
    btf = Btf.kernel()
    found = btf.find("tcp_info", Kind.STRUCT)
    assert found is not None
    struct = btf.type(found)
    return btf.members(struct), struct.size


def test_every_field_of_this_kernel_is_where_the_table_has_it() -> None:
    known = {field.name: field for field in FIELDS}
    kernels, size = members()
    for member in kernels:
        field = known.get(member.name.removeprefix("tcpi_"))
        # A newer kernel's fields come after those of the table.
        if field is None:
            assert member.offset_bits >= 8 * DTYPE.itemsize, member.name
            continue
        first, bits = field.bits or (0, 8 * field.size)
        assert member.offset_bits == 8 * field.offset + first, member.name
        assert (member.bitfield_bits or 8 * Btf.kernel().dtype_of(member.type_id).itemsize) == bits, member.name
    assert size <= DTYPE.itemsize or len(kernels) > len(FIELDS)


def test_fields_lie_one_behind_the_other_without_a_gap() -> None:
    taken = bytearray(8 * DTYPE.itemsize)
    for field in FIELDS:
        first, bits = field.bits or (0, 8 * field.size)
        for bit in range(8 * field.offset + first, 8 * field.offset + first + bits):
            assert not taken[bit], field.name
            taken[bit] = 1
    gaps = [bit for bit, used in enumerate(taken) if not used]
    assert gaps == list(range(8 * 7 + 3, 8 * 8))  # the rest of the byte of app_limited
    assert DTYPE.itemsize == 280


def test_columns_carry_their_unit() -> None:
    columns = {field.column for field in FIELDS}
    assert len(columns) == len(FIELDS)
    assert {"rtt_us", "bytes_acked", "last_data_sent_ms", "pacing_rate_bytes_per_s", "snd_cwnd"} <= columns
