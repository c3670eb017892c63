"""One run of a backup: it copies new data, compares the earlier copies, and verifies everything at the end.

Order of a run. Every refusal comes before the first change: the earlier copies are compared with the source while
the locks keep writers out of the backup, so a refused run leaves a whole backup whole. The note ``unfinished`` is
synced before anything else changes, and the note ``whole`` comes last, so a backup that was interrupted anywhere is
never taken for whole. The progress of imports and Spark's sinks is copied before the records, and the controller's
state after them: so the records are never older than the former, nor newer than the latter. All replicas of a
partition get one end: the high watermark. A replica that does not reach it is copied from one that does. The metadata
logs of the nodes are copied behind the records too, each as it is, because a log, its snapshots and the node's vote
belong together.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from pyreplog.backups.places import Place, find_places
from pyreplog.controller import STATE_FILE, ControllerState, MetadataImage, decode, encode, image_in, store
from pyreplog.controller import read_state as read_controller
from pyreplog.errors import BackupDivergedError, ConfigError, CorruptError, LockedError, StorageError
from pyreplog.log import (
    BACKUP_NAME,
    INCARNATION_NAME,
    LOCK_NAME,
    META_PROPERTIES_NAME,
    METADATA_FOLDER,
    METADATA_TOPIC,
    OFFSETS_PREFIX,
    QUEUE_PREFIX,
    SPOOL_PREFIX,
    BackupNote,
    Duplicate,
    LogReader,
    MetadataFolder,
    ReplicaView,
    RootView,
    check_extends,
    directory_name,
    duplicate,
    find_logs,
    holds_cluster,
    is_partition,
    join,
    make_folder,
    newest_metadata,
    outgoing_name,
    parse_directory_name,
    read_backup_note,
    read_properties,
    read_topic_id,
    read_whole,
    refuse_unfinished,
    replace_file,
    sign_off,
    write_backup_note,
)
from pyreplog.ports import Disk, Lock, RandomBytes
from pyreplog.values import BackupProgress, BackupReport, TopicPartition
from pyreplog.verify import Level, Report, check_controller, check_root, is_whole_queue, total_size

Progress = Callable[[BackupProgress], None]

LOCK_FILE: Final = f"{BACKUP_NAME}.lock"
TOGETHER: Final = 64
"""Partitions that are copied at a time, side by side as far as the disk can use it."""
LOOKS_MAX: Final = 100
"""How often one partition is looked at again because its writer removed segments while they were copied."""
ROUNDS_MAX: Final = 3
"""How often topics are looked for that were made while others were copied."""
_APPLIED: Final = ".applied"
_UNFINISHED: Final = "~"
"""The end of the name of a reader's file that has not replaced the old one yet."""
_IMPORT: Final = "replog.import"
_BOOTSTRAP: Final = "bootstrap.checkpoint"
_NOT_OURS: Final = frozenset({LOCK_FILE, LOCK_NAME, f"{BACKUP_NAME}.tmp", "lost+found"})
"""Files that an empty folder may hold: locks of a run that ended before its first note, and files of the file
system."""


def make(
    disk: Disk, source: str, target: str, *, random: RandomBytes, progress: Progress | None = None
) -> BackupReport:
    """Copy what readers see of the folder ``source`` into the folder ``target``, durably, and verify it. REQUIRES
    absolute paths.

    ``target`` is new, empty, or an earlier backup of ``source``. ``random`` makes the ids of folders that are set
    aside. Raises :class:`ConfigError` for another folder, :class:`BackupDivergedError` if ``target`` holds records
    that ``source`` lacks, :class:`LockedError` while another process writes to ``target``, :class:`CorruptError` if
    ``source`` is damaged, :class:`StorageError` if the disk refuses.
    """
    return _Run(disk, source, target, random, progress).run()


class _Replica(NamedTuple):
    """One folder of a partition: its copy as a reader sees it, and its place in the backup."""

    place: Place
    copy: ReplicaView


class _Origin(NamedTuple):
    """A replica, the replica whose records are copied in its place, and the offset at which the copy ends."""

    place: Place
    copy: ReplicaView
    origin: ReplicaView
    end_offset: int


