# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.libbpf import Btf
from hopscope.libbpf._types import IntEncoding, Kind
from tests.libbpf.blobs import BlobWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCALARS = [
    ctypes.c_int8,
    ctypes.c_uint8,
    ctypes.c_int16,
    ctypes.c_uint16,
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_int64,
    ctypes.c_uint64,
    ctypes.c_bool,
]


# A class of ctypes, whose kind is only known when it is made.
Layout: TypeAlias = Any


def structure_of(fields: list[Layout]) -> Layout:
    return type("Generated", (ctypes.Structure,), {"_fields_": [(f"f{i}", field) for i, field in enumerate(fields)]})


# ctypes lays structs out as the C compiler does, and NumPy knows ctypes' layouts: a second opinion on ours.
LAYOUTS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.builds(lambda element, count: element * count, inner, st.integers(1, 4)),
        st.lists(inner, min_size=1, max_size=5).map(structure_of),
    ),
    max_leaves=12,
)


def written(writer: BlobWriter, layout: Layout) -> int:
    if issubclass(layout, ctypes.Array):
        return writer.array(written(writer, layout._type_), layout._length_, writer.integer("index", 4))
    if issubclass(layout, ctypes.Structure):
        members = [(name, written(writer, inner), getattr(layout, name).offset * 8) for name, inner in layout._fields_]
        return writer.composite("generated", ctypes.sizeof(layout), members)
    code = np.dtype(layout)
    encoding = {"b": IntEncoding.BOOL, "i": IntEncoding.SIGNED, "u": 0}[code.kind]
    return writer.refers(Kind.CONST, writer.integer("number", code.itemsize, encoding=encoding))


