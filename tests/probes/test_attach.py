# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.bpf import object_path
from hopscope.errors import KernelError, LoadError
from hopscope.kernel import netns
from hopscope.lab import Namespace
from hopscope.libbpf import BpfObject
from hopscope.probes import attach as module
from hopscope.probes.attach import EveryNamespace, attach, cgroup_root, prepare
from hopscope.probes.grants import try_kind
from tests import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.libbpf import Program


def host_with(tmp_path: Path, *mounts: tuple[str, str, str]) -> Path:
    folder = tmp_path / "proc/self"
    folder.mkdir(parents=True)
    lines = [f"31 23 0:27 {part} {point} rw,nosuid shared:5 - {kind} {kind} rw\n" for kind, part, point in mounts]
    (folder / "mountinfo").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def test_cgroup_root_is_the_mount_of_version_2(tmp_path: Path) -> None:
    mounts = [("cgroup", "/", "/sys/fs/cgroup/cpu"), ("cgroup2", "/", "/sys/fs/cgroup/unified"), ("tmpfs", "/", "/run")]
    assert cgroup_root(host_with(tmp_path, *mounts)) == Path("/sys/fs/cgroup/unified")


def test_cgroup_root_prefers_the_whole_to_a_part(tmp_path: Path) -> None:
    mounts = [("cgroup2", "/docker/1", "/part"), ("cgroup2", "/", "/whole")]
    assert cgroup_root(host_with(tmp_path, *mounts)) == Path("/whole")


def test_cgroup_root_may_be_a_part_where_that_is_all(tmp_path: Path) -> None:
    assert cgroup_root(host_with(tmp_path, ("cgroup2", "/docker/1", "/part"))) == Path("/part")


def test_cgroup_root_with_blanks_and_letters_beyond_ascii(tmp_path: Path) -> None:
    assert cgroup_root(host_with(tmp_path, ("cgroup2", "/", "/a\\040b\\134c/é"))) == Path("/a b\\c/é")


def test_no_cgroup_root_has_a_next_step_that_hides_nothing(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="cgroup version 2 is not mounted") as caught:
        cgroup_root(host_with(tmp_path, ("cgroup", "/", "/sys/fs/cgroup/cpu")))
    assert "mount -t cgroup2 cgroup2 /run/cgroup2" in caught.value.next_step


@pytest.mark.root
def test_cgroup_root_of_this_host_has_cgroups() -> None:
    assert (cgroup_root() / "cgroup.procs").exists()


@contextlib.contextmanager
def loaded(kind: str) -> Iterator[Program]:
    with BpfObject.open(object_path("features")) as bpf:
        name = f"feature_{kind}"
        for program in bpf.programs.values():
            program.autoload = program.name == name
        prepare(bpf.programs[name], kind)
        bpf.load()
        yield bpf.programs[name]


