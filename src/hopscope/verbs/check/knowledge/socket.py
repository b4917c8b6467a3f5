# SPDX-License-Identifier: Apache-2.0
"""What is known of sockets by how they are now: closed by one side only, not answered, not read by their peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Figure, Hit, Judged, standing
from hopscope.verbs.check.figures import Advice, Now
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, optional, sysctl

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_STALLED_MSS: Final = Ref("socket", ("tcp.full_size_stalled_mss_bytes",), subjects="")
_ESTABLISHED: Final = optional(Ref("socket", ("tcp.established",), subjects=""))


def _lasting(name: str, at_least: int, share: float = 0.0) -> Judged:
    """Return the condition that so many sockets, and this part of the connections, were counted so at both readings.

    What comes and goes is how flow control and retransmission work.
    """
    ref = Ref("socket", (f"tcp.{name}",), subjects="")

    def judge(scene: Scene, place: Place) -> Hit | None:
        keys = scene.keys(ref, place)
        least = min(sum(each.numbers.get(key, 0) for key in keys) for each in (scene.before, scene.now))
        if least < max(at_least, share * (scene.value(_ESTABLISHED, place) or 0)):
            return None
        rows = [*standing(ref, scene, place), *(standing(_ESTABLISHED, scene, place) if share else ())]
        return Hit(tuple(rows), {"least": Figure(least)})

    return Judged((ref, _ESTABLISHED) if share else (ref,), judge)


_PROBING: Final = sysctl("net.ipv4.tcp_mtu_probing")


@dataclass(frozen=True, slots=True)
class _Probing(Advice):
    """The setting that lets TCP look for a smaller segment size, where it does not."""

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        return Figure(1, "number", "first") if scene.value(_PROBING, place) == 0 else None


ENTRIES: Final = (
    Entry(
        "tcp-mtu-black-hole",
        "warning",
        "tcp",
        _lasting("full_size_stalled_sockets", at_least=1),
        "{least} TCP [connection retransmits|connections retransmit] segments of full size (MSS {mss}) in vain, while "
        "[its peer|their peers] still [answers|answer]",
        "Probably a path MTU black hole: a link on the path has a smaller MTU, and the ICMP messages about it "
        "(fragmentation needed, packet too big) are filtered. Small requests work, larger transfers hang.",
        (
            "sysctl -w net.ipv4.tcp_mtu_probing={probing}  # TCP then finds a segment size that arrives",
            "ss -tnoi state established  # timer:(on,...,times), mss, pmtu: to whom?",
            "tracepath -n ADDRESS  # where does the path's MTU become smaller?",
            "# let ICMP type 3 code 4 and ICMPv6 type 2 pass all firewalls on the path",
        ),
        "net/ipv4/tcp_timer.c tcp_mtu_probing; RFC 2923; RFC 4821; Documentation/networking/ip-sysctl.rst",
        "Three timeouts in a row at both readings, and retransmissions of full size only, are no single losses.",
        advice={"mss": Now(_STALLED_MSS), "probing": _Probing()},
    ),
    Entry(
        "socket-not-closed",
        "warning",
        "socket",
        _lasting("close-wait", at_least=50),
        "{least} TCP connections were closed by their peers, but not on this host (CLOSE_WAIT)",
        "An application forgets to close them: eventually its descriptors and the kernel's memory run out.",
        ("ss -tnp state close-wait  # whose?",),
        "net/ipv4/tcp_input.c tcp_fin",
        "Applications close such connections immediately, or after their last answer: from 50 at both readings.",
    ),
    Entry(
        "socket-no-answer",
        "warning",
        "socket",
        _lasting("no_answer_sockets", at_least=10, share=0.02),
        "{least} TCP connections receive no answer: their data was retransmitted at least twice",
        "The peers or the network to them are down; the kernel retries for 15 minutes before it reports this "
        "to the application.",
        ("ss -tnoi state established  # timer:(on,...,times): to whom?", "ip route get ADDRESS"),
        "net/ipv4/tcp_timer.c tcp_retransmit_timer; Documentation/networking/ip-sysctl.rst tcp_retries2",
        "Clients vanish from any server: from 10 at both readings, and 1 connection in 50.",
    ),
    Entry(
        "socket-window-closed",
        "notice",
        "socket",
        _lasting("window_closed_sockets", at_least=5),
        "{least} TCP connections of this host cannot send: their peers have closed the window",
        "The applications at the other end do not read, and the senders on this host wait for them.",
        ("ss -tno  # timer:(persist,...): to whom?",),
        "net/ipv4/tcp_timer.c tcp_probe_timer",
        "Windows close briefly if a sender is faster than a reader: from 5 at both readings.",
    ),
)
