"""Change the settings of a topic or the defaults of the cluster: pure functions from a request to records.

A change of the effective ``min.insync.replicas`` voids what the controller knows about eligible
leader replicas, because that knowledge rests on a high watermark that stood still below the old
minimum. So every partition that the change concerns gets a partition change of its own, in the same
decision and after the setting:

* It clears the ELR. While a partition has no leader, its high watermark cannot move, so its
  eligible replicas are as complete as its in-sync ones: they join the ISR.
* It raises the partition epoch. A leader proposes in-sync sets under the minimum that it knows.
  After the change the controller accepts a proposal only with the new partition epoch, which the
  leader learns together with the new minimum. Otherwise a leader that still counts by a lower
  minimum could acknowledge records that only it has, while the controller already counts the
  replica that it has just dropped as eligible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pyreplog.config import LogConfig
from pyreplog.controller.compacted_topics import WAS_COMPACTED, check_unchanged, compaction_note
from pyreplog.controller.election import PartitionDecision
from pyreplog.controller.image import (
    ALL_DIRECTORIES,
    CORDONED,
    MetadataImage,
    PartitionImage,
    PartitionKey,
    TopicImage,
    cordon_record,
)
from pyreplog.controller.refused import RefusedError
from pyreplog.controller.topics import check_public
from pyreplog.errors import ConfigError, excerpt
from pyreplog.wire import (
    CONFIG_DELETE,
    CONFIG_SET,
    NO_LEADER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    ConfigRecord,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRecord,
)

__all__ = ["alter_config", "alter_configs"]

_DURABILITY: Final = "durability"
_COMPACTION: Final = {"cleanup.policy", "min.compaction.lag.ms", "max.compaction.lag.ms"}
"""The settings that must fit the own settings of each topic, and those that make a topic compacted."""
_DEFAULTS: Final = LogConfig().to_mapping(whole=True)
_KINDS: Final = {RESOURCE_TOPIC: "a topic", RESOURCE_BROKER: "the cluster"}


def alter_configs(
    image: MetadataImage,
    request: IncrementalAlterConfigsRequest,
    write: Callable[[MetadataRecord], None],
    renew: Callable[[PartitionKey, PartitionImage, PartitionDecision], None],
) -> IncrementalAlterConfigsResponse:
    """Change the settings of each resource separately, or refuse them with a reason.

    ``write`` applies a record to ``image``. ``renew`` changes a partition and raises its partition epoch.
    """
    responses = []
    for wanted in request.resources:
        records, response = alter_config(image, wanted)
        responses.append(response)
        if request.validate_only or not records:
            continue
        before = {topic_id: topic.log_config.min_insync_replicas for topic_id, topic in image.topics.items()}
        for record in records:
            write(record)
        for topic_id, topic in image.topics.items():
            if topic.log_config.min_insync_replicas != before[topic_id]:
                for change in list(_without_eligible(topic, before[topic_id])):
                    renew(*change)
    return IncrementalAlterConfigsResponse(responses)


def alter_config(
    image: MetadataImage, wanted: AlterConfigsResource
) -> tuple[list[ConfigRecord], AlterConfigsResourceResponse]:
    """Return the records that change the settings, and the answer. A refusal has no records.

    A setting that has the wanted value already needs no record.
    """
    kind, name = wanted.resource_type, wanted.resource_name
    try:
        if kind == RESOURCE_TOPIC:
            records = _of_topic(image, wanted)
        elif kind == RESOURCE_BROKER and not name:
            records = _of_cluster(image, wanted)
        elif kind == RESOURCE_BROKER:
            records = _of_broker(image, wanted)
        else:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"settings of resource type {kind} cannot be changed; those of {' and '.join(_KINDS.values())} can",
            )
    except RefusedError as refused:
        return [], AlterConfigsResourceResponse(kind, name, refused.code, str(refused))
    return records, AlterConfigsResourceResponse(kind, name)


def _of_topic(image: MetadataImage, wanted: AlterConfigsResource) -> list[ConfigRecord]:
    topic = image.topic(wanted.resource_name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, repr(wanted.resource_name))
    check_public(topic.name, "altered", "only pyreplog itself changes it")
    changes = _changes(wanted, topic.config, was_compacted=topic.log_config.was_compacted)
    durability = changes.pop(_DURABILITY, topic.log_config.durability)
    if (durability or LogConfig().durability) != topic.log_config.durability:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"durability of {topic.name!r} is {topic.log_config.durability!r} and cannot be changed, because it says"
            " what the acknowledgements of its records meant: create another topic with"
            f" {durability or LogConfig().durability!r}, and copy the records if they are needed there",
        )
    config = _checked({**image.defaults, **_applied(topic.config, changes)})
    return [*compaction_note(topic.name, config, topic.log_config), *_records(wanted, changes)]


def _of_cluster(image: MetadataImage, wanted: AlterConfigsResource) -> list[ConfigRecord]:
    changes = _changes(wanted, image.defaults)
    if _DURABILITY in changes:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "durability has no default for the cluster: give it to each topic when it is created,"
            " create_topic(name, config={'durability': 'os'})",
        )
    defaults = _applied(image.defaults, changes)
    _checked(defaults)
    notes = []
    if changes.keys() & _COMPACTION:
        for topic in image.topics.values():
            config = _checked({**defaults, **topic.config}, f"topic {topic.name!r} with its own settings: ")
            notes += compaction_note(topic.name, config, topic.log_config)
    return [*notes, *_records(wanted, changes)]


def _records(wanted: AlterConfigsResource, changes: Mapping[str, str | None]) -> list[ConfigRecord]:
    kind, name = wanted.resource_type, wanted.resource_name
    return [ConfigRecord(kind, name, key, value) for key, value in changes.items()]


def _of_broker(image: MetadataImage, wanted: AlterConfigsResource) -> list[ConfigRecord]:
    """Return the record that changes the one setting that a broker has: whether it is cordoned."""
    name = wanted.resource_name
    if name not in {str(one) for one in image.brokers}:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"no node {excerpt(name)} is registered")
    if any(one.name != CORDONED for one in wanted.configs) or len(wanted.configs) != 1:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"node {name} has the setting {CORDONED} alone: give it once")
    one = wanted.configs[0]
    if one.config_operation not in (CONFIG_SET, CONFIG_DELETE) or (
        one.config_operation == CONFIG_SET and one.value != ALL_DIRECTORIES
    ):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"{CORDONED} of node {name} can be set to {ALL_DIRECTORIES!r}, or reset"
        )
    cordoned = one.config_operation == CONFIG_SET
    if cordoned == (int(name) in image.cordoned):
        return []
    return [cordon_record(int(name), cordoned=cordoned)]


def _changes(
    wanted: AlterConfigsResource, there: Mapping[str, str], *, was_compacted: bool = False
) -> dict[str, str | None]:
    """Return the settings to write, by key (None: reset). Raise :class:`RefusedError` for a key that is given twice,
    for an operation on a list, and for another value of ``was.compacted`` than it has."""
    changes: dict[str, str | None] = {}
    for one in wanted.configs:
        if one.name in changes:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{excerpt(one.name)} is given twice")
        if one.config_operation not in (CONFIG_SET, CONFIG_DELETE):
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{excerpt(one.name)} is no list: set it, or reset it")
        if one.config_operation == CONFIG_SET and one.value is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{excerpt(one.name)} has no value: give one, or reset it")
        changes[one.name] = one.value if one.config_operation == CONFIG_SET else None
    texts = _checked(
        {key: _DEFAULTS.get(key, "") if value is None else value for key, value in changes.items()}
    ).to_mapping(whole=True)
    if WAS_COMPACTED in changes:
        check_unchanged(texts[WAS_COMPACTED], was_compacted=was_compacted)
        del changes[WAS_COMPACTED]
    changes = {key: None if value is None else texts[key] for key, value in changes.items()}
    return {key: value for key, value in changes.items() if there.get(key) != value}


def _applied(there: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    values = {key: value for key, value in there.items() if key not in changes}
    values.update((key, value) for key, value in changes.items() if value is not None)
    return values


def _checked(values: Mapping[str, str], prefix: str = "") -> LogConfig:
    """Return the settings with ``values``. Raise :class:`RefusedError` if one is unknown or wrong."""
    try:
        return LogConfig.from_mapping(values)
    except ConfigError as error:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"{prefix}{error}") from None


def _without_eligible(
    topic: TopicImage, before: int
) -> Iterator[tuple[PartitionKey, PartitionImage, PartitionDecision]]:
    """Yield the partitions whose effective minimum changed, with the state that each of them gets.

    ``before``: the topic's earlier ``min.insync.replicas``.
    """
    after = topic.log_config.min_insync_replicas
    for number, partition in topic.partitions.items():
        count = len(partition.replicas)
        if min(before, count) == min(after, count):
            continue
        isr = partition.isr
        if partition.leader == NO_LEADER and partition.elr:
            members = (*partition.isr, *partition.elr)
            isr = tuple(member for member in partition.replicas if member in members)
        yield (topic.topic_id, number), partition, PartitionDecision(isr, (), partition.leader)
