# SPDX-License-Identifier: Apache-2.0
"""Energy that the processors' packages take, by RAPL (``Documentation/power/powercap/powercap.rst``)."""

from __future__ import annotations

from pathlib import Path


def read_energy_uj(root: Path = Path("/")) -> int | None:
    """Return microjoules of all packages since some time before; None where the machine or a right is missing."""
    total = None
    for zone in (root / "sys/class/powercap").glob("*-rapl:[0-9]*"):
        try:
            if (zone / "name").read_text().startswith("package"):
                total = (total or 0) + int((zone / "energy_uj").read_text())
        except OSError:
            continue
    return total


def energy_j(before_uj: int | None, after_uj: int | None) -> float | None:
    """Return what was taken between two readings, in J."""
    return None if before_uj is None or after_uj is None else (after_uj - before_uj) / 1e6
