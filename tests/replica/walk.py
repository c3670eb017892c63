"""A random walk of three replicas and a controller that keeps its own rules: everything may be late, lost, repeated
or dead.

One seed is one walk. Every message, sync, decision and picture is in flight until the walk picks it. After each
step the checks look at the controller's truth, at all logs and at what each mark says (names as in
``docs/internals/simulation.md``: S2, S3, S4, S5, S8, S14); at the end everything heals and must agree.
"""

from __future__ import annotations

from random import Random
from typing import Any

from pyreplog.config import LogConfig
from pyreplog.replica import (
    AlterPartition,
    AlterPartitionAnswered,
    BrokerStatus,
    DeleteRecords,
    Effect,
    Fetch,
    FetchAnswered,
    FollowerFetch,
    MetadataApplied,
    Replica,
    Reply,
    Synced,
)
from pyreplog.wire import (
    AlterPartitionResult,
    DeleteRecordsPartitionResult,
    ErrorCode,
    FetchPartition,
    PartitionData,
    PartitionProduceResponse,
)
from tests.oracle.memory_log import MemoryLog
from tests.replica.replica_harness import CLIENT, ReplicaHarness

COUNT = 3
ACTIONS = (
    "append",
    "delete",
    "send",
    "deliver",
    "lose",
    "sync",
    "decide",
    "told",
    "skip",
    "fence",
    "unfence",
    "prefer",
    "kill",
    "power",
    "time",
)
USUAL = {
    "append": 10,
    "send": 20,
    "deliver": 30,
    "lose": 2,
    "sync": 12,
    "decide": 6,
    "told": 12,
    "skip": 2,
    "fence": 1,
    "unfence": 3,
}
USUAL |= {"delete": 1, "prefer": 1, "kill": 1, "power": 1, "time": 6}


class Violation(AssertionError):
    """A safety rule was broken."""


