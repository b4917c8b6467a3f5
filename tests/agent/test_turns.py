# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from hopscope.agent.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for(turns: Turns, count: int) -> None:
    while len(turns._waiting) < count:
        threading.Event().wait(0.001)


def test_turns_come_in_the_order_of_asking() -> None:
    turns, order, threads = Turns(), list[int](), list[threading.Thread]()

    def take(number: int) -> None:
        with turns:
            order.append(number)

    with turns:
        for number in range(5):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            wait_for(turns, number + 1)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_one_at_a_time() -> None:
    turns, inside, most = Turns(), 0, 0

    def take() -> None:
        nonlocal inside, most
        for _ in range(200):
            with turns:
                inside += 1
                most = max(most, inside)
                threading.Event().wait(0)
                inside -= 1

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_an_error_inside_passes_the_turn_on() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns:
        raise ZeroDivisionError
    with turns:
        pass


def test_who_gives_up_waiting_is_passed_over(interrupt: Callable[[type[BaseException]], None]) -> None:
    turns, inside, leave, after = Turns(), threading.Event(), threading.Event(), threading.Event()

    def stay() -> None:
        with turns:
            inside.set()
            leave.wait()

    def follow() -> None:
        with turns:
            after.set()

    first, last = threading.Thread(target=stay), threading.Thread(target=follow)
    first.start()
    inside.wait()
    interrupt(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), turns:
        pass
    last.start()
    wait_for(turns, 1)
    leave.set()
    assert after.wait(30)
    first.join()
    last.join()
