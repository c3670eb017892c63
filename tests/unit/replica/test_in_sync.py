"""The in-sync set: who leaves, who joins, and how the leader and the controller may miss each other."""

from __future__ import annotations

from pyreplog.config import NodeConfig
from pyreplog.replica import AlterPartitionAnswered, BrokersApplied, BrokerStatus
from pyreplog.wire import ErrorCode
from tests.unit.replica.conftest import MakeStage
from tests.unit.replica.replica_stage import MS, ReplicaStage, led, request

LAG = NodeConfig().replica_lag_time_max_ms


def shrink_to_two(stage: ReplicaStage) -> None:
    """Append one record that only 2 fetches, until 3 is out of the set."""
    stage.append(1, acks=1)
    stage.exchange(2)
    stage.present(2)
    for _ in range(6):
        stage.pass_time(LAG / 2, 1)
        stage.present(2)
    stage.decide(1)
    stage.take("records", target=3)
    assert stage.isr == [1, 2]


def test_a_follower_that_stops_fetching_leaves(make_stage: MakeStage) -> None:
    """A member that lacks something for longer than the lag is proposed out, all such in one step; the mark moves
    only when the controller agreed."""
    stage = led(make_stage(min_insync_replicas=1))
    stage.append(1, acks=1)
    stage.exchange(2)
    stage.present(2)
    for _ in range(6):
        stage.pass_time(LAG / 2, 1)
        stage.present(2)
    assert [s.broker_id for s in stage.proposals[1][0].proposal.new_isr_with_epochs] == [1, 2]
    assert stage.logs[1].high_watermark == 0, "a shrink counts only when it is committed"
    assert tuple(stage.replicas[1].maximal_isr) == (1, 2, 3)
    stage.decide(1)
    assert stage.logs[1].high_watermark == 1
    assert stage.isr == [1, 2]


def test_an_idle_follower_stays(make_stage: MakeStage) -> None:
    """F42: a member that has everything never leaves by time, and an idle partition needs no timer."""
    stage = led(make_stage())
    for _ in range(10):
        stage.pass_time(LAG)
    assert not stage.proposals[1]
    assert not stage.wakes


def test_a_long_silence_is_no_lag(make_stage: MakeStage) -> None:
    """Whose fetch was parked had everything until the append that answered it: from then on it has its full time,
    however long nothing had happened before."""
    stage = led(make_stage(min_insync_replicas=1))
    for _ in range(20):
        stage.pass_time(LAG)
    stage.append(1, acks=1)
    stage.pass_time(LAG * 0.95, 1)
    assert not stage.proposals[1]
    for _ in range(3):
        stage.pass_time(LAG / 2, 1)
    assert [s.broker_id for s in stage.proposals[1][0].proposal.new_isr_with_epochs] == [1]


def test_one_batch_behind_under_load_stays(make_stage: MakeStage) -> None:
    """A follower that always reaches the end of its previous fetch counts as caught up although it never has
    everything."""
    stage = led(make_stage(2, min_insync_replicas=1))
    for _ in range(20):
        stage.append(1, acks=1)
        stage.present(2)
        stage.append(1, acks=1)
        stage.answer(2)
        stage.pass_time(LAG / 4, 1)
    assert not stage.proposals[1]


def test_fetching_without_reaching_the_previous_end_leaves(make_stage: MakeStage) -> None:
    """A follower that fetches all the time but never reaches the end of its previous fetch leaves."""
    stage = led(make_stage(2, min_insync_replicas=1))
    for _ in range(100):
        stage.append(1, 5, acks=1)
    for _ in range(12):
        stage.fetches[2].request.partition_max_bytes = 1
        stage.exchange(2)
        stage.append(1, 5, acks=1)
        stage.pass_time(LAG / 4, 1)
    assert stage.proposals[1]


def test_a_follower_joins_when_it_has_what_was_exposed(make_stage: MakeStage) -> None:
    """A replica outside the set is proposed when its end reached the high watermark and the start of the epoch."""
    stage = led(make_stage(min_insync_replicas=1))
    shrink_to_two(stage)
    for _ in range(3):
        stage.append(1, acks=1)
    stage.exchange(2, 2, 2)
    assert stage.logs[1].high_watermark == 4
    for _ in range(3):
        stage.fetches[3].request.partition_max_bytes = 1
        stage.exchange(3)
        assert not stage.proposals[1]
    stage.exchange(3)
    stage.present(3)
    assert [s.broker_id for s in stage.proposals[1][0].proposal.new_isr_with_epochs] == [1, 2, 3]


