"""Who is polled first, and when the thread in the background takes part."""

from __future__ import annotations

import asyncio
import queue
import threading

import pytest

from pyreplog.client import Completion
from pyreplog.errors import ClosedError, NoThreadError
from pyreplog.runtime.background import Background
from pyreplog.runtime.driver import TIMER_CHECK, DrivenMachine, Driver
from pyreplog.runtime.periodic_retry import RETRY_NS, PeriodicRetry
from pyreplog.system import OwnedLock, SystemClock
from pyreplog.system.sync_batcher import SyncBatcher
from pyreplog.testing import SimClock
from tests.unit.runtime.frozen_driver import still
from tests.unit.runtime.polling import Polled

PATIENT_S = 60.0


def seat_of(driver: Driver, machine: Polled) -> DrivenMachine:
    """``machine`` in ``driver``, with nothing to do yet."""
    driven = driver.add(machine, driver.network.endpoint(), lambda error: None)
    driver.network.ready.clear()
    driven.transport.is_ready = False
    return driven


def test_who_sends_is_polled_before_those_that_have_news_already() -> None:
    """So a leader finds the new requests with the waiting ones, and writes them together."""
    driver = Driver(SystemClock(), "test")
    leader, producer = seat_of(driver, Polled()), seat_of(driver, Polled())
    driver.network.enter(leader.transport)
    driver.mark_ready(producer)
    assert list(driver.network.ready) == [producer.transport, leader.transport]


def test_who_sends_while_somebody_drives_takes_its_turn() -> None:
    """Else one that sends without an end would be polled alone."""
    driver = Driver(SystemClock(), "test")
    leader, producer = seat_of(driver, Polled()), seat_of(driver, Polled())
    with still(driver):
        driver.network.enter(leader.transport)
        driver.mark_ready(producer)
        assert list(driver.network.ready) == [leader.transport, producer.transport]


def test_who_waits_leaves_in_time_where_there_is_always_something_to_do() -> None:
    """What others send without an end is not for one to see to who wanted to wait for a moment."""
    clock = SimClock()
    driver = Driver(clock, "test")

    class Busy(Polled):
        def poll(self, timeout_ns: int = 0) -> bool:
            super().poll()
            clock.advance(1_000_000)
            if self.count < 10_000:
                driver.network.enter(driven.transport)
            return True

    machine = Busy()
    driven = seat_of(driver, machine)
    driver.network.enter(driven.transport)
    assert not driver.wait(Completion(driver), 0.1)
    assert 100 <= machine.count <= 100 + TIMER_CHECK
    assert driver.network.ready  # for whoever drives next


def test_a_second_interrupt_while_the_first_is_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever drives next looks at everything in its place."""
    driver = Driver(SystemClock(), "test")
    failed: list[Exception | None] = []

    class Interrupted(Polled):
        def poll(self, timeout_ns: int = 0) -> bool:
            raise KeyboardInterrupt

    driven = driver.add(Interrupted(), driver.network.endpoint(), failed.append)
    flush = SyncBatcher.flush_and_wait

    def strike_again(syncs: SyncBatcher, timeout_ns: int) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(SyncBatcher, "flush_and_wait", strike_again)
    with pytest.raises(KeyboardInterrupt):
        driver.wait_for(Completion(driver), 1.0)
    assert SyncBatcher.flush_and_wait is flush
    assert driven.busy
    driver._work()
    driver._work()
    assert failed == [None]


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_stopped_between_the_steps_of_a_wait(timeout: float | None) -> None:
    """Who found the driver running, and drives or waits when it is stopped, hears of it: nobody would wake it."""
    told: list[BaseException] = []
    driver = Driver(SystemClock(), "test")
    settled = [False]

    def wait() -> None:
        try:
            driver.wait_for(Completion(driver), timeout)
        except ClosedError as error:
            told.append(error)

    class Late(OwnedLock):
        """The driver role, which is taken only after the driver was stopped."""

        def try_enter(self, held: list[bool]) -> bool:
            if not settled[0]:
                settled[0] = True
                driver.stop()
            return super().try_enter(held)

    driver._drive = Late()
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(5.0)
    assert len(told) == 1


def sent_after_a_wait() -> tuple[Driver, Polled]:
    """A driver that somebody waited at, and a machine that was given something to do since."""
    driver = Driver(SystemClock(), "test")
    machine = Polled()
    driven = seat_of(driver, machine)
    with pytest.raises(TimeoutError):
        driver.wait_for(Completion(driver), 0.0)
    driver.mark_ready(driven)
    return driver, machine


def test_the_background_leaves_the_drive_for_a_while_to_who_waited() -> None:
    """It takes part when nobody has waited since its last look; what was sent is not forgotten."""
    driver, machine = sent_after_a_wait()
    driver._work()
    assert machine.count == 0
    driver._work()
    assert machine.count == 1


def test_who_awaits_is_not_left_to_who_waited_before() -> None:
    """That one may not come back, and an event loop does not drive."""
    driver, machine = sent_after_a_wait()

    async def ask() -> None:
        driver.future_of(Completion(driver))

    asyncio.run(ask())
    driver._work()
    assert machine.count == 1


def test_lingering_ends_at_once_for_what_is_urgent() -> None:
    """It counts as armed meanwhile, so that arming wakes no thread."""
    calls: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def work() -> None:
        background.linger(24 * 3600.0)
        calls.put(background.is_armed)

    background = Background("test", work)
    background.start()
    try:
        assert calls.get(timeout=PATIENT_S)
        background.arm()
        background.wake()
        assert calls.get(timeout=PATIENT_S)
    finally:
        background.stop()
    assert not background.is_running


def test_stopped_while_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread than the one that starts it: neither fails, and nothing is called any more."""
    calls: list[None] = []
    background = Background("test", lambda: calls.append(None))
    start = threading.Thread.start

    def stop_first(thread: threading.Thread) -> None:
        monkeypatch.undo()
        background.stop()
        start(thread)
        thread.join()

    monkeypatch.setattr(threading.Thread, "start", stop_first)
    background.start()
    assert not background.is_running
    assert not calls


