# SPDX-License-Identifier: Apache-2.0
"""A condition in the languages of the programs that select frames: tcpdump's filters, tc's u32 and bpf, nft's rules."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import UsageError
from hopscope.kernel.pcap import ETHERNET, compiled
from hopscope.live.wire.layout import ETHERNET_BYTES, ETHERTYPE, VERSION, Kind, place
from hopscope.verbs.wire.action import COUNT, TABLE
from hopscope.verbs.wire.terms import All, Any_, Bits, InRange, most_of, terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hopscope.live.wire.layout import Place
    from hopscope.store.schema import Table
    from hopscope.verbs.wire.action import Action
    from hopscope.verbs.wire.terms import Atom, Term

# Rules for one condition; a program does with more what they would.
_MOST_RULES: Final = 64
# Its offsets are in a byte (struct nft_payload of Linux).
_NFT_MOST_OFFSET_BYTES: Final = 255
_WORD_BYTES: Final = 4
_WORD: Final = (1 << 32) - 1
# The first two bytes of a frame with an event.
_EVENT: Final = VERSION << 8 | Kind.EVENT
# Who gets events elsewhere needs it, too.
_CATALOGUE: Final = VERSION << 8 | Kind.CATALOGUE
_IS_EVENT: Final = (InRange(place("version"), VERSION, VERSION), InRange(place("kind"), Kind.EVENT, Kind.EVENT))
_TRUE, _FALSE = "1 = 1", "1 = 0"


class Rules(NamedTuple):
    """What u32 matches: any of the rules, each of which has matches that all hold.

    Attributes
    ----------
    rules
        Offset of a word → (value, mask), of each rule; None: they would be too many.
    remark
        What they select besides what is asked for; empty: nothing.
    """

    rules: list[dict[int, tuple[int, int]]] | None
    remark: str


def rendered(
    condition: str, matchers: Sequence[str], interface: str, action: Action = COUNT, tables: Sequence[Table] = ()
) -> str:
    """Return the commands, with a comment on each matcher; `tables`: see :func:`~hopscope.verbs.wire.terms.terms_of`.

    Raises
    ------
    UsageError
        It is no condition on frames.
    """
    term = terms_of(condition, tables)
    _require_some(term, condition)
    texts: Mapping[str, Callable[[Term, str, Action], list[str]]] = {
        "tcpdump": _tcpdump, "bpf": _bpf, "u32": _u32, "nft": _nft,
    }  # fmt: skip
    return "\n\n".join("\n".join(texts[name](term, interface, action)) for name in dict.fromkeys(matchers))


def expression(term: Term) -> str:
    """Return a condition on frames as a filter of libpcap's, for packets that start with their Ethernet header."""
    return f"{_frames_of(_EVENT)} and ({_expression(term)})"


def _frames_of(begin: int) -> str:
    return f"ether proto {ETHERTYPE:#x} and ether[{ETHERNET_BYTES}:2] = {begin}"


def bytecode(text: str) -> str:
    """Return a filter as tc takes programs of classic BPF: their number, and the numbers of each instruction."""
    with compiled(text, ETHERNET) as program:
        found = program.instructions[: program.length]
        return ",".join([f"{len(found)}", *(f"{each.code} {each.jt} {each.jf} {each.k}" for each in found)])


def _require_some(term: Term, condition: str) -> None:
    """Raise unless a frame may fit; libpcap finds out, and has no program that never does."""
    try:
        bytecode(expression(term))
    except UsageError as error:
        if "rejects all packets" not in error.what:
            raise
        raise UsageError(f"No frame can be one that '{condition}' selects", "Change one of its values") from error


def rules_of(term: Term) -> Rules:
    """Return it as matches of u32."""
    remarks: list[str] = []
    found = _alternatives(term, lambda atom: _masks(atom, remarks))
    if found is None:
        return Rules(None, "")
    merged = [words for each in found if (words := _words(each)) is not None]
    return Rules(merged, "; ".join(dict.fromkeys(remarks)))


# ---- tcpdump, bpf ----


def _tcpdump(term: Term, interface: str, _action: Action) -> list[str]:
    return ["# tcpdump: exact", f"tcpdump -i {shlex.quote(interface)} {shlex.quote(expression(term))}"]