def flat(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Make one array of several dimensions of NumPy's arrays in arrays."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape += inner
    if dtype.fields is not None and dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        dtype = np.dtype(
            {
                "names": dtype.names,
                "formats": [flat(field[0]) for field in fields],
                "offsets": [field[1] for field in fields],
                "itemsize": dtype.itemsize,
            }
        )
    return np.dtype((dtype, shape)) if shape else dtype


@given(st.lists(LAYOUTS, min_size=1, max_size=6).map(structure_of))
def test_layout_is_the_compilers(layout: Layout) -> None:
    writer = BlobWriter()
    type_id = written(writer, layout)
    assert Btf.of_bytes(writer.blob()).dtype_of(type_id) == flat(np.dtype(layout))


def test_compiled_struct_has_its_offsets_and_kinds(compiled_text: Callable[[str, str], Path]) -> None:
    path = compiled_text(
        "kinds",
        """
        enum small { SMALL = 1 };
        enum below { BELOW = -5 };
        enum wide { WIDE = 1ull << 40 };
        typedef unsigned long long number;
        struct inner { short a; signed char b; };
        struct hop_all {
            char comm[16]; unsigned char bytes[6]; char letter; _Bool yes; const volatile number n; void *p;
            enum small s; enum below b; enum wide w; struct inner in[2][3]; struct { int x; struct { int y; }; };
            char names[2][8];
        };
        struct hop_all all;
        """,
    )
    dtype = Btf.of_object(path).dtype("hop_all")
    assert dtype.fields is not None
    found = {name: str(field[0]) for name, field in dtype.fields.items()}
    inner = np.dtype({"names": ["a", "b"], "formats": ["<i2", "i1"], "offsets": [0, 2], "itemsize": 4})
    assert dtype.fields["in"][0] == np.dtype((inner, (2, 3)))
    del found["in"]
    assert found == {
        "comm": "|S16",
        "bytes": "('u1', (6,))",
        "letter": "int8",
        "yes": "bool",
        "n": "uint64",
        "p": "uint64",
        "s": "uint32",
        "b": "int32",
        "w": "uint64",
        "x": "int32",
        "y": "int32",
        "names": "('S8', (2,))",
    }
    offsets = {name: field[1] for name, field in dtype.fields.items()}
    assert offsets["y"] == offsets["x"] + 4
    assert (offsets["n"], offsets["p"], offsets["w"], offsets["in"]) == (24, 32, 48, 56)
    assert dtype.itemsize == 56 + 24 + 8 + 16


@pytest.mark.parametrize(
    ("declaration", "named"),
    [
        ("unsigned int flags : 3;", "hop_bad.flags is a bitfield"),
        ("int whole; unsigned int rest : 32;", "hop_bad.rest is a bitfield"),
        ("union { int a; float b; } either;", "hop_bad.either is a union"),
        ("union { int a; int b; };", "hop_bad.(anonymous) is a union"),
        ("struct { struct { int deep : 5; } middle[2]; } outer;", "hop_bad.outer.middle.deep is a bitfield"),
        ("float ratio;", "hop_bad.ratio is a floating point number"),
        ("double ratio;", "hop_bad.ratio is a floating point number"),
        ("__int128 huge;", "hop_bad.huge is an integer of 16 bytes"),
        ("int many[];", "hop_bad.many is an array without a size"),
    ],
)
def test_what_numpy_cannot_hold_raises_with_the_members_name(
    compiled_text: Callable[[str, str], Path], declaration: str, named: str
) -> None:
    path = compiled_text("bad", f"struct hop_bad {{ int first; {declaration} }};\nstruct hop_bad bad;\n")
    with pytest.raises(FormatError, match=re.escape(named)):
        Btf.of_object(path).dtype("hop_bad")


@pytest.mark.parametrize(
    ("bits", "offset", "size"), [(3, 0, 4), (32, 8, 8), (24, 8, 4)], ids=["short", "shifted", "both"]
)
def test_bitfield_in_the_integers_own_encoding_raises(bits: int, offset: int, size: int) -> None:
    writer = BlobWriter()
    narrow = writer.integer("narrow", size, bits=bits, offset=offset)
    writer.composite("old", size, [("field", narrow, 0)])
    with pytest.raises(FormatError, match=r"old\.field is a bitfield"):
        Btf.of_bytes(writer.blob()).dtype("old")


def test_kinds_without_a_size_raise() -> None:
    writer = BlobWriter()
    declared = writer.raw("unknown", Kind.FWD, 0)
    wide_bool = writer.integer("big", 4, encoding=IntEncoding.BOOL)
    table = {
        "a": writer.composite("a", 8, [("member", declared, 0)]),
        "b": writer.composite("b", 8, [("member", 0, 0)]),
        "c": writer.composite("c", 8, [("member", wide_bool, 0)]),
    }
    btf = Btf.of_bytes(writer.blob())
    for name, said in {"a": "only declared", "b": "void", "c": "bool of 4 bytes"}.items():
        with pytest.raises(FormatError, match=rf"{name}\.member is .*{said}"):
            btf.dtype_of(table[name])


def test_impossible_structs_raise() -> None:
    writer = BlobWriter()
    word = writer.integer("word", 4)
    beyond = writer.composite("beyond", 4, [("last", word, 8)])
    twice = writer.composite("twice", 8, [("same", word, 0), ("same", word, 32)])
    between = writer.composite("between", 8, [("bytes", word, 3)])
    itself = writer.refers(Kind.CONST, 6)
    writer.refers(Kind.VOLATILE, itself)
    btf = Btf.of_bytes(writer.blob())
    with pytest.raises(FormatError, match=r"beyond\.last reaches beyond"):
        btf.dtype_of(beyond)
    with pytest.raises(FormatError, match="two members same"):
        btf.dtype_of(twice)
    with pytest.raises(FormatError, match=r"between\.bytes is a bitfield"):
        btf.dtype_of(between)
    with pytest.raises(FormatError, match="refers to itself"):
        btf.dtype_of(itself)


def test_unknown_struct_raises() -> None:
    writer = BlobWriter()
    writer.integer("word", 4)
    with pytest.raises(FormatError, match="blob has no struct word"):
        Btf.of_bytes(writer.blob(), "blob").dtype("word")
