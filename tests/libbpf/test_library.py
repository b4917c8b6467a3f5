# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import KernelError
from hopscope.libbpf import _library

if TYPE_CHECKING:
    from pathlib import Path


class FakeLibrary:
    def __init__(self, major: int, minor: int) -> None:
        self.libbpf_major_version = lambda: major
        self.libbpf_minor_version = lambda: minor


def opener_of(found: object) -> object:
    def open_it(name: str, *, use_errno: bool) -> object:
        assert name == "libbpf.so.1"
        assert use_errno
        if isinstance(found, Exception):
            raise found
        return found

    return open_it


def test_importing_opens_nothing() -> None:
    code = "import hopscope.libbpf; print('libbpf.so' in open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_bundled_copy_wins(tmp_path: Path) -> None:
    opened = []

    def opener(name: str, *, use_errno: bool) -> ctypes.CDLL:
        opened.append(name)
        return ctypes.CDLL(_library.SYSTEM, use_errno=use_errno)

    bundled = tmp_path / "libbpf.so.1"
    _library.open_library(bundled, opener)
    bundled.touch()
    _library.open_library(bundled, opener)
    assert opened == ["libbpf.so.1", str(bundled)]


def test_missing_library_is_one_sentence_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"^libbpf cannot be opened: not there\. Install libbpf 1\.1 or newer"):
        _library.open_library(tmp_path / "absent", opener_of(OSError("not there")))  # type: ignore[arg-type]


@pytest.mark.parametrize(("library", "said"), [(FakeLibrary(1, 0), "is 1.0"), (object(), "is older than 0.6")])
def test_old_library_is_refused_with_the_next_step(tmp_path: Path, library: object, said: str) -> None:
    with pytest.raises(KernelError, match=rf"libbpf is too old: libbpf.so.1 {said}, 1.1 is needed\. Install"):
        _library.open_library(tmp_path / "absent", opener_of(library))  # type: ignore[arg-type]
