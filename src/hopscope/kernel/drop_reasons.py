# SPDX-License-Identifier: Apache-2.0
"""Why this kernel drops packets: ``enum skb_drop_reason``."""

from __future__ import annotations

from typing import Final

from hopscope.errors import FormatError
from hopscope.libbpf import Btf

_PREFIX: Final = "SKB_DROP_REASON_"


def drop_reasons() -> dict[int, str]:
    """Return this kernel's reasons: the numbers are another kernel's own."""
    try:
        names = Btf.kernel().enum_values("skb_drop_reason")
    except FormatError:
        return {}  # before 5.17
    return {number: name.removeprefix(_PREFIX) for name, number in names.items() if name.startswith(_PREFIX)}
