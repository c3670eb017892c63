"""Passes of compaction in a simulated cluster: over random copies at random moments.

The plan, the copy of each group of segments, each swap and the end of the pass are separate events. So whatever the
nemesis does, and whatever the replicas do by themselves, may fall between them. A pass ends with its process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

from pyreplog.controller import PartitionKey
from pyreplog.errors import CorruptError, PyreplogError, StorageError
from pyreplog.log import CleanedSegment, Cleaner, Log
from pyreplog.node import HostedPartition
from pyreplog.record import records_of
from pyreplog.testing.checkers import Swap, batches_of
from pyreplog.testing.machine import Machine
from pyreplog.testing.options import WorldOptions
from pyreplog.values import TopicPartition

__all__ = ["Compactions"]

FINISH_MS: Final = 4000
LAST_STEP_MS: Final = 20
SOON_MS: Final = 1000
ROUNDS_MAX: Final = 20
_SECRET: Final = bytes(range(16))


class _CompactedWorld(Protocol):
    """The parts of a world that passes need."""

    @property
    def options(self) -> WorldOptions: ...
    @property
    def machines(self) -> Mapping[int, Machine]: ...
    @property
    def seen(self) -> dict[str, int]: ...
    @property
    def rotten(self) -> Mapping[tuple[TopicPartition, int], None]: ...
    def run_for(self, ms: float) -> None: ...
    def run_until(self, done: Callable[[], bool], within_ms: float) -> bool: ...
    def plan(self, after_ms: float, call: Callable[[], None]) -> None: ...
    def say(self, text: str) -> None: ...
    def touch(self, address: str) -> None: ...
    def broken(self, rule: str, about: str) -> None: ...
    def swapped(self, machine: Machine, swap: Swap) -> None: ...
    def cleaned(self, machine: Machine, key: PartitionKey, log: Log, end: int) -> None: ...


class Compactions:
    """Compacts the copies of the compacted topics of a world. ``cleaner_class`` replaces the real cleaner."""

    def __init__(self, world: _CompactedWorld, random: Random, cleaner_class: type[Cleaner] = Cleaner) -> None:
        self.world = world
        self.random = random
        self.cleaner_class = cleaner_class
        self._going = False
        self._running: dict[int, _Pass] = {}
        """One pass at a time runs in a process: by node id."""

    def start(self) -> None:
        """Begin passes from now on, if any topic is compacted."""
        if not self._going and any(topic.compacts for topic in self.world.options.topics):
            self._later()
        self._going = True

    def stop(self) -> None:
        """Begin no more passes."""
        self._going = False

    @property
    def are_over(self) -> bool:
        """Whether no pass runs."""
        return not any(one.is_alive for one in self._running.values())

    def copies(self) -> list[tuple[Machine, HostedPartition]]:
        """Return the copies of compacted topics on the nodes that are up."""
        found = []
        for machine in self.world.machines.values():
            node = machine.node
            if node is None or machine.paused or node.offline is not None:
                continue
            for hosted in node.hosted.values():
                if self.world.options.compacts(hosted.topic_partition.topic) and hosted.log.config.compacts:
                    found.append((machine, hosted))
        return found

    def _later(self) -> None:
        self.world.plan(self.random.random() * 2 * self.world.options.compaction_interval_ms, self._begin)

    def _begin(self) -> None:
        if not self._going:
            return
        copies = self.copies()
        if copies:
            self.compact(*self.random.choice(copies), closes=self.random.random() < 0.7)
        self._later()

    def compact(self, machine: Machine, hosted: HostedPartition, *, closes: bool, at_once: bool = False) -> None:
        """Begin a pass over one copy, unless one runs in its process. ``closes``: the active segment is closed first,
        as ``admin.compact`` does. ``at_once``: all in one event."""
        running = self._running.get(machine.node_id)
        if running is not None and running.is_alive:
            return
        one = self._running[machine.node_id] = _Pass(self, machine, hosted)
        one.begin(closes=closes)
        if at_once:
            while one.is_alive:
                one.step()
        elif one.is_alive:
            self._plan(one)

    def _plan(self, one: _Pass) -> None:
        def step() -> None:
            one.step()
            if one.is_alive:
                self._plan(one)

        longest_ms = self.world.options.faults.lasting_ms / 2 if self._going else LAST_STEP_MS
        self.world.plan(self.random.random() ** 3 * longest_ms, step)

    def finish(self) -> None:
        """Compact all copies, until no copy has a tombstone whose time is over. REQUIRES a cluster that is healed."""
        self.world.run_until(lambda: self.are_over, FINISH_MS)
        retention_ms = max(topic.delete_retention_ms for topic in self.world.options.topics if topic.compacts)
        self._compact_all()
        if retention_ms <= SOON_MS / 2:
            self.world.run_for(retention_ms + 1)  # then the tombstones at the end of the logs go, too
        for _ in range(ROUNDS_MAX):
            self._compact_all()
            left = self._due_tombstone()
            if not left:
                return
            self.world.run_for(FINISH_MS / ROUNDS_MAX)
        self.world.broken("compaction", f"{left} stays")

    def _compact_all(self) -> None:
        for machine, hosted in self.copies():
            self.compact(machine, hosted, closes=True, at_once=True)

    def _due_tombstone(self) -> str:
        """Return a tombstone that the next pass may drop; empty if there is none. The leader of an ``os`` topic may
        learn late that a copy is durable."""
        for machine, hosted in self.copies():
            log, now_ms = hosted.replica.load_log(), machine.clock.wall_ms()
            is_known = log.durability == "sync"
            for batch in batches_of(log, log.start_offset, log.cleaned_end if is_known else log.droppable_end):
                horizon_ms = batch.delete_horizon_ms
                for record in () if horizon_ms is None or horizon_ms > now_ms else records_of(batch):
                    if record.value is None and log.start_offset <= record.offset < log.cleaned_end:
                        return f"the tombstone at {record.offset} of {hosted.topic_partition} on node {machine.node_id}"
        return ""

    def count(self, what: str) -> None:
        """Count a situation that a set of runs should reach."""
        self.world.seen[what] = self.world.seen.get(what, 0) + 1


class _Pass:
    """One pass over one copy; each :meth:`step` is one event."""

    def __init__(self, passes: Compactions, machine: Machine, hosted: HostedPartition) -> None:
        self._passes = passes
        self._world = passes.world
        self._machine = machine
        self._hosted = hosted
        self._starts = machine.starts
        self._log = hosted.replica.load_log()
        self._name = f"pass over {hosted.topic_partition} of node {machine.node_id}"
        self._is_over = False
        self._copied: CleanedSegment | None = None

    @property
    def is_alive(self) -> bool:
        """Whether there is a next step."""
        if not self._is_over and self._machine.starts != self._starts:
            self._passes.count("a pass that its process did not survive")
            self._is_over = True
        return not self._is_over

    def begin(self, *, closes: bool) -> None:
        """Make the plan and the map of keys."""
        self._do(lambda: self._begin(closes=closes))

    def _begin(self, *, closes: bool) -> None:
        log = self._log
        if closes:
            log.close_active_segment()
        plan = log.cleaning_plan(self._machine.clock.wall_ms())
        if not plan.sources:
            self._is_over = True
            return
        self._cleaner = self._passes.cleaner_class(log.disk, plan, _SECRET, lambda: None)
        self._end = self._cleaner.map_keys()
        self._groups = plan.groups(self._end)
        self._now_ms = plan.now_ms
        self._passes.count("a pass")
        self._world.say(f"{self._name} up to {self._end}")

    def step(self) -> None:
        """Copy a group of segments, put the copy in its place, or end the pass."""
        machine = self._machine
        if not self.is_alive or machine.node is None:
            return
        if machine.paused:
            return
        if machine.node.hosted.get(self._hosted.key) is not self._hosted or self._hosted.log is not self._log:
            self._is_over = True  # the copy is another one now
            self._passes.count("a pass whose log went")
            return
        self._do(self._step)

    def _step(self) -> None:
        log = self._log
        if self._copied is not None:
            self._install(self._copied)
        elif self._groups:
            self._copied = self._cleaner.clean(self._groups.pop(0))
        else:
            log.note_cleaned(self._end)
            assert self._machine.root is not None
            self._machine.root.checkpoint_cleaned_ends()
            self._is_over = True
            self._passes.count("a whole pass")
            self._world.cleaned(self._machine, self._hosted.key, log, self._end)

    def _install(self, cleaned: CleanedSegment) -> None:
        log = self._log
        start, end = cleaned.sources[0].base_offset, cleaned.sources[-1].end_offset
        first = max(start, log.start_offset)
        before = batches_of(log, first, min(end, log.end_offset)) if first < log.end_offset else []
        self._copied = None
        tombstone = log.dropped_tombstone
        if not log.install(cleaned):
            self._is_over = True
            self._passes.count("a swap that is refused")
            return
        self._passes.count("a swap")
        if log.dropped_tombstone > tombstone:
            self._passes.count("a dropped tombstone")
        if self._hosted.replica.is_leader:
            self._passes.count("a swap of a leader")
        self._world.swapped(self._machine, Swap(self._hosted.key, log, before, start, end, self._now_ms))

    def _do(self, act: Callable[[], None]) -> None:
        """Do one step. An error ends the pass, and breaks an invariant unless a fault explains it."""
        machine = self._machine
        try:
            act()
        except CorruptError as error:
            self._is_over = True
            place = (self._hosted.topic_partition, machine.node_id)
            if place not in self._world.rotten and not machine.rotten:
                self._world.broken("compaction", f"{self._name}: {error}")
            self._world.say(f"{self._name}: {error}")
        except StorageError as error:
            self._is_over = True
            if not machine.disk_failed:
                self._world.broken("compaction", f"{self._name}: {error}")
            self._passes.count("a pass that the disk ended")
            self._world.say(f"{self._name}: {error}")
            self._world.touch(machine.address)
        except PyreplogError as error:
            self._is_over = True
            self._world.say(f"{self._name}: {error}")
