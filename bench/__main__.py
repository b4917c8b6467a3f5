# SPDX-License-Identifier: Apache-2.0
"""The command: ``python -m bench [NAME...]``."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.tools import ToolError
from build_bpf import BuildError
from hopscope.errors import HopscopeError

if TYPE_CHECKING:
    from collections.abc import Sequence

BENCHMARKS: Final = {
    "hits": "cost of each run of each BPF program of rx, over an empty program",
    "throughput": "what applications lose while rx runs, and while bpftrace does",
    "transmit": "what applications lose while tx runs, selected or not, and while others measure",
    "callbacks": "whose sends run the BPF programs of tx, and the cost of a run",
    "cpu": "what applications lose to the accounting of CPU time and to its stack samples, and to perf",
    "stacks": "cost of a stack sample in a ring, and in a mapped array with two halves",
    "record": "what a TCP stream loses to a recording, ours and trace-cmd's; what the writer takes",
    "report": "how long reports of a recording take, ours, trace-cmd's and perf's; those of two hosts', and of one",
    "export": "how many events a second each format of export takes",
    "page": "how long the timeline of a recording of ten million events takes in a browser, opened and zoomed",
    "top": "which part of a CPU `top` takes at one refresh a second",
    "counters": "what a reading of all counters takes, and nstat, ip, tc and ss",
    "reader": "CPU and memory of the process, time to start and to attach",
    "ring": "cost of a record that is read in bulk, and by a callback",
    "sockets": "how long it takes to read 10,000 TCP sockets, ours and ss; memory for 100,000",
    "clocks": "how far off the comparison of two and of four hosts' clocks is, and ptp4l's",
    "hosts": "what it takes to record two hosts over ssh, beside one recording of both",
    "agent": "how fast blocks come from another host through ssh, and what the agent there takes",
    "join": "how long two recordings of 5 million events take to be joined, and how far off times are then",
    "causes": "whether explain names the right cause of what holds messages, in cases of known truth",
    "slow": "which hop tells a slow virtual machine from a fast one, where it is known what makes it slow",
    "ways": "what each way to attach an empty BPF program costs a datagram",
    "offload": "what it takes to select events in the reader, in the recording programs, and by tc from frames",
    "subscribers": "how many events a second three subscribers of one `serve` get, also when one of them stalls",
    "wire": "how many frames a second `wire` sends, of a flood and of a recording, and what it does not send",
    "rules": "at which hop 25,000 rules show that match nothing, and which rate they leave to ten TCP flows",
    "services": "what networking takes of the CPU time of ten services, by ours and by perf, and what the answers lose",
    "libraries": "what a recorded function of a library costs its caller",
    "fleet": "how long questions on a thousand hosts' histograms take, and whether what was planted is found",
    "stamps": "cost of SO_TIMESTAMPING to an application, the kernel's and hopscope.timestamping's",
}


def main(argv: Sequence[str]) -> int:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure hopscope's own cost. " + "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items()),
    )
    # No `choices`: argparse in 3.11 tests an empty list against them.
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each benchmark; its own number by default")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    sys.stdout.write(machine() + "\n")
    rounds = {} if options.rounds is None else {"rounds": options.rounds}
    for name in options.names or BENCHMARKS:
        sys.stdout.write(f"\n== {name}: {BENCHMARKS[name]}\n")
        sys.stdout.flush()
        try:
            for text in importlib.import_module(f"bench.{name}").run(**rounds):
                sys.stdout.write(text)
                sys.stdout.flush()
        except (HopscopeError, ToolError, BuildError) as error:
            sys.stderr.write(f"bench {name}: {error}\n")
            return error.exit_code if isinstance(error, HopscopeError) else 1
    return 0


def machine() -> str:
    """Return what the figures depend on: kernel, CPU, and how busy the machine is with other things."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    cpu = models[0] if models else platform.machine()
    busy = os.getloadavg()[0]
    return f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} CPUs ({cpu}), load before: {busy:.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
