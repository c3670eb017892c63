"""The controller's file in a cluster's folder, as far as readers of logs need it: its frame, its cluster, and the topics' ids.

``pyreplog.quorum`` owns its content.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.log.layout import join
from pyreplog.ports import Disk
from pyreplog.record import crc32c

CONTROLLER_NAME: Final = "replog.controller"
_MAGIC: Final = b"pyreplog-controller"
_VERSION: Final = b"1"
_SIZE_MAX: Final = 1 << 30


class ControllerBody(NamedTuple):
    """The cluster of a controller's file, and the ids of its topics by their names."""

    cluster_id: str
    topic_ids: dict[str, str]


def frame_controller(line: bytes) -> bytes:
    """The whole file for the JSON ``line``."""
    return b"%s %s %08x\n%s\n" % (_MAGIC, _VERSION, crc32c(line), line)


def unframe_controller(data: bytes, file: str) -> bytes:
    """The JSON line in ``data``. Raises :class:`CorruptError` naming ``file`` for anything but a whole, undamaged file."""
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
    """The whole file as it is; None if there is none."""
    path = join(folder, CONTROLLER_NAME)
    if disk.stat(path) is None:
        return None
    file = disk.open(path)
    try:
        return bytes(file.read_at(0, min(file.size(), _SIZE_MAX)))
    finally:
        file.close()


def controller_body(disk: Disk, folder: str) -> ControllerBody | None:
    """The cluster and topics in the file in ``folder``; None if there is none, or it is damaged."""
    data = read_controller(disk, folder)
    if data is None:
        return None
    import json  # noqa: PLC0415  (rarely needed, and slow to load)

    try:
        body: Any = json.loads(unframe_controller(data, join(folder, CONTROLLER_NAME)))
        return ControllerBody(str(body["cluster_id"]), {str(topic["name"]): str(topic["id"]) for topic in body["topics"]})
    except (CorruptError, KeyError, TypeError, ValueError, RecursionError):
        return None
