# SPDX-License-Identifier: Apache-2.0
"""The kernel's descriptions of tracepoints: what is written is read, whatever the field's type."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.tracefs import Tracefs
from hopscope.kernel.tracepoint_format import Field, parse_format

HEAD = """name: example
ID: 365
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

"""


class Declared(NamedTuple):
    """A declaration with %s for the name, and what it means."""

    text: str
    size: int
    item_bytes: int
    items: int
    signed: bool = False
    is_text: bool = False
    where: str = "here"


DECLARED = [
    Declared("int %s", 4, 4, 1, signed=True),
    Declared("unsigned long %s", 8, 8, 1),
    Declared("const void * %s", 8, 8, 1),
    Declared("const struct landlock_ruleset_attr *const %s", 8, 8, 1),
    Declared("enum skb_drop_reason %s", 4, 4, 1),
    Declared("bool %s", 1, 1, 1),
    Declared("u8 %s", 1, 1, 1),
    Declared("__u8 %s[4]", 4, 1, 4),
    Declared("__u8 %s[16]", 16, 1, 16),
    Declared("__u8 %s[sizeof(struct sockaddr_in6)]", 28, 1, 28),
    Declared("char %s[16]", 16, 1, 16, is_text=True),
    Declared("char %s[TASK_COMM_LEN]", 16, 1, 16, signed=True, is_text=True),
    Declared("unsigned char %s[6]", 6, 1, 6),
    Declared("unsigned long %s[6]", 48, 8, 6),
    Declared("long %s[ARRAY]", 24, 8, 3, signed=True),
    Declared("u16 %s[2][3]", 12, 2, 6),
    Declared("const char *%s[2]", 16, 8, 2),
    Declared("dma_addr_t %s[2]", 16, 8, 2),
    Declared("__data_loc char[] %s", 4, 1, 0, is_text=True, where="record"),
    Declared("__rel_loc char[] %s", 4, 1, 0, is_text=True, where="field"),
    Declared("__data_loc u8[] %s", 4, 1, 0, where="record"),
    Declared("__data_loc unsigned int[] %s", 4, 4, 0, where="record"),
    Declared("__data_loc unsigned long[] %s", 4, 8, 0, where="record"),
    Declared("__data_loc uint64_t[] %s", 4, 8, 0, where="record"),
    Declared("__data_loc cpumask_t %s", 4, 1, 0, where="record"),
]
names = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,20}", fullmatch=True).filter(lambda name: not name.startswith("common_"))


@given(st.lists(st.tuples(st.sampled_from(DECLARED), names, st.integers(0, 4000)), max_size=30))
def test_what_is_declared_is_read(fields: list[tuple[Declared, str, int]]) -> None:
    text = HEAD
    for declared, name, offset in fields:
        line = f"field:{declared.text % name};\toffset:{offset};\tsize:{declared.size};\tsigned:{int(declared.signed)};"
        text += f"\t{line}\n"
    text += '\nprint fmt: "field:%d;\toffset:%x", REC->a, REC->b\n'
    assert parse_format(text) == [
        Field(name, declared.text % name, offset, *declared[1:]) for declared, name, offset in fields
    ]


def test_a_kernel_that_does_not_say_signed_is_read() -> None:
    (field,) = parse_format(HEAD + "\tfield:int x;\toffset:8;\tsize:4;\n")
    assert (field.name, field.size, field.signed) == ("x", 4, False)


@pytest.mark.parametrize("text", ["", "name: x\nID: 3\n", HEAD + "\tfield:();\toffset:8;\tsize:4;\tsigned:0;\n"])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_format(text)


@pytest.mark.root
def test_every_tracepoint_of_this_kernel_is_read_in_full() -> None:
    odd = []
    with Tracefs() as tracefs:
        events = tracefs.matching("*", "*")
        for subsystem, name in events:
            text = tracefs.format(subsystem, name)
            fields = parse_format(text)
            # The common ones are four.
            if len(fields) + 4 != text.count("\tfield:") or any(
                field.where == "here" and field.items * field.item_bytes != field.size for field in fields
            ):
                odd.append((f"{subsystem}:{name}", fields))
    assert len(events) > 500
    assert odd == []
