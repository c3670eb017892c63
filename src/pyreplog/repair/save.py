"""Carrying a plan out: what can be saved is written into a new root, by the ordinary writer, and nothing else is touched."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Final

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import Log, LogRoot, join
from pyreplog.ports import Clock, Disk, Random
from pyreplog.repair.survey import PartitionPlan, check_plan
from pyreplog.verify import find_partitions, read_identity

_PIECES_SIZE: Final = 4 << 20


def check_target(disk: Disk, source: str, target: str) -> None:
    """Raises :class:`ConfigError` unless ``target`` is a new or empty folder apart from ``source``. REQUIRES absolute paths."""
    inside, outside = target.rstrip("/") + "/", source.rstrip("/") + "/"
    if inside.startswith(outside) or outside.startswith(inside):
        raise ConfigError(f"{target} and {source} lie within one another: name a new folder elsewhere, for repair never works in place")
    found = disk.stat(target)
    if found is not None and (not found.is_directory or disk.list(target)):
        raise ConfigError(f"{target} is there already: name a new folder, for repair overwrites nothing")


def save(
    disk: Disk,
    source: str,
    target: str,
    plans: Sequence[PartitionPlan],
    *,
    clock: Clock,
    random: Random,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write what ``plans`` (of ``source``) keep into the new root ``target``, and close it in order. ``progress``: bytes written.

    A log that lost something counts as incomplete: it neither leads nor counts in a cluster until it has caught up.
    Raises :class:`ConfigError` where ``target`` is not new, :class:`StorageError` where the disk fails; then ``target`` is not to be used.
    """
    check_target(disk, source, target)
    node_id, cluster_id = read_identity(disk, find_partitions(disk, source))
    root = LogRoot.open(disk, target, clock=clock, random=random, node_id=node_id, cluster_id=cluster_id)
    clean = False
    try:
        for plan in plans:
            if not plan.refused:
                check_plan(plan)
                _write(disk, root, plan, progress)
        clean = True
    finally:
        root.close(clean=clean)


def _write(disk: Disk, root: LogRoot, plan: PartitionPlan, progress: Callable[[int], None] | None) -> None:
    config = LogConfig.from_mapping(plan.state.settings or {"durability": plan.state.durability or "sync"})
    # What is too old, or too much, is for the next owner to decide.
    log = root.create_log(plan.topic, plan.partition, plan.state.topic_id or root.new_topic_id(), config, incomplete=bool(plan.lost))
    first = plan.pieces[0].base_offset if plan.pieces else plan.start_offset
    if first:
        log.truncate_fully(first)
    parts: list[bytes] = []
    size = 0
    path, file = "", None
    try:
        for piece in plan.pieces:
            if file is None or piece.path != path:
                if file is not None:
                    file.close()
                path, file = piece.path, disk.open(piece.path)
            data = bytes(file.read_at(piece.position, piece.size))
            if len(data) != piece.size:
                raise StorageError(errno.EIO, "the file became shorter while it was being saved", piece.path)
            parts.append(piece.patch + data[len(piece.patch) :])
            size += piece.size
            if size >= _PIECES_SIZE:
                log.append_as_follower(parts)
                parts, size = [], 0
            if progress is not None:
                progress(piece.size)
        if parts:
            log.append_as_follower(parts)
    finally:
        if file is not None:
            file.close()
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
    log.write_mark()
    disk.sync_directory(join(log.directory, ""))
