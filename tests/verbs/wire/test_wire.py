# SPDX-License-Identifier: Apache-2.0
"""Programs that take packets take events: tcpdump, tc and nft count those that a recording at the same time has."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.lab.netlink import add_addresses
from hopscope.live.wire.frames import read_catalogue, read_entries
from hopscope.live.wire.layout import ETHERNET_BYTES, ETHERTYPE, FRAME, Flag, Kind, Tlv
from hopscope.verbs.wire.match import rendered
from hopscope.verbs.wire.offload import offload_remark, offload_state
from tests.lab.command import HOPSCOPE, complaint, environ, hopscope, links, only, printed, programs, start, wait_gone
from tests.lab.measure import limit, ping, udp_pair, way
from tests.lab.xdp import XdpSocket
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.lab import Lab, Namespace

pytestmark = pytest.mark.root

DATAGRAMS = 23
_SO_RCVBUFFORCE = 33
# Where the headers are looked at.
POINTS = ("tx.queue", "tx.start", "rx.driver", "rx.core")


@dataclass
class Wire:
    """A running `hopscope wire` in a namespace of its own, and a socket that gets all frames."""

    namespace: Namespace
    child: subprocess.Popen[str]
    packets: socket.socket
    frames: list[bytes] = field(default_factory=list)

    def take(self, catalogues: int) -> None:
        """Take frames until so many catalogues have come."""
        while catalogues:
            frame = self.packets.recv(65_536)
            self.frames.append(frame)
            # The last frame of a catalogue is not full; the first one alone has the counts.
            if frame[ETHERNET_BYTES + 1] == Kind.CATALOGUE and any(
                kind is Tlv.COUNTS for kind, _ in read_catalogue(frame)
            ):
                catalogues -= 1

    def events(self) -> np.ndarray[Any, np.dtype[np.void]]:
        events = [each[: FRAME.itemsize] for each in self.frames if each[ETHERNET_BYTES + 1] == Kind.EVENT]
        return np.frombuffer(b"".join(events), FRAME)["event"]

    def entries(self, wanted: Tlv) -> list[bytes]:
        """Return the entries of a type in the catalogue."""
        catalogues = [frame for frame in self.frames if frame[ETHERNET_BYTES + 1] == Kind.CATALOGUE]
        return [value for frame in catalogues for kind, value in read_catalogue(frame) if kind is wanted]

    def points(self) -> dict[str, int]:
        """Return name → number of the points in the catalogue."""
        return {value[2:].decode(): struct.unpack("!H", value[:2])[0] for value in self.entries(Tlv.POINT)}

    def settled(self, event: int, events: int, netns: int) -> None:
        """Take frames until so many of a point in a namespace have come, and whatever is behind them."""
        while np.count_nonzero((self.events()["point"] == event) & (self.events()["netns"] == netns)) < events:
            self.take(1)
        self.take(2)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command line in the namespace."""
        done: subprocess.CompletedProcess[str] = self.namespace.run(shlex.split(line), capture_output=True, text=True)
        return done


@contextlib.contextmanager
def sending(namespace: Namespace, *words: object) -> Iterator[Wire]:
    """Run it until its interface is there; it ends well."""
    argv = [*HOPSCOPE, "wire", *map(str, words)]
    child = namespace.popen(argv, stderr=subprocess.PIPE, env=environ(), text=True)
    assert child.stderr
    said = ""
    while "Sending events to hop0" not in said:  # what this kernel does not grant comes before
        said = child.stderr.readline()
        assert said
    with namespace.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as packets:
        packets.bind(("hop0", ETHERTYPE))
        packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        limit(packets)
        wire = Wire(namespace, child, packets)
        wire.take(1)
        yield wire
    child.send_signal(signal.SIGINT)
    _, end = child.communicate()
    assert child.returncode == 0, end
    assert "sent to hop0" in end
    assert "not sent" not in end


