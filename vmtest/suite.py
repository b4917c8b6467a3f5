# SPDX-License-Identifier: Apache-2.0
"""What runs in each kernel: the one place that says which tests, and what is asked of the kernel besides.

A run leaves in its folder ``facts.txt`` (one ``name=value`` a line), ``probes.json`` (what ``hopscope probes --json``
said there) and ``junit.xml`` (what the tests came to).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmtest import VmtestError
from vmtest.boot import GUEST_FOLDER, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

# What differs between kernels: the ways to attach, to follow TCP, and to probe functions. Tests that pace their traffic
# say nothing under emulation. And what steps the machine's clock, which no test may do where others work.
TESTS: Final = (
    "tests/verbs/rx/test_ways.py",
    "tests/verbs/rx/test_clock.py",
    "tests/verbs/tx/test_ways.py",
    "tests/verbs/tx/test_counts.py::test_so_many_sends_are_so_many_messages",
    "tests/verbs/record/test_ways.py",
    "tests/verbs/cpu/test_ways.py",
    "tests/verbs/cpu/test_hotplug.py",
    "tests/kernel/test_functions.py",
    "tests/verbs/count/test_command.py",
)
# What needs a NIC with a hardware clock.
NIC_TESTS: Final = (
    "tests/verbs/rx/test_nic_stamps.py",
    "tests/clock/test_nic_clocks.py",
    "tests/clock/test_nic_stamps.py",
)
# What needs another host.
PAIR_TESTS: Final = ("tests/verbs/join/test_two_hosts.py",)
FACTS_FILE: Final = "facts.txt"
PROBES_FILE: Final = "probes.json"
JUNIT_FILE: Final = "junit.xml"
_PROBES_VARIABLE: Final = "HOPSCOPE_PROBES"  # where the tests find what was said
PROBES_TIMEOUT_S: Final = 600  # a verb that hangs must not cost the tests their time

_FACTS: Final = f"""{{
echo "release=$(uname -r)"
echo "btf_bytes=$(stat -c %s /sys/kernel/btf/vmlinux 2>/dev/null || echo 0)"
echo "module_btf=$(ls /sys/kernel/btf 2>/dev/null | grep -vc '^vmlinux$')"
echo "kprobes=$(test -e /sys/kernel/tracing/kprobe_events && echo yes || echo no)"
echo "tracers=$(cat /sys/kernel/tracing/available_tracers 2>/dev/null)"
echo "lockdown=$(cat /sys/kernel/security/lockdown 2>/dev/null)"
echo "clock=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
}} >{GUEST_FOLDER}/{FACTS_FILE}"""


def pytest_command(wanted: Sequence[str] = TESTS, repository: Path = REPOSITORY) -> list[str]:
    """Return the command that runs those of the wanted tests that the tree has.

    Raises
    ------
    VmtestError
        The tree has none of them.
    """
    there = [name for name in wanted if (repository / name.partition("::")[0]).exists()]
    if not there:
        raise VmtestError(f"none of {', '.join(wanted)} is in {repository}. Name a command after --")
    # An emulated CPU is slow, and the whole has a limit.
    pytest = [sys.executable, "-m", "pytest", "-m", "root", "-q", "-p", "no:cacheprovider", "--timeout=0"]
    return [*pytest, f"--junitxml={GUEST_FOLDER}/{JUNIT_FILE}", *there]


def guest_commands(command: Sequence[str], modules: Sequence[str] = (), *, with_probes: bool = True) -> str:
    """Return the shell script for the guest.

    It loads `modules`, writes down facts and, if wanted, probe points, and runs `command`, whose exit code is the
    script's.
    """
    hopscope = Path(sys.executable).with_name("hopscope")
    ask = f"timeout {PROBES_TIMEOUT_S} {shlex.quote(str(hopscope))} probes --json"
    probes = f"{ask} >{GUEST_FOLDER}/{PROBES_FILE} 2>{GUEST_FOLDER}/probes.err"
    lines = [shlex.join(("modprobe", "-a", *modules))] if modules else []
    known = f"export {_PROBES_VARIABLE}={GUEST_FOLDER}/{PROBES_FILE}"
    lines += [_FACTS, probes, known] if with_probes and hopscope.exists() else [_FACTS]
    return "\n".join([*lines, shlex.join(command)])