class Walk(ReplicaHarness):
    """One walk. ``run`` raises :class:`Violation`."""

    def __init__(self, seed: int, kind: type[Replica], durability: Any, minimum: int = 2) -> None:
        self.random = Random(seed)
        config = LogConfig(durability=durability, min_insync_replicas=minimum)
        super().__init__({b: MemoryLog(config) for b in range(1, COUNT + 1)}, replica_class=kind, strict=True)
        self.minimum = minimum
        self.flight: list[tuple[int, Any]] = []  # (to broker, event)
        self.sent: list[FetchPartition] = []
        self.pictures: dict[int, list[MetadataApplied]] = {b: [] for b in self.logs}
        self.fenced: list[int] = []
        self.own_epoch = {b: s.epoch for b, s in self.brokers.items()}
        self.values: dict[tuple[int, int], bytes] = {}  # (offset, epoch) -> batch
        self.exposed: dict[int, bytes] = {}  # base offset -> batch, once below a leader's high watermark
        self.wanting_all: list[int] = []
        self.acked: list[int] = []  # base offsets that acks=all answers named
        self.reigns: dict[tuple[int, int], int] = {}  # (broker, epoch) -> high watermark
        self.leaders: dict[int, int] = {}  # epoch -> broker that accepted the role
        self.looked: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.deleted = 0  # nothing below is to be read any more
        self.asked = 0  # nor may anything from here on be deleted
        self.weights = {a: USUAL[a] * self.random.choice((0.2, 1, 1, 3)) for a in ACTIONS}
        if durability != "sync":
            self.weights["power"] = 0
        self.change(leader=1)

    # -- the controller

    def change(self, *, leader: int | None = None, isr: list[int] | None = None) -> None:
        """One decision: the picture goes to everybody, some time."""
        if leader is not None:
            self.leader = leader
            self.leader_epoch += 1
        if isr is not None:
            self.isr = isr
        self.partition_epoch += 1
        for broker in self.logs:
            self.pictures[broker].append(self.picture())

    def electable(self) -> list[int]:
        """In sync and alive."""
        return [b for b in self.isr if b not in self.fenced]

    def leave(self, broker: int) -> None:
        """``broker`` is fenced: it leaves the in-sync set unless it is the last, and its leadership goes to
        another."""
        isr = [b for b in self.isr if b != broker] or [broker]
        electable = [b for b in isr if b not in self.fenced]
        leader = None
        if self.leader == broker or self.leader == -1:
            leader = electable[0] if electable else -1
            leader = None if leader == self.leader else leader
        self.change(leader=leader, isr=isr)

    def register(self, broker: int) -> None:
        """A new incarnation: fenced until it is unfenced; it gets pictures from now on only."""
        self.brokers[broker] = BrokerStatus(max(s.epoch for s in self.brokers.values()) + 1, eligible=False)
        self.own_epoch[broker] = self.brokers[broker].epoch
        if broker not in self.fenced:
            self.fenced.append(broker)
        self.pictures[broker] = []
        self.leave(broker)

    # -- what is in flight

    def _note(self, broker: int, effect: Effect) -> None:
        self.look_at_mark(broker, effect)
        match effect:
            case Reply(source, _, result) if source != CLIENT:
                follower, index = (int(part) for part in source.split("#"))
                self.flight.append((follower, FetchAnswered(self.sent[index], result)))  # type: ignore[arg-type]
            case Reply(_, _, DeleteRecordsPartitionResult(_, low_watermark, 0)):
                replica = self.replicas[broker]
                if (
                    broker == self.leader
                    and replica.leader_epoch == self.leader_epoch
                    and dict(replica.brokers) == self.brokers
                ):
                    self.deleted = max(self.deleted, low_watermark)
            case Reply(_, number, result) if number in self.wanting_all and result.error_code == 0:
                self.acked.append(result.base_offset)  # type: ignore[union-attr]
                super()._note(broker, effect)
            case _:
                super()._note(broker, effect)

    def act_append(self) -> None:
        """A client appends at somebody who believes to lead."""
        leaders = [b for b, r in self.replicas.items() if r.is_leader]
        if leaders:
            acks = -1 if self.random.random() < 0.8 else 1
            if acks == -1:
                self.wanting_all.append(self.numbers + 1)
            self.append(self.random.choice(leaders), self.random.randint(1, 2), acks=acks)

    def act_delete(self) -> None:
        """A client deletes at somebody who believes to lead, now and then more than there is."""
        leaders = [b for b, r in self.replicas.items() if r.is_leader]
        if leaders:
            broker = self.random.choice(leaders)
            offset = self.random.randint(0, self.logs[broker].high_watermark + 1)
            if offset <= self.logs[broker].high_watermark:
                self.asked = max(self.asked, offset)
            self.numbers += 1
            self.step(broker, DeleteRecords(CLIENT, self.numbers, offset, 2000))

    def act_send(self) -> None:
        """A follower's fetch sets out (again)."""
        asking = [b for b in self.fetches if self.fetches[b].leader_id in self.logs]
        if asking:
            broker = self.random.choice(asking)
            fetch = self.fetches[broker]
            self.sent.append(fetch.request)
            event = FollowerFetch(f"{broker}#{len(self.sent) - 1}", 0, fetch.request, broker, self.own_epoch[broker])
            self.flight.append((fetch.leader_id, event))

    def act_deliver(self) -> None:
        """Something arrives, mostly the oldest; now and then it arrives twice."""
        if self.flight:
            index = 0 if self.random.random() < 0.7 else self.random.randrange(len(self.flight))
            broker, event = self.flight[index] if self.random.random() < 0.05 else self.flight.pop(index)
            if isinstance(event, FetchAnswered):
                fetch = self.fetches.get(broker)
                if fetch is not None and fetch.request is event.request:
                    del self.fetches[broker]
            self.step(broker, event)

    def act_lose(self) -> None:
        """Something gets lost."""
        if self.flight:
            self.flight.pop(self.random.randrange(len(self.flight)))

    def act_sync(self) -> None:
        """A sync ends."""
        syncing = [b for b in self.logs if self.syncs[b]]
        if syncing:
            self.sync(self.random.choice(syncing))

    def act_decide(self) -> None:
        """A proposal reaches the controller; its answer sets out, or is lost."""
        asking = [b for b in self.logs if self.proposals[b]]
        if not asking:
            return
        broker = self.random.choice(asking)
        proposal = self.proposals[broker].pop(0)
        members = proposal.proposal.new_isr_with_epochs
        if (
            self.own_epoch[broker] != self.brokers[broker].epoch
            or broker != self.leader
            or any(s.broker_id in self.fenced for s in members)
        ):
            self.flight.append((broker, AlterPartitionAnswered(proposal.token, 0, self.refusal(proposal))))
            return
        result = self.accept(proposal)
        if result.error_code == 0:
            for other in self.logs:
                self.pictures[other].append(self.picture())
        answer = AlterPartitionAnswered(proposal.token, 0, result)
        if self.random.random() < 0.2:
            answer = AlterPartitionAnswered(proposal.token, ErrorCode.REQUEST_TIMED_OUT)
        self.flight.append((broker, answer))

    def refusal(self, proposal: AlterPartition) -> AlterPartitionResult:
        """In Kafka's order: an old epoch is fenced, an old picture invalid, a member that may not be in is
        ineligible."""
        data = proposal.proposal
        if data.leader_epoch != self.leader_epoch:
            return AlterPartitionResult(0, ErrorCode.FENCED_LEADER_EPOCH)
        if data.partition_epoch != self.partition_epoch:
            return AlterPartitionResult(0, ErrorCode.INVALID_UPDATE_VERSION)
        return AlterPartitionResult(0, ErrorCode.INELIGIBLE_REPLICA)

    def act_told(self) -> None:
        """A broker hears the next picture."""
        waiting = [b for b in self.logs if self.pictures[b]]
        if waiting:
            broker = self.random.choice(waiting)
            self.step(broker, self.pictures[broker].pop(0))

    def act_skip(self) -> None:
        """A broker hears only the newest of its pictures, as from a snapshot; or an old one again."""
        waiting = [b for b in self.logs if self.pictures[b]]
        if waiting:
            broker = self.random.choice(waiting)
            newest = self.pictures[broker][-1]
            self.pictures[broker].clear()
            self.step(broker, newest)
            if self.random.random() < 0.3:
                self.pictures[broker].append(newest)

    def act_fence(self) -> None:
        """The controller loses sight of a broker, which knows nothing of it."""
        broker = self.random.choice(list(self.logs))
        if broker not in self.fenced and len(self.fenced) < 2:
            self.fenced.append(broker)
            self.brokers[broker] = BrokerStatus(self.brokers[broker].epoch, eligible=False)
            self.leave(broker)

    def act_unfence(self) -> None:
        """And sees it again."""
        if self.fenced:
            broker = self.fenced.pop(self.random.randrange(len(self.fenced)))
            self.brokers[broker] = BrokerStatus(self.brokers[broker].epoch, eligible=True)
            electable = self.electable()
            self.change(leader=electable[0] if self.leader == -1 and electable else None)

    def act_prefer(self) -> None:
        """The leadership moves although nobody died."""
        electable = self.electable()
        if electable:
            self.change(leader=self.random.choice(electable))

    def act_kill(self) -> None:
        """A process dies and starts again: its page cache survives."""
        self.reborn(self.random.choice(list(self.logs)))

    def act_power(self) -> None:
        """A machine, or all of them, lose their power: what was not synced is gone."""
        for broker in list(self.logs) if self.random.random() < 0.3 else [self.random.choice(list(self.logs))]:
            self.logs[broker].lose_power()
            self.reborn(broker)

    def reborn(self, broker: int) -> None:
        """A new incarnation on the same log; it hears the picture from its registration on."""
        self.drop(broker)
        self.flight = [(b, e) for b, e in self.flight if b != broker]
        self.register(broker)
        self.replicas[broker] = self.replica_class(self.logs[broker], broker, self.config)
        self.looked.pop(broker, None)

    def act_time(self) -> None:
        """Time passes."""
        self.pass_time(self.random.choice((1, 10, 60, 700, 1500)))

    # -- the checks

    def check(self) -> None:
        """After each step."""
        for broker, replica in self.replicas.items():
            log = self.logs[broker]
            if replica.is_leader:
                first = self.leaders.setdefault(replica.leader_epoch, broker)
                self.expect(first == broker, "S5", f"{first} and {broker} lead in epoch {replica.leader_epoch}")
                reign = (broker, replica.leader_epoch)
                self.expect(
                    log.high_watermark >= self.reigns.get(reign, 0), "S8", f"{broker}: the high watermark went back"
                )
                self.reigns[reign] = log.high_watermark
                if broker == self.leader and replica.leader_epoch == self.leader_epoch:
                    self.expect(
                        log.start_offset >= self.deleted,
                        "S21",
                        f"{broker} leads and shows what was deleted below {self.deleted}",
                    )
            self.expect(
                log.start_offset <= log.high_watermark <= log.end_offset, "S9", f"{broker}: start, high watermark, end"
            )
            self.expect(
                log.start_offset <= self.asked,
                "S9",
                f"{broker}: deleted up to {log.start_offset}, asked for {self.asked}",
            )
            self.look(broker, log, leads=replica.is_leader)
        for offset in self.acked:
            self.expect(
                offset in self.exposed,
                "S14",
                f"offset {offset} was acknowledged, but is below no leader's high watermark",
            )
        committed = [self.logs[b] for b in self.isr]
        for log in committed:
            end = log.ack_offset
            for offset, data in self.exposed.items():
                if offset < log.start_offset:
                    continue
                found = self.at(log, offset)
                self.expect(
                    found == data and offset < end, "S2", f"a member of the in-sync set lacks exposed offset {offset}"
                )

    def look_at_mark(self, broker: int, effect: Effect) -> None:
        """What ``effect`` tells others is in the mark: after the end of a process only that tells torn from
        rotten."""
        log: MemoryLog = self.logs[broker]
        synced_end, high_watermark, _ = log.mark
        match effect:
            case Fetch(_, request) if log.durability == "sync" and request.fetch_offset > log.start_offset:
                self.expect(
                    synced_end >= request.fetch_offset,
                    "S2",
                    f"{broker} fetches at {request.fetch_offset}, its mark is at {synced_end}",
                )
            case Reply(_, _, PartitionProduceResponse(error_code=0) as result) if log.durability == "sync":
                self.expect(
                    synced_end > result.base_offset,
                    "S14",
                    f"{broker} acknowledges {result.base_offset}, its mark is at {synced_end}",
                )
            case Reply(_, _, PartitionData(error_code=0)) if (
                self.replicas[broker].is_leader and log.high_watermark > log.start_offset
            ):
                self.expect(
                    high_watermark >= log.high_watermark,
                    "S9",
                    f"{broker} shows {log.high_watermark}, marked {high_watermark}",
                )

    def look(self, broker: int, log: MemoryLog, *, leads: bool) -> None:
        """New batches of one log."""
        begin = self.looked.get(broker, 0)
        begin = min(begin, len(log.batches)) if log.start_offset == self.starts.get(broker, 0) else 0
        self.starts[broker] = log.start_offset
        for batch in log.batches[max(0, begin - 3) :]:
            key = (batch.base, batch.epoch)
            self.expect(self.values.setdefault(key, batch.data) == batch.data, "S4", f"{key} differs on {broker}")
        self.looked[broker] = len(log.batches)
        if leads:
            for batch in reversed(log.batches):
                if batch.last < log.high_watermark:
                    if batch.base in self.exposed and self.exposed[batch.base] == batch.data:
                        break
                    self.expect(
                        self.exposed.setdefault(batch.base, batch.data) == batch.data,
                        "S3",
                        f"offset {batch.base} changed",
                    )

    @staticmethod
    def at(log: MemoryLog, offset: int) -> bytes | None:
        """The batch that begins at ``offset``."""
        for batch in reversed(log.batches):
            if batch.base == offset:
                return batch.data
            if batch.base < offset:
                return None
        return None

    def expect(self, holds: bool, rule: str, about: str) -> None:
        """Raise :class:`Violation` unless ``holds``."""
        if not holds:
            raise Violation(f"{rule}: {about}")

    def run(self, steps: int = 250) -> None:
        """The walk, then healing, then the last look."""
        names, weights = list(self.weights), list(self.weights.values())
        for action in self.random.choices(names, weights, k=steps):
            self.trace.append(action)
            getattr(self, "act_" + action)()
            self.check()
        self.heal()

    def heal(self) -> None:
        """Everybody comes back, hears everything, and must agree: nothing acknowledged is missing."""
        self.flight.clear()
        while self.fenced:
            self.act_unfence()
        for broker in self.logs:
            while self.pictures[broker]:
                self.step(broker, self.pictures[broker].pop(0))
        for _ in range(400):
            for _ in range(12):
                self.act_send()
                while self.flight:
                    broker, event = self.flight.pop(0)
                    if (
                        isinstance(event, FetchAnswered)
                        and broker in self.fetches
                        and self.fetches[broker].request is event.request
                    ):
                        del self.fetches[broker]
                    self.step(broker, event)
            for broker in self.logs:
                while self.syncs[broker]:
                    sync = self.syncs[broker].pop(0)
                    self.step(broker, Synced(sync.upto, sync.generation))
                while self.proposals[broker]:
                    self.act_decide()
                while self.pictures[broker]:
                    self.step(broker, self.pictures[broker].pop(0))
            self.pass_time(100)
            self.check()
            logs = list(self.logs.values())
            start = max(log.start_offset for log in logs)
            contents = [[batch.data for batch in log.batches if batch.base >= start] for log in logs]
            whole = all(log.high_watermark == log.end_offset == logs[0].end_offset for log in logs)
            if len(self.isr) == COUNT and whole and all(content == contents[0] for content in contents):
                return
        raise Violation(
            f"does not heal: ends {self.ends()}, high watermarks {self.high_watermarks()}, in sync {self.isr}"
        )
