# SPDX-License-Identifier: Apache-2.0
"""Calls and returns of kernel functions: as many as a program causes, or one sentence that says why not."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.bpf.layout import HopFetchKind
from hopscope.errors import KernelError, UsageError
from hopscope.kernel import functions as kernel_functions
from hopscope.kernel.function_values import Value
from hopscope.kernel.functions import FunctionEvent, ValuesEvent, Wanted, fields, function_events
from hopscope.kernel.kallsyms import KALLSYMS, KernelSymbols
from hopscope.kernel.tracepoint_columns import EventColumns
from hopscope.kernel.tracepoints import LOSSES, Spec, Tracepoints
from hopscope.libbpf import function_offsets, perf_ring
from hopscope.libbpf.perf_event import KPROBE_PMU, FunctionProbe, ProgramOutput, open_uprobe
from hopscope.store.trace import Trace
from tests.lab.measure import NetworkPath, ping, udp_pair, way
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.kernel.tracepoints import Columns
    from hopscope.lab import Lab

needs_kprobes = pytest.mark.skipif(
    not KPROBE_PMU.exists(), reason="this kernel has no kprobes (CONFIG_KPROBE_EVENTS=y makes them)"
)
CALLS, RETURNS = "e_function_udp_sendmsg", "e_return_udp_sendmsg"
SPECS = ["function:udp_sendmsg", "return:udp_sendmsg"]
DATAGRAMS = 1009
LEN_BYTES = 997
PAGE = 4096
# Kernels number the types of their PMUs upwards from 0; this one stays free.
NO_PMU = 0x7FFF_FFFF


@pytest.fixture
def veth(kept_lab: Lab) -> NetworkPath:
    return way(kept_lab, "veth-4")


@pytest.fixture
def pmu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that says it has probes, and then refuses them."""
    (tmp_path / "format").mkdir()
    (tmp_path / "type").write_text(f"{NO_PMU}\n")
    (tmp_path / "format" / "retprobe").write_text("config:0\n")
    monkeypatch.setattr(kernel_functions, "KPROBE_PMU", tmp_path)


def send(path: NetworkPath, count: int) -> None:
    """Send from each CPU, for each has a probe of its own."""
    cpus = os.sched_getaffinity(0)
    with udp_pair(path) as (sender, receiver):
        try:
            for index, cpu in enumerate(sorted(cpus)):
                os.sched_setaffinity(0, {cpu})
                part = len(range(index, count, len(cpus)))
                assert ping(sender, receiver, part, LEN_BYTES) == part
        finally:
            os.sched_setaffinity(0, cpus)


def own(columns: Columns) -> Columns:
    """Return this thread's rows in order of time."""
    rows = np.flatnonzero(columns["tid"] == threading.get_native_id())
    rows = rows[np.argsort(columns["time_ns"][rows])]
    return {name: values[rows] for name, values in columns.items()}


