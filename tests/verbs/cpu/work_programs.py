# SPDX-License-Identifier: Apache-2.0
"""Work for BPF programs and for tc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyroute2 import IPRoute

import build_bpf
from hopscope.lab import Lab
from hopscope.lab.links import set_offloads
from hopscope.libbpf import BpfObject
from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.verbs.cpu.work import datagrams, index_of, sh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Namespace
    from tests.verbs.cpu.work import Act


_NR_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_ATTACH, _BPF_LINK_CREATE = 8, 28
_SK_SKB_STREAM_VERDICT, _TCX_INGRESS = 5, 46
_INGRESS, _EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
_XDP_GENERIC, _XDP_NATIVE = 2, 4


@contextlib.contextmanager
def programs(folder: Path, **constants: int) -> Iterator[BpfObject]:
    target = folder / "work.bpf.o"
    if not target.exists():
        build_bpf.compile_object(Path(__file__).parent / "bpf" / "work.bpf.c", target, build_bpf.host_arch())
    with BpfObject.open(target) as opened:
        for name, value in constants.items():
            opened.set_const(name, value)
        opened.load()
        yield opened


def with_iproute(namespace: Namespace, act: Callable[[Any], object]) -> None:
    def inside() -> None:
        with IPRoute() as ipr:
            act(ipr)

    namespace.call(inside)


def attach_xdp(namespace: Namespace, ifname: str, fd: int, flags: int) -> None:
    index = index_of(namespace, ifname)
    xdp = {"attrs": [["IFLA_XDP_FD", fd], ["IFLA_XDP_FLAGS", flags]]}
    with_iproute(namespace, lambda ipr: ipr.link("set", index=index, IFLA_XDP=xdp))


def bpf_call(command: int, *fields: int) -> int:
    attr = struct.pack(f"={len(fields)}I", *fields).ljust(64, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.syscall(_NR_BPF[os.uname().machine], command, attr, len(attr))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(done)


@contextlib.contextmanager
def xdp(folder: Path, flags: int = _XDP_NATIVE) -> Iterator[Act]:
    with Lab(offloads={"gro": True}) as lab, programs(folder) as bpf, datagrams(lab) as act:
        attach_xdp(lab.server, "server0", bpf.programs["burn_xdp"].fd, flags)
        yield act


def generic_xdp(folder: Path) -> contextlib.AbstractContextManager[Act]:
    return xdp(folder, _XDP_GENERIC)


@contextlib.contextmanager
def xdp_redirect(folder: Path) -> Iterator[Act]:
    """Hand what comes on to another veth, on whose other end it is received as a packet of the stack."""
    with Lab(offloads={"gro": True}) as lab:
        sh(lab.server, "ip link add out0 type veth peer name in0", "ip link set out0 up", "ip link set in0 up")
        lab.server.call(set_offloads, "in0", {"gro": True})
        with programs(folder, target=index_of(lab.server, "out0")) as bpf, udp_pair(way(lab, "veth-4")) as (sender, _):
            attach_xdp(lab.server, "server0", bpf.programs["hand_on"].fd, _XDP_NATIVE)

            def send() -> None:
                for _ in range(100):
                    sender.send(bytes(200))

            yield send


@contextlib.contextmanager
def tc_program(folder: Path, parent: int = _INGRESS) -> Iterator[Act]:
    with Lab() as lab, programs(folder) as bpf, datagrams(lab) as act:
        namespace, ifname = (lab.server, "server0") if parent == _INGRESS else (lab.client, "client0")
        index, fd = index_of(namespace, ifname), bpf.programs["burn_tc"].fd

        def put(ipr: Any) -> None:  # noqa: ANN401 - pyroute2 is not typed
            ipr.tc("add", "clsact", index)
            ipr.tc("add-filter", "bpf", index, fd=fd, name="burn_tc", parent=parent, classid=1, direct_action=True)

        with_iproute(namespace, put)
        yield act


def tc_program_out(folder: Path) -> contextlib.AbstractContextManager[Act]:
    return tc_program(folder, _EGRESS)


@contextlib.contextmanager
def tcx_program(folder: Path) -> Iterator[Act]:
    with Lab() as lab, programs(folder) as bpf, datagrams(lab) as act:
        fields = (bpf.programs["burn_tc"].fd, index_of(lab.server, "server0"), _TCX_INGRESS)
        link = lab.server.call(bpf_call, _BPF_LINK_CREATE, *fields)
        try:
            yield act
        finally:
            os.close(link)


@contextlib.contextmanager
def cgroup_program(folder: Path) -> Iterator[Act]:
    with Lab() as lab, programs(folder) as bpf, datagrams(lab) as act:
        group = next(
            line.split()[1] for line in Path("/proc/mounts").read_text("ascii").splitlines() if " cgroup2 " in line
        )
        fd = os.open(group, os.O_RDONLY)
        try:
            bpf.programs["burn_cgroup"].attach_cgroup(fd)
            yield act
        finally:
            os.close(fd)


@contextlib.contextmanager
def sockmap(folder: Path) -> Iterator[Act]:
    with Lab() as lab, programs(folder) as bpf, tcp_pair(way(lab, "veth-4")) as (sender, receiver):
        bpf_call(_BPF_PROG_ATTACH, bpf.maps["sockets"].fd, bpf.programs["pass_socket"].fd, _SK_SKB_STREAM_VERDICT)
        bpf.maps["sockets"].update(struct.pack("=I", 0), struct.pack("=I", receiver.fileno()))
        yield lambda: ping(sender, receiver, 100)


@contextlib.contextmanager
def tc_classifier(_: Path) -> Iterator[Act]:
    with Lab() as lab, datagrams(lab) as act:
        sh(lab.server, "tc qdisc add dev server0 clsact")
        for number in range(1, 40):
            sh(
                lab.server,
                f"tc filter add dev server0 ingress prio {number} u32 match ip dport {number} 0xffff "
                "action mirred egress mirror dev lo",
            )
        yield act
