"""Random walks over a stage: random steps, then all faults heal and the replicas must agree.

A walk is smaller than a world: it has one partition, no clients that retry and no network delays. One schedule is a
hundred times cheaper, so walks find bugs in states that worlds reach too seldom. Each seed draws its own weather,
which is the probability of each action, a slow node and a slow kind of message, because no single weather finds
every bug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar, Final

from pyreplog.replica import AlterPartitionAnswered, Leader
from pyreplog.testing.checkers import InvariantBroken
from pyreplog.testing.known_bad.catalogue import KNOWN_BAD, Variant
from pyreplog.testing.stage import Stage
from pyreplog.testing.stage_node import Envelope
from pyreplog.values import TopicPartition
from pyreplog.wire import ErrorCode

__all__ = ["Walk", "search"]

NAME: Final = TopicPartition("t", 0)
USUAL: Final[Mapping[str, float]] = {
    "append": 10,
    "deliver": 45,
    "send": 5,
    "lose": 2,
    "repeat": 1,
    "sync": 12,
    "tell": 14,
    "skip": 1,
    "fence": 1,
    "unfence": 3,
    "prefer": 1,
    "kill": 1,
    "start": 5,
    "power": 1,
    "stop": 0.3,
    "time": 7,
    "number": 3,
    "look": 2,
    "delete": 0.3,
    "replace": 0.3,
    "refuse": 0.5,
    "retell": 2,
    "time_out": 1,
    "blackout": 0.5,
}
RARER: Final = ("number", "look", "delete", "replace", "refuse")
"""Actions that every other walk leaves out, because they would make the other actions too rare."""
UNBUDGETED: Final = ("retell", "time_out", "blackout")
"""Actions of walks with the true rules alone: the budgets of the known-bad rules were measured without them."""
KINDS: Final = ("fetch", "records", "proposal", "decision")
_LATER: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Error codes after which a producer may send the same batch again."""


