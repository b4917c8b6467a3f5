# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import socket

import pytest

from hopscope.errors import KernelError, UsageError
from hopscope.timestamping import Sof, enable, enabled, option, send_control, supported
from hopscope.timestamping._abi import SO_TIMESTAMPING_NEW, SO_TIMESTAMPING_OLD, U32
from hopscope.timestamping.flags import TX_RECORD, sof_names
from tests.timestamping.pairs import LO_4, Path


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_every_flag_that_is_supported_can_be_set_and_no_other(kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as sock:
        for flag in Sof:
            together = {Sof.OPT_STATS: Sof.OPT_TSONLY, Sof.OPT_ID_TCP: Sof.OPT_ID}.get(flag, Sof(0)) | flag
            if (Sof.OPT_ID in together and kind == socket.SOCK_STREAM) or flag == Sof.BIND_PHC:
                continue
            if flag in supported():
                enable(sock, together)
                assert enabled(sock) == together
            else:
                with pytest.raises(KernelError, match=sof_names(flag)):
                    enable(sock, together)
    # As old as anything that hopscope runs on.
    assert Sof.TX_SOFTWARE | Sof.OPT_ID | Sof.OPT_TX_SWHW | Sof.OPT_STATS in supported()


def test_flag_that_the_kernel_does_not_know_is_named() -> None:
    with LO_4.udp() as (sock, _), pytest.raises(KernelError, match=r"does not know bit 30\. See"):
        enable(sock, Sof.TX_SOFTWARE | 1 << 30)


def test_flag_of_a_newer_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without = supported() & ~Sof.TX_COMPLETION
    monkeypatch.setattr(option, "supported", lambda: without)
    monkeypatch.setattr(option, "_set", refuse(errno.EINVAL))
    with LO_4.udp() as (sock, _), pytest.raises(KernelError, match=r"not know SOF_TIMESTAMPING_TX_COMPLETION\. See"):
        enable(sock, Sof.TX_COMPLETION | Sof.SOFTWARE)


def refuse(number: int):  # noqa: ANN201 - what it stands for is private
    def _set(*_: object) -> None:
        raise OSError(number, "refused")

    return _set


def test_kernel_without_the_option_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(option, "_set", refuse(errno.ENOPROTOOPT))
    with pytest.raises(KernelError, match=r"no SO_TIMESTAMPING_NEW"):
        supported.__wrapped__()


@pytest.mark.parametrize(
    ("flags", "phc", "sentence"),
    [
        (Sof.OPT_STATS, None, "OPT_STATS does not work without SOF_TIMESTAMPING_OPT_TSONLY"),
        (Sof.OPT_ID_TCP, None, "OPT_ID_TCP does not work without SOF_TIMESTAMPING_OPT_ID"),
        (Sof.BIND_PHC, None, "BIND_PHC needs the number of a clock"),
        (Sof.TX_HARDWARE, 3, "BIND_PHC is not set"),
        (Sof.BIND_PHC, 3, r"bound to /dev/ptp3: .*SO_BINDTODEVICE"),
    ],
)
def test_flags_that_do_not_go_together_are_told(flags: Sof, phc: int | None, sentence: str) -> None:
    with LO_4.udp() as (sock, _):
        with pytest.raises(UsageError, match=sentence):
            enable(sock, flags, phc=phc)
        assert enabled(sock) == Sof(0)


@pytest.mark.root
def test_interface_without_that_clock_is_told() -> None:
    with LO_4.udp() as (sock, _):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        with pytest.raises(UsageError, match=r"bound to /dev/ptp9: Invalid argument"):
            enable(sock, Sof.BIND_PHC, phc=9)


def test_tcp_has_no_ids_before_it_is_connected() -> None:
    with socket.socket() as sock, pytest.raises(UsageError, match="not connected"):
        enable(sock, Sof.OPT_ID)


@pytest.mark.parametrize("name", [SO_TIMESTAMPING_OLD, SO_TIMESTAMPING_NEW])
def test_flags_of_anyone_are_seen(name: int) -> None:
    with LO_4.udp() as (sock, _):
        sock.setsockopt(socket.SOL_SOCKET, name, U32.pack(Sof.RX_SOFTWARE | Sof.SOFTWARE))
        assert enabled(sock) == Sof.RX_SOFTWARE | Sof.SOFTWARE


@pytest.mark.parametrize("flag", list(Sof))
def test_control_message_takes_what_the_kernel_takes(flag: Sof, lo: Path) -> None:
    with lo.udp() as (sock, _):
        if flag in TX_RECORD & supported():
            sock.sendmsg([b"x"], send_control(flag))
        else:
            if flag not in TX_RECORD:
                with pytest.raises(UsageError, match=sof_names(flag)):
                    send_control(flag)
            raw = [(socket.SOL_SOCKET, SO_TIMESTAMPING_NEW, U32.pack(flag))]
            with pytest.raises(OSError, match="Invalid argument"):
                sock.sendmsg([b"x"], raw)


def test_tcp_refuses_ids(lo: Path) -> None:
    with lo.tcp() as (sock, _):
        enable(sock, Sof.OPT_ID | Sof.TX_SOFTWARE | Sof.SOFTWARE)
        with pytest.raises(OSError, match="Invalid argument"):
            sock.sendmsg([b"x"], send_control(packet_id=7))
