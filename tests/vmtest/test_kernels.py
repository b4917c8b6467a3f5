# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import lzma
from dataclasses import asdict
from pathlib import Path

import pytest

from vmtest import VmtestError, kernels

KERNEL = kernels.KERNELS[0]


def unpack(tree: Path, modules: str, *files: str) -> None:
    for name in files:
        path = tree / modules / "1.2-amd64" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(b"code") if name.endswith(".xz") else b"code")


def left(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}


def test_arrange_brings_modules_and_kernel_to_their_places(tmp_path: Path) -> None:
    unpack(tmp_path, "usr/lib/modules", "vmlinuz", "modules.order", "kernel/net/9p/9p.ko.xz", "kernel/fs/fuse.ko")
    assert kernels.arrange(tmp_path) == "1.2-amd64"
    modules = tmp_path / "lib/modules/1.2-amd64"
    assert (tmp_path / "boot/vmlinuz-1.2-amd64").read_bytes() == b"code"
    assert (modules / "kernel/net/9p/9p.ko").read_bytes() == b"code"
    assert not list(tmp_path.rglob("*.xz"))
    assert (modules / "kernel/fs/fuse.ko").exists()


def test_arrange_leaves_the_older_layout_as_it_is(tmp_path: Path) -> None:
    unpack(tmp_path, "lib/modules", "kernel/net/9p/9p.ko")
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-1.2-amd64").write_text("kernel")
    kernels.arrange(tmp_path)
    assert left(tmp_path) == {"boot/vmlinuz-1.2-amd64", "lib/modules/1.2-amd64/kernel/net/9p/9p.ko"}


def test_arrange_drops_hardware_that_a_guest_has_not(tmp_path: Path) -> None:
    kept = {"kernel/drivers/net/veth.ko", "kernel/drivers/virtio/virtio_pci.ko", "kernel/net/sched/sch_netem.ko"}
    dropped = {"kernel/drivers/gpu/drm/i915.ko", "kernel/sound/snd.ko", "kernel/drivers/net/wireless/ath.ko"}
    unpack(tmp_path, "lib/modules", "vmlinuz", *kept, *dropped)
    kernels.arrange(tmp_path)
    assert {name for name in kept | dropped if (tmp_path / "lib/modules/1.2-amd64" / name).exists()} == kept


def test_arrange_of_no_kernel_says_so(tmp_path: Path) -> None:
    with pytest.raises(VmtestError, match="found 0"):
        kernels.arrange(tmp_path)


def test_select_keeps_order_and_takes_all_for_none() -> None:
    assert [kernel.label for kernel in kernels.select(["7.x", "5.10", "7.x"])] == ["7.x", "5.10"]
    assert kernels.select([]) == list(kernels.KERNELS)


def test_select_of_an_unknown_label_names_those_that_are() -> None:
    with pytest.raises(VmtestError, match=r"no kernel 4\.19 .*6\.12"):
        kernels.select(["6.12", "4.19"])


def cached(cache: Path) -> kernels.Unpacked:
    tree = cache / KERNEL.label / "tree"
    unpack(tree, "lib/modules", "modules.dep", "vmlinuz")
    kernels.arrange(tree)
    known = kernels.Unpacked(KERNEL.label, KERNEL.suite, "1.2-amd64", "1.2-1", 7, str(tree))
    (cache / KERNEL.label / "kernel.json").write_text(json.dumps(asdict(known)))
    return known


def test_fetched_finds_what_is_in_the_cache(tmp_path: Path) -> None:
    assert kernels.fetched(KERNEL, tmp_path) is None
    known = cached(tmp_path)
    assert kernels.fetched(KERNEL, tmp_path) == known


def test_fetched_ignores_a_cache_that_was_partly_removed(tmp_path: Path) -> None:
    known = cached(tmp_path)
    known.image.unlink()
    assert kernels.fetched(KERNEL, tmp_path) is None


def test_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(kernels.CACHE_VARIABLE, str(tmp_path))
    assert kernels.cache_folder() == tmp_path
    monkeypatch.delenv(kernels.CACHE_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert kernels.cache_folder() == Path("/home/someone/.cache/hopscope/vmtest")
