# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a host's network stack: entries of knowledge, evaluated on two readings."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from hopscope.model.counters.readings import HOST
from hopscope.model.counters.sources import LAYERS, SOURCES
from hopscope.verbs.check.figures import blanks, fill
from hopscope.verbs.check.knowledge.causes import causes_of
from hopscope.verbs.check.scene import Index, Place, Ref, Scene

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.counters.readings import Readings
    from hopscope.verbs.check.conditions import Condition, Evidence, Figure, Hit
    from hopscope.verbs.check.figures import Advice

# A notice may be as it should be; a note is a setting that is worth knowing, and no finding.
Severity: TypeAlias = Literal["critical", "warning", "notice", "note"]

# The gravest first.
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "notice", "note")

# Reasons not to read something that are no trouble: a kernel without it, a namespace that ended meanwhile.
_AS_IT_IS: Final = ("this kernel has no", "its network namespace has ended", "there is no such")
# Source and name of the reading that says how many rules drop what nobody counts.
_UNCOUNTED: Final = ("nft", "drop_rules_without_counter")
# From so many on they are not named.
_MANY: Final = 5

# Tools that see the network namespace they run in; any other sees the host, or all of them.
_OF_NAMESPACE: Final = frozenset({
    "ip", "ss", "tc", "ethtool", "nstat", "tcpdump", "sysctl", "conntrack", "nft", "traceroute", "tracepath",
})  # fmt: skip
# Writes to /sys, which shows the interfaces of the namespace in which it was mounted.
_OF_SYSFS: Final = "tee"

# Settings that only the first namespace can change; of others it is seen where they were read.
_OF_HOST: Final = (
    "vm.", "net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_buckets", "net.netfilter.nf_conntrack_expect",
)  # fmt: skip

_SYSCTL: Final = re.compile(r"sysctl -w ([\w.{}]+)=")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that may be wrong, and what is known of it.

    Texts have places to fill in: ``{where}`` (what is concerned: interfaces, CPUs, listeners), the figures of the
    condition (``{by}``, ``{per_s}``, ``{share}``, ``{of}``, ``{now}``, …), and those of `advice`.

    Attributes
    ----------
    id
        Short, lasting name: ``udp-receive-buffer``.
    layer
        One of :data:`hopscope.model.counters.sources.LAYERS`.
    condition
        What it looks at and when that is a finding.
    sentence
        What is the case, with figures, without a full stop.
    why
        Why it matters and what usually causes it; whole sentences.
    fixes
        Commands, the first one first to try; what follows `` # `` says what to look at. One whose figures are not known
        is left out.
    source
        Kernel file and function, or document.
    threshold
        Why the condition is as strict as it is: what a healthy, busy host does.
    advice
        Further figures, mostly of `fixes`: what to set.
    """

    id: str
    severity: Severity
    layer: str
    condition: Condition
    sentence: str
    why: str
    fixes: tuple[str, ...]
    source: str
    threshold: str
    advice: Mapping[str, Advice] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """An entry that holds at one place.

    Attributes
    ----------
    netns, namespace
        Inode and name of the network namespace; 0 and empty for the host.
    subject
        Interface, CPU, listener…; empty where the entry is of a whole namespace or host.
    sentence, fixes
        Filled in.
    evidence
        The readings it rests on.
    figures
        Of the sentence, for several findings to be told as one.
    """

    entry: Entry
    netns: int
    namespace: str
    subject: str
    sentence: str
    fixes: Sequence[str]
    evidence: Sequence[Evidence]
    figures: Mapping[str, Figure]

    @property
    def id(self) -> str:
        """The entry's."""
        return self.entry.id

    @property
    def severity(self) -> Severity:
        """The entry's."""
        return self.entry.severity

    @property
    def causes(self) -> tuple[str, ...]:
        """What messages wait for where this is the case, as ``explain`` calls it."""
        return causes_of(self.id)


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one entry.

    Attributes
    ----------
    findings
        Where it holds.
    well
        At how many places it was looked at and found well.
    unseen
        Why it could not be looked at, where it could not: sentences without a full stop.
    total
        What its counter has counted since it began, at all places; None for what does not count.
    """

    entry: Entry
    findings: Sequence[Finding]
    well: int
    unseen: Sequence[str]
    total: int | None = None

    @property
    def state(self) -> Literal["found", "well", "unseen"]:
        """Whether it was found, or is well wherever it could be looked at, or could not be looked at anywhere."""
        if self.findings:
            return "found"
        return "well" if self.well else "unseen"


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes
    ----------
    seconds
        Between the two readings.
    checked
        One for each entry, in the order of layers.
    unread
        What should have been read and could not be: sentences without a full stop.
    namespaces
        How many network namespaces were read.
    uncounted_rules
        How many rules of nftables drop packets without counting them: what they drop cannot be seen.
    """

    seconds: float
    checked: Sequence[Checked]
    unread: Sequence[str] = ()
    namespaces: int = 0
    uncounted_rules: int = 0

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """All findings, the gravest first; of one severity, from the wire upwards. Notes are none."""
        found = [finding for each in self.checked for finding in each.findings if finding.severity != "note"]
        return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))

    @cached_property
    def notes(self) -> Sequence[Finding]:
        """The notes."""
        return [finding for each in self.checked for finding in each.findings if finding.severity == "note"]

    @property
    def worst(self) -> Severity | None:
        """The gravest severity there is."""
        return self.findings[0].severity if self.findings else None


