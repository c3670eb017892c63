"""A Kafka log directory held by one writer: its lock, identity, checkpoints, and the partitions in it.

Order of opening: lock, incarnation (synced), clean shutdown marker noted and removed, checkpoints, logs. Order of
closing: logs, checkpoints, marker, lock. Each step is durable before the next, so that a crash at any point is told
for what it is.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pyreplog._core import TailBudget
from pyreplog.config import Durability, LogConfig
from pyreplog.errors import ClosedError, ConfigError, CorruptError, PyreplogError, StorageError
from pyreplog.log.clean_shutdown import (
    LOGS,
    NOTHING,
    PARTITIONS,
    CleanShutdownMarker,
    Incarnation,
    read_farewell,
    read_incarnation,
    remove_farewell,
    write_farewell,
    write_incarnation,
)
from pyreplog.log.identity import id_for_name, random_uuid, read_properties, write_properties
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.layout import (
    CLEANED_SUFFIX,
    CONFIG_NAME,
    DELETED_SUFFIX,
    EPOCHS_NAME,
    HIGH_WATERMARK_NAME,
    INDEX_SUFFIX,
    INT32_MAX,
    INT64_MAX,
    LOCK_NAME,
    LOG_START_NAME,
    LOG_SUFFIX,
    MARK_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    OWN_PREFIX,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    SEGMENT_SUFFIXES,
    SUMMARIES_NAME,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    directory_name,
    join,
    outgoing_name,
    parent_of,
    parse_base_offset,
    parse_directory_name,
    segment_name,
)
from pyreplog.log.loader import RecoveryContext
from pyreplog.log.log import Log
from pyreplog.log.log_table import LogTable
from pyreplog.log.mark import find_mark
from pyreplog.log.opening import NewLog, open_parts
from pyreplog.log.places import is_partition, is_refusal, may_be_partition
from pyreplog.log.recovery_listener import RecoveryListener
from pyreplog.log.reserve import keep_reserve, with_reserve
from pyreplog.log.settings import read_config
from pyreplog.log.snapshot import parse_number, read_offsets, write_offsets
from pyreplog.log.summary import (
    StoreName,
    Summary,
    decode_body,
    encode_body,
    encode_key,
    read_summaries,
    sealed,
    summarize,
    write_summaries,
)
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.log.unfinished import refuse_unfinished
from pyreplog.log.unloaded import UnloadedLog, sleeping
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS, Clock, Disk, Lock, RandomBytes
from pyreplog.values import TopicPartition

TAILS_SIZE: Final = 128 << 20
"""Bytes of appended batches that all logs of a root keep in memory together."""
CREATED_TOGETHER: Final = 64
"""New logs whose files are open at a time."""
_EMPTY: Final = frozenset(
    segment_name(0, suffix) for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
)
_STATES: Final = (PARTITION_METADATA_NAME, CONFIG_NAME)
_PARTITION_FILES: Final = (EPOCHS_NAME, PARTITION_METADATA_NAME)
_DELETED_NAME: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_BEGUN: Final = _EMPTY | {
    MARK_NAME,
    *_STATES,
    *(name + TEMPORARY_SUFFIX for name in (*_STATES, segment_name(0, LOG_SUFFIX))),
}
"""What may be in the folder of a partition whose making was interrupted, and the recovery of what was made."""

_CHECKPOINTS: Final[dict[str, Callable[[Log | Summary], int | None]]] = {
    RECOVERY_POINT_NAME: lambda log: log.recovery_point,
    LOG_START_NAME: lambda log: log.start_offset if log.start_offset > log.first_base_offset else None,
    HIGH_WATERMARK_NAME: lambda log: log.high_watermark,
}
"""What each checkpoint says of a partition that is open, or was left in order; None: nothing."""


def _end(log: Log) -> StorageError | None:
    """Close ``log`` cleanly; what the disk says against it."""
    try:
        log.close(clean=True)
    except StorageError as error:
        return error
    return None


def make_folder(disk: Disk, path: str) -> None:
    """Make the folder ``path``, which is not there, and its name durable. Where that fails it is taken back, unless
    somebody put something in it: the next sync of the folder above would be believed, and power loss take
    everything that was kept here since."""
    disk.make_directory(path)
    try:
        disk.sync_directory(parent_of(path))
    except StorageError:
        with suppress(StorageError):
            disk.remove_directory(path)
        raise


def _of_partition(name: str) -> bool:
    """Whether a file called ``name`` is one of a partition."""
    for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX):
        name = name.removesuffix(suffix)
    is_of_segment = any(parse_base_offset(name, suffix) is not None for suffix in SEGMENT_SUFFIXES)
    return is_of_segment or name in _PARTITION_FILES or name.startswith(OWN_PREFIX)


class PartitionInfo(NamedTuple):
    """What a root knows of a partition without opening it. Offsets as in :class:`Log`."""

    topic_partition: TopicPartition
    topic_id: str
    latest_epoch: int
    end_offset: int
    incomplete: bool
    reported: bool


class LogRoot:
    """The root at ``path``. Made by :meth:`open`; belongs to one owner.

    ``logs`` are the partitions that could be opened, ``damaged`` those that could not, with the reason.
    """

    #: The class of its logs; the known-bad variants of ``pyreplog.testing`` put others in its
    #: place.
    log_class: type[Log] = Log
    #: With fewer partitions than this no summary is left at a clean stop: their folders are read as
    #: fast.
    summaries_from: int = 16
    #: With so many partitions a new one is not held open until somebody uses it: with fewer it
    #: costs less than opening it again.
    sleeping_from: int = 64

    def __init__(self, disk: Disk, path: str, *, clock: Clock, random: RandomBytes, lock: Lock) -> None:
        self.disk = disk
        self.path = path
        self.clock = clock
        self.random = random
        #: Indexes of closed segments that all its logs keep in memory.
        self.index_cache = IndexCache()
        #: What its logs keep in memory of what was appended last.
        self.tail_room = TailBudget(TAILS_SIZE)
        #: What its logs believe of the clock when they wake.
        self.trusted_clock = TrustedClock(clock)
        self.logs = LogTable(self._asleep, self.index_cache, self.tail_room)
        self.damaged: dict[TopicPartition, PyreplogError] = {}
        #: Called when a partition turns out to be damaged that was not open yet; it is in
        #: ``damaged`` then, and not in ``logs``.
        self.on_damaged: Callable[[TopicPartition, PyreplogError], None] | None = None
        #: What was found to be wrong with the root's own files, in words.
        self.notes: list[str] = []
        self.node_id = 0
        self.cluster_id = ""
        self.directory_id = ""
        #: Of this opening.
        self.incarnation_id = ""
        #: Whether the last writer ended in order.
        self.clean = False
        #: Whether the machine has been up since the last writer ended, so that its page cache
        #: survived. None: nobody can tell.
        self.same_boot: bool | None = False
        #: What the clean shutdown marker said; -1 where there was none.
        self.previous_broker_epoch = -1
        self._lock = lock
        # The file beside the lock file that names the folder: people remove lock files.
        self._held: Lock | None = None
        self._closed = False
        # What the checkpoints said of partitions that are not open, so that it is not lost when
        # they are written again.
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        # From what each checkpoint was written last.
        self._written: dict[str, tuple[int, dict[TopicPartition, int]]] = {}
        # Partitions that are not here and that a checkpoint may name all the same.
        self._gone: set[TopicPartition] = set()
        self._topic_ids: dict[str, str] = {}
        self._new_body = b""

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        clock: Clock,
        random: RandomBytes,
        node_id: int | None = None,
        cluster_id: str | None = None,
        lazy: bool = False,
        durability: Mapping[TopicPartition, Durability] | None = None,
        onlooker: RecoveryListener | None = None,
    ) -> LogRoot:
        """Take the folder ``path`` for writing (made where missing) and open every partition in it.

        ``lazy``: after a clean stop that left a summary of the partitions, each is opened when it is first asked
        for; ``damaged`` then only has those that were asked for in vain. ``durability``: of partitions that say
        nothing of theirs, as a broker's; of others it is ``sync``. ``node_id`` and ``cluster_id``: None takes what
        ``meta.properties`` says, else what is new. ``onlooker`` is told how far the recovery of each partition is.
        Raises :class:`LockedError` while another writer holds it, :class:`ConfigError` where it belongs to another
        node or cluster, :class:`StorageError`; also where a partition cannot be opened for lack of room,
        descriptors or memory, which is no damage.
        """
        known = disk.stat(path)
        if known is not None and not known.is_directory:
            raise StorageError(errno.ENOTDIR, "a file is where the log's folder should be", path)
        if known is None:
            make_folder(disk, path)
        # Who got the lock and no room to say who it is does not have it: another may come first,
        # who makes the reserve anew.
        lock = with_reserve(disk, path, lambda: disk.lock(join(path, LOCK_NAME), f"node {node_id or 0}"))
        root: LogRoot | None = None
        try:
            root = cls(disk, path, clock=clock, random=random, lock=lock)
            root._begin(node_id, cluster_id, lazy, durability or {}, onlooker, new=known is None)
        except BaseException:
            if root is None:
                lock.release()
            else:
                root.close(clean=False)
            raise
        return root

    def _begin(
        self,
        node_id: int | None,
        cluster_id: str | None,
        lazy: bool,
        durability: Mapping[TopicPartition, Durability],
        onlooker: RecoveryListener | None,
        *,
        new: bool,
    ) -> None:
        disk, path = self.disk, self.path
        refuse_unfinished(disk, [path])
        properties = read_properties(disk, path)
        if properties is not None:
            self._held = disk.hold(join(path, META_PROPERTIES_NAME))
        self._identify(properties or {}, node_id, cluster_id)
        before = read_incarnation(disk, path)
        farewell = read_farewell(disk, path)
        boot_id = disk.boot_id(path)
        adopting = self._adopting(before, farewell, new=new)
        # A marker that names an earlier incarnation is left from a start that ended before it was
        # removed.
        self.clean = farewell is not None and (before is None or farewell.incarnation_id == before.incarnation_id)
        self.same_boot = (before is not None and before.boot_id == boot_id) if boot_id else None
        if farewell is not None:
            self.previous_broker_epoch = farewell.broker_epoch
        summaries = self._read_summaries(farewell) if lazy and self.clean and farewell is not None else {}
        self.incarnation_id = random_uuid(self.random)
        survived = self.clean or self.same_boot or new  # in a folder that was not there nothing is of an earlier boot
        written = Incarnation(self.incarnation_id, boot_id if survived else "", adopting)
        write_incarnation(disk, path, written)
        if properties is None and not new:
            disk.sync_directory(parent_of(path))  # whoever made it may have been killed before that
        self._write_identity(properties or {})
        remove_farewell(disk, path)
        try:
            self._open_logs(summaries, durability, onlooker, adopting)
        except BaseException:
            self._restore_clean_marker()
            raise
        # A log that could not even be looked at is still as an earlier boot may have left it.
        survived = survived or all(isinstance(error, CorruptError) for error in self.damaged.values())
        known = Incarnation(self.incarnation_id, boot_id if survived else "")
        if known != written:
            write_incarnation(disk, path, known)
        keep_reserve(disk, path)

    def _restore_clean_marker(self) -> None:
        """The logs are not opened after all. Where all were as a clean stop had left them they are so still, and
        the next opening is told: else an ``os`` log would count as one that lost something, were the machine to go
        down before that."""
        if not self.clean or self.damaged:
            return
        for log in self.logs.opened():
            log.close(clean=False)
        with suppress(StorageError):  # without it the next opening only looks closer
            write_farewell(self.disk, self.path, CleanShutdownMarker(self.previous_broker_epoch, self.incarnation_id))

    def _adopting(self, before: Incarnation | None, farewell: CleanShutdownMarker | None, *, new: bool) -> str:
        """What is here of others, as :class:`Incarnation` says it; so it is until every log was opened, whatever
        becomes of the marker."""
        if before is not None and before.adopting == LOGS:
            return LOGS
        if before is not None and farewell is not None and farewell.incarnation_id == "":
            return LOGS  # the marker is that of a broker, which wrote here since
        if before is not None and before.adopting == NOTHING:
            return NOTHING
        return PARTITIONS if not new and any(map(parse_directory_name, self.disk.list(self.path))) else NOTHING

    def _read_summaries(self, farewell: CleanShutdownMarker) -> dict[TopicPartition, bytes]:
        if farewell.store is None:
            return {}
        found = read_summaries(self.disk, self.path, StoreName(*farewell.store), farewell.incarnation_id)
        if found is None:
            self.notes.append(f"{SUMMARIES_NAME} is not as it was left: every partition's folder was read")
            return {}
        return found

    def _identify(self, properties: dict[str, str], node_id: int | None, cluster_id: str | None) -> None:
        written = properties.get("node.id", properties.get("broker.id"))
        kept = None
        if written is not None:
            try:
                kept = parse_number(written, 0, INT32_MAX)
            except ValueError:
                raise ConfigError(
                    f"{self.path}: node.id in meta.properties is {written[:64]!r}, no number of a node"
                ) from None
        if kept is not None and node_id is not None and kept != node_id:
            raise ConfigError(f"{self.path} belongs to node {kept}, not to node {node_id}")
        self.node_id = kept if kept is not None else (node_id or 0)
        kept_cluster = properties.get("cluster.id")
        if kept_cluster is not None and cluster_id is not None and kept_cluster != cluster_id:
            raise ConfigError(f"{self.path} belongs to cluster {kept_cluster[:64]}, not to cluster {cluster_id}")
        self.cluster_id = kept_cluster or cluster_id or random_uuid(self.random)
        self.directory_id = properties.get("directory.id") or random_uuid(self.random)

    def _write_identity(self, properties: dict[str, str]) -> None:
        wanted = {
            **{name: value for name, value in properties.items() if name != "broker.id"},
            "node.id": str(self.node_id),
            "directory.id": self.directory_id,
            "version": "1",
            "cluster.id": self.cluster_id,
        }
        if wanted != properties:
            write_properties(self.disk, self.path, wanted, self.clock.wall_ms())
            if self._held is not None:
                self._held.release()  # of the file that was there before
            self._held = self.disk.hold(join(self.path, META_PROPERTIES_NAME))

    # -- partitions --

    def _open_logs(
        self,
        summaries: dict[TopicPartition, bytes],
        durability: Mapping[TopicPartition, Durability],
        onlooker: RecoveryListener | None,
        adopting: str,
    ) -> None:
        names = self.disk.list(self.path)
        trust_marks = adopting != LOGS
        if summaries:
            known = {directory_name(*key): key for key in summaries}
            for name in names:
                if name in known:
                    self.logs.add_unloaded(known[name], summaries[known[name]])
            names = [name for name in names if name not in known]
        if self.clean and not any(parse_directory_name(name) for name in names):
            return
        said = {file: self._read(file) for file in _CHECKPOINTS}
        named = set[TopicPartition]().union(*said.values())
        for name in names:
            key = self._partition_in(name, named, ours=adopting == NOTHING)
            if key is None:
                continue
            directory = join(self.path, name)
            try:
                origin = RecoveryContext(
                    clean=self.clean,
                    same_boot=self.same_boot,
                    recovery_point=said[RECOVERY_POINT_NAME].get(key, 0),
                    log_start_offset=said[LOG_START_NAME].get(key, 0),
                    high_watermark=said[HIGH_WATERMARK_NAME].get(key, 0),
                    trust_mark=trust_marks,
                )
                topic_id = self._missing_id(directory, key.topic, trust_marks=trust_marks)
                config = None
                if (
                    key in durability
                    and read_config(self.disk, directory) is None
                    and find_mark(self.disk, directory) is None
                ):
                    config = LogConfig(durability=durability[key])
                self.logs[key] = self.log_class.open(
                    self.disk, directory, key, config, self.clock, topic_id, origin, onlooker
                )
            except (CorruptError, ConfigError, StorageError) as error:
                if onlooker is not None and error is onlooker.failure:
                    raise  # of who was told, not of the log
                if isinstance(error, StorageError) and (
                    error.errno in NO_SPACE_ERRNOS or error.errno in RESOURCES_EXHAUSTED_ERRNOS
                ):
                    raise  # nothing is wrong with it, and a controller must not count it as lost
                self.damaged[key] = error
        for file, values in said.items():
            self._kept[file] = {key: values[key] for key in self.damaged if key in values}
        self._gone = named.difference(self.logs, self.damaged)

    def _partition_in(self, name: str, named: Container[TopicPartition], *, ours: bool) -> TopicPartition | None:
        """The partition whose log is to be opened in the folder ``name``; None where there is none: what is to go
        goes, and what may not be looked into is noted. ``named``: what a checkpoint names. ``ours``: only we have
        made partitions here."""
        disk = self.disk
        parsed = parse_directory_name(name)
        directory = join(self.path, name)
        if parsed is None or not self._is_directory(directory):
            return None
        topic_partition = parsed.topic_partition
        try:
            if disk.stat(join(directory, META_PROPERTIES_NAME)) is not None:
                raise ConfigError(
                    f"{self.path} holds the roots of several nodes, such as {name}: open one of them, or the cluster"
                )
            is_content = is_partition(disk, directory)
        except StorageError as error:
            if not is_refusal(error):
                raise
            if may_be_partition(name) and not parsed.kind:
                self.damaged[topic_partition] = error
            return None
        if (parsed.kind and parsed.kind != "delete") or (not parsed.kind and topic_partition.topic == METADATA_TOPIC):
            return None
        if parsed.kind:
            if not self._is_leftover(name, directory):
                self.notes.append(f"{name} is left as it is: it holds what is no file of a partition")
                return None
            try:
                self._remove_folder(directory)
            except (
                StorageError
            ) as error:  # it may not be looked into, or holds what is no file of a log: in nobody's way
                self.notes.append(f"{name} is left as it is: {error}")
            return None
        if not is_content and topic_partition not in named:
            return None  # another program's folder, or an empty one
        try:
            disk.check_directory(directory)
        except StorageError as error:
            self.damaged[topic_partition] = error
            return None
        # What a checkpoint names was there: that it is empty now is no reason to forget where it
        # ended.
        if ours and topic_partition not in named and self._half_made(directory):
            self._remove_folder(directory)
            return None
        return topic_partition

    def _asleep(self, key: TopicPartition, body: bytes, config: LogConfig | None) -> Log:
        topic_id = decode_body(body).topic_id
        return sleeping(self.log_class, self, key, self._topic_ids.setdefault(topic_id, topic_id), body, config)

    def wake(self, log: Log) -> None:
        """Open ``log``, which sleeps. Where that cannot be for lack of room, descriptors or memory it sleeps on,
        and may wake another time; for any other reason ``damaged`` has it from then on."""
        assert isinstance(log, UnloadedLog), "peek"
        key = log.topic_partition
        if self._closed:
            raise ClosedError(f"{self.path} is closed")
        directory = join(self.path, directory_name(*key))
        parts = None
        try:
            left = log.mark_state
            origin = RecoveryContext(
                clean=True,
                same_boot=True,
                recovery_point=left.synced_end,
                log_start_offset=left.start_offset,
                high_watermark=left.high_watermark,
                left=left,
            )
            parts = open_parts(self.disk, directory, key, None, self.clock, None, origin)
            log.take_parts(directory, parts)
        except (CorruptError, ConfigError, StorageError) as error:
            if not isinstance(log, UnloadedLog):
                raise  # it is open, and what it had to write down is its own affair
            if parts is not None:
                parts.segments.close()
                parts.mark.close()
            if isinstance(error, StorageError) and (
                error.errno in NO_SPACE_ERRNOS or error.errno in RESOURCES_EXHAUSTED_ERRNOS
            ):
                raise
            self._spoiled(log, error)
            if isinstance(error, ConfigError):
                raise CorruptError(str(error), file=directory) from error
            raise
        self.logs.changes += 1

    def _spoiled(self, log: UnloadedLog, error: PyreplogError) -> None:
        self._remove_damaged(log, log.summary, error)
        if self.on_damaged is not None:
            self.on_damaged(log.topic_partition, error)

    def mark_damaged(self, log: Log, error: PyreplogError) -> None:
        """``log``, which is in ``logs`` and open, turned out to be damaged: it ends, and is in ``damaged`` from now
        on. The caller closes it."""
        self._remove_damaged(log, log, error)

    def _remove_damaged(self, log: Log, state: Log | Summary, error: PyreplogError) -> None:
        key = log.topic_partition
        said = {file: value_of(state) for file, value_of in _CHECKPOINTS.items()}  # before it is poisoned
        log.poison(error)
        self.damaged[key] = error
        for file, value in said.items():
            if value is not None:
                self._kept.setdefault(file, {})[key] = value
        del self.logs[key]

    def known(self) -> Iterator[PartitionInfo]:
        """All partitions in ``logs``, in their order; none is opened for this."""
        for key in self.logs:
            log = self.logs.if_loaded(key)
            if log is not None:
                yield PartitionInfo(key, log.topic_id, log.epochs.latest, log.end_offset, log.incomplete, log.reported)
            elif (summary := self.logs.summary(key)) is not None:
                found = (
                    summary.topic_id,
                    summary.latest_epoch,
                    summary.end_offset,
                    summary.incomplete,
                    summary.reported,
                )
                yield PartitionInfo(key, *found)

    def create_log(
        self, topic: str, partition: int, topic_id: str, config: LogConfig, *, incomplete: bool = False
    ) -> Log:
        """A new, empty log in its own folder, durable when this returns, and where there are very many not open.
        Raises what is wrong with a folder of that name that is there already."""
        key = TopicPartition(topic, partition)
        self.create_logs([self.new_log(key, topic_id, config, incomplete=incomplete)])
        return self.logs.peek(key, config)

    def new_log(self, key: TopicPartition, topic_id: str, config: LogConfig, *, incomplete: bool = False) -> NewLog:
        """What :meth:`create_logs` takes, for the partition ``key`` in this root."""
        return NewLog(join(self.path, directory_name(*key)), key, topic_id, config, incomplete)

    def create_logs(self, wanted: Sequence[NewLog]) -> None:
        """As :meth:`create_log`, for all of ``wanted`` (no two of one name): their syncs begin together. Where it
        fails, those at the beginning are made and the others are not there."""
        for first in range(0, len(wanted), CREATED_TOGETHER):
            self._create_together(wanted[first : first + CREATED_TOGETHER])

    def _create_together(self, wanted: Sequence[NewLog]) -> None:
        if not self._gone.isdisjoint(new.topic_partition for new in wanted):
            # What they say of an earlier partition of that name would be said of this one.
            self.checkpoint_recovery_points()
            self.checkpoint_log_starts()
            self.checkpoint_high_watermarks()
            self._gone.clear()
        there: set[str] = set()
        for new in wanted:
            key = new.topic_partition
            if key in self.damaged:
                raise self.damaged[key]
            if key in self.logs or self._is_directory(new.directory):
                self.disk.check_directory(new.directory)
                if key in self.logs or not self._half_made(new.directory):
                    raise StorageError(errno.EEXIST, self._in_the_way(key, new.directory), new.directory)
                # An empty folder may be a mount point, or another user's: it is used as it is.
                there.add(new.directory)
                self._empty_folder(new.directory)
        try:
            made = self.log_class.create(self.disk, wanted, self.clock)
            self.disk.sync_directory(self.path)
        except PyreplogError:
            # What was never acknowledged must not be in the way of the next try.
            for new in wanted:
                with suppress(StorageError):
                    self._empty_folder(new.directory)
                    if new.directory not in there:
                        self._remove_folder(new.directory)
            raise
        for new, log in zip(wanted, made, strict=True):
            if len(self.logs) < self.sleeping_from:
                self.logs[new.topic_partition] = log
                continue
            body = encode_body(summarize(log))
            log.close(clean=False)  # there is nothing in it that waits for the disk
            if body != self._new_body:
                self._new_body = body
            self.logs.add_unloaded(new.topic_partition, self._new_body)

    def remove_log(self, topic_partition: TopicPartition) -> None:
        """Delete a partition with all its records, durably gone when this returns. One that is not there is no
        error."""
        self.remove_logs([topic_partition])

    def remove_logs(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """As :meth:`remove_log`, for all of them: their names go with one sync. One whose folder others may change
        is set aside, as by :meth:`move_to_stray`: nothing is removed from there."""
        doomed: list[str] = []
        for topic_partition in topic_partitions:
            log = self.logs.take(topic_partition)
            self._forget(topic_partition)
            if log is not None:
                log.close(clean=False)
            directory = join(self.path, directory_name(*topic_partition))
            if not self._is_directory(directory) or (log is None and not is_partition(self.disk, directory)):
                continue
            try:
                self.disk.check_directory(directory)
            except StorageError as error:
                self.move_to_stray(topic_partition, f"cannot be removed ({error})")
                continue
            # Under Kafka's name for what is being deleted, an interrupted removal is finished at
            # the next start, and never taken for a log.
            doomed.append(join(self.path, outgoing_name(topic_partition, self.random.randbytes(16).hex(), "delete")))
            self.disk.rename(directory, doomed[-1])
        if doomed:
            self.disk.sync_directory(self.path)
            self._remove_folders(doomed)

    def move_to_stray(self, topic_partition: TopicPartition, why: str = "is damaged") -> str:
        """Take a partition out of the way without losing a byte of it, so that it can be made anew: its folder gets
        Kafka's name for a stray one, durably, and is never opened again. Returns that path. REQUIRES that it is in
        ``logs`` or in ``damaged``."""
        log = self.logs.take(topic_partition)
        if log is not None:
            log.close(clean=False)
        self._forget(topic_partition)
        directory = join(self.path, directory_name(*topic_partition))
        stray = join(self.path, outgoing_name(topic_partition, self.random.randbytes(16).hex(), "stray"))
        self.disk.rename(directory, stray)
        self.disk.sync_directory(self.path)
        self.notes.append(f"{topic_partition} {why} and was set aside as {stray}")
        return stray

    def _forget(self, topic_partition: TopicPartition) -> None:
        self.damaged.pop(topic_partition, None)
        for kept in self._kept.values():
            kept.pop(topic_partition, None)
        self._gone.add(topic_partition)

    def new_topic_id(self) -> str:
        """A random topic id, for partitions that no controller named."""
        return random_uuid(self.random)

    def apply_retention(self) -> int:
        """Remove what may go of each log, as :meth:`Log.apply_retention`; how many segments went. The first failure
        is raised, after all had their turn."""
        count = 0
        failure: StorageError | None = None
        for key in self.logs.due(self.trusted_clock.now_and_trusted_ms()[0]):
            try:
                self.logs.get(key)
            except StorageError as error:
                failure = failure or error
        for log in self._in_use():
            try:
                count += log.apply_retention()
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return count

    @property
    def removal_due_ns(self) -> int:
        """When :meth:`apply_retention` has to be called next for a file that went, as
        :attr:`Log.removal_due_ns`."""
        return min((log.removal_due_ns for log in self._in_use()), default=INT64_MAX)

    def _in_use(self) -> list[Log]:
        """The logs that are open and well."""
        return [log for log in self.logs.opened() if log.failure is None and not log.closed]

    # -- checkpoints --

    def checkpoint_recovery_points(self) -> None:
        """Write up to where each log is on stable storage (:attr:`Log.recovery_point`), and sync the marks. What
        was taken of the reserve, and not to be had again while the disk was full, is made anew."""
        keep_reserve(self.disk, self.path)
        self._sync_marks()
        self._write(RECOVERY_POINT_NAME)

    def checkpoint_high_watermarks(self) -> None:
        """Write each log's high watermark."""
        self._write(HIGH_WATERMARK_NAME)

    def checkpoint_log_starts(self) -> None:
        """Write the start of each log that does not begin where its first segment does, and sync the marks."""
        self._sync_marks()
        self._write(LOG_START_NAME)

    def _sync_marks(self) -> None:
        for log in self._in_use():
            log.sync_mark()

    def _write(self, name: str) -> None:
        value_of = _CHECKPOINTS[name]
        values = {log.topic_partition: value for log in self.logs.opened() if (value := value_of(log)) is not None}
        written = (self.logs.changes, values.copy())
        if self._written.get(name) == written:
            return  # nothing changed, and there may be very many that are not open
        values.update(self._kept.get(name, {}))
        for key, body in self.logs.summaries().items():
            value = value_of(decode_body(body))
            if value is not None:
                values[key] = value
        write_offsets(self.disk, join(self.path, name), values)
        self._written[name] = written

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.disk, join(self.path, name))
        except CorruptError as error:
            self.notes.append(f"{name} is damaged and not believed: {error}")
            return {}

    # -- the end --

    def close(self, clean: bool = True, *, broker_epoch: int = -1) -> None:
        """Close every log and release the root. Not ``clean``: as the end of the process would.

        Only where everything went well is the clean shutdown marker written, last: each log is on stable storage up
        to its end, and so is who wrote it. Raises the first failure, after releasing all. Twice is harmless; where
        a signal handler that raises cut it short, the second does the rest.
        """
        if self._closed:
            return
        failure: PyreplogError | None = None
        try:
            # A log closed before, and one that was poisoned, cannot vouch for what is on the disk.
            opened = self.logs.opened()
            well = not self.damaged and not any(log.failure or (log.closed and clean) for log in opened)
            if clean:
                # Each is several syncs: side by side, for a file system writes its journal once for
                # all that begin at the same moment.
                failure = next(filter(None, self.disk.map(_end, opened, waits=True)), None)
            else:
                for log in opened:
                    log.close(clean=False)
            if clean and failure is None:
                keep_reserve(self.disk, self.path)
                for name in _CHECKPOINTS:
                    self._write(name)
                if well and all(log.recovery_point == log.end_offset for log in opened):
                    write_farewell(
                        self.disk,
                        self.path,
                        CleanShutdownMarker(broker_epoch, self.incarnation_id, self._write_summaries()),
                    )
        finally:
            self.logs.close_sleeping()
            try:
                if self._held is not None:
                    self._held.release()
            finally:
                self._lock.release()
            self._closed = True
        if failure is not None:
            raise failure

    def _write_summaries(self) -> StoreName | None:
        """Leave a summary of every partition, where there are so many that it is of use; its name."""
        if len(self.logs) < self.summaries_from:
            return None
        generation = self.incarnation_id
        entries = {
            key: sealed(key, generation, body)
            for where, body in self.logs.summaries().items()
            if (key := encode_key(where))
        }
        try:
            for log in self.logs.opened():
                key = encode_key(log.topic_partition)
                entries[key] = sealed(key, generation, encode_body(summarize(log)))
        except (CorruptError, StorageError):
            return None
        return write_summaries(self.disk, self.path, sorted(entries.items()))

    # -- folders --

    def _is_directory(self, path: str) -> bool:
        found = self.disk.stat(path)
        return found is not None and found.is_directory

    def _half_made(self, directory: str) -> bool:
        """Whether the making of this partition was interrupted: no mark, and nothing but what is made before there
        is one. Whatever else is there tells of records, also of some that went: a segment that begins above 0, an
        epoch, who wrote."""
        names = self.disk.list(directory)
        if not _BEGUN.issuperset(names) or find_mark(self.disk, directory) is not None:
            return False
        log = self.disk.stat(join(directory, segment_name(0, LOG_SUFFIX)))
        return log is None or not log.size

    def _missing_id(self, directory: str, topic: str, *, trust_marks: bool) -> str | None:
        """An id for a partition from before topics had ids; None where there is one."""
        if self.disk.stat(join(directory, PARTITION_METADATA_NAME)) is not None:
            return None
        return None if trust_marks and find_mark(self.disk, directory) is not None else id_for_name(topic)

    def _in_the_way(self, key: TopicPartition, directory: str) -> str:
        """Why the partition ``key`` cannot be created in ``directory``, which is there."""
        if key in self.logs or is_partition(self.disk, directory):
            return f"the partition {key} is there already"
        return (
            f"another program's folder has the name of the partition {key}, and is left alone: move it away, or name"
            " the topic differently"
        )

    def _is_leftover(self, name: str, directory: str) -> bool:
        """Whether the folder ``name`` of a partition that was being deleted holds nothing but files of a partition.
        An empty one was a partition's if its name has an id as Kafka and we write it."""
        names = self.disk.list(directory)
        return all(map(_of_partition, names)) if names else _DELETED_NAME.fullmatch(name) is not None

    def _empty_folder(self, directory: str) -> None:
        """Remove the files of an interrupted creation, and leave their folder."""
        names = self.disk.list(directory)
        for name in names:
            self.disk.remove(join(directory, name))
        if names:
            self.disk.sync_directory(directory)

    def _remove_folder(self, directory: str) -> None:
        self._remove_folders([directory])

    def _remove_folders(self, directories: Sequence[str]) -> None:
        for directory in directories:
            self.disk.check_directory(directory)
            for name in self.disk.list(directory):
                self.disk.remove(join(directory, name))
            self.disk.remove_directory(directory)
        self.disk.sync_directory(self.path)
