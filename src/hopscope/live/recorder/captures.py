# SPDX-License-Identifier: Apache-2.0
"""The first bytes of packets, of whole frames or of what they carry: out of rings of their own, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HOP_CAPTURE_DTYPE, HopPoint
from hopscope.errors import FormatError
from hopscope.libbpf import RingReader
from hopscope.store.capture import Captured
from hopscope.store.schema import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.libbpf import BpfObject

Array = np.ndarray[Any, np.dtype[Any]]

# What is captured of frames, which is no table.
CAPTURE: Final = "capture"
PAYLOADS: Final = "payloads"
_BYTES: Final = "bytes"
# Of each byte, and of none.
_DIGITS: Final = np.array([f"{byte:02x}".encode() for byte in range(256)] + [b""], "S2")
_NONE: Final = 256


class Captures:
    """Reads captured bytes.

    Parameters
    ----------
    bpf
        The loaded object, with ``cfg_capture`` set.
    slot_bytes
        Room for bytes of each packet, as there.
    ring_bytes
        Of each CPU's ring.
    """

    def __init__(self, bpf: BpfObject, slot_bytes: int, ring_bytes: int) -> None:
        dtype = np.dtype([("head", HOP_CAPTURE_DTYPE), (_BYTES, np.uint8, (slot_bytes,))])
        self._reader = RingReader.per_cpu(bpf.maps["captures"], dtype, ring_bytes)

    def read(self) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield what came since the last call, in the order of time.

        Frames come as :data:`CAPTURE` and the columns of :class:`~hopscope.store.capture.Captured`, payloads as rows of
        the table.
        """
        try:
            records = self._reader.read()
        except FormatError:
            return  # bytes that are no record have been skipped
        records = records[np.argsort(records["head"]["time_ns"], kind="stable")]
        payloads = records["head"]["is_payload"] != 0
        if not payloads.all():
            yield CAPTURE, _frames(records[~payloads])._asdict()
        if payloads.any():
            yield PAYLOADS, _payloads(records[payloads])

    def close(self) -> None:
        """Unmap the rings."""
        self._reader.close()


def _frames(records: NDArray[np.void]) -> Captured:
    head = records["head"]
    return Captured(
        time_ns=head["time_ns"].astype(np.int64),
        ifindex=head["ifindex"].astype(np.int64),
        netns=head["netns"].astype(np.int64),
        len_bytes=head["len_bytes"].astype(np.int64),
        captured_bytes=head["captured_bytes"].astype(np.int64),
        sent=head["point"] == HopPoint.HOP_POINT_TX_START,
        frames=records[_BYTES],
    )


def _payloads(records: NDArray[np.void]) -> dict[str, Array]:
    head = records["head"]
    data = _hexadecimal(records[_BYTES], head["captured_bytes"])
    return {
        column.name: data if column.name == "data" else head[column.name].astype(column.dtype)
        for column in BY_NAME[PAYLOADS].columns
    }


def _hexadecimal(rows: NDArray[np.uint8], lengths: NDArray[np.uint16]) -> Array:
    """Return the first bytes of each row, so many of them, as text."""
    known = np.where(np.arange(rows.shape[1]) < lengths[:, None], rows.astype(np.int16), _NONE)
    return _DIGITS[known].view(f"S{2 * rows.shape[1]}").ravel().astype(str).astype(object)
