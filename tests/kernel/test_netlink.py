# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel import netlink
from hopscope.kernel.netlink import (
    Generic,
    Netlink,
    attribute,
    attributes,
    each_attribute,
    messages,
    nested,
    number,
    printable,
)
from hopscope.lab import Namespace
from tests import headers

if TYPE_CHECKING:
    from collections.abc import Sequence

RTM_GETLINK = 18
IFINFOMSG = bytes(16)
IFLA_IFNAME = 3

ATTRIBUTES = st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=40)), max_size=8)


def message(kind: int, body: bytes, *, sequence: int = 1, flags: int = 0) -> bytes:
    raw = struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body
    return raw + bytes(-len(raw) % 4)


class Replies:
    """Stands in for the socket: what the kernel would say to each question, buffer by buffer."""

    def __init__(self, answers: Sequence[Sequence[bytes]], sender: int = 0) -> None:
        self.answers = list(answers)
        self.buffers: list[bytes] = []
        self.asked = 0
        self.sender = sender

    def sendto(self, _data: bytes, _address: object) -> None:
        self.asked += 1
        self.buffers = list(self.answers.pop(0))

    def recvfrom_into(self, buffer: bytearray, _size: int, _flags: int) -> tuple[int, tuple[int, int]]:
        data = self.buffers.pop(0)
        buffer[: len(data)] = data[: len(buffer)]
        return len(data), (self.sender, 0)


def answered(*answers: Sequence[bytes]) -> tuple[Netlink, Replies]:
    made = Netlink(0)
    made._socket.close()
    replies = Replies(answers)
    made._socket = replies  # type: ignore[assignment]
    return made, replies


def end(code: int = 0, **header: int) -> bytes:
    return message(netlink.NLMSG_DONE, struct.pack("=i", code), **header)


def test_constants_are_those_of_the_kernels_headers() -> None:
    names = ("NETLINK_ROUTE", "NETLINK_GENERIC", "NLM_F_REQUEST", "NLM_F_ACK", "NLM_F_DUMP", "NLM_F_DUMP_INTR")
    values = {name: getattr(netlink, name) for name in (*names, "NLMSG_ERROR", "NLMSG_DONE")}
    values |= {
        "sizeof(struct nlmsghdr)": netlink.HEADER.size,
        "sizeof(struct genlmsghdr)": netlink._GENL.size,
        "NLA_F_NESTED": netlink._NLA_F_NESTED,
        "(unsigned short)NLA_TYPE_MASK": netlink.TYPE_MASK,
        "GENL_ID_CTRL": netlink._GENL_ID_CTRL,
        "CTRL_CMD_GETFAMILY": netlink._CTRL_CMD_GETFAMILY,
        "CTRL_ATTR_FAMILY_ID": netlink._CTRL_ATTR_FAMILY_ID,
        "CTRL_ATTR_FAMILY_NAME": netlink._CTRL_ATTR_FAMILY_NAME,
    }
    headers.assert_values(("linux/netlink", "linux/genetlink"), values)


@given(ATTRIBUTES)
def test_attributes_come_back_as_they_were_put(given_: list[tuple[int, bytes]]) -> None:
    data = b"".join(attribute(kind, value) for kind, value in given_)
    assert list(each_attribute(data)) == given_
    assert attributes(nested(7, data)) == {7: data}