def test_the_maximal_set_grows_before_the_answer(make_stage: MakeStage) -> None:
    """A proposed member holds the high watermark back at once: the controller may have accepted it already."""
    stage = make_stage(2, min_insync_replicas=1, lag_time_max_ms=1)
    stage.elect(1, isr=[1])
    stage.exchange(2)
    assert stage.proposals[1]
    assert tuple(stage.replicas[1].maximal_isr) == (1, 2)
    stage.clock.advance(int(100 * MS))
    stage.append(1, acks=1)
    assert stage.logs[1].high_watermark == 0


def test_start_of_epoch_bars_who_lacks_it(make_stage: MakeStage) -> None:
    """F7: a new leader's high watermark may lag behind what was exposed, so nobody joins below the start of its
    epoch."""
    stage = make_stage(4, min_insync_replicas=2)
    stage.elect(1)
    stage.append(1, 10)
    stage.settle()
    stage.append(1, 2)
    stage.exchange(2, 3, 4)
    stage.append(1, 8)
    stage.set_broker(3, eligible=False)
    stage.set_isr(1, 2, 4, tell=[1])
    stage.set_broker(3, eligible=True)
    stage.exchange(2, 4, 2, 4)
    assert (stage.ends(), stage.high_watermarks()[:2]) == ([20, 20, 12, 20], [20, 10])
    stage.elect(2, isr=[2, 4], tell=[2, 3, 4])
    assert stage.logs[2].high_watermark == 10
    stage.present(3)
    assert not stage.proposals[2], "12 is above the high watermark 10, but below the start of the epoch 20"
    stage.answer(3)
    stage.present(3)
    assert [s.broker_id for s in stage.proposals[2][0].proposal.new_isr_with_epochs] == [2, 4, 3]


def test_below_the_minimum_only_the_caught_up_join(make_stage: MakeStage) -> None:
    """E1, F34: while the set is below the minimum the frozen high watermark is no measure: a replica far behind the
    log's end may not join."""
    stage = led(make_stage(2, min_insync_replicas=2))
    stage.append(1, 10)
    stage.settle()
    for _ in range(5):
        stage.append(1, 100, acks=1)
    stage.set_isr(1, tell=[1])
    stage.clock.advance(int((LAG + 1) * MS))
    assert stage.logs[1].high_watermark == 10
    for _ in range(4):
        stage.fetches[2].request.partition_max_bytes = 1
        stage.exchange(2)
        assert not stage.proposals[1]
    stage.exchange(2)
    stage.present(2)
    assert stage.proposals[1]


def test_a_fenced_broker_is_not_proposed(make_stage: MakeStage) -> None:
    """A replica that is fenced, shutting down, or of another incarnation than the registered one does not join;
    when that ends it does."""
    stage = make_stage(min_insync_replicas=1)
    stage.set_broker(3, eligible=False)
    stage.elect(1, isr=[1])
    stage.present(3)
    assert not stage.proposals[1]
    stage.set_broker(3, epoch=9, eligible=True)
    stage.step(1, BrokersApplied(dict(stage.brokers)))
    assert not stage.proposals[1], "the fetch came from an older incarnation"
    stage.present(3)
    assert [s.broker_epoch for s in stage.proposals[1][0].proposal.new_isr_with_epochs] == [1, 9]


def test_fetches_of_a_former_incarnation_are_refused(make_stage: MakeStage) -> None:
    """A fetch with an older broker epoch than the registered one gets an error and moves nothing."""
    stage = led(make_stage(min_insync_replicas=1))
    stage.append(1, acks=1)
    stage.set_broker(3, epoch=9, eligible=True)
    stage.step(1, BrokersApplied(dict(stage.brokers)))
    stage.fetch_by_hand(3, 1, request(1, 0, 0), epoch=8)
    assert stage.answers[3][-1].data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.progress(3) == 0


