# SPDX-License-Identifier: Apache-2.0
"""Write the layouts in BPF objects down as Python, for mypy and for readers.

``python -m hopscope.libbpf.stub [OBJECT...]`` prints a module with an IntEnum for every enum and a dtype for every
struct whose name starts with ``hop_``. The output is committed; ``--check FILE`` tells whether the objects still agree.
"""

from __future__ import annotations

import argparse
import sys
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import FormatError, HopscopeError
from hopscope.libbpf._types import Kind
from hopscope.libbpf.btf import Btf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

PREFIX: Final = "hop_"
OBJECTS: Final = Path(__file__).parent.parent / "bpf"
_INDENT: Final = "    "
_DOCSTRING: Final = '''\
# SPDX-License-Identifier: Apache-2.0
"""The structs and enums that the BPF programs share with Python.

Made by ``python -m hopscope.libbpf.stub`` from the BTF of the objects, and compared with it by the tests: change the C
headers, not this file.
"""'''


def render(tables: Iterable[Btf]) -> str:
    """Return the module's text, the same for the same definitions in whatever order they come.

    Raises
    ------
    FormatError
        Two objects define a name differently, a struct has no dtype, or there is nothing to write.
    """
    enums: dict[str, str] = {}
    structs: dict[str, str] = {}
    for table in tables:
        for found in table.types():
            if not found.name.startswith(PREFIX):
                continue
            if found.kind in (Kind.ENUM, Kind.ENUM64):
                _add(enums, found.name, _enum(found.name, table.enumerators(found)), table.source)
            elif found.kind == Kind.STRUCT:
                _add(structs, found.name, _struct(found.name, table.dtype_of(found.id)), table.source)
    if not enums and not structs:
        raise FormatError(
            f"there is no object in which an enum or struct is named {PREFIX}*",
            "Compile them: python tools/build_bpf.py",
        )
    parts = [_head(enums=bool(enums), structs=bool(structs)), *(enums[name] for name in sorted(enums))]
    if structs:
        parts.append("\n\n".join(structs[name] for name in sorted(structs)))
    return ("\n\n\n" if enums else "\n\n").join(parts) + "\n"


def first_difference(expected: str, actual: str) -> str | None:
    """Return the first line in which two texts differ, as one line; None where they are the same."""
    pairs = zip_longest(expected.splitlines(), actual.splitlines(), fillvalue="(the end)")
    for number, (wanted, found) in enumerate(pairs, start=1):
        if wanted != found:
            return f"line {number} is {found.strip()!r}, the objects have {wanted.strip()!r}"
    return None if expected == actual else "the ends of lines differ"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the module, or check a file; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hopscope.libbpf.stub", description="BTF of objects as Python.")
    parser.add_argument(
        "objects", nargs="*", type=Path, metavar="OBJECT", help="a compiled BPF object (default: all of hopscope's own)"
    )
    parser.add_argument("--check", type=Path, metavar="FILE", help="compare with FILE instead of printing")
    options = parser.parse_args(arguments)
    objects = options.objects or sorted(OBJECTS.glob("*.bpf.o"))
    try:
        text = render(Btf.of_object(path) for path in objects)
        if options.check is None:
            sys.stdout.write(text)
            return 0
        difference = first_difference(text, options.check.read_text())
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 1
    except HopscopeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if difference is not None:
        sys.stderr.write(f"{options.check}: {difference}; run python -m hopscope.libbpf.stub again\n")
        return 1
    return 0


def _add(texts: dict[str, str], name: str, text: str, source: str) -> None:
    if texts.setdefault(name, text) != text:
        raise FormatError(f"{source} defines {name} differently from an object before it")


def _head(*, enums: bool, structs: bool) -> str:
    standard = ["from enum import IntEnum"] * enums + ["from typing import Final"] * structs
    return "\n\n".join([_DOCSTRING, "\n".join(standard), *["import numpy as np"] * structs])


def _enum(name: str, values: dict[str, int]) -> str:
    if not values:
        raise FormatError(f"enum {name} is only declared, not defined")
    title = "".join(part.capitalize() for part in name.split("_"))
    members = "\n".join(f"{_INDENT}{member} = {value}" for member, value in values.items())
    return f'class {title}(IntEnum):\n{_INDENT}"""``enum {name}``."""\n\n{members}'


def _struct(name: str, dtype: np.dtype[Any]) -> str:
    return f"# struct {name}\n{name.upper()}_DTYPE: Final = np.dtype(\n{_INDENT}{_format(dtype, 1)}\n)"


def _format(dtype: np.dtype[Any], depth: int) -> str:
    """Return the source text of what makes `dtype`, each item on a line of its own, as the formatter leaves it."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        if base.names is None:
            return f"({_format(base, depth)}, {shape})"
        return _block("()", [_format(base, depth + 1), str(shape)], depth)
    if dtype.names is None or dtype.fields is None:
        return _quoted(dtype.str)
    fields = [dtype.fields[name] for name in dtype.names]
    items = [
        f'"names": {_block("[]", [_quoted(name) for name in dtype.names], depth + 1)}',
        f'"formats": {_block("[]", [_format(field[0], depth + 2) for field in fields], depth + 1)}',
        f'"offsets": {_block("[]", [str(field[1]) for field in fields], depth + 1)}',
        f'"itemsize": {dtype.itemsize}',
    ]
    return _block("{}", items, depth)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _block(brackets: str, items: Iterable[str], depth: int) -> str:
    inner = "".join(f"{_INDENT * (depth + 1)}{item},\n" for item in items)
    return f"{brackets[0]}\n{inner}{_INDENT * depth}{brackets[1]}"


if __name__ == "__main__":
    sys.exit(main())
