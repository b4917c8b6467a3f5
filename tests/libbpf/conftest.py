# SPDX-License-Identifier: Apache-2.0
"""BPF objects for the tests of the binding, compiled once a session as the package compiles its own."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import build_bpf
from hopscope.libbpf import BpfObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAMS = Path(__file__).parent / "bpf"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from the name of a program in ``bpf/`` to its object file."""
    out = tmp_path_factory.mktemp("bpf")

    @functools.cache
    def compile_one(name: str) -> Path:
        target = out / f"{name}.bpf.o"
        build_bpf.compile_object(PROGRAMS / f"{name}.bpf.c", target, build_bpf.host_arch())
        return target

    return compile_one


@pytest.fixture
def compiled_text(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function from a name and C declarations to an object file that has them in its BTF."""

    def compile_text(name: str, text: str) -> Path:
        source = tmp_path / f"{name}.bpf.c"
        source.write_text(text)
        target = tmp_path / f"{name}.bpf.o"
        build_bpf.compile_object(source, target, build_bpf.host_arch())
        return target

    return compile_text


@pytest.fixture
def basic(compiled: Callable[[str], Path]) -> Path:
    """The object with one of everything."""
    return compiled("basic")


@pytest.fixture
def loaded(basic: Path) -> Iterator[BpfObject]:
    """That object, loaded, with its programs counting the calls of this process."""
    with BpfObject.open(basic) as opened:
        opened.set_const("tgid", os.getpid())
        opened.set_const("enabled", value=True)
        opened.set_const("mode", 1)
        opened.load()
        yield opened