def test_ineligible_answer_goes_back_and_does_not_storm(make_stage: MakeStage) -> None:
    """F29: INELIGIBLE_REPLICA takes the leader back to the committed set, and the same replica is not proposed
    again at every fetch."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1, isr=[1])
    stage.present(2)
    stage.set_broker(2, eligible=False)
    stage.decide(1)
    assert tuple(stage.replicas[1].maximal_isr) == (1,)
    for _ in range(20):
        stage.pass_time(10, 1)
        stage.present(2)
    assert not stage.proposals[1]
    stage.pass_time(500, 1)
    assert stage.wakes.get(1, stage.now_ns + 1) > stage.now_ns, "looked for once, and not at every turn from now on"
    stage.present(2)
    assert len(stage.proposals[1]) == 1


def test_unanswered_proposal_is_sent_again_unchanged(make_stage: MakeStage) -> None:
    """Timeouts and NOT_CONTROLLER repeat the very same proposal 50 ms later; the maximal set stays wide
    meanwhile."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1, isr=[1])
    stage.present(2)
    first = stage.take("proposal", 1)[0]
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH):
        stage.step(1, AlterPartitionAnswered(first.token, code))
        assert not stage.proposals[1]
        stage.pass_time(50, 1)
        again = stage.take("proposal", 1)[0]
        assert (again.token, again.proposal) == (first.token, first.proposal)
        assert tuple(stage.replicas[1].maximal_isr) == (1, 2)


def test_fenced_answer_stays_pending_until_metadata(make_stage: MakeStage) -> None:
    """F37: answers that say "your picture is old" leave the proposal pending: only metadata resolves it."""
    for code in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
    ):
        stage = make_stage(2, min_insync_replicas=1)
        stage.elect(1, isr=[1])
        stage.present(2)
        proposal = stage.take("proposal", 1)[0]
        stage.step(1, AlterPartitionAnswered(proposal.token, code))
        stage.pass_time(1000, 1)
        assert not stage.proposals[1]
        assert tuple(stage.replicas[1].maximal_isr) == (1, 2)
        stage.set_isr(1, tell=[1])
        assert stage.take("proposal", 1)[0].token > proposal.token, "the old one is dead, a new one may be made"


def test_metadata_replay_keeps_the_pending_proposal(make_stage: MakeStage) -> None:
    """N2, P3: metadata of a partition epoch that the leader knows already (from the answer) leaves a newer pending
    proposal alone."""
    stage = led(make_stage(min_insync_replicas=1))
    stage.append(1, acks=1)
    stage.exchange(2)
    for _ in range(6):
        stage.pass_time(LAG / 2, 1)
        stage.present(2)
    stage.decide(1)  # the shrink of 3, known from the answer
    record = stage.picture()
    stage.exchange(3)
    stage.present(3)
    assert tuple(stage.replicas[1].maximal_isr) == (1, 2, 3), "3 is proposed again"
    stage.step(1, record)  # only now comes the metadata of the shrink
    assert tuple(stage.replicas[1].maximal_isr) == (1, 2, 3)
    stage.accept(stage.proposals[1][0])  # accepted; the answer is on its way
    stage.clock.advance(int(2 * LAG * MS))
    number = stage.append(1)
    stage.exchange(2)
    stage.present(2)
    assert stage.code(number) is None, "3 may be elected from now on, and has not got it"
    assert stage.logs[1].high_watermark == 1


def test_late_answer_of_an_earlier_proposal_is_ignored(make_stage: MakeStage) -> None:
    """N3, P2: the answer of an earlier proposal does not settle the pending one, whatever partition epoch it
    carries."""
    stage = led(make_stage(min_insync_replicas=1))
    stage.append(1, acks=1)
    stage.exchange(2)
    for _ in range(6):
        stage.pass_time(LAG / 2, 1)
        stage.present(2)
    first = stage.take("proposal", 1)[0]
    late = stage.accept(first)
    stage.show(1)  # the leader learns of the shrink by metadata
    stage.exchange(3)
    stage.present(3)
    second = stage.take("proposal", 1)[0]
    assert second.token != first.token
    stage.step(1, AlterPartitionAnswered(first.token, 0, late))
    assert tuple(stage.replicas[1].maximal_isr) == (1, 2, 3)
    assert stage.replicas[1].isr == (1, 2)
    assert not stage.proposals[1], "the second one is still pending: nothing is proposed in its place"


def test_answer_of_a_former_reign_is_ignored(make_stage: MakeStage) -> None:
    """F38: an answer that arrives after the leader resigned and was elected again finds no proposal to settle."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1, isr=[1])
    stage.present(2)
    proposal = stage.take("proposal", 1)[0]
    result = stage.accept(proposal)
    stage.elect(2, isr=[1, 2])
    stage.elect(1, isr=[1])
    stage.step(1, AlterPartitionAnswered(proposal.token, 0, result))
    assert tuple(stage.replicas[1].isr) == (1,)


def test_newer_metadata_kills_the_proposal(make_stage: MakeStage) -> None:
    """P1(b), F27: a picture with a greater partition epoch than the proposal's base settles it: accepted or dead;
    its answer then is too late."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1, isr=[1])
    stage.present(2)
    proposal = stage.take("proposal", 1)[0]
    result = stage.accept(proposal)
    stage.show(1)
    assert tuple(stage.replicas[1].isr) == (1, 2)
    stage.set_isr(1, tell=[1])
    stage.step(1, AlterPartitionAnswered(proposal.token, 0, result))
    assert tuple(stage.replicas[1].isr) == (1,)


