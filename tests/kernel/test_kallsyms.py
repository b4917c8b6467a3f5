# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.kernel import kallsyms
from hopscope.kernel.kallsyms import KALLSYMS, KernelSymbols
from tests import test_house

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CORE = b"ffffffff81000000 T tcp_ack\nffffffff81001000 T udp_rcv\n"
MODULE_LINE = b"veth 45056 3 - Live 0xffffffffc0100000\n"
FIRST = b"ffffffffc0100000 t veth_poll\t[veth]\n"
SECOND = b"ffffffffc0100000 t vxlan_rcv\t[vxlan]\n"
FDS = Path("/proc/self/fd")
IN_CORE, IN_MODULE, NOWHERE = 0xFFFFFFFF81000010, 0xFFFFFFFFC0100010, 0xFFFFFFFFC0900000

PROGRAM, NAME = 0xFFFFFFFFC0800000, "bpf_prog_0123456789abcdef"


def program(name: str) -> bytes:
    return f"{PROGRAM:x} t {NAME}_{name}\t[bpf]\n".encode()


def array(*addresses: int) -> np.ndarray:
    return np.array(addresses, np.uint64)


class Kernel:
    """A kernel's files that can be changed, and how often the part that changes was read."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kallsyms = folder / "kallsyms"
        self.modules = folder / "modules"
        self.programs: tuple[int, ...] | None = (3, 5)
        self.links: tuple[int, ...] = (1,)
        self.reads = 0
        self.kallsyms.write_bytes(CORE + FIRST)
        self.modules.write_bytes(MODULE_LINE)
        self.lengths: dict[int, dict[int, int]] = {}
        monkeypatch.setattr(kallsyms, "program_ids", lambda: self.programs)
        monkeypatch.setattr(kallsyms, "link_ids", lambda: self.links)
        monkeypatch.setattr(kallsyms, "function_lengths", self.function_lengths)
        read = KernelSymbols._read

        def counting(symbols: KernelSymbols, start: int) -> bytes:
            self.reads += 1
            return read(symbols, start)

        monkeypatch.setattr(KernelSymbols, "_read", counting)

    def function_lengths(self, ids: Iterable[int]) -> dict[int, int]:
        return dict(pair for number in ids for pair in self.lengths.get(number, {}).items())


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.fixture
def symbols(kernel: Kernel) -> Iterator[KernelSymbols]:
    with KernelSymbols(kernel.kallsyms, kernel.modules) as opened:
        yield opened


def test_names_come_from_the_core_and_from_modules(symbols: KernelSymbols) -> None:
    addresses = array(IN_MODULE, IN_CORE, NOWHERE, IN_CORE)
    assert symbols.names(addresses) == ["veth_poll", "tcp_ack", f"{NOWHERE:#x}", "tcp_ack"]
    assert symbols.names(array()) == []


def test_nothing_is_read_again_while_nothing_changes(symbols: KernelSymbols, kernel: Kernel) -> None:
    for _ in range(5):
        symbols.names(array(IN_MODULE, IN_CORE))
    kernel.modules.write_bytes(MODULE_LINE.replace(b" 3 -", b" 4 vxlan,"))  # users of a module come and go
    symbols.names(array(IN_MODULE))
    assert kernel.reads == 1


def test_core_addresses_never_lead_to_reading(symbols: KernelSymbols, kernel: Kernel) -> None:
    kernel.programs = (3, 5, 7)
    symbols.names(array(IN_CORE))
    assert kernel.reads == 1


def test_an_address_that_a_module_uses_again_has_its_new_name(symbols: KernelSymbols, kernel: Kernel) -> None:
    kernel.kallsyms.write_bytes(CORE + SECOND)
    assert symbols.names(array(IN_MODULE)) == ["veth_poll"]
    kernel.modules.write_bytes(MODULE_LINE.replace(b"veth", b"other"))
    assert symbols.names(array(IN_MODULE)) == ["vxlan_rcv"]
    assert kernel.reads == 2


def test_an_address_that_a_program_uses_again_has_its_new_name(kernel: Kernel) -> None:
    kernel.kallsyms.write_bytes(CORE + program("one"))
    kernel.lengths = {3: {PROGRAM: 0x80}}
    with KernelSymbols(kernel.kallsyms, kernel.modules) as opened:
        kernel.kallsyms.write_bytes(CORE + program("two"))
        kernel.programs = (3, 7)  # others come and go
        assert opened.names(array(PROGRAM)) == [f"{NAME}_one"]
        assert kernel.reads == 1
        kernel.programs = (5, 7)
        kernel.lengths = {7: {PROGRAM: 0x80}}
        assert opened.names(array(PROGRAM)) == [f"{NAME}_two"]
        assert opened.names(array(PROGRAM)) == [f"{NAME}_two"]
        assert kernel.reads == 2


def test_what_was_not_known_is_looked_for_when_something_came(symbols: KernelSymbols, kernel: Kernel) -> None:
    for _ in range(3):
        assert symbols.names(array(NOWHERE)) == [f"{NOWHERE:#x}"]
    assert kernel.reads == 1
    kernel.kallsyms.write_bytes(CORE + FIRST + program("one"))
    kernel.programs = (3, 5, 7)
    for _ in range(3):
        assert symbols.names(array(PROGRAM, NOWHERE)) == [f"{NAME}_one", f"{NOWHERE:#x}"]
    assert kernel.reads == 2


def test_trampolines_come_and_go_with_links(symbols: KernelSymbols, kernel: Kernel) -> None:
    for number, name in enumerate(["bpf_trampoline_1", "bpf_trampoline_2"], 2):
        kernel.kallsyms.write_bytes(CORE + FIRST + f"{PROGRAM:x} t {name}\t[bpf]\n".encode())
        kernel.links = (1, number)
        for _ in range(3):
            assert symbols.names(array(PROGRAM + 1)) == [name]
        assert kernel.reads == number


def test_a_program_ends_where_it_is_long(kernel: Kernel) -> None:
    start = PROGRAM
    kernel.kallsyms.write_bytes(
        CORE + FIRST + program("one") + b"ffffffffc0900000 t bpf_dispatcher_xdp\t[bpf]\n"
        b"ffffffffc0a00000 t ftrace_trampoline\t[__builtin__ftrace]\n"
    )
    kernel.lengths = {3: {start: 0x2000}}
    with KernelSymbols(kernel.kallsyms, kernel.modules) as opened:
        inside = [start + 0x1FFF, 0xFFFFFFFFC0900FFF, 0xFFFFFFFFC0A00FFF]
        names = [f"{NAME}_one", "bpf_dispatcher_xdp", "ftrace_trampoline"]
        assert opened.names(array(*inside)) == names
        assert opened.names(array(*(address + 1 for address in inside))) == [f"{each + 1:#x}" for each in inside]
    kernel.programs = None
    with KernelSymbols(kernel.kallsyms, kernel.modules) as opened:
        assert opened.names(array(start + 0x2000)) == names[:1]


def test_where_programs_are_not_told_it_reads_every_time(symbols: KernelSymbols, kernel: Kernel) -> None:
    kernel.programs = None
    for _ in range(3):
        symbols.names(array(IN_MODULE))
    assert kernel.reads == 4


def test_the_kernels_own_names_last(symbols: KernelSymbols) -> None:
    assert symbols.lasting(array(IN_CORE, IN_MODULE, NOWHERE)).tolist() == [True, False, False]


def test_a_kernel_without_modules_has_no_list_of_them(kernel: Kernel) -> None:
    kernel.modules.unlink()
    kernel.kallsyms.write_bytes(CORE)
    with KernelSymbols(kernel.kallsyms, kernel.modules) as opened:
        assert opened.names(array(IN_CORE, IN_MODULE)) == ["tcp_ack", f"{IN_MODULE:#x}"]


def test_closing_is_once_and_a_failure_leaves_nothing_open(kernel: Kernel) -> None:
    before = len(list(FDS.iterdir()))
    opened = KernelSymbols(kernel.kallsyms, kernel.modules)
    opened.close()
    opened.close()
    kernel.kallsyms.write_bytes(b"nothing of the kind\n")
    with pytest.raises(Exception, match="not laid out"):
        KernelSymbols(kernel.kallsyms)
    assert len(list(FDS.iterdir())) == before


@pytest.mark.root
def test_this_kernels_functions_have_their_names() -> None:
    lines = [line.split() for line in KALLSYMS.read_text(encoding="ascii").splitlines()]
    by_name = {name: int(address, 16) for address, kind, name, *_ in lines if kind == "T"}
    with KernelSymbols() as opened:
        asked = ["tcp_v4_rcv", "udp_rcv", "ip_rcv", "__dev_queue_xmit"]
        assert opened.names(array(*(by_name[name] + 1 for name in asked))) == asked


@pytest.mark.root
def test_a_program_is_named_as_soon_as_it_is_loaded() -> None:
    with KernelSymbols() as opened:
        program = test_house.load_empty_program()
        try:
            lines = [line.split() for line in KALLSYMS.read_text(encoding="ascii").splitlines() if "_empty" in line]
            address = max(int(line[0], 16) for line in lines if line[2].startswith("bpf_prog_"))
            (name,) = opened.names(array(address))
            assert name.endswith("_empty")
        finally:
            os.close(program)


@pytest.mark.root
def test_it_reads_on_after_rights_are_dropped() -> None:
    code = (
        "import os, numpy as np\n"
        "from hopscope.kernel.kallsyms import KernelSymbols\n"
        "symbols = KernelSymbols()\n"
        "os.setuid(65534)\n"
        "symbols._others_start = 0\n"
        "symbols.names(np.array([1], np.uint64))\n"
        "print(len(symbols._others) > 10_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.root
def test_without_rights_it_says_what_to_do() -> None:
    code = (
        "import os\nfrom hopscope.errors import PrivilegeError\n"
        "from hopscope.kernel.kallsyms import KernelSymbols\n"
        "os.setuid(65534)\n"
        "try:\n    KernelSymbols()\nexcept PrivilegeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("The kernel hides the addresses of its functions. Run hopscope as root")
