# SPDX-License-Identifier: Apache-2.0
"""Help that groups options by what they are about and ends with examples, on top of click, which has neither.

Of the libraries that add groups to click, cloup takes 90 ms of CPU time to import on a machine where click takes 40,
click-option-group 17; neither aligns the groups with each other or has examples. These are the few lines needed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

MEASURE: Final = "What to measure"
RECORD: Final = "What to record"
FLIGHT: Final = "Flight recorder"
RECORDINGS: Final = "Which to delete"
REPLAY: Final = "With TRACE"
TRAFFIC: Final = "Which traffic"
SOCKETS: Final = "Which sockets"
OUTPUT: Final = "Output"
HOSTS: Final = "Several hosts"
CLIENTS: Final = "Which clients"
SUBSCRIBERS: Final = "Subscribers"
RECEIVER: Final = "Receiver of metrics"
FLEET: Final = "Fleet"
OTHER: Final = "Other options"
# In this order they are shown.
SECTIONS: Final = (
    MEASURE,
    RECORD,
    FLIGHT,
    RECORDINGS,
    TRAFFIC,
    SOCKETS,
    CLIENTS,
    RECEIVER,
    FLEET,
    SUBSCRIBERS,
    OUTPUT,
    REPLAY,
    HOSTS,
    OTHER,
)

# Words of tcpdump's filters that a value follows, and the option that selects the same.
_LIKE_PCAP: Final = {
    "port": "--port", "host": "--address", "net": "--address", "src": "--address", "dst": "--address",
}  # fmt: skip
_WIDEST_OPTION: Final = 32


class Option(click.Option):
    """An option in a section of the help.

    Parameters
    ----------
    aliases
        Other names, such as former ones, which work and are not shown.
    default_text
        What help says of the default where that is not the value itself.
    """

    section: str = OTHER

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 # as click's
        aliases: Sequence[str] = (),
        default_text: str = "",
        **attributes: Any,  # noqa: ANN401 # as click's
    ) -> None:
        super().__init__(*args, **attributes)
        self.aliases = list(aliases)
        self._default_text = default_text

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ANN401 # click hides its type
        """Let the parser know the aliases, too."""
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names and the sentence; limits of numbers are named when they are exceeded."""
        if self.hidden:
            return None
        names = ", ".join(sorted(self.opts, key=len))
        if not self.is_flag:
            names += f" {self.make_metavar(ctx)}"
        return names, (self.help or "") + self._default()

    def _default(self) -> str:
        text = self._default_text
        if self.show_default and not text:
            value = self.default
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value).removesuffix(".0")
        return f" [default: {text}]" if text else ""


class Command(click.Command):
    """A command whose help has sections and examples.

    Parameters
    ----------
    examples
        A sentence and the command line that it is about, of each.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 # as click's
        examples: Sequence[tuple[str, str]] = (),
        **attributes: Any,  # noqa: ANN401 # as click's
    ) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section, with one width of the column of names."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        found = [(_section(each), record) for each in options if (record := each.get_help_record(ctx))]
        width = max((len(names) for _, (names, _) in found if len(names) <= _WIDEST_OPTION), default=0)
        for section in SECTIONS:
            rows = [(names.ljust(width), text) for its, (names, text) in found if its == section]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows, col_max=_WIDEST_OPTION)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        with formatter.section("Examples"):
            for at, (sentence, line) in enumerate(self.examples):
                if at:
                    formatter.write_paragraph()
                formatter.write_text(sentence if sentence.endswith("?") else f"{sentence}:")
                formatter.write(f"{'':{formatter.current_indent + 2}}{line}\n")


class CommandBeside(Command):
    """A verb that can run a command beside the measurement: what comes after ``--``, and nowhere else."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, and refuse a command that no ``--`` comes before.

        A filter of tcpdump's would be run as a program otherwise: ``host 10.0.0.1`` is one.

        Raises
        ------
        click.UsageError
            There are words that are neither options nor behind ``--``.
        """
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("command") or ()
        if words and given[-len(words) - 1 : -len(words)] != ["--"]:
            raise click.UsageError(self.refusal(ctx, words), ctx)
        return rest

    def refusal(self, ctx: click.Context, words: Sequence[str]) -> str:
        """Return what to say of words that no ``--`` comes before."""
        text = " ".join(words)
        said = f"{ctx.info_name} takes no positional arguments, but got '{text}'. "
        known = {name for each in self.params for name in each.opts}
        wanted = [each for each in _as_options(words) if each.split()[0] in known]
        if wanted:
            said += f"To select traffic: {' '.join(wanted)}. "
        return f"{said}To run a command beside the measurement, write it after --: {ctx.command_path} -- {text}"


class CommandBesideArguments(Command):
    """A verb that has arguments of its own, among its options, and can run the command that comes after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words up to the first ``--``; what comes after it is the parameter ``command``."""
        end = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:end])
        ctx.params["command"] = tuple(args[end + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def _as_options(words: Sequence[str]) -> list[str]:
    """Return the options that select what words of tcpdump's language do."""
    found = []
    for word, following in itertools.zip_longest(words, words[1:], fillvalue="VALUE"):
        if word in {"tcp", "udp"}:
            found.append(f"--protocol {word}")
        elif word in _LIKE_PCAP and following not in _LIKE_PCAP:
            found.append(f"{_LIKE_PCAP[word]} {following}")
    return found


def option(*names: str, **attributes: Any) -> Callable[[Decorated], Decorated]:  # noqa: ANN401 # as click's
    """Add an :class:`Option`."""
    return click.option(*names, cls=Option, **attributes)


def section(title: str, *decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Return a decorator that applies all of these; the options that they add are in this section of the help."""

    def decorate(function: Decorated) -> Decorated:
        before = len(getattr(function, "__click_params__", ()))
        function = together(*decorators)(function)
        for each in getattr(function, "__click_params__", ())[before:]:
            if isinstance(each, Option):
                each.section = title
        return function

    return decorate


def together(*decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Return a decorator that applies all of these; help shows their options in this order."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _section(parameter: click.Parameter) -> str:
    return parameter.section if isinstance(parameter, Option) else OTHER
