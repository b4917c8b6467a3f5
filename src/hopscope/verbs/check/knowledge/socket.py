# SPDX-License-Identifier: Apache-2.0
"""What is known of sockets by how they are now: closed by one side only, not answered, not read by their peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Figure, Hit, Judged, standing
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, optional

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

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


ENTRIES: Final = (
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
