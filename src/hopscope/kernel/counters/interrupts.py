# SPDX-License-Identifier: Apache-2.0
"""Hard and soft interrupts of each CPU (``kernel/irq/proc.c``, ``fs/proc/softirqs.c``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.kernel.counters.text import cpus, lines_of, number, read, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.kernel.counters.text import Said

_OF_SOFTIRQS: Final = {"NET_TX", "NET_RX", "RCU"}


def interrupt() -> Iterator[Said]:
    """Return how often each interrupt came to each CPU that is online; a CPU that it never came to is left out."""
    return parse_interrupts(read("/proc/interrupts"))


def softirq() -> Iterator[Said]:
    """Return how often each soft interrupt ran on each CPU."""
    return parse_softirqs(read("/proc/softirqs"), cpus("possible"))


def parse_interrupts(text: bytes) -> Iterator[Said]:
    """Yield the counts that are not 0; the subject is number and devices, or abbreviation and meaning.

    Of a thousand interrupts on a hundred CPUs nearly all counts are 0 for ever.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    heading, *lines = lines_of(text)
    columns = [f"cpu {cpu}" for cpu in _cpus_of(heading)]
    for line in lines:
        label, colon, rest = line.partition(b":")
        # What follows the counts is kept as it is: a blank at its end means that nothing is named there.
        words = rest.split(None, len(columns))
        label = label.strip()
        if not colon or not label or not words:
            raise FormatError(f"{line[:40]!r} is not an interrupt")
        if len(words) == 1 and not label.isdigit():
            yield shown(label), "total", number(words[0])  # of the whole machine, such as ERR
            continue
        counts = words[: len(columns)]
        if len(counts) < len(columns):
            raise FormatError(f"{line[:40]!r} has not one count for each of {len(columns)} CPUs")
        subject = interrupt_name(label, words[len(columns)] if len(words) > len(columns) else b"")
        for column, count in zip(columns, counts, strict=True):
            if count != b"0":
                yield subject, column, number(count)


def interrupt_names(text: bytes) -> dict[int, str]:
    """Return what `parse_interrupts` calls the numbered ones.

    Raises
    ------
    FormatError
        As there.
    """
    heading, *lines = lines_of(text)
    columns = len(_cpus_of(heading))
    names = {}
    for line in lines:
        label, _, rest = line.partition(b":")
        label = label.strip()
        if label.isdigit():
            words = rest.split(None, columns)
            names[number(label)] = interrupt_name(label, words[columns] if len(words) > columns else b"")
    return names


def parse_softirqs(text: bytes, possible: Sequence[int]) -> Iterator[Said]:
    """Yield the counts, by the names that the file has.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    heading, *lines = lines_of(text)
    found = _cpus_of(heading)
    if found != list(possible):
        raise FormatError(f"it has {len(found)} columns and there may be {len(possible)} CPUs")
    seen = set()
    for line in lines:
        label, colon, rest = line.partition(b":")
        counts = rest.split()
        if not colon or not label.strip() or len(counts) != len(found):
            raise FormatError(f"{line[:40]!r} has not one count for each of {len(found)} CPUs")
        subject = shown(label.strip())
        seen.add(subject)
        for cpu, count in zip(found, counts, strict=True):
            yield subject, f"cpu {cpu}", number(count)
    if missing := _OF_SOFTIRQS - seen:
        raise FormatError(f"it has no {' and no '.join(sorted(missing))}")


def _cpus_of(heading: bytes) -> list[int]:
    labels = heading.split()
    if not labels or any(not label.startswith(b"CPU") for label in labels):
        raise FormatError(f"{heading[:40]!r} does not name CPUs")
    found = [number(label.removeprefix(b"CPU")) for label in labels]
    if found != sorted(set(found)):
        raise FormatError(f"{heading[:40]!r} names a CPU twice")
    return found


def interrupt_name(label: bytes, rest: bytes) -> str:
    """Return ``24 virtio0-input.0`` or ``LOC Local timer interrupts``.

    Behind the counts of a numbered one stand controller, number there and trigger, padded with blanks, and then, two
    blanks before them, the names of those that asked for it.
    """
    if not label.isdigit():
        return shown(b" ".join([label, *rest.split()]))
    if rest.endswith(b" ") or b"  " not in rest:
        return shown(label)  # nobody has asked for it (any more)
    return shown(label + b" " + rest.rpartition(b"  ")[2])
