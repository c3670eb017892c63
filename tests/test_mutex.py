"""A lock that is entered by ``with`` is given back wherever a signal handler raises."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from pyreplog.mutex import Mutex, new_mutex
from tests.runtime.interrupt_injection import Strike, Struck

MOMENTS = range(1, 9)


@pytest.mark.parametrize("make", [new_mutex, Mutex])
@pytest.mark.parametrize("depth", [0, 1])
def test_nothing_stays_taken(make: Callable[[], threading.RLock], depth: int) -> None:
    """Struck at each point in turn, before, within and behind taking it: it is as it was, free or taken once; at
    last nothing strikes."""
    strikes = []
    for moment in MOMENTS:
        mutex = make()
        for _ in range(depth):
            mutex.acquire()
        strike = Strike(moment, spared=())
        sys.setprofile(strike)
        try:
            with mutex:
                pass
        except Struck:
            pass
        finally:
            sys.setprofile(None)
        assert mutex._recursion_count() == depth  # type: ignore[attr-defined]
        strikes.append(strike.count)
    assert strikes[0] == 1
    assert strikes[-1] == 0


def test_it_keeps_others_out() -> None:
    """As any lock; its owner may enter again."""
    mutex = Mutex()
    seen = []
    with mutex, mutex:
        other = threading.Thread(target=lambda: seen.append(mutex.acquire(blocking=False)))
        other.start()
        other.join()
    assert seen == [False]
    assert not mutex._is_owned()
