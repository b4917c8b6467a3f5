# SPDX-License-Identifier: Apache-2.0
"""What numbers mean is known for as long as it is needed, and forgotten afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopscope.verbs.serve.flight_names import Names

Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]


def flows(*numbers: int) -> Columns:
    """Return rows of flows with these numbers."""
    count = len(numbers)
    addresses = {
        name: np.array([f"10.0.0.{number}" for number in numbers], object) for name in ("source", "destination")
    }
    ports = {name: np.full(count, 7, np.int32) for name in ("source_port", "destination_port")}
    return {"flow": np.array(numbers, np.int64), **addresses, **ports, "protocol": np.full(count, 17, np.int16)}


def thread(time_ns: int, comm: str) -> Columns:
    texts = {"comm": np.array([comm], object), "cgroup_path": np.array([""], object)}
    numbers = {"time_ns": np.array([time_ns]), "cgroup": np.array([0])}
    return {**numbers, **{name: np.array([5], np.int32) for name in ("tid", "pid")}, **texts}


def known(names: Names, table: str, column: str) -> list[Any]:
    """Return a column of all rows of a table."""
    return [value for name, columns in names.rows() if name == table for value in columns[column].tolist()]


def test_names_outlast_a_turn_and_not_two() -> None:
    names = Names()
    names.add("flows", flows(1, 2))
    names.turn()
    names.add("flows", flows(2, 3))
    assert (known(names, "flows", "flow"), len(names)) == ([1, 2, 3], 4)
    assert known(names, "flows", "source") == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    names.turn()
    assert known(names, "flows", "flow") == [2, 3]
    names.turn()
    assert known(names, "flows", "flow") == []


def test_what_is_said_again_takes_no_room_and_what_changes_is_kept_with_its_time() -> None:
    names = Names()
    for at, comm in enumerate(("sh", "sh", "nginx", "nginx", "sh")):
        names.add("threads", thread(at, comm))
    names.turn()
    names.add("threads", thread(9, "sh"))
    found = list(zip(known(names, "threads", "time_ns"), known(names, "threads", "comm"), strict=True))
    assert found == [(0, "sh"), (2, "nginx"), (4, "sh")]


def test_symbols_stay_as_nobody_says_them_again() -> None:
    names = Names()
    symbols = {"address": np.array([7]), "name": np.array(["kfree_skb"], object)}
    names.add("symbols", symbols)
    for _ in range(3):
        names.turn()
    assert known(names, "symbols", "name") == ["kfree_skb"]
