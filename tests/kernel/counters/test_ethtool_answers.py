# SPDX-License-Identifier: Apache-2.0
"""Messages of ethtool's netlink: their numbers, what they mean, and what becomes of those that make no sense."""

from __future__ import annotations

import re
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.counters import ethtool_features, ethtool_settings, queue_stats
from hopscope.kernel.counters.ethtool_features import Bits, Features, bitset, feature_names, word
from hopscope.kernel.counters.ethtool_settings import answer_of, request
from hopscope.kernel.netlink import Generic, attribute, attributes, nested
from hopscope.lab import Namespace
from tests import headers
from tests.kernel.counters.tools import cuts, garbled, refuses_or


def test_constants_are_those_of_the_kernels_headers() -> None:
    values = {
        "ETHTOOL_MSG_RINGS_GET": ethtool_settings.RINGS.command,
        "ETHTOOL_MSG_CHANNELS_GET": ethtool_settings.CHANNELS.command,
        "ETHTOOL_MSG_COALESCE_GET": ethtool_settings.COALESCE.command,
        "ETHTOOL_MSG_PAUSE_GET": ethtool_settings.PAUSE.command,
        "ETHTOOL_MSG_LINKMODES_GET": ethtool_settings.LINK_MODES.command,
        "ETHTOOL_MSG_LINKSTATE_GET": ethtool_settings.LINK_STATE.command,
        "(unsigned)SPEED_UNKNOWN": ethtool_settings._UNKNOWN_SPEED,
        "DUPLEX_HALF": 0,
        "DUPLEX_FULL": 1,
        "ETHTOOL_TCP_DATA_SPLIT_ENABLED": 2,
    }
    headers_of = ("RINGS", "CHANNELS", "COALESCE", "PAUSE", "FEATURES", "LINKMODES", "LINKSTATE", "STRSET")
    values |= {f"ETHTOOL_A_{family}_HEADER": ethtool_settings.ETHTOOL_A_HEADER for family in headers_of}
    for module in (ethtool_settings, ethtool_features):
        values |= {
            name: value
            for name, value in vars(module).items()
            if re.match(r"ETH(TOOL)?_(MSG|A|FLAG|SS)_", name) and name != "ETHTOOL_A_HEADER"
        }
    families = {
        "RINGS": (ethtool_settings.RINGS, {}),
        "CHANNELS": (
            ethtool_settings.CHANNELS,
            {name: f"{name.upper()}_COUNT" for name in ("rx", "tx", "other", "combined")},
        ),
        "PAUSE": (ethtool_settings.PAUSE, {"autonegotiate": "AUTONEG"}),
        "LINKMODES": (ethtool_settings.LINK_MODES, {"speed_mbps": "SPEED", "autonegotiation": "AUTONEG"}),
        "LINKSTATE": (ethtool_settings.LINK_STATE, {"link_detected": "LINK"}),
        "COALESCE": (
            ethtool_settings.COALESCE,
            {
                "adaptive-rx": "USE_ADAPTIVE_RX", "adaptive-tx": "USE_ADAPTIVE_TX", "cqe-mode-rx": "USE_CQE_MODE_RX",
                "cqe-mode-tx": "USE_CQE_MODE_TX", "sample-interval": "RATE_SAMPLE_INTERVAL",
                "tx-aggr-max-frames": "TX_AGGR_MAX_FRAMES",
            },
        ),
    }  # fmt: skip
    for family, (asked, renamed) in families.items():
        named = dict(asked.numbers) | {kind: name for kind, (name, _) in asked.words.items()}
        for kind, name in named.items():
            default = (
                name.upper().replace("-", "_").replace("_FRAMES", "_MAX_FRAMES" if family == "COALESCE" else "_FRAMES")
            )
            values[f"ETHTOOL_A_{family}_{renamed.get(name, default)}"] = kind
    headers.assert_values(("linux/ethtool", "linux/ethtool_netlink"), values)


def test_constants_of_queue_statistics_are_those_of_the_kernels_headers() -> None:
    values = {name: value for name, value in vars(queue_stats).items() if name.startswith("NETDEV_")}
    for kind, name in enumerate(queue_stats.NAMES, queue_stats.NETDEV_A_QSTATS_RX_PACKETS):
        values[f"NETDEV_A_QSTATS_{name.upper().replace('-', '_')}"] = kind
    values |= {"NETDEV_QUEUE_TYPE_RX": 0, "NETDEV_QUEUE_TYPE_TX": 1}
    headers.assert_values(("linux/netdev",), values)


