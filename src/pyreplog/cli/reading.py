"""What the reading commands share: the partitions of a folder, chosen by topic and number, and closed again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyreplog.cli.output import printable
from pyreplog.config import suggestion
from pyreplog.errors import UnknownTopicError
from pyreplog.log import LogReader, open_readers
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["readers"]


@contextmanager
def readers(path: str, *, topic: str | None = None, partition: int | None = None) -> Iterator[dict[TopicPartition, LogReader]]:
    """The readers of ``path`` by topic and partition, in order; the writer, if any, is not disturbed.

    Raises :class:`UnknownTopicError` where the folder has no such topic or partition, :class:`StorageError` where it cannot be read.
    """
    disk = SystemDisk()
    found = open_readers(disk, path)
    try:
        chosen = dict(sorted(_chosen(found, path, topic, partition).items()))
        for reader in chosen.values():
            _tell_of_damage(reader)
        yield chosen
    finally:
        for reader in found.values():
            reader.close()
        disk.close()


def _tell_of_damage(reader: LogReader) -> None:
    if reader.unreadable_size:
        where = printable(", ".join(reader.replicas))
        print(
            f"replog: {reader.unreadable_size} bytes in {where} behind offset {reader.end_offset} are no whole record batch "
            "(torn or damaged) and are not shown; another replica or a backup may have them",
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