class Walk:
    """One random walk.

    ``variant`` is the name of a known-bad rule, whose settings the walk uses; None means the true rules. ``run()``
    returns the stage at the end, or raises :class:`InvariantBroken`. The same seed takes the same steps.
    """

    stage_class: ClassVar[type[Stage]] = Stage

    def __init__(
        self, seed: int, variant: str | None = None, *, steps: int = 400, right: bool = False, **settings: Any
    ) -> None:
        self.seed = seed
        self.steps = steps
        self.random = random = Random(seed)
        replay = f"python -m pyreplog.testing --walk {seed}" + ("" if variant is None else f" --variant {variant}")
        weather: Mapping[str, float] = {}
        if variant is None:
            drawn = {"min_insync_replicas": random.choice([1, 2, 2, 3]), "durability": random.choice(["os", "sync"])}
            self.stage = self.stage_class(**{**drawn, "replay": replay, **settings})
        else:
            found: Variant = KNOWN_BAD[variant]
            self.stage = found.stage(right=right, replay=replay, **settings)
            weather = found.weather
        plain = random.random() < 0.5
        never = (*(RARER if plain else ()), *(() if variant is None else UNBUDGETED))
        self.weights = {
            action: 0 if action in never else weight * random.choice((0.2, 1, 1, 3)) * weather.get(action, 1)
            for action, weight in USUAL.items()
        }
        self.slow_node = random.choice([0, 0, *self.stage.machines])
        self.slow_kind = random.choice(["", "", *KINDS])
        self.deaf_node = random.choice([*[0] * (0 if "deaf" in weather else 3), *self.stage.machines])
        """A node that learns only the newest of several decisions of the controller."""
        self.fenced: dict[int, None] = {}
        self._sequence = 0
        self._producer, self._batch = 100, 0
        self._again: list[int] = []
        """The append number of each time that the idempotent producer sent its newest batch."""
        self._committing: dict[int, None] = {}
        """Those of its append numbers that asked for acks=all."""

    def run(self) -> Stage:
        """Take the steps, heal all faults and check the stage."""
        names, weights = list(self.weights), list(self.weights.values())
        acts: list[Callable[[], None]] = [getattr(self, "_" + name) for name in names]
        for act in self.random.choices(acts, weights, k=self.steps):
            act()
        self.stage.finish()
        return self.stage

    # -- the actions

    def _up(self) -> list[int]:
        return self.stage.up()

    def _append(self) -> None:
        """A producer sends its next batch to a node that believes it is the leader."""
        stage = self.stage
        leaders = self._leading()
        if leaders:
            values = [b"w%d" % (self._sequence + index) for index in range(self.random.choice((1, 1, 2)))]
            self._sequence += len(values)
            stage.append(self.random.choice(leaders), *values, acks=-1 if self.random.random() < 0.8 else 1)

    def _choose(self) -> Envelope | None:
        flight = self.stage.flight
        if not flight:
            return None
        letter = flight[0] if self.random.random() < 0.7 else self.random.choice(flight)
        late = letter.kind == self.slow_kind or self.slow_node in (letter.source, letter.target)
        if late and self.slow_node + len(self.slow_kind) > 0 and self.random.random() < 0.8:
            letter = self.random.choice(flight)
        return letter

    def _deliver(self) -> None:
        letter = self._choose()
        if letter is not None:
            self.stage.deliver(letter)

    def _lose(self) -> None:
        if self.stage.flight:
            self.stage.lose(self.random.choice(self.stage.flight))

    def _repeat(self) -> None:
        """A message arrives, and stays in flight to arrive again."""
        letter = self._choose()
        if letter is not None:
            self.stage.arrive(letter)

    def _send(self) -> None:
        node_id = self.random.choice(list(self.stage.machines))
        if self.random.random() < 0.8:
            self.stage.send(node_id)
        else:
            self.stage.ask_again(node_id)

    def _sync(self) -> None:
        for node_id in self._up()[:]:
            if self.stage.machines[node_id].syncs and self.random.random() < 0.6:
                self.stage.sync(node_id)

    def _tell(self) -> None:
        up = self._up()
        if up:
            node_id = self.random.choice(up)
            actor = self.stage.machines[node_id]
            if node_id == self.deaf_node and actor.told > actor.epoch:
                if self.random.random() < 0.2:
                    self.stage.skip(node_id)
            else:
                self.stage.tell(node_id, count=self.random.choice((1, 1, 2, 9)))

    def _skip(self) -> None:
        up = [one for one in self._up() if self.stage.machines[one].told > self.stage.machines[one].epoch]
        if up:
            self.stage.skip(self.random.choice(up))

    def _retell(self) -> None:
        """A node that hosts the partition hears once more how it is."""
        hosts = [one for one in self._up() if self.stage.machines[one].replica is not None]
        if hosts:
            self.stage.picture(self.random.choice(hosts))

    def _time_out(self) -> None:
        """A leader's proposal gets no answer in time, whether the controller has decided or not."""
        for node_id, actor in self.stage.machines.items():
            role = None if actor.replica is None else actor.replica.role
            if isinstance(role, Leader) and role.in_sync_set.pending is not None:
                token = role.in_sync_set.pending.token
                self.stage.step(node_id, AlterPartitionAnswered(token, ErrorCode.REQUEST_TIMED_OUT))

    def _leading(self) -> list[int]:
        return [
            one for one, actor in self.stage.machines.items() if actor.replica is not None and actor.replica.is_leader
        ]

    def _number(self) -> None:
        """An idempotent producer sends its batch one or more times before it sends the next.

        Sometimes it sends a batch again that was already acknowledged.
        """
        stage, random = self.stage, self.random
        leading = self._leading()
        if not leading:
            return
        codes = [stage.code(number) for number in self._again]
        done = any(code == 0 and number in self._committing for number, code in zip(self._again, codes, strict=True))
        if not self._again or (done and random.random() < 0.5) or any(code not in (None, 0, *_LATER) for code in codes):
            self._batch += 1
            self._again.clear()
            if not done or self._batch > 3:
                self._producer += 1
                self._batch = 0
        acks = random.choice((-1, -1, 1))
        number = stage.append(
            random.choice(leading),
            b"p%d-%d" % (self._producer, self._batch),
            acks=acks,
            numbers=(self._producer, 0, self._batch),
        )
        self._again.append(number)
        if acks == -1:
            self._committing[number] = None

    def _look(self) -> None:
        """A consumer reads from a node that believes it is the leader, and asks the leader for its log end."""
        stage = self.stage
        for node_id in self._leading()[:1]:
            log = stage.log(node_id)
            stage.read(node_id, self.random.randint(log.start_offset, log.end_offset))
        actor = stage.machines.get(stage.leader)
        if (
            actor is not None
            and actor.replica is not None
            and actor.replica.leader_epoch == stage.partition.leader_epoch
        ):
            stage.latest(stage.leader)

    def _delete(self) -> None:
        """A client deletes the oldest records."""
        for node_id in self._leading()[:1]:
            log = self.stage.log(node_id)
            if log.high_watermark > log.start_offset:
                self.stage.delete_records(node_id, self.random.randint(log.start_offset + 1, log.high_watermark))

    def _replace(self) -> None:
        """A replica is removed and comes back empty, if the other ISR members reach the minimum."""
        stage = self.stage
        partition = stage.partition
        if partition.leader < 0 or len(partition.replicas) < 3:
            return
        for node_id in self.random.sample(partition.replicas, len(partition.replicas)):
            rest = [one for one in partition.isr if one != node_id]
            up = stage.machines[node_id].replica is not None
            if up and node_id != partition.leader and not partition.elr and len(rest) >= stage.min_insync_replicas:
                stage.take_away(node_id)
                stage.give_back(node_id)
                stage.skip(node_id)
                return

    def _refuse(self) -> None:
        """A sync fails, and the node then is killed or loses power."""
        syncing = (
            [one for one in self._up() if self.stage.machines[one].syncs] if self.stage.durability == "sync" else []
        )
        if syncing:
            node_id = self.random.choice(syncing)
            self.fenced.pop(node_id, None)
            self.stage.fail_sync(node_id)
            if self.random.random() < 0.5:
                self.stage.kill(node_id)
            else:
                self.stage.lose_power(node_id, chance=Random(self.random.getrandbits(32)))

    def _fence(self) -> None:
        up = [one for one in self._up() if one not in self.fenced]
        if len(up) > 1:
            node_id = self.random.choice(up)
            self.fenced[node_id] = None
            self.stage.fence(node_id)

    def _unfence(self) -> None:
        for node_id in list(self.fenced):
            del self.fenced[node_id]
            if node_id in self._up():
                self.stage.unfence(node_id)
                return

    def _prefer(self) -> None:
        stage = self.stage
        electable = [one for one in stage.partition.isr if stage.image.brokers[one].active]
        if electable and stage.leader >= 0:
            stage.prefer(self.random.choice(electable))

    def _kill(self) -> None:
        up = self._up()
        if up:
            node_id = self.random.choice(up)
            self.fenced.pop(node_id, None)
            self.stage.kill(node_id, tell=self.random.random() < 0.7)

    def _stop(self) -> None:
        up = self._up()
        if up:
            node_id = self.random.choice(up)
            self.fenced.pop(node_id, None)
            self.stage.stop(node_id)

    def _power(self) -> None:
        """A node loses power, if the acknowledgement table allows it.

        Of an ``os`` log, at most ``min.insync.replicas`` - 1 copies may lack records at a time.
        """
        stage = self.stage
        up = self._up()
        if not up:
            return
        node_id = self.random.choice(up)
        if stage.durability == "os":
            self._forget_losses()
            lost = [*stage.lost.get(NAME, ()), node_id]
            members = (*stage.partition.isr, *stage.partition.elr)
            left = [one for one in members if one not in lost]
            if len(dict.fromkeys(lost)) > stage.min_insync_replicas - 1 or not left:
                return
        self.fenced.pop(node_id, None)
        stage.lose_power(node_id, chance=Random(self.random.getrandbits(32)), tell=self.random.random() < 0.7)

    def _blackout(self) -> None:
        """All lose power at once; only a ``sync`` topic promises to survive that."""
        if self.stage.durability == "sync":
            for node_id in self._up():
                self.fenced.pop(node_id, None)
                self.stage.lose_power(node_id, chance=Random(self.random.getrandbits(32)), tell=False)

    def _forget_losses(self) -> None:
        stage = self.stage
        lost = stage.lost.get(NAME, {})
        for node_id in list(lost):
            log = stage.machines[node_id].log
            whole = log is not None and (not log.incomplete or log.reported)
            if whole and stage.leader >= 0 and node_id in stage.partition.isr and stage.is_registered(node_id):
                del lost[node_id]

    def _start(self) -> None:
        down = [node_id for node_id in self.stage.machines if node_id not in self._up()]
        if down:
            self.stage.start(self.random.choice(down))

    def _time(self) -> None:
        self.stage.pass_time(self.random.choice((1, 10, 60, 600, 1500)))


def search(variant: str, budget: int, *, first: int = 0) -> tuple[int, InvariantBroken] | None:
    """Return the first of ``budget`` seeds whose walk shows that known-bad rule, and the error.

    The walk must break one of the invariants named for the rule. Walks that break another invariant prove the
    bug too, but are skipped. Return None if no seed does.
    """
    named = KNOWN_BAD[variant].caught_by
    for seed in range(first, first + budget):
        try:
            Walk(seed, variant).run()
        except InvariantBroken as broken:
            if broken.rule in named:
                return seed, broken
    return None
