# SPDX-License-Identifier: Apache-2.0
"""``hopscope drops`` on drops whose number and reason are known."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from tests.lab.command import assert_fits, complaint, hopscope, objects, only

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.command import Json

pytestmark = pytest.mark.root
RULED, CLOSED = 1009, 101
_RULED_PORT, _CLOSED_PORT = 7777, 7778
RULED_RULE = f"udp dport {_RULED_PORT} drop"
_CHAIN = "add chain ip t in { type filter hook input priority 0; }"


@pytest.fixture(scope="module")
def kept_lab() -> Iterator[Lab]:
    """The network, whose server drops what comes to one port and has nobody at the other."""
    with Lab() as made:
        rule = f"add table ip t; {_CHAIN}; add rule ip t in {RULED_RULE}"
        made.server.run(["nft", rule])
        yield made


def sending(kept_lab: Lab) -> list[str]:
    """Return the words of a command that has so many datagrams dropped for each reason."""
    send = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({RULED}):
    sender.sendto(b"x", ("{SERVER_IPV4}", {_RULED_PORT}))
for _ in range({CLOSED}):
    sender.sendto(b"x", ("{SERVER_IPV4}", {_CLOSED_PORT}))
"""
    return ["--", "nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", sys.executable, "-c", send]


def by(rows: list[Json], *keys: str) -> dict[tuple[str, ...], int]:
    return {tuple(row["group"][key] for key in keys): row["packets"] for row in rows}


def test_each_reason_has_its_count_and_place(kept_lab: Lab) -> None:
    done = hopscope("drops", "--json", *only(kept_lab), "-g", "reason", "-g", "location", *sending(kept_lab))
    assert done.returncode == 0, done.stderr
    *intervals, total = objects(done.stdout)
    for each in (*intervals, total):
        assert_fits(each, "drops-1")
        assert each["dropped"] == sum(row["packets"] for row in each["rows"])
    assert by(total["rows"], "reason") == {("NETFILTER_DROP",): RULED, ("NO_SOCKET",): CLOSED}
    ((place, count),) = ((place, count) for (place,), count in by(total["rows"], "location").items() if "nft" in place)
    assert count == RULED
    # A drop is at a call within the function.
    assert re.fullmatch(r"nft_do_chain\+0x[0-9a-f]+( \(net/\S+:\d+\))?", place), place
    assert total["lost"] == 0
    assert sum(each["dropped"] for each in intervals) == total["dropped"] == RULED + CLOSED


def test_functions_are_counted_without_the_instruction(kept_lab: Lab) -> None:
    done = hopscope("drops", "--json", *only(kept_lab), "-g", "function", *sending(kept_lab))
    functions = {function: count for (function,), count in by(objects(done.stdout)[-1]["rows"], "function").items()}
    assert functions.pop("nft_do_chain") == RULED
    assert functions == {"__udp4_lib_rcv": CLOSED}


def test_only_rule_that_drops_is_named(kept_lab: Lab) -> None:
    done = hopscope("drops", "--json", *only(kept_lab), *sending(kept_lab))
    *intervals, total = objects(done.stdout)
    rule = f"ip t in handle {handle(kept_lab, RULED_RULE)}"
    where = rf"1,009 packets in namespace {kept_lab.server.pid} \(.*\)"
    assert re.fullmatch(rf"{where} dropped by the nftables rule {rule}", *total["notes"])
    named = [note for each in intervals for note in each["notes"]]
    assert all(note.endswith(total["notes"][0].partition(" dropped ")[2]) for note in named)


@pytest.mark.parametrize("counter", ["counter ", ""])
def test_of_several_rules_counters_say_which_one_it_was(counter: str) -> None:
    rules = [f"udp dport {port} {counter}drop" for port in (_RULED_PORT, 9, 10)]
    with Lab() as lab:
        lab.server.run(["nft", "; ".join(["add table ip t", _CHAIN, *(f"add rule ip t in {rule}" for rule in rules)])])
        *_, total = objects(hopscope("drops", "--json", *only(lab), *sending(lab)).stdout)
        handles = [f"ip t in handle {handle(lab, rule)}" for rule in rules]
    (note,) = total["notes"]
    which = f"the nftables rule {handles[0]}" if counter else f"one or more of the nftables rules {', '.join(handles)}"
    assert note.endswith(f" dropped by {which}")


def handle(lab: Lab, rule: str) -> int:
    """Return the number of a rule as nft lists it."""
    listed = lab.server.run(["nft", "-a", "list", "chain", "ip", "t", "in"], capture_output=True, text=True).stdout
    pattern = re.escape(rule).replace("counter", r"counter packets [0-9]+ bytes [0-9]+")
    (found,) = re.findall(rf"\t{pattern} # handle ([0-9]+)", listed)
    return int(found)


def test_flow_has_both_ends(kept_lab: Lab) -> None:
    done = hopscope("drops", "--json", *only(kept_lab), "-g", "flow", *sending(kept_lab))
    *_, total = objects(done.stdout)
    found = {flow: count for (flow,), count in by(total["rows"], "flow").items()}
    assert sorted(found.values()) == [CLOSED, RULED]
    assert all(flow.startswith(f"udp {CLIENT_IPV4}:") for flow in found)
    assert {flow.rpartition(" > ")[2] for flow in found} == {
        f"{SERVER_IPV4}:{_RULED_PORT}",
        f"{SERVER_IPV4}:{_CLOSED_PORT}",
    }


def test_interface_and_namespace_are_where_the_packet_was(kept_lab: Lab) -> None:
    done = hopscope("drops", "--json", *only(kept_lab), "-g", "interface", "-g", "netns", *sending(kept_lab))
    *_, total = objects(done.stdout)
    ((interface, netns),) = by(total["rows"], "interface", "netns")
    assert interface.startswith("server0@")
    assert str(kept_lab.server.pid) in netns


def test_filter_leaves_out_the_rest(kept_lab: Lab) -> None:
    done = hopscope("drops", "--json", *only(kept_lab), "--port", _CLOSED_PORT, "-g", "reason", *sending(kept_lab))
    *_, total = objects(done.stdout)
    assert by(total["rows"], "reason") == {("NO_SOCKET",): CLOSED}


def test_table_fits_and_says_what_is_left_out(kept_lab: Lab) -> None:
    done = hopscope("drops", *only(kept_lab), "--interval", 60, "--limit", 1, *sending(kept_lab))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].endswith(f"{RULED + CLOSED:,} packets")
    assert lines[2].split()[:2] == [f"{RULED:,}", "NETFILTER_DROP"]
    assert lines[2].split()[2].startswith("nft_do_chain+0x")
    assert lines[3] == f"and 1 more with {CLOSED} packets (--limit)"


def test_nothing_dropped_is_said(kept_lab: Lab) -> None:
    done = hopscope("drops", *only(kept_lab), "-d", 0.2)
    assert "No packets were dropped." in done.stdout
    assert done.returncode == 0


def test_wrong_group_is_one_sentence() -> None:
    assert "'colour' is not one of" in complaint(hopscope("drops", "-g", "colour"), 2)
