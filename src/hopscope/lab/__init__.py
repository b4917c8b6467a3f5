# SPDX-License-Identifier: Apache-2.0
"""A laboratory: network namespaces and real traffic of our own, with answers that are known beforehand.

Used by ``hopscope demo``, by the tests and by the benchmarks. Everything in it ends with the process that made it.
"""

from __future__ import annotations

from hopscope.lab.namespaces import Namespace
from hopscope.lab.netlink import Tbf
from hopscope.lab.veth import Lab, shape
from hopscope.lab.workload import Workload

__all__ = ["Lab", "Namespace", "Tbf", "Workload", "shape"]
