# SPDX-License-Identifier: Apache-2.0
"""Netfilter's rules: which hooks have any, which drop packets, and how many each has dropped, where it counts."""

from __future__ import annotations

import functools
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError
from hopscope.kernel.netlink import Netlink, attributes, each_attribute, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.kernel.netlink import Listed, Message

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
_NETLINK_NETFILTER: Final = 12
_NFNL_SUBSYS_NFTABLES: Final = 10 << 8
_GET_CHAIN: Final = _NFNL_SUBSYS_NFTABLES | 4
_GET_RULE: Final = _NFNL_SUBSYS_NFTABLES | 7
_NFGENMSG: Final = struct.Struct("=BBH")
_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 1, 2, 3, 4
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY, _CHAIN_COUNTERS = 1, 3, 4, 5, 8
_HOOK_NUMBER: Final = 1
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_COUNTER_PACKETS: Final = 2
_IMMEDIATE_DATA, _DATA_VERDICT, _VERDICT_CODE = 2, 2, 1
_LOOKUP_DREG: Final = 3
_REG_VERDICT: Final = bytes(4)
_NF_DROP: Final = bytes(4)

# NFPROTO_*
_FAMILIES: Final = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
# Expressions that answer a packet themselves, and drop it.
_DROPPING: Final = frozenset({"reject", "synproxy"})
_TARGET_NAME: Final = 1
# Expressions after which a packet goes on to the next one, whatever it is.
_LETS_THROUGH: Final = frozenset({"counter", "log", "immediate"})
_MODULES: Final = Path("/proc/modules")
_BUILT_IN: Final = Path("/lib/modules", os.uname().release, "modules.builtin")
_INET: Final = 1
# Of the older iptables: names of the tables that are loaded, by NFPROTO_*; each may have rules at all hooks.
_TABLE_NAMES: Final = {
    2: Path("/proc/thread-self/net/ip_tables_names"),
    10: Path("/proc/thread-self/net/ip6_tables_names"),
}
_HOOKS: Final = range(5)


class Hook(NamedTuple):
    """A hook of netfilter in IP.

    Attributes
    ----------
    family
        NFPROTO_IPV4 (2) or NFPROTO_IPV6 (10).
    number
        ``enum nf_inet_hooks``: 0 PREROUTING, 1 INPUT, 2 FORWARD, 3 OUTPUT, 4 POSTROUTING.
    """

    family: int
    number: int


class DropRule(NamedTuple):
    """A rule whose verdict is to drop or may be (a verdict map), or a chain whose policy is.

    Attributes
    ----------
    family, table, chain
        As ``nft`` names them.
    handle
        Of the rule; None for the chain's policy.
    packets
        What its counter says, if that counts exactly the packets that it drops; else None.
    """

    family: str
    table: str
    chain: str
    handle: int | None
    packets: int | None

    def __str__(self) -> str:
        """Return ``inet filter input handle 5``, or ``inet filter input policy``."""
        what = "policy" if self.handle is None else f"handle {self.handle}"
        return f"{self.family} {self.table} {self.chain} {what}"


def hooks_with_rules() -> set[Hook]:
    """Return the hooks at which the namespace that the calling thread is in has chains of nftables or iptables.

    What the kernel registers for other purposes (IPVS, connection tracking without rules) is not among them.

    Raises
    ------
    OSError
        The kernel refuses, or its chains changed again and again while they were listed.
    FormatError
        Its answer cannot be decoded.
    """
    found = {Hook(family, hook) for family, path in _TABLE_NAMES.items() if _has_text(path) for hook in _HOOKS}
    if has_nftables():
        with Netlink(_NETLINK_NETFILTER) as netlink:
            listed = netlink.dump(_GET_CHAIN, _NFGENMSG.pack(0, 0, 0))
        for message in listed.messages:
            family, chain = _opened(message)
            if _CHAIN_HOOK in chain:
                hook = _big(_part(attributes(chain[_CHAIN_HOOK]), _HOOK_NUMBER))
                found.update(Hook(each, hook) for each in (_TABLE_NAMES if family == _INET else (family,)))
        listed.check()
    return {hook for hook in found if hook.family in _TABLE_NAMES and hook.number in _HOOKS}


def _has_text(path: Path) -> bool:
    try:
        return bool(path.read_text().strip())
    except OSError:  # this kernel has none, or the module is not loaded
        return False


