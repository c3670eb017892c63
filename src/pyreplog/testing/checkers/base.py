"""What a checker is, what it raises, and how it reads a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from pyreplog.controller import MetadataImage
from pyreplog.log import Log, UnloadedLog
from pyreplog.record import Record, RecordBatch, split
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.testing.workload import Attempt, SimConsumer

__all__ = ["Checker", "Committed", "InvariantBroken", "batches_of", "overriding", "summary"]

READ_SIZE = 1 << 20
EVENTS_SHOWN_MAX = 40


class InvariantBroken(AssertionError):
    """``rule`` (such as ``"S2"``) did not hold at ``at_ns`` of the run of ``seed``; ``events`` is what was done to
    the cluster before.

    ``replay`` says how to repeat the run: a command, or the world that the caller's own program makes.
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


class Checker:
    """Looks on. Every method may raise through ``world.broken``; the base class sees nothing wrong in anything.

    ``numbers`` are the invariants it stands for; ``says`` is their text, shown when one does not hold. A world only
    calls the methods that a checker overrides. Nothing a checker does may change the world or draw from its chance.
    """

    numbers: ClassVar[Sequence[str]] = ()
    says: ClassVar[str] = ""

    def stopped(self, world: ObservedWorld, machine: ObservedNode, how: str) -> None:
        """A node is about to go: ``how`` is kill, power loss, stop or wipe. Its logs can still be read."""

    def started(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """A node opened its logs and is about to have its first turn."""

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """A node had a turn."""

    def disk_call(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """In the midst of a node's turn: a call of its disk comes next that may fail, and end it."""

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """The controller had a turn in which something changed."""

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """A message arrived."""

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """A producer learnt the outcome of one of its records."""

    def read(self, world: ObservedWorld, consumer: SimConsumer, record: Record) -> None:
        """A consumer read a record."""

    def unrest(self, world: ObservedWorld) -> str:
        """After everything healed: what is not yet as it must become within the liveness phase; empty when all
        is."""
        return ""

    def final(self, world: ObservedWorld) -> None:
        """All is healed and quiet."""


def overriding(checkers: Sequence[Checker], hook: str) -> list[Checker]:
    """Return the checkers that override the method ``hook``: the others have nothing to do there."""
    return [checker for checker in checkers if getattr(type(checker), hook) is not getattr(Checker, hook)]


class Committed(NamedTuple):
    """A batch that was once below a leader's high watermark."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


def batches_of(log: Log | UnloadedLog, start: int, end: int) -> list[RecordBatch]:
    """The batches of ``log`` from offset ``start`` up to ``end``."""
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
    """What tells a batch from any other."""
    return Committed(batch.base_offset, batch.next_offset, batch.leader_epoch, batch.crc)
