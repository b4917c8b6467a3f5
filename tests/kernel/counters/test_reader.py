# SPDX-License-Identifier: Apache-2.0
"""The reader of counters: which namespaces and sources, those that go away or are damaged, and nothing held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hopscope.errors import UsageError
from hopscope.kernel import netns
from hopscope.kernel.counters import reader as counters
from hopscope.kernel.counters.reader import CounterReader
from hopscope.lab import Namespace
from hopscope.model.counters.readings import HOST, Key, Readings
from hopscope.model.counters.sources import SOURCES, kind_of
from tests.kernel.counters.measure import HOST_NETNS, OWN_NETNS, read

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root


def test_every_namespace_is_read(quiet: Namespace) -> None:
    with Namespace(f"hopscope-test-{os.getpid()}") as named, CounterReader(sources=["snmp", "softnet"]) as reader:
        readings = reader.read()
        expected = {quiet.inode, named.inode, HOST_NETNS}
        assert expected <= readings.namespaces.keys()
        assert readings.namespaces[named.inode] == named.name
        assert readings.namespaces[HOST_NETNS] == "host"
        assert expected <= {key.netns for key in readings.numbers if key.source == "snmp"}
        assert {key.netns for key in readings.numbers if key.source == "softnet"} == {HOST}
        assert readings.time_ns < readings.until_ns


def test_only_what_is_selected_is_read(quiet: Namespace) -> None:
    with CounterReader([quiet.inode], ["snmp", "cpu", "sysctl"]) as reader:
        readings = reader.read(settings=False)
        assert {(key.netns, key.source) for key in readings.numbers} == {(quiet.inode, "snmp"), (HOST, "cpu")}
        assert not readings.words
        assert not readings.unread
        assert {key.source for key in reader.read().numbers} == {"snmp", "cpu", "sysctl"}
        assert readings.namespaces.keys() == {quiet.inode}
    with pytest.raises(UsageError, match="no source of counters named nonsense"):
        CounterReader(sources=["snmp", "nonsense"])


def test_settings_are_what_may_be_left_out() -> None:
    with CounterReader() as reader:
        few = reader.read(settings=False)
        all_of_them = reader.read()
    kinds = {kind_of(key) for key in few.numbers}
    assert {"counter", "gauge"} <= kinds
    assert {SOURCES[key.source].kind for key in few.numbers} == {"counter", "gauge"}
    assert {key.source for key in all_of_them.numbers} >= {"sysctl", "clock"}


def test_namespace_that_does_not_exist() -> None:
    readings = read(1, "snmp", "netstat", "cpu")
    assert {(each.netns, each.source, each.reason) for each in readings.unread} == {
        (1, source, "there is no such network namespace") for source in ("snmp", "netstat")
    }
    assert {key.source for key in readings.numbers} == {"cpu"}


def test_namespace_without_a_name_or_a_process(tmp_path: Path) -> None:
    """Somebody keeps it as a file: it is read where it is given itself."""
    kept = tmp_path / "kept"
    kept.touch()
    with Namespace() as made:
        subprocess.run(["mount", "--bind", f"/proc/{made.pid}/ns/net", kept], check=True)
    try:
        given = netns.at(kept)
        assert given.inode not in netns.namespaces()
        with CounterReader([given], ["snmp"]) as reader:
            readings = reader.read()
        assert readings.namespaces == {given.inode: str(kept)}
        assert {key.netns for key in readings.numbers} == {given.inode}
        assert read(given.inode, "snmp").unread
    finally:
        subprocess.run(["umount", kept], check=True)


def test_namespace_that_ends_before_it_is_entered(quiet: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Namespace()
    listed = netns.namespaces()
    assert {gone.inode, quiet.inode} <= listed.keys()
    gone.close()
    monkeypatch.setattr(netns, "namespaces", lambda: listed)  # what was so a moment ago
    with CounterReader([gone.inode, quiet.inode], ["snmp", "netstat"]) as reader:
        readings = reader.read()
    assert {(each.netns, each.source, each.reason) for each in readings.unread} == {
        (gone.inode, source, "its network namespace has ended") for source in ("snmp", "netstat")
    }
    assert {key.netns for key in readings.numbers} == {quiet.inode}


def test_process_number_that_is_another_namespaces_now(quiet: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    another = netns.Namespace(quiet.inode, "gone", Path("/proc/self/ns/net"))
    monkeypatch.setattr(netns, "_namespaces", lambda: {quiet.inode: another})
    (unread,) = read(quiet.inode, "snmp").unread
    assert unread.reason == "its network namespace has ended"


def test_namespace_is_read_though_the_process_that_it_was_found_by_has_ended(
    quiet: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = netns._namespaces
    with subprocess.Popen(["true"]) as ended:
        pass
    listed = [{quiet.inode: netns.Namespace(quiet.inode, "", Path(f"/proc/{ended.pid}/ns/net"))}]
    monkeypatch.setattr(netns, "_namespaces", lambda: listed.pop() if listed else found())
    readings = read(quiet.inode, "snmp")
    assert readings.unread == []
    assert {key.netns for key in readings.numbers} == {quiet.inode}


def test_namespaces_that_come_and_go_while_they_are_read() -> None:
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            with Namespace():
                pass

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with CounterReader(sources=["snmp", "netstat", "sysctl"]) as reader:
            readings = [reader.read() for _ in range(20)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    for each in readings:
        read_of = {}
        for key in each.numbers:
            read_of.setdefault((key.netns, key.source), set()).add(key.name)
        sizes = {len(names) for (inode, source), names in read_of.items() if source == "netstat"}
        assert len(sizes) == 1  # whole, each of them
        assert {unread.reason for unread in each.unread} <= {"its network namespace has ended"}
        assert not {(unread.netns, unread.source) for unread in each.unread} & read_of.keys()


def descriptors_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_held_between_readings(quiet: Namespace) -> None:
    own = OWN_NETNS.stat().st_ino
    threads = threading.active_count()
    descriptors = descriptors_open()
    with CounterReader() as reader:
        for _ in range(3):
            assert quiet.inode in reader.read().namespaces
        assert threading.active_count() == threads
        assert descriptors_open() == descriptors
        assert OWN_NETNS.stat().st_ino == own
    reader.close()


def test_reading_inside_a_namespace_changes_nobodys(quiet: Namespace) -> None:
    """The thread that asks may itself be elsewhere than the rest of the process."""

    def act() -> tuple[int, Readings]:
        with CounterReader(sources=["snmp", "neighbour"]) as reader:
            readings = reader.read()
        return OWN_NETNS.stat().st_ino, readings

    inode, readings = quiet.call(act)
    assert inode == quiet.inode
    assert {quiet.inode, HOST_NETNS} <= {key.netns for key in readings.numbers}
    # ARP's table is only in the first namespace.
    assert Key(HOST, "neighbour", "arp", "entries") in readings.numbers


def outside(argv: list[str], script: str) -> list[object]:
    """Run a script in a process that is started in some other way; it prints JSON."""
    done = subprocess.run([*argv, sys.executable, "-c", script], capture_output=True, check=False, text=True)
    assert not done.returncode, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


_UNREAD: Final = """\
import json
from hopscope.kernel.counters.reader import CounterReader
with CounterReader({which}, {sources}) as reader:
    readings = reader.read()
