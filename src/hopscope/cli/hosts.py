# SPDX-License-Identifier: Apache-2.0
"""The options of verbs that run on other hosts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hopscope.agent.ssh import REMOTE_COMMAND, SSH
from hopscope.agent.tls import AUTHORITY, CERTIFICATE, KEY, Tls
from hopscope.cli.options import together

if TYPE_CHECKING:
    from collections.abc import Callable

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def host_options() -> Callable[[Decorated], Decorated]:
    """Add on which hosts, and how they are reached: `hosts`, `ssh`, `remote_command` and `tls`.

    `hopscope.agent.target.parse_all`, `hopscope.agent.ssh.Ssh.of` and `hopscope.agent.connect.connect` take them.
    """
    return together(
        click.option(
            "--host",
            "hosts",
            multiple=True,
            metavar="TARGET[,name=NAME][,address=IP]",
            help="Run there, through ssh; or tls://HOST:PORT, or local. May be repeated (docs/remote.md).",
        ),
        click.option("--ssh", metavar="COMMAND", help=f"Instead of $HOPSCOPE_SSH, or {SSH}."),
        click.option(
            "--remote-command", metavar="COMMAND", help=f"Instead of $HOPSCOPE_REMOTE_COMMAND, or {REMOTE_COMMAND!r}."
        ),
        tls_options("For tls://: our certificate", "an agent's"),
    )


def tls_options(ours: str, theirs: str) -> Callable[[Decorated], Decorated]:
    """Add the files of mutual TLS, as `tls`; `ours` and `theirs` say whose certificates they are about."""

    def option(name: str, help_text: str, variable: str) -> Callable[[Decorated], Decorated]:
        path = click.Path(path_type=Path)
        return click.option(name, type=path, metavar="FILE", help=f"{help_text} (${variable}).")

    def folded(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None, **more: Any) -> Any:  # noqa: ANN401 # as of any verb
            return function(*args, tls=Tls.of(tls_cert, tls_key, tls_ca), **more)

        return inner

    return together(
        option("--tls-cert", f"{ours}, in PEM", CERTIFICATE),
        option("--tls-key", "Its private key, which nobody else can read", KEY),
        option("--tls-ca", f"The CA that {theirs} certificate comes from", AUTHORITY),
        folded,
    )


def several_hosts() -> Callable[[Decorated], Decorated]:
    """Add on which hosts a verb that reports at intervals runs, and how their results are shown."""
    return together(
        host_options(),
        click.option("--together", is_flag=True, help="One table of all hosts, not one each."),
    )
