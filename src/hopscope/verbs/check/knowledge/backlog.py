# SPDX-License-Identifier: Apache-2.0
"""What limits the queue of a listener: its application's own backlog, or net.core.somaxconn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.verbs.check.conditions import Figure
from hopscope.verbs.check.figures import Advice
from hopscope.verbs.check.knowledge.refs import Ref, sysctl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.verbs.check.scene import Place, Scene

_LISTENERS: Final = "* tcp listener"
QUEUES: Final = Ref("socket", ("queue",), subjects=_LISTENERS)
_BACKLOGS: Final = Ref("socket", ("backlog",), subjects=_LISTENERS)
_SOMAXCONN: Final = sysctl("net.core.somaxconn")
_LEAST: Final = 4096


class _Listener(NamedTuple):
    subject: str
    backlog: int
    somaxconn: int

    @property
    def own_limit(self) -> bool:
        """Whether the application asked for less than the host allows."""
        return self.backlog < self.somaxconn


def _fullest(scene: Scene, place: Place) -> _Listener | None:
    """Return the listener of a place, or the fullest of its namespace; of several, that with the shortest queue."""
    somaxconn = scene.value(_SOMAXCONN, place)
    found = []
    for key in scene.keys(_BACKLOGS, place):
        if place.subject in {"", key.subject} and somaxconn is not None:
            backlog, queue = scene.now.numbers[key], key._replace(name="queue")
            waiting = max(each.numbers.get(queue, 0) for each in (scene.before, scene.now))
            found.append((-waiting / max(backlog, 1), backlog, key.subject))
    if not found or somaxconn is None:
        return None
    _, backlog, subject = min(found)
    return _Listener(subject, backlog, somaxconn)


@dataclass(frozen=True, slots=True)
class _Own(Advice):
    """The application's backlog, where it is the limit; or, if `named`, whose it is."""

    named: bool = False

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        found = _fullest(scene, place)
        if not found or not found.own_limit:
            return None
        if self.named:
            return Figure(found.subject.removesuffix(" tcp listener"), "text", "first")
        return Figure(found.backlog, "number", "max")


@dataclass(frozen=True, slots=True)
class _Larger(Advice):
    """Twice net.core.somaxconn, where that is the limit."""

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        found = _fullest(scene, place)
        return Figure(max(2 * found.somaxconn, _LEAST), "number", "max") if found and not found.own_limit else None


FIXES: Final = (
    "# raise the backlog that the application of {listener} gives to listen(), now {backlog}: somaxconn allows more",
    "sysctl -w net.core.somaxconn={larger}  # the application's backlog is cut to it; then restart the application",
)
ADVICE: Final[Mapping[str, Advice]] = {"listener": _Own(named=True), "backlog": _Own(), "larger": _Larger()}
