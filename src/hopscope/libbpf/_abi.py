# SPDX-License-Identifier: Apache-2.0
"""The C interface: libbpf's functions that are in use, the kernel's constants and structs.

Since version 1.0, libbpf is always strict: a function that returns a number returns the negative errno, one that
returns a pointer returns NULL and sets errno.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_bool, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p
from typing import Final

# include/uapi/linux/bpf.h
BPF_LINK_CREATE: Final = 28
BPF_STATS_RUN_TIME: Final = 0
BPF_F_MMAPABLE: Final = 1 << 10
BPF_NETFILTER: Final = 45
BPF_MAP_TYPE_HASH: Final = 1
BPF_MAP_TYPE_ARRAY: Final = 2
BPF_MAP_TYPE_PERCPU_HASH: Final = 5
BPF_MAP_TYPE_PERCPU_ARRAY: Final = 6
BPF_MAP_TYPE_LRU_HASH: Final = 9
BPF_MAP_TYPE_LRU_PERCPU_HASH: Final = 10
BPF_MAP_TYPE_ARRAY_OF_MAPS: Final = 12
BPF_MAP_TYPE_RINGBUF: Final = 27


class BpfProgInfo(ctypes.Structure):
    """``struct bpf_prog_info``; an older kernel fills less of it and leaves the rest zero."""

    _fields_ = (
        ("type", c_uint32),
        ("id", c_uint32),
        ("tag", ctypes.c_uint8 * 8),
        ("jited_prog_len", c_uint32),
        ("xlated_prog_len", c_uint32),
        ("jited_prog_insns", c_uint64),
        ("xlated_prog_insns", c_uint64),
        ("load_time", c_uint64),
        ("created_by_uid", c_uint32),
        ("nr_map_ids", c_uint32),
        ("map_ids", c_uint64),
        ("name", ctypes.c_char * 16),
        ("ifindex", c_uint32),
        ("gpl_compatible", c_uint32),
        ("netns_dev", c_uint64),
        ("netns_ino", c_uint64),
        ("nr_jited_ksyms", c_uint32),
        ("nr_jited_func_lens", c_uint32),
        ("jited_ksyms", c_uint64),
        ("jited_func_lens", c_uint64),
        ("btf_id", c_uint32),
        ("func_info_rec_size", c_uint32),
        ("func_info", c_uint64),
        ("nr_func_info", c_uint32),
        ("nr_line_info", c_uint32),
        ("line_info", c_uint64),
        ("jited_line_info", c_uint64),
        ("nr_jited_line_info", c_uint32),
        ("line_info_rec_size", c_uint32),
        ("jited_line_info_rec_size", c_uint32),
        ("nr_prog_tags", c_uint32),
        ("prog_tags", c_uint64),
        ("run_time_ns", c_uint64),
        ("run_cnt", c_uint64),
        ("recursion_misses", c_uint64),
    )


class BpfObjectOpenOpts(ctypes.Structure):
    """The first fields of libbpf's ``struct bpf_object_open_opts``."""

    _fields_ = (("sz", ctypes.c_size_t), ("object_name", c_char_p))


class BpfLinkInfo(ctypes.Structure):
    """The first fields of ``struct bpf_link_info``, the same for every type of link."""

    _fields_ = (("type", c_uint32), ("id", c_uint32), ("prog_id", c_uint32))


class BpfLinkCreateNetfilter(ctypes.Structure):
    """``union bpf_attr`` of BPF_LINK_CREATE with its ``netfilter`` arm.

    Kernel commit 84601d6ee68a ("bpf: add bpf_link support for BPF_NETFILTER programs", 6.4); libbpf has it since 1.3.
    """

    _fields_ = (
        ("prog_fd", c_uint32),
        ("target_fd", c_uint32),
        ("attach_type", c_uint32),
        ("flags", c_uint32),
        ("pf", c_uint32),
        ("hooknum", c_uint32),
        ("priority", c_int32),
        ("netfilter_flags", c_uint32),
    )


# va_list is passed as a pointer on x86-64 (an array that decays) and on arm64 (a large struct, by reference).
PRINT_CALLBACK: Final = ctypes.CFUNCTYPE(c_int, c_int, c_void_p, c_void_p, use_errno=True)

