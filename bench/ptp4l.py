# SPDX-License-Identifier: Apache-2.0
"""linuxptp's ptp4l with software stamps between two namespaces, free running: it only tells, no clock is set.

CAP_SYS_TIME is taken from it, too, so that it could not.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopscope.lab import Namespace

_OFFSET: Final = re.compile(r"master offset +(-?\d+) ")
_CONFIG: Final = """[global]
free_running 1
time_stamping software
network_transport L2
logAnnounceInterval -2
logSyncInterval -2
logMinDelayReqInterval -2
summary_interval -2
freq_est_interval 0
uds_address {folder}/{name}
{more}
"""


def missing() -> str:
    """Return which program is not here, nothing if all are."""
    return next((name for name in ("ptp4l", "setpriv") if shutil.which(name) is None), "")


def offsets_ns(ends: list[tuple[Namespace, str]], seconds: float) -> list[int]:
    """Return what it says of two hosts' difference, by namespace and interface, after it has settled for a quarter."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for name, more, (namespace, ifname) in zip(("server", "client"), ("", "slaveOnly 1"), ends, strict=True):
            config = Path(folder, f"{name}.cfg")
            config.write_text(_CONFIG.format(folder=folder, name=name, more=more), encoding="ascii")
            argv = ["setpriv", "--bounding-set=-sys_time", "ptp4l", "-m", "-q", "-f", str(config), "-i", ifname]
            with Path(folder, f"{name}.log").open("wb") as log:
                child = stack.enter_context(namespace.popen(argv, stdout=log, stderr=log))
            stack.callback(child.kill)
        time.sleep(seconds)
        found = [int(offset) for offset in _OFFSET.findall(Path(folder, "client.log").read_text(encoding="utf-8"))]
    return found[len(found) // 4 :]
