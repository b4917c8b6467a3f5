# SPDX-License-Identifier: Apache-2.0
"""Command lines: every verb and every option that click knows of, with values that nobody expects."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from hypothesis import strategies as st

from hopscope.main import cli
from tests.fuzz.judge import judge
from tests.fuzz.recordings import KEPT
from tests.fuzz.values import spoken, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

# What is in the folder in which a command line is run; and /dev/zero, which never ends.
_PATHS: Final = ("T", "folder", "file", "fifo", "missing", "/dev/zero", "/dev/null", "T/hopscope.json", "link", "deep")
# These would wait for who is at the other end of a FIFO, as they should, or read for ever what is without an end.
_NO_FIFO: Final = frozenset({"cdf"})
WORDS: Final = {
    "--point": (("rx.driver", "tx.send", "skb.drop", "sched.switch", "rx.*"),),
    "--hop": (("rx.driver", "tx.sched", "tx.ack", "total"), (",",)),
    "--trigger": (("drop", "rx.tcp_queue", "sched.switch"), (">",), ("1", "1.5", "1.2.3", ".", "9" * 400),
    ("ms", "s", "µs")),
    "-e": (("net:netif_rx", "tcp:", "kprobe:tcp_ack", "kretprobe:", "sched:sched_switch"), ("len > 100", "len==", "(")),
    "--event": (("net:", "syscalls:", "fentry:", "kprobe:"), ("if",), ("len", "name ~", "&& ("), ("1", '"x"')),
    "--flow": (("10.77.0.1:1", "[::1]:80", "udp", "tcp"), (" ", ">", "->", "-"), ("10.77.0.0:7777", ":", "*")),
    "--address": (("10.77.0.0", "fd00::", "::ffff:1.2.3.4"), ("/", "%"), ("8", "129", "-1")),
    "--host": (("local", "tls://127.0.0.1:1", "ssh://x:22", "x", "tls://[::1]"), (",name=", ",address="), ("a",
    "127.0.0.1")),
    "--attach": (("rx.driver", "tx.send", "skb.drop"), ("=",), ("fentry", "kprobe", "raw_tp", "xdp")),
    "--pcap": (("tcp", "port", "host", "udp[8:4]", "not", "ether"), ("and", "or", "(", ")", "="), ("80",
    "1.2.3.4", "0xff")),
    "--allow": (("sha256:", "CN=", "oncall"), ("00" * 32, "zz", "*")),
    "--listen": (("127.0.0.1", "[::1]", "*"), (":",), ("0", "65536", "99999")),
    "--layer": (("tcp", "ip", "all"),),
    "--process": (("client", "server", "1"), ("/", ":")),
    "query": (
        ("SELECT", "FROM", "WITH a AS (", ")", "WHERE", "JOIN", "UNION ALL", "GROUP BY ALL", "ORDER BY",
        "VALUES (1)", "LIMIT 1"),
        ("*", "count(*)", "packets", "messages", "lives", "flow_names", "p.", "USING (flow)", ",", "1", "'x'",
        "NULL", "?", "$1"),
        ("COPY", "TO '/tmp/x'", "ATTACH", "SET", "PRAGMA", "read_text('/etc/hostname')", "glob('*')",
        "EXPLAIN", ";", "--", "/*"),
        ("1/0", "CAST('x' AS INT)", "2::HUGEINT", "TIMESTAMP 'infinity'", "'\x1b[31m'", "chr(27)", "chr(0)",
        "'\\xff'::BLOB"),
        ("[1, 2]", "{'a': 1}", "MAP {1: 2}", "INTERVAL 1 YEAR", "'nan'::DOUBLE", 'AS "\x1b[31m"',
        'AS "a\nb"', "DATE '294247-01-10'"),
    ),
    "filter_words": (
        ("state", "exclude", "established", "all", "syn-recv", "nosuch"),
        ("src", "dst", "sport", "dport", "dev", "fwmark", "cgroup", "autobound"),
        ("=", "!=", ">", "<=", "eq", "(", ")", "!", "not", "and", "or", "||"),
        ("10/8", "::1", "[::1]:80", ":443", "inet:*", "inet6:[::]", "1.2.3.4:ssh", "1/0", "0x10/0xff",
        "9" * 30, "lo", "/x"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A command line."""

    words: tuple[str, ...]

    def check(self) -> list[str]:
        """Return what is wrong."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            target = Path(scratch) / "target"
            shutil.copytree(KEPT / "udp", target / "T")
            (target / "folder").mkdir()
            (target / "file").write_text("x\n")
            (target / "deep").write_text("[" * 100_000 + "\n")
            (target / "link").symlink_to("../outside")
            os.mkfifo(target / "fifo")
            (Path(scratch) / "outside").write_text("kept")
            (Path(scratch) / "recording").mkdir()
            return judge(self.words, target)


def verbs() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all verbs with their words."""
    return _below(cli, ())


def _below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below
        yield from _below(below, (*path, name))


def _line(path: tuple[str, ...], command: click.Command) -> st.SearchStrategy[Line]:
    """Draw lines of a verb, some of whose options are given. What measures ends soon, or is refused."""
    measures = any("--duration" in parameter.opts for parameter in command.params) and path[0] != "explain"
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option) and not ({"--duration", "--unrestricted"} & {*each.opts})
    ]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    given = st.lists(st.one_of([_option(path, each) for each in options]), max_size=4) if options else st.just([])
    meant = st.tuples(*[_argument(path, each) for each in arguments]) if arguments else st.just(())
    end = st.just(("-d", "1" if path == ("demo",) else "0.1") if measures else ())
    return st.tuples(given, meant, end).map(
        lambda drawn: Line(
            (*path, *(word for each in drawn[0] for word in each), *drawn[2], *(w for each in drawn[1] for w in each))
        )
    )


def _option(path: tuple[str, ...], option: click.Option) -> st.SearchStrategy[tuple[str, ...]]:
    if option.is_flag:
        return st.sampled_from(option.opts).map(lambda name: (name,))
    return st.tuples(st.sampled_from(option.opts), _value(path, option))


def _argument(path: tuple[str, ...], argument: click.Argument) -> st.SearchStrategy[tuple[str, ...]]:
    if isinstance(argument.type, click.types.UnprocessedParamType):
        return st.just(())  # a program to run
    most = 1 if argument.nargs == 1 else 4
    return st.lists(_value(path, argument), min_size=int(argument.required), max_size=most).map(tuple)


def _value(path: tuple[str, ...], parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Draw values of the parameter's type more often than others."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return st.sampled_from([str(each) for each in kind.choices]) | texts
    if isinstance(kind, click.types.IntParamType | click.FloatRange):
        return st.integers(0, 100).map(str) | st.floats(0, 100).map(str) | texts
    known = [WORDS[name] for name in (*parameter.opts, parameter.name) if name in WORDS]
    if known:
        return spoken(known[0])
    paths = [each for each in _PATHS if each not in {"fifo", "/dev/zero"} or not _waits(path, kind)]
    return st.sampled_from(paths) | st.sampled_from(paths) | texts


def _waits(path: tuple[str, ...], kind: click.ParamType) -> bool:
    return path[0] in _NO_FIFO or isinstance(kind, click.File)


_OF_VERBS: Final = [_line(path, command) for path, command in verbs()]
lines: st.SearchStrategy[Line] = st.integers(0, len(_OF_VERBS) - 1).flatmap(lambda number: _OF_VERBS[number])
