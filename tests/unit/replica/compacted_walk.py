"""A walk over three replicas of a compacted topic: random keyed records and tombstones, passes of compaction on random
replicas, crashes and changes of the leader. The slow twin keeps every committed record, and so knows what a reader by
key must see."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from pyreplog.errors import StorageError
from pyreplog.log import CleanedSegment, Cleaner, Log
from pyreplog.log.cleaning_plan import CleanSource
from pyreplog.record import BatchBuilder
from pyreplog.replica import BrokenRule, Effect, Produce
from pyreplog.testing import Checker, Stage
from pyreplog.testing.checkers import batches_of
from pyreplog.testing.stage_clients import CLIENT
from pyreplog.testing.stage_node import FOREVER_MS
from pyreplog.testing.walk import Walk
from tests.oracle.compaction import CONTROL
from tests.oracle.compaction import batches_of as parsed

KEYS: Final = 5
SECRET: Final = bytes(16)
NEVER: Final = ("number", "look", "delete", "retell", "time_out", "blackout")


class _Pass(NamedTuple):
    """A pass that has begun: its first group is written, the rest not."""

    log: Log
    cleaner: Cleaner
    end: int
    rest: list[list[CleanSource]]
    first: CleanedSegment


class Rules(Checker):
    """No replica reports a broken rule."""

    def effect(self, world: Any, machine: Any, effect: Effect) -> None:
        """Look at one."""
        if isinstance(effect, BrokenRule):
            world.broken(effect.rule, effect.about)


class CompactedStage(Stage):
    """With a compacted topic of small segments, whose tombstones go at the second pass."""

    topic_settings: ClassVar[Mapping[str, str]] = {
        "cleanup.policy": "compact",
        "segment.bytes": "1024",
        "delete.retention.ms": "0",
    }


class CompactedWalk(Walk):
    """One random walk over a compacted topic. ``run`` checks at the end what each replica has by key."""

    stage_class = CompactedStage

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **{"checkers": [Rules()], **settings})
        chance = Random(~seed)
        for action in NEVER:
            self.weights[action] = 0
        self.weights |= {
            "append": 25,
            "compact": chance.choice((4, 12)),
            "install": 10,
            "wipe": 0.5,
            "kill": 2,
            "start": chance.choice((0.7, 2, 5)),
            "time": 10,
        }
        self._passes: dict[int, _Pass] = {}
        self.end = 0
        """All records below are committed, and were seen."""
        self.newest: dict[bytes, bytes | None] = {}
        self.compacted = 0
        self.dropped = 0

    def run(self) -> Stage:
        """Take the steps, heal all faults, compact all, and compare each replica with the twin."""
        names, weights = list(self.weights), list(self.weights.values())
        acts = [getattr(self, "_" + name) for name in names]
        for act in self.random.choices(acts, weights, k=self.steps):
            act()
            self._see()
        self._passes.clear()
        self.stage.finish()
        self._see()
        self.check()
        for _ in range(2):
            for node_id in self.stage.machines:
                self._begin(node_id, roll=True)
                self._end(node_id)
            self.stage.settle()
            self.check()
        return self.stage

    # -- the twin

    def _see(self) -> None:
        """Note the records that are committed now, before any replica may compact them."""
        for actor in self.stage.machines.values():
            log = actor.log
            if isinstance(log, Log) and log.failure is None and log.high_watermark > self.end:
                self.newest.update(self._records(log, self.end, log.high_watermark))
                self.end = log.high_watermark

    def _records(self, log: Log, start: int, end: int) -> list[tuple[bytes, bytes | None]]:
        found = []
        for batch in batches_of(log, max(start, log.start_offset), end):
            for one in parsed(bytes(batch.data[: batch.size])):
                if not one.attributes & CONTROL:
                    found += [(record.key or b"", record.value) for record in one.records if record.offset >= start]
        return found

    def check(self) -> None:
        """Each replica has the newest committed value of each key, and no other key."""
        expected = {key: value for key, value in self.newest.items() if value is not None}
        for node_id, actor in self.stage.machines.items():
            log = actor.log
            state = dict(self._records(log, log.start_offset, log.end_offset))
            found = {key: value for key, value in state.items() if value is not None}
            if found != expected:
                self.stage.broken("compaction", f"node {node_id} has {found}, committed is {expected}")

    # -- the actions

    def _append(self) -> None:
        """A batch of records and tombstones to a node that believes it is the leader."""
        leaders = self._leading()
        if not leaders:
            return
        builder = BatchBuilder()
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self._sequence += 1
            value = None if self.random.random() < 0.3 else b"%d-" % self._sequence + b"v" * 60
            # Other keys as time goes by: otherwise later records would hide what came back.
            key = b"k%d" % (self._sequence // 8 + self.random.randrange(KEYS))
            assert builder.append(value, key, (), 1)
        number = self.stage.clients._number()
        acks = -1 if self.random.random() < 0.8 else 1
        self.stage.say(f"append {number}")
        data = bytearray(builder.finish())
        self.stage.step(self.random.choice(leaders), Produce(CLIENT, number, acks, data, FOREVER_MS))

    def _wipe(self) -> None:
        """The disk of a node that no promise needs is replaced by an empty one."""
        partition = self.stage.partition
        spare = [one for one in partition.replicas if one not in (*partition.isr, *partition.elr)]
        if spare:
            node_id = self.random.choice(spare)
            self.fenced.pop(node_id, None)
            self.stage.kill(node_id)
            self.stage.machines[node_id].home.wipe()

    def _compact(self) -> None:
        """A pass over one replica begins, or a whole one runs."""
        up = self._up()
        if up:
            node_id = self.random.choice(up)
            for _ in range(self.random.choice((1, 1, 2, 3))):
                self._begin(node_id, roll=self.random.random() < 0.7)
                if self.random.random() < 0.3:
                    return
                self._end(node_id)

    def _install(self) -> None:
        """A pass that began earlier ends."""
        if self._passes:
            self._end(self.random.choice(list(self._passes)))

    def _begin(self, node_id: int, *, roll: bool) -> None:
        log = self.stage.machines[node_id].log
        if not isinstance(log, Log) or log.failure is not None or node_id in self._passes:
            return
        self.stage.say(f"a pass of compaction on node {node_id} begins")
        if roll:
            while self.stage.machines[node_id].syncs:
                self.stage.sync(node_id)
            if log.failure is not None:
                return
            log.close_active_segment()
        plan = log.cleaning_plan(self.stage.clock.wall_ms())
        cleaner = Cleaner(log.disk, plan, SECRET, lambda: None)
        end = cleaner.map_keys()
        groups = plan.groups(end)
        if groups:
            self._passes[node_id] = _Pass(log, cleaner, end, groups[1:], cleaner.clean(groups[0]))

    def _end(self, node_id: int) -> None:
        one = self._passes.pop(node_id, None)
        if one is None or one.log is not self.stage.machines[node_id].log or one.log.failure is not None:
            return
        self.stage.say(f"the pass on node {node_id} ends")
        cleaned = one.first
        while one.log.install(cleaned):
            self.compacted += 1
            if not one.rest:
                self.dropped = max(self.dropped, one.cleaner.result().dropped_tombstone)
                one.log.note_cleaned(one.end)
                return
            try:
                cleaned = one.cleaner.clean(one.rest.pop(0))
            except StorageError:
                return  # a truncation took a source away
