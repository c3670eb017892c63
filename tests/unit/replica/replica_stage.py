"""A stage for the rules of one replica: the test writes the controller's decisions, in states that no real controller
makes, and chooses which nodes learn of them. Messages, syncs and time are those of :class:`pyreplog.testing.Stage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyreplog.replica import (
    AlterPartition,
    BrokenRule,
    BrokerStatus,
    Effect,
    Event,
    Fetch,
    FetchAnswered,
    MetadataApplied,
    Offline,
    Produce,
    Replica,
)
from pyreplog.testing import Checker, Stage
from pyreplog.wire import (
    AlterPartitionRequest,
    AlterPartitionResult,
    AlterPartitionTopic,
    FetchPartition,
    PartitionData,
)
from tests.unit.replica.batches import batch

MS = 1_000_000
CLIENT = "client"
"""The source of requests whose answers go to ``results``."""


class GivenLog:
    """The home of a log that the test has made: it survives every end of its node."""

    def __init__(self, node_id: int) -> None:
        self.directory_id = f"0123456789abcdefABC{node_id:02}w"
        self.log: Any = None
        """Given after the node has registered, which would report its end."""

    def open(self) -> tuple[str, int]:
        """Begin a life of the node."""
        return self.directory_id, -1

    def sync(self, files: Sequence[Any], error: int = 0) -> None:
        """End a sync well."""


class Effects(Checker):
    """Keeps the effects of the newest step, and those of all steps that tell of trouble."""

    def __init__(self) -> None:
        self.newest: list[Effect] = []
        self.broken: list[BrokenRule] = []
        self.offline: list[int] = []

    def effect(self, world: Any, machine: Any, effect: Effect) -> None:
        """Note one."""
        self.newest.append(effect)
        if isinstance(effect, BrokenRule):
            self.broken.append(effect)
        elif isinstance(effect, Offline):
            self.offline.append(machine.node_id)


class ReplicaStage(Stage):
    """Nodes 1, 2, ... with these logs. At first no node leads. ``strict``: a broken rule fails the test."""

    def __init__(
        self,
        logs: Mapping[int, Any],
        *,
        replica_class: type[Replica] = Replica,
        strict: bool = True,
        lag_time_max_ms: int = 2000,
        assignment: Sequence[int] = (),
    ) -> None:
        self.logs = dict(logs)
        self.strict = strict
        self.noted = Effects()
        self.numbers = 0
        config = self.logs[1].config
        super().__init__(
            len(assignment or logs),
            min_insync_replicas=config.min_insync_replicas,
            durability=config.durability,
            lag_time_max_ms=lag_time_max_ms,
            replica_class=replica_class,
            checkers=[self.noted],
            home=lambda stage, node_id: GivenLog(node_id),
        )
        for node_id in self.machines:
            self.set_broker(node_id, epoch=node_id)
        self.set_partition(leader=-1, leader_epoch=-1, partition_epoch=-1)
        for node_id in self.logs:
            self._host(node_id)

    def _host(self, node_id: int) -> None:
        actor = self.machines[node_id]
        actor.image = self.image  # every picture is of the present
        actor.home.log = self.logs[node_id]
        actor.host(self.key, self.replica_class, self.config)

    def tell(self, *node_ids: int, count: int = 0) -> None:
        """Tell nothing: see :meth:`show`."""

    # -- looking

    @property
    def replicas(self) -> dict[int, Any]:
        """The replicas, by node."""
        return {node_id: actor.replica for node_id, actor in self.machines.items()}

    @property
    def isr(self) -> list[int]:
        """The ISR as the controller has it."""
        return list(self.partition.isr)

    @property
    def syncs(self) -> dict[int, Any]:
        """The outstanding syncs, by node."""
        return {node_id: actor.syncs for node_id, actor in self.machines.items()}

    @property
    def wakes(self) -> dict[int, int]:
        """When each node asked to be ticked."""
        return {node_id: actor.wake_ns for node_id, actor in self.machines.items() if actor.wake_ns}

    @property
    def fetches(self) -> dict[int, Fetch]:
        """The outstanding fetches, by node."""
        return {node_id: actor.fetch for node_id, actor in self.machines.items() if actor.fetch is not None}

    @property
    def answers(self) -> dict[int, list[FetchAnswered]]:
        """The answers to fetches that are on their way, by node."""
        return {one: [letter.body[0] for letter in self.letters("records", target=one)] for one in self.machines}

    @property
    def proposals(self) -> dict[int, list[AlterPartition]]:
        """The proposals that are on their way, by node."""
        return {one: [letter.body[0] for letter in self.letters("proposal", one)] for one in self.machines}

    @property
    def brokers(self) -> dict[int, BrokerStatus]:
        """The brokers as the controller has them."""
        return {one.broker_id: BrokerStatus(one.epoch, one.active) for one in self.image.brokers.values()}

    def high_watermarks(self) -> list[int]:
        """Return the high watermarks, by node."""
        return [log.high_watermark for log in self.logs.values()]

    def progress(self, follower: int) -> int:
        """Return the end of ``follower`` as the leader knows it."""
        return int(self.replicas[self.leader].role.in_sync_set.followers[follower].leo)

    # -- the controller

    def set_partition(self, **changes: Any) -> None:
        """Replace parts of the partition as the controller has it."""
        self.image.topics[self.key[0]].partitions[0] = self.partition._replace(**changes)

    def set_broker(self, node_id: int, *, epoch: int = -1, eligible: bool = True) -> None:
        """Replace the broker epoch (-1: keep it), and whether the broker is fenced."""
        if epoch >= 0:
            self.machines[node_id].epoch = epoch
        known, now = self.image.brokers[node_id], self.machines[node_id].epoch
        self.image.brokers[node_id] = known._replace(epoch=now, fenced=not eligible)

    def picture(self, node_id: int = 1, **changes: Any) -> MetadataApplied:  # type: ignore[override]
        """Return the event that tells a replica how the partition is now."""
        return self.machines[node_id].metadata(self.key, **changes)

    def show(self, *node_ids: int) -> None:
        """Tell these nodes (none: all) how the partition is now."""
        self._show_each(node_ids or list(self.logs))

    def _show_each(self, node_ids: Sequence[int]) -> None:
        for node_id in node_ids:
            self.step(node_id, self.picture())

    def elect(self, leader: int, *, isr: Sequence[int] | None = None, tell: Sequence[int] | None = None) -> None:
        """Begin a new leader epoch. All nodes learn of it, the leader first, or those in ``tell``."""
        self.authority.write(leader=leader, **({} if isr is None else {"isr": tuple(isr)}))
        order = [leader, *[one for one in self.logs if one != leader]] if tell is None else tell
        self._show_each([one for one in order if one in self.logs])

    def set_isr(self, *isr: int, tell: Sequence[int] = ()) -> None:
        """Change the ISR in the same leader epoch."""
        self.authority.write(isr=isr)
        self._show_each(tell)

    def accept(self, proposal: AlterPartition) -> AlterPartitionResult:
        """Let the controller decide on a proposal. Return its answer, for the test to deliver."""
        topic = AlterPartitionTopic(self.key[0], [proposal.proposal])
        leader = proposal.proposal.new_isr_with_epochs[0].broker_id
        request = AlterPartitionRequest(leader, self.image.brokers[leader].epoch, [topic])
        response = self.controller.alter_partition(request)
        self.authority.take()
        (result,) = response.topics[0].partitions
        return result

    # -- messages

    def step(self, node_id: int, event: Event) -> list[Effect]:  # type: ignore[override]
        """Give one event to one replica. Return its effects."""
        self.noted.newest = []
        super().step(node_id, event)
        assert not (self.strict and self.noted.broken), self.noted.broken
        assert len(self.machines[node_id].syncs) <= 1, "two syncs at once"
        return self.noted.newest

    def take(self, kind: str, source: int = -1, target: int = -1) -> list[Any]:
        """Take messages off their way. Return their contents."""
        found = self.letters(kind, source, target)
        for letter in found:
            self.lose(letter)
        return [letter.body[0] if isinstance(letter.body, tuple) else letter.body for letter in found]

    def take_fetch(self, follower: int) -> Fetch:
        """Take the outstanding fetch of a follower away. Return it."""
        self.take("fetch", follower)
        fetch = self.fetches[follower]
        self.machines[follower].fetch = None
        return fetch

    def present(self, follower: int) -> None:
        """Let the outstanding fetch of a follower arrive (again), unless its answer is on the way already."""
        self.take("fetch", follower)
        fetch = self.fetches[follower]
        if not any(answer.request is fetch.request for answer in self.answers[follower]):
            self.send(follower)
            (letter,) = self.letters("fetch", follower)
            self.deliver(letter)

    def fetch_by_hand(self, follower: int, leader: int, request: FetchPartition, *, epoch: int) -> None:
        """Let a fetch arrive that ``follower`` never made, or made with another broker epoch."""
        actor = self.machines[follower]
        before = actor.fetch, actor.epoch
        actor.fetch, actor.epoch = Fetch(leader, request), epoch
        self.send(follower)
        actor.fetch, actor.epoch = before
        self.deliver(self.flight[-1])

    def answer(self, follower: int) -> PartitionData:
        """Let the oldest answer arrive at a follower."""
        letter = self.letters("records", target=follower)[0]
        self.deliver(letter)
        data: PartitionData = letter.body[0].data
        return data

    def exchange(self, *followers: int) -> None:
        """Let each of these fetch once and get the answer, if it comes."""
        for follower in followers:
            self.present(follower)
            while self.answers[follower]:
                self.answer(follower)

    def settle(self, *node_ids: int, without: Sequence[int] = (), rounds: int = 60) -> None:
        """Let everything happen that can happen between the others, until nothing changes."""
        live = node_ids or [one for one in self.logs if one not in without]
        super().settle(*live, rounds=rounds)
        before = self._shape()
        super().settle(*live, rounds=1)
        assert self._shape() == before, "does not settle"

    def pass_time_to_wake(self, node_id: int) -> None:
        """Let the time come at which a node asked to be ticked."""
        self.pass_time((self.wakes[node_id] - self.now_ns) / MS, node_id)

    # -- clients

    def append(  # type: ignore[override]
        self,
        node_id: int,
        count: int = 1,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        epoch: int = -1,
        tag: bytes = b"",
    ) -> int:
        """Send one batch of ``count`` records. Return its number, under which ``results`` gets the answer."""
        self.numbers += 1
        values = [b"%s%d-%d" % (tag, self.numbers, i) for i in range(count)]
        self.step(node_id, Produce(CLIENT, self.numbers, acks, batch(values), timeout_ms, epoch))
        return self.numbers

    def ask(self, node_id: int, make: Callable[..., Event], *arguments: Any) -> Any:
        """Give a client's request. Return the answer; None if it waits."""
        self.numbers += 1
        self.step(node_id, make(CLIENT, self.numbers, *arguments))
        return self.results.get(self.numbers)

    # -- accidents

    def drop(self, node_id: int) -> None:
        """Forget everything that a node has under way."""
        for kind in ("fetch", "proposal"):
            self.take(kind, node_id)
        self.take("records", target=node_id)
        actor = self.machines[node_id]
        actor.fetch, actor.wake_ns = None, 0
        actor.syncs.clear()

    def restart(self, node_id: int) -> None:
        """Restart the process of a node on its log: a new replica, a new broker epoch."""
        self.drop(node_id)
        self.set_broker(node_id, epoch=max(status.epoch for status in self.brokers.values()) + 1)
        self.machines[node_id].starts += 1
        self._host(node_id)


def led(
    stage: ReplicaStage, committed: int = 0, more: int = 0, *, records: int = 1, isr: Sequence[int] | None = None
) -> ReplicaStage:
    """Node 1 leads, and everybody has fetched once; so many batches of ``records`` are committed, and ``more`` are
    not."""
    stage.elect(1, isr=isr)
    stage.settle()
    for _ in range(committed):
        stage.append(1, records)
    stage.settle()
    for _ in range(more):
        stage.append(1, records)
    return stage


def request(
    offset: int, epoch: int, last: int = -1, *, high_watermark: int = 2**63 - 1, start: int = 0
) -> FetchPartition:
    """Return a follower's fetch, by hand."""
    return FetchPartition(0, epoch, offset, last, start, 1 << 20, high_watermark=high_watermark)
