"""Encode records into one batch, with one Ack per record. No policy, no I/O."""

from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from typing import Any, Protocol, SupportsIndex, final, type_check_only

from typing_extensions import Buffer

from pyreplog.ports import Headers
from pyreplog.values import RecordMetadata

@type_check_only
class Outcome(Protocol):
    """The fate of one batch that was sent, shared by the Acks of its records. The runtime makes it."""

    def wait(self, timeout: float | None) -> None:
        """Block until settled. Raises TimeoutError if ``timeout`` seconds pass first."""
    def future(self) -> Any:
        """Return an awaitable of the running event loop that completes when settled."""
    @property
    def settled(self) -> bool: ...
    @property
    def error(self) -> BaseException | None: ...
    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of the record at ``index``. REQUIRES settled without error."""

@final
class Ack:
    """The acknowledgement of one record, to wait for: ``result()``, ``await``, ``offset``. Thread-safe."""

    def __init__(self, outcome: Outcome, index: int) -> None: ...
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait and return the record's metadata. Raises the error of the record (``OutcomeUnknownError`` if it may
        be in the log or not), or TimeoutError after ``timeout`` seconds."""
    def done(self) -> bool:
        """Return whether the record is acknowledged or refused. Never waits."""
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error that ``result`` would raise, or None if the record is acknowledged. Waits as ``result``
        does."""
    @property
    def offset(self) -> int | None:
        """The record's offset if it is known, else None. Never waits."""
    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...

def find_too_large(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[Headers] | None,
    timestamps: Sequence[int | datetime] | None,
    size_max: int,
) -> int:
    """Return the index of the first record that does not fit a batch of ``size_max`` bytes, or the number of
    records if each fits.

    Raises each error that :meth:`BatchBuilder.extend` would raise, so that a caller with several batches sends
    none if one record is refused.
    """

@final
class BatchBuilder:
    """Encodes records into one batch, in a buffer that is reused. Belongs to one thread at a time, except for
    :meth:`gather`.

    ``size_max`` bounds the whole (uncompressed) batch in bytes, ``size_target`` (None: the same) a batch of several
    records: a larger record is alone in its batch. A timestamp above ``timestamp_max`` is an InvalidTimestampError.
    The arguments of :meth:`extend`, such as headers, may run Python code. If that code calls the builder, the call
    is a RuntimeError.
    """

    def __new__(
        cls, size_max: int = 1048588, size_target: int | None = None, *, timestamp_max: int = ...
    ) -> BatchBuilder: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int:
        """The size of the uncompressed batch in bytes, header included."""
    def append(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: SupportsIndex | datetime
    ) -> bool:
        """Add one record. Return False if it does not fit (with ``count`` 0: larger than ``size_max`` alone); then
        nothing has changed.

        ``value`` and ``key`` take any contiguous buffer. A ``str`` is a TypeError that says to encode it; a
        timestamp below -1, a datetime before 1970 or a naive one is a ConfigError.
        """
    def begin(self, outcome: Outcome, timestamps: list[int], size_limit: int) -> None:
        """Begin the next batch, for :meth:`gather`. Its records belong to ``outcome``; their timestamps are
        appended to ``timestamps``.

        A record that would make it longer than ``size_limit`` bytes is not taken, unless it is the first, which may
        be as large as ``size_max`` allows.
        """
    def resume(self, outcome: object, timestamps: list[Any], size_limit: int) -> None: ...
    def gather(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers,
        timestamp: int | datetime | None,
        now_ms: Callable[[], int] | None = None,
    ) -> Ack | None:
        """Add one record and return its Ack. Return None if the batch is not begun for gathering, finished or
        full; then nothing has changed.

        If ``timestamp`` is None, use ``now_ms()``, in ms since 1970, or this machine's clock if ``now_ms`` is None
        too.

        Any thread may call it without a lock while another thread calls the other methods under a lock, provided
        that no other method adds records: record, index and timestamp stay together."""
    def extend(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
        timestamp: int,
        start: int,
    ) -> int:
        """Add ``values[start:]`` until one does not fit, and return the index of the first that was not taken.

        ``timestamp`` is used if ``timestamps`` is None. If it raises, no record is added.
        """
    def finish(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        codec: int = 0,
        payload: Buffer | None = None,
        timestamp_type: int = 0,
        append_timestamp: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> memoryview:
        """Return the whole batch as a writable view. REQUIRES ``count`` > 0.

        ``payload`` replaces the records by their compressed form. The view keeps its memory valid: while it lives,
        the builder uses another buffer. Only :meth:`reset` may follow.
        """
    def payload(self) -> memoryview:
        """Return a view of the uncompressed records so far, for a codec. Release it before the next call."""
    def reset(self) -> None:
        """Begin the next batch."""

@final
class Gathering:
    """Adds records to ``builder``, one call each, and calls ``otherwise`` for a record that it does not take. Any
    thread."""

    def __new__(
        cls,
        builder: BatchBuilder,
        now_ms: Callable[[], int] | None,
        otherwise: Callable[[Buffer | None, Buffer | None, Headers, int | datetime | None], Any],
    ) -> Gathering: ...
    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
    ) -> Any:
        """Return the result of :meth:`BatchBuilder.gather` with ``now_ms``; if that is None, the result of
        ``otherwise(value, key, headers, timestamp)``."""
