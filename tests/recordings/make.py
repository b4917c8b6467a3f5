# SPDX-License-Identifier: Apache-2.0
"""Record `tests/recordings` anew, and write down what every report says of them.

The recordings are of real traffic between namespaces of our own, made by `hopscope record` of the version that is
checked out (root; a minute). They prove that a trace which a user has can still be opened, and that its reports still
say the same, so they are not made anew because the code has changed, but when the format has: a new version of it gets
recordings beside those of the old ones, for as long as these can be read.

```
sudo .venv/bin/python -m tests.recordings.make [NAME]...        record these, and write what is said of them
.venv/bin/python -m tests.recordings.make --expected [NAME]...  write what is said of the recordings that are there
.venv/bin/python -m tests.recordings.make --check [NAME]...     compare all that is said of them with what was
```

Without names, all. The second is for changes that are meant to change what a report says: a column more, another word.
Whoever runs it reads what `git diff tests/recordings/expected` shows, line by line. The third has all reports with
options, in some minutes; `tests/test_recordings.py` has those that a recording was made for.

Each recording stays below some 150 kB, with tens of messages. Its host is called ``recorder``, whichever it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.lab import Lab, Namespace, Tbf, Workload
from hopscope.lab.veth import SERVER_IPV4, SERVER_IPV6
from tests.lab.apart import recorded_apart
from tests.lab.command import end_started, start
from tests.lab.recorded_hosts import pair
from tests.lab.router import PORT, ROUTER, SERVER, SERVICE_PORT, load_rules, routed
from tests.recordings.said import EXPECTED, FOLDER, commands, copied, differences, said, transcript
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOST: Final = "recorder"
_IN: Final = "table ip t {{ chain i {{ type filter hook input priority 0; {} }}; }}\n"


@contextmanager
def recorded(folder: Path, *options: object, namespaces: tuple[Namespace, ...]) -> Iterator[subprocess.Popen[str]]:
    """Record what happens in these namespaces while the body runs."""
    only = [f"--netns={each.inode}" for each in namespaces]
    child = start("record", "-o", folder, *only, *options)
    eventually(lambda: child.poll() is not None or (folder / "hopscope.json").exists(), "never began")
    assert child.poll() is None, child.communicate()
    yield child
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode in {0, -signal.SIGKILL}, said
    sys.stderr.write(said)


def sent(server: Namespace, client: Namespace, kind: str, *options: object, **sink: object) -> None:
    """Send from a client to a server as :mod:`hopscope.lab.traffic` does; `sink` are options of the server's."""
    there = str(sink.pop("bind", SERVER_IPV4))
    to, port = sink.pop("to", there), sink.pop("to_port", 0)
    receives = {"tcp-send": "tcp-sink", "udp-send": "udp-sink", "tcp-rr": "tcp-echo"}[kind]
    words = [word for name, value in sink.items() for word in (f"--{name.replace('_', '-')}", value)]
    with Workload(server, receives, "--bind", there, "--comm", "server", *map(str, words)) as serving:
        client_words = (to, port or serving.port, "--comm", "client", *options)
        with Workload(client, kind, *map(str, client_words)) as sending:
            sending.result()
        if receives == "udp-sink":
            serving.stop()
        else:
            serving.result()


def requests(server: Namespace, client: Namespace, count: int, *options: object, **sink: object) -> None:
    """Ask and be answered over TCP."""
    sizes = {"size": 331, "reply_size": 1009}
    sent(server, client, "tcp-rr", "--size", 331, "--reply-size", 1009, "--count", count, *options, **sizes, **sink)


def tcp_rx(folder: Path) -> None:
    """Receive: messages that a reader takes late, and requests that are answered at once."""
    with Lab() as lab:
        options = ("-P", "messages", "-P", "cpu", "--counters", 0.2)
        with recorded(folder, *options, namespaces=(lab.client, lab.server)):
            sent(lab.server, lab.client, "tcp-send", "--size", 2003, "--count", 17, "--rate", 100, sleep_ms=3)
            requests(lab.server, lab.client, 61, "--rate", 400)


def tx(folder: Path) -> None:
    """Transmit through a token bucket, with every point that there is."""
    with Lab(tbf=Tbf(4_000_000)) as lab:
        options = ("-P", "all", "--counters", 0)
        with recorded(folder, *options, namespaces=(lab.client, lab.server)):
            sent(lab.server, lab.client, "tcp-send", "--size", 4001, "--count", 53)


def udp(folder: Path) -> None:
    """Datagrams of IPv4, fragmented ones and IPv6, with the beginning of each frame."""
    with Lab() as lab:
        options = ("-P", "messages", "--counters", 0, "--snap", 64)
        with recorded(folder, *options, namespaces=(lab.client, lab.server)):
            sent(lab.server, lab.client, "udp-send", "--size", 331, "--count", 53, "--rate", 1000)
            sent(lab.server, lab.client, "udp-send", "--size", 4001, "--count", 7, "--rate", 1000)
            sent(lab.server, lab.client, "udp-send", "--size", 97, "--count", 11, "--rate", 1000, bind=SERVER_IPV6)


