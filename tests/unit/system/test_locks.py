"""A lock that is entered by ``with`` is given back wherever a signal handler raises."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from pyreplog.errors import ReentrantCallError
from pyreplog.system.locks import OwnedLock, enter_safely
from tests.unit.runtime.interrupt_injection import Strike, Struck

MOMENTS = range(1, 9)


class SafelyEntered(OwnedLock):
    """The lock as it is on Python 3.14."""

    __slots__ = ()

    __enter__ = enter_safely


@pytest.mark.parametrize("make", [OwnedLock, SafelyEntered])
@pytest.mark.parametrize("depth", [0, 1])
def test_nothing_stays_taken(make: Callable[[], OwnedLock], depth: int) -> None:
    """Struck at each point in turn, before, within and behind taking it: it is as it was, free or taken once; at
    last nothing strikes."""
    strikes = []
    for moment in MOMENTS:
        lock = make()
        for _ in range(depth):
            lock.acquire()
        strike = Strike(moment, spared=())
        sys.setprofile(strike)
        try:
            with lock:
                pass
        except Struck:
            pass
        finally:
            sys.setprofile(None)
        assert lock._recursion_count() == depth
        strikes.append(strike.count)
    assert strikes[0] == 1
    assert strikes[-1] == 0


def test_it_keeps_others_out() -> None:
    """As any lock; its owner may enter again."""
    lock = SafelyEntered()
    seen = []
    with lock, lock:
        other = threading.Thread(target=lambda: seen.append(lock.acquire(blocking=False)))
        other.start()
        other.join()
    assert seen == [False]
    assert not lock._is_owned()


def test_an_attempt_leaves_nothing_taken() -> None:
    """``try_enter`` at each point at which a handler may raise: the lock is free again, and at last it succeeds."""
    outcomes = []
    for moment in range(1, 16):
        lock = OwnedLock()
        held: list[bool] = []
        strike = Strike(moment, spared=())
        sys.setprofile(strike)
        try:
            try:
                outcomes.append(lock.try_enter(held))
            finally:
                if held:
                    lock.release()
        except Struck:
            pass
        finally:
            sys.setprofile(None)
        assert not lock.is_mine()
        assert lock._recursion_count() == 0
    assert outcomes
    assert all(outcomes)


def test_an_attempt_takes_no_lock_that_is_held() -> None:
    """Neither that of another thread, nor the thread's own for a second time."""
    lock = OwnedLock()
    seen: list[bool] = []
    with lock:
        held: list[bool] = []
        other = threading.Thread(target=lambda: seen.append(lock.try_enter(held)))
        other.start()
        other.join()
        seen.append(lock.try_enter(held))
        assert held == []
    assert seen == [False, False]


def test_a_call_within_a_call_is_refused() -> None:
    """``enter`` names the guarded object and gives advice; another thread's use does not count."""
    lock = OwnedLock("the log 'x'")
    with lock.enter():
        assert lock.is_mine()
        with pytest.raises(ReentrantCallError, match="the log 'x' is used within another use"):
            lock.enter()
    assert not lock.is_mine()
    assert str(lock.refuse("; or wait")).endswith("; or wait")
