# SPDX-License-Identifier: Apache-2.0
"""The kernel's headers for programs, asked by a compiler what a constant or an offset is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import ziglang

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def assert_values(headers: Iterable[str], values: Mapping[str, int]) -> None:
    """Each C expression has its value.

    The wheel of ziglang brings the headers of a newer kernel along than a distribution has.
    """
    source = [f"#include <{name}.h>" for name in headers]
    source += [f'_Static_assert({name} == {value}, "{name}");' for name, value in values.items()]
    library = Path(ziglang.__file__).parent / "lib"
    folders = ("x86_64-linux-musl", "generic-musl", "x86-linux-any", "any-linux-any")
    search = [
        f"-isystem{folder}" for folder in (library / "include", *(library / "libc/include" / at for at in folders))
    ]
    command = [sys.executable, "-m", "ziglang", "clang", "-target", "x86_64-linux-musl", "-nostdinc", "-D_GNU_SOURCE"]
    command += search
    subprocess.run([*command, "-xc", "-fsyntax-only", "-"], input="\n".join(source), text=True, check=True)
