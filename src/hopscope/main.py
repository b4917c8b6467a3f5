# SPDX-License-Identifier: Apache-2.0
"""The entry point: finds the verb, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import threading
from importlib.machinery import ExtensionFileLoader
from typing import TYPE_CHECKING, Any, Final

import click

from hopscope import __version__
from hopscope.errors import HopscopeError, HostsError, limit_reached
from hopscope.gate import guarded, tell

if TYPE_CHECKING:
    from types import FrameType

VERBS: Final = (
    "top", "web", "serve", "explain", "rx", "tx", "cpu", "drops", "count", "check", "counters", "sockets", "clock",
    "record", "wire", "mark", "recordings", "verify", "join", "report", "sql", "export", "wireshark", "cdf", "fleet",
    "script", "probes", "demo", "agent",
)  # fmt: skip

# What writing to a full or broken output says; anything else that goes wrong with a file is a bug here.
_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

# As a shell says of a process that SIGPIPE ended.
_NOBODY_READS: Final = 141
# As a shell says of a process that a signal ended: this and its number.
_BY_SIGNAL: Final = 128
_AGAIN_S: Final = 0.01
# What is on the stack while an extension module begins: one that an exception passes then may abort the process.
_BEGINNING: Final = frozenset(
    each.__code__ for each in (ExtensionFileLoader.create_module, ExtensionFileLoader.exec_module)
)
_STDERR: Final = 2


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


def main(*, own_process: bool = False) -> None:
    """Run the command line and exit.

    Parameters
    ----------
    own_process
        Whether this process is for that alone. Then, signals are handled, what cannot be written to standard error is
        left out, and what a command does not need is given up.

    Notes
    -----
    Exit codes: 0 success, 1 failure, 2 wrong usage, 77 a privilege is missing, 141 the output is not read, 128 + n
    ended by signal n before there was anything to report (130: Ctrl-C), or that of the command given after ``--``.
    """
    interruption = _prepare(own_process=own_process)
    if sys.stdout is None:  # and its number is free for the next file, whichever that is
        _complain("Standard output is closed. Redirect it to a file, a pipe or /dev/null")
        sys.exit(1)
    _keep_standard_input()
    with guarded(for_good=own_process):
        code = _code(interruption, own_process=own_process)
    interruption.end()
    sys.exit(code)


def _code(interruption: _Interruption, *, own_process: bool) -> Any:  # noqa: ANN401 # as click's
    """Run the verb, say what went wrong, and return the exit code."""
    try:
        code = _run(interruption, own_process=own_process)
    except HopscopeError as error:
        for each in error.errors if isinstance(error, HostsError) else (error,):
            _complain(str(each))
        code = error.exit_code
    except click.ClickException as error:
        _complain(_one_sentence(error))
        code = error.exit_code
    except click.Abort:
        code = _BY_SIGNAL + signal.SIGINT
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            _forget_output()
            _complain(f"The output cannot be written: {error.strerror}. Redirect it elsewhere, or free some space")
        elif limit := limit_reached(error):
            _complain(str(limit))
        else:
            raise
        code = 1
    return code


def _prepare(*, own_process: bool) -> _Interruption:
    if own_process:
        _listen_or_not()
    return _Interruption(own_process=own_process)


def _keep_standard_input() -> None:
    """Open /dev/null where standard input is closed: else the next file has its number."""
    try:
        os.fstat(0)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)  # of the free numbers it has the lowest


class _Interrupt(KeyboardInterrupt):
    """What a signal raises: where a bare KeyboardInterrupt passes exec(), Python ends by SIGINT, whatever caught it."""


class _Interruption:
    """The signals that end us where no verb handles them: all that was begun is put away, and nothing is printed.

    Attributes
    ----------
    number
        Of the first of them, None while there is none.
    """

    _USUAL: Final = (signal.SIG_DFL, signal.default_int_handler)

    def __init__(self, *, own_process: bool) -> None:
        self.number: int | None = None
        asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if own_process else ()
        self._ours = [number for number in asked if signal.getsignal(number) in self._USUAL]

    def begin(self) -> None:
        """Handle them."""
        for number in self._ours:
            signal.signal(number, self._interrupt)
        if self._ours:
            sys.unraisablehook = self._unraised

    def end(self) -> None:
        """Let them have their usual effect, which prints nothing either: only the interpreter's end is left."""
        for number in self._ours:
            signal.signal(number, signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # Where a terminal ends, several send SIGHUP: the first has said all.
        if _cannot_raise(frame):
            _send_again(number)
        elif self.number is None or number != signal.SIGHUP:
            self.number = self.number or number
            raise _Interrupt

    def _unraised(self, lost: sys.UnraisableHookArgs) -> None:
        """Send a signal again that came while C code had called Python's, which cannot raise there.

        So it is while libbpf loads programs. To raise here is not possible either: it is another thread that sends it.
        """
        if isinstance(lost.exc_value, _Interrupt) and self.number:
            number, self.number = self.number, None
            _send_again(number)
        else:
            sys.__unraisablehook__(lost)


def _cannot_raise(frame: FrameType | None) -> bool:
    """Tell whether an exception would be lost here, or abort the process."""
    nowhere = {*_BEGINNING, _Interruption._unraised.__code__}  # noqa: SLF001 # of this module
    while frame and frame.f_code not in nowhere:
        frame = frame.f_back
    return frame is not None


def _send_again(number: int) -> None:
    """Send ourselves a signal that came when nothing could be raised."""
    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _run(interruption: _Interruption, *, own_process: bool) -> Any:  # noqa: ANN401 # as click's
    """Run the verb, and return its exit code."""
    from hopscope.recorded.confine import OwnProcess  # noqa: PLC0415 # a Ctrl-C while it is imported is handled

    try:
        interruption.begin()
        return cli(prog_name="hopscope", standalone_mode=False, obj=OwnProcess() if own_process else None)
    except BaseException:  # whatever a library makes of an interrupt
        if interruption.number is None:
            raise
        _forget_output()
        return _BY_SIGNAL + interruption.number


class _Unheard(io.FileIO):
    """A file that takes whatever is written, whether it can be written or not."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 # any buffer
        try:
            return super().write(data) or 0
        except OSError:
            return memoryview(data).nbytes


def _listen_or_not() -> None:
    """Have nothing fail because nobody can read standard error any more: the terminal is gone, or a pipe's reader."""
    if sys.stderr is None:  # and its number is free for the next file, whichever that is
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
    raw = io.BufferedWriter(_Unheard(_STDERR, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, errors="backslashreplace", line_buffering=True)


def _one_sentence(error: click.ClickException) -> str:
    what = error.format_message().replace("\n", " ")
    if "(Did you mean one of:" in what:
        what = what.replace("(Did", "Did").removesuffix(")")
    what = what if what.endswith("?") else f"{what.rstrip('.')}."
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{what} See {context.command_path if context else 'hopscope'} --help"


def _complain(sentence: str) -> None:
    tell(f"hopscope: {sentence}")


def _forget_output() -> None:
    """Keep Python from writing what is left in its buffer when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
