# SPDX-License-Identifier: Apache-2.0
"""Reads counters, gauges and settings of all network namespaces and of the host, at one moment."""

from __future__ import annotations

import errno
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from hopscope.errors import FormatError, UsageError
from hopscope.kernel import netns
from hopscope.kernel.counters import (
    affinity,
    ethtool,
    ethtool_features,
    ethtool_settings,
    host_files,
    interrupts,
    link,
    nft,
    per_cpu,
    proc_net,
    qdisc,
    queue_stats,
    socket_files,
    sockets,
    sysctl,
    sysfs,
    timekeeping,
)
from hopscope.kernel.counters.text import NET
from hopscope.model.counters.readings import HOST, Key, Readings, Unread
from hopscope.model.counters.sources import SOURCES
from hopscope.setns import setns_net

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from hopscope.kernel.counters.text import Said

    # Gives subject, name, and a number or a word. Raises OSError or FormatError.
    Reader: TypeAlias = Callable[[], Iterable[Said]]

# Called in a thread that is in the namespace.
PER_NAMESPACE: Final[Mapping[str, Reader]] = {
    "snmp": proc_net.snmp,
    "snmp6": proc_net.snmp6,
    "netstat": proc_net.netstat,
    "sockstat": socket_files.sockstat,
    "udp_socket": socket_files.udp_socket,
    "socket": sockets.socket,
    "conntrack": per_cpu.conntrack,
    "nft": nft.drops,
    "sysctl": sysctl.of_namespace,
    "ethtool": ethtool.statistics,
    "queue_stats": queue_stats.statistics,
    "link": link.statistics,
    "qdisc": qdisc.qdiscs,
    "class": qdisc.classes,
    "driver": ethtool.drivers,
    "ring": ethtool_settings.rings,
    "channels": ethtool_settings.channels,
    "coalesce": ethtool_settings.coalesce,
    "features": ethtool_features.features,
    "pause": ethtool_settings.pause,
    "link_setting": link.settings,
    "queue": sysfs.queues,
}
# Called once a reading, in the host's namespace where it can be entered, or else in our own.
OF_HOST: Final[Mapping[str, Reader]] = {
    "interrupt": interrupts.interrupt,
    "interrupt_setting": affinity.interrupts,
    "softirq": interrupts.softirq,
    "softnet": per_cpu.softnet,
    "neighbour": per_cpu.neighbour,
    "route": per_cpu.route,
    "pressure": host_files.pressure,
    "memory": host_files.memory,
    "cpu": host_files.cpu,
    "clock": host_files.clock,
    "timekeeping": timekeeping.timekeeping,
    "sysctl": sysctl.of_host,
}
# Those of many things that are asked one after the other: where one refuses, what the others said is kept.
IN_PARTS: Final = frozenset({
    "channels", "class", "coalesce", "driver", "ethtool", "features", "link", "link_setting", "pause", "qdisc", "queue",
    "queue_stats", "ring",
})  # fmt: skip

_OWN: Final = Path("/proc/thread-self/ns/net")