def dropped(namespace: Namespace) -> int:
    (link,) = json.loads(namespace.run(["ip", "-s", "-j", "link", "show", "hop0"], capture_output=True).stdout)
    return int(link["stats64"]["rx"]["dropped"])


def test_tcpdump_counts_what_a_recording_at_the_same_time_has(kept_lab: Lab, quiet: Namespace, tmp_path: Path) -> None:
    record = start("record", "-o", tmp_path / "t", "-P", "packets", *only(kept_lab))
    eventually((tmp_path / "t" / "hopscope.json").exists, "never began")
    with sending(quiet, "-P", "packets", *only(kept_lab)) as wire, udp_pair(way(kept_lab, "veth-4")) as pair:
        port = pair[1].getsockname()[1]
        conditions = [f"point == {point} and destination_port == {port}" for point in POINTS]
        conditions += ["point == tx.driver", "hop >= 0", "point == tx.start and not hop >= 0", "len_bytes >= 128"]
        dumps = []
        for at, condition in enumerate(conditions):
            line = rendered(condition, ["tcpdump"], "hop0").splitlines()[1]
            argv = [*shlex.split(line), "-U", "-w", str(tmp_path / f"{at}.pcap")]
            dumps.append(quiet.popen(argv, stderr=subprocess.PIPE, text=True))
            assert "listening on hop0" in dumps[-1].stderr.readline()  # type: ignore[union-attr] # a pipe
        assert ping(*pair, DATAGRAMS) == DATAGRAMS
        wire.settled(wire.points()["rx.core"], DATAGRAMS, kept_lab.server.inode)
        for dump in dumps:
            dump.send_signal(signal.SIGINT)
        captured = [int(dump.communicate()[1].split()[0]) for dump in dumps]
        assert dropped(quiet) == 0
        record.send_signal(signal.SIGINT)
        record.communicate()
    done = [
        hopscope("report", "events", tmp_path / "t", "--json", "--limit=0", f"--where={condition}")
        for condition in conditions
    ]
    recorded = [len(each.stdout.splitlines()) for each in done]
    assert captured == recorded
    assert captured[: len(POINTS)] == [DATAGRAMS] * len(POINTS)
    assert min(captured[:-2]) > 0


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_a_file_of_tcpdump_shows_what_came(kept_lab: Lab, quiet: Namespace, tmp_path: Path) -> None:
    file = tmp_path / "events.pcap"
    with sending(quiet, "--full", "-P", "packets", *only(kept_lab)) as wire, udp_pair(way(kept_lab, "veth-4")) as pair:
        port = pair[1].getsockname()[1]
        argv = ["tcpdump", "-i", "hop0", "-U", "-w", str(file), f"ether proto {ETHERTYPE}"]
        dump = quiet.popen(argv, stderr=subprocess.PIPE, text=True)
        assert "listening on hop0" in dump.stderr.readline()  # type: ignore[union-attr] # a pipe
        assert ping(*pair, DATAGRAMS) == DATAGRAMS
        wire.settled(wire.points()["rx.core"], DATAGRAMS, kept_lab.server.inode)
        dump.send_signal(signal.SIGINT)
        dump.communicate()
    names = {number: name for name, number in wire.points().items()}
    events = wire.events()
    mine = events[events["destination_port"] == port]
    sent = [
        (str(event["time_ns"]), names[event["point"]], f"{event['hop_ns'] / 1e9:.9f}" * bool(event["flags"] & Flag.HOP))
        for event in mine
    ]
    fields = [word for name in ("time_ns", "point", "hop") for word in ("-e", f"hopwire.{name}")]
    wanted = ("-T", "fields", *fields, "-Y", f"hopwire.destination_port == {port}")
    shown = printed("wireshark", "--text", file, "--", *wanted).splitlines()
    assert [tuple(line.split("\t")) for line in shown] == sent
    assert len(sent) >= DATAGRAMS * len(POINTS)


