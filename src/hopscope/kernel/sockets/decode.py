# SPDX-License-Identifier: Apache-2.0
"""Answers of NETLINK_SOCK_DIAG, decoded in bulk: no step is done for each socket.

Datagrams are walked side by side, a message of each at a time. Messages of one length with the same attribute headers
at the same places have one layout: it is read from the first of them and compared with all others at once. Each
attribute is then one copy from all messages of the layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.errors import FormatError
from hopscope.kernel.netlink import ATTRIBUTE, HEADER, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, TYPE_MASK
from hopscope.kernel.sockets.table import MESSAGE, ROW, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hopscope.kernel.sockets.table import Rows

_ATTRIBUTES_AT: Final = HEADER.size + MESSAGE.itemsize
_ULP_NAME: Final = 1  # INET_ULP_INFO_NAME, the first of the attributes in INET_DIAG_ULP_INFO


class _Target(NamedTuple):
    """Where an attribute goes: the field of a row; `least` bytes it has at least, the rest is 0."""

    field: str
    least: int


_TARGETS: Final[Mapping[int, _Target]] = {
    bit.value.bit_length() - 1: target
    for bit, target in {
        Seen.INFO: _Target("tcp", 104),  # as of Linux 2.6
        Seen.VEGASINFO: _Target("control", 16),
        Seen.CONG: _Target("cong", 1),
        Seen.TOS: _Target("tos", 1),
        Seen.TCLASS: _Target("tclass", 1),
        Seen.SKMEMINFO: _Target("memory", 28),
        Seen.SHUTDOWN: _Target("shutdown", 1),
        Seen.DCTCPINFO: _Target("control", 16),
        Seen.SKV6ONLY: _Target("v6only", 1),
        Seen.MARK: _Target("mark", 4),
        Seen.BBRINFO: _Target("control", 20),
        Seen.CLASS_ID: _Target("class_id", 4),
        Seen.ULP_INFO: _Target("ulp", 0),
        Seen.CGROUP_ID: _Target("cgroup_id", 8),
        Seen.SOCKOPT: _Target("sockopt", 2),
    }.items()
}
_INFO: Final = Seen.INFO.value.bit_length() - 1
_ULP: Final = Seen.ULP_INFO.value.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Decoded:
    """What some datagrams had.

    Attributes
    ----------
    rows
        Sockets; `netns` and `protocol` are not in the messages and are 0.
    interrupted
        Whether a message says that the kernel's table changed while it was walked.
    ended
        Whether the end of the answer was there.
    error
        The errno that the kernel ended it with; 0: none.
    tcp_info_bytes
        The length of ``struct tcp_info``; 0 where no message had one.
    """

    rows: Rows
    interrupted: bool
    ended: bool
    error: int
    tcp_info_bytes: int


class _Attribute(NamedTuple):
    number: int
    at: int
    length: int


def decode(data: NDArray[np.uint8], ends: NDArray[np.int64], sequence: int) -> Decoded:
    """Return the sockets in datagrams that lie one behind the other.

    Parameters
    ----------
    data
        The datagrams, each begins at a multiple of 4 bytes.
    ends
        Where each ends.
    sequence
        The number of the request; answers to others are left out.

    Raises
    ------
    FormatError
        A message or an attribute does not end where it says, or is not of the kind that was asked for.
    """
    words = _words(data)
    offsets = _walk(words, ends)
    headers = words[offsets >> 2], words[(offsets >> 2) + 1], words[(offsets >> 2) + 2]
    ours = headers[2] == np.uint32(sequence)
    offsets, lengths, kinds = offsets[ours], headers[0][ours], headers[1][ours]
    interrupted = bool(np.any(kinds >> np.uint32(16) & np.uint32(NLM_F_DUMP_INTR)))
    kinds = kinds & np.uint32(0xFFFF)
    ending = np.flatnonzero((kinds == NLMSG_DONE) | (kinds == NLMSG_ERROR))
    error = 0
    if len(ending):
        error = _error(words, int(offsets[ending[0]]), int(lengths[ending[0]]))
        offsets, lengths = offsets[: ending[0]], lengths[: ending[0]]
    rows = np.zeros(len(offsets), ROW)
    longest = _fill(rows, data, words, offsets, lengths)
    return Decoded(rows, interrupted, bool(len(ending)), error, longest)


def _words(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return data[: len(data) & ~3].view(np.uint32)


def _walk(words: NDArray[np.uint32], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where messages begin, in order: one step does a message of each datagram."""
    at = np.concatenate(([0], (ends[:-1] + 3) & ~3)) if len(ends) else ends
    if len(ends) and ((ends > len(words) * 4).any() or (at > ends).any()):
        raise FormatError("A netlink datagram does not end at a multiple of 4 bytes")
    steps = []
    at, ends = at[at < ends], ends[at < ends]
    while len(at):
        lengths = words[at >> 2].astype(np.int64)
        if np.logical_or(lengths < HEADER.size, lengths > ends - at).any():
            raise FormatError("A netlink message does not end where it says")
        steps.append(at)
        at = at + (lengths + 3 & ~3)
        going = at < ends
        if not going.all():
            at, ends = at[going], ends[going]
    return np.sort(np.concatenate(steps)) if steps else np.zeros(0, np.int64)