_VOID_P = (c_void_p,)
PROTOTYPES: Final[dict[str, tuple[type | None, tuple[type, ...]]]] = {
    "libbpf_major_version": (c_uint32, ()),
    "libbpf_minor_version": (c_uint32, ()),
    "libbpf_set_print": (c_void_p, (PRINT_CALLBACK,)),
    "libbpf_num_possible_cpus": (c_int, ()),
    "bpf_object__open_file": (c_void_p, (c_char_p, c_void_p)),
    "bpf_object__open_mem": (c_void_p, (c_void_p, ctypes.c_size_t, c_void_p)),
    "bpf_object__load": (c_int, _VOID_P),
    "bpf_object__close": (None, _VOID_P),
    "bpf_object__btf": (c_void_p, _VOID_P),
    "bpf_object__next_program": (c_void_p, (c_void_p, c_void_p)),
    "bpf_object__next_map": (c_void_p, (c_void_p, c_void_p)),
    "bpf_object__find_map_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_program__name": (c_char_p, _VOID_P),
    "bpf_program__section_name": (c_char_p, _VOID_P),
    "bpf_program__fd": (c_int, _VOID_P),
    "bpf_program__autoload": (c_bool, _VOID_P),
    "bpf_program__set_autoload": (c_int, (c_void_p, c_bool)),
    "bpf_program__set_type": (c_int, (c_void_p, c_int)),
    "bpf_program__set_expected_attach_type": (c_int, (c_void_p, c_int)),
    "bpf_program__attach": (c_void_p, _VOID_P),
    "bpf_program__attach_cgroup": (c_void_p, (c_void_p, c_int)),
    "bpf_program__attach_perf_event": (c_void_p, (c_void_p, c_int)),
    "bpf_link__fd": (c_int, _VOID_P),
    "bpf_link__destroy": (c_int, _VOID_P),
    "bpf_map__name": (c_char_p, _VOID_P),
    "bpf_map__fd": (c_int, _VOID_P),
    "bpf_map__type": (c_int, _VOID_P),
    "bpf_map__map_flags": (c_uint32, _VOID_P),
    "bpf_map__key_size": (c_uint32, _VOID_P),
    "bpf_map__value_size": (c_uint32, _VOID_P),
    "bpf_map__max_entries": (c_uint32, _VOID_P),
    "bpf_map__set_max_entries": (c_int, (c_void_p, c_uint32)),
    "bpf_map__reuse_fd": (c_int, (c_void_p, c_int)),
    "bpf_map__btf_key_type_id": (c_uint32, _VOID_P),
    "bpf_map__btf_value_type_id": (c_uint32, _VOID_P),
    "bpf_map__initial_value": (c_void_p, (c_void_p, ctypes.POINTER(ctypes.c_size_t))),
    "bpf_iter_create": (c_int, (c_int,)),
    "bpf_map_create": (c_int, (c_int, c_char_p, c_uint32, c_uint32, c_uint32, c_void_p)),
    "bpf_map_lookup_elem": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
    "bpf_map_delete_elem": (c_int, (c_int, c_void_p)),
    "bpf_map_get_next_key": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_map_lookup_batch": (
        c_int,
        (c_int, c_void_p, c_void_p, c_void_p, c_void_p, ctypes.POINTER(c_uint32), c_void_p),
    ),
    "bpf_obj_get_info_by_fd": (c_int, (c_int, c_void_p, ctypes.POINTER(c_uint32))),
    "bpf_prog_get_fd_by_id": (c_int, (c_uint32,)),
    "bpf_prog_get_next_id": (c_int, (c_uint32, ctypes.POINTER(c_uint32))),
    "bpf_link_get_next_id": (c_int, (c_uint32, ctypes.POINTER(c_uint32))),
    "bpf_enable_stats": (c_int, (c_int,)),
    "btf__parse": (c_void_p, (c_char_p, c_void_p)),
    "btf__new": (c_void_p, (c_char_p, c_uint32)),
    "btf__free": (None, _VOID_P),
    "btf__raw_data": (c_void_p, (c_void_p, ctypes.POINTER(c_uint32))),
    "btf__type_cnt": (c_uint32, _VOID_P),
    "btf__type_by_id": (c_void_p, (c_void_p, c_uint32)),
    "btf__name_by_offset": (c_char_p, (c_void_p, c_uint32)),
    "btf__find_by_name_kind": (c_int32, (c_void_p, c_char_p, c_uint32)),
}


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the process's own C library."""
    return ctypes.CDLL(None, use_errno=True)


def decoded(text: bytes | None) -> str:
    """Return a C string as ``str``; NULL is empty."""
    return text.decode(errors="replace") if text is not None else ""
