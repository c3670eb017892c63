"""The node's copy of the metadata: fetch the controller's records by offset, apply them, and pass
them to the replicas.

A replica receives its partition's metadata only after the image includes the registration of this
very incarnation, because an older "in sync" may describe an earlier incarnation. From then on, an
image that lists this broker as in sync makes its copy complete.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from pyreplog.config import NodeConfig
from pyreplog.controller import ImageRecords, MetadataImage, PartitionImage, PartitionKey
from pyreplog.errors import ConfigError, CorruptError, PyreplogError, StorageError
from pyreplog.log import LogRoot, NewLog
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.node.effects import Effects
from pyreplog.node.events import NodeEvents
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.ports import Address
from pyreplog.replica import BrokersApplied, BrokerStatus, ConfigApplied, MetadataApplied, Replica, Stop
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    NO_ERROR,
    NO_LEADER,
    RESOURCE_TOPIC,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicaState,
    Response,
    UnregisterBrokerRecord,
)

__all__ = ["MetadataListener"]

_MS: Final = 1_000_000
GRACE_NS: Final = 500 * _MS
CREATE_RETRY_NS: Final = 1_000 * _MS
REFUSED_RETRY_NS: Final = 20 * _MS
"""The pause after a refusal, such as NOT_CONTROLLER."""
_ABOUT_BROKERS: Final = (BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord)
_ABOUT_PARTITIONS: Final = (PartitionChangeRecord, PartitionRecord)


_log = logging.getLogger("pyreplog.node")


@mypyc_attr(allow_interpreted_subclasses=True)
class MetadataListener:
    """Keeps ``standing.image`` and ``hosted`` up to date. Only this class creates or removes a
    replica."""

    #: The class of the machines; the known-bad variants of ``pyreplog.testing`` replace it.
    replica_class: ClassVar[type[Replica]] = Replica

    def __init__(
        self,
        effects: Effects,
        standing: ClusterView,
        root: LogRoot,
        hosted: dict[PartitionKey, HostedPartition],
        config: NodeConfig,
        controller: Address,
        events: NodeEvents,
    ) -> None:
        self.refused: dict[PartitionKey, PyreplogError] = {}
        """The copies that cannot be created or opened yet, with the error. Each is tried again."""
        self._to_retry: dict[PartitionKey, None] = {}
        """The copies with a running retry timer. There is one timer for each, even if another event
        tries the copy before."""
        self._effects = effects
        self._standing = standing
        self._root = root
        self._hosted = hosted
        self._config = config
        self._node_id = root.node_id
        self._controller = controller
        self._events = events
        self._open = -1
        self._timeout_ns = config.replica_fetch_wait_max_ms * _MS + GRACE_NS
        self._in_picture = False
        self._is_later_planned = False

    def fetch(self) -> None:
        """Ask for the records after the image, unless a request is open already."""
        if self._open < 0 and self._standing.broker_epoch >= 0:
            self._ask(self._standing.image.offset + 1)

    def _fetch_later(self) -> None:
        if not self._is_later_planned:
            self._is_later_planned = True
            self._effects.timers.call_at(self._effects.now_ns + REFUSED_RETRY_NS, self._later)

    def _later(self) -> None:
        self._is_later_planned = False
        self.fetch()

    def _ask(self, offset: int) -> None:
        effects = self._effects
        body = FetchRequest(
            self._config.replica_fetch_wait_max_ms,
            1,
            [FetchTopic(METADATA_TOPIC_ID, [FetchPartition(0, -1, offset)])],
            ReplicaState(self._node_id, self._standing.broker_epoch),
        )
        correlation_id = self._open = effects.request(self._controller, body)
        effects.timers.call_at(effects.now_ns + self._timeout_ns, lambda: self._expire(correlation_id))

    def _expire(self, correlation_id: int) -> None:
        if self._open in (correlation_id, -1):
            self._open = -1
            self.fetch()

    def disconnected(self) -> None:
        """Ask again soon: the controller's process has ended, and another begins."""
        if self._open >= 0:
            self._open = -1
            self._fetch_later()

    def answered(self, message: Response, body: FetchResponse) -> bool:
        """Handle an answer that may be the controller's. Return False if it is not."""
        if message.correlation_id != self._open:
            return False
        self._open = -1
        found = [data for topic in body.responses for data in topic.partitions]
        if body.error_code != NO_ERROR or any(data.error_code != NO_ERROR for data in found):
            self._fetch_later()
            return True
        for data in found:
            records: Any = data.records or ()
            if data.snapshot_id is not None:
                self._replace(records, data.snapshot_id.end_offset)
            else:
                self._apply(records)
        self.fetch()
        return True

    # ------------------------------------------------------------------------------------- applying

    def _replace(self, records: Sequence[tuple[int, MetadataRecord]], end_offset: int) -> None:
        """Replace the image by a whole one."""
        if isinstance(records, ImageRecords):
            image = records.image()
        else:
            image = MetadataImage()
            for offset, record in records:
                image.apply(offset, record)
        image.offset = end_offset - 1
        self._standing.image = image
        self._refresh_brokers()
        if self._enter_picture():
            return
        if self._in_picture:
            self._host_all()
            self._tell_brokers()

    def _apply(self, records: Sequence[tuple[int, MetadataRecord]]) -> None:
        image = self._standing.image
        brokers_changed = shutdown = False
        made_until = -1
        for index, (offset, record) in enumerate(records):
            if offset <= image.offset:
                continue  # fetched twice
            if offset != image.offset + 1:
                break  # a gap: ask again from the end of the image
            if self._in_picture and offset > made_until and isinstance(record, PartitionRecord):
                run = _run_of_partitions(records, index)
                made_until = offset + len(run) - 1
                self._create_ahead(run)
            image.apply(offset, record)
            if isinstance(record, _ABOUT_BROKERS):
                self._refresh_brokers()
                brokers_changed = True
                shutdown |= isinstance(record, BrokerRegistrationChangeRecord) and record.in_controlled_shutdown == 1
                if not self._in_picture and self._enter_picture():
                    brokers_changed = False
            elif not self._in_picture:
                continue
            elif isinstance(record, _ABOUT_PARTITIONS):
                self._apply_partition((record.topic_id, record.partition_id))
            elif isinstance(record, ConfigRecord):
                self._apply_config_record(record)
            elif isinstance(record, RemoveTopicRecord):
                for key in [key for key in self.refused if key[0] == record.topic_id]:
                    del self.refused[key]
                self._remove([key for key in self._hosted if key[0] == record.topic_id])
        if brokers_changed and self._in_picture:
            self._tell_brokers()
        if shutdown:
            self._events.metadata_to_confirm()

    def _enter_picture(self) -> bool:
        """Return whether the image includes this incarnation since this call."""
        if self._in_picture or not self._standing.includes_registration:
            return False
        self._in_picture = True
        self._host_all()
        self._events.metadata_to_confirm()
        return True

    def registered(self) -> None:
        """Note that this incarnation has a broker epoch.

        After a restart of the controller the image may include that registration already.
        """
        self._in_picture = False
        self._enter_picture()
        self.fetch()

    def _refresh_brokers(self) -> None:
        self._standing.brokers = {
            broker.broker_id: BrokerStatus(broker.epoch, broker.active)
            for broker in self._standing.image.brokers.values()
        }

    def _tell_brokers(self) -> None:
        brokers = self._standing.brokers
        for hosted in self._hosted.values():
            self._effects.run(hosted, BrokersApplied(brokers))

    # -------------------------------------------------------------------------------------- hosting

    def _host_all(self) -> None:
        """Host every partition of the image that has a replica here.

        Partitions that the image does not have are set aside, not deleted. Only a record deletes
        data, which removes a topic or assigns a partition to other nodes: a controller that restarts
        with an old state must not cost any.
        """
        image = self._standing.image
        mine = [
            ((topic.topic_id, number), partition)
            for topic in image.topics.values()
            for number, partition in topic.partitions.items()
            if self._node_id in partition.replicas
        ]
        self._create_ahead(mine)
        for key, _ in mine:
            self._apply_partition(key)
        for key in [key for key in self._hosted if image.partition(key) is None]:
            self._stop_hosting(key)
        for known in list(self._root.known()):
            topic = image.topics.get(known.topic_id)
            if topic is None:
                self._set_aside(known.topic_partition)
                continue
            key = (known.topic_id, known.topic_partition.partition)
            assigned = topic.partitions.get(key[1])
            if assigned is None or self._node_id in assigned.replicas:
                continue
            # It was assigned to other nodes while this one was down, or before the snapshot.
            if key in self._hosted:
                self._remove([key])
            else:
                self._root.remove_logs([known.topic_partition])

    def _apply_config_record(self, record: ConfigRecord) -> None:
        """Give new settings to the replicas of one topic, or of all topics if the cluster's defaults
        changed."""
        image = self._standing.image
        topic = image.topic(record.resource_name) if record.resource_type == RESOURCE_TOPIC else None
        for one in image.topics.values() if topic is None else (topic,):
            for number in one.partitions:
                hosted = self._hosted.get((one.topic_id, number))
                if hosted is not None:
                    self._apply_config(hosted)

    def _apply_config(self, hosted: HostedPartition) -> None:
        config = self._standing.image.topics[hosted.topic_id].log_config
        if hosted.config is not config:
            hosted.config = config
            self._effects.run(hosted, ConfigApplied(config))

    def _apply_partition(self, key: PartitionKey) -> None:
        """Pass new metadata of a partition to its replica."""
        partition = self._standing.image.partition(key)
        hosted = self._hosted.get(key)
        if partition is None or self._node_id not in partition.replicas:
            self.refused.pop(key, None)
            if partition is not None and hosted is not None:
                self._remove([key])  # a committed record assigned it to other nodes
            return
        if hosted is not None and self._is_lost(hosted, partition):
            self._stop_hosting(key)
            hosted = None
        if hosted is None:
            hosted = self._host(key, partition)
            if hosted is None:
                return
        self._apply_config(hosted)
        if partition.leader != NO_LEADER:
            self._standing.leaderless.pop(key, None)
        elif key not in self._standing.leaderless:
            self._standing.leaderless[key] = hosted
            self._events.leader_lost()
        if partition.leader == self._node_id and len(partition.isr) < len(partition.replicas):
            self._standing.under_replicated[key] = hosted
        else:
            self._standing.under_replicated.pop(key, None)
        self._effects.run(
            hosted,
            MetadataApplied(
                self._standing.image.offset,
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.replicas,
                partition.isr,
                self._standing.brokers,
                int(partition.recovering),
                partition.unclean_epoch,
            ),
        )

    def _is_lost(self, hosted: HostedPartition, partition: PartitionImage) -> bool:
        """Return whether the copy here is damaged and may be replaced by a new one.

        It may be if a leader with all committed records exists, in a later epoch than the copy's
        last one. In the same epoch, the leader's knowledge of the old copy would count for the new
        one.
        """
        damaged = self._root.damaged
        if not damaged or hosted.topic_partition not in damaged:
            return False
        if partition.leader_epoch <= hosted.replica.leader_epoch:
            return False
        return (
            partition.leader != NO_LEADER and self._node_id not in partition.isr and self._node_id not in partition.elr
        )

    def _host(self, key: PartitionKey, partition: PartitionImage) -> HostedPartition | None:
        """Begin to host a partition, with its existing copy (which is opened only if needed) or a
        new one.

        A new copy that is not in sync is incomplete from the start. While the partition has no
        leader no copy is created: the in-sync set then describes the time before this node
        restarted, so it does not say that an empty copy is complete.
        """
        topic = self._standing.image.topics[key[0]]
        topic_partition = TopicPartition(topic.name, key[1])
        logs = self._root.logs
        log = logs.peek(topic_partition, topic.log_config) if topic_partition in logs else None
        try:
            if log is not None and log.topic_id != key[0]:
                self._set_aside(topic_partition)  # it belongs to an earlier topic of that name
                log = None
            if log is None:
                if partition.leader == NO_LEADER:
                    return None
                incomplete = self._node_id not in partition.isr
                if incomplete and topic_partition in self._root.damaged:
                    # Another replica leads and has all committed records: set the damaged copy
                    # aside and fetch the records again.
                    self._root.move_to_stray(topic_partition)
                new = self._root.new_log(topic_partition, key[0], topic.log_config, incomplete=incomplete)
                self._root.create_logs([new])
                log = logs.peek(topic_partition, topic.log_config)
            replica = self.replica_class(log, self._node_id, self._config)
        except (StorageError, CorruptError, ConfigError) as error:
            known = self.refused.get(key)
            self.refused[key] = error
            self._events.storage_failed(error, is_news=known is None or str(known) != str(error))
            self._events.hosting_failed(key)
            if key not in self._to_retry:
                self._to_retry[key] = None
                self._effects.timers.call_at(self._effects.now_ns + CREATE_RETRY_NS, lambda: self._retry_hosting(key))
            return None
        if self.refused.pop(key, None) is not None:
            self._events.hosting_restored(key)
        hosted = HostedPartition(key, topic_partition, replica)
        self._hosted[key] = hosted
        return hosted

    def _create_ahead(self, partitions: Sequence[tuple[PartitionKey, PartitionRecord | PartitionImage]]) -> None:
        """Create several new copies together before their metadata is passed on, so that they share
        syncs.

        They are the copies that :meth:`_host` would create. It creates those that are not created
        here.
        """
        root, topics = self._root, self._standing.image.topics
        wanted: dict[TopicPartition, NewLog] = {}
        for key, partition in partitions:
            topic = topics.get(key[0])
            if topic is None or self._node_id not in partition.replicas or partition.leader == NO_LEADER:
                continue
            if not topic.partitions:
                self._standing.image.settle(topic, len(partition.replicas))
            name = TopicPartition(topic.name, key[1])
            if key not in self._hosted and name not in root.logs and name not in root.damaged:
                incomplete = self._node_id not in partition.isr
                wanted.setdefault(name, root.new_log(name, key[0], topic.log_config, incomplete=incomplete))
        if len(wanted) > 1:
            try:
                root.create_logs(list(wanted.values()))
            except (StorageError, CorruptError) as error:
                self._events.storage_failed(error, is_news=False)  # ``_host`` reports it for each partition

    def _retry_hosting(self, key: PartitionKey) -> None:
        self._to_retry.pop(key, None)
        if key not in self._hosted and self._in_picture:
            self._apply_partition(key)

    def _remove(self, keys: Sequence[PartitionKey]) -> None:
        """Delete the partitions: a committed record with their topic's id removed them."""
        self._root.remove_logs([self._stop_hosting(key).topic_partition for key in keys])

    def _stop_hosting(self, key: PartitionKey) -> HostedPartition:
        hosted = self._hosted.pop(key)
        self._standing.leaderless.pop(key, None)
        self._standing.under_replicated.pop(key, None)
        self._effects.run(hosted, Stop())
        self._events.hosting_ended(hosted)
        return hosted

    def _set_aside(self, topic_partition: TopicPartition) -> None:
        stray = self._root.move_to_stray(topic_partition, "is unknown to the controller")
        _log.warning(
            "node %d: the controller does not know %s: its folder is kept as %s", self._node_id, topic_partition, stray
        )


def _run_of_partitions(
    records: Sequence[tuple[int, MetadataRecord]], first: int
) -> list[tuple[PartitionKey, PartitionRecord]]:
    """Return the new partitions in ``records``, without a gap, from index ``first`` on."""
    run: list[tuple[PartitionKey, PartitionRecord]] = []
    for index in range(first, len(records)):
        offset, record = records[index]
        if offset != records[first][0] + index - first or not isinstance(record, PartitionRecord):
            break
        run.append(((record.topic_id, record.partition_id), record))
    return run
