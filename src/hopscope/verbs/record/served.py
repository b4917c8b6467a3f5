# SPDX-License-Identifier: Apache-2.0
"""The agent's service ``record``: the same recording, whose files go to who asked for it.

Where the connection is slower than what is recorded, sending waits, then what was taken out of the rings waits, within
bounds, and then the rings fill: what finds no room in them is counted by the kernel, by CPU and time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from io import RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from hopscope.errors import ConnectionLostError, HopscopeError, StreamClosedError, UsageError
from hopscope.kernel.capabilities import require_rights
from hopscope.live.recorder.collector import Recorder
from hopscope.live.remote.own import OwnTraffic
from hopscope.live.stop import Stop
from hopscope.live.words import values_of
from hopscope.store.destination import Memory
from hopscope.verbs.record.asked import SENT, asked
from hopscope.verbs.record.command import command
from hopscope.verbs.record.pipeline import Limits, Pipeline, prior
from hopscope.verbs.record.protocol import said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hopscope.agent.stream import Stream
    from hopscope.store.meta import Metadata

# Of records that are taken and not sent yet.
_BACKLOG_BYTES: Final = 64 << 20
_PROGRESS_S: Final = 1.0
# How soon a thread that waits for words of the client sees that there is nothing more to do.
_LOOK_S: Final = 0.2
_MOST_FLIGHT_BYTES: Final = 4 << 30


def serve(stream: Stream, request: dict[str, Any]) -> None:
    """Record until the client says so, a trigger is seen, or there is no client any more.

    Raises
    ------
    UsageError
        What is asked for does not exist here, or cannot be asked for.
    HopscopeError
        This host cannot record.
    """
    words = request.get("words")
    if not isinstance(words, list):
        raise UsageError("A recording is asked for without words")
    what = asked(values_of(command, SENT, words))
    if what.flight and what.flight.most_bytes > _MOST_FLIGHT_BYTES:
        raise UsageError("--flight-memory on another host is limited to 4096", "For more, run hopscope there")
    require_rights()
    with contextlib.closing(Stop()) as stop, contextlib.ExitStack() as stack:
        with prior():  # the rings fill from their first moment on
            recorder = Recorder(what.options)
            own = OwnTraffic(recorder, stream.connection, request)
            stack.enter_context(recorder)
            pipeline = stack.enter_context(
                Pipeline(
                    recorder,
                    Sent(stream, recorder.not_granted()),
                    flight=what.flight,
                    counters_s=what.counters_s,
                    backlog_bytes=_BACKLOG_BYTES,
                )
            )
        with (
            _beside(lambda over: _obey(stream, stop, own, over)),
            _beside(lambda over: _tell(stream, pipeline, over)),
        ):
            with prior():
                pipeline.run(stop.wait, Limits(), lambda: None)
            over = pipeline.finish()
        stream.send({"ended": said(over), "remarks": pipeline.remarks(), "cpu_s": time.process_time()})


class Sent(Memory):
    """A trace whose files are sent as they become complete.

    Parameters
    ----------
    stream
        To the client.
    not_granted
        Points that this kernel does not grant.
    """

    def __init__(self, stream: Stream, not_granted: Sequence[str]) -> None:
        self._stream = stream
        self._not_granted = not_granted

    def begin(self, metadata: Metadata) -> None:
        """Send it, and what is not recorded."""
        self._stream.send_block({"metadata": "began"}, [metadata.packed()])
        self._stream.send({"not_granted": list(self._not_granted)})

    def hand_on(self, table: str, number: int, data: memoryview) -> None:
        """Send a file; its number follows from the order."""
        del number
        self._stream.send_block({"table": table}, [data])

    def mark(self, until_ns: int) -> None:
        """Send that."""
        self._stream.send({"until_ns": until_ns})

    def capture(self) -> BinaryIO:
        """Return a file that sends what is written to it."""
        return cast("BinaryIO", _SentFile(self._stream))

    def end(self, metadata: Metadata) -> None:
        """Send it."""
        self._stream.send_block({"metadata": "ended"}, [metadata.packed()])


class _SentFile(RawIOBase):
    name = "capture"

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:  # noqa: ANN401 # any buffer
        self._stream.send_block({"capture": True}, [data])
        return len(data)


@contextlib.contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do that in a thread meanwhile; it is told when it is over."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name="hopscope-record", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _obey(stream: Stream, stop: Stop, own: OwnTraffic, over: threading.Event) -> None:
    """Do what the client says; when it is gone or talks nonsense, stop."""
    while not over.is_set():
        try:
            message = stream.receive(timeout_s=_LOOK_S)
            body = getattr(message, "body", {"stop": True})
            if not own.changed(body):
                stop.set()
        except TimeoutError:
            continue
        except HopscopeError as error:
            stop.set()
            if not isinstance(error, (ConnectionLostError, StreamClosedError)):
                stream.close(error)
            return
        if message is None:
            return


def _tell(stream: Stream, pipeline: Pipeline, over: threading.Event) -> None:
    """Say how far it is, again and again."""
    with contextlib.suppress(ConnectionLostError, StreamClosedError):
        while not over.wait(_PROGRESS_S):
            stream.send({"progress": said(pipeline.now())})
