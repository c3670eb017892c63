"""Partitions that get other replicas: what each request begins, what completes it, what cancels it."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.controller import FEATURE, MetadataImage, PartitionKey
from pyreplog.wire import (
    AlterPartitionReassignmentsRequest,
    ErrorCode,
    FeatureLevelRecord,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    PartitionRecord,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    TopicRecord,
)
from tests.unit.controller.controller_setup import ControllerSetup

BROKERS = (1, 2, 3, 4, 5, 6)


def reassign(setup: ControllerSetup, *replicas: int, topic: str = "t", grow: bool = True) -> int:
    """Ask for these replicas; the error code."""
    return result_of(setup, list(replicas), topic, grow=grow).error_code


def cancel(setup: ControllerSetup) -> int:
    """Ask to cancel; the error code."""
    return result_of(setup, None).error_code


def result_of(
    setup: ControllerSetup, replicas: list[int] | None, topic: str = "t", *, grow: bool = True
) -> ReassignablePartitionResponse:
    """The result of one request."""
    request = AlterPartitionReassignmentsRequest(
        [ReassignableTopic(topic, [ReassignablePartition(0, replicas)])], allow_replication_factor_change=grow
    )
    return setup.controller.alter_reassignments(request).responses[0].partitions[0]


def state(setup: ControllerSetup, key: PartitionKey) -> tuple[tuple[int, ...], ...]:
    """Replicas, ISR, those that come and those that go."""
    one = setup[key]
    return one.replicas, one.isr, one.adding, one.removing


def made(brokers: tuple[int, ...] = BROKERS) -> tuple[ControllerSetup, PartitionKey]:
    """A cluster of six with a topic on the first three nodes."""
    setup = ControllerSetup(brokers)
    return setup, setup.topic()


def test_replicas_are_added_first_and_removed_when_all_are_in_sync() -> None:
    """2.14: the target first, then those that go; the record that completes the in-sync set ends it, in a new
    leader epoch, because a replica goes."""
    setup, key = made()
    before = setup[key]
    assert reassign(setup, 4, 1, 5) == 0
    assert state(setup, key) == ((4, 1, 5, 2, 3), (1, 2, 3), (4, 5), (2, 3))
    begun = setup[key]
    assert (begun.leader, begun.leader_epoch) == (1, before.leader_epoch)
    assert begun.partition_epoch == before.partition_epoch + 1
    setup.propose(key, [1, 2, 3, 4])
    assert state(setup, key) == ((4, 1, 5, 2, 3), (1, 2, 3, 4), (4, 5), (2, 3))
    result = setup.propose(key, [1, 2, 3, 4, 5])
    assert state(setup, key) == ((4, 1, 5), (1, 4, 5), (), ())
    assert (setup[key].leader, setup[key].leader_epoch) == (1, before.leader_epoch + 1)
    assert (tuple(result.isr), result.leader_epoch) == ((1, 4, 5), before.leader_epoch + 1)


def test_a_leader_that_goes_is_replaced_in_the_same_record() -> None:
    """By the first live replica that stays."""
    setup, key = made()
    assert reassign(setup, 5, 6, 2) == 0
    setup.propose(key, [1, 2, 3, 5, 6])
    assert state(setup, key) == ((5, 6, 2), (2, 5, 6), (), ())
    assert setup[key].leader == 5


def test_fewer_replicas_are_one_record() -> None:
    """Nothing has to catch up."""
    setup, key = made()
    before = setup[key]
    assert reassign(setup, 3) == 0
    assert state(setup, key) == ((3,), (3,), (), ())
    assert (setup[key].leader, setup[key].leader_epoch) == (3, before.leader_epoch + 1)
    assert setup[key].partition_epoch == before.partition_epoch + 1


def test_another_order_is_one_record_and_no_new_epoch() -> None:
    """It moves no data; the leader stays until the preferred one is elected."""
    setup, key = made()
    before = setup[key]
    assert reassign(setup, 3, 1, 2) == 0
    assert state(setup, key) == ((3, 1, 2), (1, 2, 3), (), ())
    assert (setup[key].leader, setup[key].leader_epoch) == (before.leader, before.leader_epoch)


def test_a_replica_that_stays_but_is_away_holds_the_end_back() -> None:
    """Otherwise the set could fall below what it was before."""
    setup, key = made()
    setup.kill(3)
    assert reassign(setup, 1, 3, 4) == 0
    setup.propose(key, [1, 2, 4])
    assert state(setup, key) == ((1, 3, 4, 2), (1, 2, 4), (4,), (2,))
    setup.up(3)
    setup.propose(key, [1, 2, 4, 3])
    assert state(setup, key) == ((1, 3, 4), (1, 4, 3), (), ())


def test_a_dead_node_is_replaced_from_the_others() -> None:
    """It is not in sync, and need not be."""
    setup, key = made()
    setup.kill(3)
    assert reassign(setup, 1, 2, 6) == 0
    setup.propose(key, [1, 2, 6])
    assert state(setup, key) == ((1, 2, 6), (1, 2, 6), (), ())


def test_a_second_request_is_computed_against_all_replicas() -> None:
    """One that was being added and is not wanted any more goes like the others; one that is still being added stays
    so."""
    setup, key = made()
    assert reassign(setup, 1, 4, 5) == 0
    assert reassign(setup, 1, 5, 6) == 0
    assert state(setup, key) == ((1, 5, 6, 2, 3, 4), (1, 2, 3), (5, 6), (2, 3, 4))
    setup.propose(key, [1, 2, 3, 5, 6])
    assert state(setup, key) == ((1, 5, 6), (1, 5, 6), (), ())


def test_back_to_where_it_was_is_done_at_once() -> None:
    """All that stay are in sync."""
    setup, key = made()
    assert reassign(setup, 1, 4, 5) == 0
    assert reassign(setup, 1, 2, 3) == 0
    assert state(setup, key) == ((1, 2, 3), (1, 2, 3), (), ())


def test_cancelled() -> None:
    """Those that were being added go, also from the in-sync set, in a new leader epoch."""
    setup, key = made()
    assert reassign(setup, 4, 1, 5) == 0
    setup.propose(key, [1, 2, 3, 4])
    before = setup[key]
    assert cancel(setup) == 0
    assert state(setup, key) == ((1, 2, 3), (1, 2, 3), (), ())
    assert setup[key].leader_epoch == before.leader_epoch + 1
    assert cancel(setup) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    """Only an added replica has all records."""
    setup = ControllerSetup(BROKERS)
    key = setup.topic(min_isr=1)
    assert reassign(setup, 4, 5, 6) == 0
    setup.propose(key, [1, 4])
    setup.kill(1)
    assert state(setup, key) == ((4, 5, 6, 1, 2, 3), (4,), (4, 5, 6), (1, 2, 3))
    refused = result_of(setup, None)
    assert refused.error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert "wait until it is complete" in (refused.error_message or "")
    assert setup[key].leader == 4


def test_n4_a_replica_that_went_is_never_eligible_again() -> None:
    """N4: three replicas become one and three again. The two new ones begin empty; when the only full one is fenced,
    none of them may lead, and the partition waits for it."""
    setup, key = made()
    assert reassign(setup, 3) == 0
    assert (setup[key].isr, setup[key].elr) == ((3,), ())
    assert reassign(setup, 3, 1, 2) == 0
    assert state(setup, key) == ((3, 1, 2), (3,), (1, 2), ())
    setup.kill(3)
    assert setup[key].leader == -1
    assert {*setup[key].isr, *setup[key].elr} == {3}
    setup.wait(2000, beating=[1, 2, 4, 5, 6])
    assert setup[key].leader == -1
    setup.up(3, {key: (setup[key].leader_epoch, 10)}, clean=True)
    assert setup[key].leader == 3


@pytest.mark.parametrize("came_back", [(1, 2, 3), (2, 1, 3)])
def test_f40_v34_a_replica_that_went_and_came_back_begins_a_new_epoch(came_back: tuple[int, ...]) -> None:
    """F40, V34: what the leader knew of the old copy was known in an earlier epoch, also for a node that hears of
    both changes at once."""
    setup, key = made()
    before = setup[key]
    assert reassign(setup, 1, 3) == 0
    assert reassign(setup, *came_back) == 0
    assert setup[key].leader_epoch > before.leader_epoch
    assert 2 not in setup[key].isr


@pytest.mark.parametrize(
    ("replicas", "code", "text"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "is empty"),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is no node 9; the nodes are 1, 2, 3, 4, 5, 6"),
    ],
)
def test_targets_that_cannot_be(replicas: list[int], code: int, text: str) -> None:
    """Refused, and nothing changes."""
    setup, key = made()
    before = setup[key]
    refused = result_of(setup, replicas)
    assert refused.error_code == code
    assert text in (refused.error_message or "")
    assert setup[key] == before


def test_other_refusals() -> None:
    """An unknown topic, an internal one, another number of replicas where that is not allowed, an old version."""
    setup, key = made()
    setup.image.apply(setup.image.offset + 1, TopicRecord("__mine", "AAAAAAAAAAAAAAAAAAAAAg"))
    setup.image.apply(setup.image.offset + 1, PartitionRecord(0, "AAAAAAAAAAAAAAAAAAAAAg", (1,), (1,), leader=1))
    assert reassign(setup, 1, topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(setup, 1, topic="__mine") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert reassign(setup, 1, grow=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    setup.image.apply(setup.image.offset + 1, FeatureLevelRecord(FEATURE, 0))
    assert reassign(setup, 1) == ErrorCode.UNSUPPORTED_VERSION
    assert setup[key].replicas == (1, 2, 3)


def test_listed() -> None:
    """All of them, or those that are named."""
    setup, _ = made()
    setup.topic("u")
    reassign(setup, 1, 4, 5)

    def listed(topics: list[ListPartitionReassignmentsTopics] | None = None) -> list[tuple[object, ...]]:
        request = ListPartitionReassignmentsRequest(topics)
        answer = setup.controller_answer(request)
        return [
            (topic.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
            for topic in answer.topics
            for one in topic.partitions
        ]

    one = ("t", 0, (1, 4, 5, 2, 3), (4, 5), (2, 3))
    assert listed() == [one]
    assert listed([ListPartitionReassignmentsTopics("t", [0])]) == [one]
    assert listed([ListPartitionReassignmentsTopics("t", [1]), ListPartitionReassignmentsTopics("no", [0])]) == []


def test_a_restated_image_says_the_same() -> None:
    """Also the default of ``min.insync.replicas``, which follows the replication factor when the change is complete."""
    setup = ControllerSetup(BROKERS)
    key = setup.topic(replicas=(1, 2, 3), min_isr=1)
    topic = setup.image.topics[key[0]]
    topic.config = {}
    setup.image.settle(topic)
    assert topic.log_config.min_insync_replicas == 2
    reassign(setup, 1, 2, 3, 4, 5)
    for expected in (2, 3):
        restated = MetadataImage()
        for record in setup.image.records():
            restated.apply(setup.image.offset, record)
        assert restated.partition(key) == setup[key]
        assert restated.topics[key[0]].log_config.min_insync_replicas == expected
        assert topic.log_config.min_insync_replicas == expected
        setup.propose(key, [1, 2, 3, 4, 5])
    assert setup[key].adding == ()


@pytest.mark.parametrize("seed", range(40))
def test_random_requests_and_weather(seed: int) -> None:
    """Whatever is asked and whoever dies: isr and elr are replicas, a leader is in sync and live, a completed set has
    no traces of the change, a replica goes only with a new leader epoch, and the in-sync set never shrinks because of
    a reassignment below the target's size."""
    chance = Random(seed)
    setup, key = made()
    down: set[int] = set()
    for _ in range(60):
        before = setup[key]
        what, cancelled = chance.random(), False
        if what < 0.3:
            reassign(setup, *chance.sample(BROKERS, chance.randint(1, 4)))
        elif what < 0.4:
            cancelled = cancel(setup) == 0
        elif what < 0.8 and before.leader > 0:
            wanted = [
                one for one in before.replicas if one == before.leader or (one not in down and chance.random() < 0.8)
            ]
            setup.propose(key, wanted)
        elif what < 0.9 and len(down) < 3:
            one = chance.choice([one for one in BROKERS if one not in down])
            down.add(one)
            setup.kill(one)
        elif down:
            one = chance.choice(sorted(down))
            down.discard(one)
            setup.up(one, {key: (before.leader_epoch, 0)}, clean=True)
        after = setup[key]
        members = {*after.isr, *after.elr}
        assert members <= set(after.replicas)
        assert not set(after.isr) & set(after.elr)
        assert set(after.adding) | set(after.removing) <= set(after.replicas)
        assert len(after.replicas) == len(set(after.replicas)) > 0
        assert after.target
        if after.leader > 0:
            assert after.leader in after.isr
            assert after.leader not in down
        else:
            assert members, "somebody has the records"
        if set(before.replicas) - set(after.replicas):
            assert after.leader_epoch > before.leader_epoch
        if (before.adding or before.removing) and not (after.adding or after.removing) and not cancelled:
            assert set(after.replicas) <= set(after.isr)
