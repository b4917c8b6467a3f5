# SPDX-License-Identifier: Apache-2.0
"""What ``--host`` says: which host, how it is reached, and what it is called."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCAL: Final = "local"
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_NAME_CHARACTERS: Final = 64
_FORM: Final = "Write --host TARGET[,name=NAME][,address=IP], and see docs/remote.md"


@dataclass(frozen=True, slots=True)
class Target:
    """A host.

    Attributes
    ----------
    way
        How it is reached.
    destination
        For ``ssh``: what ssh takes. For ``tls``: HOST:PORT.
    name
        What it is called here, fit for a folder's name.
    address
        Where other hosts reach it, None if it says so itself.
    """

    way: Literal["ssh", "tls", "local"]
    destination: str
    name: str
    address: str | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Return what ``TARGET[,name=NAME][,address=IP]`` says.

        Raises
        ------
        UsageError
            It says nothing that there is.
        """
        destination, *settings = text.split(",")
        given: dict[str, str] = {}
        for setting in settings:
            key, equals, value = setting.partition("=")
            if key not in {"name", "address"} or not equals or key in given:
                raise UsageError(f"--host {text}: {setting!r} is not a setting of a host", _FORM)
            given[key] = value
        way, host = _way(destination, text)
        name = given.get("name", host)
        if not _NAME.fullmatch(name) or len(name) > _NAME_CHARACTERS:
            raise UsageError(
                f"--host {text}: {name!r} cannot be the name of a host",
                "Add ,name=NAME of letters, digits, '.', '_' and '-'",
            )
        return cls(way, destination.removeprefix("tls://"), name, _address(given.get("address"), text))


def parse_all(texts: Sequence[str]) -> list[Target]:
    """Return the targets of all ``--host``.

    Raises
    ------
    UsageError
        One says nothing that there is, or two have the same name.
    """
    targets = [Target.parse(text) for text in texts]
    names = [target.name for target in targets]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"Two hosts are called {twice[0]}", "Give one of them another name: --host TARGET,name=NAME")
    return targets


def _way(destination: str, text: str) -> tuple[Literal["ssh", "tls", "local"], str]:
    if destination == LOCAL:
        return "local", LOCAL
    # What ssh might take for an option is no host, wherever it stands.
    words = (destination.partition("://")[2] or destination).split("@")
    if any(not word or word.startswith("-") for word in words) or not re.fullmatch(r"[!-~]+", destination):
        raise UsageError(f"--host {text}: there is no host {destination!r}", _FORM)
    if "://" not in destination:
        return "ssh", destination.rpartition("@")[2]
    try:
        parts = urlsplit(destination)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"--host {text}: there is no host {destination!r}", _FORM) from None
    if parts.path or parts.query or parts.fragment or not host:
        raise UsageError(f"--host {text}: there is no host {destination!r}", _FORM)
    if parts.scheme == "ssh":
        return "ssh", host
    if parts.scheme != "tls" or parts.username is not None or port is None:
        raise UsageError(
            f"--host {text}: {destination!r} is neither ssh://[USER@]HOST[:PORT] nor tls://HOST:PORT", _FORM
        )
    return "tls", host


def _address(given: str | None, text: str) -> str | None:
    if given is None:
        return None
    try:
        return str(ipaddress.ip_address(given))
    except ValueError:
        raise UsageError(f"--host {text}: {given!r} is not an IP address", _FORM) from None