def probed() -> str:
    """Return the kernel's own list of its probes; debugfs is mounted for that alone."""
    shell = (
        "mountpoint -q /sys/kernel/debug || mount -t debugfs d /sys/kernel/debug; cat /sys/kernel/debug/kprobes/list"
    )
    return subprocess.run(["unshare", "-m", "sh", "-c", shell], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("function:udp_*", "'function:udp_[*]' is a pattern, which is not allowed for functions: .*Name each function"),
        ("return:tcp_?cv", "'return:tcp_[?]cv' is a pattern"),
        ("function:[a-f]oo", "is a pattern"),
        ("function:udp_sendmsg:len > 3", "'function:udp_sendmsg:len > 3' is no function .*VALUE if VALUE > 1000"),
        ("function:", "'function:' is not the name of a tracepoint.*function:NAME"),
        ("function:udp_sendmsg+0x10 len", "'function:udp_sendmsg[+]0x10 len' has an offset, where neither arguments"),
        ("function:udp_sendmsg+0x10000000000000010", "'function:udp_sendmsg[+]0x10000000000000010' is no function"),
        ("function:udp_sendmsg+x", "'function:udp_sendmsg[+]x' is no function of the kernel. Write function:NAME"),
        ("return:udp_sendmsg+0x10", "'return:udp_sendmsg[+]0x10' has an offset"),
        ("function:udp_sendmsg len,sk", "'len,sk' in 'function:udp_sendmsg len,sk' is no name of a value"),
        ("function:udp_sendmsg len if", "'' is not a condition: expected the name of a field at its end"),
        ("function:udp_sendmsg if len ~ 3", "'len ~ 3' is not a condition: expected"),
    ],
)
def test_what_cannot_be_asked_for_is_said_in_a_sentence(spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Tracepoints([spec])


def test_a_function_is_none_of_the_tracepoints() -> None:
    assert Spec.parse(" return: udp_sendmsg ").function == Wanted("return", "udp_sendmsg")
    text = "function: udp_sendmsg len  sk->sk_sndbuf stack if(sk->sk_sndbuf>1000)"
    wanted = Wanted("function", "udp_sendmsg", 0, ("len", "sk.sk_sndbuf"), stack=True, filter="(sk.sk_sndbuf>1000)")
    assert Spec.parse(text).function == wanted
    assert Spec.parse("function:f+0x1f").function == Wanted("function", "f", 0x1F)
    assert [Spec.parse(text).is_function for text in ("function:f", "return:f", "functions:f", "*:f")] == [
        *(True, True),
        *(False, False),
    ]


@pytest.mark.parametrize("missing", ["type", "format/retprobe"])
@pytest.mark.usefixtures("pmu")
def test_a_kernel_without_probes_says_so(missing: str) -> None:
    (kernel_functions.KPROBE_PMU / missing).unlink()
    with pytest.raises(KernelError, match=r"This kernel has no kprobes, .*CONFIG_KPROBE_EVENTS=y") as caught:
        function_events([Wanted("function", "udp_sendmsg")])
    assert caught.value.exit_code


@pytest.mark.usefixtures("pmu")
def test_a_function_that_is_unknown_or_not_one_is_said() -> None:
    names = Counter(re.findall(r"^\S+ [tT] (\w+)$", KALLSYMS.read_text(), re.MULTILINE))
    many = next(name for name, count in names.items() if count > 1)
    for name, said in [
        ("udp_sendmsgg", "This kernel has no function udp_sendmsgg. Did you mean (.* or )?udp_sendmsg( or |[?])"),
        ("no_such_thing_at_all", "This kernel has no function no_such_thing_at_all. /proc/kallsyms has all"),
        (many, rf"This kernel has \d+ functions named {many}, and a probe cannot distinguish them"),
    ]:
        with pytest.raises(UsageError, match=said):
            function_events([Wanted("return", name)])


@pytest.mark.usefixtures("pmu")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("udp_sendmsg lem", "udp_sendmsg has no argument lem. Its arguments: sk, msg, len$"),
        ("udp_sendmsg sk.sk_sndbuff", "sk has no member sk_sndbuff. Did you mean sk_sndbuf "),
        ("udp_sendmsg len.x", "len is size_t, which has no members"),
        ("udp_sendmsg sk.sk_lock", "sk.sk_lock is socket_lock_t, which is no number.*Name one of its members: slock"),
        ("udp_sendmsg ret", "is not known when it is called. Record 'return:udp_sendmsg ret'"),
        ("udp_sendmsg if len > -1", "len .size_t len. is never -1. Compare it with a number from 0 to 18446744073709"),
        ("dev_get_by_name name if name == 3", "name is no number .const char [*] name., and cannot be compared with 3"),
    ],
)
def test_a_value_that_there_is_not_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        function_events([Wanted.parse("function", text)])


@pytest.mark.usefixtures("pmu")
def test_a_return_has_what_is_returned_and_no_arguments() -> None:
    for text, said in [
        ("udp_sendmsg len", "return:udp_sendmsg has no value len: at its return, only ret is known"),
        ("kfree_skb_list_reason ret", "kfree_skb_list_reason returns nothing"),
    ]:
        with pytest.raises(UsageError, match=said):
            function_events([Wanted.parse("return", text)])


@pytest.mark.usefixtures("pmu")
def test_a_value_that_is_called_like_a_column_of_ours_has_another_name() -> None:
    (event,) = function_events([Wanted.parse("function", "wake_up_process p.stack stack")])
    names = [column.name for column in event.columns.table.columns]
    assert names == ["time_ns", "cpu", "tid", "address", "stack", "field_stack", "unread"]


@pytest.mark.usefixtures("pmu")
def test_a_function_is_not_wanted_in_two_ways() -> None:
    wanted = [Wanted.parse("function", text) for text in ("udp_sendmsg len", "udp_sendmsg len", "udp_sendmsg")]
    assert len(function_events(wanted[:2])) == 1
    with pytest.raises(UsageError, match=r"function:udp_sendmsg is named 2 times, with .* values. Name all"):
        function_events(wanted)


