# SPDX-License-Identifier: Apache-2.0
"""Small languages of the command line, read in this process: filters, triggers, times, sizes, hosts."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import click
import numpy as np
from hypothesis import strategies as st

from hopscope.agent.allow import AllowList
from hopscope.agent.target import Target
from hopscope.errors import HopscopeError, UsageError
from hopscope.kernel.sockets import filter_parse
from hopscope.kernel.sockets.filter import matching
from hopscope.kernel.sockets.table import ROW, Sockets
from hopscope.live import lookup
from hopscope.live.paths import FileMode, PathType
from hopscope.live.seconds import Factor, Seconds
from hopscope.live.units import Age, Size
from hopscope.trace import selection
from hopscope.verbs.record.flight import Trigger
from tests.fuzz.lines import WORDS
from tests.fuzz.values import spoken, texts

if TYPE_CHECKING:
    from collections.abc import Callable

_SOCKETS: Final = np.frombuffer(np.random.default_rng(1).bytes(9 * ROW.itemsize), ROW)


def _filter(text: str) -> None:
    with mock.patch("socket.getaddrinfo", side_effect=OSError("nobody is to be asked")):
        found = filter_parse.parse([text], _no_cgroup)
    if found.condition is not None:
        matching(found.condition, Sockets(_SOCKETS, 0, 0))


def _no_cgroup(path: str) -> int:
    if path != "/x":
        raise UsageError("There is no such cgroup")
    return 1


def _converted(kind: click.ParamType[Any]) -> Callable[[str], object]:
    return lambda text: kind.convert(text, None, None)


_units: Final = spoken(
    (("0", "1", "0.5", ".5", "1e3", "٣", "9" * 400), ("s", "min", "h", "d", "w", "K", "MiB", "T"), ("-", "+"))
)
LANGUAGES: Final[dict[str, tuple[Callable[[str], object], st.SearchStrategy[str]]]] = {
    "filter": (_filter, spoken(WORDS["filter_words"])),
    "trigger": (Trigger.parse, spoken(WORDS["--trigger"])),
    "seconds": (_converted(Seconds(0.1, 100)), _units),
    "factor": (_converted(Factor(1)), _units),
    "age": (_converted(Age()), _units),
    "size": (_converted(Size()), _units),
    "mode": (_converted(FileMode()), _units),
    "path": (_converted(PathType()), texts),
    "host": (Target.parse, spoken(WORDS["--host"])),
    "allow": (lambda text: AllowList.of([text]), spoken(WORDS["--allow"])),
    "address": (lambda text: lookup.addresses([text]), spoken(WORDS["--address"])),
    "attach": (lambda text: lookup.ways([text]), spoken(WORDS["--attach"])),
    "comm": (lambda text: lookup.comms([text]), texts),
    "flow": (selection._flow, spoken(WORDS["--flow"])),
    "network": (selection._network, spoken(WORDS["--address"])),
}


@dataclass(frozen=True)
class Text:
    """A text of one of the languages."""

    language: str
    text: str

    def check(self) -> list[str]:
        """Return what is wrong."""
        read, _ = LANGUAGES[self.language]
        try:
            read(self.text)
        except (HopscopeError, click.ClickException):
            return []
        except Exception as error:  # noqa: BLE001 # what this looks for
            return [
                f"{type(error).__name__} in {traceback.extract_tb(error.__traceback__)[-1].name}: {str(error)[:100]}"
            ]
        return []


_by_language = [st.builds(Text, st.just(name), drawn | texts) for name, (_, drawn) in LANGUAGES.items()]
texts_of_languages: st.SearchStrategy[Text] = st.one_of(_by_language)
