"""Kafka's checks of a leader's proposal (AlterPartition), in Kafka's order."""

from __future__ import annotations

from pyreplog.controller.image import MetadataImage, PartitionKey
from pyreplog.wire import AlterPartitionData, ErrorCode

__all__ = ["check_proposal"]


def check_proposal(image: MetadataImage, sender: int, key: PartitionKey, proposal: AlterPartitionData) -> ErrorCode:
    """Return the reason to refuse the proposal that broker ``sender`` made, or NONE."""
    if key[0] not in image.topics:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = image.partition(key)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # this controller is the stale one
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member.broker_id for member in proposal.new_isr_with_epochs]
    if (
        len(dict.fromkeys(members)) != len(members)
        or sender not in members
        or any(one not in partition.replicas for one in members)
    ):
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state == 1 and (len(members) > 1 or not partition.recovering):
        return ErrorCode.INVALID_REQUEST
    for member in proposal.new_isr_with_epochs:
        broker = image.brokers.get(member.broker_id)
        if broker is None or not broker.active or broker.epoch != member.broker_epoch:
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
