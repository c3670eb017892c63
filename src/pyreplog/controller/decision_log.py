"""Log the controller's decisions for the application."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyreplog.controller.image import MetadataImage
from pyreplog.wire import NO_LEADER_CHANGE, BrokerRegistrationChangeRecord, MetadataRecord, PartitionChangeRecord

__all__ = ["tell_decisions"]

_log = logging.getLogger("pyreplog.node")


def tell_decisions(records: Sequence[tuple[int, MetadataRecord]], image: MetadataImage) -> None:
    """Log elections, in-sync set changes and fencing at INFO.

    REQUIRES that ``records`` are durable and applied to ``image``.
    """
    if not _log.isEnabledFor(logging.INFO):
        return
    for _, record in records:
        if isinstance(record, PartitionChangeRecord):
            _tell_partition(record, image)
        elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced:
            _log.info("node %d is %s", record.broker_id, "fenced" if record.fenced > 0 else "unfenced, and serves")


def _tell_partition(record: PartitionChangeRecord, image: MetadataImage) -> None:
    topic = image.topics.get(record.topic_id)
    if topic is None:
        return
    name = f"{topic.name}-{record.partition_id}"
    partition = topic.partitions[record.partition_id]
    if record.isr is not None:
        _log.info("%s: the in-sync replicas are now %s", name, list(record.isr))
    if record.leader == NO_LEADER_CHANGE:
        return
    if record.leader < 0:
        _log.info("%s: no replica can lead it now", name)
    else:
        _log.info("%s: node %d is elected leader, in epoch %d", name, record.leader, partition.leader_epoch)