def together(checks: Mapping[str, Check]) -> Check:
    """Return the checks of several hosts as one: findings' namespaces have the host's name behind them."""
    entries = zip(*(check.checked for check in checks.values()), strict=True)
    checked = []
    for each in entries:
        findings = [
            replace(finding, namespace=f"{finding.namespace}@{host}")
            for host, one in zip(checks, each, strict=True)
            for finding in one.findings
        ]
        totals = [one.total for one in each if one.total is not None]
        unseen = [f"{host}: {why}" for host, one in zip(checks, each, strict=True) for why in one.unseen]
        checked.append(
            Checked(each[0].entry, findings, sum(one.well for one in each), unseen, sum(totals) if totals else None)
        )
    unread = [f"{host}: {what}" for host, check in checks.items() for what in check.unread]
    return Check(
        max(check.seconds for check in checks.values()),
        checked,
        unread,
        sum(check.namespaces for check in checks.values()),
        sum(check.uncounted_rules for check in checks.values()),
    )


class Checker:
    """Evaluates readings again and again.

    Parameters
    ----------
    entries
        Of the knowledge that there is, all if not given.
    """

    def __init__(self, entries: Sequence[Entry] | None = None) -> None:
        if entries is None:
            from hopscope.verbs.check.knowledge.all import ENTRIES  # noqa: PLC0415 # made of what this module defines

            entries = ENTRIES
        self._entries = sorted(entries, key=lambda entry: LAYERS.index(entry.layer))
        self._index: Index | None = None

    def evaluate(self, before: Readings, now: Readings) -> Check:
        """Return what two readings say, of each entry.

        Parameters
        ----------
        before, now
            The earlier and the later reading. Counters are compared, gauges and settings are taken from the later one.
        """
        # Nearly always, the same can be read as the last time: then it is known where to look.
        if self._index is None or not self._index.fits(now):
            self._index = Index(now)
        scene = Scene(before, now, self._index)
        checked = [_check(entry, scene) for entry in self._entries]
        uncounted = sum(value for key, value in now.numbers.items() if (key.source, key.name) == _UNCOUNTED)
        return Check(scene.seconds, checked, _not_read(now), len(now.namespaces), uncounted)


def evaluate(before: Readings, now: Readings, entries: Sequence[Entry] | None = None) -> Check:
    """Return what two readings say, as a :class:`Checker` does."""
    return Checker(entries).evaluate(before, now)


