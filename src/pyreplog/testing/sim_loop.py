"""The events of a simulated cluster in the order of their time: turns of its members, messages that arrive, and
planned calls."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from pyreplog.ports import Address
from pyreplog.testing.clock import SimClock
from pyreplog.testing.machine import Member
from pyreplog.testing.network import SimNetwork

__all__ = ["FAR_NS", "SimLoop"]

_MS: Final = 1_000_000
FAR_NS: Final = 1 << 62
STEPS_MAX: Final = 2_000_000


class SimLoop(ABC):
    """Moves ``clock`` from event to event. Not thread-safe."""

    network: SimNetwork

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self.steps = 0
        """Moments at which anything happened."""
        self.turns = 0
        """Turns that members took, and planned calls that were made: the events of the run."""
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._wakes: dict[Address, int] = {}  # FAR_NS: not before a message arrives
        self._wake_heap: list[tuple[int, int, Address]] = []  # those that changed since are passed over
        self._members: dict[Address, Member] = {}

    @abstractmethod
    def broken(self, rule: str, about: str) -> None:
        """Raise the error for a broken invariant."""

    @abstractmethod
    def _turn_done(self, address: Address, member: Member) -> None:
        """Called after each turn of a member."""

    def plan(self, after_ms: float, call: Callable[[], None]) -> None:
        """Call ``call`` in ``after_ms`` milliseconds."""
        self._plan_at(self.clock.monotonic_ns() + int(after_ms * _MS), call)

    def _plan_at(self, at_ns: int, call: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._plans, (at_ns, self._sequence, call))

    @property
    def next_event_ns(self) -> int:
        """When the next event happens; :data:`FAR_NS` if none is planned."""
        heap, wakes = self._wake_heap, self._wakes
        while heap and wakes.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        moment = heap[0][0] if heap else FAR_NS
        arrival = self.network.next_arrival_ns
        if arrival is not None and arrival < moment:
            moment = arrival
        if self._plans and self._plans[0][0] < moment:
            moment = self._plans[0][0]
        return moment

    def step(self) -> None:
        """Advance the clock to the next event, and handle all events of that moment."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.broken("liveness", f"no end after {STEPS_MAX} steps")
        network, plans = self.network, self._plans
        arrival = network.next_arrival_ns
        self.clock.advance_to(self.next_event_ns)
        moment = self.clock.monotonic_ns()
        due = dict.fromkeys(network.deliver_due()) if arrival is not None and arrival <= moment else {}
        while plans and plans[0][0] <= moment:
            self.turns += 1
            heapq.heappop(plans)[2]()
        heap, wakes = self._wake_heap, self._wakes
        while heap and heap[0][0] <= moment:
            wake, _, address = heapq.heappop(heap)
            if wakes.get(address) == wake:
                due[address] = None
        for address in due:
            self._turn(address)

    def _turn(self, address: Address) -> None:
        member = self._members.get(address)
        if member is None:
            return
        self.turns += 1
        member.poll()
        self._after(address)

    def join(self, member: Member, *addresses: Address) -> None:
        """Add a program. It gets a turn when it is due, and whenever something arrives for one of
        ``addresses`` (those of its clients). To restart a program, let its successor join at the
        same addresses."""
        for address in addresses:
            self._members[address] = member
            self._wake_at(address, self.clock.monotonic_ns())

    def leave(self, *addresses: Address) -> None:
        """Give the program behind these addresses no more turns. (If its process died, close the
        transports of its clients, too.)"""
        for address in addresses:
            self._members.pop(address, None)
            self._wakes[address] = FAR_NS

    def touch(self, address: Address) -> None:
        """Give ``address`` a turn, because a caller changed something there."""
        self._turn(address)

    def _after(self, address: Address) -> None:
        """Finish a turn: note when the member is due next."""
        member = self._members[address]
        wake = member.next_wake_ns
        now = self.clock.monotonic_ns()
        # A member that is always due would stop the clock.
        self._wake_at(address, FAR_NS if wake is None else wake if wake > now else now + 1)
        self._turn_done(address, member)

    def _wake_at(self, address: Address, moment_ns: int) -> None:
        self._wakes[address] = moment_ns
        if moment_ns < FAR_NS:
            self._sequence += 1
            heapq.heappush(self._wake_heap, (moment_ns, self._sequence, address))

    def run_until(self, done: Callable[[], bool], within_ms: float) -> bool:
        """Step until ``done()`` or until the time is over; return whether it was done."""
        end = self.clock.monotonic_ns() + int(within_ms * _MS)
        while not done():
            if self.clock.monotonic_ns() >= end:
                return False
            self.step()
        return True

    def run_for(self, ms: float) -> None:
        """Step for ``ms`` milliseconds."""
        self.run_until(lambda: False, ms)
