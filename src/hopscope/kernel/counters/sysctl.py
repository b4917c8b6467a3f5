# SPDX-License-Identifier: Apache-2.0
"""The settings below /proc/sys/net that matter: of the host, of a namespace and of each interface."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Final

from hopscope.kernel.counters.sysctl_names import HOST_WIDE, OF_INTERFACES, OF_NAMESPACE, WORDS
from hopscope.kernel.counters.text import read_setting, shown
from hopscope.kernel.netlink import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.kernel.counters.text import Said

_ROOT: Final = "/proc/sys"
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")


def of_host() -> Iterator[Said]:
    """Return the settings that all namespaces share."""
    return _plain(HOST_WIDE)


def of_namespace() -> Iterator[Said]:
    """Yield the settings of the namespace that the calling thread is in, and those of its interfaces.

    The subject is the interface, or ``all`` or ``default``, which stands at the ``*`` of the name.
    """
    yield from _plain(OF_NAMESPACE)
    for folder, names in OF_INTERFACES.items():
        yield from _of_interfaces(folder, names)


def meaning(name: str, text: bytes) -> int | str:
    """Return a setting's number, or its words with one blank between them: as sysctl prints it but for the tabs.

    Parameters
    ----------
    name
        Masks and lists are words also where they look like a number.
    text
        What its file says.
    """
    said = shown(b" ".join(text.split()))
    return said if name in WORDS or not _NUMBER.fullmatch(said) else int(said)


def _plain(names: Sequence[str]) -> Iterator[Said]:
    # Without this folder there are no settings at all, which is another thing than one that this kernel lacks.
    os.close(os.open(f"{_ROOT}/net", os.O_RDONLY | os.O_CLOEXEC))
    for folder, leaves in _by_folder(tuple(names)).items():
        for leaf, text in _texts(f"{_ROOT}/{folder.replace('.', '/')}", leaves):
            name = f"{folder}.{leaf}"
            yield "", name, meaning(name, text)


def _of_interfaces(folder: str, names: Sequence[str]) -> Iterator[Said]:
    path = f"{_ROOT}/{folder.replace('.', '/')}"
    try:
        interfaces = os.listdir(path)  # noqa: PTH208 # names, not paths: a third of the time
    except FileNotFoundError:
        return  # no IPv6
    for interface in interfaces:
        subject = printable(os.fsencode(interface))
        for leaf, text in _texts(f"{path}/{interface}", names):
            name = f"{folder}.*.{leaf}"
            yield subject, name, meaning(name, text)


@functools.cache
def _by_folder(names: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        folder, _, leaf = name.rpartition(".")
        found.setdefault(folder, []).append(leaf)
    return found


def _texts(folder: str, leaves: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield name and text of the files of a folder, without those that this kernel lacks.

    The folder is found once: its namespaces' folders hang in one chain, and on a host with 200 of them each look-up
    takes three times as long as all else.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the protocol, or the interface is gone
    try:
        for leaf in leaves:
            try:
                text = read_setting(leaf, fd)
            except FileNotFoundError:
                continue
            yield leaf, text
    finally:
        os.close(fd)
