# SPDX-License-Identifier: Apache-2.0
"""The dashboard is what its script makes, and a real Prometheus answers each of its queries with known traffic."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.lab.command import only
from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.verbs.serve.served import prometheus, serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from tests.verbs.serve.served import Prometheus

FOLDER: Final = Path(__file__).resolve().parents[2] / "examples" / "grafana"
DASHBOARD: Final[dict[str, Any]] = json.loads((FOLDER / "hopscope.json").read_text())
PANELS: Final[list[dict[str, Any]]] = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
EXPRESSIONS: Final = sorted({target["expr"] for panel in PANELS for target in panel["targets"]})
VARIABLES: Final = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
# What Grafana puts in; all is selected.
BUILT_IN: Final = {"__rate_interval": "60s", "__range": "60s"}
# Those that are empty where all is well.
MAY_BE_EMPTY: Final = re.compile(r"hopscope_finding_places|_discarded_samples_total|hopscope_point_attached")
LATE_S: Final = 0.1
# The classic bucket that has this begins there.
LATE_BUCKET_S: Final = 0.0625


def filled_in(query: str) -> str:
    """Return a query as Grafana sends it."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return BUILT_IN[name] if name in BUILT_IN else str(VARIABLES[name]["allValue"])

    return re.sub(r"\$(\w+)", value, query)


def test_the_dashboard_is_what_its_script_makes() -> None:
    made = subprocess.run([sys.executable, FOLDER / "dashboard.py"], stdout=subprocess.PIPE, text=True, check=True)
    assert made.stdout == (FOLDER / "hopscope.json").read_text()


def test_what_legends_name_is_a_label_of_the_result() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            labels = {each.strip() for by in re.findall(r"by \((.*?)\)", target["expr"]) for each in by.split(",")}
            assert named <= labels | ({"instance"} if " by " not in target["expr"] else set()), target


@pytest.fixture(scope="module", params=[True, False], ids=["native", "classic"])
def asked(
    kept_lab: Lab, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Prometheus]:
    """A Prometheus that reads a service with groups and a budget, and one that measures all; traffic has been there."""
    fast = [*only(kept_lab), "-i", "0.5"]
    folder = tmp_path_factory.mktemp("grafana") / "data"
    with (
        serving(*fast, "--group-by=interface", "--budget=100") as grouped,
        serving(*fast, "--collect=rx", "--collect=cpu") as whole,
        prometheus(folder, {"grouped": _job(grouped.port), "whole": _job(whole.port)}, native=request.param) as made,
        traffic(kept_lab) as send,
    ):

        def is_there() -> bool:
            send()
            for each in (grouped, whole):
                assert each.child.poll() is None, each.child.stderr and each.child.stderr.read()
            return all(made.ask(filled_in(each)) for each in EXPRESSIONS if not MAY_BE_EMPTY.search(each))

        eventually(is_there, "a query has no data")
        yield made


def _job(port: int) -> dict[str, Any]:
    return {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}


@contextlib.contextmanager
def traffic(lab: Lab) -> Iterator[Any]:
    """Give a function that sends what is read at once, what is read late, and what nobody reads."""
    with (
        udp_pair(way(lab, "veth-4")) as udp,
        tcp_pair(way(lab, "veth-4")) as tcp,
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as stray,
    ):

        def send() -> None:
            ping(*tcp, 20)
            sender, receiver = udp
            for _ in range(3):
                sender.send(b"late")
            time.sleep(LATE_S)
            for _ in range(3):
                receiver.recv(100)
            for _ in range(23):
                stray.sendto(b"x", ("10.77.0.2", 9))

        yield send


@pytest.mark.root
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_query_can_be_answered(asked: Prometheus, expression: str) -> None:
    found = asked.ask(filled_in(expression))
    assert found or MAY_BE_EMPTY.search(expression)


@pytest.mark.root
def test_variables_have_what_services_are_grouped_by(asked: Prometheus) -> None:
    values = {}
    for name, variable in VARIABLES.items():
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            found = asked.ask(f"count by (kind) (label_replace({filled_in(series)}, 'kind', '$1', '{label}', '(.*)'))")
            values[name] = {json.loads(each).get("kind") for each in found} - {None}
    assert values["instance"] == {f"127.0.0.1:{port}" for port in _ports(asked)}
    assert "server0" in values["interface"]
    assert values["namespace"]
    assert values["cgroup"] == values["k8s_pod"] == set()


def _ports(asked: Prometheus) -> list[str]:
    found = asked.ask("label_replace(up, 'kind', '$1', 'instance', '.*:(.*)')")
    return [json.loads(each)["kind"] for each in found]


@pytest.mark.root
def test_what_is_wrong_is_shown(asked: Prometheus) -> None:
    def of(title: str) -> dict[str, float]:
        (panel,) = [each for each in PANELS if each["title"] == title]
        return asked.ask(filled_in(panel["targets"][0]["expr"]))

    (late,) = of("99 % of packets read within").values()
    assert late >= LATE_BUCKET_S
    rows = of("Most dropped packets in the selected time")
    dropped = {json.loads(labels)["reason"]: count for labels, count in rows.items()}
    assert max(dropped, key=lambda reason: dropped[reason]) == "NO_SOCKET"
    assert set(of("Collectors that do not measure").values()) == {0}
    assert list(of("Share of packets measured").values()) == pytest.approx([1])
