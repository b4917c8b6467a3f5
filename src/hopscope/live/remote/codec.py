# SPDX-License-Identifier: Apache-2.0
"""What the live collectors of another host send: their snapshots as the JSON of their verbs, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hopscope.agent.frames import BLOCK_BYTES
from hopscope.agent.message import decode, encode
from hopscope.model.checked_json import Fields
from hopscope.model.cpu import CpuRow, CpuSnapshot
from hopscope.model.merge import HOST, beside, in_turn, labelled
from hopscope.model.slowest import in_turn as slowest_in_turn
from hopscope.term.cpu_json import cpu_from_json, cpu_to_json, stacks_from_json, stacks_to_json
from hopscope.term.drops_json import drops_from_json, drops_to_json
from hopscope.term.json_lines import from_json, to_json
from hopscope.term.message_json import message_from_json, message_to_json, slowest_from_json, slowest_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _typeshed import ReadableBuffer

    from hopscope.model.message import Message
    from hopscope.model.slowest import Slowest
    from hopscope.term.json_lines import Json

SnapshotT = TypeVar("SnapshotT")
# A clock of the wall that was never set.
_LEAST_OFFSET_NS: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class Answer(Generic[SnapshotT]):
    """What a host found.

    Attributes
    ----------
    snapshot
        The verb's.
    slowest
        The slowest messages of its time, where these were asked for.
    offset_ns
        The host's wall clock minus its CLOCK_MONOTONIC.
    """

    snapshot: SnapshotT
    slowest: Slowest | None
    offset_ns: int


@dataclass(frozen=True, slots=True)
class Codec(Generic[SnapshotT]):
    """A verb's snapshots on their way, and put together.

    Attributes
    ----------
    to_json, from_json
        The way out and the way back.
    in_turn
        Those of one host that followed each other, as one.
    apart, added
        Host → snapshot, as one: with the hosts as groups, and with all their figures added up.
    """

    to_json: Callable[[SnapshotT], Json]
    from_json: Callable[[Fields], SnapshotT]
    in_turn: Callable[[Sequence[SnapshotT]], SnapshotT]
    apart: Callable[[Mapping[str, SnapshotT]], SnapshotT]
    added: Callable[[Mapping[str, SnapshotT]], SnapshotT]

    def encode(self, answer: Answer[SnapshotT]) -> bytes:
        """Return the bytes of an answer."""
        snapshot: Any = answer.snapshot
        slowest = answer.slowest and slowest_to_json(
            answer.slowest, snapshot.verb, snapshot.started_ns, snapshot.duration_s, answer.offset_ns
        )
        document = {"snapshot": self.to_json(answer.snapshot), "slowest": slowest, "offset_ns": answer.offset_ns}
        return encode(document, BLOCK_BYTES)

    def decode(self, raw: ReadableBuffer) -> Answer[SnapshotT]:
        """Return the answer of such bytes.

        Raises
        ------
        FormatError
            They are none.
        """
        document = Fields(decode(raw), "An answer")
        slowest = document.part_or_none("slowest")
        return Answer(
            self.from_json(document.part("snapshot")),
            slowest_from_json(slowest) if slowest else None,
            document.whole("offset_ns", least=_LEAST_OFFSET_NS),
        )

    def merged(self, answers: Sequence[Answer[SnapshotT]]) -> Answer[SnapshotT]:
        """Return answers of one host that followed each other as one."""
        slowest = [answer.slowest for answer in answers if answer.slowest]
        return Answer(
            self.in_turn([answer.snapshot for answer in answers]),
            slowest_in_turn(slowest) if slowest else None,
            answers[-1].offset_ns,
        )


def encode_messages(messages: Sequence[Message], offset_ns: int) -> bytes:
    """Return the bytes of single messages; `offset_ns` is wall clock minus CLOCK_MONOTONIC."""
    documents = [message_to_json(message, offset_ns) for message in messages]
    return encode({"offset_ns": offset_ns, "messages": documents}, BLOCK_BYTES)


def decode_messages(raw: ReadableBuffer) -> tuple[list[Message], int]:
    """Return the messages, and the offset, of such bytes.

    Raises
    ------
    FormatError
        They are none.
    """
    document = Fields(decode(raw), "A batch of messages")
    return [message_from_json(each) for each in document.parts("messages")], document.whole(
        "offset_ns", least=_LEAST_OFFSET_NS
    )


def _cpu_to_json(snapshot: CpuSnapshot) -> Json:
    # What the stacks add up to is found where they are shown.
    return cpu_to_json(replace(snapshot, hz=0, stacks=[])) | {
        "sampling_hz": snapshot.hz,
        "stacks": stacks_to_json(snapshot.stacks),
    }


def _cpu_from_json(document: Fields) -> CpuSnapshot:
    return cpu_from_json(document, stacks_from_json(document.part("stacks")))


def _apart(hosts: Mapping[str, Any]) -> Any:  # noqa: ANN401 # any of the snapshots
    return beside({host: labelled(snapshot, host) for host, snapshot in hosts.items()})


def _cpu_apart(hosts: Mapping[str, CpuSnapshot]) -> CpuSnapshot:
    """Return all hosts' rows, each host's whole above them."""
    return beside({host: _with_whole(labelled(snapshot, host), host) for host, snapshot in hosts.items()})


def _with_whole(snapshot: CpuSnapshot, host: str) -> CpuSnapshot:
    keys = list(snapshot.rows[0].group)[1:] if snapshot.rows else []
    whole = CpuRow({HOST: host, **dict.fromkeys(keys, "all")}, snapshot.total.parts)
    return replace(snapshot, rows=[whole, *snapshot.rows])


def _cpu_added(hosts: Mapping[str, CpuSnapshot]) -> CpuSnapshot:
    """Return the hosts' sum, with a row a host: CPUs of the same number have nothing in common."""
    return beside(
        {host: replace(snapshot, rows=[CpuRow({HOST: host}, snapshot.total.parts)]) for host, snapshot in hosts.items()}
    )


# By the verb.
CODECS: Final[dict[str, Codec[Any]]] = {
    **{verb: Codec(to_json, partial(from_json, verb=verb), in_turn, _apart, beside) for verb in ("rx", "tx")},
    "cpu": Codec(_cpu_to_json, _cpu_from_json, in_turn, _cpu_apart, _cpu_added),
    "drops": Codec(drops_to_json, drops_from_json, in_turn, _apart, beside),
}
