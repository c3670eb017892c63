"""What an owner does with a batch: look at all of it, make it its own, append it idempotently, say so.

Whatever of it an earlier owner appended is recognised by producer id, epoch and sequence
(:func:`pyreplog.spool.producer_of`), so it may be stopped and begun again at any point. A batch that cannot be
appended is refused before anything of it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final, Protocol

from pyreplog.errors import (
    CorruptError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    OutOfOrderSequenceError,
    SpoolDamagedError,
    UnknownTopicError,
)
from pyreplog.record import RecordBatch, set_producer
from pyreplog.spool.layout import APPLIED, BEGUN, STAGED, BatchId, batch_name, producer_of, query_name
from pyreplog.spool.manifest import Manifest
from pyreplog.spool.spool import Spool, Waiting, reason_of
from pyreplog.spool.staged import read_staged
from pyreplog.values import TopicPartition

__all__ = ["Appender", "Resumer", "apply", "damage_of"]

SEQUENCE_COUNT: Final = 2**31
"""After the last one, 2**31 - 1, comes 0."""


class Appender(Protocol):
    """The functions with which the owner appends."""

    def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
        """Return a function that raises if ``key`` would refuse a batch: :class:`MessageTooLargeError`,
        :class:`InvalidTimestampError`. Raise :class:`UnknownTopicError` if this owner does not have the
        partition."""
        ...

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """Append one batch with its producer's sequence, or find that it is there. May return before that is so;
        batches of one partition stay in order. ``data`` is handed over."""
        ...

    def finish(self) -> None:
        """Return when everything appended counts, as durable as the log promises; raises what keeps that from being
        so."""
        ...

    def close(self) -> None:
        """After the batch, however it ended."""
        ...


def apply(spool: Spool, waiting: Waiting, appender: Appender) -> bool:
    """Append one batch of the spool: whether it is in the log now. False: it was refused, or taken back.

    Raises what keeps the log from taking it; the batch then stays begun, to be applied again.
    """
    batch_id = waiting.batch_id
    if spool.applied(batch_id.query) >= batch_id.batch:
        spool.confirm(query_name(batch_id.query, APPLIED))
        spool.tidy(batch_id.query)
        return True
    manifest = _begun(spool, batch_id) if waiting.begun else _taken(spool, batch_id, appender)
    if manifest is None:
        return False
    try:
        _append(spool, manifest, appender)
    except CorruptError as error:
        if error.file is None or not error.file.endswith(STAGED):
            raise  # the log itself
        raise SpoolDamagedError(reason_of(error), f"{spool.folder}/{batch_name(batch_id, BEGUN)}") from error
    spool.finish(manifest)
    return True


def damage_of(spool: Spool, batch_id: BatchId) -> SpoolDamagedError | None:
    """Why a batch that was begun cannot be finished, if a look at its files tells; for its driver."""
    manifest = spool.begun(batch_id)
    try:
        for file in () if manifest is None else manifest.files:
            with closing(read_staged(spool.disk, spool.folder, file)) as batches:
                for _ in batches:
                    pass
    except CorruptError as error:
        return SpoolDamagedError(reason_of(error), f"{spool.folder}/{batch_name(batch_id, BEGUN)}")
    return None


def _begun(spool: Spool, batch_id: BatchId) -> Manifest | None:
    """Return a batch that this owner or an earlier one has begun, and write that durably before more of it is
    appended. None if the batch no longer exists."""
    manifest = spool.begun(batch_id)
    if manifest is not None:
        spool.confirm(batch_name(batch_id, BEGUN))
    return manifest


def _taken(spool: Spool, batch_id: BatchId, appender: Appender) -> Manifest | None:
    """Check and begin a batch that no owner has begun. None if it no longer exists, or was refused."""
    manifest = spool.take(batch_id)
    if manifest is None:
        return None
    try:
        _check(spool, manifest, appender)
    except (CorruptError, InvalidRequestError, InvalidTimestampError, UnknownTopicError, MessageTooLargeError) as error:
        spool.refuse(manifest, reason_of(error))
        return None
    except BaseException:
        spool.give_back(batch_id)
        raise
    spool.begin(batch_id)
    return manifest


def _check(spool: Spool, manifest: Manifest, appender: Appender) -> None:
    """Check that every record batch is whole and can be appended. If the log refused one after it accepted others,
    the batch could never be finished."""
    checks: dict[TopicPartition, Callable[[RecordBatch], None]] = {}
    for file in manifest.files:
        with closing(read_staged(spool.disk, spool.folder, file)) as batches:
            for key, data, _ in batches:
                check = checks.get(key)
                if check is None:
                    check = checks[key] = appender.check_of(key)
                batch = RecordBatch(data)
                _check_header(batch)
                check(batch)


def _check_header(batch: RecordBatch) -> None:
    """Check that the bytes are batches as the row encoder makes them. The records are not checked: a process that
    can stage files can also write to the log's files, and the checksum is right."""
    if (
        batch.is_control
        or batch.is_transactional
        or batch.base_offset
        or not 0 < batch.record_count == batch.last_offset + 1
    ):
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
    """Appends the batches of one producer to one partition; the log may have some of them already.

    A log remembers only the last batches of a producer, and refuses an earlier one as out of order. The first
    batches of a spool batch that was begun before may be refused that way; a later one is then a repetition or is
    accepted. If none is, the log lost some of them.
    """

    __slots__ = ("_append", "_passed")

    def __init__(self, append: Callable[[memoryview], object]) -> None:
        """``append`` appends a batch or finds that it is there; :class:`OutOfOrderSequenceError` where its sequence
        is another one."""
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
