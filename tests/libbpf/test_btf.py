# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError, KernelError, LoadError
from hopscope.libbpf import Btf, btf
from tests.libbpf.blobs import BlobWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = st.lists(st.from_regex(r"[A-Z][A-Z0-9_]{0,9}", fullmatch=True), unique=True, min_size=1, max_size=9)


@given(data=st.data(), names=NAMES, wide=st.booleans(), signed=st.booleans())
def test_enum_values_of_every_width_and_sign(
    data: st.DataObject, names: list[str], *, wide: bool, signed: bool
) -> None:
    bits = 64 if wide else 32
    numbers = st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)
    values = {name: data.draw(numbers) for name in names}
    writer = BlobWriter()
    (writer.enum64 if wide else writer.enum)("color", values, signed=signed)
    found = Btf.of_bytes(writer.blob())
    assert found.enum_values("color") == values
    assert {name: int(member) for name, member in found.enum("color").__members__.items()} == values


def test_enum_is_an_intenum_with_the_names_of_c(compiled_text: Callable[[str, str], Path]) -> None:
    path = compiled_text("enums", "enum hop_color { HOP_RED = 3, HOP_BLUE = 7 }; enum hop_color color;\n")
    color = Btf.of_object(path).enum("hop_color")
    assert issubclass(color, IntEnum)
    assert color(7).name == "HOP_BLUE"
    assert color.__name__ == "hop_color"


def test_declared_enum_raises() -> None:
    writer = BlobWriter()
    writer.enum("later", {})
    for name in ("later", "never"):
        with pytest.raises(FormatError, match=f"no enum {name}"):
            Btf.of_bytes(writer.blob()).enum(name)


def test_bytes_that_are_not_btf_raise() -> None:
    with pytest.raises(FormatError, match="rubbish is not valid"):
        Btf.of_bytes(b"\x7fELF" + bytes(60), "rubbish")


def test_file_without_btf_raises(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="No such file"):
        Btf.of_object(tmp_path / "absent.o")


def test_type_that_is_not_there_raises() -> None:
    writer = BlobWriter()
    last = writer.integer("word", 4)
    with pytest.raises(FormatError, match=f"no type {last + 1}"):
        Btf.of_bytes(writer.blob()).type(last + 1)


def test_kernel_without_btf_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(btf, "KERNEL_BTF", tmp_path / "vmlinux")
    with pytest.raises(KernelError, match="CONFIG_DEBUG_INFO_BTF") as caught:
        btf._kernel.__wrapped__()
    assert not isinstance(caught.value, LoadError)


@pytest.mark.root
def test_kernel_knows_its_functions_structs_and_tracepoints() -> None:
    kernel = Btf.kernel()
    assert kernel is Btf.kernel()
    assert kernel.has_func("tcp_v4_rcv")
    assert not kernel.has_func("hop_no_such_function")
    assert kernel.has_struct("sk_buff")
    assert not kernel.has_struct("hop_no_such_struct")
    assert kernel.has_tracepoint("sched_switch")
    assert not kernel.has_tracepoint("hop_no_such_tracepoint")
    assert kernel.dtype("ethhdr").itemsize == 14


@pytest.mark.root
def test_kernel_enum_has_the_numbers_of_its_interface() -> None:
    assert Btf.kernel().enum("bpf_map_type")["BPF_MAP_TYPE_RINGBUF"] == 27
