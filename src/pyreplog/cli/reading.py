"""The common part of the reading commands: the partitions of a folder, chosen by topic and number, and closed
again."""

from __future__ import annotations

import argparse
import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyreplog.cli.output import ProgressBar, counted, say
from pyreplog.config import nearest, suggestion
from pyreplog.errors import ConfigError, CorruptLogError, PyreplogError, StorageError, UnknownTopicError
from pyreplog.log import (
    CommittedSource,
    Finder,
    LogReader,
    SkippingSource,
    check_skipping,
    deeper_logs,
    find_roots,
    is_internal,
    unsafe_permissions,
)
from pyreplog.ports import Disk
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = [
    "check_path",
    "include_above",
    "no_log",
    "open_chosen",
    "readers",
    "reading_disk",
    "source_of",
    "tell_above",
    "tell_distrust",
]

_NAMED_MAX: Final = 5
_SYNC_S: Final = 0.1
"""A writer that waits for a sync has usually finished it after this time."""


@contextmanager
def readers(
    path: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    progress: bool = False,
    left_out: list[str] | None = None,
    skips: bool = False,
) -> Iterator[dict[TopicPartition, LogReader]]:
    """Return the readers of ``path`` by topic and partition, in order; a writer is not disturbed. ``progress``:
    print the number of open readers also if standard error is not a terminal. ``left_out`` takes a sentence for
    each folder that cannot be read and each partition that is incomplete here; without it these are errors.

    Raises :class:`UnknownTopicError` if the folder has no such topic or partition, :class:`StorageError` if it
    cannot be read or holds no log, with the next step.
    """
    with reading_disk(path, topic=topic, partition=partition, progress=progress, left_out=left_out, skips=skips) as (
        _,
        chosen,
    ):
        yield chosen


@contextmanager
def reading_disk(
    path: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    progress: bool = False,
    left_out: list[str] | None = None,
    skips: bool = False,
) -> Iterator[tuple[SystemDisk, dict[TopicPartition, LogReader]]]:
    """As :func:`readers`, with the disk that they read from."""
    disk = SystemDisk()
    found: dict[TopicPartition, LogReader] = {}
    try:
        check_path(path)
        finder = Finder(disk, path, partial=left_out is not None)
        finder.folders(topic)  # refuses what cannot be read
        folders = {} if finder.log is None else finder.log.partitions()
        if not folders and not find_roots(disk, path) and not finder.absent():
            raise no_log(path)
        lacking: dict[TopicPartition, str] = {}
        if left_out is not None:
            lacking = finder.absent(topic)
            left_out += [f"{one} may hold a log, and may not be looked into" for one in finder.left_out(topic)]
            left_out += lacking.values()
        is_bare = finder.log is not None and finder.log.bare is not None
        chosen = [key for key in _chosen(folders, path, topic, partition, is_bare=is_bare) if key not in lacking]
        open_chosen(finder, chosen, found, forced=progress, skips=skips)
        tell_distrust(disk, found.values())
        yield disk, found
    finally:
        for reader in found.values():
            reader.close()
        disk.close()


def no_log(path: str) -> StorageError:
    """There is no log in the folder ``path``; with what to do next."""
    disk = SystemDisk()
    try:
        deeper = deeper_logs(disk, path)
    finally:
        disk.close()
    return StorageError(errno.ENOENT, f"there is no log in this folder{deeper or _logs_below(path)}", path)


def tell_distrust(disk: Disk, found: Iterable[LogReader]) -> None:
    """Print which folders of ``found`` other users may write to. A folder with many logs is printed once."""
    if refusal := unsafe_permissions(disk, found):
        say(f"replog: {refusal}; it is read all the same")


def open_chosen(
    finder: Finder,
    chosen: list[TopicPartition],
    found: dict[TopicPartition, LogReader],
    *,
    forced: bool,
    skips: bool = False,
) -> None:
    """Put a reader of each of ``chosen`` into ``found``; tell of those that have no good end."""
    damaged: list[LogReader] = []
    progress = ProgressBar("opened", total=len(chosen), forced=forced, noun="partitions")
    try:
        for key in chosen:
            reader = finder.open(key)
            if reader is not None:
                found[key] = reader
                if reader.unreadable_size:
                    damaged.append(reader)
            progress.add(1)
    finally:
        progress.close()
    for reader in damaged:
        _tell_of_damage(reader, skips)


def include_above(arguments: argparse.Namespace, found: Iterable[LogReader]) -> None:
    """Have ``found`` read above the high watermark too, if the arguments ask for it."""
    if arguments.above_high_watermark:
        for reader in found:
            reader.include_above_high_watermark()


