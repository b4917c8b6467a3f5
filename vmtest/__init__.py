# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernels under QEMU and runs the kernel tests there.

``kernels`` says which and fetches them, ``boot`` runs one, ``pair`` two at once, ``suite`` says what runs in it,
``results`` reads what came out, ``matrix`` makes the support matrix of it. Software emulation: times mean nothing here,
counts and order do.
"""

from __future__ import annotations


class VmtestError(Exception):
    """What keeps a kernel from being tested, and what to do next; one sentence each."""
