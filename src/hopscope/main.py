# SPDX-License-Identifier: Apache-2.0
"""The entry point: finds the verb, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import sys
from typing import Final

import click

from hopscope import __version__
from hopscope.errors import HopscopeError, HostsError
from hopscope.gate import guard, tell

VERBS: Final = (
    "explain", "rx", "tx", "cpu", "drops", "check", "counters", "sockets", "clock", "record", "recordings", "verify",
    "join", "report", "sql", "cdf", "script", "probes", "demo", "agent",
)  # fmt: skip

# What writing to a full or broken output says; anything else that goes wrong with a file is a bug here.
_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

# What the dynamic linker says of a library that finds no room.
_NO_MEMORY: Final = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)

# As a shell says of a process that SIGPIPE ended.
_NOBODY_READS: Final = 141


class _Verbs(click.Group):
    """Imports a verb's module when it is asked for, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"hopscope.verbs.{cmd_name}.command").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:  # it knows of no verb that was not imported
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=VERBS, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would make it a failure
            _forget_output()
            return _NOBODY_READS


@click.command(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="hopscope")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Show where packets spend their time in the Linux network stack, hop by hop."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 77 a privilege is missing, 130 interrupted before there was
    anything to report, 141 the output is not read, or that of the command given after ``--``.
    """
    if sys.stdout is None:  # and its number is free for the next file, whichever that is
        _complain("Standard output is closed. Redirect it to a file, a pipe or /dev/null")
        sys.exit(1)
    _keep_standard_numbers()
    guard()
    try:
        code = cli(prog_name="hopscope", standalone_mode=False)
    except HopscopeError as error:
        for each in error.errors if isinstance(error, HostsError) else (error,):
            _complain(str(each))
        code = error.exit_code
    except click.ClickException as error:
        _complain(_one_sentence(error))
        code = error.exit_code
    except click.Abort:
        code = 130
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and not _NO_MEMORY.search(str(error)):
            raise
        _complain("There is not enough memory. Raise the limit: `ulimit -v`, or that of the cgroup")
        code = 1
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _forget_output()
        _complain(f"The output cannot be written: {error.strerror}. Redirect it elsewhere, or free some space")
        code = 1
    sys.exit(code)


def _keep_standard_numbers() -> None:
    """Open /dev/null where standard input or error is closed: else the next file has its number, and gets its text."""
    for number in (0, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # of the free numbers it has the lowest


def _one_sentence(error: click.ClickException) -> str:
    what = error.format_message().replace("\n", " ")
    if "(Did you mean one of:" in what:
        what = what.replace("(Did", "Did").removesuffix(")")
    what = what if what.endswith("?") else f"{what.rstrip('.')}."
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{what} See {context.command_path if context else 'hopscope'} --help"


def _complain(sentence: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens
        tell(f"hopscope: {sentence}")


def _forget_output() -> None:
    """Keep Python from writing what is left in its buffer when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