@pytest.mark.root
@pytest.mark.parametrize(
    ("find", "said"),
    [
        (KernelError("cgroup version 2 is not mounted", "Mount it"), "cgroup version 2 is not mounted"),
        (Path("/no/such"), "/no/such cannot be opened: No such file or directory"),
    ],
)
def test_missing_cgroups_blame_the_program(
    find: Path | KernelError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def root() -> Path:
        if isinstance(find, KernelError):
            raise find
        return find

    monkeypatch.setattr(module, "cgroup_root", root)
    with loaded("cgroup_skb") as program, pytest.raises(LoadError, match=said) as caught:
        attach(program, "cgroup_skb")
    assert caught.value.program == "feature_cgroup_skb"


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tp_btf", "cgroup_skb"])
def test_attached_program_has_a_link_until_its_object_closes(kind: str) -> None:
    with loaded(kind) as program:
        links = attach(program, kind)
        ids = {link.id for link in links}
        assert len(ids) == 1
        assert ids <= leftovers.bpf_ids("link")
    assert not ids & leftovers.bpf_ids("link")


@pytest.fixture
def everywhere() -> Iterator[EveryNamespace]:
    if not (grant := try_kind("netfilter")).granted:
        pytest.skip(f"netfilter: {grant.reason}")
    with loaded("netfilter") as program:
        yield EveryNamespace([(program, "netfilter")])


def ids(everywhere: EveryNamespace, inode: int) -> set[int]:
    return {link.id for link in everywhere._links.get(inode, {}).values() if link.id}


@pytest.mark.root
def test_links_come_and_go_with_namespaces(everywhere: EveryNamespace) -> None:
    own = Path("/proc/self/ns/net").stat().st_ino
    everywhere.refresh()
    here = ids(everywhere, own)
    assert len(here) == 2
    with Namespace() as made:
        inode = made.inode
        assert ids(everywhere, inode) == set()
        everywhere.refresh()
        there = ids(everywhere, inode)
        assert len(there) == 2
        assert here | there <= leftovers.bpf_ids("link")
        everywhere.refresh()
        assert ids(everywhere, inode) == there
    everywhere.refresh()
    assert ids(everywhere, inode) == set()
    assert not there & leftovers.bpf_ids("link")
    assert ids(everywhere, own) == here <= leftovers.bpf_ids("link")


@pytest.mark.root
def test_programs_at_rules_come_with_the_rules(everywhere: EveryNamespace) -> None:
    ((program, _),) = everywhere._programs
    rules = EveryNamespace([(program, module.AFTER_RULES), (program, module.BEFORE_RULES)])
    with Namespace() as made:
        rules.refresh()
        assert ids(rules, made.inode) == set()
        made.run(["nft", "table ip f { chain i { type filter hook input priority 0; }; }"], check=True)
        rules.refresh()
        at_input = ids(rules, made.inode)
        made.run(["nft", "table ip6 f { chain x { type filter hook forward priority 0; }; }"], check=True)
        made.run(["nft", "table ip6 f { chain o { type filter hook output priority 0; }; }"], check=True)
        rules.refresh()
        assert at_input < ids(rules, made.inode) <= leftovers.bpf_ids("link")
        assert len(at_input) == 1  # the same program has one link before and after
        assert len(ids(rules, made.inode)) == 2


@pytest.mark.root
@pytest.mark.alone  # recordings of other tests take places in each new namespace, too
def test_taken_places_are_passed_over(everywhere: EveryNamespace) -> None:
    with Namespace() as made:
        path = Path(f"/proc/{made.pid}/ns/net")
        ((program, _),) = everywhere._programs
        runs = [netns.inside(path, lambda: attach(program, "netfilter")) for _ in range(module._PLACES)]
        assert len({link.id for links in runs for link in links}) == 2 * module._PLACES
        with pytest.raises(LoadError, match="busy"):
            netns.inside(path, lambda: attach(program, "netfilter"))
        for link in runs.pop():
            link.close()
        assert len(netns.inside(path, lambda: attach(program, "netfilter"))) == 2


def refusing(error: Exception, calls: list[int], after: int) -> Callable[..., object]:
    real = netns.inside

    def inside(where: netns.Namespace, act: Callable[[], object]) -> object:
        calls.append(where.inode)
        if len(calls) > after:
            raise error
        return real(where, act)

    return inside


@pytest.mark.root
def test_refusal_in_the_first_namespace_is_passed_on(
    everywhere: EveryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.netns, "inside", refusing(LoadError("refused", errno=22), [], 0))
    with pytest.raises(LoadError, match="refused"):
        everywhere.refresh()


@pytest.mark.root
@pytest.mark.parametrize("error", [LoadError("refused", errno=22), OSError(2, "gone"), PermissionError(1, "closed")])
def test_later_namespace_that_cannot_be_had_is_left_out_and_tried_again(
    error: Exception, everywhere: EveryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    found = netns.namespaces
    with Namespace() as made:
        # Those of other tests come and go.
        ours = {Path("/proc/self/ns/net").stat().st_ino, made.inode}
        monkeypatch.setattr(module.netns, "namespaces", lambda: {each: found()[each] for each in ours})
        with monkeypatch.context() as patch:
            patch.setattr(module.netns, "inside", refusing(error, calls, 1))
            everywhere.refresh()
            assert len(everywhere._links) == 1
        everywhere.refresh()
        assert set(everywhere._links) >= {made.inode, calls[0]}