def test_who_takes_frames_makes_none(kept_lab: Lab, quiet: Namespace) -> None:
    reader = threading.get_native_id()
    with (
        ThreadPoolExecutor(1) as pool,
        sending(quiet, "-P", "calls", "--pid", os.getpid()) as wire,
        udp_pair(way(kept_lab, "veth-4")) as pair,
    ):
        sender = pool.submit(threading.get_native_id).result()
        assert pool.submit(ping, *pair, DATAGRAMS).result() == DATAGRAMS
        entered = wire.points()["call.enter"]
        while np.count_nonzero((wire.events()["tid"] == sender) & (wire.events()["point"] == entered)) < 2 * DATAGRAMS:
            wire.take(1)
        wire.take(2)
        assert reader not in wire.events()["tid"]


@pytest.fixture
def mirror(quiet: Namespace) -> Namespace:
    """Return the namespace with a device for tc to send to."""
    quiet.run(["ip", "link", "add", "name", "m0", "type", "veth", "peer", "name", "m1"], check=True)
    for name in ("m0", "m1"):
        quiet.call(add_addresses, name, ())
    return quiet


def test_tc_and_nft_count_what_comes(kept_lab: Lab, mirror: Namespace) -> None:
    with sending(mirror, "-P", "packets", *only(kept_lab)) as wire, udp_pair(way(kept_lab, "veth-4")) as pair:
        point = wire.points()["rx.driver"]
        port = pair[1].getsockname()[1]
        mine = f"point == rx.driver and destination_port == {port} and address == 10.77.0.2"
        for turn, (matcher, condition) in enumerate(
            [
                ("nft", mine),
                ("nft", "hop > 2us"),
                ("bpf", mine),
                ("bpf", "hop > 2us"),
                ("u32", mine),
                ("u32", "hop > 2us"),
            ]
        ):
            action = "mark 7" if matcher == "nft" else "mirror m0"
            done = match(wire, "--apply", "--matcher", matcher, "--action", action, condition)
            if done.returncode:
                pytest.skip(f"this kernel lacks {matcher}: {done.stderr.strip()}")
            wire.frames.clear()
            assert ping(*pair, DATAGRAMS) == DATAGRAMS
            wire.settled(point, DATAGRAMS, kept_lab.server.inode)
            events = wire.events()
            if condition == mine:
                expected = DATAGRAMS
            else:
                least = 2001 if matcher != "u32" else 1024
                expected = int(np.count_nonzero((events["hop_ns"] >= least) & (events["flags"] & Flag.HOP > 0)))
            assert counted(wire, matcher) == expected > 0, (turn, matcher, condition)
            assert match(wire, "--clear").returncode == 0
            assert counted(wire, matcher) == 0
        assert dropped(mirror) == 0
        refused = match(wire, "--apply", "--matcher", "bpf", "--action", "redirect nosuch", mine)
        assert "`tc` refuses the rule" in complaint(refused, refused.returncode)
        assert "has no such rules" in complaint(match(wire, "--clear"), 2)


def test_what_nft_drops_and_redirects_is_gone_and_there(kept_lab: Lab, mirror: Namespace) -> None:
    with (
        sending(mirror, "-P", "packets", *only(kept_lab)) as wire,
        udp_pair(way(kept_lab, "veth-4")) as pair,
        mirror.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as redirected,
    ):
        redirected.bind(("m1", ETHERTYPE))
        redirected.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        points, port = wire.points(), pair[1].getsockname()[1]
        mine = f"point == rx.driver and destination_port == {port}"
        for action in ("drop", "redirect m0"):
            done = match(wire, "--apply", "--matcher", "nft", "--action", action, mine)
            if done.returncode:
                pytest.skip(f"this kernel lacks nft's {action}: {done.stderr.strip()}")
            wire.frames.clear()
            assert ping(*pair, DATAGRAMS) == DATAGRAMS
            # The catalogue is redirected, too, so that what comes is waited for by events of another point.
            core = (points["rx.core"], port)
            seen = 0
            while seen < DATAGRAMS:
                wire.frames.append(wire.packets.recv(65_536))
                seen += places(wire.frames[-1:])[core]
            came: list[bytes] = []
            with contextlib.suppress(BlockingIOError):
                while action != "drop":
                    came.append(redirected.recv(65_536, socket.MSG_DONTWAIT))
            gone = (points["rx.driver"], port)
            assert places(wire.frames)[gone] == 0
            assert places(came)[gone] == (0 if action == "drop" else DATAGRAMS)
            assert places(came)[core] == 0
            assert counted(wire, "nft") == DATAGRAMS + len(came) - places(came)[gone]
            assert match(wire, "--clear").returncode == 0
        assert dropped(mirror) == 0


