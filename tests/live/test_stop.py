# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import threading

import pytest

from hopscope.live import stop as module
from hopscope.live.stop import Stop, stop_on_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_signal_is_remembered_and_wakes_the_waiter(number: signal.Signals) -> None:
    with stop_on_signal() as stop:
        assert not stop.wait(0)
        assert not stop.wait(0.001)
        timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
        timer.start()
        assert stop.wait(60)
        timer.join()
        assert stop.wait(0)
        assert stop.signal == number


def test_echo_of_a_signal_is_ignored() -> None:
    with stop_on_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal == signal.SIGINT


def test_who_is_to_begin_anew_and_to_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ECHO_S", -1.0)
    with stop_on_signal() as stop:
        for number in (signal.SIGHUP, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert stop.signal == signal.SIGTERM


def test_the_end_of_a_terminal_may_be_said_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ECHO_S", -1.0)
    with stop_on_signal() as stop:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert stop.signal == signal.SIGINT


def test_an_ignored_end_of_the_terminal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.wait(0)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with stop_on_signal():
        assert all(signal.getsignal(number) != each for number, each in zip(numbers, before, strict=True))
    assert [signal.getsignal(number) for number in numbers] == before


def test_set_again_is_allowed_more_often_than_a_pipe_holds() -> None:
    stop = Stop()
    for _ in range(70_000):
        stop.set()
    assert stop.wait(0)
    assert stop.signal is None
    stop.close()
