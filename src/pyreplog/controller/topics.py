"""Check and place a new topic: pure functions from a request to records.

Settings that decide the meaning of an acknowledgement (``durability``, ``min.insync.replicas``) are
always written for a new topic, so a later change of a default does not change existing topics.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from pyreplog.config import LogConfig, default_min_insync_replicas
from pyreplog.controller.image import MetadataImage
from pyreplog.controller.placement import place
from pyreplog.errors import ConfigError, excerpt
from pyreplog.ports import Random
from pyreplog.wire import (
    METADATA_TOPIC,
    RESOURCE_TOPIC,
    ConfigRecord,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    ErrorCode,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)

__all__ = ["PARTITIONS_MAX", "REPLICATION_FACTOR_DEFAULT", "create_topic", "new_id"]

PARTITIONS_MAX: Final = 10_000
"""Partitions that one request may create."""
REPLICATION_FACTOR_DEFAULT: Final = 3
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RESERVED: Final = (METADATA_TOPIC,)


class _RefusedError(Exception):
    """A refusal: its error code and text, for the one function that builds the answer."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def new_id(random: Random) -> str:
    """Return a new uuid (version 4) in Kafka's text form. As in Kafka, it never begins with a
    dash."""
    while True:
        bits = random.getrandbits(128) & ~(0xF000 << 64) & ~(0xC000 << 48) | (0x4000 << 64) | (0x8000 << 48)
        text = base64.urlsafe_b64encode(bits.to_bytes(16, "big")).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def create_topic(
    image: MetadataImage, wanted: CreatableTopic, random: Random
) -> tuple[list[MetadataRecord], CreatableTopicResult]:
    """Return the records that create the topic, in order, and the answer. A refusal has no
    records."""
    try:
        _check_name(image, wanted.name)
        placement = _placement(image, wanted)
        config = _settings(wanted, len(placement[0]))
    except _RefusedError as refused:
        return [], CreatableTopicResult(wanted.name, error_code=refused.code, error_message=str(refused))
    topic_id = new_id(random)
    records: list[MetadataRecord] = [TopicRecord(wanted.name, topic_id)]
    records.extend(ConfigRecord(RESOURCE_TOPIC, wanted.name, key, value) for key, value in config.items())
    for number, replicas in enumerate(placement):
        isr = tuple(member for member in replicas if image.brokers[member].active)
        records.append(
            PartitionRecord(number, topic_id, replicas, isr, leader=isr[0], leader_epoch=0, partition_epoch=0)
        )
    configs = [CreatableTopicConfigs(key, value) for key, value in config.items()]
    return records, CreatableTopicResult(
        wanted.name, topic_id, num_partitions=len(placement), replication_factor=len(placement[0]), configs=configs
    )


def _check_name(image: MetadataImage, name: str) -> None:
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise _RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{excerpt(name)} is not a topic name: 1 to 249 of A-Z a-z 0-9 . _ -, and not '.' or '..'",
        )
    if name in _RESERVED:
        raise _RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the controller's own")
    if name in image.topic_ids:
        raise _RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, repr(name))


def _placement(image: MetadataImage, wanted: CreatableTopic) -> list[tuple[int, ...]]:
    if wanted.assignments:
        return _assigned(image, wanted)
    partition_count = 1 if wanted.num_partitions == -1 else wanted.num_partitions
    if not 1 <= partition_count <= PARTITIONS_MAX:
        raise _RefusedError(
            ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions; it must be 1 to {PARTITIONS_MAX}"
        )
    active = [broker.broker_id for broker in image.brokers.values() if broker.active]
    fenced = [broker.broker_id for broker in image.brokers.values() if not broker.active]
    count = len(active) + len(fenced)
    factor = min(REPLICATION_FACTOR_DEFAULT, count) if wanted.replication_factor == -1 else wanted.replication_factor
    if not active:
        raise _RefusedError(
            ErrorCode.BROKER_NOT_AVAILABLE, "no node is up: restart one, or wait until one has registered"
        )
    if not 1 <= factor <= count:
        raise _RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}; there are {count} nodes"
        )
    return place(partition_count, factor, active, fenced, start=image.partition_count())


def _assigned(image: MetadataImage, wanted: CreatableTopic) -> list[tuple[int, ...]]:
    """Return the placement that the request assigns by hand."""
    numbers = [one.partition_index for one in wanted.assignments]
    if sorted(numbers) != list(range(len(numbers))):
        raise _RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered 0, 1, 2, ... without a gap"
        )
    if wanted.num_partitions not in (-1, len(numbers)) or wanted.replication_factor not in (
        -1,
        len(wanted.assignments[0].broker_ids),
    ):
        raise _RefusedError(ErrorCode.INVALID_REQUEST, "give either an assignment or counts")
    placement: list[tuple[int, ...]] = [()] * len(numbers)
    for one in wanted.assignments:
        replicas = tuple(one.broker_ids)
        if (
            not replicas
            or len(dict.fromkeys(replicas)) != len(replicas)
            or len(replicas) != len(wanted.assignments[0].broker_ids)
        ):
            raise _RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {one.partition_index}: replicas {list(replicas)}"
            )
        unknown = [member for member in replicas if member not in image.brokers]
        if unknown:
            raise _RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {one.partition_index}: no node {unknown[0]}"
            )
        if not any(image.brokers[member].active for member in replicas):
            raise _RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {one.partition_index}: none of its nodes is up"
            )
        placement[one.partition_index] = replicas
    return placement


def _settings(wanted: CreatableTopic, replication_factor: int) -> dict[str, str]:
    given = {one.name: one.value for one in wanted.configs if one.value is not None}
    given.setdefault("min.insync.replicas", str(default_min_insync_replicas(replication_factor)))
    try:
        config = LogConfig.from_mapping(given)
    except ConfigError as error:
        raise _RefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None
    written = {key: str(value) for key, value in given.items()}
    written["durability"] = config.durability
    return written
