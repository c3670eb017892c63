"""The in-sync set: who leaves, who joins, and how the leader and the controller may miss each other."""

from __future__ import annotations

from pyreplog.config import NodeConfig
from pyreplog.replica import AlterPartitionAnswered, BrokersApplied, BrokerStatus, FollowerFetch
from pyreplog.wire import ErrorCode
from tests.replica.conftest import MakeHarness
from tests.replica.replica_harness import MS, ReplicaHarness, led, request

LAG = NodeConfig().replica_lag_time_max_ms


def shrink_to_two(harness: ReplicaHarness) -> None:
    """Append one record that only 2 fetches, until 3 is out of the set."""
    harness.append(1, acks=1)
    harness.exchange(2)
    harness.present(2)
    for _ in range(6):
        harness.pass_time(LAG / 2, 1)
        harness.present(2)
    harness.decide(1)
    harness.answers[3].clear()
    assert harness.isr == [1, 2]


def test_a_follower_that_stops_fetching_leaves(make_harness: MakeHarness) -> None:
    """A member that lacks something for longer than the lag is proposed out, all such in one step; the mark moves
    only when the controller agreed."""
    harness = led(make_harness(min_insync_replicas=1))
    harness.append(1, acks=1)
    harness.exchange(2)
    harness.present(2)
    for _ in range(6):
        harness.pass_time(LAG / 2, 1)
        harness.present(2)
    assert [s.broker_id for s in harness.proposals[1][0].proposal.new_isr_with_epochs] == [1, 2]
    assert harness.logs[1].high_watermark == 0, "a shrink counts only when it is committed"
    assert tuple(harness.replicas[1].maximal_isr) == (1, 2, 3)
    harness.decide(1)
    assert harness.logs[1].high_watermark == 1
    assert harness.isr == [1, 2]


def test_an_idle_follower_stays(make_harness: MakeHarness) -> None:
    """F42: a member that has everything never leaves by time, and an idle partition needs no timer."""
    harness = led(make_harness())
    for _ in range(10):
        harness.pass_time(LAG)
    assert not harness.proposals[1]
    assert not harness.wakes


def test_a_long_silence_is_no_lag(make_harness: MakeHarness) -> None:
    """Whose fetch was parked had everything until the append that answered it: from then on it has its full time,
    however long nothing had happened before."""
    harness = led(make_harness(min_insync_replicas=1))
    for _ in range(20):
        harness.pass_time(LAG)
    harness.append(1, acks=1)
    harness.pass_time(LAG * 0.95, 1)
    assert not harness.proposals[1]
    for _ in range(3):
        harness.pass_time(LAG / 2, 1)
    assert [s.broker_id for s in harness.proposals[1][0].proposal.new_isr_with_epochs] == [1]


def test_one_batch_behind_under_load_stays(make_harness: MakeHarness) -> None:
    """A follower that always reaches the end of its previous fetch counts as caught up although it never has
    everything."""
    harness = led(make_harness(2, min_insync_replicas=1))
    for _ in range(20):
        harness.append(1, acks=1)
        harness.present(2)
        harness.append(1, acks=1)
        harness.answer(2)
        harness.pass_time(LAG / 4, 1)
    assert not harness.proposals[1]


def test_fetching_without_reaching_the_previous_end_leaves(make_harness: MakeHarness) -> None:
    """A follower that fetches all the time but never reaches the end of its previous fetch leaves."""
    harness = led(make_harness(2, min_insync_replicas=1))
    for _ in range(100):
        harness.append(1, 5, acks=1)
    for _ in range(12):
        harness.fetches[2].request.partition_max_bytes = 1
        harness.exchange(2)
        harness.append(1, 5, acks=1)
        harness.pass_time(LAG / 4, 1)
    assert harness.proposals[1]


def test_a_follower_joins_when_it_has_what_was_exposed(make_harness: MakeHarness) -> None:
    """A replica outside the set is proposed when its end reached the high watermark and the start of the epoch."""
    harness = led(make_harness(min_insync_replicas=1))
    shrink_to_two(harness)
    for _ in range(3):
        harness.append(1, acks=1)
    harness.exchange(2, 2, 2)
    assert harness.logs[1].high_watermark == 4
    for _ in range(3):
        harness.fetches[3].request.partition_max_bytes = 1
        harness.exchange(3)
        assert not harness.proposals[1]
    harness.exchange(3)
    harness.present(3)
    assert [s.broker_id for s in harness.proposals[1][0].proposal.new_isr_with_epochs] == [1, 2, 3]


