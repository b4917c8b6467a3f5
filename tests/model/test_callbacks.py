# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.model.callbacks import CALLBACK_LINE, is_network_callback

LINES = b"""ffffffff8202f360 t tcp_write_timer
ffffffff8202f370 t tcp_write_timer.cold
ffffffff8202f380 t __pfx_tcp_write_timer
ffffffff8202f390 d tcp_pace_kick
ffffffff8202f3a0 t gc_worker.llvm.123
ffffffff8202f3b0 t xfs_gc_worker
ffffffffc0001000 t wg_packet_decrypt_worker\t[wireguard]
"""


def test_lines_of_the_symbols_are_found_by_their_whole_names() -> None:
    addresses = [int(address, 16) for address in CALLBACK_LINE.findall(LINES)]
    assert addresses == [0xFFFFFFFF8202F360, 0xFFFFFFFF8202F3A0, 0xFFFFFFFFC0001000]


@pytest.mark.parametrize("name", ["tcp_pace_kick", "wg_packet_tx_worker", "mld_ifc_work", "gc_worker"])
def test_functions_of_the_network_are_known(name: str) -> None:
    assert is_network_callback(name)


@pytest.mark.parametrize("name", ["process_timeout", "tcp_sendmsg", "xfs_gc_worker", "wg_packet_receive"])
def test_others_are_not(name: str) -> None:
    assert not is_network_callback(name)
