# SPDX-License-Identifier: Apache-2.0
"""Work for what is between a socket and a device: GRO, IP, netfilter, bridge, tunnels, devices on devices, queues."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.lab import Lab, Namespace, Tbf
from tests.lab.measure import limit, ping
from tests.verbs.cpu.work import BY_POLL, datagrams, nft, rules, sh, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.verbs.cpu.work import Act


_IPT_SO_GET_INFO = 64
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_THERE = ("10.81.0.2", 5000)


@contextlib.contextmanager
def gro(_: Path) -> Iterator[Act]:
    with Lab(offloads=BY_POLL | {"gso": False}) as lab, stream(lab) as act:
        yield act


@contextlib.contextmanager
def polls(_: Path) -> Iterator[Act]:
    """Datagrams one by one, each of them an interrupt and a poll of its own."""
    with Lab(offloads=BY_POLL) as lab, datagrams(lab) as act:
        yield act


@contextlib.contextmanager
def segments(_: Path) -> Iterator[Act]:
    with Lab(offloads={"tso": False}) as lab, stream(lab) as act:
        yield act


@contextlib.contextmanager
def checksums(_: Path) -> Iterator[Act]:
    with Lab(offloads={"tx": False}, mtu_bytes=9000) as lab, datagrams(lab, 8000) as act:
        yield act


@contextlib.contextmanager
def rps(_: Path) -> Iterator[Act]:
    def spread(cpus: int) -> None:
        script = f"mount -t sysfs none /sys && echo {cpus} >/sys/class/net/server0/queues/rx-0/rps_cpus"
        lab.server.run(["unshare", "-m", "sh", "-c", script], check=True)

    with Lab() as lab, datagrams(lab) as act:
        spread(3)
        try:
            yield act
        finally:
            spread(0)  # a device that goes with it set leaves the look-up on for the whole host (rx_queue_release)


@contextlib.contextmanager
def router(*, bridged: bool = False, rules: str = "", commands: tuple[str, ...] = ()) -> Iterator[Act]:
    """Send datagrams from a client over a router to a server."""
    with Namespace() as client, Namespace() as middle, Namespace() as server:
        for namespace, ifname, net in ((client, "in0", 1), (server, "out0", 2)):
            sh(namespace, f"ip link add far0 type veth peer name {ifname} netns {middle.pid}")
            sh(namespace, f"ip addr add 10.78.{net}.2/24 dev far0", "ip link set far0 up")
            sh(namespace, f"ip route add default via 10.78.{net}.1")
            sh(middle, f"ip link set {ifname} up")
        near = "in0"
        if bridged:
            near = "br0"
            sh(middle, "ip link add br0 type bridge", "ip link set br0 up", "ip link set in0 master br0")
        sh(middle, f"ip addr add 10.78.1.1/24 dev {near}", "ip addr add 10.78.2.1/24 dev out0", *commands)
        middle.call(Path("/proc/sys/net/ipv4/ip_forward").write_text, "1")
        for namespace in (client, middle, server):
            if rules:
                nft(namespace, rules)
        receiver = server.call(socket.socket, type=socket.SOCK_DGRAM)
        sender = client.call(socket.socket, type=socket.SOCK_DGRAM)
        with receiver, sender:
            receiver.bind(("10.78.2.2", 5000))
            sender.connect(("10.78.2.2", 5000))
            limit(receiver)
            yield lambda: ping(sender, receiver, 100)


def forwarded(_: Path) -> contextlib.AbstractContextManager[Act]:
    return router()


def bridged(_: Path) -> contextlib.AbstractContextManager[Act]:
    return router(bridged=True)


def nft_hooks(_: Path) -> contextlib.AbstractContextManager[Act]:
    return router(rules=rules("prerouting", "input", "forward", "output", "postrouting"))


def nft_bridge(_: Path) -> contextlib.AbstractContextManager[Act]:
    return router(bridged=True, rules=rules("prerouting", "input", family="bridge"))


def tracked(_: Path) -> contextlib.AbstractContextManager[Act]:
    return router(rules=rules("prerouting", expression="ct state invalid"))


def masqueraded(_: Path) -> contextlib.AbstractContextManager[Act]:
    return router(
        rules="table ip t { chain c { type nat hook postrouting priority 100; oifname out0 masquerade; }; }\n"
    )


@contextlib.contextmanager
def nft_device(_: Path) -> Iterator[Act]:
    with Lab() as lab, datagrams(lab) as act:
        nft(lab.server, rules("ingress", family="netdev", device="device server0"))
        nft(lab.client, rules("egress", family="netdev", device="device client0"))
        yield act


@contextlib.contextmanager
def iptables(_: Path) -> Iterator[Act]:
    """Ask for the table `filter`, which makes it, as ``iptables -L`` does."""
    with Lab() as lab, datagrams(lab) as act:

        def ask() -> int:
            info, size = ctypes.create_string_buffer(b"filter", 84), ctypes.c_uint32(84)
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
                return int(ctypes.CDLL(None).getsockopt(raw.fileno(), 0, _IPT_SO_GET_INFO, info, ctypes.byref(size)))

        assert lab.server.call(ask) == 0
        yield act


@contextlib.contextmanager
def fragments(_: Path) -> Iterator[Act]:
    with Lab() as lab, datagrams(lab, 8000) as act:
        yield act


@contextlib.contextmanager
def tracked_fragments(_: Path) -> Iterator[Act]:
    with Lab() as lab, datagrams(lab, 8000) as act:
        nft(lab.server, rules("prerouting", expression="ct state invalid"))
        yield act


@contextlib.contextmanager
def vxlan(_: Path) -> Iterator[Act]:
    with Lab() as lab:
        for namespace, own, other in ((lab.client, 1, 2), (lab.server, 2, 1)):
            sh(
                namespace,
                f"ip link add vx0 type vxlan id 7 dstport 4789 local 10.77.0.{own} remote 10.77.0.{other}",
                f"ip addr add 10.79.0.{own}/24 dev vx0",
                "ip link set vx0 up",
            )
        with datagrams(lab, host="10.79.0.2") as act:
            yield act


@contextlib.contextmanager
def macvlan(_: Path) -> Iterator[Act]:
    with Lab() as lab:
        for namespace, ifname, own in ((lab.client, "client0", 1), (lab.server, "server0", 2)):
            sh(
                namespace,
                f"ip link set {ifname} arp on",
                f"ip link add mv0 link {ifname} type macvlan mode bridge",
                f"ip addr add 10.80.0.{own}/24 dev mv0",
                "ip link set mv0 up",
            )
        with datagrams(lab, host="10.80.0.2") as act:
            yield act


@contextlib.contextmanager
def into(*commands: str) -> Iterator[Act]:
    """Send datagrams to a device that these commands make."""
    with Namespace() as namespace:
        sh(namespace, *commands)
        with namespace.call(socket.socket, type=socket.SOCK_DGRAM) as sender:

            def send() -> None:
                for _ in range(100):
                    with contextlib.suppress(OSError):
                        sender.sendto(bytes(200), _THERE)

            yield send


_UP = "ip addr add 10.81.0.1/24 dev d0", "ip link set d0 up"
_NEIGHBOUR = "ip neigh add 10.81.0.2 lladdr 02:00:00:00:00:01 dev d0"


@contextlib.contextmanager
def tap(_: Path) -> Iterator[Act]:
    """Send into a TAP device that a program holds, and does not read from."""
    name = struct.pack("16sH22x", b"d0", _IFF_TAP | _IFF_NO_PI)
    with Namespace() as namespace, namespace.call(open, "/dev/net/tun", "r+b", buffering=0) as holder:
        namespace.call(fcntl.ioctl, holder, _TUNSETIFF, name)
        sh(namespace, *_UP, _NEIGHBOUR)
        with namespace.call(socket.socket, type=socket.SOCK_DGRAM) as sender:
            yield lambda: [sender.sendto(bytes(200), _THERE) for _ in range(100)]


@contextlib.contextmanager
def strangers(_: Path) -> Iterator[Act]:
    """Send to hosts that do not answer ARP."""
    with into("ip link add d0 type veth peer name d1", "ip link set d1 up", *_UP) as act:
        yield act


def ifb(_: Path) -> contextlib.AbstractContextManager[Act]:
    return into("ip link add d0 type ifb", "ip link set d0 arp on", *_UP, _NEIGHBOUR)


@contextlib.contextmanager
def queued(_: Path) -> Iterator[Act]:
    with Lab(tbf=Tbf(1_000_000_000, 100_000)) as lab, datagrams(lab) as act:
        yield act


@contextlib.contextmanager
def ipsec_policy(_: Path) -> Iterator[Act]:
    with Lab() as lab, datagrams(lab) as act:
        for namespace in (lab.client, lab.server):
            sh(namespace, "ip xfrm policy add dir out src 10.77.0.0/24 dst 10.77.0.0/24 action allow")
            sh(namespace, "ip xfrm policy add dir in src 10.77.0.0/24 dst 10.77.0.0/24 action allow")
        yield act


@contextlib.contextmanager
def seg6(_: Path) -> Iterator[Act]:
    with Lab() as lab:
        sh(lab.client, "ip -6 route add fd88::/64 encap seg6 mode encap segs fd77::2 dev client0")
        with lab.client.call(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM) as sender:

            def send() -> None:
                for _ in range(100):
                    sender.sendto(bytes(200), ("fd88::1", 5000))

            yield send
