# SPDX-License-Identifier: Apache-2.0
"""What tc and nft do with the frames that a condition selects; and rules of these, put in place and removed."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from hopscope.errors import HopscopeError, UsageError
from hopscope.live.wire.layout import ETHERTYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MARKS: Final = 1 << 32
_WORDS: Final = re.compile(r"(count|drop)|(mark) (\d{1,10}|0x[0-9a-fA-F]{1,8})|(redirect|mirror) ([^\s/]{1,15})")
# tc counts what a filter matches anyway; where an action is not needed, not every kernel has it.
_OF_TC: Final = {
    "count": "",
    "drop": " action drop",
    "mark": " action skbedit mark {}",
    "redirect": " action mirred egress redirect dev {}",
    "mirror": " action mirred egress mirror dev {}",
}
_OF_NFT: Final = {
    "count": "counter accept",
    "drop": "counter drop",
    "mark": "counter meta mark set {} accept",
    "redirect": "counter fwd to {}",
    "mirror": "counter dup to {} accept",
}
TABLE: Final = "hopscope"


class Action(NamedTuple):
    """What is done with a frame: count, drop, mark (`value`: the number), redirect or mirror (the device)."""

    kind: str
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a text says.

        Raises
        ------
        UsageError
            It is no action.
        """
        found = _WORDS.fullmatch(" ".join(text.split()))
        if not found or (found[3] and int(found[3], 0) >= _MARKS):
            raise UsageError(
                f"'{text}' is no action", "Write count, drop, 'mark NUMBER', 'redirect DEVICE' or 'mirror DEVICE'"
            )
        return cls(found[1] or found[2] or found[4], found[3] or found[5] or "")

    @property
    def sends(self) -> bool:
        """Whether frames come to another device."""
        return self.kind in {"redirect", "mirror"}

    @property
    def of_tc(self) -> str:
        """The end of a filter of tc."""
        return _OF_TC[self.kind].format(shlex.quote(self.value))

    @property
    def of_nft(self) -> str:
        """The end of a rule of nft."""
        return _OF_NFT[self.kind].format(shlex.quote(self.value))


COUNT: Final = Action("count")


def apply(lines: Iterable[str], interface: str) -> list[str]:
    """Run commands in their order, and return them; if one fails, remove what the others did.

    Raises
    ------
    HopscopeError
        One fails.
    """
    commands = [line for line in lines if line and not line.startswith("#")]
    if not commands:
        raise UsageError("There are too many rules for this matcher", "Use --matcher bpf")
    for command in commands:
        if refusal := _run(command):
            list(clear(interface))
            raise HopscopeError(f"`{command.split()[0]}` refuses the rule: {refusal}", "Try another --matcher")
    return commands


def clear(interface: str) -> Iterator[str]:
    """Remove all rules on an interface that :func:`apply` may have put there; yield the commands that found some."""
    chain = f"netdev {TABLE} {shlex.quote(interface)}"
    for command in (
        f"tc filter del dev {shlex.quote(interface)} ingress protocol {ETHERTYPE:#x} prio 1",
        f"nft flush chain {chain}",
        f"nft delete chain {chain}",
    ):
        if not _run(command):
            yield command


def _run(command: str) -> str:
    """Run it; return why it failed, or nothing."""
    words = shlex.split(command)
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{words[0]} cannot be started: {error.strerror}"
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return (said[0] if said else f"exit code {done.returncode}") if done.returncode else ""