def test_unknown_end_holds_the_mark(make_stage: MakeStage) -> None:
    """F41: a member that has not fetched in this epoch holds the high watermark where it is, neither negative nor
    lowered."""
    stage = led(make_stage(min_insync_replicas=1))
    stage.append(1, 5)
    stage.settle()
    assert stage.logs[1].high_watermark == 5
    stage.elect(1)
    stage.append(1, acks=1)
    assert stage.logs[1].high_watermark == 5
    stage.exchange(2)
    stage.present(2)
    assert stage.logs[1].high_watermark == 5
    assert stage.progress(3) == -1


def test_a_member_that_went_back_does_not_lower_the_mark(make_stage: MakeStage) -> None:
    """F41: a member that reports a lower end than before does not lower the high watermark."""
    stage = led(make_stage(min_insync_replicas=1))
    stage.append(1, 5)
    stage.settle()
    stage.fetch_by_hand(3, 1, request(2, 0, 0), epoch=3)
    assert stage.progress(3) == 2
    assert stage.logs[1].high_watermark == 5


def test_nothing_is_trusted_across_epochs(make_stage: MakeStage) -> None:
    """N1, R0: what a leader knew of a follower in an earlier epoch does not count when it leads again, even if it
    never saw the epoch between."""
    stage = led(make_stage(min_insync_replicas=2))
    stage.append(1, 5)
    stage.settle()
    waiting = stage.append(1, 3)
    stage.exchange(2)
    stage.present(2)
    assert stage.progress(2) == 8
    stage.elect(3, tell=[2, 3])  # 1 does not hear of it
    stage.exchange(2)
    assert stage.logs[2].end_offset == 5, "truncated against 3"
    stage.elect(1, isr=[1, 2], tell=[1, 2])
    assert stage.logs[1].high_watermark == 5
    assert stage.progress(2) == -1
    assert stage.code(waiting) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    stage.settle(without=[3])
    assert stage.logs[2].end_offset == 8
    assert stage.logs[1].high_watermark == 8


def test_members_known_by_metadata_only_carry_its_broker_epoch(make_stage: MakeStage) -> None:
    """A proposal never carries broker epoch -1: a member that has not fetched here yet goes with the one the
    metadata has."""
    stage = make_stage(min_insync_replicas=1)
    stage.elect(1, isr=[1, 2])
    stage.present(3)
    states = stage.proposals[1][0].proposal.new_isr_with_epochs
    assert [(s.broker_id, s.broker_epoch) for s in states] == [(1, 1), (2, 2), (3, 3)]


def test_a_joining_replica_under_load_is_waited_for(make_stage: MakeStage) -> None:
    """A replica outside the set that is caught up and eligible holds the mark, so that it can reach it under load;
    when it dies it is let go."""
    stage = led(make_stage(2, min_insync_replicas=1), isr=[1])
    stage.settle()
    stage.set_isr(1, tell=[1])
    stage.step(1, BrokersApplied({1: BrokerStatus(1, eligible=True), 2: BrokerStatus(2, eligible=True)}))
    stage.take("proposal", 1)
    stage.set_isr(1, tell=[1])
    stage.take("proposal", 1)
    number = stage.append(1)
    assert stage.code(number) is None
    stage.take("proposal", 1)
    stage.set_isr(1, tell=[1])
    for _ in range(4):
        stage.pass_time(LAG, 1)
    assert stage.code(number) == 0


def test_a_new_replica_is_answered_once_the_leader_knows_it(make_stage: MakeStage) -> None:
    """A fetch of a broker that is not among the replicas gets UNKNOWN_LEADER_EPOCH; after the reassignment it
    starts from nothing."""
    stage = make_stage(min_insync_replicas=1)
    stage.set_partition(replicas=(1, 2), isr=(1, 2))
    stage.elect(1, isr=[1, 2], tell=[1, 2])
    stage.fetch_by_hand(3, 1, request(0, 0), epoch=3)
    assert stage.take("records", target=3)[-1].data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    stage.set_partition(replicas=(1, 2, 3))
    stage.set_isr(1, 2, tell=[1, 2, 3])
    assert stage.progress(3) == -1
    stage.settle()
    assert stage.isr == [1, 2, 3]