def _bpf(term: Term, interface: str, action: Action) -> list[str]:
    wanted = [expression(term), *([_frames_of(_CATALOGUE)] if action.sends else [])]
    return [
        "# tc bpf: exact",
        *_qdisc(interface),
        *(f"{_filter(interface)} bpf bytecode '{bytecode(text)}' flowid :1{action.of_tc}" for text in wanted),
    ]


def _qdisc(interface: str) -> list[str]:
    return [f"tc qdisc replace dev {shlex.quote(interface)} clsact"]


def _filter(interface: str) -> str:
    return f"tc filter add dev {shlex.quote(interface)} ingress protocol {ETHERTYPE:#x} prio 1"


def _expression(term: Term) -> str:
    match term:
        case All(terms):
            return _connected("and", [_expression(each) for each in terms], _TRUE, _FALSE)
        case Any_(terms):
            return _connected("or", [_expression(each) for each in terms], _FALSE, _TRUE)
        case Bits(at, mask, value):
            words = zip(_split(at, mask), _split(at, value), _loads(at), strict=True)
            found = [f"{load} & {part:#x} = {wanted:#x}" for part, wanted, load in words if part]
            return _connected("and", found, _TRUE, _FALSE)
        case InRange(at, least, most) if least == most and at.size_bytes <= _WORD_BYTES:
            return f"{_loads(at)[0]} = {least}"
        case InRange(at, least, most):
            found = [] if least == 0 else [_not_below(at, least)]
            found += [] if most == most_of(at) else [_not_above(at, most)]
            return _connected("and", found, _TRUE, _FALSE)


def _connected(word: str, parts: Sequence[str], neutral: str, decisive: str) -> str:
    if decisive in parts:
        return decisive
    left = [part for part in parts if part != neutral]
    if len(left) <= 1:
        return left[0] if left else neutral
    return f" {word} ".join(f"({part})" for part in left)


def _loads(at: Place) -> list[str]:
    """Return how libpcap loads what is at a place: in words of four bytes, or as what is shorter."""
    start, size = ETHERNET_BYTES + at.offset_bytes, at.size_bytes
    length = min(size, _WORD_BYTES)
    return [f"ether[{part}:{length}]" for part in range(start, start + size, length)]


def _split(at: Place, value: int) -> list[int]:
    """Return a value at a place in the parts that :func:`_loads` loads."""
    size = at.size_bytes
    if size <= _WORD_BYTES:
        return [value]
    return [value >> 8 * part & _WORD for part in range(size - _WORD_BYTES, -1, -_WORD_BYTES)]


def _not_below(at: Place, least: int) -> str:
    return _ordered(_loads(at), _split(at, least), ">", ">=")


def _not_above(at: Place, most: int) -> str:
    return _ordered(_loads(at), _split(at, most), "<", "<=")


def _ordered(loads: Sequence[str], values: Sequence[int], beyond: str, last: str) -> str:
    if len(loads) == 1:
        return f"{loads[0]} {last} {values[0]}"
    rest = _ordered(loads[1:], values[1:], beyond, last)
    return f"({loads[0]} {beyond} {values[0]}) or (({loads[0]} = {values[0]}) and ({rest}))"


# ---- u32 ----


def _u32(term: Term, interface: str, action: Action) -> list[str]:
    rules, remark = rules_of(term)
    if rules is None:
        return [f"# tc u32: more than {_MOST_RULES} rules; use bpf"]
    lines = [f"# tc u32: {f'selects more, {remark}' if remark else 'exact'}", *_qdisc(interface)]
    for words in [*rules, *([{0: (_CATALOGUE << 16, _WORD & ~0xFFFF)}] if action.sends else [])]:
        matches = " ".join(f"match u32 {value:#010x} {mask:#010x} at {at}" for at, (value, mask) in words.items())
        lines.append(f"{_filter(interface)} u32 {matches} flowid :1{action.of_tc}")
    return lines


