# SPDX-License-Identifier: Apache-2.0
"""The hardware clocks of this host, read together with CLOCK_MONOTONIC; none of them is set."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from hopscope.clock.phc import HardwareClock
from hopscope.errors import KernelError

if TYPE_CHECKING:
    from types import TracebackType

    from hopscope.clock.relation import ClockReading

_DEVICES: Final = Path("/sys/class/ptp")
_INTERFACES: Final = Path("/sys/class/net")
# More than a host has, but for those made of functions of one card.
MOST: Final = 8


class NicClocks:
    """All that can be read; a context manager that closes them.

    Parameters
    ----------
    devices, interfaces
        Where sysfs shows clocks and interfaces.
    """

    def __init__(self, devices: Path = _DEVICES, interfaces: Path = _INTERFACES) -> None:
        self._cleanup = ExitStack()
        self._clocks: dict[str, HardwareClock] = {}
        names = sorted(path.name for path in devices.iterdir()) if devices.is_dir() else []
        for name in names[:MOST]:
            with contextlib.suppress(KernelError, ValueError):
                clock = self._cleanup.enter_context(HardwareClock(int(name.removeprefix("ptp"))))
                self._clocks[_shown(name, devices, interfaces)] = clock

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close them; idempotent."""
        self._cleanup.close()
        self._clocks.clear()

    def read(self) -> dict[str, ClockReading]:
        """Return both clocks at one instant, by what the hardware clock is called; those that went away are not there.

        The name is that of the device, and of the interface that has it, or of what else it is.
        """
        found = {}
        for name, clock in self._clocks.items():
            with contextlib.suppress(KernelError):
                found[name] = clock.read()
        return found


def _shown(name: str, devices: Path, interfaces: Path) -> str:
    of = sorted(path.name for path in interfaces.iterdir() if (path / "device" / "ptp" / name).exists())
    with contextlib.suppress(OSError):
        of = of or [(devices / name / "clock_name").read_text(encoding="utf-8", errors="replace").strip()]
    return f"{name} ({', '.join(of)})" if of else name
