"""What ``replog dlq list``, ``show`` and ``replay`` share: which folder holds the dead letters, and their records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from pyreplog.cli.options import Parser, number, place
from pyreplog.cli.reading import check_path
from pyreplog.errors import StorageNotFoundError
from pyreplog.log import list_topics
from pyreplog.readers import DEAD_LETTER_PREFIX, DeadLetter, read_letter
from pyreplog.record import Record
from pyreplog.runtime import Cluster, ClusterReader
from pyreplog.system import SystemDisk

__all__ = ["DeadLetterPlace", "add_letters", "add_offsets", "find_letters", "letters_in"]

SUFFIX = ".dlq"


class DeadLetterPlace(NamedTuple):
    """Where the dead letters of a log or cluster are."""

    folder: str
    """The folder that holds their topics."""
    topics: list[str]
    """The topics of dead letters that were asked for, with their prefix, sorted."""
    source: str
    """The log that the dead letters of a folder apart are of; "" if the folder holds the sources too, as a cluster's,
    or if the folder's name does not say it."""


def add_letters(parser: Parser) -> None:
    """Add the path and the source topic."""
    parser.add_argument(
        "path", metavar="PATH", type=place, help="a log, a cluster's folder, or a folder of dead letters"
    )
    parser.add_argument("--topic", metavar="TOPIC", help="only the dead letters of this topic")


def add_offsets(parser: Parser) -> None:
    """Add the choice of single letters."""
    parser.add_argument("--offset", metavar="N", type=number, help="only the dead letter at this offset of its own")


def find_letters(path: str, topic: str | None) -> DeadLetterPlace:
    """Return the place of the dead letters that ``path`` means. Raises :class:`StorageNotFoundError` if there are
    none."""
    disk = SystemDisk()
    beside = path.rstrip("/") + SUFFIX
    if not os.path.isdir(path) and not os.path.isdir(beside):
        check_path(path)
    for folder in (path, beside):
        if os.path.isdir(folder):
            found = [
                name
                for name in sorted(list_topics(disk, folder))
                if name.startswith(DEAD_LETTER_PREFIX) and topic in (None, name.removeprefix(DEAD_LETTER_PREFIX))
            ]
            if found:
                return DeadLetterPlace(folder, found, _source_of(path, folder, beside, disk))
    of = "" if topic is None else f" of the topic {topic!r}"
    raise StorageNotFoundError(2, f"there are no dead letters{of}, neither here nor in {beside}", path)


def _source_of(path: str, folder: str, beside: str, disk: SystemDisk) -> str:
    if folder == beside:
        return path
    if any(not name.startswith(DEAD_LETTER_PREFIX) for name in list_topics(disk, folder)):
        return ""
    stem = path.rstrip("/").removesuffix(SUFFIX)
    return stem if stem != path.rstrip("/") and os.path.isdir(stem) else ""


def letters_in(where: DeadLetterPlace) -> Iterator[tuple[Record, DeadLetter | None]]:
    """Yield the dead letters, topic after topic. One whose headers are no dead letter's has None."""
    with Cluster(where.folder, mode="r") as cluster:
        assert isinstance(cluster, ClusterReader)
        for topic in where.topics:
            with cluster.consumer(topic) as consumer:
                for record in consumer.until_end():
                    yield record, read_letter(record.headers)
