# SPDX-License-Identifier: Apache-2.0
"""Record what another host sends as frames of events, which arrive at an interface of this one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self

from hopscope.errors import HopscopeError
from hopscope.kernel.capabilities import require_held
from hopscope.live.recorder.collector import Taken
from hopscope.live.recorder.tables import point_names
from hopscope.live.stop import stop_on_signal
from hopscope.live.wire.arrivals import MOST, Arrivals
from hopscope.live.wire.inbox import Inbox, Received
from hopscope.progress import doing
from hopscope.store.meta import Metadata
from hopscope.term.format import plural
from hopscope.verbs.record.run import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.store.folder import OpenFolder
    from hopscope.verbs.record.pipeline import Limits

_RING_BYTES: Final = 64 << 20
_LOOK_S: Final = 0.02
# A catalogue comes each second, if nothing holds it up: a shorter recording waits for it so long.
_CATALOGUE_S: Final = 3.0
_FRAMES: Final = "frames"
_BEYOND: Final = {
    "flows": "addresses of further ones are not recorded",
    "threads": "names of further ones are not recorded",
    "devices": "names of further ones are not recorded",
    "catalogues": "frames of further senders are left out",
}


def record_wire(
    interface: str, folder: AbstractContextManager[OpenFolder], limits: Limits, command: Sequence[str]
) -> int:
    """Record as :func:`~hopscope.verbs.record.run.record` does, once a sender has said what it sends.

    Raises
    ------
    PrivilegeError
        Without CAP_NET_RAW.
    HopscopeError
        Nothing comes before a signal or the end of the time.
    """
    require_held(("CAP_NET_RAW",), "Receiving events from an interface")
    with Inbox(interface, _RING_BYTES) as inbox:
        found = FromWire(inbox)
        found.wait(limits.duration_s)
        with folder as opened:
            return record(found, opened, limits, counters_s=None, flight=None, command=command)


class FromWire:
    """Frames that arrive, as a source of a recording's rows.

    Parameters
    ----------
    inbox
        Entered.
    """

    captures = has_other_rings = False
    namespaces: Sequence[int] | None = None

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._arrivals = Arrivals()
        self._first: list[tuple[str, dict[str, NDArray[Any]]]] = []
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return

    def wait(self, duration_s: float | None) -> None:
        """Wait for a catalogue; what comes before is not understood, and no part of the recording.

        With a duration, that long, and a few seconds at least.

        Raises
        ------
        HopscopeError
            None comes.
        """
        doing(f"waiting for events on {self._inbox.interface}")
        end_s = time.monotonic() + max(duration_s, _CATALOGUE_S) if duration_s else float("inf")
        with stop_on_signal() as stop:
            while self._arrivals.catalogue is None:
                self._first = list(self._arrivals.rows(self._inbox.take()))
                if stop.wait(_LOOK_S) or time.monotonic() > end_s:
                    break
        self._since_ns = time.monotonic_ns()
        if self._arrivals.catalogue is None:
            raise HopscopeError(
                f"No catalogue of events has come to {self._inbox.interface}",
                "Send them there: `hopscope wire` on the other host, and tc's mirred (docs/wire.md)",
            )
        if not self._arrivals.catalogue.events:
            raise HopscopeError(
                f"The events that come to {self._inbox.interface} do not have what a recording needs",
                "Send all columns: hopscope wire --full",
            )
        self._arrivals.not_understood = 0

    def metadata(self) -> Metadata:
        """Return what the trace says of itself: as the sender says it."""
        catalogue = self._arrivals.catalogue
        assert catalogue  # noqa: S101 # it was waited for
        started_ns = self._arrivals.started_ns
        return Metadata(
            hopscope=catalogue.version,
            started_ns=started_ns,
            realtime_ns=max(started_ns + catalogue.realtime_offset_ns, 0),
            points=point_names(),
            reasons=catalogue.reasons,
            host={"name": catalogue.host},
            tables=list(catalogue.tables.values()),
            options={"wire": self._inbox.interface},
        )

    def not_granted(self) -> list[str]:
        """Return nothing: what is attached is not known here."""
        return []

    def notes(self) -> list[str]:
        """Return a sentence on events that this version does not know."""
        catalogue = self._arrivals.catalogue
        unknown = catalogue.unknown if catalogue else []
        return [f"probe points of another version, left out: {', '.join(unknown)}"] if unknown else []

    def now_ns(self) -> int:
        """Return the time by the sender's clock, about."""
        return self._arrivals.started_ns + time.monotonic_ns() - self._since_ns

    def ended_ns(self, drained_ns: int) -> int:
        """Return when the recording ended: with the last frame, whose clock may run at another speed."""
        del drained_ns
        return self._arrivals.newest_ns + 1

    def take(self) -> Taken:
        """Take the frames that have come."""
        return Taken([], [(_FRAMES, {"places": each.places, "data": each.data}) for each in self._inbox.take()])

    def rows(self, taken: Taken) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
        """Yield rows of frames."""
        yield from self._first
        self._first = []
        yield from self._arrivals.rows(Received(**columns) for _, columns in taken.others)
        if self._stopped:
            yield from self._arrivals.end()

    def fullness(self) -> float:
        """Return how full the ring is."""
        return self._inbox.fullness()

    def stop(self) -> None:
        """Have the next rows include the last losses."""
        self._stopped = True

    def lost_by_now(self) -> int:
        """Return how many events are known to be missing."""
        return self._arrivals.lost

    def missed(self) -> int:
        """Return nothing: there are no programs here."""
        return 0

    def look_at_cost(self) -> None:
        """Do nothing, as there are no programs."""

    def cost(self) -> None:
        """Return nothing: most of it is the sender's."""

    def remarks(self) -> list[str]:
        """Return a sentence on each kind of frame that is not in the recording."""
        arrivals, found = self._arrivals, []
        if self._inbox.lost:
            found.append(f"{plural(self._inbox.lost, 'frame')} lost here, because the socket's ring was full")
        if arrivals.not_understood:
            found.append(f"{plural(arrivals.not_understood, 'frame')} not understood")
        if arrivals.short:
            found.append(f"{plural(arrivals.short, 'event')} left out for want of columns: hopscope wire --full")
        if arrivals.of_others:
            found.append(f"{plural(arrivals.of_others, 'event')} of other hosts left out: record each by an interface")
        if arrivals.twice:
            found.append(f"{plural(arrivals.twice, 'frame')} came twice, and were taken once")
        for kind, count in arrivals.beyond.items():
            if count:
                found.append(f"more than {MOST[kind]:,} {kind}: {_BEYOND[kind]} (such came {plural(count, 'time')})")
        return found
