"""The parts of the controller's file in a cluster's folder that readers of logs need: its frame, its cluster id, the
topic ids and the members of partitions.

``pyreplog.controller`` owns the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.log.layout import join
from pyreplog.ports import Disk
from pyreplog.record import crc32c
from pyreplog.values import TopicPartition

CONTROLLER_NAME: Final = "replog.controller"
_MAGIC: Final = b"pyreplog-controller"
_VERSION: Final = b"1"
_SIZE_MAX: Final = 1 << 30


class Members(NamedTuple):
    """The node numbers of one partition's replicas and in-sync replicas in the controller's file."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    """The ISR and the ELR: every acknowledged record is in the copy of each of these."""


class ControllerBody(NamedTuple):
    """The cluster of a controller's file, the ids of its topics by their names, and the members of each
    partition."""

    cluster_id: str
    topic_ids: dict[str, str]
    partitions: dict[TopicPartition, Members]


def frame_controller(line: bytes) -> bytes:
    """Return the content of the file for the JSON ``line``."""
    return b"%s %s %08x\n%s\n" % (_MAGIC, _VERSION, crc32c(line), line)


def unframe_controller(data: bytes, file: str) -> bytes:
    """Return the JSON line in ``data``. Raises :class:`CorruptError`, which names ``file``, if the content is
    damaged."""
    head, separator, rest = data.partition(b"\n")
    words = head.split(b" ")
    if not separator or len(words) != 3 or words[0] != _MAGIC:
        raise CorruptError("not a controller state file, or its first line is damaged", file=file, position=0)
    if words[1] != _VERSION:
        raise CorruptError("a controller state of an unknown version", file=file, position=0)
    line = rest[:-1]
    if rest[-1:] != b"\n" or b"%08x" % crc32c(line) != words[2]:
        raise CorruptError("controller state: checksum mismatch (CRC-32C)", file=file, position=len(head) + 1)
    return line


def read_controller(disk: Disk, folder: str) -> bytes | None:
    """Return the content of the file in ``folder``, unchecked; None if there is no file."""
    path = join(folder, CONTROLLER_NAME)
    if disk.stat(path) is None:
        return None
    file = disk.open(path)
    try:
        return bytes(file.read_at(0, min(file.size(), _SIZE_MAX)))
    finally:
        file.close()


def controller_body(disk: Disk, folder: str) -> ControllerBody | None:
    """Return the cluster and the topics in the file in ``folder``; None if it is missing or damaged."""
    data = read_controller(disk, folder)
    if data is None:
        return None
    import json  # noqa: PLC0415  (rarely needed, and slow to load)

    try:
        body: Any = json.loads(unframe_controller(data, join(folder, CONTROLLER_NAME)))
        ids = {str(topic["name"]): str(topic["id"]) for topic in body["topics"]}
        partitions = {
            TopicPartition(str(topic["name"]), int(row[0])): _members(row)
            for topic in body["topics"]
            for row in topic["partitions"]
        }
        return ControllerBody(str(body["cluster_id"]), ids, partitions)
    except (CorruptError, IndexError, KeyError, OverflowError, TypeError, ValueError, RecursionError):
        return None


def _members(row: Sequence[Any]) -> Members:
    """Return the members in the row of one partition: its number, then the fields of
    ``controller.PartitionImage``."""
    replicas, isr, elr = (tuple(map(int, numbers)) for numbers in row[1:4])
    return Members(replicas, isr + elr)
