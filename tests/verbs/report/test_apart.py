# SPDX-License-Identifier: Apache-2.0
"""Reports on hosts that were recorded apart say the same as those on one recording of all, within the clocks' bound."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tests.lab.apart import ANSWERED, ASKED, JOINED, MESSAGES, PORT, TOGETHER, recorded_apart, talk
from tests.lab.command import SCHEMAS, hopscope
from tests.lab.router import BEHIND, CLIENT, ROUTER, SERVER, SERVICE_PORT, load_rules, routed, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.router import Network

pytestmark = pytest.mark.root

Row = dict[str, Any]
POINTS = (
    "tx_send_ns", "tx_queue_ns", "tx_start_ns", "rx_driver_ns", "rx_core_ns", "rx_l4_ns", "rx_tcp_queue_ns",
    "rx_ready_ns", "sched_wake_ns", "sched_switch_ns", "rx_copy_ns", "rx_read_ns", "rx_received_ns",
)  # fmt: skip


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with routed() as network:
        yield network


def report(name: str, folder: Path, *options: object) -> list[Row]:
    done = hopscope("report", name, "--json", *options, folder)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    schema = json.loads((SCHEMAS / f"hopscope.report.{name}-1.schema.json").read_text())
    for row in rows:
        jsonschema.validate(row, schema)
    return rows


def by_flow(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the requests and answers of each flow and protocol in the order of time."""
    found = defaultdict(list)
    for row in sorted((row for row in rows if row["len_bytes"] > 1), key=lambda row: row["begin_ns"]):
        found[row["protocol"], row["flow_name"]].append(row)
    return found


def test_messages_are_the_same_within_the_bound(network: Network, tmp_path: Path) -> None:
    client, _, server = network
    with recorded_apart(tmp_path, {"a": client, "b": server}):
        talk(client, server, SERVER)
    joined, truth = (by_flow(report("messages", tmp_path / each)) for each in (JOINED, TOGETHER))
    assert joined.keys() == truth.keys()
    assert len(joined) == 4
    within, beyond = 0, 0
    for flow, rows in joined.items():
        assert len(rows) == len(truth[flow]) == MESSAGES
        for row, true in zip(rows, truth[flow], strict=True):
            assert (row["len_bytes"], row["until"]) == (true["len_bytes"], "rx.received")
            assert {row["sender_host"], row["receiver_host"]} == {"a", "b"}
            assert row["network_ns"] is None or row["network_ns"] > row["network_bound_ns"]
            assert ("order within the clocks' bound" in row["missing"]) == (row["network_ns"] is None)
            for point in POINTS:
                # That a reader was woken up, another recorder may see on the other side of the line.
                if row[point] is not None and true[point] is not None:
                    near = abs(row[point] - true[point]) <= row["network_bound_ns"]
                    within, beyond = within + near, beyond + (not near)
    # Two recorders stamp one after the other, and may be interrupted in between.
    assert beyond < 0.05 * within

    asked, once = (report("requests", tmp_path / each) for each in (JOINED, TOGETHER))
    assert len(asked) == len(once) == 2 * MESSAGES
    assert {(row["request_bytes"], row["answer_bytes"]) for row in asked} == {(ASKED, ANSWERED)}
    assert all(row["total_ns"] == row["request_ns"] + row["server_ns"] + row["answer_ns"] for row in asked)

    hops = {(row["host"], row["hop"]): row for row in report("hops", tmp_path / JOINED, "--by", "host")}
    for host in ("a", "b"):
        assert hops[host, "tx.start → rx.driver (network)"]["count"] >= 2 * MESSAGES
        assert hops[host, "rx.driver → rx.core"]["bound_ns"] is None


# Datagrams with these numbers are dropped between the hosts, 17 of them, and with these in the server's stack, 11.
BETWEEN = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)
INSIDE = tuple(range(60, 71))


def test_what_is_dropped_between_hosts_is_located(network: Network, tmp_path: Path) -> None:
    client, router, server = network
    numbers, inside = (", ".join(map(str, each)) for each in (BETWEEN, INSIDE))
    refused = load_rules(
        router,
        "table ip t { chain f { type filter hook forward priority 0;"
        f" ip daddr {SERVER} meta l4proto tcp ip length > 300 numgen inc mod 11 == 3 counter drop;"
        f" udp dport {PORT} @th,64,8 {{ {numbers} }} drop; }}; }}\n",
    ) or load_rules(
        server,
        "table ip t { chain f { type filter hook input priority 0;"
        f" udp dport {PORT} @th,64,8 {{ {inside} }} drop; }}; }}\n",
    )
    if refused:
        pytest.skip(f"no such rules here: {refused}")
    with recorded_apart(tmp_path, {"a": client, "b": server}, together=False):
        talk(client, server, SERVER, unanswered=[*BETWEEN, *INSIDE])
    listed = router.run(["nft", "list", "table", "ip", "t"], capture_output=True, text=True).stdout
    for host in (router, server):
        run(host, "nft delete table ip t")
    dropped = int(listed.split("counter packets ")[1].split()[0])
    assert dropped > 7
    rows = report("network", tmp_path / JOINED)
    found = {(row["from_host"], row["to_host"], row["protocol"]): row for row in rows}
    udp, tcp = found["a", "b", "udp"], found["a", "b", "tcp"]
    assert (udp["sent"], udp["lost"], udp["lost_bytes"], udp["unsure"]) == (MESSAGES, 17, 17 * ASKED, 0)
    assert (tcp["lost"], tcp["lost_bytes"]) == (dropped, dropped * ASKED)
    assert tcp["again"] >= dropped
    assert found["b", "a", "udp"]["sent"] == MESSAGES - len(BETWEEN) - len(INSIDE)
    assert not found["b", "a", "udp"]["lost"]
    whole = found["a", "b", None]
    assert (whole["lost"], whole["flow_name"]) == (17 + dropped, "all flows")
    assert udp["first_lost_ns"] < udp["last_lost_ns"]
    missing = Counter(
        row["missing"].split("rx.driver: ")[1].split(";")[0]
        for row in report("messages", tmp_path / JOINED)
        if row["protocol"] == "udp" and row["until"] == "tx.start"
    )
    assert missing == {"lost between a and b": 17}
    inside_b = [row for row in report("messages", tmp_path / JOINED) if "rx.l4: dropped before" in row["missing"]]
    assert len(inside_b) == len(INSIDE)


