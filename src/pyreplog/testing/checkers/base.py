"""The base class of the checkers, the error that they raise, and how they read a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from pyreplog.controller import MetadataImage, PartitionKey
from pyreplog.log import Log, UnloadedLog
from pyreplog.record import Record, RecordBatch, split
from pyreplog.replica import Effect
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.testing.workload import Attempt, SimConsumer

__all__ = ["Checker", "Committed", "InvariantBroken", "Swap", "batches_of", "overriding", "summary"]

READ_SIZE = 1 << 20
EVENTS_SHOWN_MAX = 40


class InvariantBroken(AssertionError):
    """An invariant did not hold during a simulated run.

    ``rule`` is its number, such as ``"S2"``. ``seed`` and ``at_ns`` say in which run and at which simulated time it
    broke; ``events`` lists the faults and other events of the run up to then. ``replay`` says how to repeat the
    run: a command, or the world that the caller's program makes.
    """

    def __init__(
        self, rule: str, about: str, seed: int, at_ns: int, events: Sequence[str], replay: str = "", says: str = ""
    ) -> None:
        self.rule = rule
        self.about = about
        self.seed = seed
        self.at_ns = at_ns
        self.events = list(events)
        self.replay = replay or f"World({seed}) in your program"
        story = "\n  ".join(events[-EVENTS_SHOWN_MAX:])
        name = f"{rule} ({says})" if says else rule
        super().__init__(
            f"{name} does not hold: {about}\n  at {at_ns / 1e9:.4f} s; repeat with: {self.replay}\n  {story}"
        )


class Swap(NamedTuple):
    """One step of a pass of compaction: a new segment has taken the place of old ones in a node's log."""

    key: PartitionKey
    log: Log
    before: Sequence[RecordBatch]
    """The batches of the old segments."""
    start_offset: int
    """The begin of the old segments."""
    end_offset: int
    """The end of the old segments."""
    now_ms: int
    """The wall time of the node when the pass began."""


class Checker:
    """Observes a world and reports a broken invariant through ``world.broken``, which raises.

    ``numbers`` are the invariants that the class checks; ``says`` is their text, for the error message. A world
    calls only the methods that a checker overrides; the base class checks nothing. A checker must not change the
    world or draw from its random generator.
    """

    numbers: ClassVar[Sequence[str]] = ()
    says: ClassVar[str] = ""

    def stopped(self, world: ObservedWorld, machine: ObservedNode, how: str) -> None:
        """A node is about to end by ``how``: "kill", "power loss", "stop" or "wipe". Its logs can still be read."""

    def started(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """A node has opened its logs and is about to have its first turn."""

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """A node has had a turn."""

    def effect(self, world: ObservedWorld, machine: ObservedNode, effect: Effect) -> None:
        """A replica of a stage has returned ``effect``, which has not been delivered yet. A world never calls this."""

    def disk_call(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """A node is about to make, within its turn, a disk call that may fail and end the turn."""

    def server_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """A machine's quorum server has had a turn; the messages that it sent are shown next. It may have ended."""

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """The controller has had a turn in which its metadata changed."""

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """A message has arrived."""

    def sent(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """A member has sent a message in the turn that has just ended; it may still be lost."""

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """A producer has learnt the outcome of one of its records."""

    def read(self, world: ObservedWorld, consumer: SimConsumer, record: Record) -> None:
        """A consumer has read a record."""

    def swapped(self, world: ObservedWorld, machine: ObservedNode, swap: Swap) -> None:
        """Compaction has replaced segments of a node's log."""

    def cleaned(self, world: ObservedWorld, machine: ObservedNode, key: PartitionKey, log: Log, end: int) -> None:
        """A pass of compaction over the log of a node is over; it compacted all records below ``end``."""

    def unrest(self, world: ObservedWorld) -> str:
        """Return which condition of the liveness phase does not hold yet; empty if all of them hold."""
        return ""

    def final(self, world: ObservedWorld) -> None:
        """The run is over: every fault is healed and every liveness condition holds."""


def overriding(checkers: Sequence[Checker], hook: str) -> list[Checker]:
    """Return the checkers that override the method ``hook``; for the others a call would do nothing."""
    return [checker for checker in checkers if getattr(type(checker), hook) is not getattr(Checker, hook)]


class Committed(NamedTuple):
    """A batch that was once below a leader's high watermark."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


def batches_of(log: Log | UnloadedLog, start: int, end: int) -> list[RecordBatch]:
    """Return the batches of ``log`` from offset ``start`` up to ``end``."""
    found: list[RecordBatch] = []
    if start >= end:
        return found
    if isinstance(log, UnloadedLog):
        log = log.load()
    while start < end:
        slice_ = log.read(start, READ_SIZE, end)
        batches = [batch for part in slice_.parts() for batch in split(part)]
        if not batches:
            break
        found.extend(batches)
        start = batches[-1].next_offset
    return found


def summary(batch: RecordBatch) -> Committed:
    """Return the fields that distinguish a batch from every other batch of its partition."""
    return Committed(batch.base_offset, batch.next_offset, batch.leader_epoch, batch.crc)
