# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

from hopscope.libbpf import _log
from hopscope.libbpf._library import lib

if TYPE_CHECKING:
    import pytest

INFO, DEBUG = 1, 2


def say(text: bytes) -> None:
    """Make libbpf complain about a file of that name."""
    assert not lib().bpf_object__open_file(text, None)


def print_directly(level: int, text: bytes) -> None:
    """Call as libbpf does, with a va_list that has no arguments."""
    arguments = ctypes.create_string_buffer(64)
    _log._print(level, ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value, ctypes.addressof(arguments))


def test_what_libbpf_says_is_kept_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with _log.captured() as log:
        say(b"/no/such/hop")
    say(b"/nor/such/hop")
    assert "libbpf: elf: failed to open /no/such/hop: No such file or directory" in log.text
    assert "/nor" not in log.text
    assert capfd.readouterr() == ("", "")


def test_errno_survives_the_message() -> None:
    with _log.captured():
        say(b"/no/such/hop")
        assert ctypes.get_errno() == 2


def test_each_call_has_its_own_log() -> None:
    with _log.captured() as outer:
        say(b"/no/first")
        with _log.captured() as inner:
            say(b"/no/second")
        say(b"/no/third")
    assert "/no/second" in inner.text
    assert "/no/second" not in outer.text
    assert outer.text.index("/no/first") < outer.text.index("/no/third")


def test_threads_do_not_mix() -> None:
    texts: dict[int, str] = {}
    barrier = threading.Barrier(4)

    def run(number: int) -> None:
        with _log.captured() as log:
            barrier.wait()
            for _ in range(50):
                say(f"/no/thread{number}".encode())
        texts[number] = log.text

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, text in texts.items():
        assert text.count(f"/no/thread{number}:") == 50
        assert text.count("/no/thread") == 50


def test_only_the_end_of_a_long_message_is_kept() -> None:
    limit = _log.LOG_LIMIT_BYTES
    with _log.captured() as log:
        print_directly(INFO, b"first" + b"x" * 2 * limit + b"last")
    assert len(log.text) == limit
    assert log.text.endswith("xlast")
    log.add(b"y" * 10)
    assert len(log.text) == limit
    assert log.text.endswith("xlast" + "y" * 10)


def test_debug_messages_are_left_out() -> None:
    with _log.captured() as log:
        print_directly(DEBUG, b"detail")
    assert log.text == ""
