"""The controller's state as bytes, and the small file that holds it.

The first line identifies the file; the second is JSON::

    pyreplog-controller 1 <CRC-32C of the second line, 8 hex digits>\\n
    {"cluster_id": ..., "offset": ..., "next_producer_id": ..., "brokers": [...], "topics": [...], "suspects": [...]}\\n

On disk: the layout of version 1 never changes. The file is replaced as a whole: write a temporary
file, sync it, rename it, sync the folder. A crash at any moment leaves the old file or the new one.
A damaged file is reported; it is never read as an empty state.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from pyreplog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from pyreplog.controller.layout import STATE_FILE
from pyreplog.errors import CorruptError
from pyreplog.log import frame_controller, read_controller, replace_file, unframe_controller
from pyreplog.ports import Disk
from pyreplog.wire import SuspectReplica

__all__ = ["STATE_FILE", "ControllerState", "decode", "encode", "load", "store"]

_BROKER_FIELDS: Final = 7
"""The fields of a broker that stand in its row."""
_FIELDS: Final = 9
"""The fields of a partition that stand in its row. Its suspects stand in a list of their own."""


class ControllerState(NamedTuple):
    """The state that a controller must find again after a restart."""

    cluster_id: str
    image: MetadataImage


def encode(state: ControllerState) -> bytes:
    """Return the content of the state file."""
    image = state.image
    body: dict[str, Any] = {
        "cluster_id": state.cluster_id,
        "offset": image.offset,
        "next_producer_id": image.next_producer_id,
        "brokers": [list(broker[:_BROKER_FIELDS]) for broker in image.brokers.values()],
        "topics": [
            {
                "name": topic.name,
                "id": topic.topic_id,
                "config": topic.config,
                "partitions": [[number, *partition[:_FIELDS]] for number, partition in topic.partitions.items()],
            }
            for topic in image.topics.values()
        ],
        "suspects": [
            [*key, [[member, *end] for member, end in members.items()]] for key, members in image.suspects().items()
        ],
    }
    if image.defaults:
        body["defaults"] = image.defaults
    return frame_controller(json.dumps(body, separators=(",", ":")).encode())


def decode(data: bytes, file: str) -> ControllerState:
    """Parse ``data``. Raises :class:`CorruptError` naming ``file`` unless the file is undamaged."""
    line = unframe_controller(data, file)
    try:
        return _state(json.loads(line))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptError(f"controller state: {error}", file=file, position=data.index(b"\n") + 1) from error


def _state(body: dict[str, Any]) -> ControllerState:
    image = MetadataImage()
    image.offset = body["offset"]
    image.next_producer_id = body.get("next_producer_id", 0)
    image.defaults = dict(body.get("defaults", {}))
    for row in body["brokers"]:
        broker = BrokerImage(*row)
        image.brokers[broker.broker_id] = broker._replace(log_dirs=tuple(broker.log_dirs))
    for entry in body["topics"]:
        topic = TopicImage(entry["name"], entry["id"])
        topic.config = dict(entry["config"])
        for number, replicas, isr, elr, last_known, *rest in entry["partitions"]:
            partition = PartitionImage(tuple(replicas), tuple(isr), tuple(elr), tuple(last_known), *rest)
            topic.partitions[number] = image.share(partition)
        image.settle(topic)
        image.topics[topic.topic_id] = topic
        image.topic_ids[topic.name] = topic.topic_id
    for topic_id, number, members in body["suspects"]:
        suspects = tuple(SuspectReplica(*member) for member in members)
        topic = image.topics[topic_id]
        topic.partitions[number] = image.share(topic.partitions[number]._replace(suspects=suspects))
    return ControllerState(body["cluster_id"], image)


def load(disk: Disk, folder: str) -> ControllerState | None:
    """Read the state in ``folder``; None if there is none yet. Raises :class:`CorruptError` if
    damaged."""
    data = read_state(disk, folder)
    try:
        return None if data is None else decode(data, f"{folder}/{STATE_FILE}")
    except CorruptError as error:
        reason = (
            f"{error.reason}: put the file back from a copy; the records are in the nodes' folders, each of which can"
            " be read as it is"
        )
        raise CorruptError(reason, file=error.file, position=error.position) from error


def read_state(disk: Disk, folder: str) -> bytes | None:
    """Return the content of the state file; None if there is none yet."""
    return read_controller(disk, folder)


def store(disk: Disk, folder: str, data: bytes) -> None:
    """Replace the state in ``folder``; it is durable when this returns.

    Raises :class:`StorageError`; then the file has the old state or the new one.
    """
    replace_file(disk, f"{folder}/{STATE_FILE}", data, reserve_in=folder)