def _alternatives(term: Term, parts: Callable[[Atom], list[tuple[Atom, ...]]]) -> list[tuple[Atom, ...]] | None:
    """Return a term as alternatives, in each of which all atoms hold; None: they are too many."""
    match term:
        case Any_(terms):
            each = [_alternatives(one, parts) for one in terms]
            found = None if None in each else [way for ways in each if ways is not None for way in ways]
        case All(terms):
            found = [()]
            for one in terms:
                ways = _alternatives(one, parts)
                if ways is None or len(found) * len(ways) > _MOST_RULES:
                    return None
                found = [(*before, *way) for before, way in itertools.product(found, ways)]
        case _:
            found = parts(term)
    return None if found is None or len(found) > _MOST_RULES else found


def _masks(atom: Atom, remarks: list[str]) -> list[tuple[Atom, ...]]:
    """Return an atom as alternatives of bits."""
    if isinstance(atom, Bits):
        return [(atom,)]
    at, least, most = atom.place, atom.least, atom.most
    if at == place("hop_ns") and least and most == most_of(at):
        bit = 1 << least.bit_length() - 1
        if bit != least:
            remarks.append(f"hops of {bit} ns or longer: times are powers of two")
        return [(Bits(place("thermometer"), bit, bit),)]
    whole = most_of(at)
    return [(Bits(at, whole & ~(size - 1), start),) for start, size in _aligned(least, most, whole + 1)]


def _aligned(least: int, most: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield a range in parts whose sizes are powers of two, and which begin at multiples of those."""
    while least <= most:
        part = least & -least if least else size
        while part > most - least + 1:
            part >>= 1
        yield least, part
        least += part


def _words(atoms: Sequence[Atom]) -> dict[int, tuple[int, int]] | None:
    """Return offset of a word → (value, mask) for bits that all hold; None: they cannot."""
    words = {0: (_EVENT << 16, _WORD & ~0xFFFF)}
    for atom in atoms:
        assert isinstance(atom, Bits)  # noqa: S101 # for the type checker
        for at, value, mask in _bits_in_words(atom):
            before, known = words.get(at, (0, 0))
            if (before ^ value) & known & mask:
                return None
            if mask:
                words[at] = before | value, known | mask
    return dict(sorted(words.items()))


def _bits_in_words(bits: Bits) -> Iterator[tuple[int, int, int]]:
    """Yield offset, value and mask of the words that bits at a place are in."""
    start, size = bits.place
    first = start - start % _WORD_BYTES
    length = -(-(start + size - first) // _WORD_BYTES) * _WORD_BYTES
    shift = 8 * (first + length - start - size)
    value, mask = bits.value << shift, bits.mask << shift
    for at in range(0, length, _WORD_BYTES):
        down = 8 * (length - _WORD_BYTES - at)
        yield first + at, value >> down & _WORD, mask >> down & _WORD


# ---- nft ----


def _nft(term: Term, interface: str, action: Action) -> list[str]:
    found = _alternatives(term, lambda atom: [(atom,)])
    if found is None:
        return [f"# nft: more than {_MOST_RULES} rules; use bpf"]
    if any(atom.place.offset_bytes > _NFT_MOST_OFFSET_BYTES for atoms in found for atom in atoms):
        return [f"# nft: what is behind byte {_NFT_MOST_OFFSET_BYTES} is out of its reach; use bpf"]
    chain = f"netdev {TABLE} {shlex.quote(interface)}"
    hook = shlex.quote(f"{{ type filter hook ingress device {interface} priority 0; }}")
    lines = ["# nft: exact", f"nft add table netdev {TABLE}", f"nft add chain {chain} {hook}"]
    for atoms in found:
        matches = " ".join(_payload(atom) for atom in (*_IS_EVENT, *atoms))
        lines.append(f"nft add rule {chain} ether type {ETHERTYPE:#x} {matches} {action.of_nft}")
    if action.sends:
        lines.append(f"nft add rule {chain} ether type {ETHERTYPE:#x} @nh,0,16 {_CATALOGUE:#x} {action.of_nft}")
    return lines


def _payload(atom: Atom) -> str:
    payload = f"@nh,{8 * atom.place.offset_bytes},{8 * atom.place.size_bytes}"
    if isinstance(atom, Bits):
        return f"{payload} & {atom.mask:#x} == {atom.value:#x}"
    if atom.least == atom.most:
        return f"{payload} {atom.least:#x}"
    return f"{payload} {atom.least:#x}-{atom.most:#x}"