def test_the_maximal_set_grows_before_the_answer(make_harness: MakeHarness) -> None:
    """A proposed member holds the high watermark back at once: the controller may have accepted it already."""
    harness = make_harness(2, min_insync_replicas=1, node_config=NodeConfig(replica_lag_time_max_ms=1))
    harness.elect(1, isr=[1])
    harness.exchange(2)
    assert harness.proposals[1]
    assert tuple(harness.replicas[1].maximal_isr) == (1, 2)
    harness.now += 100 * MS
    harness.append(1, acks=1)
    assert harness.logs[1].high_watermark == 0


def test_start_of_epoch_bars_who_lacks_it(make_harness: MakeHarness) -> None:
    """F7: a new leader's high watermark may lag behind what was exposed, so nobody joins below the start of its
    epoch."""
    harness = make_harness(4, min_insync_replicas=2)
    harness.elect(1)
    harness.append(1, 10)
    harness.settle()
    harness.append(1, 2)
    harness.exchange(2, 3, 4)
    harness.append(1, 8)
    harness.brokers[3] = BrokerStatus(3, eligible=False)
    harness.set_isr(1, 2, 4, tell=[1])
    harness.brokers[3] = BrokerStatus(3, eligible=True)
    harness.exchange(2, 4, 2, 4)
    assert (harness.ends(), harness.high_watermarks()[:2]) == ([20, 20, 12, 20], [20, 10])
    harness.elect(2, isr=[2, 4], tell=[2, 3, 4])
    assert harness.logs[2].high_watermark == 10
    harness.present(3)
    assert not harness.proposals[2], "12 is above the high watermark 10, but below the start of the epoch 20"
    harness.answer(3)
    harness.present(3)
    assert [s.broker_id for s in harness.proposals[2][0].proposal.new_isr_with_epochs] == [2, 4, 3]


def test_below_the_minimum_only_the_caught_up_join(make_harness: MakeHarness) -> None:
    """E1, F34: while the set is below the minimum the frozen high watermark is no measure: a replica far behind the
    log's end may not join."""
    harness = led(make_harness(2, min_insync_replicas=2))
    harness.append(1, 10)
    harness.settle()
    for _ in range(5):
        harness.append(1, 100, acks=1)
    harness.set_isr(1, tell=[1])
    harness.now += (LAG + 1) * MS
    assert harness.logs[1].high_watermark == 10
    for _ in range(4):
        harness.fetches[2].request.partition_max_bytes = 1
        harness.exchange(2)
        assert not harness.proposals[1]
    harness.exchange(2)
    harness.present(2)
    assert harness.proposals[1]


def test_a_fenced_broker_is_not_proposed(make_harness: MakeHarness) -> None:
    """A replica that is fenced, shutting down, or of another incarnation than the registered one does not join;
    when that ends it does."""
    harness = make_harness(min_insync_replicas=1)
    harness.brokers[3] = BrokerStatus(3, eligible=False)
    harness.elect(1, isr=[1])
    harness.present(3)
    assert not harness.proposals[1]
    harness.brokers[3] = BrokerStatus(9, eligible=True)
    harness.step(1, BrokersApplied(dict(harness.brokers)))
    assert not harness.proposals[1], "the fetch came from an older incarnation"
    harness.present(3)
    assert [s.broker_epoch for s in harness.proposals[1][0].proposal.new_isr_with_epochs] == [1, 9]


def test_fetches_of_a_former_incarnation_are_refused(make_harness: MakeHarness) -> None:
    """A fetch with an older broker epoch than the registered one gets an error and moves nothing."""
    harness = led(make_harness(min_insync_replicas=1))
    harness.append(1, acks=1)
    harness.brokers[3] = BrokerStatus(9, eligible=True)
    harness.step(1, BrokersApplied(dict(harness.brokers)))
    harness.step(1, FollowerFetch("3", 0, request(1, 0, 0), 3, 8))
    assert harness.answers[3][-1].data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.progress(3) == 0


