# SPDX-License-Identifier: Apache-2.0
"""What is known of limits that make connect() and accept() fail: local ports and file descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Figure, Hit, Judged, standing
from hopscope.verbs.check.figures import Advice, Now
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, optional, sysctl

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_RANGE: Final = sysctl("net.ipv4.ip_local_port_range")
_REUSE: Final = sysctl("net.ipv4.tcp_tw_reuse")
# Of a namespace, and of each destination that uses at least half of them; the others are there only for these.
_PORTS: Final = Ref("socket", ("local_ports",))
_USED: Final = optional(Ref("socket", ("local_ports_used",)))
_TIME_WAIT: Final = optional(Ref("socket", ("local_ports_time_wait",)))
# Below are ports of well-known services, above there are none.
_FIRST_PORT, _LAST_PORT = 1024, 65535


def _time_waits(scene: Scene, place: Place) -> int:
    """Return how many ports are in TIME_WAIT and cannot be used again for a new connection."""
    reuse = scene.value(_REUSE, place)
    loopback = place.subject.startswith(("127.", "::1 "))
    return 0 if reuse == 1 or (reuse == 2 and loopback) else scene.value(_TIME_WAIT, place) or 0


def _ports(above: float, up_to: float) -> Judged:
    """Return the condition that more than this part of the local ports is in use, and no more than that one."""

    def judge(scene: Scene, place: Place) -> Hit | None:
        ports, used = scene.value(_PORTS, place) or 0, scene.value(_USED, place) or 0
        busy = used - (scene.value(_TIME_WAIT, place) or 0) + _time_waits(scene, place)
        if not above * ports < busy <= up_to * ports:
            return None
        rows = [
            *standing(_USED, scene, place, busy / ports),
            *standing(_PORTS, scene, place),
            *standing(_TIME_WAIT, scene, place),
        ]
        figures = {"now": Figure(busy, "count", "max"), "limit": Figure(ports, "count", "max")}
        return Hit(tuple(rows), {**figures, "share": Figure(busy / ports, "share", "max")})

    return Judged((_PORTS, _USED, _TIME_WAIT, optional(_REUSE), optional(_RANGE)), judge)


@dataclass(frozen=True, slots=True)
class _Wider(Advice):
    """The widest range of local ports, where there are more than now."""

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        low, high = map(int, (scene.word(_RANGE, place) or f"{_FIRST_PORT} {_LAST_PORT}").split())
        wider = (min(low, _FIRST_PORT), max(high, _LAST_PORT))
        return Figure("{} {}".format(*wider), "text", "first") if wider != (low, high) else None


@dataclass(frozen=True, slots=True)
class _Reusable(Advice):
    """The setting with which ports in TIME_WAIT are used again, where that helps."""

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        return Figure(1, "number", "first") if _time_waits(scene, place) else None


_PORT_FIXES: Final = (
    "sysctl -w net.ipv4.ip_local_port_range='{wider}'  # keep services' ports out of it with ip_local_reserved_ports",
    "sysctl -w net.ipv4.tcp_tw_reuse={reuse}  # with TCP timestamps, ports in TIME_WAIT are reused after a second",
    "ss -Htan | awk '{print $1, $5}' | sort | uniq -c | sort -rn | head  # in which state, to which destinations?",
    "# keep connections open and use them again, or connect from, or to, a further address",
)
_PORT_ADVICE: Final = {"wider": _Wider(), "reuse": _Reusable()}
_PORT_SOURCE: Final = (
    "net/ipv4/inet_hashtables.c __inet_hash_connect; Documentation/networking/ip-sysctl.rst ip_local_port_range"
)

_QUEUE: Final = Ref("socket", ("queue",), only=("* listener",))
# Only of listeners whose process is close to its limit.
_OPEN: Final = optional(Ref("socket", ("descriptors",)))
_MOST_OPEN: Final = optional(Ref("socket", ("descriptor_limit",)))
_HARD: Final = Ref("socket", ("descriptor_hard_limit",))


def _no_descriptor_left(scene: Scene, place: Place) -> Hit | None:
    now, limit = scene.value(_OPEN, place), scene.value(_MOST_OPEN, place)
    if now is None or limit is None or now < limit:
        return None
    rows = [row for ref in (_OPEN, _MOST_OPEN, _QUEUE) for row in standing(ref, scene, place)]
    waiting = scene.value(_QUEUE, place) or 0
    figures = {"now": now, "limit": limit, "waiting": waiting}
    return Hit(tuple(rows), {name: Figure(value, "count", "max") for name, value in figures.items()})


@dataclass(frozen=True, slots=True)
class _MoreDescriptors(Advice):
    """Soft and hard limit for prlimit: four times the soft one, and a hard one that is no lower than now."""

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        soft, hard = scene.value(_MOST_OPEN, place), scene.value(_HARD, place)
        if soft is None or hard is None:
            return None
        larger = max(4 * soft, 4096)
        return Figure(f"{larger}:{max(larger, hard)}", "text", "first")


ENTRIES: Final = (
    Entry(
        "socket-ports-exhausted",
        "critical",
        "socket",
        _ports(0.98, float("inf")),
        "{now} of {limit} local ports ({share}) are in use for connections {where}",
        "With none left, connect() to this destination fails with EADDRNOTAVAIL. Usual causes are many short "
        "connections, whose ports stay in TIME_WAIT for a minute, or connections that are never closed.",
        _PORT_FIXES,
        _PORT_SOURCE,
        "Ports are counted for each source address and destination: a pool of connections needs a few hundred.",
        advice=_PORT_ADVICE,
    ),
    Entry(
        "socket-ports-filling",
        "warning",
        "socket",
        _ports(0.8, 0.98),
        "{now} of {limit} local ports ({share}) are in use for connections {where}",
        "At the limit, connect() to this destination fails with EADDRNOTAVAIL.",
        _PORT_FIXES,
        _PORT_SOURCE,
        "At four fifths there is time to act.",
        advice=_PORT_ADVICE,
    ),
    Entry(
        "socket-descriptors-exhausted",
        "critical",
        "socket",
        Judged((_QUEUE, _OPEN, _MOST_OPEN), _no_descriptor_left),
        "{waiting} connections wait at the listener {where}, whose process {pid} ({comm}) has {now} of {limit} file "
        "descriptors open",
        "accept() fails with EMFILE, so the connections stay in the listener's queue; when it is full, new ones are "
        "refused. Descriptors are not closed, or the limit is too low for the number of clients.",
        (
            "prlimit --pid {pid} --nofile={larger}  # now {limit}; for good: LimitNOFILE= of its systemd unit",
            "ls -l /proc/{pid}/fd  # what are they?",
        ),
        "net/socket.c __sys_accept4_file; fs/file.c alloc_fd; man 2 getrlimit RLIMIT_NOFILE",
        "Only reported with the last descriptor in use and connections waiting.",
        advice={
            "larger": _MoreDescriptors(),
            "pid": Now(Ref("socket", ("pid",))),
            "comm": Now(Ref("socket", ("comm",))),
        },
    ),
)
