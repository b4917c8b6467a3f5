# SPDX-License-Identifier: Apache-2.0
"""A program's keyword arguments as a command's options: the same names, the same checks, the same defaults."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, Any, Final

import click

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Options that say how the terminal shows a result, or where files are written.
_OF_OUTPUT: Final = frozenset(
    {"json", "csv", "histogram", "plan", "top", "details", "waterfall", "cdf", "svg", "folded", "flame", "speedscope"}
)
# Options of verbs on other hosts.
_OF_HOSTS: Final = frozenset({"host", "ssh", "remote_command", "tls_cert", "tls_key", "tls_ca", "together"})


def invoke(
    command: click.Command,
    called: str,
    options: Mapping[str, Any],
    words: Sequence[str] = (),
    arguments: Sequence[object] = (),
) -> None:
    """Run a command as the command line would.

    Parameters
    ----------
    command
        Of click.
    called
        What it is called in sentences, such as ``hopscope report hops``.
    options
        The long option's name, with underscores → its value: True for a flag, a list for what may be repeated. None
        and False leave an option out.
    words
        Further options, as on the command line.
    arguments
        What follows the options.

    Raises
    ------
    HopscopeError
        An option or a value is wrong, or the command fails.
    """
    given = words_for(command, called, options)
    try:
        with command.make_context(called, [*given, *words, "--", *map(str, arguments)]) as context:
            command.invoke(context)
    except click.ClickException as error:
        sentence = error.format_message().replace("\n", " ").rstrip(".")
        raise UsageError(sentence, f"`{called} --help` describes the options") from error


def words_for(command: click.Command, called: str, options: Mapping[str, Any]) -> list[str]:
    """Return options as the words of a command line; the arguments are as of :func:`invoke`.

    Raises
    ------
    UsageError
        The command has no such option, or it is not for programs.
    """
    return [word for name, value in options.items() for word in _words(command, called, name, value)]


def check_names(kind: str, name: str, known: Iterable[str], *, hint: str) -> None:
    """Refuse a name that is not among those known, and suggest the closest.

    Raises
    ------
    UsageError
        It is not known.
    """
    names = sorted(known)
    if name not in names:
        raise UsageError(f"There is no {kind} {name!r}", suggestion(name, names) or hint)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the question whether one of the known names is meant; empty: none is close."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def _words(command: click.Command, called: str, name: str, value: object) -> list[str]:
    """Return the words of one option."""
    plain = name.rstrip("_")
    option = _options(command).get(plain)
    # Of a report, the limit says how many rows it has; of a live verb, how many are shown.
    if plain in _OF_OUTPUT or (plain == "limit" and not called.startswith("hopscope report ")):
        raise UsageError(f"{plain} says what `{called}` prints: here results are objects", "Leave it out")
    if plain in _OF_HOSTS:
        raise UsageError(
            f"{plain} is for other hosts: a program measures its own", f"`{called} --host HOST --json` runs elsewhere"
        )
    if option is None:
        hint = suggestion(plain, _options(command).keys() - _OF_OUTPUT - _OF_HOSTS)
        raise UsageError(f"`{called}` has no option {name!r}", hint or f"`{called} --help` lists them")
    if option.is_flag:
        if value not in (True, False, None):
            raise UsageError(f"{name} is a flag of `{called}`", "Give True or False")
        return [_long(option)] if value else []
    values = _values(value)
    if len(values) > 1 and not option.multiple:
        raise UsageError(f"{name} of `{called}` takes one value", "Give one")
    return [f"{_long(option)}={each}" for each in values]


def _values(value: object) -> list[object]:
    if value is None:
        return []
    if isinstance(value, list | tuple | set | frozenset | range):
        return list(value)
    return [os.fspath(value) if isinstance(value, os.PathLike) else value]


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return name → option, by each of its long names."""
    return {
        name.removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
        if name.startswith("--")
    }


def _long(option: click.Option) -> str:
    return max(option.opts, key=len)
