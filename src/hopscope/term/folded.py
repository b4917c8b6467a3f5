# SPDX-License-Identifier: Apache-2.0
"""Stacks as text in the folded format, a line each: ``part;outermost;…;innermost count``.

Every tool that reads the output of the stackcollapse scripts of https://github.com/brendangregg/FlameGraph reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.gate import one_line
from hopscope.model.stacks import merge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.stacks import Stack


def render_folded(stacks: Iterable[Stack]) -> str:
    """Return the lines, sorted; a group's label stands behind the part."""
    lines = (f"{';'.join(map(_clean, stack.path()))} {stack.samples}\n" for stack in merge(stacks))
    return "".join(sorted(lines))


def _clean(name: str) -> str:
    """Return a name without what ends one in this format, and without control characters."""
    return one_line(name).replace(";", ",")
