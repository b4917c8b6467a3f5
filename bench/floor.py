# SPDX-License-Identifier: Apache-2.0
"""The floor: for each program that a collector attaches, one that does nothing, on the same hook."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import build_bpf
from hopscope.bpf import object_path
from hopscope.libbpf import BpfObject
from hopscope.probes.attach import EveryNamespace, attach, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hopscope.libbpf import Program

# To let the packet pass.
_ACCEPT: Final = {"cgroup_skb": 1, "netfilter": 1}
_HEAD: Final = """\
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
char LICENSE[] __attribute__((section("license"), used)) = "Dual BSD/GPL";
"""


def source(sections: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    """Return C code of empty programs.

    Parameters
    ----------
    sections
        Program name → ELF section, which says what it is attached to.
    kinds
        Program name → kind of its way.
    """
    return _HEAD + "".join(
        f'__attribute__((section("{section}"), used)) '
        f"int {name}(void *ctx) {{ return {_ACCEPT.get(kinds[name], 0)}; }}\n"
        for name, section in sections.items()
    )


class Floor:
    """Empty twins of the programs that a collector attaches on this kernel.

    Parameters
    ----------
    folder
        Where they are compiled.
    name
        Of the collector's object.
    kinds
        Program name → kind of its way.
    """

    def __init__(self, folder: Path, name: str, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        with BpfObject.open(object_path(name)) as bpf:
            sections = {name: bpf.programs[name].section for name in self._kinds}
        code = folder / "floor.bpf.c"
        code.write_text(source(sections, self._kinds))
        self._object = code.with_name("floor.bpf.o")
        build_bpf.compile_object(code, self._object, build_bpf.host_arch())

    @contextmanager
    def attached(self) -> Iterator[list[Program]]:
        """Attach them during the block; they bear the names of their models.

        Raises
        ------
        LoadError
            The kernel refuses one.
        """
        with BpfObject.open(self._object) as bpf:
            for name, kind in self._kinds.items():
                prepare(bpf.programs[name], kind)
            bpf.load()
            for name, kind in self._kinds.items():
                if kind == "netfilter":
                    EveryNamespace([(bpf.programs[name], kind)]).refresh()
                else:
                    attach(bpf.programs[name], kind)
            yield list(bpf.programs.values())
