# SPDX-License-Identifier: Apache-2.0
"""libbpf from Python: objects, programs, maps, links, BTF and rings.

A thin layer over the C library by ctypes. Importing it loads nothing; libbpf is opened at the first use.
"""

from hopscope.libbpf._elf import elf_build_id, elf_symbol, entry_offset, function_offsets, gnu_build_id
from hopscope.libbpf._go import GoFunction, go_functions
from hopscope.libbpf.btf import Btf
from hopscope.libbpf.capabilities import missing_capabilities
from hopscope.libbpf.links import Link, link_ids
from hopscope.libbpf.maps import Map, possible_cpus
from hopscope.libbpf.object import BpfObject
from hopscope.libbpf.program import Program, ProgramInfo, RunCounters, function_lengths, program_ids
from hopscope.libbpf.ring import RingReader, online_cpus
from hopscope.libbpf.stats import enable_stats

__all__ = [
    "BpfObject",
    "Btf",
    "GoFunction",
    "Link",
    "Map",
    "Program",
    "ProgramInfo",
    "RingReader",
    "RunCounters",
    "elf_build_id",
    "elf_symbol",
    "enable_stats",
    "entry_offset",
    "function_lengths",
    "function_offsets",
    "gnu_build_id",
    "go_functions",
    "link_ids",
    "missing_capabilities",
    "online_cpus",
    "possible_cpus",
    "program_ids",
]