def drop_rules() -> list[DropRule]:
    """Return the rules of the namespace that the calling thread is in that drop packets, in the kernel's order.

    Raises
    ------
    OSError
        The kernel refuses, or its rules changed again and again while they were listed.
    FormatError
        Its answer cannot be decoded.
    """
    if not has_nftables():
        return []
    with Netlink(_NETLINK_NETFILTER) as netlink:
        body = _NFGENMSG.pack(0, 0, 0)
        chains, rules = netlink.dump(_GET_CHAIN, body), netlink.dump(_GET_RULE, body)
    return [*_of_chains(chains), *_of_rules(rules)]


def has_nftables() -> bool:
    """Return whether the kernel has nftables: to ask one that has it as a module would load that."""
    try:
        loaded = _MODULES.read_bytes()
    except FileNotFoundError:
        return True  # this kernel has no modules
    if b"\nnf_tables " in b"\n" + loaded:
        return True
    return _is_built_in()


@functools.cache
def _is_built_in() -> bool:
    return _BUILT_IN.exists() and b"/nf_tables.ko" in _BUILT_IN.read_bytes()


def _of_chains(listed: Listed) -> Iterator[DropRule]:
    for family, chain in _each(listed):
        if chain.get(_CHAIN_POLICY) == _NF_DROP:
            counters = attributes(chain[_CHAIN_COUNTERS]) if _CHAIN_COUNTERS in chain else None
            packets = _big(_part(counters, _COUNTER_PACKETS)) if counters else None
            table, name = (printable(_part(chain, each)) for each in (_CHAIN_TABLE, _CHAIN_NAME))
            yield DropRule(family, table, name, None, packets)


def _of_rules(listed: Listed) -> Iterator[DropRule]:
    for family, rule in _each(listed):
        expressions = [_expression(value) for _, value in each_attribute(rule.get(_RULE_EXPRESSIONS, b""))]
        table, chain = (printable(_part(rule, each)) for each in (_RULE_TABLE, _RULE_CHAIN))
        if expressions and _drops(*expressions[-1]):
            yield DropRule(family, table, chain, _big(_part(rule, _RULE_HANDLE)), _counted(expressions))
        elif any(name == "lookup" and data.get(_LOOKUP_DREG) == _REG_VERDICT for name, data in expressions):
            yield DropRule(family, table, chain, _big(_part(rule, _RULE_HANDLE)), None)


def _each(listed: Listed) -> Iterator[tuple[str, Mapping[int, bytes]]]:
    for message in listed.messages:
        family, found = _opened(message)
        yield _FAMILIES.get(family, str(family)), found
    listed.check()


def _opened(message: Message) -> tuple[int, Mapping[int, bytes]]:
    """Return the family that a message is of, and its attributes."""
    if len(message.body) < _NFGENMSG.size:
        raise FormatError(f"a message of nftables in {len(message.body)} bytes")
    family, _, _ = _NFGENMSG.unpack_from(message.body)
    return family, attributes(message.body[_NFGENMSG.size :])


def _part(found: Mapping[int, bytes], kind: int) -> bytes:
    """Return an attribute without which nothing can be said."""
    if kind not in found:
        raise FormatError(f"nftables does not send attribute {kind}")
    return found[kind]


def _expression(value: bytes) -> tuple[str, Mapping[int, bytes]]:
    found = attributes(value)
    return printable(_part(found, _EXPRESSION_NAME)), attributes(found.get(_EXPRESSION_DATA, b""))


def _drops(name: str, data: Mapping[int, bytes]) -> bool:
    """Return whether an expression drops each packet that comes to it; what is answered (reject) is dropped, too."""
    if name == "target":  # of iptables
        return data.get(_TARGET_NAME, b"").rstrip(b"\0") == b"REJECT"
    if name != "immediate":
        return name in _DROPPING
    verdict = attributes(attributes(data.get(_IMMEDIATE_DATA, b"")).get(_DATA_VERDICT, b""))
    return verdict.get(_VERDICT_CODE) == _NF_DROP


def _counted(expressions: list[tuple[str, Mapping[int, bytes]]]) -> int | None:
    """Return what a rule's counter says, if every packet that it counts comes to the verdict."""
    for name, data in reversed(expressions[:-1]):
        if name == "counter":
            return _big(_part(data, _COUNTER_PACKETS))
        if name not in _LETS_THROUGH:
            return None
    return None


def _big(value: bytes) -> int:
    """Return a number of nfnetlink, which is in network order."""
    return int.from_bytes(value, "big")
