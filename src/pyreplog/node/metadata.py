"""The controller's decisions, as they reach this node: fetched at offsets, applied record by record, handed to the replicas.

What the metadata says about a partition reaches its replica only once the picture includes the registration of this very incarnation:
before that, "in sync" may speak of a former life. Then a picture that lists this broker as in sync makes its copy complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from pyreplog.compiled import mypyc_attr
from pyreplog.config import NodeConfig
from pyreplog.errors import ConfigError, CorruptError, PyreplogError, StorageError
from pyreplog.interruptions import is_interruption
from pyreplog.log import LogRoot, NewLog
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import Hosted, Standing
from pyreplog.ports import Address
from pyreplog.quorum import MetadataImage, PartitionImage, PartitionKey
from pyreplog.replica import BrokersApplied, BrokerStatus, MetadataApplied, Replica, Stop
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    NO_ERROR,
    NO_LEADER,
    BrokerRegistrationChangeRecord,
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

__all__ = ["MetadataFollower"]

_MS: Final = 1_000_000
GRACE_NS: Final = 500 * _MS
CREATE_RETRY_NS: Final = 1_000 * _MS
_ABOUT_BROKERS: Final = (BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord)
_ABOUT_PARTITIONS: Final = (PartitionChangeRecord, PartitionRecord)


_log = logging.getLogger("pyreplog.node")


@mypyc_attr(allow_interpreted_subclasses=True)
class MetadataFollower:
    """Keeps ``standing.image`` up to date, and ``hosted`` with it: this is the only place that makes or removes a replica."""

    #: The class of the machines; the known-bad variants of ``pyreplog.testing`` put others in its place.
    replica_class: ClassVar[type[Replica]] = Replica

    def __init__(
        self,
        effects: Effects,
        standing: Standing,
        root: LogRoot,
        hosted: dict[PartitionKey, Hosted],
        config: NodeConfig,
        node_id: int,
        controller: Address,
    ) -> None:
        self.on_caught_up: Callable[[], None]
        """Called when the image first includes this incarnation's registration."""
        self.on_leaderless: Callable[[], None]
        """Called when a hosted partition lost its leader."""
        self.on_refused: Callable[[PartitionKey], None]
        """Called, each time, when a copy cannot be made: another one leads, if any can."""
        self.on_made: Callable[[PartitionKey], None]
        """Called when a copy is there that could not be made before."""
        self.on_shutdown: Callable[[], None]
        """Called when a node is about to stop: it waits until everybody has said that it knows."""
        self.on_removed: Callable[[Hosted], None]
        self.on_storage_error: Callable[[PyreplogError, bool], None]
        """Called with what went wrong, and whether that is news."""
        self.refused: dict[PartitionKey, PyreplogError] = {}
        """The copies that cannot be made or opened as yet, and why; each is tried again."""
        self._to_retry: dict[PartitionKey, None] = {}
        """Those for which a timer runs: one for each, whatever else has them tried meanwhile."""
        self._effects = effects
        self._standing = standing
        self._root = root
        self._hosted = hosted
        self._config = config
        self._node_id = node_id
        self._controller = controller
        self._open = -1
        self._timeout_ns = config.replica_fetch_wait_max_ms * _MS + GRACE_NS
        self._in_picture = False

    def fetch(self) -> None:
        """Ask for what comes after the image, unless that is being asked already."""
        if self._open < 0 and self._standing.broker_epoch >= 0:
            self._ask(self._standing.image.offset + 1)

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

    def answered(self, message: Response, body: FetchResponse) -> bool:
        """An answer that may be the controller's. False where it is not."""
        if message.correlation_id != self._open:
            return False
        self._open = -1
        if body.error_code == NO_ERROR:
            for topic in body.responses:
                for data in topic.partitions:
                    records: Any = data.records or ()
                    if data.snapshot_id is not None:
                        self._replace(records, data.snapshot_id.end_offset)
                    else:
                        self._apply(records)
        self.fetch()
        return True

    # ------------------------------------------------------------------------------------------------------------------------ applying

    def _replace(self, records: Sequence[tuple[int, MetadataRecord]], end_offset: int) -> None:
        """Forget the image: this is a whole one."""
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
                break  # a gap: ask again from where the image ends
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
                self._told((record.topic_id, record.partition_id))
            elif isinstance(record, RemoveTopicRecord):
                for key in [key for key in self.refused if key[0] == record.topic_id]:
                    del self.refused[key]
                self._remove([key for key in self._hosted if key[0] == record.topic_id])
        if brokers_changed and self._in_picture:
            self._tell_brokers()
        if shutdown:
            self.on_shutdown()

    def _enter_picture(self) -> bool:
        """Whether the image has just come to include this incarnation."""
        if self._in_picture or not self._standing.in_picture:
            return False
        self._in_picture = True
        self._host_all()
        self.on_caught_up()
        return True

    def registered(self) -> None:
        """This incarnation has a broker epoch: the image may include it already (after the controller came back)."""
        self._in_picture = False
        self._enter_picture()
        self.fetch()

    def _refresh_brokers(self) -> None:
        self._standing.brokers = {
            broker.broker_id: BrokerStatus(broker.epoch, broker.active) for broker in self._standing.image.brokers.values()
        }

    def _tell_brokers(self) -> None:
        brokers = self._standing.brokers
        for hosted in self._hosted.values():
            self._effects.run(hosted, BrokersApplied(brokers))

    # ------------------------------------------------------------------------------------------------------------------------- hosting

    def _host_all(self) -> None:
        """Every partition of the image that has a replica here. What the image does not have is set aside, not deleted: only a record that
        removes a topic deletes, and a controller that came back with an old state must cost no data."""
        image = self._standing.image
        mine = [
            ((topic.topic_id, number), partition)
            for topic in image.topics.values()
            for number, partition in topic.partitions.items()
            if self._node_id in partition.replicas
        ]
        self._create_ahead(mine)
        for key, _ in mine:
            self._told(key)
        for key in [key for key in self._hosted if image.partition(key) is None]:
            self._leave(key)
        for topic_partition in [known.topic_partition for known in self._root.known() if known.topic_id not in image.topics]:
            self._set_aside(topic_partition)

    def _told(self, key: PartitionKey) -> None:
        """The metadata says something new about a partition."""
        partition = self._standing.image.partition(key)
        hosted = self._hosted.get(key)
        if partition is None or self._node_id not in partition.replicas:
            self.refused.pop(key, None)
            if partition is not None and hosted is not None:
                self._remove([key])  # assigned elsewhere, by a committed record
            return
        if hosted is not None and self._is_lost(hosted, partition):
            self._leave(key)
            hosted = None
        if hosted is None:
            hosted = self._host(key, partition)
            if hosted is None:
                return
        if partition.leader != NO_LEADER:
            self._standing.leaderless.pop(key, None)
        elif key not in self._standing.leaderless:
            self._standing.leaderless[key] = hosted.log
            self.on_leaderless()
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

    def _is_lost(self, hosted: Hosted, partition: PartitionImage) -> bool:
        """Whether its copy turned out to be damaged, and nobody counts on it: somebody leads who has all that is committed, in a later
        epoch than the copy was last asked for in. Else what its leader knows of that one would count for the one made in its place."""
        damaged = self._root.damaged
        if not damaged or hosted.topic_partition not in damaged:
            return False
        if partition.leader_epoch <= hosted.replica.leader_epoch:
            return False
        return partition.leader != NO_LEADER and self._node_id not in partition.isr and self._node_id not in partition.elr

    def _host(self, key: PartitionKey, partition: PartitionImage) -> Hosted | None:
        """Begin to host: with the copy that is there (which is not opened for this, where that is not needed), or a new one.

        A new copy that is not in sync is incomplete from its first moment. While nobody leads no copy is made: being listed as in sync then
        says only what was so before this node restarted, not that an empty copy is complete.
        """
        topic = self._standing.image.topics[key[0]]
        topic_partition = TopicPartition(topic.name, key[1])
        logs = self._root.logs
        log = logs.asleep(topic_partition, topic.log_config) if topic_partition in logs else None
        try:
            if log is not None and log.topic_id != key[0]:
                self._set_aside(topic_partition)  # of an earlier topic with the same name
                log = None
            if log is None:
                if partition.leader == NO_LEADER:
                    return None
                incomplete = self._node_id not in partition.isr
                if incomplete and topic_partition in self._root.damaged:
                    # Somebody else leads and has everything that is committed: keep what is damaged beside, and fetch it anew.
                    self._root.set_aside(topic_partition)
                log = self._root.create_log(topic.name, key[1], key[0], topic.log_config, incomplete=incomplete)
            replica = self.replica_class(log, self._node_id, self._config)
        except (StorageError, CorruptError, ConfigError) as error:
            if is_interruption(error):
                raise
            known = self.refused.get(key)
            self.refused[key] = error
            self.on_storage_error(error, known is None or str(known) != str(error))
            self.on_refused(key)
            if key not in self._to_retry:
                self._to_retry[key] = None
                self._effects.timers.call_at(self._effects.now_ns + CREATE_RETRY_NS, lambda: self._told_again(key))
            return None
        if self.refused.pop(key, None) is not None:
            self.on_made(key)
        hosted = Hosted(key, log.topic_partition, log, replica)
        self._hosted[key] = hosted
        return hosted

    def _create_ahead(self, partitions: Sequence[tuple[PartitionKey, PartitionRecord | PartitionImage]]) -> None:
        """Make the new copies among those that are about to be told, as :meth:`_host` would, but together: their syncs are shared. What is
        not made here is made there."""
        root, topics = self._root, self._standing.image.topics
        wanted: dict[TopicPartition, NewLog] = {}
        for key, partition in partitions:
            topic = topics.get(key[0])
            if topic is None or self._node_id not in partition.replicas or partition.leader == NO_LEADER:
                continue
            name = TopicPartition(topic.name, key[1])
            if key not in self._hosted and name not in root.logs and name not in root.damaged:
                incomplete = self._node_id not in partition.isr
                wanted.setdefault(name, root.new_log(name, key[0], topic.log_config, incomplete=incomplete))
        if len(wanted) > 1:
            try:
                root.create_logs(list(wanted.values()))
            except (StorageError, CorruptError) as error:
                if is_interruption(error):
                    raise
                self.on_storage_error(error, False)  # said where each is made by itself

    def _told_again(self, key: PartitionKey) -> None:
        self._to_retry.pop(key, None)
        if key not in self._hosted and self._in_picture:
            self._told(key)

    def _remove(self, keys: Sequence[PartitionKey]) -> None:
        """The partitions are gone, by a committed record that names their topic's id."""
        self._root.remove_logs([self._leave(key).topic_partition for key in keys])

    def _leave(self, key: PartitionKey) -> Hosted:
        hosted = self._hosted.pop(key)
        self._standing.leaderless.pop(key, None)
        self._effects.run(hosted, Stop())
        self.on_removed(hosted)
        return hosted

    def _set_aside(self, topic_partition: TopicPartition) -> None:
        stray = self._root.set_aside(topic_partition, "is unknown to the controller")
        _log.warning("node %d: the controller does not know %s: its folder is kept as %s", self._node_id, topic_partition, stray)


def _run_of_partitions(records: Sequence[tuple[int, MetadataRecord]], first: int) -> list[tuple[PartitionKey, PartitionRecord]]:
    """The new partitions that follow one another in ``records`` from index ``first`` on."""
    run: list[tuple[PartitionKey, PartitionRecord]] = []
    for index in range(first, len(records)):
        offset, record = records[index]
        if offset != records[first][0] + index - first or not isinstance(record, PartitionRecord):
            break
        run.append(((record.topic_id, record.partition_id), record))
    return run
