"""Driver: who runs the loop, and who waits. One per cluster in this process.

The machines (nodes, controller, clients) do nothing by themselves. The first caller that has to wait takes the
drive and polls whichever machine has news, until its own answer is there; every other waiter is released the moment
its answer comes; then the drive goes to the next one that still waits. When nobody waits, one parked background
thread drives for timers, heartbeats and whatever was sent without waiting; it stands back for some milliseconds
where callers wait, and so drive, again and again. So a replicated append in one process costs no thread switch, and
nothing depends on somebody calling ``poll``.

What is locked: the drive itself (polling), and each client machine (its face queues records while somebody else
drives). A machine never waits, so neither lock is held long, except by a driver that sleeps because there is
nothing to do: it holds no machine's lock then.

A signal handler, a ``__del__`` or a weak reference's callback may run in the middle of all this, and use the same
cluster: what its own thread would have to leave first it can not wait for, and hears so
(:meth:`Driver.check_free`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from pyreplog.client import Completion
from pyreplog.config import INT64_MAX
from pyreplog.errors import ClosedError, ForkedError, PyreplogError, copy_for_raise
from pyreplog.ports import Clock
from pyreplog.runtime.background import Background, release
from pyreplog.runtime.loop_future import loop_future
from pyreplog.system import LocalNetwork, LocalTransport, OwnedLock, SyncBatcher, is_interruption

__all__ = ["Driver", "Pollable", "DrivenMachine"]

TIMER_CHECK: Final = 64
"""Polls between two looks at the clock while there is always something to do."""
HELD_CHECK: Final = 8
"""After this many polls, held syncs start although there is other work."""
CONDITION_CHECK_S: Final = 0.0005
IDLE_S: Final = 1.0
"""The background thread looks after this long although somebody else drives."""
PATIENCE_S: Final = 0.003
"""For so long, and up to as long again, the background thread leaves the drive to callers after one of them waited:
who fills many batches between two waits is back by then. Each of its looks takes the interpreter from who drives,
just when that one comes back from the disk."""
WAIT_MAX_S: Final = 3e9
"""As good as for ever, and still a number of nanoseconds that fits 64 bits."""

_log = logging.getLogger("pyreplog")

T = TypeVar("T")


class Pollable(Protocol):
    """What can be driven."""

    @property
    def next_wake_ns(self) -> int | None:
        """When to poll although nothing arrived."""
        ...

    def poll(self, timeout_ns: int = 0) -> bool:
        """Do what there is to do, without waiting."""
        ...


class DrivenMachine:
    """One machine with its endpoint. ``failed`` is told of an exception that should not be, and of a poll that a
    signal handler cut short (error None): the machine's state is then worth nothing. ``busy``: it is being polled,
    or was when that happened."""

    __slots__ = ("busy", "failed", "is_shared", "lock", "machine", "transport", "wake_ns")

    def __init__(
        self,
        machine: Pollable,
        transport: LocalTransport,
        failed: Callable[[Exception | None], None],
        name: str,
        *,
        shared: bool,
    ) -> None:
        self.machine = machine
        self.transport = transport
        self.failed = failed
        self.lock = OwnedLock(name)
        self.is_shared = shared
        self.wake_ns = INT64_MAX
        self.busy = False


class Driver:
    """Drives the machines of one process.

    Any thread may call ``wait_for``, ``wait``, ``future_of``, ``mark_ready`` and ``notify``.
    """

    def __init__(self, clock: Clock, name: str, network_class: type[LocalNetwork] = LocalNetwork) -> None:
        self.network = network_class(self.notify)
        self._now_ns = clock.monotonic_ns
        self._seats: dict[LocalTransport, DrivenMachine] = {}
        self._name = f"the cluster {name!r}"
        self._drive = OwnedLock(self._name)
        self._is_driven = False
        """Whether somebody has the drive: set just after it is taken, and undone just before it is given back."""
        self._wake = threading.Lock()  # a semaphore: free while there is something to wake up for
        self._wake.acquire()
        self._parked = False
        self._waiting: deque[threading.Lock] = deque()
        self._exclusive_wanted = False
        self._exclusive = OwnedLock(self._name)
        self._due_ns = INT64_MAX
        self._background = Background(f"pyreplog {name}", self._work)
        self._background_until_ns = INT64_MAX
        self._waited_count = 0
        self._waited_before = 0
        self.syncs = SyncBatcher()
        """The syncs of the machines' disks. They start when there is no other work: by that time the followers have
        the leader's new records, and need their syncs too."""
        self._refusal: PyreplogError | None = None
        self._broken: deque[tuple[DrivenMachine, Exception | None]] = deque()
        self._is_cut_short = False
        """The loop was left half-way, and nobody has looked at everything since."""

    # ------------------------------------------------------------------------------------- machines

    def add(
        self,
        machine: Pollable,
        transport: LocalTransport,
        failed: Callable[[Exception | None], None],
        *,
        shared: bool = True,
    ) -> DrivenMachine:
        """Drive ``machine`` from now on.

        ``shared``: other threads may use it under its lock. REQUIRES :meth:`run_exclusively`, or
        that no thread drives yet.
        """
        seat = self._seats[transport] = DrivenMachine(machine, transport, failed, self._name, shared=shared)
        self.network.enter(transport)
        return seat

    def remove(self, seat: DrivenMachine) -> None:
        """Drive it no more, and forget what befell it. REQUIRES :meth:`run_exclusively`."""
        self._seats.pop(seat.transport, None)
        self._broken = deque([entry for entry in self._broken if entry[0] is not seat])

    def pause(self, seat: DrivenMachine) -> None:
        """Give it no turn until :meth:`resume`; what is sent to it waits. REQUIRES :meth:`run_exclusively`."""
        self._seats.pop(seat.transport, None)

    def resume(self, seat: DrivenMachine) -> None:
        """Undo :meth:`pause`: it is due at once. REQUIRES :meth:`run_exclusively`."""
        self._seats[seat.transport] = seat
        self.network.enter(seat.transport)

    @property
    def is_parents(self) -> bool:
        """Whether this is the child of a fork, and this with all that it drives its parent's."""
        return isinstance(self._refusal, ForkedError)

    def run_exclusively(self, act: Callable[[], T]) -> T:
        """Return the result of ``act``, called while no machine runs: to add or remove a machine, or
        to look at several.

        Raises ForkedError in the child of a fork, and ReentrantCallError like :meth:`check_free`.
        It is a call and not a context manager of our own, because then both locks are released
        wherever a signal handler raises.
        """
        refusal = self._refusal
        if isinstance(refusal, ForkedError):
            raise copy_for_raise(refusal)
        self.check_free()
        with self._exclusive:
            self._exclusive_wanted = True
            try:
                if self._parked:
                    self._wake_driver()
                with self._drive:
                    self._is_driven = True
                    try:
                        self._exclusive_wanted = False
                        said = act()
                        if self.syncs.pools:
                            self.syncs.flush_and_wait(0)
                        return said
                    finally:
                        self._is_driven = False
            finally:
                self._exclusive_wanted = False
                self._hand_over()

    def check_free(self, advice: str = "") -> None:
        """Raise ReentrantCallError, with ``advice``, where this thread is in the middle of something for which who
        waits may have to wait: it would wait for itself. Asked before anything is begun that ends with waiting."""
        seats = [*self._seats.copy().values(), *[seat for seat, _ in self._broken.copy()]]
        if self._is_within() or any(seat.lock.is_mine() for seat in seats):
            raise self._drive.refuse(advice)

    def _is_within(self) -> bool:
        """Return whether this thread drives, or is in :meth:`run_exclusively`."""
        return self._drive.is_mine() or self._exclusive.is_mine()

    # -------------------------------------------------------------------------------------- waiting

    def monotonic_ns(self) -> int:
        """The clock of everything it drives."""
        return self._now_ns()

    def countdown(self, seconds: float) -> Callable[[], float]:
        """Return a function that returns how many of ``seconds`` from now are left."""
        began_ns = self.monotonic_ns()
        return lambda: max(seconds - (self.monotonic_ns() - began_ns) / 1e9, 0.0)

    def wait_for(self, pending: Completion, timeout: Any) -> None:  # whatever can be seconds, as numpy has them too
        """Return when ``pending`` is settled, driving if nobody else does; TimeoutError after ``timeout``
        seconds."""
        if not self.wait(pending, timeout):
            raise TimeoutError(
                f"no answer after {timeout:g} s; what was asked or sent goes on in the background{pending.so_far()}"
            )

    def wait(self, pending: Completion, timeout: Any) -> bool:
        """Return whether ``pending`` is settled within ``timeout`` seconds; drive if no thread does.

        It returns False instead of raising TimeoutError, because a signal handler may raise that,
        too. Raises ReentrantCallError if this thread drives already.
        """
        deadline_ns = self._deadline_ns(timeout)
        if not pending.settled and self._is_within():
            raise self._drive.refuse()
        while not pending.settled:
            if self._refusal is not None:
                raise copy_for_raise(self._refusal)
            if self._exclusive_wanted or not self._drive_until(pending, deadline_ns):
                self._wait_turn(pending, deadline_ns)
            if self._now_ns() >= deadline_ns:
                break
        return pending.settled

    def _deadline_ns(self, timeout: Any) -> int:
        """``timeout`` seconds from now; INT64_MAX where that is never."""
        if timeout is None or timeout >= WAIT_MAX_S:
            return INT64_MAX
        return self._now_ns() + int(timeout * 1e9)

    def _drive_until(self, pending: Completion, deadline_ns: int) -> bool:
        """Drive, unless somebody does: then False at once."""
        self._waited_count += 1  # lost by a race of two threads: no harm
        held: list[bool] = []
        try:
            if self._drive.try_enter(held):
                self._is_driven = True
                if self._refusal is None:  # else since the caller looked: nobody would end this drive
                    self._run(pending, deadline_ns)
                if self.syncs.pools:
                    self.syncs.flush_and_wait(0)
                return True
            return False
        except BaseException:
            if held:
                self._is_cut_short = True  # until all of it is done: a second signal may come in between
                self._look_at_all()
            raise
        finally:
            if held:
                self._is_driven = False
                self._drive.release()
                self._hand_over()

    def wait_until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Whether ``condition()``, asked while no machine moves, holds within ``timeout`` seconds; for what happens
        rarely."""
        deadline_ns = self._deadline_ns(timeout)
        while True:
            if self.run_exclusively(condition):
                return True
            if self._now_ns() >= deadline_ns:
                return False
            self.wait(Completion(self), CONDITION_CHECK_S)

    def _wait_turn(self, pending: Completion, deadline_ns: int) -> None:
        """Sleep until ``pending`` is settled, the drive is handed over, or the time is up."""
        self.check_free()  # who drives may wait for a machine that this thread is using
        turn = threading.Lock()
        turn.acquire()
        wake = partial(release, turn)
        if not pending.add_waiter(wake):
            return
        self._waiting.append(turn)
        try:
            # Who refuses everybody frees those it finds here: one that comes later sees the
            # refusal.
            if (self._is_driven or self._exclusive_wanted) and self._refusal is None:
                turn.acquire(timeout=-1 if deadline_ns == INT64_MAX else max(deadline_ns - self._now_ns(), 0) / 1e9)
        finally:
            pending.remove_waiter(wake)
            try:
                self._waiting.remove(turn)
            except ValueError:  # handed the drive
                pass
            if pending.settled:
                self._hand_over()  # the drive may have been handed to one that needs it no more

    def _hand_over(self) -> None:
        """Whoever is done with the drive sees to it that somebody takes it who needs it."""
        if self._is_driven or self._exclusive_wanted:
            return
        if self._waiting:
            self._free_one()
        elif self.network.ready or self._due_ns < self._background_until_ns or self._is_cut_short or self.syncs.pools:
            self._background.arm()

    def _free_one(self) -> None:
        """Who waits longest for the drive goes on."""
        try:
            turn = self._waiting.popleft()
        except IndexError:  # it gave up just now
            return
        release(turn)

    def future_of(self, pending: Completion) -> Any:
        """A future of the running event loop that ends when ``pending`` is settled; the background thread
        drives."""
        if self._refusal is not None:
            raise copy_for_raise(self._refusal)
        future, end = loop_future()
        if not pending.add_waiter(end):
            future.set_result(None)
        elif not self._is_driven:
            self._waited_before = (
                self._waited_count
            )  # who waited before does not drive now, so there is nobody to leave that to
            self._background.wake()
        return future

    # --------------------------------------------------------------------------------------- waking

    def mark_ready(self, seat: DrivenMachine) -> None:
        """Have the machine polled soon, because the caller gave it something to do. Any thread.

        Some thread drives after about a millisecond, or after a few if callers waited just now.
        """
        transport = seat.transport
        if not transport.is_ready:
            if self._refusal is not None:
                raise copy_for_raise(self._refusal)
            ready = self.network.ready
            # Where nobody drives, before those it will send to: who led to something already then
            # takes the new requests with the waiting ones. Asked before it is noted: a signal
            # handler that comes in between would leave it out for ever.
            add = ready.append if self._is_driven else ready.appendleft
            transport.is_ready = True
            add(transport)
        if self._parked:
            self._wake_driver()
        elif not self._background.is_armed and not self._is_driven:
            self._background.arm()

    def notify(self) -> None:
        """Any thread: something that was waited for is there (a sync ended)."""
        if self._parked:
            self._wake_driver()
        elif not self._is_driven:
            self._background.wake()

    # ------------------------------------------------------------------------------------- the loop

    def _run(self, pending: Completion | None, deadline_ns: int) -> None:
        """Drive until ``pending`` is settled (None: until there is nothing to do now, or somebody waits for the
        drive)."""
        ready = self.network.ready
        seats = self._seats
        syncing_pools = self.syncs.pools
        count = 0
        if self._is_cut_short:
            self._look_at_all()
        while pending is None or not pending.settled:
            if self._exclusive_wanted or (pending is None and self._waiting):
                return
            count += 1
            if syncing_pools and (not ready or count % HELD_CHECK == 0):
                self.syncs.flush_and_wait(0 if ready else deadline_ns - self._now_ns(), self._sleep)
            if ready and count % TIMER_CHECK:
                transport = ready.popleft()
                transport.is_ready = False
                seat = seats.get(transport)
                if seat is not None:
                    self._poll(seat)
                continue
            now = self._now_ns()
            is_due = now >= self._due_ns
            if now >= deadline_ns and (count >= TIMER_CHECK or not (ready or is_due)):
                return  # also where there is always something to do: the background thread sees to it
            if is_due:
                self._poll_due(now)
            elif ready:
                continue
            elif pending is None:
                return
            else:
                pause_s = min((min(self._due_ns, deadline_ns) - now) / 1e9, threading.TIMEOUT_MAX)
                self._sleep(partial(self._wake.acquire, timeout=pause_s))

    def _wake_driver(self) -> None:
        """There is work: wake the thread that drives, which sleeps or did just now."""
        release(self._wake)
        self.syncs.wake()

    def _sleep(self, wait: Callable[[], object]) -> None:
        """Call ``wait``, which :meth:`_wake_driver` ends, unless there is work."""
        self._parked = True
        try:
            # Look again after the note: other threads wake only a driver that they see asleep.
            if not self.network.ready and not self._exclusive_wanted:
                wait()
        finally:
            self._parked = False

    def _poll(self, seat: DrivenMachine) -> None:
        if seat.busy:
            self._fail(seat, None)
            return
        if seat.is_shared and seat.lock.is_mine():
            raise self._drive.refuse()
        seat.busy = True
        machine = seat.machine
        try:
            if seat.is_shared:
                with seat.lock:
                    machine.poll()
                    wake_ns = machine.next_wake_ns
            else:
                machine.poll()
                wake_ns = machine.next_wake_ns
        except Exception as error:  # a bug, or a disk: one machine ends, the others go on
            if is_interruption(error):
                raise  # the caller's, as Ctrl-C is: the machine is still busy, and starts again
            self._fail(seat, error)
            return
        seat.busy = False
        seat.wake_ns = INT64_MAX if wake_ns is None else wake_ns
        if seat.wake_ns < self._due_ns:
            self._due_ns = seat.wake_ns

    def _poll_due(self, now: int) -> None:
        for seat in list(self._seats.values()):
            if seat.wake_ns <= now:
                self._poll(seat)
        self._due_ns = min((seat.wake_ns for seat in self._seats.values()), default=INT64_MAX)

    def _fail(self, seat: DrivenMachine, error: Exception | None) -> None:
        """Take it out. What becomes of it is seen to by the background thread, which no signal handler
        interrupts."""
        transport = seat.transport
        if transport not in self._seats:
            return
        address = transport.address
        # Noted before it is taken out, and told last: a logger's handlers may be interrupted
        # themselves.
        self._broken.append((seat, error))
        self._seats.pop(transport, None)
        if self._background.is_running:
            self._background.wake()
        else:
            self._mend()
        if error is None:
            _log.warning("%s was interrupted half-way; it starts again", address)
        else:
            _log.error("%s failed", address, exc_info=error)

    def _mend(self) -> None:
        while self._broken:
            seat, error = self._broken[0]
            try:
                seat.failed(error)
            except Exception:
                self.remove(seat)
                raise
            self.remove(seat)  # noted until then, and gone whatever was noted twice

    def _look_at_all(self) -> None:
        """The loop was cut short somewhere: what it was about to do is not known, so everything is looked at."""
        self.syncs.flush_and_wait(0)
        for transport, seat in list(self._seats.items()):
            if seat.busy:
                self._fail(seat, None)
            else:
                transport.is_ready = True
                self.network.ready.append(transport)
        self._is_cut_short = False

    def _work(self) -> float | None:
        """The background thread's turn: the seconds until its next one."""
        if self._broken:
            self.run_exclusively(self._mend)
        self._background_until_ns = INT64_MAX  # whoever drives now tells when it leaves
        if self._waited_count != self._waited_before:
            self._waited_before = self._waited_count
            # Somebody waits again and again, and drives meanwhile. Taking the drive in between
            # would cost a thread switch for each wait.
            self._background.linger(PATIENCE_S)
            return None
        if self._exclusive_wanted or not self._drive.acquire(blocking=False):
            return IDLE_S
        try:
            self._is_driven = True
            self._run(None, INT64_MAX)
            if self.syncs.pools:
                self.syncs.flush_and_wait(0)
            due_ns = self._background_until_ns = self._due_ns
        finally:
            self._is_driven = False
            self._drive.release()
            self._hand_over()
        return IDLE_S if due_ns == INT64_MAX else max(due_ns - self._now_ns(), 0) / 1e9

    # -------------------------------------------------------------------------------------- the end

    def check(self) -> None:
        """Raise ClosedError or ForkedError where nothing is driven any more."""
        if self._refusal is not None:
            raise copy_for_raise(self._refusal)

    def start(self) -> None:
        """Let the background thread take part."""
        self._background.start()

    def stop(self) -> None:
        """Nobody drives any more; whoever waits gets ClosedError. Afterwards the caller owns the machines."""
        self._refusal = ClosedError("the cluster is closed")
        self._background.stop()
        self.run_exclusively(self._seats.clear)
        while self._waiting:
            self._free_one()

    def forked(self, error: PyreplogError) -> None:
        """In the child of a fork: nothing may be waited for here."""
        self._refusal = error
        for seat in self._seats.values():
            seat.lock = OwnedLock(self._name)
            seat.transport.is_ready = False  # so that whoever gives it something to do hears of it
        self._seats.clear()
        self._drive = OwnedLock(self._name)
        self._is_driven = False
        self._exclusive = OwnedLock(self._name)
