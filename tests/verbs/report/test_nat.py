# SPDX-License-Identifier: Apache-2.0
"""Messages of a real recording whose packets a router on this host translates: each is followed to its read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.command import hopscope
from tests.lab.router import (
    BEHIND,
    CLIENT,
    LEN_BYTES,
    MESSAGES,
    PORT,
    ROUTER,
    SERVER,
    SERVICE_PORT,
    load_rules,
    record,
    routed,
    run,
    ways,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.router import Network

pytestmark = pytest.mark.root

DNAT = f"type nat hook prerouting priority -100; meta l4proto {{ tcp, udp }} th dport {SERVICE_PORT} dnat to"
KINDS = {
    "masquerade": "chain out { type nat hook postrouting priority 100; oifname out0 masquerade; };",
    "dnat": f"chain in {{ {DNAT} {SERVER}:{PORT}; }};",
}
KINDS["both"] = " ".join(KINDS.values())
# The client translates for itself, as hosts do for services of theirs.
VIRTUAL = "10.96.0.1"
KINDS["output"] = f"chain o {{ {DNAT.replace('prerouting', 'output')} {SERVER}:{PORT}; }};"
SERVICES = {"masquerade": (SERVER, PORT), "output": (VIRTUAL, SERVICE_PORT)}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with routed() as network:
        yield network


@pytest.fixture(params=KINDS)
def recorded(request: pytest.FixtureRequest, network: Network, tmp_path: Path) -> tuple[str, Path]:
    client, router, _ = network
    host = client if request.param == "output" else router
    refused = load_rules(host, f"table ip t {{ {KINDS[request.param]} }}\n")
    if refused:
        pytest.skip(f"no NAT here: {refused}")
    record(network, tmp_path / "trace", *service_of(request.param))
    run(host, "nft delete table ip t")
    return request.param, tmp_path / "trace"


def service_of(kind: str) -> tuple[str, int]:
    return SERVICES.get(kind, (ROUTER, SERVICE_PORT))


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_all_messages_are_followed_through_nat(recorded: tuple[str, Path], protocol: str) -> None:
    kind, folder = recorded
    done = hopscope("report", "messages", "--json", folder)
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [row for row in rows if row["protocol"] == protocol]
    assert len(rows) == MESSAGES
    assert {(row["len_bytes"], row["until"]) for row in rows} == {(LEN_BYTES, "rx.received")}
    assert None not in {
        row[name] for row in rows for name in ("tx_queue_ns", "rx_driver_ns", "rx_l4_ns", "rx_ready_ns")
    }
    (before,), (after,) = ({row[name] for row in rows} for name in ("flow_name", "translated_to"))
    if (kind, protocol) == ("output", "udp"):
        assert before.endswith(f" > {SERVER}:{PORT}")  # a datagram is known by its packet
        return
    service = ":".join(map(str, service_of(kind)))
    source = CLIENT if kind in {"dnat", "output"} else BEHIND
    assert before.startswith(f"{CLIENT}:")
    assert before.endswith(f" > {service}")
    assert after.startswith(f"{source}:")
    assert after.endswith(f" > {SERVER}:{PORT}")


THROUGH = [
    "tx.queue far0", "tx.start far0", "rx.driver in0", "rx.core in0", "tx.queue out0", "tx.start out0",
    "rx.driver far0", "rx.core far0", "rx.l4 far0",
]  # fmt: skip


def test_each_packet_goes_one_way_through_the_router(recorded: tuple[str, Path]) -> None:
    kind, folder = recorded
    service = ":".join(map(str, (SERVER, PORT) if kind == "output" else service_of(kind)))
    sent = {name: found for name, found in ways(folder).items() if name.startswith(f"{CLIENT}:")}
    assert all(name.endswith(f" > {service}") for name in sent)
    assert sorted(map(len, sent.values())) == [MESSAGES, MESSAGES]  # of TCP and of UDP
    for found in sent.values():
        assert [points[: len(THROUGH)] for points in found] == [THROUGH] * MESSAGES
