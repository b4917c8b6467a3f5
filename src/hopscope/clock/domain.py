# SPDX-License-Identifier: Apache-2.0
"""Which clock a time is of. Times of two domains are never compared without a conversion between these two."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return what tells this host, since it was booted, from all others."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


class Clock(StrEnum):
    """A clock of a host."""

    MONOTONIC = "monotonic"  # of every trace (bpf_ktime_get_ns)
    REALTIME = "realtime"  # of the kernel's own packet stamps
    TAI = "tai"  # CLOCK_REALTIME without leap seconds, as far as the kernel was told how many there were
    PHC = "phc"  # of a NIC


@dataclass(frozen=True, slots=True)
class ClockDomain:
    """One clock of one host.

    Attributes
    ----------
    host
        What tells hosts apart, such as the boot id: after a boot, the clock is another.
    clock
        Which of its clocks.
    device
        Of a NIC's: which one.
    """

    host: str
    clock: Clock = Clock.MONOTONIC
    device: str = ""

    def __str__(self) -> str:
        """Return it for a sentence."""
        return f"{self.device or self.clock} of {self.host}"


class Converted(NamedTuple):
    """Times of another domain.

    Attributes
    ----------
    times_ns
        int64.
    bound_ns
        int64, of the same shape: the true time is no further away.
    """

    times_ns: NDArray[np.int64]
    bound_ns: NDArray[np.int64]


def same(have: ClockDomain, need: ClockDomain) -> None:
    """Refuse to mix domains.

    Raises
    ------
    UsageError
        They differ.
    """
    if have != need:
        raise UsageError(f"Times of {have} are not times of {need}", "Convert them first")