@given(ATTRIBUTES, st.data())
def test_attributes_cut_anywhere_are_refused_or_fewer(given_: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = b"".join(attribute(kind, value) for kind, value in given_)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        found = list(each_attribute(cut))
    except FormatError:
        return
    assert found == given_[: len(found)]
    assert len(cut) <= len(b"".join(attribute(*each) for each in found))


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_apart_or_refused(data: bytes) -> None:
    for take_apart in (each_attribute, messages):
        try:
            found = list(take_apart(data))  # type: ignore[operator]
        except FormatError:
            continue
        assert len(found) <= len(data) // 4


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=5), st.data())
def test_messages_cut_anywhere_are_refused_or_fewer(given_: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = b"".join(message(kind, body) for kind, body in given_)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        found = [(each.kind, each.body) for each in messages(cut)]
    except FormatError:
        return
    assert found == given_[: len(found)]


def test_numbers_are_of_any_width_that_there_is() -> None:
    assert [number(width.pack(7)) for width in map(struct.Struct, ("=B", "=H", "=I", "=Q"))] == [7] * 4
    assert number(b"") == 0
    with pytest.raises(FormatError, match="a number of 9 bytes"):
        number(bytes(9))


@given(st.lists(st.binary(max_size=15), min_size=2, max_size=2, unique=True))
def test_names_are_one_printable_word_and_none_passes_for_another(names: list[bytes]) -> None:
    shown = [printable(name) for name in names]
    assert all(word.isprintable() for word in shown)
    cut = [name.partition(b"\0")[0] for name in names]
    assert (shown[0] == shown[1]) == (cut[0] == cut[1])


@pytest.mark.parametrize(
    ("name", "word"),
    [
        (b"eth0\0\0", "eth0"),
        ("größe".encode(), "größe"),
        (b"v\xff", r"v\xff"),
        (rb"v\xff", r"v\\xff"),
        (b"e\x1b[31m", r"e\x1b[31m"),
        ("a\u2003b".encode(), r"a\u2003b"),
        (b"a\x85", r"a\x85"),
        ("a\x85".encode(), r"a\u0085"),
    ],
)
def test_names_that_nobody_should_have_given(name: bytes, word: str) -> None:
    assert printable(name) == word


def test_a_list_that_changed_meanwhile_is_asked_for_again() -> None:
    torn = [message(16, b"first", flags=netlink.NLM_F_DUMP_INTR) + end()]
    asked, replies = answered(torn, [message(16, b"second", sequence=2), end(sequence=2)])
    listed = asked.dump(RTM_GETLINK, b"")
    assert [each.body for each in listed.messages] == [b"second"]
    assert listed.failure is None
    assert replies.asked == 2


def test_a_list_that_changes_each_time_is_told_with_the_last() -> None:
    answers = [[message(16, b"%d" % nth, sequence=nth), end(sequence=nth, flags=0x10)] for nth in range(1, 9)]
    asked, replies = answered(*answers)
    listed = asked.dump(RTM_GETLINK, b"")
    assert [each.body for each in listed.messages] == [b"4"]
    assert replies.asked == 4
    with pytest.raises(InterruptedError, match="it changed while the kernel listed it"):
        listed.check()


@pytest.mark.parametrize("kind", [netlink.NLMSG_DONE, netlink.NLMSG_ERROR])
def test_an_error_in_the_middle_keeps_what_came_before(kind: int) -> None:
    asked, _ = answered([message(16, b"one"), message(kind, struct.pack("=i", -errno.EIO) + bytes(16))])
    listed = asked.dump(RTM_GETLINK, b"")
    assert [each.body for each in listed.messages] == [b"one"]
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        listed.check()


def test_what_answers_another_question_is_passed_over() -> None:
    asked, _ = answered([message(16, b"late", sequence=7), message(16, b"mine"), end()])
    assert [each.body for each in asked.dump(RTM_GETLINK, b"").messages] == [b"mine"]


def test_what_another_process_sends_is_passed_over() -> None:
    asked, replies = answered([message(16, b"forged") + end(), message(16, b"mine") + end()])
    senders = iter([4711, 0])
    receive = replies.recvfrom_into
    replies.recvfrom_into = lambda *all_: (receive(*all_)[0], (next(senders), 0))  # type: ignore[method-assign]
    assert [each.body for each in asked.dump(RTM_GETLINK, b"").messages] == [b"mine"]


@pytest.mark.parametrize(
    ("buffer", "sentence"),
    [
        (end()[:-2], "a netlink message of 20 bytes in 18 bytes"),
        (message(netlink.NLMSG_DONE, b""), "ends without saying"),
        (bytes(netlink._BUFFER_BYTES + 1), "longer than any"),
    ],
)
def test_an_answer_that_is_cut_off_is_refused(buffer: bytes, sentence: str) -> None:
    asked, _ = answered([buffer])
    with pytest.raises(FormatError, match=sentence):
        asked.dump(RTM_GETLINK, b"")


def test_an_acknowledgement_alone_is_no_answer() -> None:
    asked, _ = answered([message(netlink.NLMSG_ERROR, bytes(20))])
    assert asked.ask(RTM_GETLINK, b"") is None


def test_a_family_that_the_kernel_lacks_is_named() -> None:
    with pytest.raises(FileNotFoundError) as raised:
        Generic("hopscope-none")
    assert raised.value.filename == "netlink family hopscope-none"


@pytest.mark.root
def test_lists_are_of_the_namespace_of_the_thread() -> None:
    def names() -> list[bytes]:
        with Netlink(netlink.NETLINK_ROUTE) as asked:
            listed = asked.dump(RTM_GETLINK, IFINFOMSG)
        listed.check()
        return [attributes(each.body[len(IFINFOMSG) :])[IFLA_IFNAME] for each in listed.messages]

    with Namespace() as namespace:
        namespace.run(["ip", "link", "add", "mine", "type", "veth", "peer", "name", "other"], check=True)
        assert sorted(namespace.call(names)) == [b"lo\0", b"mine\0", b"other\0"]


def test_a_question_that_the_kernel_refuses_raises() -> None:
    with Netlink(netlink.NETLINK_ROUTE) as asked, pytest.raises(OSError, match="No such device"):
        asked.ask(RTM_GETLINK, struct.pack("=BxHiII", 0, 0, 0x7FFFFFFE, 0, 0))