print(json.dumps([
    sorted({{(key.netns, key.source) for key in readings.numbers}}),
    [(each.netns, each.source, each.reason) for each in readings.unread],
]))
"""


def test_without_rights_our_own_namespace_is_read(quiet: Namespace) -> None:
    own = OWN_NETNS.stat().st_ino
    argv = ["setpriv", "--bounding-set=-sys_admin,-sys_ptrace", "--inh-caps=-sys_admin,-sys_ptrace"]
    found, unread = outside(argv, _UNREAD.format(which=[own, quiet.inode], sources=["snmp", "softnet"]))
    assert found == [[HOST, "softnet"], [own, "snmp"]]
    assert len(unread) == 1
    assert unread[0][:2] == [quiet.inode, "snmp"]
    assert unread[0][2] in {
        "its network namespace cannot be entered: operation not permitted",
        "there is no such network namespace",  # without the right to look, it is not even seen
    }


def covered(by: str, path: str) -> list[str]:
    """A mount namespace in which a file or folder is covered by another."""
    return ["unshare", "--mount", "sh", "-c", f'mount {by} {path} && exec "$@"', "sh"]


def test_source_that_this_kernel_lacks() -> None:
    argv = covered("-t tmpfs none", "/proc/pressure")
    found, unread = outside(argv, _UNREAD.format(which=[], sources=["pressure", "cpu"]))
    assert found == [[HOST, "cpu"]]
    assert unread == [[HOST, "pressure", "this kernel has no /proc/pressure/cpu"]]


@pytest.mark.parametrize(
    ("whole", "source"),
    [
        ("/proc/stat", "cpu"),
        ("/proc/meminfo", "memory"),
        ("/proc/interrupts", "interrupt"),
        ("/proc/softirqs", "softirq"),
    ],
)
def test_file_that_is_cut_off(whole: str, source: str, tmp_path: Path) -> None:
    text = Path(whole).read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(text[: len(text) // 2])
    if text[: len(text) // 2].endswith(b"\n"):
        cut.write_bytes(text[: len(text) // 2 - 1])
    found, unread = outside(covered(f"--bind {cut}", whole), _UNREAD.format(which=[], sources=[source, "softnet"]))
    assert found == [[HOST, "softnet"]]
    ((netns_of, name, reason),) = unread
    assert (netns_of, name) == (HOST, source)
    assert reason.startswith("what it says is not understood: ")
    assert not reason.endswith(".")


def test_file_that_is_closed_to_us(tmp_path: Path) -> None:
    argv = [*covered(f"--bind {tmp_path}", "/proc/pressure")]
    (tmp_path / "cpu").mkdir()  # cannot be read as a file
    _, unread = outside(argv, _UNREAD.format(which=[], sources=["pressure"]))
    assert unread == [[HOST, "pressure", "/proc/pressure/cpu cannot be read: is a directory"]]


def test_source_that_says_something_twice(monkeypatch: pytest.MonkeyPatch, quiet: Namespace) -> None:
    said = [("eth0", "rx", 1), ("eth0", "tx", 2), ("eth0", "rx", 3)]
    monkeypatch.setitem(counters.PER_NAMESPACE, "ethtool", lambda: said)
    readings = read(quiet.inode, "ethtool", "snmp")
    assert [each.reason for each in readings.unread] == ["it says something twice"]
    assert {key.source for key in readings.numbers} == {"snmp"}


def test_source_that_fails_midway(monkeypatch: pytest.MonkeyPatch, quiet: Namespace) -> None:
    """Half of it is nothing, unless its parts are of things that were asked one by one."""

    def fails() -> Iterator[tuple[str, str, int]]:
        yield "eth0", "rx", 1
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(counters.PER_NAMESPACE, "ethtool", fails)
    for parts, expected in (
        (frozenset(), {}),
        (frozenset({"ethtool"}), {Key(quiet.inode, "ethtool", "eth0", "rx"): 1}),
    ):
        monkeypatch.setattr(counters, "IN_PARTS", parts)
        readings = read(quiet.inode, "ethtool")
        assert readings.numbers == expected
        assert [each.reason for each in readings.unread] == ["it cannot be read: input/output error"]


def test_labels_that_change_between_readings(monkeypatch: pytest.MonkeyPatch, quiet: Namespace) -> None:
    """What was said last time is remembered, but not believed."""
    answers = iter([
        [("eth0", "rx", 1), ("eth0", "tx", 2)],
        [("eth0", "rx", 3), ("eth0", "tx", 4)],
        [("eth1", "rx", 5), ("eth0", "tx", 6)],
        [("eth1", "rx", "on"), ("eth0", "tx", 7)],
        [],
    ])  # fmt: skip
    monkeypatch.setitem(counters.PER_NAMESPACE, "ring", lambda: next(answers))
    with CounterReader([quiet.inode], ["ring"]) as reader:
        found = [reader.read() for _ in range(5)]
    shown = [{(key.subject, key.name): value for key, value in each.numbers.items()} for each in found]
    assert shown == [
        {("eth0", "rx"): 1, ("eth0", "tx"): 2},
        {("eth0", "rx"): 3, ("eth0", "tx"): 4},
        {("eth1", "rx"): 5, ("eth0", "tx"): 6},
        {("eth0", "tx"): 7},
        {},
    ]
    assert found[3].words == {Key(quiet.inode, "ring", "eth1", "rx"): "on"}


def test_failure_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch, quiet: Namespace) -> None:
    monkeypatch.setitem(counters.PER_NAMESPACE, "ring", lambda: [("eth0", "rx", 1), None])
    with pytest.raises(TypeError):
        read(quiet.inode, "ring")


def test_readers_are_of_sources_and_where_those_are() -> None:
    assert {SOURCES[name].scope for name in counters.PER_NAMESPACE} == {"namespace"}
    # The settings of the host are beside those of namespaces.
    assert {name for name in counters.OF_HOST if SOURCES[name].scope != "host"} == {"sysctl"}
    assert set(counters.PER_NAMESPACE) >= counters.IN_PARTS


def test_every_source_has_a_reader() -> None:
    assert counters.PER_NAMESPACE.keys() | counters.OF_HOST.keys() == SOURCES.keys()
