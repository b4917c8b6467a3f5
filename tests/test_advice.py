# SPDX-License-Identifier: Apache-2.0
"""Commands that hopscope's sentences and pages recommend exist, with their options."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hopscope.main import VERBS, cli

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[1]
# A command ends where its sentence, or the next command, begins.
_COMMAND: Final = re.compile(rf"\bhopscope ({'|'.join(VERBS)})\b([^`;|()<>#,\n]*)")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_OPTION: Final = re.compile(r"(?:^|\s)(--?[A-Za-z][A-Za-z-]*)")


def files() -> Iterator[Path]:
    """Yield the files with recommendations."""
    for each in (*sorted((_ROOT / "src").rglob("*.py")), *sorted(_ROOT.rglob("*.md"))):
        if ".venv" not in each.parts and re.search(r"hopscope [a-z]+", each.read_text()):
            yield each


def texts(file: Path) -> Iterator[str]:
    """Yield the strings of a Python file, with a word in place of each expression in them, or a page."""
    text = file.read_text()
    if file.suffix != ".py":
        # In an example, a line that is too long goes on in the next.
        yield text.replace("\\\n", " ")
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown(verb: str, rest: str) -> list[str]:
    """Return the options in the rest of a command that its verb, or the report of `report`, does not have."""
    context = click.Context(cli)
    command = cli.get_command(context, verb)
    assert command
    words = rest.split()
    given = _OPTION.findall(_QUOTED.sub("", rest.partition(" -- ")[0]))
    known = {name for parameter in command.get_params(context) for name in (*parameter.opts, *parameter.secondary_opts)}
    # Of the report, or of any where that is put in later; `wire` has a command of its own, too.
    if commands := getattr(command, "commands", None):
        chosen = commands.get(words[0]) if words else None
        for each in [chosen] if chosen else commands.values():
            known |= {name for parameter in each.get_params(context) for name in parameter.opts}
    return [name for name in given if name not in known]


def test_recommended_commands_exist() -> None:
    wrong = [
        f"{file.relative_to(_ROOT)}: hopscope {verb}{rest}: {name}"
        for file in files()
        for text in texts(file)
        for verb, rest in _COMMAND.findall(text)
        for name in unknown(verb, rest)
    ]
    assert wrong == []
