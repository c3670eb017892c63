"""Records into one batch, and what is made once per record. No policy, no I/O."""

from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from typing import Any, Protocol, SupportsIndex, final, type_check_only

from typing_extensions import Buffer

from pyreplog.ports import Headers
from pyreplog.values import RecordMetadata

@type_check_only
class Outcome(Protocol):
    """What an Ack belongs to: one batch on its way. Made by the runtime."""

    def wait(self, timeout: float | None) -> None:
        """Block until settled; TimeoutError when ``timeout`` seconds pass first."""
    def future(self) -> Any:
        """An awaitable of the running event loop that ends when settled."""
    @property
    def settled(self) -> bool: ...
    @property
    def error(self) -> BaseException | None: ...
    def metadata(self, index: int) -> RecordMetadata:
        """Of the ``index``-th record. REQUIRES settled without error."""

@final
class Ack:
    """A handle on one record's acknowledgement: ``result()``, ``await``, ``offset``. Thread-safe."""

    def __init__(self, outcome: Outcome, index: int) -> None: ...
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for it. Raises what went wrong (``OutcomeUnknownError`` where nobody can say), TimeoutError after
        ``timeout`` seconds."""
    def done(self) -> bool:
        """Whether it is acknowledged or refused. Never waits."""
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What ``result`` would raise, None where it is acknowledged. Waits as ``result`` does."""
    @property
    def offset(self) -> int | None:
        """The record's offset once known, else None. Never waits."""
    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...

def find_too_large(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[Headers] | None,
    timestamps: Sequence[int | datetime] | None,
    size_max: int,
) -> int:
    """The index of the first record that no batch of ``size_max`` bytes holds; how many there are where each fits.
    Raises what :meth:`BatchBuilder.extend` raises of any of them, so that who spreads them over several batches
    begins with none where one is refused."""

@final
class BatchBuilder:
    """Gathers records into one batch, in a buffer that is reused. Belongs to one thread at a time, but for
    :meth:`gather`.

    ``size_max`` bounds the whole (uncompressed) batch in bytes, ``size_target`` (None: the same) one of several
    records: a larger record is alone in its batch. A timestamp above ``timestamp_max`` is an InvalidTimestampError.
    What :meth:`extend` is given, such as headers, may run Python code: from there the builder refuses every call
    with a RuntimeError.
    """

    def __new__(
        cls, size_max: int = 1048588, size_target: int | None = None, *, timestamp_max: int = ...
    ) -> BatchBuilder: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes the batch would have uncompressed, header included."""
    def append(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: SupportsIndex | datetime
    ) -> bool:
        """Add one record. False: does not fit, nothing was changed (with ``count`` 0: larger than ``size_max``
        alone). ``value`` and ``key`` take any contiguous buffer. TypeError for a ``str`` says to encode it; a
        timestamp below -1 is a ConfigError, as a datetime before 1970 and a naive one are."""
    def begin(self, outcome: Outcome, timestamps: list[int], size_limit: int) -> None:
        """Begin the next batch, for :meth:`gather`: its records are ``outcome``'s, and their timestamps are added
        to ``timestamps``. A record that would make it longer than ``size_limit`` bytes is not taken, unless it is
        the first, which may be as large as ``size_max`` allows."""
    def gather(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers,
        timestamp: int | datetime | None,
        now_ms: Callable[[], int] | None = None,
    ) -> Ack | None:
        """Add one record and return its Ack. None: the batch was not begun for gathering, is finished, or full;
        nothing was changed. ``timestamp`` None takes ``now_ms()``, in ms since 1970, and where that is None, too,
        this machine's clock.

        May be called by any thread without a lock, beside one that calls the other methods under one, as long as
        records come by it alone: the record, its index and its timestamp belong together."""
    def extend(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
        timestamp: int,
        start: int,
    ) -> int:
        """Add ``values[start:]`` until one does not fit; the index of the first that was not taken. ``timestamp``
        serves where ``timestamps`` is None. Adds nothing when it raises."""
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
        """The whole batch, writable. REQUIRES ``count`` > 0. ``payload`` replaces the records by their compressed
        form. The memory stays valid as long as the view lives; the builder takes another buffer when it goes on
        while the view lives. Only :meth:`reset` may follow."""
    def payload(self) -> memoryview:
        """The records gathered so far, uncompressed: what a codec compresses before ``finish``. Release it before
        going on."""
    def reset(self) -> None:
        """Begin the next batch."""

@final
class Gathering:
    """Gathers records into ``builder``, one call each, and leaves what it does not take to ``otherwise``. Any
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
        """What :meth:`BatchBuilder.gather` returns, asked with ``now_ms``; where that is None, what
        ``otherwise(value, key, headers, timestamp)`` returns."""