_Act = Callable[[TopicPartition, Sequence[_Replica]], None]


class _Run:
    """One run. Use once."""

    def __init__(self, disk: Disk, source: str, target: str, random: RandomBytes, progress: Progress | None) -> None:
        self._disk, self._source, self._target, self._random = disk, source, target, random
        self._tell = progress
        self._telling = disk.new_lock()
        self._stage, self._done, self._total = "copied", 0, 0
        self._notes: list[str] = []
        self._places: list[Place] = []
        self._copied: dict[str, dict[TopicPartition, Duplicate]] = {}
        """By root of the source."""
        self._broker_epochs: dict[int, int] = {}
        """By node id, as the copied metadata of the cluster has them."""

    def run(self) -> BackupReport:
        disk, source, target = self._disk, self._source, self._target
        _check_apart(source, target)
        self._note_neighbours()
        self._note_hidden()
        self._places = find_places(disk, source, target)
        refuse_unfinished(disk, [source, *(place.source for place in self._places)])
        self._check_cluster()
        self._check_target()
        new = disk.stat(target) is None
        if new:
            make_folder(disk, target)
        lock = self._lock(join(target, LOCK_FILE))
        try:
            self._begin()
            self._begin_stage("copied", self._size_to_copy())
            self._copy_all()
            for place in self._places:
                self._sign_off(place)
            return self._verified()
        finally:
            lock.release()

    def _lock(self, path: str) -> Lock:
        try:
            return self._disk.lock(path, "a backup")
        except LockedError as error:
            reading, waiting = "back up into another folder", "run the backup again later"
            both = f"{reading}, {waiting}"
            raise LockedError(
                path, error.holder, "the backup", reading=reading, waiting=waiting, in_command=both
            ) from None

    def _check_cluster(self) -> None:
        """Refuse the folder of a cluster whose controller's state is missing or damaged, before anything is
        copied."""
        disk, source = self._disk, self._source
        book = Report(None)
        roots = [place.source for place in self._places]
        inside = join(source, "")
        for home in dict.fromkeys(
            [source, *(root.rpartition("/")[0] for root in roots if root.rpartition("/")[0].startswith(inside))]
        ):
            check_controller(disk, home, disk.list(home), roots, book)
        for finding in book.findings:
            if finding.level is Level.DAMAGE:
                error = CorruptError(
                    f"{finding.path}: {finding.what}, and is not backed up. To mend it: {finding.advice}"
                )
                error.file = finding.path  # named in front, because the advice ends the text
                raise error

    def _note_neighbours(self) -> None:
        """Note a backup that lies right beside its source: a reader of the parent folder would find the same
        records twice."""
        parent = self._source.rpartition("/")[0]
        if parent and self._target.rpartition("/")[0] == parent:
            self._notes.append(
                f"{self._target} lies beside its source: `replog cat --all {parent}`, and other readers of several logs"
                " in that folder, will refuse all of them, because they would read records twice. Keep backups in a"
                " folder of their own"
            )

    def _note_hidden(self) -> None:
        """Note the logs below the source that the backup does not hold."""
        if self._disk.stat(self._source) is None:
            return
        for folder in find_logs(self._disk, self._source).hidden(self._disk):
            self._notes.append(
                f"{folder} is not in this backup: it is a log inside another log's folder, or more than two folders"
                " below the source. Back it up by itself"
            )

    # -- the target --

    def _check_target(self) -> None:
        """Refuse a folder that is neither new nor a backup of the source."""
        disk, source, target = self._disk, self._source, self._target
        found = disk.stat(target)
        if found is None:
            return
        if not found.is_directory:
            raise StorageError(errno.ENOTDIR, "a file is where the backup's folder should be", target)
        note = read_backup_note(disk, target)
        if note is None and not _NOT_OURS.issuperset(disk.list(target)):
            raise ConfigError(f"{target} is no backup, and not empty: name a new folder for the backup of {source}")
        for place in self._places:
            values = read_properties(disk, place.target) if disk.stat(place.target) is not None else None
            there = "" if values is None else values.get("cluster.id", "")
            if there and place.cluster_id and there != place.cluster_id:
                raise ConfigError(
                    f"{place.target} is a backup of cluster {there[:64]}, and {place.source} is of cluster"
                    f" {place.cluster_id[:64]}: name a new folder for its backup"
                )
        if note is not None and not holds_cluster(disk, source):
            self._check_roots(target)

    def _check_roots(self, target: str) -> None:
        """Refuse a source that lost a root whose copies the backup has: the next run would leave them behind, of
        another time."""
        wanted = {place.target for place in self._places}
        for name in [".", *self._disk.list(target)]:
            folder = target if name == "." else join(target, name)
            if folder not in wanted and self._disk.stat(join(folder, BACKUP_NAME)) is not None and folder != target:
                raise ConfigError(
                    f"{folder} is the backup of a node that {self._source} does not have: put that node's folder back,"
                    " or name a new folder for the backup"
                )

    def _begin(self) -> None:
        """Check that the backup can go on, make its folders, and note durably that it is not finished.

        The locks keep writers out until the notes do.
        """
        disk = self._disk
        note = BackupNote(self._source, whole=False)
        folders = list(dict.fromkeys([self._target, *(place.target for place in self._places)]))
        with ExitStack() as locks:
            for folder in folders:
                if disk.stat(folder) is not None:
                    disk.check_directory(folder)
                    locks.callback(self._lock(join(folder, LOCK_NAME)).release)
            self._check_histories()
            for folder in folders:
                if disk.stat(folder) is None:
                    disk.make_directory(folder)
                    disk.sync_directory(folder.rpartition("/")[0] or "/")
                    disk.check_directory(folder)
                    locks.callback(self._lock(join(folder, LOCK_NAME)).release)
                write_backup_note(disk, folder, note)

    def _check_histories(self) -> None:
        """Refuse a source that does not continue the earlier copies, before anything is changed."""
        data = read_controller(self._disk, self._source)
        if data is not None:
            self._missing_nodes(decode(data, join(self._source, STATE_FILE)).image)
        elif (image := self._metadata_in([place.source for place in self._places])) is not None:
            self._missing_nodes(image)
        for places in self._groups():
            # All roots of a log together: one replica may hold the records that another one has not
            # yet.
            wanted = {
                key
                for place in places
                for key in place.partitions(self._disk)
                # The end of a metadata log may have been cut off and written otherwise.
                if key.topic != METADATA_TOPIC and self._disk.stat(join(place.target, directory_name(*key))) is not None
            }
            self._each_partition(dict.fromkeys(wanted, places), self._check_alike)

    def _check_alike(self, key: TopicPartition, replicas: Sequence[_Replica]) -> None:
        """Compare the earlier copies of one partition of one topic with its replicas."""
        for place, copy, origin, end in self._origins(key, replicas):
            target = join(place.target, directory_name(*key))
            if self._disk.stat(target) is not None and not self._is_other_topic(target, copy.topic_id):
                check_extends(origin, end, self._disk, target, key)

    # -- copying --

    def _copy_all(self) -> None:
        """Copy every partition, before them the files that must not be newer, and after them those that must not be
        older."""
        self._small_files()
        controller = f"{self._source}/{STATE_FILE}"
        is_cluster = holds_cluster(self._disk, self._source)
        for _ in range(ROUNDS_MAX):
            count = sum(map(self._copy_new, self._groups()))
            if not count or not is_cluster:
                break
        if sum(self._copy_new(places, metadata=True) for places in self._groups()):
            sum(map(self._copy_new, self._groups()))  # topics that the metadata has come to know
        self._set_aside_rest()
        if self._disk.stat(controller) is not None:
            self._controller()
        elif (image := self._metadata_in([place.target for place in self._places])) is not None:
            self._check_nodes(image)
            self._note_epochs(image)

    def _small_files(self) -> None:
        """Files of the roots that are replaced as a whole."""
        for place in self._places:
            self._put(place.source, place.target, META_PROPERTIES_NAME)
            for name in (_IMPORT, _BOOTSTRAP):
                self._put(place.source, place.target, name)
        pairs = dict.fromkeys([(self._source, self._target), *((place.source, place.target) for place in self._places)])
        for source, target in pairs:
            for name in self._disk.list(source):
                if (name.startswith(SPOOL_PREFIX) and name.endswith(_APPLIED)) or (
                    name.startswith(OFFSETS_PREFIX) and not name.endswith(_UNFINISHED)
                ):
                    self._put(source, target, name)
                elif name.startswith(QUEUE_PREFIX):
                    self._put_queue(source, target, name)

    def _put_queue(self, source: str, target: str, name: str) -> None:
        """Copy the journal of a queue. A worker may change it during the copy, so one that is not whole is repeated."""
        for _ in range(LOOKS_MAX):
            content = read_whole(self._disk, join(source, name))
            if content is None or is_whole_queue(content):
                break
        if content and read_whole(self._disk, join(target, name)) != content:
            replace_file(self._disk, join(target, name), content)

    def _put(self, source: str, target: str, name: str) -> None:
        content = read_whole(self._disk, join(source, name))
        if content is not None and read_whole(self._disk, join(target, name)) != content:
            replace_file(self._disk, join(target, name), content)

    def _groups(self) -> Iterator[list[Place]]:
        """The roots whose folders of one partition may be its replicas: those of one log or cluster."""
        groups: dict[str, list[Place]] = {}
        for place in self._places:
            groups.setdefault(place.log, []).append(place)
        yield from groups.values()

    def _copy_new(self, places: Sequence[Place], *, metadata: bool = False) -> int:
        """Copy the partitions in ``places`` that were not copied yet; how many there were. ``metadata``: the metadata
        logs, and no others."""
        wanted: dict[TopicPartition, list[Place]] = {}
        for place in places:
            done = self._copied.setdefault(place.source, {})
            for key in place.partitions(self._disk):
                if key not in done and (key.topic == METADATA_TOPIC) == metadata:
                    wanted.setdefault(key, []).append(place)
        self._each_partition(wanted, self._copy_alike)
        return len(wanted)

    def _each_partition(self, wanted: Mapping[TopicPartition, Sequence[Place]], act: _Act) -> None:
        """Call ``act`` for each of the ``wanted`` partitions and its replicas, many at a time."""
        keys = sorted(wanted)
        for first in range(0, len(keys), TOGETHER):
            # Most of the time of a small partition goes into waiting for its syncs.
            self._disk.map(
                lambda key: self._one_partition(key, wanted[key], act), keys[first : first + TOGETHER], waits=True
            )

    def _one_partition(self, key: TopicPartition, places: Sequence[Place], act: _Act) -> None:
        """Call ``act`` for the replicas of one partition, again if its writer removed a file of them."""
        places = [place for place in places if is_partition(self._disk, join(place.source, directory_name(*key)))]
        for _ in range(LOOKS_MAX if places else 0):
            try:
                self._with_replicas(key, places, act)
                return
            except StorageError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
                failure = error
            places = [place for place in places if is_partition(self._disk, join(place.source, directory_name(*key)))]
            if not places:
                return  # the topic was deleted
        if places:
            raise failure

    def _with_replicas(self, key: TopicPartition, places: Sequence[Place], act: _Act) -> None:
        replicas: list[_Replica] = []
        try:
            for place in places:
                folder = join(place.source, directory_name(*key))
                copy = ReplicaView(self._disk, folder, key, RootView(self._disk, place.source))
                replicas.append(_Replica(place, copy))
            of_topic: dict[str, list[_Replica]] = {}
            for replica in replicas:
                of_topic.setdefault(replica.copy.topic_id, []).append(replica)
            for alike in of_topic.values():
                act(key, alike)
        finally:
            for replica in replicas:
                replica.copy.close()

    def _origins(self, key: TopicPartition, replicas: Sequence[_Replica]) -> Iterator[_Origin]:
        """For each of the replicas of one topic's partition, the replica to copy in its place, and the one end for
        all of them. Metadata logs are their own, each with its own end."""
        if key.topic == METADATA_TOPIC:
            yield from (_Origin(place, copy, copy, copy.valid_end()) for place, copy in replicas)
            return
        reader = LogReader(key, [replica.copy for replica in replicas])
        end = reader.end_offset
        best = next(replica.copy for replica in replicas if replica.copy.directory == reader.directory)
        for place, copy in replicas:
            yield _Origin(place, copy, copy if copy is best or _reaches(copy, best, end) else best, end)

    def _copy_alike(self, key: TopicPartition, replicas: Sequence[_Replica]) -> None:
        """Copy the replicas of one partition of one topic, all up to the same offset."""
        for place, copy, origin, end in self._origins(key, replicas):
            target = join(place.target, directory_name(*key))
            if self._is_other_topic(target, copy.topic_id):
                self._set_aside(place, key, "is another topic in the source by now")
            if key.topic == METADATA_TOPIC and self._disk.stat(target) is not None:
                try:
                    check_extends(origin, end, self._disk, target, key)
                except BackupDivergedError:
                    self._set_aside(place, key, "does not continue the earlier copy")
            made = duplicate(origin, end, self._disk, target, key, self._add)
            if copy.topic_id_now() != copy.topic_id:
                raise StorageError(errno.ESTALE, "the topic was made again while it was copied", copy.directory)
            self._copied[place.source][key] = made

    def _is_other_topic(self, target: str, topic_id: str) -> bool:
        """Whether the folder ``target`` of the backup holds another topic than the one with this id."""
        if self._disk.stat(target) is None:
            return False
        try:
            there = read_topic_id(self._disk, target)
        except CorruptError:
            return False
        return there is not None and bool(topic_id) and there != topic_id

    def _set_aside_rest(self) -> None:
        """Set aside the backup's copies of partitions that the source no longer has."""
        for place in self._places:
            for name in self._disk.list(place.target):
                parsed = parse_directory_name(name)
                if parsed is None or parsed.kind or parsed.topic_partition in self._copied[place.source]:
                    continue
                if is_partition(self._disk, join(place.target, name)):
                    self._set_aside(place, parsed.topic_partition, "is not in the source any more")

    def _set_aside(self, place: Place, key: TopicPartition, why: str) -> None:
        """Rename the backup's folder of a partition to Kafka's name for a stray one, which is never opened: its
        records are kept."""
        stray = join(place.target, outgoing_name(key, self._random.randbytes(16).hex(), "stray"))
        self._disk.rename(join(place.target, directory_name(*key)), stray)
        self._disk.sync_directory(place.target)
        self._notes.append(
            f"{key} {why}: its records of the last backup are kept in {stray}; remove it when they are not needed"
        )

    def _controller(self) -> None:
        """The controller's state as it is now, without topics that were made since the last look at the nodes."""
        data = read_controller(self._disk, self._source)
        if data is None:
            return
        state = decode(data, f"{self._source}/{STATE_FILE}")
        self._check_nodes(state.image)
        copied = {key.topic for found in self._copied.values() for key in found}
        image = state.image
        for topic in [topic for topic in image.topics.values() if topic.name not in copied and topic.partitions]:
            del image.topics[topic.topic_id]
            image.topic_ids.pop(topic.name, None)
        content = encode(ControllerState(state.cluster_id, image))
        if read_controller(self._disk, self._target) != content:
            store(self._disk, self._target, content)
        self._note_epochs(image)

    def _note_epochs(self, image: MetadataImage) -> None:
        self._broker_epochs = {broker.broker_id: broker.epoch for broker in image.brokers.values()}

    def _metadata_in(self, roots: Sequence[str]) -> MetadataImage | None:
        """Return the metadata of the cluster by the newest metadata log in its nodes' folders ``roots``; None if the
        source is no cluster's folder, or has the controller's file."""
        newest = newest_metadata(self._disk, roots) if holds_cluster(self._disk, self._source) else None
        if newest is None:
            return None
        folder = join(newest, METADATA_FOLDER)
        return image_in(self._disk, folder, MetadataFolder(self._disk, folder).end())

    def _check_nodes(self, image: MetadataImage) -> None:
        """Note the nodes that have no folder in the source."""
        for node in self._missing_nodes(image):
            kept = self._disk.stat(join(self._target, f"node-{node}")) is not None
            self._notes.append(
                f"node {node} has no folder in the source, perhaps its disk is not mounted: the backup"
                f" {'keeps its older copies of that node' if kept else 'is without that node'}, and has the records"
                " from the other nodes"
            )

    def _missing_nodes(self, image: MetadataImage) -> list[int]:
        """The nodes that have no folder in the source. Raises :class:`StorageError` if a partition has no replica
        there."""
        there = {place.node_id for place in self._places}
        missing = sorted(set(image.brokers) - there)
        for topic in image.topics.values() if missing else ():
            for number, partition in topic.partitions.items():
                if partition.replicas and there.isdisjoint(partition.replicas):
                    nodes = ", ".join(map(str, partition.replicas))
                    text = (
                        f"no replica of {topic.name}-{number} is there: mount the disk of node {nodes}, and back up"
                        " again"
                    )
                    raise StorageError(errno.ENOENT, text, self._source)
        return missing

    # -- the end --

    def _sign_off(self, place: Place) -> None:
        """Leave the root in the backup as a clean stop leaves it."""
        self._disk.sync_directory(place.target)
        sign_off(
            self._disk,
            place.target,
            self._copied[place.source],
            self._random,
            broker_epoch=self._broker_epochs.get(place.node_id, -1),
            own=self._disk.stat(join(place.source, INCARNATION_NAME)) is not None,
        )

    def _verified(self) -> BackupReport:
        """Look at the backup with the independent decoders; then note that it is whole."""
        disk, target = self._disk, self._target
        size = total_size(disk, target)
        self._begin_stage("verified", size)
        book = Report(self._add)
        for place in self._places:
            check_root(disk, place.target, book)
        check_controller(disk, target, disk.list(target), [place.target for place in self._places], book)
        for finding in book.findings:
            if finding.level is Level.DAMAGE:
                raise CorruptError(
                    f"the backup in {target} is damaged, and does not count as finished: {finding.what}. If `replog"
                    f" verify {self._source}` finds its source damaged too, see `replog repair`; else remove the"
                    " damaged file from the backup, and back up again",
                    file=finding.path,
                    position=finding.position if finding.position >= 0 else None,
                )
        note = BackupNote(self._source, whole=True)
        for folder in dict.fromkeys([*(place.target for place in self._places), target]):
            write_backup_note(disk, folder, note)
        return BackupReport(
            source=self._source,
            target=target,
            partition_count=sum(map(len, self._copied.values())),
            record_count=book.record_count,
            copied_size=sum(one.copied_size for made in self._copied.values() for one in made.values()),
            total_size=size,
            notes=tuple(self._notes),
            restore=f"replog backup {shlex.quote(target)} {shlex.quote(self._source)}",
        )

    # -- progress --

    def _size_to_copy(self) -> int:
        """About so many bytes of segments are not in the backup yet."""
        size = 0
        for place in self._places if self._tell is not None else ():
            for key, folder in place.partitions(self._disk).items():
                for name in self._disk.list(folder):
                    found = self._disk.stat(join(folder, name)) if name.endswith(".log") else None
                    there = self._disk.stat(join(place.target, directory_name(*key)) + f"/{name}")
                    if found is not None and (there is None or there.size != found.size):
                        size += found.size
        return size

    def _begin_stage(self, stage: str, total: int) -> None:
        self._stage, self._done, self._total = stage, 0, total
        self._add(0)

    def _add(self, size: int) -> None:
        """``size`` bytes more are done. May be called from several threads."""
        with self._telling:
            self._done += size
            if self._tell is not None:
                self._tell(BackupProgress(self._stage, self._done, self._total))


def _reaches(copy: ReplicaView, best: ReplicaView, end: int) -> bool:
    """Whether ``copy`` holds all that ``best`` has below ``end``."""
    if best.epochs.agrees_up_to(copy.epochs) < end:
        return False
    with suppress(CorruptError):
        return copy.valid_end() >= end
    return False


def _check_apart(source: str, target: str) -> None:
    """Raises :class:`ConfigError` where the folders are one, or lie within one another."""
    inside, outside = target.rstrip("/") + "/", source.rstrip("/") + "/"
    if inside.startswith(outside) or outside.startswith(inside):
        raise ConfigError(f"{target} and {source} lie within one another: name a folder elsewhere for the backup")
