# SPDX-License-Identifier: Apache-2.0
"""What the user asks of ``tx``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopGroupBy
from hopscope.errors import UsageError
from hopscope.live.filters import Selection
from hopscope.model.message import FIELDS
from hopscope.verbs.tx.hops import FLOW_HOPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUP_BY: Final = {
    "interface": HopGroupBy.HOP_GROUP_INTERFACE,
    "netns": HopGroupBy.HOP_GROUP_NETNS,
    "cgroup": HopGroupBy.HOP_GROUP_CGROUP,
    "process": HopGroupBy.HOP_GROUP_PROCESS,
    "port": HopGroupBy.HOP_GROUP_PORT,
    "peer": HopGroupBy.HOP_GROUP_PEER,
    "flow": HopGroupBy.HOP_GROUP_FLOW,
    # Every CPU has its own rows anyway.
    "cpu": HopGroupBy.HOP_GROUP_NONE,
}


@dataclass(frozen=True, slots=True)
class TxOptions(Selection):
    """Everything that ``tx`` can be asked for.

    Attributes
    ----------
    protocol
        ``tcp`` or ``udp`` alone; ``udp`` stands for all that is not TCP.
    flow_hooks
        Only hooks that sockets which are not selected never run; None: where there is a selection.
    sample
        Follow one message in so many, of each flow.
    rate
        Follow at most so many messages a second of each flow; 0: all.
    budget
        What measuring may cost, in per cent of one CPU; None: all is measured.
    events
        Each message is wanted.
    slowest
        So many of the slowest messages are wanted; 0: none.
    fields
        What of the state of TCP's sockets comes with single messages, of :data:`~hopscope.model.message.FIELDS`.
    group_by
        A key of :data:`GROUP_BY`, or None.
    max_groups
        Groups that get a row of their own.
    hops
        Names of the hops that are wanted; all if empty.
    compared
        Names of hops that must be among them.
    ways
        Probe point → the only way to use.
    """

    protocol: str | None = None
    flow_hooks: bool | None = None
    sample: int = 1
    rate: int = 0
    budget: float | None = None
    events: bool = False
    slowest: int = 0
    fields: Sequence[str] = ()
    group_by: str | None = None
    max_groups: int = 64
    hops: Sequence[str] = ()
    compared: Sequence[str] = ()
    ways: Mapping[str, str] = field(default_factory=dict)

    @property
    def only_flow_hooks(self) -> bool:
        """Whether sockets that are not selected must run nothing of ours."""
        if self.flow_hooks is not None:
            return self.flow_hooks
        return self.selects and self.protocol != "udp" and not self.ways and {*self.hops, *self.compared} <= FLOW_HOPS

    @property
    def records(self) -> bool:
        """Whether the kernel side makes a record of each message."""
        return self.events or bool(self.slowest)

    @property
    def rows(self) -> int:
        """Rows a hop has on each CPU, "other" included."""
        return 1 if self.group_by in {None, "cpu"} else self.max_groups + 1


def fields_of(text: str | None) -> tuple[str, ...]:
    """Return the fields that ``--fields`` names.

    Raises
    ------
    UsageError
        There is no such field.
    """
    names = tuple(dict.fromkeys(text.split(","))) if text else ()
    if names == ("all",):
        return FIELDS
    for name in names:
        if name not in FIELDS:
            raise UsageError(f"There is no field {name!r}", f"Fields: {', '.join(FIELDS)}; or all")
    return names
