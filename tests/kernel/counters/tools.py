# SPDX-License-Identifier: Apache-2.0
"""What a source of counters says inside a namespace, beside what the tools that people use say there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.counters.reader import PER_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Namespace

# By subject, by name.
Said: TypeAlias = dict[str, dict[str, int | str]]

_LOOKS = 50


def said(source: str, namespace: Namespace) -> Said:
    """Return what a source says; nothing twice, or `check` would mix things up."""
    found: Said = {}
    for subject, name, value in namespace.call(lambda: list(PER_NAMESPACE[source]())):
        of_subject = found.setdefault(subject, {})
        assert name not in of_subject, f"{subject} {name} is said twice"
        of_subject[name] = value
    return found


def shown(namespace: Namespace, *argv: str) -> Any:  # noqa: ANN401 - whatever JSON has
    """Return what a tool prints as JSON."""
    output = namespace.run(argv, capture_output=True, check=True).stdout.decode(errors="surrogateescape")
    return json.loads(output, strict=False) if output.strip() else []


def text(namespace: Namespace, *argv: str) -> str:
    """Return what a tool prints, nothing where it refuses."""
    result = namespace.run(argv, capture_output=True, text=True)
    return str(result.stdout) if result.returncode == 0 else ""


def in_the_same_instant(show: Callable[[], Any], ours: Callable[[], Said]) -> tuple[Any, Said]:
    """Return both at a time when what the tool shows was the same before and after ours."""
    for _ in range(_LOOKS):
        before, found = show(), ours()
        if show() == before:
            return before, found
    pytest.fail("what the tool shows never stood still")


def garbled(bodies: list[bytes], data: st.DataObject) -> bytes:
    """Return one of the messages with some of its bytes changed."""
    body = bytearray(data.draw(st.sampled_from(bodies)))
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    return bytes(body)


def refuses_or(act: Callable[[], object]) -> None:
    """Let anything come of it but an error other than that the bytes are not as they should be."""
    try:
        act()
    except FormatError:
        return


def cuts(body: bytes) -> Iterator[bytes]:
    """Yield all beginnings of it, the whole included."""
    return (body[:length] for length in range(len(body) + 1))
