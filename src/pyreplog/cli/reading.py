"""What the reading commands share: the partitions of a folder, chosen by topic and number, and closed again."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyreplog.cli.output import printable
from pyreplog.config import suggestion
from pyreplog.errors import StorageError, UnknownTopicError
from pyreplog.log import LogReader, distrusted, find_roots, open_readers
from pyreplog.ports import Disk
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["check_path", "readers", "reading_disk"]

_NAMED_MAX: Final = 5


@contextmanager
def readers(path: str, *, topic: str | None = None, partition: int | None = None) -> Iterator[dict[TopicPartition, LogReader]]:
    """The readers of ``path`` by topic and partition, in order; the writer, if any, is not disturbed.

    Raises :class:`UnknownTopicError` where the folder has no such topic or partition, :class:`StorageError` where it cannot be read or
    holds no log, with what to do next.
    """
    with reading_disk(path, topic=topic, partition=partition) as (_, chosen):
        yield chosen


@contextmanager
def reading_disk(
    path: str, *, topic: str | None = None, partition: int | None = None
) -> Iterator[tuple[SystemDisk, dict[TopicPartition, LogReader]]]:
    """As :func:`readers`, with the disk that they read from."""
    disk = SystemDisk()
    found: dict[TopicPartition, LogReader] = {}
    try:
        check_path(path)
        found = open_readers(disk, path)
        if not found and not find_roots(disk, path):
            raise StorageError(errno.ENOENT, f"there is no log in this folder{_logs_below(path)}", path)
        chosen = dict(sorted(_chosen(found, path, topic, partition).items()))
        # A folder that holds many is told of once.
        for text in dict.fromkeys(str(error) for reader in chosen.values() for error in distrusted(disk, reader)):
            print(f"replog: {printable(text)}; it is read all the same", file=sys.stderr)
        for reader in chosen.values():
            _tell_of_damage(reader)
        yield disk, chosen
    finally:
        for reader in found.values():
            reader.close()
        disk.close()


def check_path(path: str) -> None:
    """Raises :class:`StorageError` where ``path`` is no folder: with the nearest name there, or with what is there instead."""
    if os.path.isdir(path):
        return
    if os.path.exists(path):
        text = "this is a file: name the folder of the log it is in; `replog dump` shows single files"
        raise StorageError(errno.ENOTDIR, text, path)
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise StorageError(errno.ENOENT, f"there is no such folder, nor {parent}: check the path, or make a log with `replog append`", path)
    names = tuple(sorted(entry.name for entry in os.scandir(parent) if entry.is_dir()))
    hint = suggestion(os.path.basename(os.path.abspath(path)), names) if names else ""
    raise StorageError(errno.ENOENT, f"there is no such folder{hint or _logs_below(parent)}", path)


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
    try:
        return bool(find_roots(disk, path, 1))
    except StorageError:
        return False  # it is gone, or may not be looked into: no folder to name


def _tell_of_damage(reader: LogReader) -> None:
    if reader.unreadable_size:
        where = printable(", ".join(reader.replicas))
        print(
            f"replog: {reader.unreadable_size} bytes in {where} behind offset {reader.end_offset} are no whole record batch "
            "(torn or damaged) and are not shown; `replog verify` says more, and another replica or a backup may have them",
            file=sys.stderr,
        )


def _chosen(found: dict[TopicPartition, LogReader], path: str, topic: str | None, partition: int | None) -> dict[TopicPartition, LogReader]:
    names = tuple(sorted({key.topic for key in found}))
    if topic is not None and topic not in names:
        raise UnknownTopicError(f"{path} has no topic {topic!r}{suggestion(topic, names) if names else ': it holds none'}")
    chosen = {key: reader for key, reader in found.items() if topic in (None, key.topic) and partition in (None, key.partition)}
    if partition is not None and not chosen:
        numbers = ", ".join(str(number) for number in sorted({key.partition for key in found if topic in (None, key.topic)}))
        raise UnknownTopicError(f"{path} has no partition {partition}; it has {numbers or 'none'}")
    return chosen
