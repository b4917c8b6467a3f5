# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import threading

import pytest

from hopscope.live.stop import Stop, stop_on_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_on_signal():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_set_again_is_allowed_more_often_than_a_pipe_holds() -> None:
    stop = Stop()
    for _ in range(70_000):
        stop.set()
    assert stop.wait(0)
    assert stop.signal is None
    stop.close()
