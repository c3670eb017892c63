"""Driver: the loop that polls the machines of a cluster, run by the threads that wait. One per cluster in this process.

The machines (nodes, controller, clients) do nothing by themselves. The first caller that has to wait takes the drive
lock and polls every machine that has new messages, until its own answer arrives. Every other waiter is released as soon
as its answer arrives. Then the drive lock goes to the next caller that still waits. If no caller waits, one parked
background thread drives: for timers, heartbeats and requests that were sent without waiting. It pauses for some
milliseconds while callers wait again and again, because those callers drive. So a replicated append in one process
costs no thread switch, and the application never has to call ``poll``.

There are two kinds of locks: the drive lock (for polling), and one lock per client machine (so that a thread can queue
records while another thread drives). A machine never waits, so no lock is held long. The exception is a driving thread
that sleeps because there is nothing to do: it keeps the drive lock, but holds no machine's lock.

A signal handler, a ``__del__`` or a weak reference's callback may run in the middle of all this and call into the same
cluster. If that call had to wait for its own thread it would deadlock, so it raises ReentrantCallError
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
"""The loop reads the clock after this many polls if there is always a machine to poll."""
HELD_CHECK: Final = 8
"""After this many polls, held syncs start although there is other work."""
CONDITION_CHECK_S: Final = 0.0005
IDLE_S: Final = 1.0
"""If another thread drives, the background thread checks again after this long."""
PATIENCE_S: Final = 0.003
"""After a caller waited, the background thread leaves the drive to callers for one to two times this long. A caller
that fills many batches between two waits is then back in time. Each check of the background thread would take the
interpreter from the driving thread just when that thread returns from the disk."""
WAIT_MAX_S: Final = 3e9
"""A timeout of this many seconds or more counts as none: its nanoseconds still fit 64 bits."""

_log = logging.getLogger("pyreplog")

T = TypeVar("T")


class Pollable(Protocol):
    """The interface of a machine that the driver can poll."""

    @property
    def next_wake_ns(self) -> int | None:
        """The time of the next poll if no message arrives before; None: no timer is set."""
        ...

    def poll(self, timeout_ns: int = 0) -> bool:
        """Handle all arrived messages and due timers, without waiting."""
        ...


class DrivenMachine:
    """One machine that the driver polls, with its endpoint.

    The driver calls ``failed(error)`` if a poll raises an unexpected exception, and ``failed(None)`` if a signal
    handler interrupted a poll. The machine's state is unusable then. ``busy``: the machine is being polled, or its last
    poll was interrupted.
    """

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
        self._machines: dict[LocalTransport, DrivenMachine] = {}
        self._name = f"the cluster {name!r}"
        self._drive = OwnedLock(self._name)
        self._is_driven = False
        """Whether a thread drives: set just after it takes the drive lock, cleared just before it releases it."""
        self._wake = threading.Lock()  # a semaphore: free while there is a reason to wake up
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
        #: Returns why nothing can be decided in the cluster, and what to do; None if it can.
        self.lack: Callable[[], str | None] = lambda: None
        self.syncs = SyncBatcher()
        """The syncs of the machines' disks. They start when there is no other work: the followers then have the
        leader's new records and need syncs too, so all of them run together."""
        self._refusal: PyreplogError | None = None
        self._broken: deque[tuple[DrivenMachine, Exception | None]] = deque()
        self._is_cut_short = False
        """An exception left the loop half-way, and :meth:`_look_at_all` has not run since."""

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
        driven = self._machines[transport] = DrivenMachine(machine, transport, failed, self._name, shared=shared)
        self.network.enter(transport)
        return driven

    def remove(self, driven: DrivenMachine) -> None:
        """Stop driving the machine, and drop its failures that are not yet handled. REQUIRES
        :meth:`run_exclusively`."""
        self._machines.pop(driven.transport, None)
        self._broken = deque([entry for entry in self._broken if entry[0] is not driven])

    def pause(self, driven: DrivenMachine) -> None:
        """Do not poll the machine until :meth:`resume`; messages sent to it wait. REQUIRES
        :meth:`run_exclusively`."""
        self._machines.pop(driven.transport, None)

    def resume(self, driven: DrivenMachine) -> None:
        """Undo :meth:`pause`: the machine is polled soon. REQUIRES :meth:`run_exclusively`."""
        self._machines[driven.transport] = driven
        self.network.enter(driven.transport)

    @property
    def is_parents(self) -> bool:
        """Whether this process is a forked child, so that the driver and its machines belong to the parent."""
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
        """Raise ReentrantCallError, with ``advice``, if this thread drives or holds a machine's lock.

        A wait inside such a call would wait for its own thread. Every operation that ends with a wait calls this before
        it changes anything.
        """
        machines = [*self._machines.copy().values(), *[driven for driven, _ in self._broken.copy()]]
        if self._is_within() or any(driven.lock.is_mine() for driven in machines):
            raise self._drive.refuse(advice)

    def _is_within(self) -> bool:
        """Return whether this thread drives, or is in :meth:`run_exclusively`."""
        return self._drive.is_mine() or self._exclusive.is_mine()

    # -------------------------------------------------------------------------------------- waiting

    def monotonic_ns(self) -> int:
        """Return the time of the clock that all machines of this driver use."""
        return self._now_ns()

    def obstacle(self) -> str:
        """Return why nothing can be decided in the cluster, to be appended to a text; empty if it can."""
        lack = self.lack()
        return "" if lack is None else f": {lack}"

    def wait_for(self, pending: Completion, timeout: Any) -> None:  # any number of seconds, numpy's types too
        """Return when ``pending`` is settled; drive if no other thread does. Raise TimeoutError after ``timeout``
        seconds."""
        if not self.wait(pending, timeout):
            raise TimeoutError(
                f"no answer after {timeout:g} s; the request goes on in the background{pending.so_far()}"
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
        """Return the time ``timeout`` seconds from now; INT64_MAX if there is no timeout."""
        if timeout is None or timeout >= WAIT_MAX_S:
            return INT64_MAX
        return self._now_ns() + int(timeout * 1e9)

    def _drive_until(self, pending: Completion, deadline_ns: int) -> bool:
        """Drive until ``pending`` is settled and return True; return False at once if another thread drives."""
        self._waited_count += 1  # two threads may race and lose one count: no harm
        held: list[bool] = []
        try:
            if self._drive.try_enter(held):
                self._is_driven = True
                # If the driver was stopped since the caller checked, no thread would end this loop.
                if self._refusal is None:
                    self._run(pending, deadline_ns)
                if self.syncs.pools:
                    self.syncs.flush_and_wait(0)
                return True
            return False
        except BaseException:
            if held:
                self._is_cut_short = True  # stays set if a second signal interrupts the next call
                self._look_at_all()
            raise
        finally:
            if held:
                self._is_driven = False
                self._drive.release()
                self._hand_over()

    def wait_until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Return whether ``condition()`` holds within ``timeout`` seconds; it is called while no machine runs.

        It asks again every half millisecond: use it only for conditions that are rarely waited for.
        """
        deadline_ns = self._deadline_ns(timeout)
        while True:
            if self.run_exclusively(condition):
                return True
            if self._now_ns() >= deadline_ns:
                return False
            self.wait(Completion(self), CONDITION_CHECK_S)

    def _wait_turn(self, pending: Completion, deadline_ns: int) -> None:
        """Sleep until ``pending`` is settled, the drive is handed over, or the time is up."""
        self.check_free()  # the driving thread may wait for a machine whose lock this thread holds
        turn = threading.Lock()
        turn.acquire()
        wake = partial(release, turn)
        if not pending.add_waiter(wake):
            return
        self._waiting.append(turn)
        try:
            # stop() frees all threads that are in the list; a later one sees the refusal.
            if (self._is_driven or self._exclusive_wanted) and self._refusal is None:
                turn.acquire(timeout=-1 if deadline_ns == INT64_MAX else max(deadline_ns - self._now_ns(), 0) / 1e9)
        finally:
            pending.remove_waiter(wake)
            try:
                self._waiting.remove(turn)
            except ValueError:  # another thread freed this one, to let it drive
                pass
            if pending.settled:
                self._hand_over()  # this thread may have been freed to drive, and no longer needs to

    def _hand_over(self) -> None:
        """Hand the drive to the thread that has waited longest, or to the background thread if work is left."""
        if self._is_driven or self._exclusive_wanted:
            return
        if self._waiting:
            self._free_one()
        elif self.network.ready or self._due_ns < self._background_until_ns or self._is_cut_short or self.syncs.pools:
            self._background.arm()

    def _free_one(self) -> None:
        """Free the thread that has waited longest for the drive."""
        try:
            turn = self._waiting.popleft()
        except IndexError:  # that thread gave up just now
            return
        release(turn)

    def future_of(self, pending: Completion) -> Any:
        """Return a future of the running event loop that ends when ``pending`` is settled. The background thread
        drives."""
        if self._refusal is not None:
            raise copy_for_raise(self._refusal)
        future, end = loop_future()
        if not pending.add_waiter(end):
            future.set_result(None)
        elif not self._is_driven:
            # The callers that waited before do not drive now, so the background thread must not
            # leave the drive to them.
            self._waited_before = self._waited_count
            self._background.wake()
        return future

    # --------------------------------------------------------------------------------------- waking

    def mark_ready(self, driven: DrivenMachine) -> None:
        """Have the machine polled soon, because the caller gave it something to do. Any thread.

        Some thread drives after about a millisecond, or after a few if callers waited just now.
        """
        transport = driven.transport
        if not transport.is_ready:
            if self._refusal is not None:
                raise copy_for_raise(self._refusal)
            ready = self.network.ready
            # If no thread drives, the machine goes in front of the machines that it will send to:
            # a leader that is ready already then takes the new requests with the waiting ones.
            # Choose before is_ready is set: a signal handler between the flag and the append would
            # leave the machine out of the queue for ever.
            add = ready.append if self._is_driven else ready.appendleft
            transport.is_ready = True
            add(transport)
        if self._parked:
            self._wake_driver()
        elif not self._background.is_armed and not self._is_driven:
            self._background.arm()

    def notify(self) -> None:
        """Wake the driving or the background thread, because a sync ended. Any thread."""
        if self._parked:
            self._wake_driver()
        elif not self._is_driven:
            self._background.wake()

    # ------------------------------------------------------------------------------------- the loop

    def _run(self, pending: Completion | None, deadline_ns: int) -> None:
        """Drive until ``pending`` is settled (None: until there is nothing to do now, or a thread waits for the
        drive)."""
        ready = self.network.ready
        machines = self._machines
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
                driven = machines.get(transport)
                if driven is not None:
                    self._poll(driven)
                continue
            now = self._now_ns()
            is_due = now >= self._due_ns
            if now >= deadline_ns and (count >= TIMER_CHECK or not (ready or is_due)):
                return  # even if there is always work left: the background thread does it
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
        """Wake the driving thread, because there is work. It sleeps, or did just now."""
        release(self._wake)
        self.syncs.wake()

    def _sleep(self, wait: Callable[[], object]) -> None:
        """Call ``wait`` unless there is work; :meth:`_wake_driver` ends the wait."""
        self._parked = True
        try:
            # Check again after _parked is set: other threads wake only a driver that they see
            # asleep.
            if not self.network.ready and not self._exclusive_wanted:
                wait()
        finally:
            self._parked = False

    def _poll(self, driven: DrivenMachine) -> None:
        if driven.busy:
            self._fail(driven, None)
            return
        if driven.is_shared and driven.lock.is_mine():
            raise self._drive.refuse()
        driven.busy = True
        machine = driven.machine
        try:
            if driven.is_shared:
                with driven.lock:
                    machine.poll()
                    wake_ns = machine.next_wake_ns
            else:
                machine.poll()
                wake_ns = machine.next_wake_ns
        except Exception as error:  # a bug or a disk error: this machine ends, the others go on
            if is_interruption(error):
                raise  # a signal handler raised it, as Ctrl-C does: the machine stays busy and is made again
            self._fail(driven, error)
            return
        driven.busy = False
        driven.wake_ns = INT64_MAX if wake_ns is None else wake_ns
        if driven.wake_ns < self._due_ns:
            self._due_ns = driven.wake_ns

    def _poll_due(self, now: int) -> None:
        for driven in list(self._machines.values()):
            if driven.wake_ns <= now:
                self._poll(driven)
        self._due_ns = min((driven.wake_ns for driven in self._machines.values()), default=INT64_MAX)

    def _fail(self, driven: DrivenMachine, error: Exception | None) -> None:
        """Stop polling the machine. The background thread, which no signal handler interrupts, calls its
        ``failed``."""
        transport = driven.transport
        if transport not in self._machines:
            return
        address = transport.address
        # Record the failure before the machine is removed, and log last: a signal handler may also
        # interrupt the logging handlers.
        self._broken.append((driven, error))
        self._machines.pop(transport, None)
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
            driven, error = self._broken[0]
            try:
                driven.failed(error)
            except Exception:
                self.remove(driven)
                raise
            self.remove(driven)  # and all entries of this machine in _broken

    def _look_at_all(self) -> None:
        """Queue every machine for a poll, because an interrupted loop may have lost some of its queue."""
        self.syncs.flush_and_wait(0)
        for transport, driven in list(self._machines.items()):
            if driven.busy:
                self._fail(driven, None)
            else:
                transport.is_ready = True
                self.network.ready.append(transport)
        self._is_cut_short = False

    def _work(self) -> float | None:
        """Take one turn of the background thread. Return the seconds until its next turn."""
        if self._broken:
            self.run_exclusively(self._mend)
        self._background_until_ns = INT64_MAX  # a thread that drives now arms this one when it leaves
        if self._waited_count != self._waited_before:
            self._waited_before = self._waited_count
            # A caller waits again and again, and drives while it waits. Taking the drive in
            # between would cost a thread switch for each wait.
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
        """Raise ClosedError or ForkedError if the driver was stopped or forked."""
        if self._refusal is not None:
            raise copy_for_raise(self._refusal)

    def start(self) -> None:
        """Let the background thread take part."""
        self._background.start()

    def stop(self) -> None:
        """Stop driving; waiting threads get ClosedError. Afterwards the caller owns the machines."""
        self._refusal = ClosedError("the cluster is closed")
        self._background.stop()
        self.run_exclusively(self._machines.clear)
        while self._waiting:
            self._free_one()

    def forked(self, error: PyreplogError) -> None:
        """Refuse every wait with ``error``, because this process is a forked child."""
        self._refusal = error
        for driven in self._machines.values():
            driven.lock = OwnedLock(self._name)
            driven.transport.is_ready = False  # so that mark_ready raises the refusal
        self._machines.clear()
        self._drive = OwnedLock(self._name)
        self._is_driven = False
        self._exclusive = OwnedLock(self._name)
