# SPDX-License-Identifier: Apache-2.0
"""The options of verbs that run on other hosts."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from hopscope.agent.defaults import AUTHORITY, CERTIFICATE, KEY, REMOTE_COMMAND, SSH
from hopscope.live.help import CLIENTS, HOSTS, option, section, together
from hopscope.live.paths import PATH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def host_options() -> Callable[[Decorated], Decorated]:
    """Add on which hosts, and how they are reached: `hosts`, `ssh`, `remote_command` and `tls`.

    `hopscope.agent.target.parse_all`, `hopscope.agent.ssh.Ssh.of` and `hopscope.agent.connect.connect` take them.
    """
    return together(
        section(
            HOSTS,
            option(
                "--host",
                "hosts",
                multiple=True,
                metavar="TARGET",
                help="ssh HOST, tls://HOST:PORT or local (repeatable).",
            ),
            option("--ssh", metavar="COMMAND", help="ssh command ($HOPSCOPE_SSH).", default_text=SSH),
            option(
                "--remote-command",
                metavar="COMMAND",
                help="Agent command there.",
                default_text=REMOTE_COMMAND,
            ),
        ),
        tls_options("Own certificate for tls://", "agents", HOSTS),
    )


def tls_options(certificate: str, others: str, title: str) -> Callable[[Decorated], Decorated]:
    """Add the files of mutual TLS, as `tls`, to the section `title`.

    `certificate` says whose it is, and `others` whom its counterpart belongs to.
    """

    def file_option(name: str, help_text: str, variable: str) -> Callable[[Decorated], Decorated]:
        return option(name, type=PATH, metavar="FILE", help=f"{help_text} (${variable}).")

    def folded(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None, **more: Any) -> Any:  # noqa: ANN401 # as of any verb
            from hopscope.agent.tls import Tls  # noqa: PLC0415 # ssl when it is needed

            return function(*args, tls=Tls.of(tls_cert, tls_key, tls_ca), **more)

        return inner

    return section(
        title,
        file_option("--tls-cert", certificate, CERTIFICATE),
        file_option("--tls-key", "Its private key", KEY),
        file_option("--tls-ca", f"CA of {others}", AUTHORITY),
        folded,
    )


def listening_options(help_text: str, certificate: str, others: str) -> Callable[[Decorated], Decorated]:
    """Add where a verb listens for clients, and which: `listen`, `allowed`, `allow_file` and `tls`.

    `certificate` and `others` are as in `tls_options`.
    """
    return together(
        section(
            CLIENTS,
            option("--listen", metavar="ADDRESS:PORT", help=help_text),
            option(
                "--allow",
                "allowed",
                metavar="CLIENT",
                multiple=True,
                help="Certificate name or sha256:DIGEST (repeatable).",
            ),
            option("--allow-file", type=PATH, metavar="FILE", help="File of allowed clients, one per line."),
        ),
        tls_options(certificate, others, CLIENTS),
    )


def several_hosts() -> Callable[[Decorated], Decorated]:
    """Add on which hosts a verb that reports at intervals runs, and how their results are shown."""
    return together(
        host_options(),
        section(HOSTS, option("--together", is_flag=True, help="Print one table for all hosts.")),
    )
