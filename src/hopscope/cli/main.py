# SPDX-License-Identifier: Apache-2.0
"""The entry point: finds the verb, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

import click

from hopscope import __version__
from hopscope.errors import HopscopeError

VERBS: Final = ("rx", "probes", "demo")


class _Verbs(click.Group):
    """Imports a verb's module when it is asked for, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"hopscope.cli.{cmd_name}").command
        return command


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="hopscope")
def cli() -> None:
    """Show where packets spend their time in the Linux network stack, hop by hop."""


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 well, 1 failed, 2 wrong usage, 77 a right is missing, or that of the command given after ``--``.
    """
    try:
        code = cli(standalone_mode=False)
        sys.stdout.flush()
    except HopscopeError as error:
        _complain(str(error))
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    except BrokenPipeError:
        # The reader of our output went away: nothing is left to say, and Python must not try at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)


def _complain(sentence: str) -> None:
    click.echo(f"hopscope: {sentence}", err=True)