def test_ineligible_answer_goes_back_and_does_not_storm(make_harness: MakeHarness) -> None:
    """F29: INELIGIBLE_REPLICA takes the leader back to the committed set, and the same replica is not proposed
    again at every fetch."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1, isr=[1])
    harness.present(2)
    harness.brokers[2] = BrokerStatus(2, eligible=False)
    harness.decide(1)
    assert tuple(harness.replicas[1].maximal_isr) == (1,)
    for _ in range(20):
        harness.pass_time(10, 1)
        harness.present(2)
    assert not harness.proposals[1]
    harness.pass_time(500, 1)
    assert harness.wakes.get(1, harness.now + 1) > harness.now, "looked for once, and not at every turn from now on"
    harness.present(2)
    assert len(harness.proposals[1]) == 1


def test_unanswered_proposal_is_sent_again_unchanged(make_harness: MakeHarness) -> None:
    """Timeouts and NOT_CONTROLLER repeat the very same proposal 50 ms later; the maximal set stays wide
    meanwhile."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1, isr=[1])
    harness.present(2)
    first = harness.proposals[1].pop()
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH):
        harness.step(1, AlterPartitionAnswered(first.token, code))
        assert not harness.proposals[1]
        harness.pass_time(50, 1)
        again = harness.proposals[1].pop()
        assert (again.token, again.proposal) == (first.token, first.proposal)
        assert tuple(harness.replicas[1].maximal_isr) == (1, 2)


def test_fenced_answer_stays_pending_until_metadata(make_harness: MakeHarness) -> None:
    """F37: answers that say "your picture is old" leave the proposal pending: only metadata resolves it."""
    for code in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
    ):
        harness = make_harness(2, min_insync_replicas=1)
        harness.elect(1, isr=[1])
        harness.present(2)
        proposal = harness.proposals[1].pop()
        harness.step(1, AlterPartitionAnswered(proposal.token, code))
        harness.pass_time(1000, 1)
        assert not harness.proposals[1]
        assert tuple(harness.replicas[1].maximal_isr) == (1, 2)
        harness.set_isr(1, tell=[1])
        assert harness.proposals[1].pop().token > proposal.token, "the old one is dead, a new one may be made"


def test_metadata_replay_keeps_the_pending_proposal(make_harness: MakeHarness) -> None:
    """N2, P3: metadata of a partition epoch that the leader knows already (from the answer) leaves a newer pending
    proposal alone."""
    harness = led(make_harness(min_insync_replicas=1))
    harness.append(1, acks=1)
    harness.exchange(2)
    for _ in range(6):
        harness.pass_time(LAG / 2, 1)
        harness.present(2)
    harness.decide(1)  # the shrink of 3, known from the answer
    record = harness.picture()
    harness.exchange(3)
    harness.present(3)
    assert tuple(harness.replicas[1].maximal_isr) == (1, 2, 3), "3 is proposed again"
    harness.step(1, record)  # only now comes the metadata of the shrink
    assert tuple(harness.replicas[1].maximal_isr) == (1, 2, 3)
    harness.accept(harness.proposals[1][0])  # accepted; the answer is on its way
    harness.now += 2 * LAG * MS
    number = harness.append(1)
    harness.exchange(2)
    harness.present(2)
    assert harness.code(number) is None, "3 may be elected from now on, and has not got it"
    assert harness.logs[1].high_watermark == 1


def test_late_answer_of_an_earlier_proposal_is_ignored(make_harness: MakeHarness) -> None:
    """N3, P2: the answer of an earlier proposal does not settle the pending one, whatever partition epoch it
    carries."""
    harness = led(make_harness(min_insync_replicas=1))
    harness.append(1, acks=1)
    harness.exchange(2)
    for _ in range(6):
        harness.pass_time(LAG / 2, 1)
        harness.present(2)
    first = harness.proposals[1].pop()
    late = harness.accept(first)
    harness.tell(1)  # the leader learns of the shrink by metadata
    harness.exchange(3)
    harness.present(3)
    second = harness.proposals[1].pop()
    assert second.token != first.token
    harness.step(1, AlterPartitionAnswered(first.token, 0, late))
    assert tuple(harness.replicas[1].maximal_isr) == (1, 2, 3)
    assert harness.replicas[1].isr == (1, 2)
    assert not harness.proposals[1], "the second one is still pending: nothing is proposed in its place"


def test_answer_of_a_former_reign_is_ignored(make_harness: MakeHarness) -> None:
    """F38: an answer that arrives after the leader resigned and was elected again finds no proposal to settle."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1, isr=[1])
    harness.present(2)
    proposal = harness.proposals[1].pop()
    result = harness.accept(proposal)
    harness.elect(2, isr=[1, 2])
    harness.elect(1, isr=[1])
    harness.step(1, AlterPartitionAnswered(proposal.token, 0, result))
    assert tuple(harness.replicas[1].isr) == (1,)


def test_newer_metadata_kills_the_proposal(make_harness: MakeHarness) -> None:
    """P1(b), F27: a picture with a greater partition epoch than the proposal's base settles it: accepted or dead;
    its answer then is too late."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1, isr=[1])
    harness.present(2)
    proposal = harness.proposals[1].pop()
    result = harness.accept(proposal)
    harness.tell(1)
    assert tuple(harness.replicas[1].isr) == (1, 2)
    harness.set_isr(1, tell=[1])
    harness.step(1, AlterPartitionAnswered(proposal.token, 0, result))
    assert tuple(harness.replicas[1].isr) == (1,)


