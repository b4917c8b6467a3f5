# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.libbpf import Btf, _abi
from hopscope.libbpf._types import BtfType, Kind, Member


def members(kernel: Btf, of: BtfType) -> dict[str, Member]:
    """Members by name, those of anonymous structs and unions among them, offsets from the start of `of`."""
    found = {}
    for member in kernel.members(of):
        inner = kernel.resolve(member.type_id)
        if not member.name and inner.kind in (Kind.STRUCT, Kind.UNION):
            for name, deeper in members(kernel, inner).items():
                found[name] = deeper._replace(offset_bits=deeper.offset_bits + member.offset_bits)
        else:
            found[member.name] = member
    return found


def offsets_of(structure: type) -> dict[str, int]:
    return {name: getattr(structure, name).offset for name, *_ in structure._fields_}  # type: ignore[attr-defined]


@pytest.mark.root
@pytest.mark.parametrize("enum", ["bpf_cmd", "bpf_map_type", "bpf_attach_type", "bpf_stats_type"])
def test_numbers_are_the_kernels(enum: str) -> None:
    kernel = Btf.kernel().enum_values(enum)
    ours = {name: getattr(_abi, name) for name in kernel if hasattr(_abi, name)}
    assert ours
    assert ours == {name: kernel[name] for name in ours}


@pytest.mark.root
@pytest.mark.parametrize(
    ("structure", "name"), [(_abi.BpfProgInfo, "bpf_prog_info"), (_abi.BpfLinkInfo, "bpf_link_info")]
)
def test_info_is_laid_out_as_the_kernels(structure: type, name: str) -> None:
    kernel = Btf.kernel()
    type_id = kernel.find(name, Kind.STRUCT)
    assert type_id is not None
    theirs = {key: member.offset_bits // 8 for key, member in members(kernel, kernel.type(type_id)).items()}
    assert offsets_of(structure).items() <= theirs.items()


@pytest.mark.root
def test_netfilter_link_is_laid_out_as_the_kernels() -> None:
    kernel = Btf.kernel()
    type_id = kernel.find("bpf_attr", Kind.UNION)
    assert type_id is not None
    create = members(kernel, kernel.type(type_id))["link_create"]
    fields = members(kernel, kernel.resolve(create.type_id))
    if "netfilter" not in fields:
        pytest.skip("this kernel has no netfilter links (before 6.4)")
    inner = members(kernel, kernel.resolve(fields["netfilter"].type_id))
    theirs = {name: fields[name].offset_bits // 8 for name in ("prog_fd", "target_fd", "attach_type", "flags")}
    names = {"pf": "pf", "hooknum": "hooknum", "priority": "priority", "flags": "netfilter_flags"}
    for name, ours in names.items():
        theirs[ours] = (fields["netfilter"].offset_bits + inner[name].offset_bits) // 8
    assert offsets_of(_abi.BpfLinkCreateNetfilter) == theirs
