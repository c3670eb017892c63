"""Rows staged as a task would, without Spark or Arrow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pyreplog.record import BatchBuilder
from pyreplog.spool import BatchId, Spool, StagedFile
from pyreplog.values import TopicPartition

_attempts = itertools.count()


def encoded(values: Sequence[bytes], key: bytes | None = None) -> bytes:
    """One record batch."""
    builder = BatchBuilder()
    builder.extend(list(values), [key] * len(values), None, None, 5, 0)
    return bytes(builder.finish())


def stage(spool: Spool, batch_id: BatchId, *batches: tuple[str, int, Sequence[bytes]], task: str = "") -> StagedFile:
    """One task's file with these batches: (topic, partition, values)."""
    writer = spool.stage(batch_id, task or f"0-x{next(_attempts)}")
    writer.add([(TopicPartition(topic, partition), encoded(values)) for topic, partition, values in batches])
    return writer.finish()