def test_unknown_end_holds_the_mark(make_harness: MakeHarness) -> None:
    """F41: a member that has not fetched in this epoch holds the high watermark where it is, neither negative nor
    lowered."""
    harness = led(make_harness(min_insync_replicas=1))
    harness.append(1, 5)
    harness.settle()
    assert harness.logs[1].high_watermark == 5
    harness.elect(1)
    harness.append(1, acks=1)
    assert harness.logs[1].high_watermark == 5
    harness.exchange(2)
    harness.present(2)
    assert harness.logs[1].high_watermark == 5
    assert harness.progress(3) == -1


def test_a_member_that_went_back_does_not_lower_the_mark(make_harness: MakeHarness) -> None:
    """F41: a member that reports a lower end than before does not lower the high watermark."""
    harness = led(make_harness(min_insync_replicas=1))
    harness.append(1, 5)
    harness.settle()
    harness.step(1, FollowerFetch("3", 0, request(2, 0, 0), 3, 3))
    assert harness.progress(3) == 2
    assert harness.logs[1].high_watermark == 5


def test_nothing_is_trusted_across_epochs(make_harness: MakeHarness) -> None:
    """N1, R0: what a leader knew of a follower in an earlier epoch does not count when it leads again, even if it
    never saw the epoch between."""
    harness = led(make_harness(min_insync_replicas=2))
    harness.append(1, 5)
    harness.settle()
    waiting = harness.append(1, 3)
    harness.exchange(2)
    harness.present(2)
    assert harness.progress(2) == 8
    harness.elect(3, tell=[2, 3])  # 1 does not hear of it
    harness.exchange(2)
    assert harness.logs[2].end_offset == 5, "truncated against 3"
    harness.elect(1, isr=[1, 2], tell=[1, 2])
    assert harness.logs[1].high_watermark == 5
    assert harness.progress(2) == -1
    assert harness.code(waiting) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    harness.settle(without=[3])
    assert harness.logs[2].end_offset == 8
    assert harness.logs[1].high_watermark == 8


def test_members_known_by_metadata_only_carry_its_broker_epoch(make_harness: MakeHarness) -> None:
    """A proposal never carries broker epoch -1: a member that has not fetched here yet goes with the one the
    metadata has."""
    harness = make_harness(min_insync_replicas=1)
    harness.elect(1, isr=[1, 2])
    harness.present(3)
    states = harness.proposals[1][0].proposal.new_isr_with_epochs
    assert [(s.broker_id, s.broker_epoch) for s in states] == [(1, 1), (2, 2), (3, 3)]


def test_a_joining_replica_under_load_is_waited_for(make_harness: MakeHarness) -> None:
    """A replica outside the set that is caught up and eligible holds the mark, so that it can reach it under load;
    when it dies it is let go."""
    harness = led(make_harness(2, min_insync_replicas=1), isr=[1])
    harness.settle()
    harness.set_isr(1, tell=[1])
    harness.step(1, BrokersApplied({1: BrokerStatus(1, eligible=True), 2: BrokerStatus(2, eligible=True)}))
    harness.proposals[1].clear()
    harness.set_isr(1, tell=[1])
    harness.proposals[1].clear()
    number = harness.append(1)
    assert harness.code(number) is None
    harness.proposals[1].clear()
    harness.set_isr(1, tell=[1])
    for _ in range(4):
        harness.pass_time(LAG, 1)
    assert harness.code(number) == 0


def test_a_new_replica_is_answered_once_the_leader_knows_it(make_harness: MakeHarness) -> None:
    """A fetch of a broker that is not among the replicas gets UNKNOWN_LEADER_EPOCH; after the reassignment it
    starts from nothing."""
    harness = make_harness(min_insync_replicas=1)
    harness.assignment = [1, 2]
    harness.elect(1, isr=[1, 2], tell=[1, 2])
    harness.step(1, FollowerFetch("3", 0, request(0, 0), 3, 3))
    harness.fetches[3] = harness.fetches[2]
    harness.step(1, FollowerFetch("3", 0, request(0, 0), 3, 3))
    assert harness.answers[3].pop().data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    harness.assignment = [1, 2, 3]
    harness.set_isr(1, 2, tell=[1, 2, 3])
    assert harness.progress(3) == -1
    harness.settle()
    assert harness.isr == [1, 2, 3]
