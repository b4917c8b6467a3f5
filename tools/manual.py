# SPDX-License-Identifier: Apache-2.0
"""Write what a shell and man(1) know of hopscope's commands, from their help: pages of the manual, and completion."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import get_completion_class

from hopscope import __version__
from hopscope.live.help import SECTIONS, Command, Option
from hopscope.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where Debian's shells look.
COMPLETIONS: Final = {
    "bash": "bash-completion/completions/hopscope",
    "zsh": "zsh/vendor-completions/_hopscope",
    "fish": "fish/vendor_completions.d/hopscope.fish",
}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each page, and the page as man(7) has it."""
    yield from _pages(cli, click.Context(cli, info_name="hopscope"))


def _pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    name = context.command_path.replace(" ", "-")
    yield name, "\n".join(_lines(name, command, context)) + "\n"
    for word, each in _commands(command, context):
        yield from _pages(each, click.Context(each, info_name=word, parent=context))


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            each = command.get_command(context, word)
            if each and not each.hidden:
                yield word, each


def _lines(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    yield f'.TH "{name.upper()}" 1 "" "hopscope {__version__}" "hopscope"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(command.get_short_help_str(200).rstrip('.'))}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (".SH SYNOPSIS", f".B {_text(context.command_path)}", _text(usage))
    yield ".SH DESCRIPTION"
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):  # click leaves its lines as they are
            yield from (".PP", ".nf", *map(_text, paragraph.removeprefix("\b\n").split("\n")), ".fi")
        else:
            yield from (".PP", _text(" ".join(paragraph.split())))
    yield from _options(command, context)
    commands = list(_commands(command, context))
    if commands:
        yield ".SH COMMANDS"
    for word, each in commands:
        yield from (".TP", f".BR {_text(f'{name}-{word}')} (1)", _text(each.get_short_help_str(200)))
    examples = command.examples if isinstance(command, Command) else ()
    if examples:
        yield ".SH EXAMPLES"
    for sentence, line in examples:
        yield from (".PP", _text(f"{sentence.rstrip(':')}:"), ".PP", ".RS 4", ".nf", _text(line), ".fi", ".RE")
    if context.parent:
        yield from (".SH SEE ALSO", f".BR {_text(context.parent.command_path.replace(' ', '-'))} (1)")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    for section in SECTIONS:
        its = [each for each in options if (each.section if isinstance(each, Option) else SECTIONS[-1]) == section]
        records = list(filter(None, (each.get_help_record(context) for each in its)))
        if records:
            yield f".SH {section.upper()}"
        for names, text in records:
            yield from (".TP", f".B {_text(names)}", _text(text))


def _text(text: str) -> str:
    """Return a line in which nothing is a request or an escape sequence of troff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def completion(shell: str) -> str:
    """Return the script that has a shell ask hopscope how a word goes on."""
    made = get_completion_class(shell)
    assert made  # noqa: S101 # click knows these shells
    return made(cli, {}, "hopscope", "_HOPSCOPE_COMPLETE").source() + "\n"


def write(share: Path) -> None:
    """Write all of it below a folder such as /usr/share."""
    manual = share / "man" / "man1"
    manual.mkdir(parents=True)
    for name, page in pages():
        (manual / f"{name}.1").write_text(page)
    for shell, place in COMPLETIONS.items():
        path = share / place
        path.parent.mkdir(parents=True)
        path.write_text(completion(shell))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
