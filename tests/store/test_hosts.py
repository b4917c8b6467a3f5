# SPDX-License-Identifier: Apache-2.0
"""A recording of several hosts on disk: what is written is read, whoever writes it and wherever it stops."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.errors import FormatError, UsageError
from hopscope.store.hosts import FILE, PROBES, Absence, Hosts, HostsWriter, Pair, RecordedHost, is_of_hosts
from hopscope.store.probes import read_probes

if TYPE_CHECKING:
    from pathlib import Path


def probes(count: int, first: int = 0) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return {column.name: numbers.astype(column.dtype) for column in PROBES.columns}


def test_a_host_that_comes_back_has_a_part_more(tmp_path: Path) -> None:
    with HostsWriter(tmp_path / "r", [("a", "root@a"), ("b", "local")]) as writer:
        first = writer.part("a")
        writer.part("b")
        assert writer.pair("a", "b") == 0
        writer.absent("a", 5_000, None, "the connection broke")
        assert Hosts.read(tmp_path / "r").hosts[0].absences == [Absence(5_000, None, "the connection broke")]
        writer.absent("a", 5_000, 9_000, "the connection broke")
        second = writer.part("a")
        assert writer.pair("a", "b") == 1
        writer.absent("a", 12_000, None, "it was killed")
    assert (first.name, second.name) == ("a", "a.2")
    found = Hosts.read(tmp_path / "r")
    absences = [Absence(5_000, 9_000, "the connection broke"), Absence(12_000, None, "it was killed")]
    assert found.hosts == [RecordedHost("a", "root@a", ["a", "a.2"], absences), RecordedHost("b", "local", ["b"])]
    assert found.pairs == [Pair((0, 1), (0, 0)), Pair((0, 1), (1, 0))]
    assert found.state == "complete"
    assert is_of_hosts(tmp_path / "r")
    assert not is_of_hosts(tmp_path)


def test_a_host_that_is_called_as_another_ones_second_part_keeps_its_folder(tmp_path: Path) -> None:
    with HostsWriter(tmp_path / "r", [("a", ""), ("a.2", "")]) as writer:
        assert [writer.part(name).name for name in ("a", "a", "a.2", "a")] == ["a", "a.3", "a.2", "a.4"]


def test_probes_of_several_threads_are_all_there(tmp_path: Path) -> None:
    with HostsWriter(tmp_path / "r", [("a", ""), ("b", "")]) as writer:
        threads = [
            threading.Thread(
                target=lambda start=start: [writer.append(probes(10, start + n)) for n in range(0, 100, 10)]
            )
            for start in (0, 100)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read_probes(tmp_path / "r")
    assert sorted(found["sent_ns"]) == list(range(200))
    assert found["way"].dtype == np.int8


def test_a_recording_without_probes_has_none(tmp_path: Path) -> None:
    HostsWriter(tmp_path / "r", [("a", "")]).close()
    assert len(read_probes(tmp_path / "r")["pair"]) == 0


def test_what_was_written_before_the_recorder_was_killed_is_read(tmp_path: Path) -> None:
    writer = HostsWriter(tmp_path / "r", [("a", "")])
    writer.append(probes(3))
    writer._files.flush()
    (tmp_path / "r" / "probes" / "000002.parquet").write_bytes(b"PAR1 cut off")
    assert Hosts.read(tmp_path / "r").state == "recording"
    assert len(read_probes(tmp_path / "r")["pair"]) == 3
    writer.close()


def test_probes_that_are_damaged_are_told(tmp_path: Path) -> None:
    with HostsWriter(tmp_path / "r", [("a", "")]) as writer:
        writer.append(probes(3))
    file = tmp_path / "r" / "probes" / "000001.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:4] + bytes(len(data) - 12) + data[-8:])
    with pytest.raises(FormatError, match=r"probes cannot be read"):
        read_probes(tmp_path / "r")


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "/a", "a b", "ä", "joined", "probes", "changes", "a\n"])
def test_names_that_are_no_folders_of_ours(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a host's name"):
        HostsWriter(tmp_path / "r", [(name, "")])
    assert not (tmp_path / "r").exists()


def test_names_that_are_two_hosts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Two hosts are called a"):
        HostsWriter(tmp_path / "r", [("a", "x"), ("a", "y")])
    with pytest.raises(UsageError, match="33 hosts are too many"):
        HostsWriter(tmp_path / "r", [(f"h{number}", "") for number in range(33)])


def damage(path: Path, place: list[Any], value: object) -> None:
    document = json.loads(path.read_text())
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["hosts"], None),
        (["hosts", 0], 7),
        (["hosts", 0, "parts", 0, "folder"], "../elsewhere"),
        (["hosts", 0, "parts", 0, "folder"], "/etc"),
        (["hosts", 0, "parts", 0, "folder"], "joined"),
        (["hosts", 0, "parts", 0, "folder"], 7),
        (["hosts", 0, "parts", 0], {}),
        (["hosts", 0, "absences"], [{"from_ns": 1, "until_ns": 2, "reason": ""}] * 2),
        (["hosts", 0, "absences"], [{"from_ns": "?", "until_ns": 2, "reason": ""}]),
        (["pairs", 0, "hosts"], [0, 2]),
        (["pairs", 0, "hosts"], [-1, 0]),
        (["pairs", 0, "hosts"], [0, 0]),
        (["pairs", 0, "hosts"], [0]),
        (["pairs", 0, "parts"], [0, 1]),
        (["pairs"], 3),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(tmp_path: Path, place: list[Any], value: object) -> None:
    with HostsWriter(tmp_path / "r", [("a", ""), ("b", "")]) as writer:
        writer.part("a")
        writer.part("b")
        writer.pair("a", "b")
    damage(tmp_path / "r" / FILE, place, value)
    with pytest.raises(FormatError, match=r"hosts\.json is damaged: [^\n]*$"):
        Hosts.read(tmp_path / "r")


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"has no hosts\.json"):
        Hosts.read(tmp_path)
    (tmp_path / FILE).write_text('{"format": "hopscope recording of several hosts", "version": 9}')
    with pytest.raises(FormatError, match="version 9, this hopscope reads version 1"):
        Hosts.read(tmp_path)
