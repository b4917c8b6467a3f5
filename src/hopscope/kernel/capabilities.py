# SPDX-License-Identifier: Apache-2.0
"""The rights that attaching takes."""

from __future__ import annotations

import os

from hopscope.errors import PrivilegeError
from hopscope.kernel.host import how_to_get, in_initial_namespace
from hopscope.libbpf import missing_capabilities


def require_rights() -> None:
    """Return if this process may load and attach BPF programs.

    Raises
    ------
    PrivilegeError
        It may not; names the missing capabilities.
    """
    if not in_initial_namespace("user"):
        raise PrivilegeError(
            "Attaching to the kernel requires CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN on the host; capabilities in "
            "a user namespace do not count",
            "Run hopscope as root on the host",
        )
    missing = missing_capabilities()
    if missing:
        raise PrivilegeError(
            f"Attaching to the kernel requires CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (missing: {', '.join(missing)})",
            how_to_get(missing, os.geteuid()),
        )