def _error(words: NDArray[np.uint32], offset: int, length: int) -> int:
    """Return the errno of NLMSG_ERROR or NLMSG_DONE; the latter need not have one."""
    if length < HEADER.size + 4:
        return 0
    return -int(words[(offset + HEADER.size) >> 2].astype(np.int32))


def _fill(
    rows: Rows,
    data: NDArray[np.uint8],
    words: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.uint32],
) -> int:
    """Fill rows, in the order of the layouts and not of the messages; return the longest tcp_info."""
    if len(lengths) and int(lengths.min()) < _ATTRIBUTES_AT:
        raise FormatError("A message of sock_diag is shorter than struct inet_diag_msg")
    filled = longest = 0
    for length in np.unique(lengths).tolist():
        left = offsets[lengths == length]
        while len(left):
            layout = _layout(words, int(left[0]), length)
            same = _like(layout, words, left)
            of_layout = left if same.all() else left[same]
            target = rows[filled : filled + len(of_layout)]
            _copy(target["message"], data, of_layout + HEADER.size, MESSAGE.itemsize)
            longest = max(longest, _fill_attributes(target, data, layout, of_layout))
            filled += len(of_layout)
            left = left[~same]
    return longest


def _layout(words: NDArray[np.uint32], offset: int, length: int) -> list[_Attribute]:
    """Return the attributes of a message; of two with one number, the first counts."""
    found, at = [], _ATTRIBUTES_AT
    while at < length:
        if length - at < ATTRIBUTE.size:
            raise FormatError("A message of sock_diag ends within the header of an attribute")
        header = int(words[(offset + at) >> 2])
        size, number = header & 0xFFFF, header >> 16 & TYPE_MASK
        if not ATTRIBUTE.size <= size <= length - at:
            raise FormatError(f"Attribute {number} of sock_diag does not end where it says")
        found.append(_Attribute(number, at, size))
        at += size + 3 & ~3
    return found


def _like(layout: list[_Attribute], words: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which messages have the attribute headers of the first one at the same places."""
    same = np.ones(len(offsets), np.bool_)
    for attribute in layout:
        header = words[(offsets + attribute.at) >> 2]
        same &= header == header[0]
    return same


def _fill_attributes(rows: Rows, data: NDArray[np.uint8], layout: list[_Attribute], offsets: NDArray[np.int64]) -> int:
    seen, tcp_info_bytes = 0, 0
    for number, at, length in layout:
        target = _TARGETS.get(number)
        if target is None or seen >> number & 1:
            continue
        payload = length - ATTRIBUTE.size
        if payload < target.least:
            raise FormatError(f"Attribute {number} of sock_diag has {payload} bytes, and {target.least} are needed")
        seen |= 1 << number
        at += ATTRIBUTE.size  # noqa: PLW2901 # from here on the payload counts
        if number == _ULP:
            _fill_ulp(rows["ulp"], data, offsets + at, payload)
            continue
        _copy(rows[target.field], data, offsets + at, payload)
        if number == _INFO:
            tcp_info_bytes = payload
    rows["seen"] = seen
    return tcp_info_bytes


def _fill_ulp(names: NDArray[Any], data: NDArray[np.uint8], offsets: NDArray[np.int64], payload: int) -> None:
    """Take the name of the upper layer protocol, the first of the nested attributes."""
    nested = np.zeros((len(offsets), 20), np.uint8)
    _copy(nested.view("V20")[:, 0], data, offsets, payload)
    header = nested[:, :4].copy().view(np.uint16)
    length = np.where((header[:, 1] & TYPE_MASK) == _ULP_NAME, header[:, 0], 0).astype(np.int64)
    if (length > payload).any():
        raise FormatError("The name of an upper layer protocol in sock_diag does not end where it says")
    name = nested[:, 4:]
    name[np.arange(16) >= length[:, None] - ATTRIBUTE.size] = 0
    name[np.cumsum(name == 0, axis=1) > 0] = 0
    names[:] = name.copy().view("S16")[:, 0]


def _copy(field: NDArray[Any], data: NDArray[np.uint8], offsets: NDArray[np.int64], size: int) -> None:
    """Copy `size` bytes from each offset into a field of rows, no more than it holds."""
    size = min(size, field.dtype.itemsize)
    if not size or not len(field):
        return
    # Every 4 bytes of the data begins an item that overlaps the next ones: taking some of them is one copy each.
    items = np.ndarray(((len(data) - size) // 4 + 1,), f"V{size}", data, strides=(4,))
    beginning: Any = {"names": ["bytes"], "formats": [f"V{size}"], "offsets": [0], "itemsize": field.dtype.itemsize}
    field.view(np.dtype(beginning))["bytes"] = items[offsets >> 2]