def places(frames: list[bytes]) -> Counter[tuple[int, int]]:
    """Return how many events frames have, by point and destination port."""
    rows = [each[: FRAME.itemsize] for each in frames if each[ETHERNET_BYTES + 1] == Kind.EVENT]
    events = np.frombuffer(b"".join(rows), FRAME)["event"]
    return Counter(zip(events["point"].tolist(), events["destination_port"].tolist(), strict=True))


def test_af_xdp_gets_every_frame_that_was_sent(kept_lab: Lab, quiet: Namespace, tmp_path: Path) -> None:
    with (
        sending(quiet, "-P", "packets", *only(kept_lab)) as wire,
        udp_pair(way(kept_lab, "veth-4")) as pair,
        quiet.call(XdpSocket, "hop0", tmp_path) as xdp,
    ):
        core = wire.points()["rx.core"]
        assert ping(*pair, DATAGRAMS) == DATAGRAMS
        port = pair[1].getsockname()[1]
        found: list[bytes] = []
        seen = 0
        while seen < DATAGRAMS:
            found += (more := xdp.take())
            seen += places(more)[core, port]
    assert {int.from_bytes(each[12:14]) for each in found} == {ETHERTYPE}
    numbers = [struct.unpack_from("!I", each, ETHERNET_BYTES + 8)[0] for each in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_what_a_device_could_filter_itself_is_said(quiet: Namespace) -> None:
    with sending(quiet, "-P", "drops") as wire:
        said = match(wire, "--matcher", "u32", "hop > 1ms").stdout.splitlines()[-1]
        assert said == "# hop0 takes no rules, which are all in software (hw-tc-offload: off [fixed])"
        assert "hw-tc-offload: off [fixed]" in wire.run("ethtool -k hop0").stdout
    assert "`skip_sw` behind `u32`" in offload_remark("eth0", "on")
    assert "`ethtool -K eth0 hw-tc-offload on`" in offload_remark("eth0", "off")
    assert offload_remark("eth0", offload_state("nosuch")) == ""


def test_events_of_a_tracepoint_come_with_its_fields_and_are_counted_by_them(kept_lab: Lab, mirror: Namespace) -> None:
    event, len_bytes = ("-e", "net:net_dev_queue"), 777
    sent_bytes = len_bytes + 14 + 20 + 8
    where = "--where=name in (client0, lo, hop0)"
    with sending(mirror, *event, where) as wire, udp_pair(way(kept_lab, "veth-4")) as pair:
        number = wire.points()["e_net_net_dev_queue"]
        fields = {value[2:4]: value[6:].decode() for value in wire.entries(Tlv.FIELD)}
        for matcher in ("nft", "bpf", "u32"):
            action = "mark 7" if matcher == "nft" else "mirror m0"
            condition = f"len == {sent_bytes}"
            done = match(wire, "--apply", *event, "--matcher", matcher, "--action", action, condition)
            if done.returncode:
                pytest.skip(f"this kernel lacks {matcher}: {done.stderr.strip()}")
            wire.frames.clear()
            assert ping(*pair, DATAGRAMS, len_bytes) == DATAGRAMS
            while np.count_nonzero(wire.events()["point"] == number) < DATAGRAMS:
                wire.take(1)
            wire.take(2)
            assert counted(wire, matcher) == DATAGRAMS, matcher
            assert match(wire, "--clear").returncode == 0
        frames = [frame for frame in wire.frames if frame[ETHERNET_BYTES + 1] == Kind.EVENT]
        values = [{fields[struct.pack("!H", kind)]: value for kind, value in read_entries(each)} for each in frames]
        found = [each for each in values if int.from_bytes(each["len"]) == sent_bytes]
        assert [each["name"] for each in found] == [b"client0"] * DATAGRAMS
        assert all(int.from_bytes(each["skbaddr"], signed=True) < 0 for each in found)


def match(wire: Wire, *words: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = wire.namespace.run(
        [*HOPSCOPE, "wire", "match", *words], capture_output=True, text=True, env=environ()
    )
    return done


def counted(wire: Wire, matcher: str) -> int:
    """Return how many packets rules or filters have counted, but the filter of tc for catalogues."""
    if matcher == "nft":
        rules = json.loads(wire.run("nft -j list ruleset").stdout)["nftables"]
        found = [each for rule in rules if "rule" in rule for each in rule["rule"]["expr"]]
        return sum(each["counter"]["packets"] for each in found if "counter" in each)
    filters = json.loads(wire.run("tc -s -j filter show dev hop0 ingress").stdout)
    found = [one.get("options", {}) for one in filters if not re.search(r"\b511\b|1ff0000", json.dumps(one))]
    return sum(int(each["stats"]["packets"]) for one in found for each in one.get("actions", ()))


def test_a_condition_selects_what_is_sent_and_own_frames_are_never_among_it(kept_lab: Lab, quiet: Namespace) -> None:
    where = "point in (rx.driver, rx.core, skb.drop)"
    with sending(quiet, "-P", "all", "--where", where) as wire, udp_pair(way(kept_lab, "veth-4")) as pair:
        points = wire.points()
        for _ in range(3):
            assert ping(*pair, DATAGRAMS) == DATAGRAMS
            wire.take(1)
        wire.settled(points["rx.driver"], 3 * DATAGRAMS, kept_lab.server.inode)
        events = wire.events()
        assert {name for name, number in points.items() if number in set(events["point"].tolist())} <= {
            "rx.driver", "rx.core", "skb.drop"
        }  # fmt: skip
        # In its namespace nothing but the frames arrives.
        arrived = events[events["point"] == points["rx.driver"]]
        assert np.count_nonzero(arrived["netns"] == kept_lab.server.inode) >= 3 * DATAGRAMS
        assert not np.count_nonzero(arrived["netns"] == quiet.inode)
        numbers = [struct.unpack_from("!I", frame, ETHERNET_BYTES + 8)[0] for frame in wire.frames]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_however_it_ends(quiet: Namespace, number: int) -> None:
    child = quiet.popen([*HOPSCOPE, "wire"], stderr=subprocess.PIPE, env=environ(), text=True)
    assert child.stderr
    assert "hop0" in child.stderr.readline()
    held = links(child), programs(child)
    assert held[1]
    names = {name for _, name in quiet.call(socket.if_nameindex)}
    assert names == {"lo", "hop0"}
    os.kill(child.pid, number)
    child.wait()
    child.stderr.close()
    wait_gone(*held)
    # With the far end, which is in a namespace that nothing else refers to.
    eventually(lambda: {name for _, name in quiet.call(socket.if_nameindex)} == {"lo"}, "the interface is left")


def test_bad_names_and_conditions_are_refused(quiet: Namespace) -> None:
    assert "There is an interface lo already" in complaint(hopscope("wire", "--interface=lo"), 2)
    assert "cannot be the name of an interface" in complaint(hopscope("wire", "--interface=a/b"), 2)
    done = quiet.run([*HOPSCOPE, "wire", "--where", "nothing > 1"], capture_output=True, text=True, env=environ())
    assert "Events have no field nothing" in complaint(done, 2)
    assert {name for _, name in quiet.call(socket.if_nameindex)} == {"lo"}