DNAT = f"type nat hook prerouting priority -100; meta l4proto {{ tcp, udp }} th dport {SERVICE_PORT} dnat to"
MASQUERADE = "chain out { type nat hook postrouting priority 100; oifname out0 masquerade; };"
# Who translates, by which rules, and where the client finds the service. A datagram that its own host translates at
# output is known by its packet alone.
NAT = {
    "router": ("router", f"{MASQUERADE} chain in {{ {DNAT} {SERVER}:{PORT}; }};", ROUTER, SERVICE_PORT),
    "output": (
        "client",
        f"chain o {{ {DNAT.replace('prerouting', 'output')} {SERVER}:{PORT}; }};",
        "10.96.0.1",
        SERVICE_PORT,
    ),
    "prerouting": ("server", f"chain in {{ {DNAT} :{PORT}; }};", SERVER, SERVICE_PORT),
}


@pytest.mark.parametrize("kind", NAT)
def test_messages_stay_whole_through_nat(kind: str, network: Network, tmp_path: Path) -> None:
    hosts = dict(zip(("client", "router", "server"), network, strict=True))
    where, rules, host, port = NAT[kind]
    refused = load_rules(hosts[where], f"table ip t {{ {rules} }}\n")
    if refused:
        pytest.skip(f"no NAT here: {refused}")
    try:
        with recorded_apart(tmp_path, hosts, together=False):
            talk(hosts["client"], hosts["server"], host, port)
    finally:
        run(hosts[where], "nft delete table ip t")
    rows = report("messages", tmp_path / JOINED)
    asked = [row for row in rows if row["len_bytes"] == ASKED]
    answered = [row for row in rows if row["len_bytes"] == ANSWERED]
    assert (len(asked), len(answered)) == (2 * MESSAGES, 2 * MESSAGES)
    assert {(row["sender_host"], row["receiver_host"], row["until"]) for row in asked} == {
        ("client", "server", "rx.received")
    }
    assert {(row["sender_host"], row["receiver_host"], row["until"]) for row in answered} == {
        ("server", "client", "rx.received")
    }
    assert None not in {
        row[name] for row in rows for name in ("tx_queue_ns", "tx_start_ns", "rx_driver_ns", "rx_l4_ns")
    }
    source = BEHIND if kind == "router" else CLIENT
    for row in asked:
        last = row["translated_to"] or row["flow_name"]
        assert last.startswith(f"{source}:")
        if row["protocol"] == "tcp":
            assert last.endswith(f" > {SERVER}:{PORT}")
            assert row["flow_name"].endswith(f" > {host}:{port}")
    assert len(report("requests", tmp_path / JOINED)) == 2 * MESSAGES
    legs = {
        (row["from_host"], row["to_host"]): row for row in report("network", tmp_path / JOINED) if row["flow"] is None
    }
    assert set(legs) == {("client", "router"), ("router", "client"), ("router", "server"), ("server", "router")}
    assert {row["lost"] for row in legs.values()} == {0}


def test_translation_by_a_host_that_was_not_recorded_is_said(network: Network, tmp_path: Path) -> None:
    client, router, server = network
    refused = load_rules(router, f"table ip t {{ {MASQUERADE} }}\n")
    if refused:
        pytest.skip(f"no NAT here: {refused}")
    try:
        with recorded_apart(tmp_path, {"a": client, "r": router, "b": server}, together=False):
            talk(client, server, SERVER)
    finally:
        run(router, "nft delete table ip t")
    joined = tmp_path / "two"
    done = hopscope("join", tmp_path / "a", tmp_path / "r", "-o", joined)
    assert done.returncode == 0, done.stderr
    shown = hopscope("report", "messages", joined).stdout
    assert "were not read" in shown
    rows = report("messages", joined)
    assert all("not on any recorded host" in row["missing"] for row in rows if row["sender_host"] == "a")