_NAT: Final = (
    "table ip t { chain out { type nat hook postrouting priority 100; oifname out0 masquerade; };"
    " chain in { type nat hook prerouting priority -100;"
    f" meta l4proto {{ tcp, udp }} th dport {SERVICE_PORT} dnat to {SERVER}:{PORT}; }}; }}\n"
)


def nat(folder: Path) -> None:
    """Both addresses of each packet are translated by a router, which is recorded as well."""
    with routed() as (client, router, server):
        assert not load_rules(router, _NAT)
        way = {"bind": SERVER, "to": ROUTER, "port": PORT, "to_port": SERVICE_PORT}
        with recorded(folder, "-P", "messages", "--counters", 0, namespaces=(client, router, server)):
            requests(server, client, 23, "--rate", 500, **way)
            sent(server, client, "udp-send", "--size", 1009, "--count", 23, "--rate", 500, **way)


def two_hosts(folder: Path) -> None:
    """Two hosts, each with its agent, and probes of their clocks; joined by whoever opens it."""
    with tempfile.TemporaryDirectory() as keys, pair(Path(keys)) as hosts:
        client, server = hosts.lab.client, hosts.lab.server
        recording = hosts.begun(folder, "-P", "messages", "--counters", 0)
        requests(server, client, 53, "--rate", 200)
        sent(server, client, "udp-send", "--size", 331, "--count", 23, "--rate", 200)
        recording.send_signal(signal.SIGINT)
        _, said = recording.communicate(timeout=TIMEOUT_S)
        assert recording.returncode == 0, said


def apart(folder: Path) -> None:
    """What `hopscope join` made of two hosts that were recorded apart: between them, three datagrams were lost."""
    with routed() as (client, router, server), tempfile.TemporaryDirectory() as parts:
        assert not load_rules(
            router,
            "table ip t { chain f { type filter hook forward priority 0;"
            f" ip daddr {SERVER} ip length 1037 numgen inc mod 7 == 3 drop; }}; }}\n",
        )
        os.chdir(parts)
        with recorded_apart(Path(), {"a": client, "b": server}, together=False):
            requests(server, client, 37, "--rate", 200, bind=SERVER)
            sent(server, client, "udp-send", "--size", 1009, "--count", 23, "--rate", 200, bind=SERVER)
        shutil.copytree("joined", folder)


def losses(folder: Path) -> None:
    """Events that found no room, since the reader stood still."""
    with Lab() as lab:
        namespaces = (lab.client, lab.server)
        options = ("-P", "packets", "--buffer", 1, "--counters", 0)
        with recorded(folder, *options, namespaces=namespaces) as child:
            sent(lab.server, lab.client, "udp-send", "--size", 64, "--count", 11, "--rate", 1000)
            child.send_signal(signal.SIGSTOP)
            sent(lab.server, lab.client, "udp-send", "--size", 64, "--count", 3000)
            child.send_signal(signal.SIGCONT)
            time.sleep(0.5)
            sent(lab.server, lab.client, "udp-send", "--size", 64, "--count", 11, "--rate", 1000)


def drops(folder: Path) -> None:
    """Twenty-three datagrams that a rule drops, eleven that nobody listens for, with the stack of each."""
    with Lab() as lab:
        assert not load_rules(lab.server, _IN.format("udp dport 7777 drop;"))
        options = ("-P", "messages", "-P", "drops", "--stacks", "--counters", 0.2)
        with recorded(folder, *options, namespaces=(lab.client, lab.server)):
            for port, count in ((7777, 23), (7778, 11)):
                words = ("udp-send", SERVER_IPV4, port, "--comm", "client", "--count", count, "--rate", 500)
                Workload(lab.client, *words).result()
            requests(lab.server, lab.client, 7, "--rate", 500)


def containers(folder: Path) -> None:
    """Namespaces with a bridge between them, whose counters move: a socket that is full, a queue that is too short."""
    with Lab(bridged=True, tbf=Tbf(8_000_000, limit_bytes=6_000)) as lab:
        assert lab._middle is not None
        namespaces = (lab.client, lab.server, lab._middle)
        with recorded(folder, "-P", "messages", "--counters", 0.3, namespaces=namespaces):
            time.sleep(0.7)
            sent(lab.server, lab.client, "udp-send", "--size", 1009, "--count", 97, sleep_ms=20, rcvbuf=4096)
            time.sleep(0.7)
            requests(lab.server, lab.client, 31, "--rate", 100)


