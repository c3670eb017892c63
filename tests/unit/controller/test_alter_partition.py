"""AlterPartition: every check, in Kafka's order, and what an accepted proposal does."""

from __future__ import annotations

from typing import Any

from pyreplog.wire import AlterPartitionRequest, ErrorCode
from tests.unit.controller.controller_setup import ControllerSetup


def test_accepted_proposal_moves_the_partition_epoch_only() -> None:
    """An accepted proposal sets the ISR and raises the partition epoch by one; a shrink does not touch the leader
    epoch (F31)."""
    setup = ControllerSetup()
    key = setup.topic()
    before = setup[key]
    result = setup.propose(key, [1, 2])
    after = setup[key]
    assert result.error_code == 0
    assert (after.isr, after.partition_epoch, after.leader_epoch) == (
        (1, 2),
        before.partition_epoch + 1,
        before.leader_epoch,
    )
    assert (tuple(result.isr), result.partition_epoch, result.leader_id) == ((1, 2), after.partition_epoch, 1)


def test_stale_broker_epoch_refuses_the_whole_request() -> None:
    """Check 1: the sender must be the registered incarnation."""
    setup = ControllerSetup()
    setup.topic()
    response = setup.controller.alter_partition(AlterPartitionRequest(1, setup.epoch(1) - 1, []))
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    setup.kill(1)
    assert (
        setup.controller.alter_partition(AlterPartitionRequest(1, setup.epoch(1), [])).error_code
        == ErrorCode.STALE_BROKER_EPOCH
    )


def test_unknown_partitions() -> None:
    """Check 2: the topic id, then the partition."""
    setup = ControllerSetup()
    key = setup.topic()
    assert setup.propose(("no-such-id", 0), [1]).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert setup.propose((key[0], 7), [1]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_newer_epochs_say_that_the_controller_is_stale() -> None:
    """Check 3 (KAFKA-14154): a newer leader or partition epoch is answered NOT_CONTROLLER, whatever else is
    wrong."""
    setup = ControllerSetup()
    key = setup.topic()
    now = setup[key]
    wrongs: list[dict[str, Any]] = [
        {"leader_epoch": now.leader_epoch + 1},
        {"partition_epoch": now.partition_epoch + 1},
    ]
    for wrong in wrongs:
        assert setup.propose(key, [1, 1, 9], sender=2, **wrong).error_code == ErrorCode.NOT_CONTROLLER


def test_checks_in_order() -> None:
    """Checks 4 to 7: an older leader epoch, not the leader, an older partition epoch, and a set that makes no
    sense, in this order."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(1)
    now = setup[key]
    assert now.leader == 2
    nonsense = [3, 3]
    old_epoch, old_state = now.leader_epoch - 1, now.partition_epoch - 1
    answer = setup.propose(key, nonsense, sender=3, leader_epoch=old_epoch, partition_epoch=old_state)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert setup.propose(key, nonsense, sender=3, partition_epoch=old_state).error_code == ErrorCode.INVALID_REQUEST
    assert setup.propose(key, nonsense, partition_epoch=old_state).error_code == ErrorCode.INVALID_UPDATE_VERSION
    for bad in ([2, 2], [2, 9], [3], []):
        assert setup.propose(key, bad).error_code == ErrorCode.INVALID_REQUEST
    assert setup[key] == now


def test_recovery_state() -> None:
    """Check 8: nobody goes back to RECOVERING, and a RECOVERING leader stays alone."""
    setup = ControllerSetup()
    key = setup.topic()
    assert setup.propose(key, [1, 2], recovery=1).error_code == ErrorCode.INVALID_REQUEST
    assert setup.propose(key, [1], recovery=1).error_code == ErrorCode.INVALID_REQUEST


def test_ineligible_members() -> None:
    """Check 9 (KIP-841, KIP-903): no member that is fenced, stopping, unknown in that incarnation, or restarted
    since (F29, F30)."""
    setup = ControllerSetup()
    key = setup.topic()
    assert setup.propose(key, [1, 2, 3], epochs={3: setup.epoch(3) - 1}).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert setup.propose(key, [1, 2, 3], epochs={3: -1}).error_code == ErrorCode.INELIGIBLE_REPLICA
    setup.kill(3)
    assert setup.propose(key, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    old = setup.epoch(3)
    setup.register(3, {key: (0, 5)})
    assert setup.propose(key, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA, "registered, but fenced still"
    setup.beat(3)
    assert setup.propose(key, [1, 2, 3], epochs={3: old}).error_code == ErrorCode.INELIGIBLE_REPLICA, "its former life"
    assert setup.propose(key, [1, 2, 3]).error_code == 0


def test_two_proposals_on_one_state_cannot_both_win() -> None:
    """P4: the second proposal made on the same partition epoch is refused."""
    setup = ControllerSetup()
    key = setup.topic()
    base = setup[key].partition_epoch
    assert setup.propose(key, [1, 2], partition_epoch=base).error_code == 0
    assert setup.propose(key, [1, 3], partition_epoch=base).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert setup[key].isr == (1, 2)


def test_the_same_set_again_is_harmless() -> None:
    """A proposal of what holds already succeeds and writes nothing (F32)."""
    setup = ControllerSetup()
    key = setup.topic()
    before = setup.image.offset
    assert setup.propose(key, [1, 2, 3]).error_code == 0
    assert setup.image.offset == before
