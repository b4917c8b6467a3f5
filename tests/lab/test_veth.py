# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from hopscope.errors import KernelError, UsageError
from hopscope.lab import Lab, Namespace, Tbf, Workload, netlink, shape
from hopscope.lab.links import set_offloads
from hopscope.lab.netlink import add_addresses, wait_local
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IFNAME, SERVER_IPV4, SERVER_IPV6

pytestmark = pytest.mark.root

ETHTOOL_GGRO = 0x2B
SIOCETHTOOL = 0x8946


def packets(ifname: str, direction: int) -> int:
    # /proc/thread-self/net/dev: received packets are column 1, sent ones column 9.
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (line,) = (line for line in lines if line.strip().startswith(f"{ifname}:"))
    return int(line.split(":")[1].split()[direction])


def qdisc(ifname: str) -> Any:  # noqa: ANN401 - pyroute2 is not typed
    with netlink._iproute() as ipr:
        (root,) = (found for found in ipr.get_qdiscs(netlink._index(ipr, ifname)) if found["parent"] == 0xFFFFFFFF)
        return root


def gro(ifname: str) -> bool:
    value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_GGRO, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP", ifname.encode(), ctypes.addressof(value)))
    return bool(struct.unpack("II", value.raw[:8])[1])


@pytest.mark.parametrize("host", [SERVER_IPV4, SERVER_IPV6])
@pytest.mark.parametrize("bridged", [False, True])
def test_23_datagrams_are_23_packets_on_the_wire_and_no_other(host: str, bridged: bool) -> None:  # noqa: FBT001
    with Lab(bridged=bridged) as lab:
        with (
            Workload(lab.server, "udp-sink", "--bind", host, "--count", 23) as sink,
            Workload(lab.client, "udp-send", host, sink.port, "--count", 23, "--rate", 1000) as source,
        ):
            assert source.result().messages == 23
            assert sink.result().messages == 23
        assert lab.client.call(packets, CLIENT_IFNAME, 9) == 23
        assert lab.server.call(packets, SERVER_IFNAME, 1) == 23
        assert lab.server.call(packets, SERVER_IFNAME, 9) == 0


def test_mtu_is_of_both_ends() -> None:
    with Lab(mtu_bytes=9000) as lab:
        for namespace, ifname in ((lab.client, CLIENT_IFNAME), (lab.server, SERVER_IFNAME)):
            words = namespace.run(["ip", "link", "show", ifname], capture_output=True, text=True).stdout.split()
            assert words[words.index("mtu") + 1] == "9000"


@pytest.mark.parametrize("wanted", [False, True])
def test_gro_is_as_asked_for(wanted: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with Lab(offloads={"gro": wanted}) as lab:
        assert lab.client.call(gro, CLIENT_IFNAME) is wanted
        assert lab.server.call(gro, SERVER_IFNAME) is wanted


def test_an_unknown_offload_is_refused_and_nothing_remains() -> None:
    with pytest.raises(UsageError, match="warp"):
        Lab(offloads={"warp": True})
    assert "lab-namespace" not in {thread.name for thread in threading.enumerate()}


def test_an_offload_of_no_interface_is_an_error_of_the_kernel() -> None:
    with Namespace() as namespace, pytest.raises(KernelError, match="nothing0"):
        namespace.call(set_offloads, "nothing0", {"gro": True})


def test_tbf_drops_exactly_what_does_not_fit() -> None:
    # 1,042 bytes a packet: the bucket passes 1, the queue holds 2, and at 250 bytes/s it is 4 seconds to the next.
    with Lab(tbf=Tbf(rate_bit_s=2_000, burst_bytes=1_050, limit_bytes=3_000)) as lab:
        with Workload(lab.client, "udp-send", SERVER_IPV4, 9, "--size", 1000, "--count", 23) as source:
            assert source.result().messages == 23
        statistics = lab.client.call(qdisc, CLIENT_IFNAME).get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")
        assert statistics["drops"] == 20


def test_a_bucket_that_the_kernel_would_cut_off_is_refused() -> None:
    with pytest.raises(UsageError, match="too large for 800 bit/s"):
        Tbf(rate_bit_s=800, burst_bytes=1_600)


def test_shape_replaces_the_settings() -> None:
    with Lab(tbf=Tbf(1_000_000)) as lab:
        shape(lab.client, CLIENT_IFNAME, Tbf(10_000_000, limit_bytes=50_000))
        found = lab.client.call(qdisc, CLIENT_IFNAME)
        parameters = found.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
        assert found.get_attr("TCA_KIND") == "tbf"
        assert (parameters["rate"], parameters["limit"]) == (1_250_000, 50_000)
        assert lab.server.call(qdisc, SERVER_IFNAME).get_attr("TCA_KIND") != "tbf"


def test_shape_of_no_interface_is_an_error_of_the_kernel() -> None:
    with Namespace() as namespace, pytest.raises(KernelError, match="No such device"):
        shape(namespace, "nothing0", Tbf(1_000_000))


def test_wait_local_waits_until_the_address_is_there() -> None:
    with Namespace() as namespace:
        late = threading.Timer(0.2, namespace.call, (add_addresses, "lo", ("10.79.0.1", "fd79::1")))
        late.start()
        namespace.call(wait_local, ("10.79.0.1", "fd79::1"))
        late.join()


def test_wait_local_gives_up_on_another_s_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netlink, "_WAIT_S", 0.05)
    with Lab() as lab, pytest.raises(KernelError, match="does not become usable"):
        lab.client.call(wait_local, (SERVER_IPV6,))
