# SPDX-License-Identifier: Apache-2.0
"""Filters against ss's own on the same sockets: the same set, whatever the expression."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import UsageError
from hopscope.kernel.sockets.address import ends
from hopscope.kernel.sockets.filter import Autobound, parts
from hopscope.kernel.sockets.filter_parse import ALL, parse
from hopscope.kernel.sockets.namespaces import SocketReader
from hopscope.kernel.sockets.sock_diag import Request
from hopscope.kernel.sockets.table import TCP
from hopscope.lab import Namespace
from hopscope.live.lookup import cgroups
from hopscope.verbs.sockets.report import report
from tests.kernel.sockets.ss_lines import names

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

SO_MARK, SO_BINDTODEVICE = 36, 25
PORTS = ("1000", "2000", "2001", "2002", "40000", "0", "65535", "http")
V4 = ("10.9.0.1", "10.9.0.2", "10.9.1.1", "127.0.0.1", "192.0.2.9")
V6 = ("fd09::1", "fd09::2", "fd0a::1", "::1")
MAPPED = ("::ffff:10.9.0.1", "::ffff:10.9.1.1")


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made, contextlib.ExitStack() as stack:
        for argv in (
            ["ip", "link", "add", "here0", "type", "bridge"],
            ["ip", "link", "set", "here0", "up"],
            *(
                ["ip", "addr", "add", f"{address}/24", "dev", "here0"]
                for address in ("10.9.0.1", "10.9.0.2", "10.9.1.1")
            ),
            *(
                ["ip", "addr", "add", f"{address}/64", "dev", "here0", "nodad"]
                for address in ("fd09::1", "fd09::2", "fd0a::1")
            ),
        ):
            made.run(argv, check=True)
        made.call(fill, stack)
        yield made


def fill(stack: contextlib.ExitStack) -> None:
    def opened(family: int, address: str, port: int, *options: tuple[int, int, object]) -> socket.socket:
        sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option in options:
            sock.setsockopt(*option)  # type: ignore[call-overload]
        sock.bind((address, port))
        return sock

    def connected(listener: socket.socket, address: str, source: socket.socket | None = None) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        client = source or stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        client.connect((address, listener.getsockname()[1]))
        stack.enter_context(listener.accept()[0])

    v4 = opened(socket.AF_INET, "0.0.0.0", 1000)  # noqa: S104 # in a namespace of its own
    dual = opened(socket.AF_INET6, "::", 2000)
    v6 = opened(socket.AF_INET6, "fd09::1", 2001)
    bound = opened(socket.AF_INET, "10.9.0.1", 2001, (socket.SOL_SOCKET, SO_BINDTODEVICE, b"here0"))
    marked = opened(socket.AF_INET, "10.9.1.1", 2002, (socket.SOL_SOCKET, SO_MARK, 0x13))
    automatic = opened(socket.AF_INET, "127.0.0.1", 0)
    for listener in (v4, dual, v6, bound, marked, automatic):
        listener.listen()
    for address in ("10.9.0.1", "10.9.0.2", "127.0.0.1"):
        connected(v4, address)
    for address in ("10.9.0.1", "fd09::2", "::1", "::ffff:10.9.0.2"):
        connected(dual, address)
    connected(v6, "fd09::1")
    connected(v6, "fd09::1", opened(socket.AF_INET6, "fd0a::1", 40000))
    connected(marked, "10.9.1.1", opened(socket.AF_INET, "10.9.1.1", 40000, (socket.SOL_SOCKET, SO_MARK, 0x23)))


def ours(namespace: Namespace, words: list[str]) -> set[tuple[str, str]]:
    chosen = parse(words, lambda path: cgroups([path])[0])
    autobound = any(isinstance(part, Autobound) for part in parts(chosen.condition))
    wanted = ALL if chosen.states is None else chosen.states
    sockets = SocketReader([Request(TCP, wanted)], [namespace.inode], autobound=autobound).read()
    found = report(sockets, chosen, None, kind="snapshot", started_ns=0, duration_s=None).head(0).sockets
    return set(zip(ends(found, "local"), ends(found, "peer"), strict=True))


def theirs(namespace: Namespace, words: list[str]) -> set[tuple[str, str]]:
    return names(namespace, "-t", "-a", *words)


hosts = st.one_of(
    st.sampled_from(V4),
    st.tuples(st.sampled_from(V4), st.integers(8, 32)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    st.sampled_from(("10.9/16", "10/8", "*", "any")),
    st.sampled_from(V6 + MAPPED).map(lambda text: f"[{text}]"),
    # In user space ss takes 0.0.0.0 for an address of IPv6, and for one that begins with zeros.
    st.tuples(st.sampled_from(V6[:3]), st.integers(8, 128)).map(lambda pair: f"[{pair[0]}/{pair[1]}]"),
    st.tuples(st.sampled_from(MAPPED), st.integers(100, 128)).map(lambda pair: f"[{pair[0]}/{pair[1]}]"),
)
ends_and_ports = st.tuples(hosts, st.sampled_from(PORTS)).map(lambda pair: f"{pair[0]}:{pair[1]}")
comparisons = st.sampled_from(("=", "!=", "<", ">", "<=", ">=", "eq", "ne", "lt", "gt", "le", "ge", "neq", "=="))
predicates = st.one_of(
    st.tuples(
        st.sampled_from(("src", "dst")), st.sampled_from(((), ("=",), ("eq",))), st.one_of(hosts, ends_and_ports)
    ).map(lambda each: [each[0], *each[1], each[2]]),
    st.tuples(st.sampled_from(("sport", "dport")), comparisons, st.sampled_from(PORTS)).map(
        lambda each: [each[0], each[1], f":{each[2]}"]
    ),
    st.sampled_from(
        (
            ["dev", "here0"],
            ["dev", "!=", "here0"],
            ["fwmark", "=", "0x13"],
            ["fwmark", "0x3/0x3"],
            ["fwmark", "!=", "0x10/0x30"],
        )
    ),
)
expressions = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(("and", "or", "&&", "||", "&", "|", "")), inner).map(
            lambda each: ["(", *each[0], *([each[1]] if each[1] else []), *each[2], ")"]
        ),
        st.tuples(st.sampled_from(("not", "!")), inner).map(lambda each: [each[0], "(", *each[1], ")"]),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=80)
@given(expression=expressions)
def test_any_expression_chooses_the_sockets_that_ss_chooses(namespace: Namespace, expression: list[str]) -> None:
    assert ours(namespace, expression) == theirs(namespace, expression)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["state", "established"],
        ["state", "listening"],
        ["state", "listening", "state", "established", "dport", "=", ":2000"],
        ["exclude", "listening"],
        ["exclude", "established", "src", "10.9.0.1"],
        ["state", "connected"],
        ["state", "synchronized"],
        ["state", "big"],
        ["state", "bucket"],
        ["state", "all"],
        ["autobound"],
        ["autobound", "or", "sport", "=", ":2000"],
        ["cgroup", "/"],
        ["( dport = :2000 or sport = :2000 )", "dst", "10.9/16"],
        ["sport", "1000"],
        ["src", "inet6:[fd09::1]"],
    ],
)
def test_states_and_the_rest_choose_the_sockets_that_ss_chooses(namespace: Namespace, words: list[str]) -> None:
    expected = theirs(namespace, words) if words != ["cgroup", "/"] else theirs(namespace, [])
    found = ours(namespace, words)
    if words == ["cgroup", "/"]:
        assert found <= expected
    else:
        assert found == expected
        assert found or words == ["state", "bucket"]


def test_unspecified_address_of_one_family_is_not_that_of_the_other(namespace: Namespace) -> None:
    assert ours(namespace, ["src", "[::]"]) == theirs(namespace, ["src", "[::]"]) == {("*:2000", "*:*")}
    # ss takes both for one where it is negated.
    assert ours(namespace, ["not", "src", "[::]"]) == ours(namespace, []) - {("*:2000", "*:*")}


def test_or_binds_less_than_and_as_the_manual_of_ss_says(namespace: Namespace) -> None:
    words = ["sport", "=", ":1000", "or", "sport", "=", ":2000", "and", "dst", "10.9.0.1"]
    assert ours(namespace, words) == theirs(namespace, [*words[:4], "(", *words[4:], ")"])
    assert ours(namespace, words) > theirs(namespace, ["(", *words[:7], ")", *words[7:]])


def test_not_autobound_is_the_rest(namespace: Namespace) -> None:
    chosen, others = ours(namespace, ["autobound"]), ours(namespace, ["not", "autobound"])
    assert chosen
    assert not chosen & others
    assert chosen | others == ours(namespace, [])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["state"], "A state is missing after `state`"),
        (["state", "open"], "There is no state `open`"),
        (["dport"], "ends too soon"),
        (["dport", "=", ":99999"], r"`:99999` \(word 3\) is not a valid port"),
        (["dport", "=", "nosuchservice"], "is not a valid port"),
        (["src", "10.9.0.300"], "is not a valid address"),
        (["src", "[fd09::1"], "is not a valid address in brackets"),
        (["src", "10.9.0.1/33"], "is not a valid address"),
        (["src", ">=", "10.9.0.1"], "`>=` .* is not supported by `src`"),
        (["( sport = :1"], "ends too soon"),
        (["sport = :1 )"], r"`\)` \(word 4\) is not expected"),
        (["sport = :1 and"], "ends too soon"),
        (["or"], "`or` .* is not a condition"),
        (["fwmark", "red"], "is not a valid mark"),
        (["fwmark", "1/red"], "is not a valid mask of a mark"),
        (["cgroup", "/no/such/cgroup"], "cgroup"),
        (["("] * 200, "more than 100 nested conditions"),
        (["src", "no.such.host.invalid"], "nor the name of a host"),
    ],
)
def test_wrong_filter_is_refused_in_a_sentence(words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse(words, lambda path: cgroups([path])[0])
    assert "\n" not in str(caught.value)


@given(
    st.lists(
        st.one_of(predicates.map(" ".join), st.text(max_size=8), st.sampled_from(("(", ")", "!", "and", "or"))),
        max_size=8,
    )
)
def test_any_words_are_a_filter_or_are_refused(words: list[str]) -> None:
    def no_cgroup(path: str) -> int:
        raise UsageError(f"There is no cgroup {path}")

    def no_look_up(*_: object) -> list[object]:
        raise OSError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", no_look_up)
        with contextlib.suppress(UsageError):
            parse(words, no_cgroup)