def features_message(names: list[str], **bits: int) -> bytes:
    def set_of(value: int) -> bytes:
        return nested(ethtool_features.ETHTOOL_A_BITSET_VALUE, value.to_bytes(8, "little"))

    header = nested(1, attribute(1, struct.pack("=I", 7)), attribute(2, b"eth9\0"))
    kinds = {"hw": 2, "wanted": 3, "active": 4, "nochange": 5}
    assert len(names) <= 64
    return header + b"".join(nested(kinds[name], set_of(value)) for name, value in bits.items())


def test_features_of_a_kernel_with_other_ones_keep_their_names() -> None:
    names = ["tx-checksum-ipv4", "", "rx-gro", "of-tomorrow", "rx-hashing"]
    body = features_message(names, hw=0b11100, wanted=0b01100, active=0b10100, nochange=0b00001)
    assert dict(Features(names).values(attributes(body))) == {
        "tx-checksumming": "off [fixed]",
        "generic-receive-offload": "on",
        "of-tomorrow": "off [requested on]",
        "receive-hashing": "on [requested off]",
    }
    assert word(Bits(0, 1, 1, 0), 0) == "on [fixed]"


def test_pause_frames_and_speed_that_only_other_drivers_have() -> None:
    pause = {2: b"\1", 3: b"\0", 4: b"\1"}
    assert dict(ethtool_settings.PAUSE.values(pause)) == {"autonegotiate": "on", "rx": "off", "tx": "on"}
    fast = {2: b"\1", 5: struct.pack("=I", 100_000), 6: b"\1", 9: struct.pack("=I", 4)}
    expected = {"speed_mbps": 100_000, "lanes": 4, "autonegotiation": "on", "duplex": "full"}
    assert dict(ethtool_settings.LINK_MODES.values(fast)) == expected
    down = {2: b"\0", 5: b"\xff" * 4, 6: b"\xff"}
    assert dict(ethtool_settings.LINK_MODES.values(down)) == {"autonegotiation": "off"}


@given(st.sets(st.integers(0, 200)))
def test_bits_are_where_they_were_set(bits: set[int]) -> None:
    words = [sum(1 << bit % 32 for bit in bits if bit // 32 == place) for place in range(7)]
    raw = attribute(ethtool_features.ETHTOOL_A_BITSET_VALUE, struct.pack("=7I", *words))
    assert bitset(raw) == sum(1 << bit for bit in bits)


@pytest.fixture(scope="module")
def answers() -> list[bytes]:
    """One answer to each question, of an interface that has much to say."""

    def ask() -> list[bytes]:
        left = socket.if_nametoindex("left")
        which = nested(2, nested(1, attribute(1, struct.pack("=I", ethtool_features.ETH_SS_FEATURES))))
        with Generic(ethtool_settings.FAMILY) as netlink:
            asked = [(kind, request(left)) for kind in (4, 6, 11, 17)] + [(1, request() + which)]
            return [answer.body for each in asked if (answer := netlink.ask_command(*each)) is not None]

    with Namespace() as namespace:
        words = "ip link add left numrxqueues 4 numtxqueues 3 type veth peer name right"
        namespace.run(words.split(), check=True)
        return namespace.call(ask)


def understand(body: bytes) -> None:
    _, _, found = answer_of(body)
    for asked in vars(ethtool_settings).values():
        if isinstance(asked, ethtool_settings.Asked):
            list(asked.values(found))
    list(Features(["rx-gro"]).values(found))
    list(queue_stats.figures(found))
    queue_stats.queue_name(found)


@pytest.mark.root
def test_an_answer_cut_off_anywhere_is_refused_or_says_less(answers: list[bytes]) -> None:
    assert len(answers) == 5
    *settings, strings = answers
    for body in settings:
        whole = attributes(body)
        for cut in cuts(body):
            try:
                index, name, found = answer_of(cut)
            except FormatError:
                continue
            assert (index, name) == answer_of(body)[:2]
            assert found.items() <= whole.items()
    names = feature_names(strings)
    assert len(names) > 50
    for cut in cuts(strings):
        try:
            fewer = feature_names(cut)
        except FormatError:
            continue
        assert fewer in ([], names)


@pytest.mark.root
@given(st.data())
def test_a_garbled_answer_is_refused_or_read(answers: list[bytes], data: st.DataObject) -> None:
    body = garbled(answers, data)
    refuses_or(lambda: understand(body))
    refuses_or(lambda: feature_names(body))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    refuses_or(lambda: understand(body))
    refuses_or(lambda: feature_names(body))
    refuses_or(lambda: bitset(body))


def test_a_number_for_a_feature_beyond_all_is_refused() -> None:
    far = nested(1, attribute(1, struct.pack("=I", 0x7FFFFFFF)), attribute(2, b"far\0"))
    strings = nested(1, attribute(1, struct.pack("=I", ethtool_features.ETH_SS_FEATURES)), nested(3, far))
    with pytest.raises(FormatError, match="beyond"):
        feature_names(nested(2, strings))
