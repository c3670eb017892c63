"""The quorum's storage on a disk: the metadata log, ``quorum-state``, and snapshots, in one folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, InternalError, OutcomeUnknownError, PyreplogError, StorageError
from pyreplog.log import METADATA_TOPIC, Log, NewLog, RecoveryContext
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS, Clock, Disk
from pyreplog.quorum.config import QuorumConfig
from pyreplog.quorum.lost_storage import DamagedLog, LostState
from pyreplog.quorum.snapshots import (
    PartialSnapshot,
    SnapshotReader,
    SnapshotWriter,
    list_snapshots,
    remove_parts,
    remove_snapshot,
    snapshot_name,
    write_snapshot,
)
from pyreplog.quorum.state_file import VOUCHER_NAME, StateFile
from pyreplog.quorum.storage import ControlEntry, HardState, LogBatch, QuorumStorage
from pyreplog.quorum.voter_records import kraft_version_entry, voters_entry
from pyreplog.quorum.voters import Identity, VoterSet
from pyreplog.record import BatchBuilder, RecordBatch, payload_of, split
from pyreplog.values import EpochEntry, TopicPartition
from pyreplog.wire import METADATA_TOPIC_ID, SnapshotId

__all__ = ["OwnSnapshot", "RaftLog", "clear_quorum", "format_quorum", "is_formatted", "open_storage"]

BOOTSTRAP: Final = SnapshotId(0, 0)
_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_READ_SIZE: Final = 1 << 20
_SNAPSHOTS_KEPT: Final = 2
"""A node that is copying the older one can finish while a new one is written."""


def _log_config(config: QuorumConfig) -> LogConfig:
    return LogConfig(
        durability="sync",
        segment_bytes=config.segment_bytes,
        max_message_bytes=config.max_batch_bytes,
        file_delete_delay_ms=0,
    )


def format_quorum(
    disk: Disk,
    folder: str,
    identity: Identity,
    clock: Clock,
    voters: VoterSet | None,
    config: QuorumConfig,
    snapshot_id: SnapshotId = BOOTSTRAP,
    records: Iterable[bytes] = (),
) -> None:
    """Make the folder of a new node, with the bootstrap snapshot: KRaftVersion 1 and ``voters``.

    ``voters`` None: the node is an observer that learns the voters from the leader. The folder is
    durable when this returns, except for its name: the caller syncs the folder above. A folder that
    a crash left half made is made again. ``snapshot_id`` and ``records``: the metadata that there
    was before this quorum; its log begins at that offset.
    """
    clear_quorum(disk, folder)
    make_log(disk, folder, config, clock)
    control = [kraft_version_entry()] + ([] if voters is None else [voters_entry(voters)])
    now_ms = clock.wall_ms()
    write_snapshot(disk, folder, snapshot_id, control, records, timestamp_ms=now_ms)
    is_voter = voters is not None and identity.key in voters
    state = StateFile.create(disk, folder, identity, was_voter=is_voter)
    try:
        if snapshot_id.epoch:
            state.write(HardState(snapshot_id.epoch))
    finally:
        state.close()


def make_log(disk: Disk, folder: str, config: QuorumConfig, clock: Clock) -> None:
    """Make an empty metadata log in ``folder``, durable but for the names of its files."""
    new = NewLog(folder, _PARTITION, METADATA_TOPIC_ID, _log_config(config))
    Log.create(disk, [new], clock)[0].close(clean=False)


def clear_quorum(disk: Disk, folder: str) -> None:
    """Remove everything that a node of the quorum keeps in ``folder``, the files that vouch for it last."""
    paths = _files_of(disk, folder)
    for path in sorted(paths, key=lambda path: path.endswith(VOUCHER_NAME)):
        disk.remove(path)
    if paths:
        disk.sync_directory(folder)


def is_formatted(disk: Disk, folder: str) -> bool:
    """Return whether ``folder`` was formatted, whatever became of its files since."""
    return disk.stat(folder) is not None and VOUCHER_NAME in disk.list(folder)


def open_storage(disk: Disk, folder: str, identity: Identity, config: QuorumConfig, clock: Clock) -> QuorumStorage:
    """Return the storage in ``folder``. A damaged log gives a storage that has failed."""
    try:
        return RaftLog.open(disk, folder, identity, config, clock)
    except CorruptError as error:
        return cast("QuorumStorage", DamagedLog(error))


def _files_of(disk: Disk, folder: str) -> list[str]:
    if disk.stat(folder) is None:
        return []
    return [f"{folder}/{name}" for name in disk.list(folder)]


class RaftLog:
    """See :class:`~pyreplog.quorum.storage.QuorumStorage`. Belongs to one thread."""

    __slots__ = (
        "_builder",
        "_clock",
        "_config",
        "_disk",
        "_failure",
        "_folder",
        "_latest_control",
        "_log",
        "_partial",
        "_snapshots",
        "_state",
    )

    def __init__(
        self, disk: Disk, folder: str, config: QuorumConfig, clock: Clock, log: Log, state: StateFile | LostState
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._config = config
        self._clock = clock
        self._log = log
        self._state = state
        self._failure: Exception | None = None
        self._builder = BatchBuilder(config.max_batch_bytes)
        self._snapshots: list[SnapshotId] = []
        self._latest_control: list[ControlEntry] = []
        self._partial: PartialSnapshot | None = None

    @classmethod
    def open(cls, disk: Disk, folder: str, identity: Identity, config: QuorumConfig, clock: Clock) -> RaftLog:
        """Open the folder. A damaged state makes the node no whole voter: see :attr:`voter_failure`.

        Raises :class:`CorruptError` if the log is damaged, or a snapshot that it needs.
        """
        state: StateFile | LostState
        try:
            state = StateFile.open(disk, folder, identity)
        except CorruptError as error:
            state = LostState(identity, str(error))
        opened: RaftLog | None = None
        try:
            origin = RecoveryContext(clean=False, same_boot=None)
            log = Log.open(disk, folder, _PARTITION, _log_config(config), clock, METADATA_TOPIC_ID, origin)
            opened = cls(disk, folder, config, clock, log, state)
            if not log.recovery.mark_found:
                raise CorruptError("the mark of the metadata log is missing or damaged", file=folder)
            opened._load_snapshots()
        except BaseException:
            if opened is None:
                state.close()
            else:
                opened.close(clean=False)
            raise
        return opened

    def _load_snapshots(self) -> None:
        """Find the newest whole snapshot, and finish an installation that a crash cut short."""
        remove_parts(self._disk, self._folder)
        log, kept = self._log, list_snapshots(self._disk, self._folder)
        while kept:
            reader = SnapshotReader(self._disk, self._folder, kept[-1])
            try:
                self._latest_control = reader.control()
                break
            except CorruptError:
                kept.pop()  # a power cut may leave an empty file under a whole name; an older one is used
            finally:
                reader.close()
        self._snapshots = kept
        newest = kept[-1] if kept else None
        if newest is not None and newest.end_offset > 0:
            known = log.epochs.epoch_for_offset(newest.end_offset - 1)
            if newest.end_offset > log.end_offset or (
                log.start_offset < newest.end_offset and known not in (-1, newest.epoch)
            ):
                self._begin_at(newest)
        if log.start_offset > (newest.end_offset if newest is not None else 0):
            raise CorruptError(
                f"the metadata log begins at {log.start_offset}, and no whole snapshot reaches that offset",
                file=self._folder,
            )
        # Fetches are checked against the oldest snapshot, so it must reach the log's beginning.
        for snapshot_id in [one for one in kept if one.end_offset < log.start_offset]:
            kept.remove(snapshot_id)
            remove_snapshot(self._disk, self._folder, snapshot_id)

    @property
    def failure(self) -> Exception | None:
        """The error that ended the use of the storage."""
        return self._failure or self._log.failure

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the log."""
        return self._log.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""
        return self._log.flushed_offset

    @property
    def committed_offset(self) -> int:
        """An offset below which the log is known to be committed."""
        return self._log.high_watermark

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; 0 if there was none."""
        log = self._log
        # Not the latest epoch of the history: a refused append may have left one without records.
        if log.end_offset > log.start_offset:
            return log.epochs.epoch_for_offset(log.end_offset - 1)
        found = self.latest_snapshot()
        return found.epoch if found is not None else 0

    # -- quorum-state --

    def read_state(self) -> HardState:
        """Return the state that was written last."""
        return self._state.state

    @property
    def was_voter(self) -> bool:
        """Whether this node was a voter once."""
        return self._state.was_voter

    @property
    def voter_failure(self) -> str | None:
        """The reason for which this node is no whole voter."""
        return self._state.failure

    def write_state(self, state: HardState) -> None:
        """Keep ``state``, durably."""
        try:
            self._state.write(state)
        except StorageError as error:
            self.refused(error)
            if self._state.in_doubt:
                self._fail(error)
            raise

    def note_voter(self) -> None:
        """Keep that this node was a voter once."""
        try:
            self._state.note_voter()
        except StorageError as error:
            self.refused(error)
            raise

    def note_failure(self, reason: str) -> None:
        """Keep that this node is no whole voter any more."""
        try:
            self._state.note_failure(reason)
        except StorageError as error:
            self.refused(error)
            raise

    # -- the log, written --

    def append_records(self, values: Sequence[bytes], epoch: int, timestamp_ms: int) -> tuple[int, int]:
        """Append one batch of metadata records as the leader."""
        return self._append([(None, value) for value in values], epoch, timestamp_ms, control=False)

    def append_control(self, records: Sequence[tuple[bytes, bytes]], epoch: int, timestamp_ms: int) -> tuple[int, int]:
        """Append one batch of control records (key, value) as the leader."""
        return self._append(records, epoch, timestamp_ms, control=True)

    def _append(
        self, records: Sequence[tuple[bytes | None, bytes]], epoch: int, timestamp_ms: int, *, control: bool
    ) -> tuple[int, int]:
        batch = encode_batch(self._builder, records, timestamp_ms, control=control)
        try:
            placed = self._log.append_as_leader(batch, epoch, trusted=True)
        except OutcomeUnknownError as error:
            self._fail(error)
            raise
        except StorageError as error:
            self.refused(error)
            raise
        self._sync()
        return placed.base_offset, placed.last_offset

    def append_fetched(self, data: bytes) -> list[ControlEntry]:
        """Append whole batches of the leader at the end; return their control records."""
        batches = split(data)
        try:
            if self._log.epochs.latest > self.last_epoch:
                # A refused append of this node as the leader began an epoch that has no records.
                self._log.truncate_to(self._log.end_offset)
            self._log.append_as_follower([data], at_end=True)
        except StorageError as error:
            self.refused(error)
            raise
        self._sync()
        return [entry for batch in batches if batch.is_control for entry in _control_of(batch)]

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches ``offset``."""
        try:
            self._log.truncate_to(offset)
        except StorageError as error:
            self._fail(error)
            raise

    def note_committed(self, offset: int) -> None:
        """Note that everything below ``offset`` is committed. The next sync writes it to the mark."""
        self._log.advance_high_watermark(offset)

    def _sync(self) -> None:
        """Make the log durable up to its end. A failed sync ends the storage."""
        plan = self._log.sync_plan()
        if plan is None:
            return
        try:
            for file in plan.files:
                file.sync()
            self._log.synced(plan.upto, plan.generation)
        except StorageError as error:
            self._log.poison(error)
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error

    # -- the log, read --

    def end_offset_for(self, epoch: int) -> EpochEntry:
        """Return the greatest epoch not above ``epoch`` and its end; (-1, -1) if the log does not tell."""
        return self._log.epochs.end_offset_for(epoch, self._log.end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the record at ``offset``, -1 if the log does not tell."""
        return self._log.epochs.epoch_for_offset(offset)

    def read(self, offset: int, size_max: int) -> bytes:
        """Return whole batches, beginning with that of ``offset``."""
        found = self._log.read(offset, max(size_max, 1), self._log.end_offset, checked=True)
        return b"".join(found.parts())

    def batches(self, offset: int, end_offset: int) -> Iterator[LogBatch]:
        """Return the batches from that of ``offset`` on, below ``end_offset``."""
        while offset < end_offset:
            data = b"".join(self._log.read(offset, _READ_SIZE, end_offset, checked=True).parts())
            if not data:
                return
            for batch in split(data):
                yield _batch_of(batch)
                offset = batch.next_offset

    def control_entries(self) -> Iterator[ControlEntry]:
        """Return every control record of the log. Reads the whole log, so damage is found."""
        offset, end = self._log.start_offset, self._log.end_offset
        while offset < end:
            data = b"".join(self._log.read(offset, _READ_SIZE, end, checked=True).parts())
            for batch in split(data):
                if batch.is_control:
                    yield from _control_of(batch)
                offset = batch.next_offset

    # -- snapshots --

    def latest_snapshot(self) -> SnapshotId | None:
        """Return the id of the newest snapshot."""
        return self._snapshots[-1] if self._snapshots else None

    def oldest_snapshot(self) -> SnapshotId | None:
        """Return the id of the oldest snapshot that is kept."""
        return self._snapshots[0] if self._snapshots else None

    def snapshot_control(self, snapshot_id: SnapshotId) -> list[ControlEntry]:
        """Return the control records of a snapshot."""
        if snapshot_id == self.latest_snapshot():
            return self._latest_control
        reader = SnapshotReader(self._disk, self._folder, snapshot_id)
        try:
            return reader.control()
        finally:
            reader.close()

    def snapshot_records(self, snapshot_id: SnapshotId) -> Iterator[bytes]:
        """Return the metadata records of a snapshot."""
        reader = SnapshotReader(self._disk, self._folder, snapshot_id)
        try:
            yield from reader.records()
        finally:
            reader.close()

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """Return the size of a snapshot in bytes; None if there is no such one."""
        if snapshot_id not in self._snapshots:
            return None
        found = self._disk.stat(f"{self._folder}/{snapshot_name(snapshot_id)}")
        return None if found is None else found.size

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, size_max: int) -> bytes:
        """Return bytes of a snapshot."""
        reader = SnapshotReader(self._disk, self._folder, snapshot_id)
        try:
            return reader.read(position, size_max)
        finally:
            reader.close()

    def begin_snapshot(self, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]]) -> OwnSnapshot:
        """Begin a snapshot of committed state."""
        return OwnSnapshot(self, snapshot_id, control)

    def open_writer(self, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]]) -> SnapshotWriter:
        """Create the file of a snapshot."""
        now_ms = self._clock.wall_ms()
        return SnapshotWriter(
            self._disk, self._folder, snapshot_id, control, timestamp_ms=now_ms, last_timestamp_ms=now_ms
        )

    def take_snapshot(self, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]]) -> None:
        """Use a snapshot that was written, and let the log begin where the one before it ends.

        If a snapshot of the leader was installed since, this one is older, and is not used.
        """
        latest = self.latest_snapshot()
        if latest is not None and latest.end_offset >= snapshot_id.end_offset:
            remove_snapshot(self._disk, self._folder, snapshot_id)
            return
        self._latest_control = [ControlEntry(place, *record) for place, record in enumerate(control)]
        self._snapshots.append(snapshot_id)
        self._forget_old()

    def refused(self, error: StorageError) -> None:
        """Note that the disk refused a change. Nothing is in doubt if it only lacked room."""
        if error.errno not in NO_SPACE_ERRNOS and error.errno not in RESOURCES_EXHAUSTED_ERRNOS:
            self._fail(error)

    def _forget_old(self) -> None:
        """Keep the newest snapshots, and the log from the end of the oldest of them on."""
        kept = [one for one in self._snapshots if one.end_offset > 0][-_SNAPSHOTS_KEPT:]
        old = [one for one in self._snapshots if one not in kept]
        try:
            if len(kept) == _SNAPSHOTS_KEPT and kept[0].end_offset > self._log.start_offset:
                self._log.delete_records(kept[0].end_offset)
                self._log.apply_retention()
            for snapshot_id in old:
                self._snapshots.remove(snapshot_id)
                remove_snapshot(self._disk, self._folder, snapshot_id)
        except StorageError as error:
            self.refused(error)
            raise

    def begin_install(self, snapshot_id: SnapshotId) -> None:
        """Begin to receive a snapshot of the leader."""
        if self._partial is not None:
            self._partial.abandon()
        self._partial = PartialSnapshot(self._disk, self._folder, snapshot_id)

    def install(self, position: int, data: bytes) -> None:
        """Take the next bytes of the snapshot that is being received."""
        if self._partial is None:
            raise InternalError("no snapshot is being received")
        self._partial.append(position, data)

    def end_install(self) -> None:
        """Check the received snapshot, keep it, and let the log begin at its end."""
        partial, self._partial = self._partial, None
        if partial is None:
            raise InternalError("no snapshot is being received")
        received = partial.snapshot_id
        try:
            partial.finish()
            self._latest_control = partial.control()
            self._snapshots = [one for one in self._snapshots if one != received] + [received]
            self._begin_at(received)
            for snapshot_id in self._snapshots[:-1]:
                remove_snapshot(self._disk, self._folder, snapshot_id)
            self._snapshots = [received]
        except StorageError as error:
            self.refused(error)
            raise

    def _begin_at(self, snapshot_id: SnapshotId) -> None:
        """Drop the whole log, and let it begin at the end of a snapshot."""
        self._log.truncate_fully(snapshot_id.end_offset)
        self._log.become_leader(snapshot_id.epoch)

    def close(self, *, clean: bool = True) -> None:
        """Release the files."""
        self._state.close()
        if self._partial is not None:
            self._partial.abandon()
            self._partial = None
        try:
            self._log.close(clean=clean and self.failure is None)
        except PyreplogError:
            self._log.close(clean=False)


class OwnSnapshot:
    """A snapshot of this node's own state that is being written. If a method raises, it is abandoned."""

    __slots__ = ("_control", "_storage", "_writer", "snapshot_id")

    def __init__(self, storage: RaftLog, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]]) -> None:
        self.snapshot_id = snapshot_id
        self._storage = storage
        self._control = control
        try:
            self._writer = storage.open_writer(snapshot_id, control)
        except StorageError as error:
            storage.refused(error)
            raise

    def append(self, records: Iterable[bytes]) -> None:
        """Add metadata records."""
        try:
            self._writer.append(records)
        except BaseException as error:
            self._failed(error)
            raise

    def finish(self) -> None:
        """Make the snapshot durable, and let the log forget what older ones hold."""
        try:
            self._writer.finish()
            self._storage.take_snapshot(self.snapshot_id, self._control)
        except BaseException as error:
            self._failed(error)
            raise

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._writer.abandon()

    def _failed(self, error: BaseException) -> None:
        self._writer.abandon()
        if isinstance(error, StorageError):
            self._storage.refused(error)


def encode_batch(
    builder: BatchBuilder, records: Sequence[tuple[bytes | None, bytes]], timestamp_ms: int, *, control: bool
) -> memoryview:
    """Return one batch of (key, value) records. Raises :class:`InternalError` if they do not fit."""
    for key, value in records:
        if not builder.append(value, key, (), timestamp_ms):
            builder.reset()
            raise InternalError(f"{len(records)} metadata records do not fit one batch")
    batch = builder.finish(control=control)
    builder.reset()
    return batch


def _control_of(batch: RecordBatch) -> list[ControlEntry]:
    return [ControlEntry(one.offset, one.key or b"", one.value or b"") for one in batch.records(payload_of(batch))]


def _batch_of(batch: RecordBatch) -> LogBatch:
    if batch.is_control:
        return LogBatch(batch.base_offset, batch.last_offset, batch.leader_epoch, tuple(_control_of(batch)), ())
    values = tuple(one.value or b"" for one in batch.records(payload_of(batch)))
    return LogBatch(batch.base_offset, batch.last_offset, batch.leader_epoch, (), values)