def tell_above(arguments: argparse.Namespace, found: Iterable[LogReader]) -> None:
    """Say how many offsets of ``found`` lie above the high watermark, if the arguments read up to it and no
    further."""
    if arguments.above_high_watermark:
        return
    ends = {reader: reader.end_offset for reader in found}
    above = {
        reader: count for reader, end in ends.items() if arguments.end > end and (count := reader.above_high_watermark)
    }
    if any(reader.durability is not None for reader in above):
        time.sleep(_SYNC_S)  # a live writer is about to move the high watermark of a log of ours
        above = {reader: count for reader, count in above.items() if _still_above(reader, ends[reader] + count)}
    if above:
        first = next(iter(above))
        where = f"{first.topic_partition} at {ends[first]}" + (f" and {len(above) - 1} more" if len(above) > 1 else "")
        say(
            f"replog {arguments.command}: {counted(sum(above.values()), 'offset')} above the high watermark ({where})"
            " are not among these records: --above-high-watermark reads them, and no acknowledgement vouches for them"
        )


def _still_above(reader: LogReader, end: int) -> bool:
    """Whether the offsets that ended at ``end`` still lie above the high watermark; no if the log is gone, which
    the command has read."""
    try:
        reader.refresh()
    except PyreplogError:
        return False
    return reader.end_offset < end


def source_of(reader: LogReader, arguments: argparse.Namespace) -> LogReader | CommittedSource | SkippingSource:
    """Return the source of the records of ``reader`` for a command, by ``--isolation``, ``--max-batch-bytes`` and
    ``--skip-damaged``. Each skipped range is printed, and added to ``arguments.left_out``."""
    reader.max_batch_bytes = arguments.max_batch_bytes
    if not arguments.skip_damaged:
        return reader.isolated(arguments.isolation)
    check_skipping(arguments.isolation)

    def tell(error: CorruptLogError) -> None:
        arguments.left_out.append(
            {"topic": reader.topic, "partition": reader.partition, "start": error.start, "end": error.end}
        )
        where = f"{reader.topic_partition}: {error.reason} in {error.file} at byte {error.position}"
        say(f"replog {arguments.command}: left out offsets {error.start} to {error.end - 1} of {where}")

    return SkippingSource(reader, tell)


def check_path(path: str, what: str = "folder") -> None:
    """Raise :class:`StorageError` if ``path`` is not a folder: with the nearest name there, or with the kind of the
    file. ``what`` describes the expected folder."""
    if os.path.isdir(path):
        return
    if os.path.exists(path):
        text = "this is a file: name the folder of the log it is in; `replog dump` shows single files"
        raise StorageError(errno.ENOTDIR, text, path)
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise StorageError(
            errno.ENOENT,
            f"there is no such {what}, nor {parent}: check the path, or make a log with `replog append`",
            path,
        )
    near = nearest(
        os.path.basename(os.path.abspath(path)), (entry.name for entry in os.scandir(parent) if entry.is_dir())
    )
    hint = _logs_below(parent) if near is None else f"; did you mean {near!r}?"
    raise StorageError(errno.ENOENT, f"there is no such {what}{hint}", path)


def _logs_below(path: str) -> str:
    """Which folders in ``path`` are logs, as the end of a sentence that says what to do next."""
    disk = SystemDisk()
    found = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and _holds_logs(disk, entry.path))
    disk.close()
    if found:
        more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
        return f"; {path} holds the logs {', '.join(found[:_NAMED_MAX])}{more}: name one of them"
    return "; `replog append` makes one"


def _holds_logs(disk: Disk, path: str) -> bool:
    """Return whether it is a root, or a cluster's folder, and not just a folder with logs in it."""
    try:
        return any(root == path or os.path.basename(root).startswith("node-") for root in find_roots(disk, path, 1))
    except StorageError:
        return False  # it is gone, or may not be looked into: no folder to name


def _tell_of_damage(reader: LogReader, skips: bool) -> None:
    said = reader.describe_unreadable(skips=skips)
    if said:
        say(f"replog: {said}; `replog verify` says more, and another replica or a backup may have them")


def _chosen(
    folders: Mapping[TopicPartition, list[str]], path: str, topic: str | None, partition: int | None, *, is_bare: bool
) -> list[TopicPartition]:
    """Return the partitions of ``topic``, or of all topics but the internal ones, which a caller must name or point at
    (``is_bare``)."""
    names = tuple(sorted({key.topic for key in folders}))
    if topic is not None and topic not in names:
        raise UnknownTopicError(
            f"{path} has no topic {topic!r}{suggestion(topic, names) if names else ': it holds none'}"
        )
    public = [name for name in names if not is_internal(name)]
    if topic is None and names and not public and not is_bare:
        raise ConfigError(f"{path} holds internal topics only; name one with --topic: {', '.join(names)}")
    mine = [key for key in folders if (key.topic == topic if topic is not None else is_bare or key.topic in public)]
    chosen = [key for key in mine if partition in (None, key.partition)]
    if partition is not None and not chosen:
        numbers = ", ".join(str(number) for number in sorted({key.partition for key in mine}))
        raise UnknownTopicError(f"{path} has no partition {partition}; it has {numbers or 'none'}")
    return chosen
