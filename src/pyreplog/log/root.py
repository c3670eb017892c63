"""A Kafka log directory held by one writer: its lock, identity, checkpoints, and the partitions in it.

Order of opening: lock, incarnation (synced), clean shutdown marker read and removed, checkpoints,
logs. Order of closing: logs, checkpoints, marker, lock. Each step is durable before the next, so
that the next open knows after which step a crash happened.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pyreplog._core import TailBudget
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, ConfigError, CorruptError, PyreplogError, StorageError
from pyreplog.log.backup_note import refuse_unfinished
from pyreplog.log.checkpoints import OffsetCheckpoints
from pyreplog.log.clean_shutdown import LOGS, NOTHING
from pyreplog.log.identity import RootIdentity, random_uuid
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.layout import (
    INT64_MAX,
    LOCK_NAME,
    SUMMARIES_NAME,
    directory_name,
    join,
    parent_of,
    parse_directory_name,
)
from pyreplog.log.lifetime import RootLifetime
from pyreplog.log.log import Log
from pyreplog.log.log_opener import LogOpener, is_shortage
from pyreplog.log.log_table import LogTable
from pyreplog.log.names import make_folder
from pyreplog.log.partition_folders import PartitionFolders
from pyreplog.log.partition_opening import NewLog
from pyreplog.log.recovery_listener import RecoveryOptions
from pyreplog.log.recovery_report import RecoveryContext
from pyreplog.log.reserve import keep_reserve, with_reserve
from pyreplog.log.root_discovery import is_partition
from pyreplog.log.summary import (
    StoreName,
    Summary,
    encode_body,
    read_summaries,
    summarize,
    write_summaries,
)
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.log.unloaded import UnloadedLog
from pyreplog.ports import Clock, Disk, Lock, RandomBytes
from pyreplog.values import TopicPartition

TAILS_SIZE: Final = 128 << 20
"""Most bytes of appended batches that all logs of a root keep in memory together."""
CREATED_TOGETHER: Final = 64
"""Most new logs whose files are open at a time."""


def _close_cleanly(log: Log) -> StorageError | None:
    """Close ``log`` cleanly; return the error of the disk, if there is one."""
    try:
        log.close(clean=True)
    except StorageError as error:
        return error
    return None


class PartitionInfo(NamedTuple):
    """The facts that a root has about a partition without opening it. Offsets as in :class:`Log`."""

    topic_partition: TopicPartition
    topic_id: str
    latest_epoch: int
    end_offset: int
    incomplete: bool
    reported: bool


class LogRoot:
    """The log root at ``path``, held by :meth:`open` until :meth:`close`. Not thread-safe.

    ``logs`` are the partitions that could be opened, ``damaged`` those that could not, with the
    reason.
    """

    #: The class of its logs; the known-bad variants of ``pyreplog.testing`` replace it.
    log_class: type[Log] = Log
    #: With fewer partitions than this a clean stop leaves no summary, because reading their folders
    #: is as fast.
    summaries_from: int = 16
    #: With at least this many partitions a new log is closed until its first use. With fewer,
    #: keeping it open costs less than opening it again.
    unloaded_from: int = 64

    def __init__(self, disk: Disk, path: str, *, clock: Clock, random: RandomBytes, lock: Lock) -> None:
        self.disk = disk
        self.path = path
        self.clock = clock
        self.random = random
        #: Indexes of closed segments that all its logs keep in memory.
        self.index_cache = IndexCache()
        #: The memory for the last appended batches of all its logs.
        self.tail_room = TailBudget(TAILS_SIZE)
        #: The clock that a log trusts when it is loaded.
        self.trusted_clock = TrustedClock(clock)
        self.logs = LogTable(self._load, self.index_cache, self.tail_room)
        self._opener = LogOpener(disk, clock, self.log_class, self.trusted_clock)
        self.damaged: dict[TopicPartition, PyreplogError] = {}
        #: Called when loading a log shows that it is damaged. The partition is then in ``damaged``
        #: and no longer in ``logs``.
        self.on_damaged: Callable[[TopicPartition, PyreplogError], None] | None = None
        #: Problems with the root's own files, one line for each.
        self.notes: list[str] = []
        self._lock = lock
        self._identity = RootIdentity(disk, path)
        self._lifetime: RootLifetime
        self._folders = PartitionFolders(disk, path, random, self.notes)
        self._checkpoints = OffsetCheckpoints(disk, path, self.logs, self.notes)
        self._closed = False
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
        recovery: RecoveryOptions | None = None,
    ) -> LogRoot:
        """Take the folder ``path`` for writing, create it if it is missing, and open every partition in it.

        ``lazy``: after a clean stop that left a summary of the partitions, each is opened when it
        is first used; a damaged one is then found, and is in ``damaged``, only after a use.
        ``node_id`` and ``cluster_id``: None takes the id in ``meta.properties``, or a new one.

        Raise :class:`LockedError` while another writer holds the folder, :class:`ConfigError` if it
        belongs to another node or cluster, and :class:`StorageError`, also if a partition cannot be
        opened because room, descriptors or memory are lacking: that is no damage.
        """
        known = disk.stat(path)
        if known is not None and not known.is_directory:
            raise StorageError(errno.ENOTDIR, "a file is where the log's folder should be", path)
        if known is None:
            make_folder(disk, path)
        # If the disk is too full to write the owner into the lock file, the lock is not held.
        # Another process may get it first; then that process makes the reserve again.
        lock = with_reserve(disk, path, lambda: disk.lock(join(path, LOCK_NAME), f"node {node_id or 0}"))
        root: LogRoot | None = None
        try:
            root = cls(disk, path, clock=clock, random=random, lock=lock)
            root._begin(node_id, cluster_id, lazy, recovery or RecoveryOptions(), is_new=known is None)
        except BaseException:
            if root is None:
                lock.release()
            else:
                root.close(clean=False)
            raise
        return root

    def _begin(
        self, node_id: int | None, cluster_id: str | None, lazy: bool, recovery: RecoveryOptions, *, is_new: bool
    ) -> None:
        refuse_unfinished(self.disk, [self.path])
        self._identity.claim(self.random, node_id, cluster_id)
        life = self._lifetime = RootLifetime(self.disk, self.path, is_new=is_new)
        summaries = self._read_summaries() if lazy else {}
        life.begin(self.random)
        if not self._identity.was_written and not is_new:
            # The process that made the folder may have died before it synced the folder above.
            self.disk.sync_directory(parent_of(self.path))
        self._identity.write(self.clock.wall_ms())
        life.remove_marker()
        try:
            self._open_logs(summaries, recovery)
        except BaseException:
            if life.clean and not self.damaged:
                for log in self.logs.opened():
                    log.close(clean=False)
                life.restore_marker()
            raise
        life.logs_opened(self.damaged.values())
        keep_reserve(self.disk, self.path)

    # -- identity and lifetime --

    @property
    def node_id(self) -> int:
        """The id of the node that the root belongs to."""
        return self._identity.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that the root belongs to."""
        return self._identity.cluster_id

    @property
    def directory_id(self) -> str:
        """The id of the folder, which it keeps for good."""
        return self._identity.directory_id

    def keep_roles(self, roles: str) -> None:
        """Store the roles of the node in ``meta.properties``, durably."""
        if self._identity.roles != roles:
            self._identity.roles = roles
            self._identity.write(self.clock.wall_ms())

    @property
    def incarnation_id(self) -> str:
        """The id of this opening."""
        return self._lifetime.incarnation_id

    @property
    def clean(self) -> bool:
        """Whether the last writer stopped cleanly."""
        return self._lifetime.clean

    @property
    def same_boot(self) -> bool | None:
        """Whether the page cache of the last writer survived: see :class:`RootLifetime`."""
        return self._lifetime.same_boot

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch in the clean shutdown marker; -1 if there was no marker."""
        return self._lifetime.previous_broker_epoch

    # -- opening logs --

    def _read_summaries(self) -> dict[TopicPartition, bytes]:
        life = self._lifetime
        if life.store is None:
            return {}
        found = read_summaries(self.disk, self.path, life.store, life.previous_id)
        if found is None:
            self.notes.append(f"{SUMMARIES_NAME} is not as it was left: every partition's folder was read")
            return {}
        return found

    def _open_logs(self, summaries: dict[TopicPartition, bytes], recovery: RecoveryOptions) -> None:
        names = self.disk.list(self.path)
        checkpoints = self._checkpoints
        if summaries:
            checkpoints.read_cleaned_ends()
            known = {directory_name(*key): key for key in summaries}
            for name in names:
                if name in known:
                    self.logs.add_unloaded(known[name], summaries[known[name]])
            names = [name for name in names if name not in known]
        if self.clean and not any(parse_directory_name(name) for name in names):
            return
        checkpoints.read()
        for name in names:
            found = self._folders.find(name, checkpoints, ours=self._lifetime.adopting == NOTHING)
            if found is None:
                continue
            key = found.topic_partition
            if found.refusal is not None:
                self.damaged[key] = found.refusal
                continue
            try:
                directory = self._folders.path_of(key)
                log = self.logs[key] = self._opener.open(directory, key, self._origin_of(key), recovery)
                log.cleaned_end = checkpoints.offsets_of(key).cleaned_end
            except (CorruptError, ConfigError, StorageError) as error:
                if recovery.listener is not None and error is recovery.listener.failure:
                    raise  # the listener raised it, not the log
                if is_shortage(error):
                    raise  # nothing is wrong with the log, and a controller must not count it as lost
                self.damaged[key] = error
        checkpoints.keep_only(self.damaged)

    def _origin_of(self, key: TopicPartition) -> RecoveryContext:
        said = self._checkpoints.offsets_of(key)
        return RecoveryContext(
            clean=self.clean,
            same_boot=self.same_boot,
            recovery_point=said.recovery_point,
            log_start_offset=said.log_start_offset,
            high_watermark=said.high_watermark,
            trust_mark=self._lifetime.adopting != LOGS,
        )

    def _load(self, unloaded: UnloadedLog) -> Log:
        """Open ``unloaded``, put the open log in its place, and return it: see :meth:`UnloadedLog.load`."""
        key = unloaded.topic_partition
        if self._closed:
            raise ClosedError(f"{self.path} is closed")
        if self.logs.peek(key) is not unloaded:
            return self.logs[key]  # it was loaded since the caller got the handle
        try:
            log = self._opener.load(self._folders.path_of(key), unloaded)
        except (CorruptError, StorageError) as error:
            if not is_shortage(error):
                self._remove_damaged(unloaded, unloaded.summary, error)
                if self.on_damaged is not None:
                    self.on_damaged(key, error)
            raise
        log.cleaned_end = self._checkpoints.take_cleaned_end(key)
        self.logs[key] = log
        if unloaded.on_load is not None:
            unloaded.on_load(log)
        if unloaded.epochs.latest > log.epochs.latest:
            log.become_leader(unloaded.epochs.latest)
        return log

    def mark_damaged(self, log: Log, error: PyreplogError) -> None:
        """Poison ``log``, which is open and in ``logs``, and move it to ``damaged``. The caller closes
        it."""
        self._remove_damaged(log, log, error)

    def _remove_damaged(self, log: Log | UnloadedLog, state: Log | Summary, error: PyreplogError) -> None:
        key = log.topic_partition
        self._checkpoints.keep(key, state)  # before poisoning lowers the high watermark
        log.poison(error)
        self.damaged[key] = error
        del self.logs[key]

    def known(self) -> Iterator[PartitionInfo]:
        """Yield all partitions in ``logs``, in their order. No log is opened for this."""
        for key, log in self.logs.states():
            latest = log.latest_epoch if isinstance(log, Summary) else log.epochs.latest
            yield PartitionInfo(key, log.topic_id, latest, log.end_offset, log.incomplete, log.reported)

    # -- creating and removing logs --

    def new_topic_id(self) -> str:
        """Return a random topic id, for partitions that no controller named."""
        return random_uuid(self.random)

    def create_log(
        self, topic: str, partition: int, topic_id: str, config: LogConfig, *, incomplete: bool = False
    ) -> Log:
        """Create a log in a folder of its own, durable when this returns, and return it open.

        Raise the reason why an existing folder of that name cannot be used.
        """
        key = TopicPartition(topic, partition)
        self.create_logs([self.new_log(key, topic_id, config, incomplete=incomplete)])
        return self.logs[key]

    def new_log(self, key: TopicPartition, topic_id: str, config: LogConfig, *, incomplete: bool = False) -> NewLog:
        """Return the argument of :meth:`create_logs` for the partition ``key`` of this root."""
        return NewLog(self._folders.path_of(key), key, topic_id, config, incomplete)

    def create_logs(self, wanted: Sequence[NewLog]) -> None:
        """Create all of ``wanted``, no two of one name, as :meth:`create_log` does; they share syncs.

        In a large root they are not open after that.

        If one fails, the logs at the beginning of ``wanted`` exist and the others do not.
        """
        for first in range(0, len(wanted), CREATED_TOGETHER):
            self._create_together(wanted[first : first + CREATED_TOGETHER])

    def _create_together(self, wanted: Sequence[NewLog]) -> None:
        self._checkpoints.erase_absent(new.topic_partition for new in wanted)
        folders = self._folders
        reused: set[str] = set()
        for new in wanted:
            key = new.topic_partition
            if key in self.damaged:
                raise self.damaged[key]
            if key in self.logs:
                raise StorageError(errno.EEXIST, f"the partition {key} is there already", new.directory)
            if folders.exists(new.directory):
                refusal = folders.reuse(key, new.directory)
                if refusal is not None:
                    raise StorageError(errno.EEXIST, refusal, new.directory)
                reused.add(new.directory)
        try:
            made = self.log_class.create(self.disk, wanted, self.clock)
            folders.sync()
        except PyreplogError:
            # No caller was told that these logs exist; they must not block the next try.
            for new in wanted:
                with suppress(StorageError):
                    folders.empty(new.directory)
                    if new.directory not in reused:
                        folders.remove([new.directory])
            raise
        for new, log in zip(wanted, made, strict=True):
            if len(self.logs) < self.unloaded_from:
                self.logs[new.topic_partition] = log
                continue
            body = encode_body(summarize(log))
            log.close(clean=False)  # it has nothing unsynced
            if body != self._new_body:
                self._new_body = body
            self.logs.add_unloaded(new.topic_partition, self._new_body)

    def remove_log(self, topic_partition: TopicPartition) -> None:
        """Delete a partition with all its records, durably. A missing partition is no error."""
        self.remove_logs([topic_partition])

    def remove_logs(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Delete all of these partitions as :meth:`remove_log` does; their names go with one sync.

        If other users may change a partition's folder, it is moved as :meth:`move_to_stray` does,
        and no file in it is removed.
        """
        folders = self._folders
        doomed: list[str] = []
        for topic_partition in topic_partitions:
            was_open = self._take_out(topic_partition)
            directory = folders.path_of(topic_partition)
            if not folders.exists(directory) or (not was_open and not is_partition(self.disk, directory)):
                continue
            try:
                self.disk.check_directory(directory)
            except StorageError as error:
                self.move_to_stray(topic_partition, f"cannot be removed ({error})")
                continue
            doomed.append(folders.rename_to_deleted(topic_partition))
        if doomed:
            folders.sync()
            folders.remove(doomed)

    def move_to_stray(self, topic_partition: TopicPartition, why: str = "is damaged") -> str:
        """Move a partition out of the way without losing a byte, so that it can be created again.

        Its folder durably gets Kafka's name for a stray partition, and is never opened again.
        Return its new path. REQUIRES that the partition is in ``logs`` or in ``damaged``.
        """
        self._take_out(topic_partition)
        stray = self._folders.move_to_stray(topic_partition)
        self.notes.append(f"{topic_partition} {why} and was set aside as {stray}")
        return stray

    def _take_out(self, key: TopicPartition) -> bool:
        """Close the log of ``key`` and forget the partition; return whether its log was open."""
        log = self.logs.take(key)
        if log is not None:
            log.close(clean=False)
        self.damaged.pop(key, None)
        self._checkpoints.forget(key)
        return log is not None

    # -- retention --

    def apply_retention(self) -> int:
        """Remove expired segments of each log, as :meth:`Log.apply_retention` does; return their count.

        The first error is raised after all logs were handled.
        """
        count = 0
        failure: StorageError | None = None
        for key in self.logs.due(self.trusted_clock.now_and_trusted_ms()[0]):
            try:
                self.logs.get(key)
            except StorageError as error:
                failure = failure or error
        for log in self.logs.usable():
            try:
                count += log.apply_retention()
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return count

    @property
    def removal_due_ns(self) -> int:
        """When :meth:`apply_retention` must be called next to delete removed files, as
        :attr:`Log.removal_due_ns`."""
        return min((log.removal_due_ns for log in self.logs.usable()), default=INT64_MAX)

    # -- checkpoints --

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery point of each log, as :meth:`OffsetCheckpoints.write_recovery_points`."""
        self._checkpoints.write_recovery_points()

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermark of each log, as :meth:`OffsetCheckpoints.write_high_watermarks`."""
        self._checkpoints.write_high_watermarks()

    def checkpoint_cleaned_ends(self) -> None:
        """Write the end of the compacted records of each log, as :meth:`OffsetCheckpoints.write_cleaned_ends`."""
        self._checkpoints.write_cleaned_ends()

    def checkpoint_log_starts(self) -> None:
        """Write the start of each log, as :meth:`OffsetCheckpoints.write_log_starts`."""
        self._checkpoints.write_log_starts()

    # -- closing --

    def close(self, clean: bool = True, *, broker_epoch: int = -1) -> None:
        """Close every log and release the root. Not ``clean``: leave the files as a process kill would.

        The clean shutdown marker is written last, and only if nothing failed: each log is on stable
        storage up to its end, with its producers. Raise the first error after releasing all. A
        second call is harmless; after an interrupted call it does the rest.
        """
        if self._closed:
            return
        failure: PyreplogError | None = None
        try:
            # The files of a log that was closed before or is poisoned may not be complete.
            opened = self.logs.opened()
            well = not self.damaged and not any(log.failure or (log.closed and clean) for log in opened)
            if clean:
                # Each close makes several syncs. They run side by side, because a file system
                # writes its journal once for all syncs that begin together.
                failure = next(filter(None, self.disk.map(_close_cleanly, opened, waits=True)), None)
            else:
                for log in opened:
                    log.close(clean=False)
            if clean and failure is None:
                self._checkpoints.write_closed()
                if well and all(log.recovery_point == log.end_offset for log in opened):
                    self._lifetime.sign_off(broker_epoch, self._write_summaries())
        finally:
            self.logs.close_unloaded()
            try:
                self._identity.release()
            finally:
                self._lock.release()
            self._closed = True
        if failure is not None:
            raise failure

    def _write_summaries(self) -> StoreName | None:
        """Write a summary of every partition if there are enough; return the name of the store."""
        if len(self.logs) < self.summaries_from:
            return None
        try:
            entries = self.logs.summary_entries(self.incarnation_id)
        except (CorruptError, StorageError):
            return None
        return write_summaries(self.disk, self.path, entries)
