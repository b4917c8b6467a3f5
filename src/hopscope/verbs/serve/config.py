# SPDX-License-Identifier: Apache-2.0
"""Options from a file: TOML whose keys are the options' long names; the command line comes first."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import click

from hopscope.agent.key_files import check_unwritable
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def take_defaults(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Take the values of options that the command line does not give from the file, as click's callback.

    Raises
    ------
    UsageError
        It cannot be read, others can write it, or it names what is no option.
    """
    if path is not None:
        names = {max(each.opts, key=len).removeprefix("--"): each for each in context.command.params}
        taken = {name: each for name, each in names.items() if isinstance(each, click.Option) and not each.is_eager}
        given = _read(path)
        if unknown := given.keys() - taken.keys():
            raise UsageError(
                f"{path} has {', '.join(sorted(unknown))}, which is no option of `hopscope serve`",
                f"The options are {', '.join(sorted(taken))}",
            )
        context.default_map = {taken[name].name or "": _checked(path, taken[name], value, name)
                               for name, value in given.items()}  # fmt: skip
    del option
    return path


def _read(path: Path) -> Mapping[str, Any]:
    check_unwritable(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", "See docs/serve.md for an example") from error


def _checked(path: Path, option: click.Option, value: object, name: str) -> object:
    if value is True and isinstance(option.flag_value, str):
        return option.flag_value  # as on the command line without a value
    wanted = list if option.multiple else bool if option.is_flag else (str, int, float)
    if not isinstance(value, wanted) or isinstance(value, bool) is not option.is_flag:
        kind = "a list" if option.multiple else "true or false" if option.is_flag else "a text or a number"
        raise UsageError(f"{path}: {name} is not {kind}", "See docs/serve.md for an example")
    return value
