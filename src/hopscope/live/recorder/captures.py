# SPDX-License-Identifier: Apache-2.0
"""The first bytes of packets: out of rings of their own, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HOP_CAPTURE_DTYPE, HopPoint
from hopscope.errors import FormatError
from hopscope.libbpf import RingReader
from hopscope.store.capture import Captured

if TYPE_CHECKING:
    from hopscope.libbpf import BpfObject

Array = np.ndarray[Any, np.dtype[Any]]

_BYTES: Final = "bytes"


class Captures:
    """Reads captured bytes.

    Parameters
    ----------
    bpf
        The loaded object, with ``cfg_snap`` set.
    snap_bytes
        Of each frame, as there.
    ring_bytes
        Of each CPU's ring.
    """

    def __init__(self, bpf: BpfObject, snap_bytes: int, ring_bytes: int) -> None:
        dtype = np.dtype([("head", HOP_CAPTURE_DTYPE), (_BYTES, np.uint8, (snap_bytes,))])
        self._reader = RingReader.per_cpu(bpf.maps["captures"], dtype, ring_bytes)

    def read(self) -> Captured | None:
        """Return what came since the last call, in the order of time; None where nothing did."""
        try:
            records = self._reader.read()
        except FormatError:
            return None  # what is no record of ours has been stepped over
        if not len(records):
            return None
        records = records[np.argsort(records["head"]["time_ns"], kind="stable")]
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

    def close(self) -> None:
        """Unmap the rings."""
        self._reader.close()
