"""What an owner does with a batch: look at all of it, make it its own, append it idempotently, say so.

Whatever of it an earlier owner appended is recognised by producer id, epoch and sequence (:func:`pyreplog.spool.producer_of`), so it may
be stopped and begun again at any point. A batch that cannot be appended is refused before anything of it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final, Protocol

from pyreplog.errors import CorruptError, InvalidRequestError, MessageTooLargeError, OutOfOrderSequenceError, UnknownTopicError
from pyreplog.record import RecordBatch, set_producer
from pyreplog.spool.layout import producer_of
from pyreplog.spool.manifest import Manifest
from pyreplog.spool.spool import Spool, Waiting, reason_of
from pyreplog.spool.staged import read_staged
from pyreplog.values import TopicPartition

__all__ = ["Appender", "Resumer", "apply"]

SEQUENCE_COUNT: Final = 2**31
"""After the last one, 2**31 - 1, comes 0."""


class Appender(Protocol):
    """What the owner appends with."""

    def batch_size_max(self, key: TopicPartition) -> int:
        """Bytes of the largest batch that ``key`` takes; :class:`UnknownTopicError` where it is not this owner's."""
        ...

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """Append one batch with its producer's sequence, or find that it is there. May return before that is so; batches of one partition
        stay in order. ``data`` is handed over."""
        ...

    def finish(self) -> None:
        """Return when everything appended counts, as durable as the log promises; raises what keeps that from being so."""
        ...

    def close(self) -> None:
        """After the batch, however it ended."""
        ...


def apply(spool: Spool, waiting: Waiting, appender: Appender) -> bool:
    """Append one batch of the spool: whether it is in the log now. False: it was refused, or taken back.

    Raises what keeps the log from taking it; the batch then stays begun, to be applied again.
    """
    manifest = spool.manifest(waiting)
    if manifest is None:
        return False
    query, batch = manifest.batch_id
    if spool.applied(query) < batch:
        if not waiting.begun:
            try:
                _check(spool, manifest, appender)
            except (CorruptError, InvalidRequestError, UnknownTopicError, MessageTooLargeError) as error:
                spool.refuse(manifest.batch_id, reason_of(error))
                return False
            if not spool.begin(manifest.batch_id):
                return False
            if spool.manifest(Waiting(manifest.batch_id, True)) != manifest:
                # Taken back and published anew meanwhile: nobody looked at that one yet.
                spool.give_back(manifest.batch_id)
                return False
        _append(spool, manifest, appender)
        spool.finish(manifest)
    else:
        spool.tidy(query)
    return True


def _check(spool: Spool, manifest: Manifest, appender: Appender) -> None:
    """Every batch is whole and may be appended."""
    limits: dict[TopicPartition, int] = {}
    for file in manifest.files:
        with closing(read_staged(spool.disk, spool.folder, file)) as batches:
            for key, data, _ in batches:
                limit = limits.get(key)
                if limit is None:
                    limit = limits[key] = appender.batch_size_max(key)
                _check_header(RecordBatch(data))
                if data.nbytes > limit:
                    raise MessageTooLargeError(f"{key} takes batches of {limit} bytes (max.message.bytes); one of {data.nbytes} was staged")


def _check_header(batch: RecordBatch) -> None:
    """What an encoder of rows makes. The records are not walked: whoever may stage may write to the log's files, and the checksum holds."""
    if batch.is_control or batch.is_transactional or batch.base_offset or not 0 < batch.record_count == batch.last_offset + 1:
        raise InvalidRequestError("a staged batch holds plain records, numbered from 0")


def _append(spool: Spool, manifest: Manifest, appender: Appender) -> None:
    producer_id, epoch = producer_of(manifest.batch_id)
    sequences: dict[TopicPartition, int] = {}
    for file in manifest.files:
        with closing(read_staged(spool.disk, spool.folder, file)) as batches:
            for key, data, count in batches:
                sequence = sequences.get(key, 0)
                sequences[key] = (sequence + count) % SEQUENCE_COUNT
                own = memoryview(bytearray(data))
                set_producer(own, producer_id, epoch, sequence)
                appender.append(key, own)
    appender.finish()


class Resumer:
    """Appends the batches of one producer to one partition, some of which may be there.

    A log remembers the last batches of a producer, not all: an earlier one that is there is out of order for it. That is so for
    the first ones of a batch that was begun before; a later one then is a repetition or follows. Where none does, the log lost some.
    """

    __slots__ = ("_append", "_passed")

    def __init__(self, append: Callable[[memoryview], object]) -> None:
        """``append`` appends a batch or finds that it is there; :class:`OutOfOrderSequenceError` where its sequence is another one."""
        self._append = append
        self._passed: OutOfOrderSequenceError | None = None

    def append(self, data: memoryview) -> None:
        """Append one batch, unless it is there."""
        try:
            self._append(data)
            self._passed = None
        except OutOfOrderSequenceError as error:
            self._passed = error

    def finish(self) -> None:
        """After the last one. Raises :class:`OutOfOrderSequenceError` where the log lost what came before."""
        if self._passed is not None:
            raise self._passed