def _not_read(now: Readings) -> list[str]:
    """Tell what was refused, or not understood: by reason, of which namespaces."""
    places: dict[str, tuple[set[int], set[str]]] = {}
    for each in now.unread:
        if not each.reason.startswith(_AS_IT_IS):
            namespaces, sources = places.setdefault(each.reason, (set(), set()))
            namespaces.add(each.netns)
            sources.add(each.source)
    return [
        f"{', '.join(sorted(sources)) if len(sources) < _MANY else 'most'} of {_named(now, namespaces)}: {reason}"
        for reason, (namespaces, sources) in places.items()
    ]


def _named(now: Readings, namespaces: set[int]) -> str:
    names = sorted(now.namespaces.get(each, "the host" if each == HOST else str(each)) for each in namespaces)
    return ", ".join(names) if len(names) < _MANY else f"{len(names)} network namespaces"


def _check(entry: Entry, scene: Scene) -> Checked:
    lead = entry.condition.refs[0]
    places = entry.condition.places(scene)
    findings, well, unseen = [], 0, _unread(entry, scene)
    for place in places:
        lacking = entry.condition.missing(scene, place)
        if lacking:
            unseen.append(_why_not(lacking))
        elif hit := entry.condition.judge(scene, place):
            findings.append(_finding(entry, scene, place, hit))
        else:
            well += 1
    if not places and not unseen:
        unseen.append(_why_not(lead))
    return Checked(entry, findings, well, tuple(dict.fromkeys(unseen)), _total(lead, places, scene))


def _unread(entry: Entry, scene: Scene) -> list[str]:
    needed = {ref.source for ref in entry.condition.refs if not ref.optional}
    return [each.reason for each in scene.now.unread if each.source in needed]


def _why_not(ref: Ref) -> str:
    if ref.only != ("*",) or ref.but:
        return f"{SOURCES[ref.source].seen_with} shows nothing of this kind on this host"
    what = f"{SOURCES[ref.source].seen_with} has no {ref.name} on this host"
    return f"{what} ({ref.since})" if ref.since else what


def _total(lead: Ref, places: Sequence[Place], scene: Scene) -> int | None:
    if SOURCES[lead.source].kind != "counter":
        return None
    return sum(scene.value(lead, place) or 0 for place in places)


def _finding(entry: Entry, scene: Scene, place: Place, hit: Hit) -> Finding:
    advice = {name: figure for name, each in entry.advice.items() if (figure := each.figure(scene, place))}
    figures = {**hit.figures, **advice}
    namespace = scene.now.namespaces.get(place.netns, "") if place.netns else ""
    fixes = tuple(_fix(fix, figures, scene, place) for fix in entry.fixes if blanks(fix) <= figures.keys())
    sentence = fill(entry.sentence, figures, place.subject)
    return Finding(entry, place.netns, namespace, place.subject, sentence, fixes, hit.evidence, figures)


def _fix(fix: str, figures: Mapping[str, Figure], scene: Scene, place: Place) -> str:
    """Fill a command in, say what a sysctl is now, and enter the namespace that it has to be run in."""
    command, mark, note = fill(fix, figures, place.subject, exact=True).partition(" # ")
    netns = place.netns
    if setting := _SYSCTL.match(command):
        ref = Ref("sysctl", (setting[1],))
        keys = scene.keys(ref, place)
        netns = HOST if setting[1].startswith(_OF_HOST) else keys[0].netns if keys else netns
        is_now = f"now {scene.word(ref, place)}" if keys else ""
        note = "; ".join(filter(None, (is_now, note)))
    command = command.rstrip()
    tool = command.partition(" ")[0]
    if tool in _OF_NAMESPACE or tool == _OF_SYSFS:
        command = _entering(scene.now.namespaces.get(netns, ""), sysfs=tool == _OF_SYSFS) + command
    return f"{command}  # {note}" if note and command else command or f"{mark.strip()} {note}".strip()


def _entering(namespace: str, *, sysfs: bool) -> str:
    """Return what makes a command run in a namespace; names are as :mod:`hopscope.kernel.netns` gives them."""
    if namespace in {"", "host"}:
        return ""
    if process := re.fullmatch(r"(\d+) \(.*\)", namespace, re.DOTALL):
        return f"nsenter -t {process[1]} -n {'-m ' if sysfs else ''}"
    return f"ip netns exec {shlex.quote(namespace)} "
