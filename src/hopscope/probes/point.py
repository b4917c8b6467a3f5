# SPDX-License-Identifier: Apache-2.0
"""What the catalogue is made of: probe points, and ways to attach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# By the kind of a program at a function's entry: that of one at its return.
RETURN_KINDS: Final = {
    "fentry": "fexit",
    "kprobe": "kretprobe",
    "uprobe": "uretprobe",
    "netfilter_rules": "netfilter_rules_end",
}
# At functions of a library, which a collector finds: in no object file, and in none of the kernel's tables.
LIBRARY_KINDS: Final = frozenset({"uprobe", RETURN_KINDS["uprobe"]})

# The tracepoints at which drivers hand packets over to the core: one of them, each packet.
HAND_OVER: Final = (
    "netif_rx",
    "napi_gro_receive_entry",
    "napi_gro_frags_entry",
    "netif_receive_skb_entry",
    "netif_receive_skb_list_entry",
)


@dataclass(frozen=True, slots=True)
class AttachMethod:
    """One way to attach a probe point.

    Parameters
    ----------
    kind
        ``tp_btf``, ``fentry``, ``fexit``, ``kprobe``, ``cgroup_skb``, ``netfilter``, ``netfilter_forward``,
        ``netfilter_rules``, ``sockops``, ``iter``, ``perf_event`` or ``uprobe``.
    hooks
        Functions, tracepoints or callbacks, by the kernel's names, or the library's.
    programs
        Programs of the object which record at this point.
    returns
        Programs at the return of the same functions, in the same order.
    helpers
        Programs which must be attached as well, for what they remember.
    kfuncs
        Kernel functions for BPF programs that they cannot do without.
    differs
        What it sees differently from the ways before it.
    """

    kind: str
    hooks: tuple[str, ...]
    programs: tuple[str, ...]
    returns: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    kfuncs: tuple[str, ...] = ()
    differs: str = ""

    @property
    def used(self) -> tuple[str, ...]:
        """All programs that it needs, in the order in which they are attached: no begin of what has no end yet."""
        return tuple(dict.fromkeys((*self.returns, *self.programs, *self.helpers)))

    @property
    def name(self) -> str:
        """Kind and hooks, as shown and as given to ``--attach``."""
        return f"{self.kind}:{'+'.join(self.hooks)}"


@dataclass(frozen=True, slots=True)
class Point:
    """A named place in the stack.

    Parameters
    ----------
    name
        Such as ``rx.core``.
    marks
        What happens there, with the kernel function that it rests on.
    ways
        In order of preference.
    """

    name: str
    marks: str
    ways: tuple[AttachMethod, ...]
