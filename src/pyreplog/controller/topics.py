"""Check and place a new topic, check its deletion: pure functions from a request to records.

``durability`` is always written for a new topic, because it can never change. The other settings
are written if the request has them; a topic follows the cluster's defaults for all others.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from typing import Final

from pyreplog.config import LogConfig
from pyreplog.controller.compacted_topics import WAS_COMPACTED, check_unchanged, compaction_note
from pyreplog.controller.image import MetadataImage, TopicImage
from pyreplog.controller.placement import PLACEMENTS, STRIPED, Candidate, place
from pyreplog.controller.refused import RefusedError, unavailable
from pyreplog.errors import ConfigError, excerpt
from pyreplog.log import is_internal
from pyreplog.ports import Random
from pyreplog.wire import (
    RESOURCE_TOPIC,
    ConfigRecord,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    ErrorCode,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)

__all__ = [
    "PARTITIONS_MAX",
    "REPLICATION_FACTOR_DEFAULT",
    "check_assignment",
    "check_public",
    "create_topic",
    "create_topics",
    "delete_topics",
    "new_id",
    "new_partition",
    "placed",
]

PARTITIONS_MAX: Final = 10_000
"""Partitions that one request may create."""
REPLICATION_FACTOR_DEFAULT: Final = 3
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def new_id(random: Random) -> str:
    """Return a new uuid (version 4) in Kafka's text form. As in Kafka, it never begins with a
    dash."""
    while True:
        bits = random.getrandbits(128) & ~(0xF000 << 64) & ~(0xC000 << 48) | (0x4000 << 64) | (0x8000 << 48)
        text = base64.urlsafe_b64encode(bits.to_bytes(16, "big")).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, random: Random, write: Callable[[MetadataRecord], None]
) -> CreateTopicsResponse:
    """Create each topic separately, or refuse it with a reason. ``write`` applies a record to ``image``."""
    results = []
    for wanted in request.topics:
        records, result = create_topic(image, wanted, random)
        if not request.validate_only:
            for record in records:
                write(record)
        results.append(result)
    return CreateTopicsResponse(results)


def create_topic(
    image: MetadataImage, wanted: CreatableTopic, random: Random
) -> tuple[list[MetadataRecord], CreatableTopicResult]:
    """Return the records that create the topic, in order, and the answer. A refusal has no
    records."""
    try:
        _check_name(image, wanted.name)
        placement = _placement(image, wanted)
        config = _settings(image, wanted)
    except RefusedError as refused:
        return [], CreatableTopicResult(wanted.name, error_code=refused.code, error_message=str(refused))
    topic_id = new_id(random)
    records: list[MetadataRecord] = [TopicRecord(wanted.name, topic_id)]
    records.extend(ConfigRecord(RESOURCE_TOPIC, wanted.name, key, value) for key, value in config.items())
    records.extend(new_partition(image, topic_id, number, replicas) for number, replicas in enumerate(placement))
    configs = [CreatableTopicConfigs(key, value) for key, value in config.items()]
    return records, CreatableTopicResult(
        wanted.name, topic_id, num_partitions=len(placement), replication_factor=len(placement[0]), configs=configs
    )


def _check_name(image: MetadataImage, name: str) -> None:
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{excerpt(name)} is not a topic name: 1 to 249 of A-Z a-z 0-9 . _ -, and not '.' or '..'",
        )
    check_public(name, "created", "choose a name that does not begin so")
    if name in image.topic_ids:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, repr(name))


def _placement(image: MetadataImage, wanted: CreatableTopic) -> list[tuple[int, ...]]:
    if wanted.assignments:
        return _assigned(image, wanted)
    partition_count = 1 if wanted.num_partitions == -1 else wanted.num_partitions
    if not 1 <= partition_count <= PARTITIONS_MAX:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions; it must be 1 to {PARTITIONS_MAX}"
        )
    count = len(image.brokers.keys() - image.cordoned)
    factor = min(REPLICATION_FACTOR_DEFAULT, count) if wanted.replication_factor == -1 else wanted.replication_factor
    return placed(image, partition_count, factor, wanted.placement)


def placed(
    image: MetadataImage,
    partition_count: int,
    factor: int,
    rule: str | None = None,
    existing: Sequence[tuple[int, ...]] = (),
) -> list[tuple[int, ...]]:
    """Return the replicas of new partitions, which live brokers lead. Raise :class:`RefusedError` if that is
    impossible.

    ``rule``: the name of a placement; None: the default. ``existing``: the replicas of the topic's
    partitions. A cordoned broker gets no replica. Racks count only if every other broker has one.
    """
    if rule is not None and rule not in PLACEMENTS:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"placement {excerpt(rule)}; it must be one of {', '.join(PLACEMENTS)}"
        )
    brokers = [broker for broker in image.brokers.values() if broker.broker_id not in image.cordoned]
    if not any(broker.active for broker in brokers):
        raise unavailable()
    if not 1 <= factor <= len(brokers):
        cordoned = len(image.brokers) - len(brokers)
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}; there are {len(brokers)} nodes"
            f"{f' that are not cordoned ({cordoned} are)' if cordoned else ''}: ask for at most so many replicas, or"
            f" {'uncordon or ' if cordoned else ''}add nodes first",
        )
    has_racks = all(broker.rack is not None for broker in brokers)
    nodes = [Candidate(one.broker_id, one.rack if has_racks else None, one.active) for one in brokers]
    return place(rule or STRIPED, partition_count, factor, nodes, image.partition_count(), existing)


def _assigned(image: MetadataImage, wanted: CreatableTopic) -> list[tuple[int, ...]]:
    """Return the placement that the request assigns by hand."""
    numbers = [one.partition_index for one in wanted.assignments]
    if sorted(numbers) != list(range(len(numbers))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered 0, 1, 2, ... without a gap"
        )
    if wanted.num_partitions not in (-1, len(numbers)) or wanted.replication_factor not in (
        -1,
        len(wanted.assignments[0].broker_ids),
    ):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "give either an assignment or counts")
    placement: list[tuple[int, ...]] = [()] * len(numbers)
    for one in wanted.assignments:
        replicas = tuple(one.broker_ids)
        check_assignment(image, one.partition_index, replicas, len(wanted.assignments[0].broker_ids))
        placement[one.partition_index] = replicas
    return placement


def check_assignment(image: MetadataImage, number: int, replicas: tuple[int, ...], factor: int) -> None:
    """Raise :class:`RefusedError` unless ``replicas`` are ``factor`` known nodes, at least one of them live."""
    if not replicas or len(dict.fromkeys(replicas)) != len(replicas) or len(replicas) != factor:
        text = f"replicas {list(replicas)}"
    elif unknown := [member for member in replicas if member not in image.brokers]:
        text = f"no node {unknown[0]}"
    elif not any(image.brokers[member].active for member in replicas):
        text = "none of its nodes is up"
    else:
        return
    raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number}: {text}")


def _settings(image: MetadataImage, wanted: CreatableTopic) -> dict[str, str]:
    """Return the settings to write: the given ones and the durability."""
    given = {one.name: one.value for one in wanted.configs if one.value is not None}
    try:
        config = LogConfig.from_mapping({**image.defaults, **given})
    except ConfigError as error:
        raise RefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if config.was_compacted and not config.compacts:
        check_unchanged("true", was_compacted=False)
    # The given settings may be those that another topic was described with.
    given.pop(WAS_COMPACTED, None)
    note = {one.name: "true" for one in compaction_note(wanted.name, config)}
    return {**note, **given, "durability": config.durability}


def new_partition(image: MetadataImage, topic_id: str, number: int, replicas: tuple[int, ...]) -> PartitionRecord:
    """Return the record that creates a partition, led by its first live replica. REQUIRES a live one."""
    isr = tuple(member for member in replicas if image.brokers[member].active)
    return PartitionRecord(number, topic_id, replicas, isr, leader=isr[0], leader_epoch=0, partition_epoch=0)


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, remove: Callable[[TopicImage], None]
) -> DeleteTopicsResponse:
    """Delete topics by name or by id, or refuse it with a reason. ``remove`` deletes one."""
    return DeleteTopicsResponse([_delete(image, wanted, remove) for wanted in request.topics])


def _delete(
    image: MetadataImage, wanted: DeleteTopicState, remove: Callable[[TopicImage], None]
) -> DeletableTopicResult:
    topic_id = wanted.topic_id if wanted.name is None else image.topic_ids.get(wanted.name, "")
    topic = image.topics.get(topic_id)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID if wanted.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeletableTopicResult(wanted.name, wanted.topic_id, error)
    try:
        check_public(topic.name, "deleted", "only pyreplog itself changes it")
    except RefusedError as refused:
        return DeletableTopicResult(topic.name, topic_id, refused.code, str(refused))
    remove(topic)
    return DeletableTopicResult(topic.name, topic_id)


def check_public(name: str, done: str, advice: str) -> None:
    """Raise :class:`RefusedError` if ``name`` is an internal topic's, which cannot be ``done``."""
    if is_internal(name):
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{excerpt(name)} cannot be {done}: names that begin with '__' are those of internal topics; {advice}",
        )
