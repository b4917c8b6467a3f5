# SPDX-License-Identifier: Apache-2.0
"""How interfaces are set, as their drivers say: rings, channels, coalescing, offloads, pause frames, speed.

By netlink (Linux 5.6), which lists all interfaces at once and leaves out what a driver does not have: the older ioctls
say 0 of a setting that does not exist.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from hopscope.errors import FormatError
from hopscope.kernel.counters.link import interfaces
from hopscope.kernel.ethtool import is_absent, of_interface
from hopscope.kernel.netlink import Generic, attribute, attributes, nested, number, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping

    from hopscope.kernel.counters.text import Said

    Found: TypeAlias = Mapping[int, bytes]
    Values: TypeAlias = Iterator[tuple[str, int | str]]

# include/uapi/linux/ethtool_netlink.h
FAMILY: Final = "ethtool"
ETHTOOL_A_HEADER: Final = 1  # of every message
ETHTOOL_A_HEADER_DEV_INDEX: Final = 1
ETHTOOL_A_HEADER_DEV_NAME: Final = 2
ETHTOOL_A_HEADER_FLAGS: Final = 3
ETHTOOL_FLAG_COMPACT_BITSETS: Final = 1

_SWITCH: Final = {0: "off", 1: "on"}
_YES: Final = {0: "no", 1: "yes"}
_UNKNOWN_SPEED: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Asked:
    """One kind of settings.

    Attributes
    ----------
    command
        ``ETHTOOL_MSG_*_GET``.
    numbers
        Names of attributes that are numbers.
    words
        Names of attributes of which each value is a word; those of other values are left out.
    unknown
        The number that stands for none.
    """

    command: int
    numbers: Mapping[int, str] = field(default_factory=dict)
    words: Mapping[int, tuple[str, Mapping[int, str]]] = field(default_factory=dict)
    unknown: int | None = None

    def values(self, found: Found) -> Values:
        """Yield what the attributes of a message say."""
        for kind, name in self.numbers.items():
            if kind in found and (value := number(found[kind])) != self.unknown:
                yield name, value
        for kind, (name, words) in self.words.items():
            if kind in found and (word := words.get(number(found[kind]))):
                yield name, word


def _numbered(first: int, names: str) -> dict[int, str]:
    return {kind: name for kind, name in enumerate(names.split(), first) if name != "-"}


def _switches(names: Mapping[int, str]) -> dict[int, tuple[str, Mapping[int, str]]]:
    return {kind: (name, _SWITCH) for kind, name in names.items()}


RINGS: Final = Asked(
    15,
    _numbered(2, "rx_max rx_mini_max rx_jumbo_max tx_max rx rx_mini rx_jumbo tx rx_buf_len - cqe_size - - "
                 "tx_push_buf_len tx_push_buf_len_max hds_thresh hds_thresh_max"),
    {11: ("tcp_data_split", {1: "off", 2: "on"})} | _switches({13: "tx_push", 14: "rx_push"}),
)  # fmt: skip
CHANNELS: Final = Asked(17, _numbered(2, "rx_max tx_max other_max combined_max rx tx other combined"))
# As the options of `ethtool -C` are called.
COALESCE: Final = Asked(
    19,
    _numbered(2, "rx-usecs rx-frames rx-usecs-irq rx-frames-irq tx-usecs tx-frames tx-usecs-irq tx-frames-irq "
                 "stats-block-usecs - - pkt-rate-low rx-usecs-low rx-frames-low tx-usecs-low tx-frames-low "
                 "pkt-rate-high rx-usecs-high rx-frames-high tx-usecs-high tx-frames-high sample-interval - - "
                 "tx-aggr-max-bytes tx-aggr-max-frames tx-aggr-time-usecs"),
    _switches({11: "adaptive-rx", 12: "adaptive-tx", 24: "cqe-mode-tx", 25: "cqe-mode-rx"}),
)  # fmt: skip
PAUSE: Final = Asked(21, words=_switches({2: "autonegotiate", 3: "rx", 4: "tx"}))
LINK_MODES: Final = Asked(
    4,
    {5: "speed_mbps", 9: "lanes"},
    {2: ("autonegotiation", _SWITCH), 6: ("duplex", {0: "half", 1: "full"})},
    unknown=_UNKNOWN_SPEED,
)
LINK_STATE: Final = Asked(6, words={2: ("link_detected", _YES)})


def rings() -> Iterator[Said]:
    """Yield the sizes of rings, in descriptors."""
    return settings_of(RINGS)


def channels() -> Iterator[Said]:
    """Yield the numbers of queues."""
    return settings_of(CHANNELS)


def coalesce() -> Iterator[Said]:
    """Yield how long interrupts are held back."""
    return settings_of(COALESCE)


def pause() -> Iterator[Said]:
    """Yield whether pause frames are sent and obeyed."""
    return settings_of(PAUSE)


def settings_of(asked: Asked) -> Iterator[Said]:
    """Yield one kind of settings of all interfaces that have it."""
    with Generic(FAMILY) as netlink:
        yield from each_interface(netlink, asked.command, asked.values)


def each_interface(netlink: Generic, command: int, values: Callable[[Found], Values]) -> Iterator[Said]:
    """Yield what is made of the message of each interface, and raise at the end what one of them could not answer."""
    listed = netlink.dump_command(command, request())
    said: set[str] = set()
    indexes: set[int] = set()
    for message in listed.messages:
        index, subject, found = answer_of(message.body)
        indexes.add(index)
        if subject not in said:
            said.add(subject)
            yield from ((subject, name, value) for name, value in values(found))
    failure = listed.failure
    if failure is not None and failure.errno not in {errno.EINTR, errno.EOPNOTSUPP}:
        # One driver that fails ends the list for all interfaces that come after it.
        failure = yield from _one_by_one(netlink, command, values, indexes)
    if failure is not None:
        raise failure


def request(index: int | None = None) -> bytes:
    """Return the header of a question about one interface or, of a list, about all."""
    flags = attribute(ETHTOOL_A_HEADER_FLAGS, struct.pack("=I", ETHTOOL_FLAG_COMPACT_BITSETS))
    which = b"" if index is None else attribute(ETHTOOL_A_HEADER_DEV_INDEX, struct.pack("=I", index))
    return nested(ETHTOOL_A_HEADER, which, flags)


def answer_of(body: bytes) -> tuple[int, str, Found]:
    """Return which interface an answer is about, index and name, and its attributes.

    Raises
    ------
    FormatError
        It is cut off, or does not say which.
    """
    found = attributes(body)
    header = attributes(found.get(ETHTOOL_A_HEADER, b""))
    subject = printable(header.get(ETHTOOL_A_HEADER_DEV_NAME, b""))
    if not subject:
        raise FormatError("a setting without its interface")
    return number(header.get(ETHTOOL_A_HEADER_DEV_INDEX, b"")), subject, found


def _one_by_one(
    netlink: Generic, command: int, values: Callable[[Found], Values], known: Collection[int]
) -> Generator[Said, None, OSError | None]:
    """Yield what each interface answers that is not known yet; return what one of them could not."""
    failure = None
    for index, name in interfaces():
        if index in known:
            continue
        try:
            answer = netlink.ask_command(command, request(index))
        except OSError as error:
            if not is_absent(error):
                failure = of_interface(error, printable(name))
            continue
        if answer is not None:
            _, subject, found = answer_of(answer.body)
            yield from ((subject, what, value) for what, value in values(found))
    return failure
