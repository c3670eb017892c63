"""Metadata as a value: the brokers, topics and partitions that the controller's records describe.

Nothing here decides, waits or does I/O. The controller keeps one image and every node keeps its
own. Both are built by :meth:`MetadataImage.apply`, so equal offsets mean equal images. The merge
rules are KRaft's: every record about a partition increases its partition epoch, and a record that
names a leader (even the same one) also increases the leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pyreplog.config import LogConfig, default_min_insync_replicas
from pyreplog.controller.broker_index import BrokerIndex
from pyreplog.controller.partition_table import PartitionTable
from pyreplog.errors import InternalError
from pyreplog.wire import (
    NO_LEADER_CHANGE,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    SuspectReplica,
    TopicRecord,
    UnregisterBrokerRecord,
)

__all__ = [
    "ALL_DIRECTORIES",
    "CORDONED",
    "FEATURE",
    "LOST_DIRECTORY",
    "BrokerImage",
    "MetadataImage",
    "PartitionImage",
    "PartitionKey",
    "ReplicaEnd",
    "TopicImage",
    "cordon_record",
    "effective_min_isr",
]

_MIN_ISR: Final = "min.insync.replicas"
ALIKE_MAX: Final = 16_384
"""Different partition values that an image keeps for sharing."""
_LISTS: Final = 4
"""The first fields of a partition are lists of brokers."""
CORDONED: Final = "cordoned.log.dirs"
"""Kafka's key (KIP-1066) of the setting that cordons a broker: it gets no new replicas."""
ALL_DIRECTORIES: Final = "*"
"""The value of :data:`CORDONED`: all directories of the broker; ours has one."""
PartitionKey = tuple[str, int]
"""(topic id, partition number): the permanent identity of a partition; topic names may be
reused."""


FEATURE: Final = "replog.version"
"""The feature whose levels say which forms of our own the records may have
(:mod:`pyreplog.controller.features`)."""
LOST_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Kafka's id of a lost directory (``DirectoryId.LOST``).

A broker adds it to its own directory ids while one of its copies is damaged.
"""


class ReplicaEnd(NamedTuple):
    """The end of a replica's copy when its broker reported it. Compares by (last epoch, end)."""

    last_epoch: int
    end_offset: int


class BrokerImage(NamedTuple):
    """One registered broker.

    ``epoch`` is the offset of its registration. A ``fenced`` broker serves nothing and cannot lead.
    """

    broker_id: int
    epoch: int
    incarnation_id: str
    address: str
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...]
    level_max: int = 0
    """The highest level of :data:`FEATURE` that the broker knows."""
    rack: str | None = None
    """The name of its rack, or None."""

    @property
    def active(self) -> bool:
        """Whether the broker may lead and be in an in-sync set."""
        return not self.fenced and not self.in_controlled_shutdown

    def to_record(self) -> RegisterBrokerRecord:
        """Return the record that states this value of a broker."""
        return RegisterBrokerRecord(
            self.broker_id,
            self.incarnation_id,
            self.epoch,
            end_points=(BrokerEndpoint("PEER", self.address, 0),),
            features=(BrokerFeature(FEATURE, 0, self.level_max),) if self.level_max else (),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=self.log_dirs,
        )


