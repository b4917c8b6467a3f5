# SPDX-License-Identifier: Apache-2.0
"""What differs in the set-up of two recordings: the kernel, how it was recorded, and the kernel's settings."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from hopscope.term.format import plural
from hopscope.trace.recorded_counters import last_settings

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

# Source, its subject, and the name of a setting → its values in all network namespaces.
Settings: TypeAlias = dict[tuple[str, str, str], set[str]]

_SHOWN: Final = 20
_OF_HOST: Final = {"release": "kernel release", "machine": "machine type", "cpus": "number of CPUs"}
_OF_RECORDING: Final = ("profiles", "points", "tracepoints", "sampling_1_in")
# The kernel and irqbalance move interrupts: these come last.
_LAST: Final = "interrupt_setting"
_NONE: Final = "none"
_HOSTS: Final = "SELECT release, machine FROM hosts"


def changed_settings(before: Trace, after: Trace) -> list[str]:
    """Return a sentence for each difference, up to a limit, and one if settings could not be compared.

    Settings of network namespaces are compared by device and name, as each run may have namespaces of its own. A device
    that only one of the recordings has is not compared, nor is a probe point.
    """
    kernels = [_of_kernel(trace) for trace in (before, after)]
    found = _changes(*(_of_recording(trace) for trace in (before, after)))
    if all(kernels):
        found += _changes(*kernels)
    notes = [f"different set-up: {change}" for change in found[:_SHOWN]]
    if len(found) > _SHOWN:
        notes.append(f"and {plural(len(found) - _SHOWN, 'more difference')} in the set-up")
    without = [name for name, kernel in zip(("first", "second"), kernels, strict=True) if not kernel]
    if without:
        notes.append(f"the kernels' settings are not compared: not recorded in the {' and the '.join(without)} trace")
    return notes


def _changes(one: Settings, other: Settings) -> list[str]:
    """Return the settings that differ, with both values."""
    subjects = {key[:2] for key in one} & {key[:2] for key in other}
    return [
        f"{' '.join(filter(None, key))} {_text(one.get(key))}, then {_text(other.get(key))}"
        for key in sorted({*one, *other}, key=lambda key: (key[0] == _LAST, key))
        if key[:2] in subjects and one.get(key) != other.get(key)
    ]


def _text(values: set[str] | None) -> str:
    return " or ".join(sorted(values)) if values else _NONE


def _of_recording(trace: Trace) -> Settings:
    """Return the kernel's release, what was recorded, and the attach method of each probe point."""
    metadata = trace.metadata
    hosts = [{"release": release, "machine": machine} for release, machine in trace.rows(_HOSTS)] or [metadata.host]
    found = [(title, "", host.get(name, "")) for name, title in _OF_HOST.items() for host in hosts]
    found += [("record option", name, _plain(metadata.options.get(name))) for name in _OF_RECORDING]
    found += [
        ("probe point", row.get("point", ""), row.get("way", ""))
        for row in metadata.plan
        if row.get("status") == "attached"
    ]
    settings: Settings = defaultdict(set)
    for kind, name, value in found:
        if value:
            settings[kind, name, ""].add(value)
    return settings


def _plain(option: object) -> str:
    return " ".join(map(str, option)) if isinstance(option, list) else str(option or "")


def _of_kernel(trace: Trace) -> Settings:
    """Return sysctls, offloads, root queueing disciplines, rings, affinities and the like; none if not recorded."""
    settings: Settings = defaultdict(set)
    for key, value in last_settings(trace).items():
        settings[key.source, key.subject, key.name].add(value)
    return settings
