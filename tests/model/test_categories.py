# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from hopscope.model.categories import CATEGORIES, HOOKS, PROGRAM_ROWS, ROWS, Row
from hopscope.model.classify import Category, Rows, classify

# Rows of what a kernel may be built without, or has as a module that is not loaded.
OPTIONAL = {
    ("busy_poll", "{callee}"): "CONFIG_NET_RX_BUSY_POLL",
    ("bridge", ""): "CONFIG_BRIDGE",
    ("bridge", "openvswitch"): "CONFIG_OPENVSWITCH",
    ("tunnel", "vxlan"): "CONFIG_VXLAN",
    ("tunnel", "geneve"): "CONFIG_GENEVE",
    ("tunnel", "gre"): "CONFIG_NET_IPGRE",
    ("tunnel", "ipip"): "CONFIG_NET_IPIP",
    ("tunnel", "udp"): "CONFIG_NET_UDP_TUNNEL",
    ("tunnel", "wireguard"): "CONFIG_WIREGUARD",
    ("tunnel", "mpls"): "CONFIG_MPLS",
    ("tunnel", "ppp"): "CONFIG_PPP",
    ("virtual_device", "vlan"): "CONFIG_VLAN_8021Q",
    ("virtual_device", "macvlan"): "CONFIG_MACVLAN",
    ("virtual_device", "ipvlan"): "CONFIG_IPVLAN",
    ("virtual_device", "bond"): "CONFIG_BONDING",
    ("virtual_device", "vrf"): "CONFIG_NET_VRF",
    ("virtual_device", "tun"): "CONFIG_TUN",
    ("virtual_device", "ifb"): "CONFIG_IFB",
    ("conntrack", ""): "CONFIG_NF_CONNTRACK",
    ("conntrack", "defragment"): "CONFIG_NF_DEFRAG_IPV4",
    ("nat", ""): "CONFIG_NF_NAT",
    ("netfilter", "nft {hook}"): "CONFIG_NF_TABLES",
    ("netfilter", "iptables {hook}"): "CONFIG_IP_NF_IPTABLES",
    ("netfilter", "ebtables {hook}"): "CONFIG_BRIDGE_NF_EBTABLES",
    ("netfilter", "flowtable"): "CONFIG_NF_FLOW_TABLE",
    ("netfilter", "ipvs"): "CONFIG_IP_VS",
    ("tcp", "mptcp"): "CONFIG_MPTCP",
    ("other_transport", "sctp"): "CONFIG_IP_SCTP",
    ("other_transport", "dccp"): "CONFIG_IP_DCCP, removed in 6.16",
    ("other_transport", "af_xdp"): "CONFIG_XDP_SOCKETS",
    ("other_transport", "vsock"): "CONFIG_VSOCKETS",
    ("other_transport", "smc"): "CONFIG_SMC, CONFIG_RDS, CONFIG_TIPC, CONFIG_AF_KCM",
    ("memory", "page pool"): "CONFIG_PAGE_POOL",
    ("memory", "cgroup"): "CONFIG_MEMCG",
    ("crypto", "tls"): "CONFIG_TLS",
    ("crypto", "ipsec"): "CONFIG_XFRM",
    ("routing", "ipsec policy"): "CONFIG_XFRM",
}


def name_of(row: Row) -> str:
    return f"{row.category}-{row.detail or 'plain'}"


@cache
def functions() -> frozenset[str]:
    """Return the names in kallsyms, which are there for everybody."""
    lines = Path("/proc/kallsyms").read_text(encoding="ascii").splitlines()
    return frozenset(line.split()[2].partition(".")[0] for line in lines)


def exists(pattern: str) -> bool:
    if pattern.endswith("*"):
        return any(function.startswith(pattern[:-1]) for function in functions())
    return pattern in functions()


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_this_kernel_has_a_function_of_every_row(row: Row) -> None:
    if any(exists(pattern) for pattern in row.patterns.split()):
        return
    missing = OPTIONAL[row.category, row.detail]
    pytest.skip(f"no function of {row.category} {row.detail}: needs {missing}")


def test_optional_rows_are_rows() -> None:
    assert OPTIONAL.keys() <= {(row.category, row.detail) for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_every_pattern_of_a_row_leads_to_it(row: Row) -> None:
    for pattern in row.patterns.split():
        # An exact name of another row may begin so; this is a name that is none.
        function = pattern.removesuffix("*") + ("\x7f" if pattern.endswith("*") else "")
        detail = row.detail.format(callee="", hook="").rstrip()
        assert classify(("entry", function, "helper")) in {
            Category(row.category, detail),
            Category(row.category, row.detail.replace("{callee}", "helper")),
        }, pattern


@pytest.mark.parametrize("row", [*ROWS, *HOOKS, *PROGRAM_ROWS], ids=name_of)
def test_rows_are_well_formed(row: Row) -> None:
    patterns = row.patterns.split()
    assert patterns
    assert row.why
    assert row.category in CATEGORIES
    assert not [pattern for pattern in patterns if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", pattern)]
    beginnings = [pattern[:-1] for pattern in patterns if pattern.endswith("*")]
    covered = [p for p in patterns for b in beginnings if p.startswith(b) and p != f"{b}*"]
    assert covered == [], "said twice"


def test_a_pattern_is_in_one_row() -> None:
    for table in (ROWS, HOOKS, PROGRAM_ROWS):
        Rows(table)
    with pytest.raises(ValueError, match=r"tcp_\* is in two rows"):
        Rows([Row("tcp", "", "why", "tcp_*"), Row("udp", "", "why", "udp_* tcp_*")])


def test_a_category_and_detail_is_one_row() -> None:
    assert len({(row.category, row.detail) for row in ROWS}) == len(ROWS)
