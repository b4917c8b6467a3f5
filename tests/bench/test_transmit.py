# SPDX-License-Identifier: Apache-2.0
"""The conditions under which sending is measured: each tool follows what its name says, and no other flow."""

from __future__ import annotations

import pytest

from bench import traffic, transmit
from bench.changes import changes_table
from bench.tools import ToolError
from bench.transmit import CONDITIONS, METRICS, figures
from hopscope.lab import Namespace
from tests import again


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transmit, "_LOAD_S", 0.1)


def test_table_fits_the_terminal() -> None:
    rounds = [
        {name: {key: metric.unit * 999 * factor for key, metric in METRICS.items()} for name in CONDITIONS}
        for factor in (0.01, 0.1, 3)
    ]
    assert max(map(len, changes_table(rounds, METRICS).splitlines())) < 80


@pytest.mark.root
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("cpus", [1, 2])
def test_selected_flow_is_the_one_that_is_measured(cpus: int) -> None:
    with Namespace() as namespace:
        measured = again.until(lambda found: min(found.values()) > 0, lambda: figures(namespace, "selected", cpus))
    assert set(measured) <= set(METRICS)
    assert min(measured.values()) > 0


@pytest.mark.root
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["other flow", "everything"])
def test_other_flow_is_not_the_one_that_is_measured(name: str) -> None:
    with Namespace() as namespace, Namespace() as other:
        with traffic.beside(other, transmit.BESIDE):
            again.until(lambda _: True, lambda: figures(namespace, name, 1))
        with pytest.raises(ToolError, match=r"hopscope tx printed no .*tx"):
            figures(namespace, name, 1)


@pytest.mark.root
def test_application_reads_stamps_of_its_own() -> None:
    with Namespace() as namespace:
        assert traffic.ask(namespace, 0.1, cpus=1, setup=transmit.setup("application", 64)).stamps > 0
        assert traffic.ask(namespace, 0.1, cpus=1, setup=transmit.setup("selected", 64)).stamps == 0
