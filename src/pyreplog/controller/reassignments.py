"""Reassignment: a partition gets other replicas without a pause. Pure functions over one partition.

The new replicas are added first and catch up; then those that go are removed, all in one record
(Kafka's KIP-455). While this goes on, ``replicas`` has all of them: the target, then those that go.

Each change in which a replica goes begins a new leader epoch. So nothing that the leader learned of
that replica counts if the same node gets a replica again, which begins empty: fetches and in-sync
sets name the epoch in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyreplog.controller.election import PartitionDecision
from pyreplog.controller.features import LEVEL_SUSPECTS
from pyreplog.controller.image import MetadataImage, PartitionImage, PartitionKey
from pyreplog.controller.refused import RefusedError
from pyreplog.controller.topics import check_public
from pyreplog.wire import (
    NO_LEADER,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ErrorCode,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

__all__ = ["alter_reassignments", "completed", "list_reassignments"]

Change = Callable[[PartitionKey, PartitionImage, PartitionDecision], None]


def completed(before: PartitionImage, after: PartitionDecision, active: Callable[[int], bool]) -> PartitionDecision:
    """Return ``after``, with the end of the reassignment if it is complete in that state.

    It is complete if every replica that stays or comes is in sync. Then those that go leave. If the
    leader is one of them, the first other live replica leads.
    """
    adding = before.adding if after.adding is None else after.adding
    removing = before.removing if after.removing is None else after.removing
    if after.leader == NO_LEADER or not (adding or removing):
        return after
    replicas = before.replicas if after.replicas is None else after.replicas
    kept = tuple(one for one in replicas if one not in removing)
    if not kept or any(one not in after.isr for one in kept):
        return after
    leader = after.leader if after.leader in kept else next((one for one in kept if active(one)), NO_LEADER)
    if leader == NO_LEADER:
        return after
    isr = tuple(one for one in after.isr if one in kept)
    return after._replace(isr=isr, elr=(), leader=leader, replicas=kept, adding=(), removing=())


def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, change: Change, active: Callable[[int], bool]
) -> AlterPartitionReassignmentsResponse:
    """Begin, change or cancel the reassignment of each partition separately, or refuse it with a reason."""
    responses = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(wanted.partition_index)
            try:
                key, before = _found(image, topic.name, wanted.partition_index)
                after = _decided(image, before, wanted, active, may_grow=request.allow_replication_factor_change)
                change(key, before, after)
            except RefusedError as refused:
                result.error_code = refused.code
                result.error_message = f"{topic.name}-{wanted.partition_index}: {refused}"
            results.append(result)
        responses.append(ReassignableTopicResponse(topic.name, results))
    return AlterPartitionReassignmentsResponse(responses)


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the reassignments that go on, of all partitions or of those that the request names."""
    if request.topics is None:
        names: dict[str, Sequence[int] | None] = dict.fromkeys(image.topic_ids)
    else:
        names = {one.name: one.partition_indexes for one in request.topics}
    topics = []
    for name, numbers in names.items():
        topic = image.topic(name)
        if topic is None:
            continue
        found = [
            OngoingPartitionReassignment(number, one.replicas, one.adding, one.removing)
            for number, one in topic.partitions.items()
            if (one.adding or one.removing) and (numbers is None or number in numbers)
        ]
        if found:
            topics.append(OngoingTopicReassignment(name, found))
    return ListPartitionReassignmentsResponse(topics)


def _found(image: MetadataImage, name: str, number: int) -> tuple[PartitionKey, PartitionImage]:
    topic = image.topic(name)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None or partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    check_public(name, "reassigned", "only pyreplog itself changes it")
    if image.level < LEVEL_SUSPECTS:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, "a node of this cluster has an older version: install a newer one on it"
        )
    return (topic.topic_id, number), partition


def _decided(
    image: MetadataImage,
    before: PartitionImage,
    wanted: ReassignablePartition,
    active: Callable[[int], bool],
    *,
    may_grow: bool,
) -> PartitionDecision:
    if wanted.replicas is None:
        return _cancelled(before, active)
    target = tuple(wanted.replicas)
    _check_target(image, before, target, may_grow=may_grow)
    # A replica that was added and is not wanted any more goes like the others: it may lead by now.
    removing = tuple(sorted(one for one in before.replicas if one not in target))
    adding = tuple(sorted(one for one in target if one not in before.replicas or one in before.adding))
    after = PartitionDecision(
        before.isr,
        before.elr,
        before.leader,
        replicas=(*target, *removing),
        adding=adding,
        removing=removing,
    )
    return after if adding or removing else after._replace(adding=(), removing=())


def _check_target(image: MetadataImage, before: PartitionImage, target: tuple[int, ...], *, may_grow: bool) -> None:
    text = ""
    if not target:
        text = "the list of its new replicas is empty: name at least one node"
    elif len(dict.fromkeys(target)) != len(target):
        text = f"replicas {list(target)} name a node twice"
    elif unknown := [one for one in target if one not in image.brokers]:
        known = ", ".join(map(str, sorted(image.brokers)))
        text = f"there is no node {unknown[0]}; the nodes are {known}"
    elif shut := [one for one in target if one in image.cordoned and one not in before.replicas]:
        text = f"node {shut[0]} is cordoned: it gets no new replicas until uncordon({shut[0]})"
    elif cordoned := [one for one in target if one in image.cordoned and one not in before.replicas]:
        text = f"node {cordoned[0]} is cordoned and gets no new replicas: uncordon it, or name another node"
    elif not may_grow and len(target) != before.factor:
        code = ErrorCode.INVALID_REPLICATION_FACTOR
        raise RefusedError(code, f"{len(target)} replicas instead of {before.factor}, which the request does not allow")
    if text:
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _cancelled(before: PartitionImage, active: Callable[[int], bool]) -> PartitionDecision:
    """Return the state without the replicas that were being added."""
    if not (before.adding or before.removing):
        raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is complete, or none began")
    kept = tuple(one for one in before.replicas if one not in before.adding)
    isr = tuple(one for one in before.isr if one in kept)
    elr = tuple(one for one in before.elr if one in kept)
    leader = before.leader
    if leader not in kept and leader != NO_LEADER:
        leader = next((one for one in kept if one in isr and active(one)), NO_LEADER)
    if not (isr or elr) or (leader == NO_LEADER != before.leader):
        raise RefusedError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "only replicas that are being added have all records now, so the reassignment cannot be cancelled: wait"
            f" until it is complete, or restart one of the nodes {', '.join(map(str, kept))}",
        )
    return PartitionDecision(isr, elr, leader, replicas=kept, adding=(), removing=())
