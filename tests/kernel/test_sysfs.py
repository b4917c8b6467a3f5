# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hopscope.kernel.sysfs import sysfs
from hopscope.lab import Namespace

pytestmark = pytest.mark.root


def interfaces() -> list[str]:
    with sysfs() as root:
        fd = os.open("class/net", os.O_RDONLY, dir_fd=root)
        try:
            return sorted(os.listdir(fd))  # noqa: PTH208
        finally:
            os.close(fd)


def test_each_thread_sees_the_interfaces_of_its_own_namespace() -> None:
    with Namespace() as first, Namespace() as second:
        first.run(["ip", "link", "add", "here", "type", "veth", "peer", "name", "there"], check=True)
        assert first.call(interfaces) == ["here", "lo", "there"]
        assert second.call(interfaces) == ["lo"]
        assert "lo" in interfaces()
        assert set(interfaces()) == {path.name for path in Path("/sys/class/net").iterdir()}


def test_nothing_is_mounted_and_no_descriptor_stays_open() -> None:
    mounts, files = Path("/proc/self/mountinfo").read_text(), os.listdir("/proc/self/fd")  # noqa: PTH208
    seen = []
    with Namespace() as namespace:
        before = os.listdir("/proc/self/fd")  # noqa: PTH208
        for _ in range(20):
            namespace.call(interfaces)
        with sysfs():
            seen.append(Path("/proc/self/mountinfo").read_text())
        assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
    assert seen == [mounts]
    assert os.listdir("/proc/self/fd") == files  # noqa: PTH208


def test_it_is_read_only() -> None:
    def write() -> None:
        with sysfs() as root:
            os.open("class/net/lo/mtu", os.O_WRONLY, dir_fd=root)

    with Namespace() as namespace, pytest.raises(OSError, match="Read-only file system"):
        namespace.call(write)


def test_without_the_right_it_is_said_what_is_missing() -> None:
    raised: list[OSError] = []

    def unprivileged() -> None:
        # Of this thread alone: the C library would change all of them.
        import ctypes  # noqa: PLC0415

        assert ctypes.CDLL(None, use_errno=True).syscall(SYS_SETRESUID, 65534, 65534, 65534) == 0
        try:
            interfaces()
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=unprivileged)
    thread.start()
    thread.join()
    assert [error.filename for error in raised] == ["sysfs of its network namespace"]


SYS_SETRESUID = {"x86_64": 117, "aarch64": 147}[os.uname().machine]
