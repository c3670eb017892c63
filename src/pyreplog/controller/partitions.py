"""Grow a topic: a pure function from a request to the records of its new partitions.

A new partition is empty on all its replicas, so its in-sync set is every live one of them. The
partitions that exist do not change. The partition of a key is a function of their number, so a key
may have records in two partitions from then on; the answer says so.
"""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.controller.image import MetadataImage, TopicImage
from pyreplog.controller.refused import RefusedError
from pyreplog.controller.topics import PARTITIONS_MAX, check_assignment, check_public, new_partition, placed
from pyreplog.wire import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    ErrorCode,
    MetadataRecord,
)

__all__ = ["create_partitions", "grow"]


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, write: Callable[[MetadataRecord], None]
) -> CreatePartitionsResponse:
    """Grow each topic separately, or refuse it with a reason. ``write`` applies a record to ``image``."""
    results = []
    for wanted in request.topics:
        records, result = grow(image, wanted)
        if not request.validate_only:
            for record in records:
                write(record)
        results.append(result)
    return CreatePartitionsResponse(results)


def grow(
    image: MetadataImage, wanted: CreatePartitionsTopic
) -> tuple[list[MetadataRecord], CreatePartitionsTopicResult]:
    """Return the records that add the partitions, in order, and the answer. A refusal has no records.

    The text of a successful answer names the consequence for records with keys.
    """
    try:
        topic = _checked(image, wanted)
        placement = _placement(image, topic, wanted)
    except RefusedError as refused:
        return [], CreatePartitionsTopicResult(wanted.name, refused.code, str(refused))
    before = len(topic.partitions)
    records: list[MetadataRecord] = [
        new_partition(image, topic.topic_id, before + index, replicas) for index, replicas in enumerate(placement)
    ]
    return records, CreatePartitionsTopicResult(wanted.name, error_message=_consequence(before, wanted.count))


def _consequence(before: int, after: int) -> str:
    return (
        f"{after} partitions instead of {before}: most keys map to another partition from now on. The earlier records"
        " of a key stay in their partition, so a reader of the key's whole history reads both"
    )


def _checked(image: MetadataImage, wanted: CreatePartitionsTopic) -> TopicImage:
    topic = image.topic(wanted.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, repr(wanted.name))
    check_public(wanted.name, "grown", "only pyreplog itself changes it")
    there = len(topic.partitions)
    if wanted.count == there:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"{wanted.name!r} has {there} partitions already")
    if wanted.count < there:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"{wanted.name!r} has {there} partitions and cannot have fewer ({wanted.count}), because their records"
            " would be lost: create another topic and copy the records, or keep the partitions",
        )
    if wanted.count - there > PARTITIONS_MAX:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"{wanted.count - there} new partitions in one request; at most {PARTITIONS_MAX}: grow in steps",
        )
    return topic


def _placement(image: MetadataImage, topic: TopicImage, wanted: CreatePartitionsTopic) -> list[tuple[int, ...]]:
    before = len(topic.partitions)
    added = wanted.count - before
    factor = len(topic.partitions[0].target)
    if wanted.assignments is None:
        existing = [topic.partitions[number].replicas for number in range(before)]
        return placed(image, added, factor, wanted.placement, existing)
    if len(wanted.assignments) != added:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(wanted.assignments)} assignments for {added} new partitions: give one for each",
        )
    placement = [tuple(one.broker_ids) for one in wanted.assignments]
    for index, replicas in enumerate(placement):
        check_assignment(image, before + index, replicas, factor)
    return placement
