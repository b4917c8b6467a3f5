# SPDX-License-Identifier: Apache-2.0
"""The first bytes of plaintext of calls in TLS libraries: out of rings of their own, as escaped text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HOP_PLAINTEXT_DTYPE
from hopscope.errors import FormatError
from hopscope.libbpf import RingReader

if TYPE_CHECKING:
    from hopscope.libbpf import BpfObject

Array = np.ndarray[Any, np.dtype[Any]]

_BYTES: Final = "bytes"


class Plaintexts:
    """Reads plaintext.

    Parameters
    ----------
    bpf
        The loaded object, with ``cfg_tls_bytes`` set.
    most_bytes
        Of each call, as there.
    ring_bytes
        Of each CPU's ring.
    """

    def __init__(self, bpf: BpfObject, most_bytes: int, ring_bytes: int) -> None:
        dtype = np.dtype([("head", HOP_PLAINTEXT_DTYPE), (_BYTES, np.uint8, (most_bytes,))])
        self._reader = RingReader.per_cpu(bpf.maps["plaintexts"], dtype, ring_bytes)

    def read(self) -> list[dict[str, Array]]:
        """Return what came since the last call, as columns of `PLAINTEXTS`, of each CPU that had any."""
        found = []
        for cpu in self._reader.cpus:
            try:
                records = self._reader.read_cpu(cpu)
            except FormatError:
                continue  # bytes that are no record have been skipped
            if len(records):
                found.append(_columns(records, cpu))
        return found

    def close(self) -> None:
        """Unmap the rings."""
        self._reader.close()


def _columns(records: Array, cpu: int) -> dict[str, Array]:
    head = records["head"]
    rows = zip(records[_BYTES], head["captured_bytes"], strict=True)
    texts = [escaped(row[:count].tobytes()) for row, count in rows]
    return {
        "time_ns": head["time_ns"].astype(np.int64),
        "cpu": np.full(len(records), cpu, np.int16),
        "tid": head["tid"].astype(np.int32),
        "text": np.array(texts, object),
    }


def escaped(data: bytes) -> str:
    """Return bytes as printable ASCII, from which they can be had back."""
    return data.decode("latin-1").encode("unicode_escape").decode("ascii")
