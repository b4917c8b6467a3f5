# SPDX-License-Identifier: Apache-2.0
"""A verb's options as words again, for the same verb on another host, which takes only those that it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from hopscope.errors import FormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MOST_WORDS: Final = 200
_WORD_CHARACTERS: Final = 4096


def words_of(command: click.Command, values: Mapping[str, Any]) -> list[str]:
    """Return the words that give a command's options these values, by the options' names in Python."""
    words: list[str] = []
    for option in command.params:
        value = values.get(option.name or "")
        if value == option.default:
            continue
        name = max(option.opts, key=len)
        if isinstance(option, click.Option) and option.is_flag:
            words += [name] if value else []
        elif option.multiple:
            words += [f"{name}={each}" for each in value or ()]
        elif value is not None:
            words.append(f"{name}={value}")
    return words


def values_of(command: click.Command, allowed: Collection[str], words: object) -> dict[str, Any]:
    """Return what words that another host sent say, as the command line would understand them on this one.

    Parameters
    ----------
    command
        Whose options they are.
    allowed
        The options that there may be, by their names in Python: none that opens a file by its path, or starts a
        program. Any other is unknown, as is ``--help``, and there are no arguments.
    words
        As :func:`words_of` returns them.

    Raises
    ------
    FormatError
        They are no words, or too many.
    UsageError
        They are not what the command takes.
    """
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise FormatError("The options of a request are not words")
    if len(words) > MOST_WORDS or any(len(word) > _WORD_CHARACTERS for word in words):
        raise FormatError(f"The options of a request exceed {MOST_WORDS} words, or one of them is too long")
    options: list[click.Parameter] = [
        each for each in command.params if isinstance(each, click.Option) and each.name in allowed
    ]
    only = click.Command(
        command.name, params=options, add_help_option=False, context_settings={"allow_interspersed_args": False}
    )
    try:
        values = only.make_context(command.name, [*words]).params
    except click.ClickException as error:
        raise UsageError(error.format_message().replace("\n", " ").rstrip(".")) from error
    for name in (*values.get("namespaces", ()), *values.get("interfaces", ())):
        if "/" in name:
            raise UsageError(
                f"{name} is a path, which cannot name a namespace on another host",
                "Give its name, a PID or an inode number",
            )
    return values
