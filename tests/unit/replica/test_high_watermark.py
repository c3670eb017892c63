"""The high watermark against its slow twin, whatever happens in whatever order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyreplog.config import LogConfig
from pyreplog.replica import AlterPartitionAnswered, BrokersApplied, Progress
from pyreplog.wire import ErrorCode
from tests.oracle.high_watermark import PlainLeader, Seen
from tests.oracle.memory_log import MemoryLog
from tests.unit.replica.replica_stage import MS, ReplicaStage, request

FOLLOWERS = st.sampled_from([2, 3])


class HighWatermark(RuleBasedStateMachine):
    """Broker 1 leads; its followers fetch from anywhere, syncs end late, proposals are answered late, twice or
    wrongly."""

    @initialize(
        durability=st.sampled_from(["os", "sync"]),
        minimum=st.integers(1, 3),
        isr=st.sampled_from([[1], [1, 2], [1, 2, 3]]),
    )
    def begin(self, durability: Any, minimum: int, isr: list[int]) -> None:
        """A new reign over a log that holds something already."""
        config = LogConfig(durability=durability, min_insync_replicas=minimum)
        log = MemoryLog(config)
        self.stage = stage = ReplicaStage({1: log}, assignment=[1, 2, 3])
        stage.set_partition(leader_epoch=1)
        stage.elect(1, isr=isr)
        lag = stage.config.replica_lag_time_max_ms * MS
        self.plain = PlainLeader(
            [1, 2, 3], list(isr), minimum, lag, stage.now_ns, log.high_watermark, alive={2: 2, 3: 3}
        )
        self.old_answers: list[AlterPartitionAnswered] = []
        self.reign = 0
        self.seen_high_watermark = 0

    def _note(self) -> None:
        """What the leader proposes is what its twin must reckon with. The brokers, told again, make it look at the
        clock now: by itself it looks again at the next fetch, or half a lag later."""
        self.stage.step(1, BrokersApplied(dict(self.stage.brokers)))
        replica = self.stage.replicas[1]
        role: Any = replica.role
        self.plain.committed = list(replica.isr)
        pending = role.in_sync_set.pending
        self.plain.proposed = [s.broker_id for s in pending.data.new_isr_with_epochs] if pending else None
        log = self.stage.logs[1]
        self.plain.candidate(self.stage.now_ns, log.end_offset, log.ack_offset)

    @rule(count=st.integers(1, 3), acks=st.sampled_from([0, 1, -1]))
    def append(self, count: int, acks: int) -> None:
        """A client appends."""
        followers: dict[int, Progress] = self.stage.replicas[1].role.in_sync_set.followers
        waiting = [broker_id for broker_id, follower in followers.items() if follower.delayed_fetch is not None]
        end = self.stage.logs[1].end_offset
        self.stage.append(1, count, acks=acks)
        if self.stage.logs[1].end_offset > end:
            self.plain.append(waiting, self.stage.now_ns)
        self._note()

    @rule(follower=FOLLOWERS, back=st.integers(0, 4), stale=st.booleans())
    def fetch(self, follower: int, back: int, stale: bool) -> None:
        """A follower fetches from somewhere near the end."""
        stage, log = self.stage, self.stage.logs[1]
        bases = [b.base for b in log.batches] + [log.end_offset]
        offset = bases[max(0, len(bases) - 1 - back)]
        epoch = stage.brokers[follower].epoch - stale
        seen = Seen(stage.now_ns, offset, log.end_offset, epoch)
        leader_epoch = stage.partition.leader_epoch
        stage.fetch_by_hand(follower, 1, request(offset, leader_epoch, leader_epoch), epoch=epoch)
        if not stale:
            self.plain.fetch(follower, seen)
        self._note()

    @rule(ms=st.sampled_from([1, 300, 999, 1001, 2500]))
    def wait(self, ms: int) -> None:
        """Time passes."""
        self.stage.pass_time(ms, 1)
        self._note()

    @precondition(lambda self: self.stage.syncs[1])
    @rule()
    def sync(self) -> None:
        """A sync ends."""
        self.stage.sync(1)
        self._note()

    @precondition(lambda self: self.stage.proposals[1])
    @rule(lost=st.booleans())
    def decide(self, lost: bool) -> None:
        """The controller decides; its answer arrives, or much later."""
        proposal = self.stage.take("proposal", 1)[0]
        answered = AlterPartitionAnswered(proposal.token, 0, self.stage.accept(proposal))
        self.old_answers.append(answered)
        if not lost:
            self.stage.step(1, answered)
        self._note()

    @precondition(lambda self: self.old_answers)
    @rule(data=st.data())
    def late_answer(self, data: st.DataObject) -> None:
        """An answer arrives late or again."""
        self.stage.step(1, data.draw(st.sampled_from(self.old_answers)))
        self._note()

    @rule(code=st.sampled_from([ErrorCode.INELIGIBLE_REPLICA, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]))
    def undecided(self, code: int) -> None:
        """A proposal that never reached the controller comes back with an error."""
        if self.stage.proposals[1]:
            self.stage.step(1, AlterPartitionAnswered(self.stage.take("proposal", 1)[0].token, code))
            self._note()

    @rule()
    def metadata(self) -> None:
        """The picture arrives, new or again."""
        self.stage.show(1)
        self._note()

    @rule(follower=FOLLOWERS, eligible=st.booleans(), anew=st.booleans())
    def broker(self, follower: int, eligible: bool, anew: bool) -> None:
        """A follower's broker is fenced, unfenced or registers anew."""
        stage = self.stage
        epoch = max(s.epoch for s in stage.brokers.values()) + 1 if anew else stage.brokers[follower].epoch
        stage.set_broker(follower, epoch=epoch, eligible=eligible)
        self.plain.alive = {b: s.epoch for b, s in stage.brokers.items() if s.eligible}
        stage.step(1, BrokersApplied(dict(stage.brokers)))
        self._note()

    @invariant()
    def agrees(self) -> None:
        """The machine's high watermark is the twin's, never goes back and never passes the ends of those the
        controller counts."""
        if not hasattr(self, "stage"):
            return
        log = self.stage.logs[1]
        assert log.high_watermark == self.plain.high_watermark
        assert log.high_watermark >= self.seen_high_watermark
        if log.high_watermark > self.seen_high_watermark:
            ends = [log.ack_offset] + [self.plain.end(b) for b in self.stage.isr if b != 1]
            assert log.high_watermark <= min(ends), "beyond what the controller's in-sync set has"
            assert log.mark[1] == log.high_watermark
        self.seen_high_watermark = log.high_watermark


HighWatermark.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestHighWatermark = HighWatermark.TestCase