def test_who_was_paused_has_a_turn_at_once() -> None:
    """What was sent to it meanwhile waits for it."""
    driver = Driver(SystemClock(), "test")
    machine = Polled()
    driven = seat_of(driver, machine)
    with still(driver):
        driver.pause(driven)
        driver.resume(driven)
    driver._work()
    assert machine.count == 1


def test_what_is_due_is_somebodys() -> None:
    """Who leaves the drive sees to it that the thread in the background comes, for a timer that is due before it
    would, and for what was cut short."""
    driver = Driver(SystemClock(), "test")
    background = driver._background
    driver._hand_over()
    assert not background.is_armed
    driver._background_until_ns, driver._due_ns = 2000, 1000
    driver._hand_over()
    assert background.is_armed
    background.is_armed = False
    driver._due_ns = 2000
    driver._hand_over()
    assert not background.is_armed
    driver._is_cut_short = True
    driver._hand_over()
    assert background.is_armed


def test_a_machine_that_was_left_half_way_is_polled_no_more() -> None:
    """Its state is worth nothing: it fails, and the others go on."""
    driver = Driver(SystemClock(), "test")
    failed: list[Exception | None] = []
    machine = Polled()
    driven = driver.add(machine, driver.network.endpoint(), failed.append)
    driven.busy = True
    driver._work()
    assert (machine.count, failed) == (0, [None])


def test_a_turn_that_comes_too_late_is_passed_on() -> None:
    """The drive is handed to one whose answer came at the same time: it hands it to the next."""
    driver = Driver(SystemClock(), "test")
    next_one = threading.Lock()
    next_one.acquire()

    class Settled(Completion):
        def remove_waiter(self, release: object) -> None:
            driver._waiting.clear()  # handed the drive
            driver._waiting.append(next_one)
            self.settled = True

    driver._wait_turn(Settled(driver), 0)
    assert not next_one.locked()


def test_what_could_not_be_done_is_tried_again() -> None:
    """After a while, until it can be."""
    clock = SimClock()
    tried: list[int] = []

    def act() -> bool:
        tried.append(clock.monotonic_ns())
        return len(tried) == 2

    retry = PeriodicRetry(clock, act)
    for count in (0, 1):
        due = retry.next_wake_ns
        assert due == clock.monotonic_ns() + RETRY_NS
        clock.advance(RETRY_NS - 1)
        assert not retry.poll()
        assert len(tried) == count
        clock.advance(1)
        assert retry.poll()
    assert len(tried) == 2
    assert retry.next_wake_ns is None
    assert not retry.poll()


def test_stopping_wakes_everybody() -> None:
    """Each who waits for the drive hears that there is none any more."""
    driver = Driver(SystemClock(), "test")
    turns = [threading.Lock() for _ in range(3)]
    for turn in turns:
        turn.acquire()
        driver._waiting.append(turn)
    driver.stop()
    assert not any(turn.locked() for turn in turns)


def test_work_that_arms_before_it_fails_is_not_called_again_at_once() -> None:
    """As who has no thread to sync with, and leaves that for the next turn: it would fail and be told of a thousand
    times a second."""
    seen: list[tuple[float | None, bool, bool]] = []

    class Watched(Background):
        def _turn(self, pause: float | None) -> float | None:
            seen.append((pause, self.is_armed, self._signal.locked()))
            if len(seen) == 2:
                self._stopping = True
                return None
            return super()._turn(pause)

    def work() -> float | None:
        background.arm()
        raise NoThreadError("to sync with")

    background = Watched("test", work)
    background.start()
    thread = background._thread
    assert thread is not None
    thread.join(PATIENT_S)
    assert seen == [(0.0, False, True), (1.0, False, True)]
