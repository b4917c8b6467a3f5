# SPDX-License-Identifier: Apache-2.0
"""The rights that attaching takes."""

from __future__ import annotations

from hopscope.errors import PrivilegeError
from hopscope.libbpf import missing_capabilities


def require_rights() -> None:
    """Return if this process may load and attach BPF programs.

    Raises
    ------
    PrivilegeError
        It may not; names the missing capabilities.
    """
    missing = missing_capabilities()
    if missing:
        raise PrivilegeError(
            f"Attaching to the kernel takes CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (missing: {', '.join(missing)})",
            "Run it as root: sudo hopscope …",
        )
