# SPDX-License-Identifier: Apache-2.0
"""Questions of the page, checked as a command line would be: options that select or shape, none that opens a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import UsageError
from hopscope.trace.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

_SELECTING: Final = {
    "flow": ("flows", str),
    "port": ("ports", int),
    "address": ("addresses", str),
    "process": ("processes", str),
    "interface": ("interfaces", str),
    "netns": ("namespaces", str),
}
WINDOW: Final = ("from", "until")
_SHAPING: Final = {
    *("limit", "group-by", "slowest", "stacks", "summary", "history", "rx", "tx", "second-from", "second-until"),
}
_ALLOWED: Final = {*_SELECTING, *WINDOW, "protocol", *_SHAPING}
_MOST_VALUES: Final = 100
Options = dict[str, Any]


def selection_of(options: Mapping[str, Any]) -> Selection:
    """Return the part of a recording that options of the page select, which :func:`options_of` has checked."""
    chosen: dict[str, Any] = {
        name: tuple(kind(each) for each in options[option])
        for option, (name, kind) in _SELECTING.items()
        if option in options
    }
    window = {f"{name}_s": options[name] for name in WINDOW if name in options}
    return Selection(**chosen, **window, protocol=options.get("protocol"))


def options_of(question: Mapping[str, Any]) -> Options:
    """Return the options of a question, checked.

    Raises
    ------
    UsageError
        One of them is not allowed, or its value is not of its kind.
    """
    given = question.get("options", {})
    if not isinstance(given, dict) or not given.keys() <= _ALLOWED:
        raise UsageError("The page asks with options that it may not have", "Load it again")
    return {name: _value(name, value) for name, value in given.items()}


def _value(name: str, value: object) -> object:
    if name in _SELECTING:
        kind = _SELECTING[name][1]
        values = value if isinstance(value, list) else [value]
        if len(values) <= _MOST_VALUES and all(isinstance(each, kind | str) for each in values):
            try:
                return [kind(each) for each in values]
            except ValueError:
                raise UsageError(f"{values[0]!r} is not a {name}", "Give a number") from None
    elif name in {*WINDOW, "second-from", "second-until"}:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
            return float(value)
    elif name == "protocol":
        if value in {"tcp", "udp"}:
            return value
    elif isinstance(value, bool | int | str):
        return value
    raise UsageError(f"The value of {name} cannot be understood", "Give another one")


def whole_number(value: object) -> int:
    """Return a whole number of 64 bits.

    Raises
    ------
    UsageError
        It is none.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62:
        return value
    raise UsageError("The page does not say which message it asks for", "Load it again")