class PartitionImage(NamedTuple):
    """One partition. ``replicas`` is in order of preference; ``isr`` and ``elr`` are disjoint
    subsets of it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    """Set while there is no leader: the last leader or, once isr and elr are empty, their last
    members."""
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovering: bool
    """A leader was elected uncleanly and has not yet reported that it recovered."""
    unclean_epoch: int = -1
    """The latest leader epoch that began with an unclean election; -1 if there was none. Below it a
    replica may hold records that its leader has lost."""
    suspects: tuple[SuspectReplica, ...] = ()
    """The members of isr and elr that restarted uncleanly and are not known complete since, with
    their ends at registration."""
    adding: tuple[int, ...] = ()
    """The replicas that a reassignment brings; they are in ``replicas``, and count as its replicas
    once all of them are in sync."""
    removing: tuple[int, ...] = ()
    """The replicas that leave when the reassignment is complete; they are in ``replicas``, last."""

    @property
    def factor(self) -> int:
        """The replication factor: a running reassignment counts when it is complete."""
        return len(self.replicas) - len(self.adding)

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is out of sync. One that a reassignment adds does not count before it has caught up."""
        if len(self.isr) == len(self.replicas):
            return False
        return not self.adding or any(one not in self.isr and one not in self.adding for one in self.replicas)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the running reassignment; all of them if there is none."""
        return tuple(one for one in self.replicas if one not in self.removing) if self.removing else self.replicas

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionImage:
        """Return the partition that ``record`` states."""
        return cls(
            tuple(record.replicas),
            tuple(record.isr),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.leader_recovery_state == 1,
            record.unclean_leader_epoch,
            tuple(record.suspects),
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
        )

    def to_record(self, topic_id: str, number: int) -> PartitionRecord:
        """Return the record that states this value of a partition."""
        return PartitionRecord(
            number,
            topic_id,
            self.replicas,
            self.isr,
            self.removing,
            self.adding,
            leader=self.leader,
            leader_recovery_state=int(self.recovering),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            eligible_leader_replicas=self.elr,
            last_known_elr=self.last_known_elr,
            unclean_leader_epoch=self.unclean_epoch,
            suspects=self.suspects,
        )

    @property
    def suspect_ends(self) -> dict[int, ReplicaEnd]:
        """The suspects by broker id."""
        return {one.broker_id: ReplicaEnd(one.last_epoch, one.end_offset) for one in self.suspects}


class TopicImage:
    """One topic: its partitions by number, and its own settings as text under Kafka's keys.

    ``log_config``: all settings in force. A setting that the topic does not have itself is the
    cluster's default or else pyreplog's, which is a majority of the replicas for
    ``min.insync.replicas``.
    """

    __slots__ = ("config", "log_config", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: str) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: PartitionTable[PartitionImage] = PartitionTable()
        self.config: dict[str, str] = {}
        self.log_config = LogConfig()

    def copy(self) -> TopicImage:
        """Return a topic that says the same and changes independently."""
        other = TopicImage.__new__(TopicImage)  # without settings that are replaced at once
        other.name = self.name
        other.topic_id = self.topic_id
        other.partitions = self.partitions.copy()
        other.config = self.config  # never changed in place
        other.log_config = self.log_config
        return other


def effective_min_isr(topic: TopicImage, partition: PartitionImage) -> int:
    """Return ``min.insync.replicas``, at most the number of replicas.

    Brokers and controller both use this one function.
    """
    return min(topic.log_config.min_insync_replicas, len(partition.replicas))


class MetadataImage:
    """Brokers, topics and partitions as of ``offset``, the last record applied (-1: none yet).

    One owner at a time.
    """

    __slots__ = (
        "_alike",
        "_index",
        "_orders",
        "brokers",
        "cordoned",
        "defaults",
        "feature_levels",
        "next_producer_id",
        "offset",
        "topic_ids",
        "topics",
    )

    def __init__(self) -> None:
        self.offset = -1
        self.brokers: dict[int, BrokerImage] = {}
        self.cordoned: frozenset[int] = frozenset()
        """The brokers that get no new replicas, registered or not."""
        self.topics: dict[str, TopicImage] = {}
        """By topic id."""
        self.topic_ids: dict[str, str] = {}
        """Name -> topic id."""
        self.defaults: dict[str, str] = {}
        """The cluster's defaults of topic settings, as text under Kafka's keys."""
        self.feature_levels: dict[str, int] = {}
        """The finalized level of each feature; one that is not named has level 0."""
        self.next_producer_id = 0
        """The first producer id that was never handed out."""
        self._alike: dict[PartitionImage, PartitionImage] = {}
        self._orders: dict[tuple[int, ...], tuple[int, ...]] = {}
        """Lists of brokers, for sharing."""
        self._index: BrokerIndex | None = None

    def copy(self) -> MetadataImage:
        """Return an image that says the same and changes independently.

        It shares partitions and index with this one until one of the two changes.
        """
        other = MetadataImage()
        other.offset = self.offset
        other.brokers = dict(self.brokers)
        other.cordoned = self.cordoned
        other.topics = {topic_id: topic.copy() for topic_id, topic in self.topics.items()}
        other.topic_ids = dict(self.topic_ids)
        other.defaults = self.defaults  # never changed in place
        other.feature_levels = self.feature_levels  # nor these
        other.next_producer_id = self.next_producer_id
        other._index = None if self._index is None else self._index.copy()
        return other

    # -------------------------------------------------------------------------------------- reading

    @property
    def level(self) -> int:
        """The finalized level of :data:`FEATURE`."""
        return self.feature_levels.get(FEATURE, 0)

    @property
    def is_empty(self) -> bool:
        """Whether this is the image of a cluster that was just made: nothing was decided yet."""
        return not (self.brokers or self.topics or self.feature_levels or self.next_producer_id)

    def topic(self, name: str) -> TopicImage | None:
        """Return the topic of that name, or None."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        """Return the partition, or None if there is no such topic or number."""
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def suspects(self) -> dict[PartitionKey, dict[int, ReplicaEnd]]:
        """Return the suspects of every partition that has some."""
        return {
            (topic.topic_id, number): partition.suspect_ends
            for topic in self.topics.values()
            for number, partition in topic.partitions.items()
            if partition.suspects
        }

    def partition_count(self) -> int:
        """Return the number of partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def index(self) -> BrokerIndex:
        """The partitions by broker. The first use builds it; then it follows every record."""
        found = self._index
        if found is None:
            found = self._index = BrokerIndex()
            for topic in self.topics.values():
                found.add_topic(topic.topic_id, topic.partitions)
        return found

    def drop_index(self) -> None:
        """Forget the index until it is used again."""
        self._index = None

    # ------------------------------------------------------------------------------------- applying

    def share(self, partition: PartitionImage) -> PartitionImage:
        """Return ``partition``, or an equal value that the image already holds.

        This saves memory, because most partitions have one of a few values.
        """
        found = self._alike.get(partition)
        if found is None:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
                self._orders.clear()
            order = self._orders.setdefault
            replicas, isr, elr, last_known = (order(members, members) for members in partition[:_LISTS])
            found = self._alike[partition] = PartitionImage(replicas, isr, elr, last_known, *partition[_LISTS:])
        return found

    def apply(self, offset: int, record: MetadataRecord) -> None:
        """Apply one record.

        REQUIRES ``offset`` above :attr:`offset` (records made from an image may repeat its end).
        """
        kind = type(record)
        if kind is PartitionChangeRecord:
            self._change_partition(record)  # type: ignore[arg-type]
        elif kind is PartitionRecord:
            self._add_partition(record)  # type: ignore[arg-type]
        elif kind is BrokerRegistrationChangeRecord:
            self._change_broker(record)  # type: ignore[arg-type]
        elif kind is RegisterBrokerRecord:
            self._register(record)  # type: ignore[arg-type]
        elif kind is ConfigRecord:
            self._configure(record)  # type: ignore[arg-type]
        elif isinstance(record, TopicRecord):
            created = self.topics[record.topic_id] = TopicImage(record.name, record.topic_id)
            self.topic_ids[record.name] = record.topic_id
            if self.defaults:
                self.settle(created)
        elif isinstance(record, RemoveTopicRecord):
            topic = self.topics.pop(record.topic_id, None)
            if topic is not None:
                del self.topic_ids[topic.name]
                if self._index is not None:
                    for number, partition in topic.partitions.items():
                        self._index.change((topic.topic_id, number), partition, None)
        elif isinstance(record, UnregisterBrokerRecord):
            self.brokers.pop(record.broker_id, None)
            self.cordoned = self.cordoned - {record.broker_id}
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id
        elif isinstance(record, FeatureLevelRecord):
            self.feature_levels = {**self.feature_levels, record.name: record.feature_level}
        self.offset = offset

    def _add_partition(self, record: PartitionRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            raise InternalError(f"metadata: partition {record.partition_id} of the unknown topic id {record.topic_id}")
        self.set_partition(topic, record.partition_id, self.share(PartitionImage.from_record(record)))

    def set_partition(self, topic: TopicImage, number: int, partition: PartitionImage) -> None:
        """Give a partition a value from :meth:`share`."""
        is_first = not topic.partitions
        was = topic.partitions.get(number)
        if self._index is not None:
            self._index.change((topic.topic_id, number), was, partition)
        topic.partitions[number] = partition
        if is_first or (number == 0 and was is not None and was.factor != partition.factor):
            self.settle(topic)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self.topics.get(record.topic_id)
        before = None if topic is None else topic.partitions.get(record.partition_id)
        if topic is None or before is None:
            raise InternalError(
                f"metadata: a change of the unknown partition {record.partition_id} of topic id {record.topic_id}"
            )
        elected = record.leader != NO_LEADER_CHANGE
        partition = PartitionImage(
            before.replicas if record.replicas is None else tuple(record.replicas),
            before.isr if record.isr is None else tuple(record.isr),
            before.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            before.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            record.leader if elected else before.leader,
            before.leader_epoch + 1 if elected else before.leader_epoch,
            before.partition_epoch + 1,
            before.recovering if record.leader_recovery_state == -1 else record.leader_recovery_state == 1,
            before.leader_epoch + 1 if elected and record.leader_recovery_state == 1 else before.unclean_epoch,
            before.suspects if record.suspects is None else tuple(record.suspects),
            before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        )
        self.set_partition(topic, record.partition_id, self.share(partition))

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            _address(record.end_points),
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
            max((one.max_supported_version for one in record.features if one.name == FEATURE), default=0),
            record.rack,
        )

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None or broker.epoch != record.broker_epoch:
            raise InternalError(
                f"metadata: a change of broker {record.broker_id} in epoch {record.broker_epoch}, which is not"
                " registered"
            )
        if record.fenced:
            broker = broker._replace(fenced=record.fenced == 1)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        self.brokers[record.broker_id] = broker

    def _configure(self, record: ConfigRecord) -> None:
        if record.resource_type == RESOURCE_BROKER and not record.resource_name:
            self.defaults = _with(self.defaults, record)
            for topic in self.topics.values():
                self.settle(topic)
        elif record.resource_type == RESOURCE_BROKER:
            if record.name == CORDONED and record.resource_name.isdecimal():
                broker = {int(record.resource_name)}
                self.cordoned = self.cordoned | broker if record.value else self.cordoned - broker
        elif record.resource_type == RESOURCE_TOPIC:
            found = self.topic(record.resource_name)
            if found is None:
                raise InternalError(f"metadata: a setting of the unknown topic {record.resource_name!r}")
            found.config = _with(found.config, record)
            self.settle(found)

    def settle(self, topic: TopicImage, replica_count: int = 0) -> None:
        """Work out the settings in force: the topic's own, else the cluster's defaults, else
        pyreplog's.

        ``replica_count``: that of the topic's first partition, if it is not applied yet.
        """
        values = {**self.defaults, **topic.config}
        if _MIN_ISR not in values:
            for first in topic.partitions.values():
                replica_count = first.factor
                break
            if replica_count:
                values[_MIN_ISR] = str(default_min_insync_replicas(replica_count))
        config = LogConfig.from_mapping(values)
        if config != topic.log_config:  # nodes compare by identity
            topic.log_config = config

    # ------------------------------------------------------------------------------------ restating

    def records(self) -> list[MetadataRecord]:
        """Return records that, applied to an empty image, produce this one (except its offset)."""
        return list(self.iter_records())

    def iter_records(self) -> Iterator[MetadataRecord]:
        """Yield the records of :meth:`records`. REQUIRES that the image does not change before the last one."""
        for name, level in self.feature_levels.items():
            yield FeatureLevelRecord(name, level)
        for broker in self.brokers.values():
            yield broker.to_record()
        for broker_id in sorted(self.cordoned):
            yield cordon_record(broker_id, cordoned=True)
        if self.next_producer_id:
            yield ProducerIdsRecord(-1, -1, self.next_producer_id)
        for key, value in self.defaults.items():
            yield ConfigRecord(RESOURCE_BROKER, "", key, value)
        for topic in self.topics.values():
            yield TopicRecord(topic.name, topic.topic_id)
            for key, value in topic.config.items():
                yield ConfigRecord(RESOURCE_TOPIC, topic.name, key, value)
            for number, partition in topic.partitions.items():
                yield partition.to_record(topic.topic_id, number)


def cordon_record(broker_id: int, *, cordoned: bool) -> ConfigRecord:
    """Return the record that cordons a broker, or ends that."""
    return ConfigRecord(RESOURCE_BROKER, str(broker_id), CORDONED, ALL_DIRECTORIES if cordoned else None)


def _with(values: dict[str, str], record: ConfigRecord) -> dict[str, str]:
    """Return ``values`` after a change of one setting."""
    others = {name: value for name, value in values.items() if name != record.name or record.value is not None}
    return others if record.value is None else {**others, record.name: record.value}


def _address(end_points: Sequence[BrokerEndpoint]) -> str:
    """Return the address of a broker. In one process the host is the whole address and the port is
    0."""
    if not end_points:
        return ""
    first = end_points[0]
    return first.host if first.port == 0 else f"tcp://{first.host}:{first.port}"
