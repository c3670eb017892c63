"""Some replicas of one partition on a table, with every message, sync and decision in the test's hand.

Nothing moves by itself: a test says which fetch arrives, which answer, which sync ends, what the controller
decides. ``settle`` does it all until nothing is left, for the tests that only care about the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyreplog.config import NodeConfig
from pyreplog.replica import (
    AlterPartition,
    AlterPartitionAnswered,
    BrokenRule,
    BrokerStatus,
    Effect,
    Event,
    Fetch,
    FetchAnswered,
    FollowerFetch,
    MetadataApplied,
    Offline,
    Produce,
    Replica,
    Reply,
    StopFetching,
    Sync,
    Synced,
    Tick,
    Wake,
)
from pyreplog.wire import AlterPartitionData, AlterPartitionResult, ErrorCode, FetchPartition, PartitionData
from tests.replica.batches import batch

MS = 1_000_000
CLIENT = "client"


class ReplicaHarness:
    """Replicas 1, 2, ... (one for each log) and a controller that does what it is told."""

    def __init__(
        self,
        logs: Mapping[int, Any],
        *,
        config: NodeConfig | None = None,
        replica_class: type[Replica] = Replica,
        strict: bool = True,
    ) -> None:
        self.logs = dict(logs)
        self.config = config or NodeConfig()
        self.replica_class = replica_class
        self.strict = strict
        self.now = 1_000_000_000
        self.replicas = {b: replica_class(log, b, self.config) for b, log in self.logs.items()}
        self.brokers = {b: BrokerStatus(b, True) for b in self.logs}
        self.assignment: list[int] = list(self.logs)
        # The controller's truth.
        self.leader = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: list[int] = list(self.logs)
        # What is under way.
        self.fetches: dict[int, Fetch] = {}
        self.answers: dict[int, list[FetchAnswered]] = {b: [] for b in self.logs}
        self.syncs: dict[int, list[Sync]] = {b: [] for b in self.logs}
        self.proposals: dict[int, list[AlterPartition]] = {b: [] for b in self.logs}
        self.wakes: dict[int, int] = {}
        self.results: dict[int, Any] = {}
        self.broken: list[BrokenRule] = []
        self.offline: list[int] = []
        self.trace: list[str] = []
        self.numbers = 0

    # -- one event

    def step(self, broker: int, event: Event) -> list[Effect]:
        """Give one event to one replica and note its effects."""
        effects = self.replicas[broker].step(event, self.now)
        for effect in effects:
            self._note(broker, effect)
        return effects

    def _note(self, broker: int, effect: Effect) -> None:
        match effect:
            case Reply(source, number, result):
                if source == CLIENT:
                    self.results[number] = result
                else:
                    follower = int(source)
                    assert isinstance(result, PartitionData)
                    fetch = self.fetches.get(follower)
                    if fetch is not None:
                        self.answers[follower].append(FetchAnswered(fetch.request, result))
            case Fetch():
                self.fetches[broker] = effect
            case StopFetching():
                self.fetches.pop(broker, None)
            case Sync():
                assert not self.syncs[broker], "two syncs at once"
                self.syncs[broker].append(effect)
            case AlterPartition():
                self.proposals[broker].append(effect)
            case Wake(at):
                self.wakes[broker] = min(at, self.wakes.get(broker, at))
            case Offline():
                self.offline.append(broker)
            case BrokenRule(rule, about):
                self.broken.append(effect)
                assert not self.strict, f"{rule}: {about}"

    # -- the controller

    def picture(
        self, *, leader_epoch: int | None = None, partition_epoch: int | None = None, **changes: Any
    ) -> MetadataApplied:
        """What the metadata says now."""
        values: dict[str, Any] = {
            "offset": 0,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch if leader_epoch is None else leader_epoch,
            "partition_epoch": self.partition_epoch if partition_epoch is None else partition_epoch,
            "replicas": list(self.assignment),
            "isr": list(self.isr),
            "brokers": dict(self.brokers),
        }
        return MetadataApplied(**(values | changes))

    def tell(self, *brokers: int) -> None:
        """Give the present picture to these (none: all)."""
        for broker in brokers or self.replicas:
            self.step(broker, self.picture())

    def elect(self, leader: int, *, isr: Sequence[int] | None = None, tell: Sequence[int] | None = None) -> None:
        """A new leader epoch; the picture goes to all, the leader first, or to those in ``tell``."""
        self.leader = leader
        self.leader_epoch += 1
        self.partition_epoch += 1
        if isr is not None:
            self.isr = list(isr)
        order = [leader, *[b for b in self.replicas if b != leader]] if tell is None else tell
        for broker in order:
            if broker in self.replicas:
                self.step(broker, self.picture())

    def set_isr(self, *isr: int, tell: Sequence[int] = ()) -> None:
        """The controller itself changes the set."""
        self.isr = list(isr)
        self.partition_epoch += 1
        for broker in tell:
            self.step(broker, self.picture())

    def accept(self, proposal: AlterPartition) -> AlterPartitionResult:
        """Compare and swap: the controller's side of a proposal. Returns the answer, which the test delivers."""
        data: AlterPartitionData = proposal.proposal
        members = [s.broker_id for s in data.new_isr_with_epochs]
        if data.leader_epoch != self.leader_epoch:
            return AlterPartitionResult(0, ErrorCode.FENCED_LEADER_EPOCH)
        if data.partition_epoch != self.partition_epoch:
            return AlterPartitionResult(0, ErrorCode.INVALID_UPDATE_VERSION)
        if any(self.brokers.get(s.broker_id) != BrokerStatus(s.broker_epoch, True) for s in data.new_isr_with_epochs):
            return AlterPartitionResult(0, ErrorCode.INELIGIBLE_REPLICA)
        self.isr = members
        self.partition_epoch += 1
        return AlterPartitionResult(0, 0, self.leader, self.leader_epoch, list(members), 0, self.partition_epoch)

    def decide(self, broker: int) -> AlterPartitionResult:
        """Take the oldest proposal of ``broker``, decide it and give it the answer."""
        proposal = self.proposals[broker].pop(0)
        result = self.accept(proposal)
        self.step(broker, AlterPartitionAnswered(proposal.token, 0, result))
        return result

    # -- replication

    def present(self, follower: int) -> None:
        """The follower's outstanding fetch arrives at the leader it names (again), unless its answer is on the way
        already."""
        fetch = self.fetches[follower]
        answered = any(a.request is fetch.request for a in self.answers[follower])
        if fetch.leader_id in self.replicas and not answered:
            event = FollowerFetch(str(follower), 0, fetch.request, follower, self.brokers[follower].epoch)
            self.step(fetch.leader_id, event)

    def answer(self, follower: int) -> PartitionData:
        """The oldest answer arrives at the follower."""
        answered = self.answers[follower].pop(0)
        if self.fetches.get(follower) is not None and self.fetches[follower].request is answered.request:
            del self.fetches[follower]
        self.step(follower, answered)
        return answered.data

    def exchange(self, *followers: int) -> None:
        """Each of these fetches once and gets what the leader answers, if it answers."""
        for follower in followers:
            self.present(follower)
            while self.answers[follower]:
                self.answer(follower)

    def sync(self, broker: int) -> None:
        """The outstanding sync ends well."""
        sync = self.syncs[broker].pop(0)
        self.step(broker, Synced(sync.upto, sync.generation))

    def settle(self, *, without: Sequence[int] = (), rounds: int = 60) -> None:
        """Deliver, sync, decide and tick until nothing moves (at most so often)."""
        live = [b for b in self.replicas if b not in without]
        for _ in range(rounds):
            before = self._state()
            for broker in live:
                while self.syncs[broker]:
                    self.sync(broker)
            for broker in live:
                while self.answers[broker]:
                    self.answer(broker)
                if broker in self.fetches and self.fetches[broker].leader_id in live:
                    self.exchange(broker)
            for broker in live:
                while self.proposals[broker]:
                    self.decide(broker)
            self.pass_time(2, *live)
            if self._state() == before and not any(self.syncs[b] or self.answers[b] or self.proposals[b] for b in live):
                return
        raise AssertionError("does not settle")

    def _state(self) -> list[object]:
        return [repr(self.fetches)] + [
            (
                b,
                r.role.name,
                r.leader_epoch,
                r.partition_epoch,
                r.isr,
                log.end_offset,
                log.flushed_offset,
                log.high_watermark,
                len(self.results),
            )
            for (b, r), log in zip(self.replicas.items(), self.logs.values(), strict=True)
        ]

    def pass_time(self, ms: float, *brokers: int) -> None:
        """Move the clock and tick these (none: all) as they asked."""
        self.now += int(ms * MS)
        for broker in brokers or list(self.replicas):
            if broker in self.wakes and self.wakes[broker] <= self.now:
                del self.wakes[broker]
                self.step(broker, Tick())

    # -- clients

    def append(
        self,
        broker: int,
        count: int = 1,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        epoch: int = -1,
        tag: bytes = b"",
    ) -> int:
        """One batch of ``count`` records to ``broker``; the number under which ``results`` gets the answer."""
        self.numbers += 1
        values = [b"%s%d-%d" % (tag, self.numbers, i) for i in range(count)]
        self.step(broker, Produce(CLIENT, self.numbers, acks, batch(values), timeout_ms, epoch))
        return self.numbers

    def ask(self, broker: int, make: Callable[..., Event], *arguments: Any) -> Any:
        """Give a client's question; the answer, None where it waits."""
        self.numbers += 1
        self.step(broker, make(CLIENT, self.numbers, *arguments))
        return self.results.get(self.numbers)

    def code(self, number: int) -> int | None:
        """The error code of that answer, None while there is none."""
        return self.results[number].error_code if number in self.results else None

    # -- accidents

    def restart(self, broker: int, log: Any | None = None) -> None:
        """The process of ``broker`` dies and starts again on its log (or another): a new machine, a new broker
        epoch, no memory."""
        if log is not None:
            self.logs[broker] = log
        epoch = max(status.epoch for status in self.brokers.values()) + 1
        self.brokers[broker] = BrokerStatus(epoch, True)
        self.drop(broker)
        self.replicas[broker] = self.replica_class(self.logs[broker], broker, self.config)

    def drop(self, broker: int) -> None:
        """Forget everything that ``broker`` has under way."""
        self.fetches.pop(broker, None)
        self.answers[broker], self.syncs[broker], self.proposals[broker] = [], [], []
        self.wakes.pop(broker, None)

    # -- looking

    def ends(self) -> list[int]:
        """Log end offsets, by broker."""
        return [log.end_offset for log in self.logs.values()]

    def high_watermarks(self) -> list[int]:
        """High watermarks, by broker."""
        return [log.high_watermark for log in self.logs.values()]

    def progress(self, follower: int) -> int:
        """What the leader believes of ``follower``'s end."""
        role: Any = self.replicas[self.leader].role
        return int(role.in_sync_set.followers[follower].leo)


def led(
    harness: ReplicaHarness, committed: int = 0, more: int = 0, *, records: int = 1, isr: Sequence[int] | None = None
) -> ReplicaHarness:
    """Broker 1 leads, everybody has fetched once; so many batches of so many ``records`` are committed, and so many
    more are not."""
    harness.elect(1, isr=isr)
    harness.settle()
    for _ in range(committed):
        harness.append(1, records)
    harness.settle()
    for _ in range(more):
        harness.append(1, records)
    return harness


def request(
    offset: int, epoch: int, last: int = -1, *, high_watermark: int = 2**63 - 1, start: int = 0
) -> FetchPartition:
    """A follower's fetch, by hand."""
    return FetchPartition(0, epoch, offset, last, start, 1 << 20, high_watermark=high_watermark)