def events(folder: Path) -> None:
    """The kernel's own tracepoints, beside the packets that a pcap filter wants."""
    with Lab() as lab:
        options = ("-P", "packets", "--counters", 0, "--pcap", "udp or tcp port 7777")
        named = ("net:net_dev_queue", "net:netif_rx")
        asked = [*(f'{each}:name ~ "*0" && len < 1200' for each in named), "tcp:tcp_probe:sport == 7777"]
        words = [word for each in asked for word in ("-e", each)]
        with recorded(folder, *options, *words, namespaces=(lab.client, lab.server)):
            requests(lab.server, lab.client, 13, "--rate", 500, port=7777)
            sent(lab.server, lab.client, "udp-send", "--size", 331, "--count", 13, "--rate", 500)


def flight(folder: Path) -> None:
    """A flight recorder that the first drop ended."""
    with Lab() as lab:
        assert not load_rules(lab.server, _IN.format("udp dport 7777 drop;"))
        options = ("-P", "messages", "--flight", 5, "--trigger", "drop")
        with recorded(folder, *options, namespaces=(lab.client, lab.server)) as child:
            requests(lab.server, lab.client, 23, "--rate", 500)
            Workload(lab.client, "udp-send", SERVER_IPV4, 7777, "--comm", "client", "--count", 1).result()
            child.wait(TIMEOUT_S)


def killed(folder: Path) -> None:
    """A recorder that was killed: its last files are not there."""
    with Lab() as lab:
        options = ("-P", "rx", "--counters", 1)
        with recorded(folder, *options, namespaces=(lab.client, lab.server)) as child:
            requests(lab.server, lab.client, 17, "--rate", 100)
            eventually(lambda: list(folder.glob("packets/0*.parquet")), "no file is complete")
            requests(lab.server, lab.client, 17, "--rate", 100)
            child.kill()


def runs(folder: Path) -> None:
    """What `hopscope rx --json` and `hopscope tx --json` print, for `hopscope cdf`; not a trace."""
    folder.mkdir()
    for name, sleep_ms in (("before", 1), ("after", 4)):
        for way in ("rx", "tx"):
            with Lab() as lab, (folder / f"{way}-{name}.jsonl").open("w") as out:
                only = [f"--netns={each.inode}" for each in (lab.client, lab.server)]
                child = start(way, "--json", "-i", 60, *only, stdout=out)
                eventually(lambda child=child: child.poll() is not None or _attached(child), "never began")
                sent(lab.server, lab.client, "tcp-send", "--size", 101, "--count", 97, "--rate", 150, sleep_ms=sleep_ms)
                child.send_signal(signal.SIGINT)
                _, said = child.communicate(timeout=TIMEOUT_S)
                assert child.returncode == 0, said


def _attached(child: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{child.pid}/stack").read_text().find("poll") >= 0


RECORDINGS: Final[dict[str, Callable[[Path], None]]] = {
    "tcp-rx": tcp_rx, "tx": tx, "udp": udp, "nat": nat, "two-hosts": two_hosts, "apart": apart, "losses": losses,
    "drops": drops, "containers": containers, "events": events, "flight": flight, "killed": killed, "runs": runs,
}  # fmt: skip


def record(name: str) -> None:
    """Record one anew, under the neutral name of a host."""
    with tempfile.TemporaryDirectory() as fresh, ExitStack() as stack:
        stack.enter_context(contextlib.chdir(fresh))
        stack.callback(end_started)
        made = Path(fresh) / name
        RECORDINGS[name](made)
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        shutil.copytree(made, FOLDER / name)


def write_expected(names: Iterable[str]) -> None:
    """Write what is said of recordings."""
    EXPECTED.mkdir(exist_ok=True)
    with opened():
        for name in names:
            lines = [line for command in commands(name) for line in (f"$ hopscope {command}", *said(command))]
            (EXPECTED / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def check(names: Iterable[str]) -> int:
    """Compare all that is said of recordings; return how much of it differs."""
    wrong = 0
    with opened():
        for name in names:
            expected = transcript(name)
            for command in expected:
                now = said(command)
                if now != expected[command]:
                    wrong += 1
                    sys.stdout.write(f"{differences(command, expected[command], now)}\n")
            sys.stdout.write(f"{name}: {len(expected)} commands\n")
    return wrong


@contextmanager
def opened() -> Iterator[None]:
    """Be where the recordings can be opened."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        copied(RECORDINGS, Path())
        yield


def main(words: list[str]) -> int:
    flags = {"--expected", "--check"} & set(words)
    names = [word for word in words if word not in flags] or list(RECORDINGS)
    if flags == {"--check"}:
        return int(check(names) > 0)
    if not flags:
        if os.uname().nodename != HOST:
            again = [sys.executable, "-m", "tests.recordings.make", *words]
            enter = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
            return subprocess.run(["unshare", "--uts", "sh", "-c", enter, HOST, *again], check=False).returncode
        for name in names:
            record(name)
    write_expected(names)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
