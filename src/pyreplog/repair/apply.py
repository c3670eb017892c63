"""Carries a plan out: the ordinary writer writes the saved records into a new root; no other file changes.

That writer does not write the formats before 0.11. Messages in these formats precede all other batches, except those
that compaction made of older messages. So everything up to the last one is copied into the new folder unchanged, and
the writer then opens that folder like a broker's.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pyreplog.config import Durability, LogConfig
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import LOG_SUFFIX, Log, LogRoot, RecoveryOptions, directory_name, join, segment_name, write_topic_id
from pyreplog.ports import Clock, Disk, Random
from pyreplog.repair.plan import PartitionPlan, RecoveredBatch, check_plan
from pyreplog.values import TopicPartition
from pyreplog.verify import find_partitions, read_identity

_PIECES_SIZE: Final = 4 << 20
_UNFINISHED: Final = ".tmp"
"""The ending of a partition's folder that is not finished."""


def check_target(disk: Disk, source: str, target: str) -> None:
    """Raises :class:`ConfigError` unless ``target`` is a new or empty folder apart from ``source``. REQUIRES
    absolute paths."""
    inside, outside = target.rstrip("/") + "/", source.rstrip("/") + "/"
    if inside.startswith(outside) or outside.startswith(inside):
        raise ConfigError(
            f"{target} and {source} lie within one another: name a new folder elsewhere, for repair never works in"
            " place"
        )
    found = disk.stat(target)
    if found is not None and (not found.is_directory or disk.list(target)):
        raise ConfigError(f"{target} is there already: name a new folder, for repair overwrites nothing")


def apply_repair(
    disk: Disk,
    source: str,
    target: str,
    plans: Sequence[PartitionPlan],
    *,
    clock: Clock,
    random: Random,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write what ``plans`` (of ``source``) keep into the new root ``target``, and close it in order. ``progress``:
    bytes written.

    A log that lost something counts as incomplete: it neither leads nor counts in a cluster until it has caught up.
    Raises :class:`ConfigError` where ``target`` is not new, :class:`StorageError` where the disk fails; then
    ``target`` is not to be used.
    """
    check_target(disk, source, target)
    node_id, cluster_id = read_identity(disk, find_partitions(disk, source))
    for plan in plans:
        check_plan(plan)
    put = [_put_old(disk, target, plan, progress) for plan in plans if any(piece.old for piece in plan.pieces)]
    durability: dict[TopicPartition, Durability] = {}
    for key, kept in put:
        directory = join(target, directory_name(*key))
        disk.rename(directory + _UNFINISHED, directory)
        durability[key] = kept
    root = LogRoot.open(
        disk,
        target,
        clock=clock,
        random=random,
        node_id=node_id,
        cluster_id=cluster_id,
        recovery=RecoveryOptions(durability=durability),
    )
    clean = False
    try:
        for plan in plans:
            _write(disk, root, plan, progress)
        clean = True
    finally:
        root.close(clean=clean)


def _config_of(plan: PartitionPlan) -> LogConfig:
    # Retention is left to the next owner of the log.
    return LogConfig.from_mapping(plan.state.settings or {"durability": plan.state.durability or "sync"})


def _put_old(
    disk: Disk, target: str, plan: PartitionPlan, progress: Callable[[int], None] | None
) -> tuple[TopicPartition, Durability]:
    """Make the folder of a partition up to its last old message only, under the name of an unfinished folder. Return
    the folder and its durability."""
    key = TopicPartition(plan.topic, plan.partition)
    directory = join(target, directory_name(*key)) + _UNFINISHED
    disk.make_directory(directory)
    if plan.state.topic_id:
        write_topic_id(disk, directory, plan.state.topic_id)
    source, made, size = "", None, 0
    try:
        for piece, data in _contents(disk, plan.pieces[: plan.old_count], progress):
            if made is None or piece.path != source:
                if made is not None:
                    made.sync()
                    made.close()
                source, made, size = (
                    piece.path,
                    disk.create(join(directory, segment_name(piece.base_offset, LOG_SUFFIX))),
                    0,
                )
            made.write_at(size, [data])
            size += len(data)
        if made is not None:
            made.sync()
    finally:
        if made is not None:
            made.close()
    return key, _config_of(plan).durability


def _contents(
    disk: Disk, pieces: Sequence[RecoveredBatch], progress: Callable[[int], None] | None
) -> Iterator[tuple[RecoveredBatch, bytes]]:
    """The bytes of each of ``pieces``."""
    path, file = "", None
    try:
        for piece in pieces:
            if file is None or piece.path != path:
                if file is not None:
                    file.close()
                path, file = piece.path, disk.open(piece.path)
            data = bytes(file.read_at(piece.position, piece.size))
            if len(data) != piece.size:
                raise StorageError(errno.EIO, "the file became shorter while it was being saved", piece.path)
            yield piece, piece.patch + data[len(piece.patch) :]
            if progress is not None:
                progress(piece.size)
    finally:
        if file is not None:
            file.close()


def _write(disk: Disk, root: LogRoot, plan: PartitionPlan, progress: Callable[[int], None] | None) -> None:
    key = TopicPartition(plan.topic, plan.partition)
    config = _config_of(plan)
    is_incomplete = bool(plan.lost or plan.unknown)
    if key in root.damaged:
        raise root.damaged[key]
    if key in root.logs:  # taken over with its old messages
        log = root.logs[key]
        log.update_config(config)
        log.set_incomplete(is_incomplete)
    else:
        log = root.create_log(
            plan.topic, plan.partition, plan.state.topic_id or root.new_topic_id(), config, incomplete=is_incomplete
        )
        if plan.base_offset:
            log.truncate_fully(plan.base_offset)
    parts: list[bytes] = []
    size = 0
    for piece, data in _contents(disk, plan.pieces[plan.old_count :], progress):
        parts.append(data)
        size += piece.size
        if size >= _PIECES_SIZE:
            log.append_as_follower(parts)
            parts, size = [], 0
    if parts:
        log.append_as_follower(parts)
    _finish(disk, log, plan)


def _finish(disk: Disk, log: Log, plan: PartitionPlan) -> None:
    plan_of_sync = log.sync_plan()
    if plan_of_sync is not None:
        for file in plan_of_sync.files:
            file.sync()
        log.synced(plan_of_sync.upto, plan_of_sync.generation)
    log.advance_high_watermark(log.end_offset)
    if log.start_offset < plan.start_offset <= log.end_offset:
        log.increment_start_offset(plan.start_offset)
    if plan.state.compacted:
        log.record_gaps(plan.dropped_tombstone, dense=plan.state.dense)
    log.write_mark()
    disk.sync_directory(join(log.directory, ""))
