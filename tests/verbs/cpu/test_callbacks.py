# SPDX-License-Identifier: Apache-2.0
"""The kernel side's table of functions, as modules come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.verbs.cpu.callbacks import Callbacks
from tests.verbs.cpu.measure import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

CORE = "ffffffff81000000 t tcp_write_timer\n"
MODULE = "ffffffffc0001000 t wg_packet_tx_worker\t[wireguard]\n"


def test_modules_come_and_go(tmp_path: Path) -> None:
    symbols, modules = tmp_path / "kallsyms", tmp_path / "modules"
    symbols.write_text(CORE)
    modules.write_text("")
    with run("cpu") as cpu:
        table = cpu._session.bpf.maps["callbacks"]
        known, _ = table.items()
        for address in known:
            table.delete(int(address).to_bytes(8, "little"))
        callbacks = Callbacks(cpu._session.bpf, symbols, modules)
        for text, listed in ((CORE, ""), (CORE + MODULE, "wireguard 1 0 - Live 0xffffffffc0000000\n"), (CORE, "")):
            symbols.write_text(text)
            modules.write_text(listed)
            callbacks.look()
            found, _ = table.items()
            assert {int(address) for address in found} == {int(line.split()[0], 16) for line in text.splitlines()}
        callbacks.close()
    assert not callbacks.hidden


def test_hidden_addresses_are_none(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_text("0000000000000000 t tcp_write_timer\n")
    with run("cpu") as cpu:
        callbacks = Callbacks(cpu._session.bpf, tmp_path / "kallsyms", tmp_path / "modules")
        assert callbacks.hidden
        callbacks.close()