@pytest.mark.usefixtures("pmu")
def test_each_function_is_recorded_once_and_returns_come_first() -> None:
    wanted = [
        Wanted(kind, name) for name in ("udp_sendmsg", "tcp_sendmsg") for kind in ("return", "function", "return")
    ]
    events = function_events(wanted)
    tables = [event.columns.table.name for event in events]
    assert sorted(tables) == [f"e_{kind}_{of}_sendmsg" for kind in ("function", "return") for of in ("tcp", "udp")]
    assert [name.startswith("e_return_") for name in tables] == [True, True, False, False]
    assert [event.config for event in events] == [1, 1, 0, 0]


@pytest.mark.parametrize(("depth", "addresses"), [(2, [7 - (1 << 63), 0, 0, 9]), (1, [0, 5, 0, 0])])
def test_the_caller_is_the_last_address_of_a_stack_as_deep_as_is_asked_for(depth: int, addresses: list[int]) -> None:
    # enum perf_callchain_context: what follows is the kernel's.
    mark = (1 << 64) - 128
    stacks = [[mark, 1 << 63 | 5, 1 << 63 | 7], [mark, 5], [], [mark, 5, 9]]
    joined, starts = b"", []
    for stack in stacks:
        starts.append(len(joined) // 8)
        own_bytes = struct.pack("=I20x", 20)
        size = 48 + 8 + 8 * len(stack) + len(own_bytes)
        joined += struct.pack("=IHHQiiqiIQ", perf_ring.SAMPLE, 1, size, 7, 3, 4, len(starts), 2, 0, 1)
        joined += struct.pack(f"=Q{len(stack)}Q", len(stack), *stack) + own_bytes
    columns = EventColumns("function", "f.part.0", (), "it is called", depth=depth)
    found = columns.columns(np.frombuffer(joined, np.uint64), np.array(starts, np.int64))
    assert (columns.table.name, columns.table.meaning) == ("e_function_f_part_0", "it is called")
    assert found["address"].tolist() == addresses
    assert found["time_ns"].tolist() == [1, 2, 3, 4]
    assert {(cpu, tid) for cpu, tid in zip(found["cpu"].tolist(), found["tid"].tolist(), strict=True)} == {(2, 4)}


@pytest.mark.root
@pytest.mark.usefixtures("pmu")
def test_what_the_kernel_refuses_leaves_nothing_open() -> None:
    files = len(list(Path("/proc/self/fd").iterdir()))
    said = r"does not allow probes on its function udp_sendmsg \(errno 2 .*Record a caller or a callee"
    with pytest.raises(KernelError, match=said), Tracepoints(["sched:sched_switch", *SPECS]):
        pass
    # Fewer, where the garbage collector has closed what an earlier test left to it.
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


@pytest.mark.root
def test_without_rights_one_sentence_says_so() -> None:
    code = (
        "import os\nfrom hopscope.kernel.tracepoints import Tracepoints\n"
        "from hopscope.errors import PrivilegeError\nos.setuid(65534)\n"
        f"try:\n    Tracepoints({SPECS!r}).__enter__()\nexcept PrivilegeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Run hopscope as root" in done.stdout


@pytest.mark.root
@pytest.mark.skipif(KPROBE_PMU.exists(), reason="this kernel has kprobes")
def test_the_command_ends_with_a_sentence_where_there_are_no_probes(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    argv = [sys.executable, "-m", "hopscope", "record", "-o", str(folder), "-e", SPECS[0], "--", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == KernelError.exit_code
    assert done.stderr.startswith("hopscope: This kernel has no kprobes, ")
    assert not folder.exists()


@pytest.mark.root
@needs_kprobes
@pytest.mark.parametrize("specs", [SPECS[:1], SPECS[1:], SPECS, [*SPECS[::-1], "net:net_dev_queue"]])
def test_each_call_and_each_return_is_recorded(veth: NetworkPath, specs: list[str]) -> None:
    with Tracepoints(specs, 4 << 20) as tracepoints:
        tracepoints.start()
        send(veth, DATAGRAMS)
        tracepoints.stop()
        found = {name: own(columns) for name, columns in tracepoints.read().items()}
    assert set(found) == {"e_" + spec.replace(":", "_") for spec in specs}
    assert {name: len(columns["time_ns"]) for name, columns in found.items()} == dict.fromkeys(found, DATAGRAMS)
    assert tracepoints.lost == 0
    for columns in (found[name] for name in sorted(tracepoints.with_callers)):
        assert set(columns["cpu"].tolist()) == os.sched_getaffinity(0)
        # One place in the kernel that all of these sends go through, whoever looks.
        (address,) = np.unique(columns["address"]).view(np.uint64)
        with KernelSymbols() as symbols:
            (name,) = symbols.names(np.array([address]))
        assert re.match(r"inet_sendmsg|(__)?sock_sendmsg|__sys_sendto", name), name
    if set(found) >= {CALLS, RETURNS}:
        assert (found[CALLS]["time_ns"] < found[RETURNS]["time_ns"]).all()
        assert (found[CALLS]["time_ns"][1:] > found[RETURNS]["time_ns"][:-1]).all()
        assert (found[CALLS]["address"] == found[RETURNS]["address"]).all()


def called_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str = "") -> ctypes.CDLL:
    """Let the program be attached to a library's function, whose arguments are where those of a kernel's are."""
    source, built = tmp_path / "called.c", tmp_path / "called.so"
    source.write_text("long called(long n, signed char narrow, unsigned short port, void *far) { return n; }\n")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", built, source], check=True)
    (offset,) = function_offsets(built.read_bytes(), ["called"]).values()
    number = functools.partial(Value, kind=HopFetchKind.HOP_FETCH_NUMBER)
    values = [
        number("n", "n", "long n", 0, (), size=8, signed=True, bits=64),
        number("narrow", "narrow", "signed char narrow", 1, (), size=1, signed=True, bits=8),
        number("port", "port", "__be16 port", 2, (), size=2, bits=16, in_network_order=True),
        number("far", "far", "int far", 3, (8,), size=4, signed=True, bits=32),
    ]
    asked = Wanted("function", "called", paths=("n",), filter=condition)
    event = ValuesEvent(asked, 0, 0, 0, EventColumns("function", "called", fields(asked, values)), values=values)
    probe = SimpleNamespace(fd=open_uprobe(str(built), offset, "called", returns=False))
    monkeypatch.setattr(FunctionEvent, "open", lambda *_, **__: probe)
    monkeypatch.setattr("hopscope.kernel.tracepoints.wanted_events", lambda _: [event])
    return ctypes.CDLL(str(built))


@pytest.mark.root
@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("", range(-3, 9)),
        ("n > 2", range(3, 9)),
        ("n >= -1 && n <= 4", range(-1, 5)),
        ("n == -3 || narrow == 6", [-3, 6]),
        ("far == 0 || n != 0", [n for n in range(-3, 9) if n]),
        ("(n < 0 || n & 4) && port == 53", [-3, -2, -1, 4, 5, 6, 7]),
    ],
)
def test_the_program_reads_registers_and_leaves_out_what_the_filter_does_not_want(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, wanted: Sequence[int]
) -> None:
    library = called_library(tmp_path, monkeypatch, condition)
    with Tracepoints(["function:called"]) as tracepoints:
        library.called(ctypes.c_long(7), 0, 0, None)
        tracepoints.start()
        for n in range(-3, 9):
            library.called(ctypes.c_long(n), n, socket.htons(53), ctypes.c_void_p(0))
        tracepoints.stop()
        library.called(ctypes.c_long(7), 0, 0, None)
        found = own(tracepoints.read()["e_function_called"])
    assert found["n"].tolist() == found["narrow"].tolist() == list(wanted)
    assert set(found["port"].tolist()) == {53}
    # A NULL pointer: what is unknown is 0, is said to be unknown, and equals nothing.
    assert set(found["far"].tolist()) == {0}
    assert set(found["unread"].tolist()) == {1 << 3}


@pytest.mark.root
def test_every_record_of_values_that_found_no_room_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = ProgramOutput("a program", 0)
    counts, _ = output.counted().lost, output.close()
    if counts is None:
        pytest.skip("this kernel does not count losses, and so not those after the last record (Linux 6.0 does)")
    library = called_library(tmp_path, monkeypatch)
    with Tracepoints(["function:called"], PAGE) as tracepoints:
        tracepoints.start()
        for n in range(DATAGRAMS):
            library.called(ctypes.c_long(n), 0, 0, None)
        tracepoints.stop()
        found = tracepoints.read()
    kept = found["e_function_called"]["n"].tolist()
    assert len(kept) + tracepoints.lost == DATAGRAMS
    assert int(found[LOSSES.name]["lost"].sum()) == tracepoints.lost > 0
    assert len(kept) == len(set(kept))  # in the order of the CPUs that it was on


@pytest.mark.root
@needs_kprobes
def test_arguments_are_those_that_the_program_gave(veth: NetworkPath) -> None:
    common = " ".join(f"sk.__sk_common.skc_{name}" for name in ("num", "daddr", "dport", "prot.name", "reuse"))
    spec = f"function:udp_sendmsg len sk.sk_sndbuf sk.sk_protocol {common} if len > 1000 && len < 3000"
    sizes = [1, 1000, 1001, 2999, 3000, 1500, 60_000] * 20
    with udp_pair(veth) as (sender, receiver), Tracepoints([spec, "return:udp_sendmsg ret"]) as tracepoints:
        tracepoints.start()
        for size in sizes:
            assert sender.send(bytes(size)) == size
            receiver.recv(65_536)
        with pytest.raises(OSError, match="Message too long"):
            sender.send(bytes(65_530))
        tracepoints.stop()
        found = tracepoints.read()
        calls, returns = own(found[CALLS]), own(found[RETURNS])
        assert tracepoints.lost == tracepoints.missed() == 0
        peer, port = receiver.getsockname()
        buffer = sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        mine = sender.getsockname()[1]
    kept = [size for size in sizes if 1000 < size < 3000]
    assert calls["len"].tolist() == kept
    assert int(calls["len"].sum()) == sum(kept)
    expected = {
        "sk_sndbuf": buffer, "sk_protocol": socket.IPPROTO_UDP, "skc_num": mine, "skc_daddr": peer, "skc_dport": port,
        "name": "UDP", "skc_reuse": 0, "unread": 0,
    }  # fmt: skip
    assert {name: set(calls[name].tolist()) for name in expected} == {name: {each} for name, each in expected.items()}
    assert returns["ret"].tolist() == [*sizes, -errno.EMSGSIZE]


@pytest.mark.root
@needs_kprobes
def test_bpftrace_sees_the_same_arguments(veth: NetworkPath) -> None:
    if not shutil.which("bpftrace"):
        pytest.skip("bpftrace is not installed: apt-get install bpftrace")
    me = threading.get_native_id()
    program = (
        f'BEGIN {{ printf("ready\\n"); }} kprobe:udp_sendmsg /tid == {me}/ '
        '{ printf("%d %d\\n", arg2, ((struct sock *)arg0)->sk_sndbuf); }'
    )
    with (
        udp_pair(veth) as (sender, receiver),
        Tracepoints(["function:udp_sendmsg len sk.sk_sndbuf"]) as tracepoints,
        subprocess.Popen(["bpftrace", "-B", "line", "-e", program], stdout=subprocess.PIPE, text=True) as bpftrace,
    ):
        assert bpftrace.stdout
        try:
            while bpftrace.stdout.readline() != "ready\n":
                assert bpftrace.poll() is None
            tracepoints.start()
            for size in range(1, 200):
                ping(sender, receiver, 1, size)
            tracepoints.stop()
            said = [bpftrace.stdout.readline() for _ in range(1, 200)]
        finally:
            bpftrace.terminate()
        found = own(tracepoints.read()[CALLS])
    rows = zip(found["len"].tolist(), found["sk_sndbuf"].tolist(), strict=True)
    assert said == [f"{length} {buffer}\n" for length, buffer in rows]


@pytest.mark.root
@needs_kprobes
def test_an_offset_is_where_an_instruction_begins(veth: NetworkPath) -> None:
    taken = []
    for offset in range(1, 12):
        try:
            with Tracepoints([f"function:udp_sendmsg+{offset:#x}"]) as tracepoints:
                tracepoints.start()
                send(veth, 16)
                tracepoints.stop()
                (found,) = map(own, tracepoints.read().values())
        except KernelError as error:
            assert f"udp_sendmsg+{offset:#x}, which has to be where an instruction begins" in str(error)  # noqa: PT017
            continue
        assert len(found["time_ns"]) == 16
        taken.append(offset)
    assert 0 < len(taken) < 11


@pytest.mark.root
@needs_kprobes
@pytest.mark.parametrize("told", [True, False], ids=["the kernel counts losses", "it does not"])
def test_every_record_that_found_no_room_is_counted(
    veth: NetworkPath, *, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told:
        counted = FunctionProbe.counted
        monkeypatch.setattr(FunctionProbe, "counted", lambda event: counted(event)._replace(lost=None))
    with Tracepoints(SPECS, PAGE) as tracepoints:
        tracepoints.start()
        send(veth, DATAGRAMS)
        tracepoints.stop()
        found = tracepoints.read()
    kept = len(found[CALLS]["time_ns"]) + len(found[RETURNS]["time_ns"])
    assert int(found[LOSSES.name]["lost"].sum()) == tracepoints.lost > DATAGRAMS
    # Others may send, too.
    assert kept + tracepoints.lost >= 2 * DATAGRAMS
    assert kept + tracepoints.lost == pytest.approx(2 * DATAGRAMS, abs=20)


@pytest.mark.root
@needs_kprobes
def test_a_function_that_may_not_be_probed_is_said() -> None:
    files = len(list(Path("/proc/self/fd").iterdir()))
    said = r"does not allow probes on its function exc_int3 \(errno 22 .*Record a caller or a callee"
    with pytest.raises(KernelError, match=said), Tracepoints(["function:exc_int3"]):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == files


@pytest.mark.root
@needs_kprobes
@pytest.mark.parametrize("specs", [SPECS, ["function:udp_sendmsg len", "return:udp_sendmsg ret"]])
def test_nothing_is_left_of_one_that_is_killed(specs: list[str]) -> None:
    code = (
        "import time\nfrom hopscope.kernel.tracepoints import Tracepoints\n"
        f"with Tracepoints({specs!r}) as opened:\n"
        "    opened.start()\n    print('open', flush=True)\n    time.sleep(60)\n"
    )
    before = probed()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "open\n"
        assert probed().count("udp_sendmsg+") > before.count("udp_sendmsg+")
        holder.send_signal(signal.SIGKILL)
    eventually(lambda: probed() == before)


@pytest.mark.root
@needs_kprobes
def test_a_trace_names_the_callers(veth: NetworkPath, tmp_path: Path) -> None:
    with veth.receiver.call(socket.socket, veth.family, socket.SOCK_DGRAM) as receiver:
        receiver.bind((veth.host, 0))
        code = (
            "import socket\nsender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"for _ in range({DATAGRAMS}):\n    sender.sendto(b'x', {receiver.getsockname()!r})\n"
        )
        sender = ["nsenter", f"--net=/proc/{veth.sender.pid}/ns/net", sys.executable, "-c", code]
        events = [word for spec in SPECS for word in ("-e", spec)]
        argv = [sys.executable, "-m", "hopscope", "record", "-o", str(tmp_path / "trace"), *events, "--", *sender]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "LANG": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    with Trace(tmp_path / "trace") as trace:
        for table in (CALLS, RETURNS):
            # By thread, for others may send, too.
            query = f"SELECT name, count(*) FROM {table} LEFT JOIN symbols USING (address) GROUP BY tid, name"
            counts = {count: name for name, count in trace.rows(query)}
            assert re.match(r"inet_sendmsg|(__)?sock_sendmsg|__sys_sendto", counts[DATAGRAMS]), counts


@pytest.mark.root
@needs_kprobes
def test_a_trace_has_the_stacks_of_calls(veth: NetworkPath, tmp_path: Path) -> None:
    with veth.receiver.call(socket.socket, veth.family, socket.SOCK_DGRAM) as receiver:
        receiver.bind((veth.host, 0))
        code = (
            "import socket\nsender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"for size in range({LEN_BYTES}):\n    sender.sendto(bytes(size), {receiver.getsockname()!r})\n"
        )
        sender = ["nsenter", f"--net=/proc/{veth.sender.pid}/ns/net", sys.executable, "-c", code]
        event = "function:udp_sendmsg len stack if len >= 900"
        argv = [sys.executable, "-m", "hopscope", "record", "-o", str(tmp_path / "trace"), "-e", event, "--", *sender]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "LANG": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    with Trace(tmp_path / "trace") as trace:
        assert trace.rows(f"SELECT list(len ORDER BY time_ns) FROM {CALLS}") == [(list(range(900, LEN_BYTES)),)]
        query = f"SELECT DISTINCT list(name ORDER BY depth) FROM {CALLS} JOIN stacks USING (stack) JOIN symbols"
        ((names,),) = trace.rows(f"{query} ON stacks.address = symbols.address GROUP BY {CALLS}.time_ns")
    assert names[0].startswith("udp_sendmsg")
    assert any("__sys_sendto" in name for name in names[1:])
