# SPDX-License-Identifier: Apache-2.0
"""Whether a device could filter frames itself: what `tc` calls rules with ``skip_sw``."""

from __future__ import annotations

import shlex
from typing import Final

from hopscope.kernel.counters.ethtool_features import features

_FEATURE: Final = "hw-tc-offload"
_OTHERS: Final = "the bytecode of bpf and the raw bytes of nft stay in software"


def offload_state(interface: str) -> str:
    """Return the feature of an interface in the words of ``ethtool -k``; empty: there is none, or it is not told."""
    try:
        return next((str(value) for name, what, value in features() if (name, what) == (interface, _FEATURE)), "")
    except OSError:
        return ""


def offload_remark(interface: str, state: str) -> str:
    """Return a comment on which rules the device could take; empty: nothing is known of it."""
    name = shlex.quote(interface)
    if not state:
        return ""
    if state.startswith("on"):
        return (
            f"# {name} may take the rules of u32 (hw-tc-offload: {state}), if its driver knows such: write `skip_sw` "
            f"behind `u32`, and tc refuses what it cannot take; {_OTHERS}"
        )
    if "fixed" in state:
        return f"# {name} takes no rules, which are all in software (hw-tc-offload: {state})"
    return f"# {name} could take the rules of u32 after `ethtool -K {name} hw-tc-offload on`, with `skip_sw`; {_OTHERS}"