class CounterReader:
    """Reads again and again what was selected.

    Parameters
    ----------
    namespaces
        Network namespaces to read, or their inodes; None for all that there are at the time of each reading. One that
        has neither a process nor a name is found only if it is given itself.
    sources
        Names of :data:`hopscope.model.counters.sources.SOURCES`; None for all.

    Raises
    ------
    UsageError
        There is no such source.
    """

    def __init__(
        self, namespaces: Collection[int | netns.Namespace] | None = None, sources: Collection[str] | None = None
    ) -> None:
        known = {**PER_NAMESPACE, **OF_HOST}
        wanted = set(known if sources is None else sources)
        if unknown := wanted - known.keys():
            raise UsageError(
                f"There is no source of counters named {', '.join(sorted(unknown))}", f"Choose from {', '.join(known)}"
            )
        self._given = {each.inode: each for each in namespaces or () if isinstance(each, netns.Namespace)}
        self._namespaces = (
            None if namespaces is None else {each if isinstance(each, int) else each.inode for each in namespaces}
        )
        self._sources = frozenset(wanted)
        self._labels: dict[tuple[int, str], _Labels] = {}

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of what is held between readings, which is memory; idempotent."""
        self._labels = {}

    def read(self, *, settings: bool = True) -> Readings:
        """Return what the selected sources say now.

        What cannot be read is told in the result, not raised: a namespace may end while it is read.

        Parameters
        ----------
        settings
            Read also what only people change; it is the dearer half.
        """
        chosen = {name for name in self._sources if settings or SOURCES[name].kind != "setting"}
        begin_ns = time.monotonic_ns()
        there = self._given | netns.namespaces()
        wanted = list(there) if self._namespaces is None else list(self._namespaces)
        visit = _Visit(there, chosen, self._labels)
        # A thread for one reading: what it enters is nobody else's, and when it ends it keeps no namespace alive.
        thread = threading.Thread(target=visit.read, args=(wanted,), name="hopscope-counters", daemon=True)
        thread.start()
        thread.join()
        if visit.failure:
            raise visit.failure
        labels = self._labels | visit.labels
        self._labels = {of: each for of, each in labels.items() if of[0] in there or of[0] == HOST}
        names = {inode: there[inode].name for inode in wanted if inode in there}
        return Readings(begin_ns, time.monotonic_ns(), visit.numbers, visit.words, names, visit.unread)


class _Labels(NamedTuple):
    # What a source said last time, without the values: nearly always the same again.
    subjects: tuple[str, ...]
    names: tuple[str, ...]
    keys: list[Key]


class _Visit:
    # One round through the namespaces, in a thread of its own.

    def __init__(
        self,
        there: Mapping[int, netns.Namespace],
        chosen: Collection[str],
        known: Mapping[tuple[int, str], _Labels],
    ) -> None:
        self.numbers: dict[Key, int] = {}
        self.words: dict[Key, str] = {}
        self.unread: list[Unread] = []
        self.failure: BaseException | None = None
        self.labels: dict[tuple[int, str], _Labels] = {}
        self._there = there
        self._known = known
        self._of_host = {name: read for name, read in OF_HOST.items() if name in chosen}
        self._per_namespace = {name: read for name, read in PER_NAMESPACE.items() if name in chosen}

    def read(self, wanted: Collection[int]) -> None:
        try:
            self._read(wanted)
        except BaseException as error:  # noqa: BLE001 # handed to the caller's thread
            self.failure = error

    def _read(self, wanted: Collection[int]) -> None:
        own = _OWN.stat().st_ino
        # What takes no entering, and so no right, comes first.
        if own in wanted:
            self._take(own, self._per_namespace)
        host = next((inode for inode, each in self._there.items() if each.name == "host"), own)
        refusal = self._enter(host) if host != own else ""
        # Some files are only in the first namespace; the others are the same in all of them.
        self._take(HOST, self._of_host)
        for inode in sorted(set(wanted) - {own}, key=lambda inode: inode != host):
            if inode != host:
                refusal = self._enter(inode)
            if refusal:
                self.unread += [Unread(inode, source, refusal) for source in self._per_namespace]
            else:
                self._take(inode, self._per_namespace)

    def _enter(self, inode: int) -> str:
        """Enter a namespace; return why not, if so."""
        if inode not in self._there:
            return "there is no such network namespace"
        try:
            with netns.opened(self._there[inode]) as file:
                setns_net(file.fileno())
        except FileNotFoundError:
            return "its network namespace has ended"
        except OSError as error:
            return f"its network namespace cannot be entered: {_lower(error)}"
        return ""

    def _take(self, inode: int, readers: Mapping[str, Reader]) -> None:
        for source, read in readers.items():
            said: list[Said] = []
            reason = ""
            try:
                said.extend(read())
            except FormatError as error:
                reason = f"what it says is not understood: {error.what}"
            except OSError as error:
                reason = _why(error)
            if not reason or source in IN_PARTS:
                reason = self._add(inode, source, said) or reason
            if reason:
                self.unread.append(Unread(inode, source, reason))

    def _add(self, inode: int, source: str, said: Collection[Said]) -> str:
        """Take what a source said; return why not, if so."""
        if not said:
            return ""
        subjects, names, values = zip(*said, strict=True)
        labels = self._known.get((inode, source))
        if not labels or labels.subjects != subjects or labels.names != names:
            labels = _Labels(subjects, names, list(map(partial(Key, inode, source), subjects, names)))
            if len(set(labels.keys)) < len(labels.keys):
                return "it says something twice"
        self.labels[inode, source] = labels
        if set(map(type, values)) == {int}:
            self.numbers.update(zip(labels.keys, values, strict=True))
        else:
            for key, value in zip(labels.keys, values, strict=True):
                if isinstance(value, str):
                    self.words[key] = value
                else:
                    self.numbers[key] = value
        return ""


def _why(error: OSError) -> str:
    path = str(error.filename or "").replace(NET, "/proc/net")
    if error.errno == errno.ENOENT and path:
        return f"this kernel has no {path}"
    return f"{path or 'it'} cannot be read: {_lower(error)}"


def _lower(error: OSError) -> str:
    reason = error.strerror or "unknown error"
    return reason[0].lower() + reason[1:]
