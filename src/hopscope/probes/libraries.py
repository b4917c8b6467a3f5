# SPDX-License-Identifier: Apache-2.0
"""Programs at functions of libraries: uprobes, which end with their file descriptors and have no name in tracefs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.libbpf import entry_offset
from hopscope.libbpf.perf_event import open_uprobe
from hopscope.probes.point import RETURN_KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from hopscope.kernel.libraries import Library
    from hopscope.libbpf import BpfObject, Link, Program
    from hopscope.probes.point import AttachMethod

_RETURN_KIND: Final = RETURN_KINDS["uprobe"]
_OURSELVES: Final = Path("/proc/self/exe")


def attach_to_libraries(
    bpf: BpfObject, ways: Iterable[AttachMethod], libraries: Iterable[Library], pids: Collection[int]
) -> list[Link]:
    """Attach the programs of these ways to the functions that each library has.

    Parameters
    ----------
    bpf
        Loaded.
    ways
        A function is a hook; its programs at the entry and at returns have the same place.
    libraries
        Open, which they need not be afterwards.
    pids
        The only processes into which the kernel puts breakpoints; all that map the library where there are none.

    Raises
    ------
    LoadError
        The kernel refuses.
    """
    links = []
    ways = list(ways)
    for library in libraries:
        path = f"/proc/self/fd/{library.fd}"
        for way in ways:
            for function, program, ending in zip(way.hooks, way.programs, way.returns, strict=True):
                place = library.functions.get(function)
                if place is None:
                    continue
                name = f"{function} of {library.path}"
                ends = [(ending, offset, False) for offset in place.returns] or [(ending, place.entry, True)]
                # The return first: no call is begun whose end would not be seen.
                for each, offset, returns in (*ends, (program, place.entry, False)):
                    for pid in pids or (None,):
                        event = open_uprobe(path, offset, name, returns=returns, pid=pid)
                        links.append(bpf.programs[each].attach_event(event))
    return links


def attach_to_ourselves(program: Program, kind: str) -> list[Link]:
    """Attach a program where this process began, to which no process returns: whether the kernel grants it.

    Raises
    ------
    LoadError
        The kernel refuses.
    """
    offset = entry_offset(_OURSELVES.read_bytes())
    event = open_uprobe(str(_OURSELVES), offset, "this process", returns=kind == _RETURN_KIND, pid=os.getpid())
    return [program.attach_event(event)]
