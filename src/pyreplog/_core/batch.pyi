"""Record batches, format v2, as views over bytes. No policy, no I/O."""

from datetime import datetime
from typing import Any, final

from typing_extensions import Buffer

from pyreplog.ports import Headers
from pyreplog.values import TimestampType

HEADER_SIZE: int
"""Bytes of a batch before its records: 61."""
LOG_OVERHEAD: int
"""Bytes before the part that ``batchLength`` counts: 12."""

def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, continuing from ``value``. Releases the GIL above 5 KiB."""

def stamp(batch: Buffer, base_offset: int, leader_epoch: int) -> None:
    """Write ``base_offset`` and ``leader_epoch`` into the header of the (writable) batch. Neither is covered by the
    CRC."""

@final
class Record:
    """One record: a lazy view over its batch. Immutable.

    ``key`` and ``value`` are made on request (bytes, or None where null); ``key_view`` and ``value_view`` are
    memoryviews that keep the batch's bytes alive. ``timestamp`` is in ms since 1970 (-1: none); who makes one may
    give an aware datetime.

    It may be pickled, and takes no bytes but its own along. A copy is the record itself. ``_asdict()`` has all of
    it by name.
    """

    def __init__(
        self,
        value: Buffer | None = None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        topic: str = "",
        partition: int = 0,
        offset: int = 0,
        timestamp: int | datetime = -1,
        timestamp_type: TimestampType = ...,
        leader_epoch: int = -1,
    ) -> None:
        """For your own tests: a record that is in no log. Checked and copied as what is appended: TypeError for a
        ``str``."""
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> TimestampType: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def key_view(self) -> memoryview | None: ...
    @property
    def value_view(self) -> memoryview | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    def _asdict(self) -> dict[str, Any]:
        """All of it by name, as a named tuple gives it: ``Record(**record._asdict())`` is its equal."""
    def __copy__(self) -> Record: ...
    def __deepcopy__(self, memo: object, /) -> Record: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RecordBatch:
    """One whole batch at ``position`` of ``data``; keeps ``data`` alive. Immutable.

    Raises :class:`CorruptError` when the header is cut, the magic is not 2, or the length contradicts ``data``. The
    CRC is checked only by :meth:`check_crc`.
    """

    def __new__(cls, data: Buffer, position: int = 0) -> RecordBatch: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int:
        """All bytes of the batch, header included."""
    @property
    def leader_epoch(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are unknown."""
    @property
    def timestamp_type(self) -> TimestampType: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def data(self) -> memoryview:
        """The whole batch."""
    @property
    def payload(self) -> memoryview:
        """The records as stored (compressed where ``codec`` is not 0)."""
    def place(self) -> tuple[int, int, int, int, int, int, bool]:
        """``base_offset``, ``last_offset``, ``leader_epoch``, ``size``, ``max_timestamp``, ``producer_id``,
        ``is_control``: all at once."""
    def origin(self) -> tuple[int, int, int, int, int, bool, bool]:
        """``producer_id``, ``producer_epoch``, ``last_sequence``, last minus base offset, ``max_timestamp``,
        ``is_control``, ``is_transactional``: all at once."""
    def check_crc(self) -> None:
        """Raise :class:`CorruptError` when the stored CRC is not that of the bytes."""
    def check_records(self, payload: Buffer | None = None) -> None:
        """Walk every record of ``payload`` (default: the stored one; pass the decompressed one where ``codec`` is
        not 0) and raise :class:`CorruptError` unless there are exactly ``record_count``, well formed, with strictly
        increasing offset deltas not above the last one, and nothing behind them."""
    def is_dense(self, payload: Buffer | None = None) -> bool:
        """Whether the offset deltas are 0, 1, 2, ... and the last one is ``record_count`` - 1 (what a leader
        demands of a client)."""
    def examine(self, payload: Buffer | None = None) -> tuple[bool, int]:
        """As :meth:`check_records`; whether they are dense, as :meth:`is_dense` says, and the greatest timestamp of
        a record (-1 where none has one), which ``max_timestamp`` should be: all at once."""
    def records(
        self,
        payload: Buffer | None = None,
        *,
        topic: str = "",
        partition: int = -1,
        start_offset: int = 0,
        end_offset: int = 0x7FFFFFFFFFFFFFFF,
        record_count: int = -1,
    ) -> list[Record]:
        """The records with ``start_offset`` <= offset < ``end_offset``, in order; ``payload`` as for
        :meth:`check_records`.

        ``record_count``: ``payload`` is a part of the records and holds so many (see :meth:`whole_records`)."""
    def whole_records(self, payload: Buffer, left: int, previous: int, *, last: bool) -> tuple[int, int, int]:
        """(bytes, count, offset delta of the last) of the records that lie whole in ``payload``, a part of the
        uncompressed records.

        ``left``: records of the batch from there on; ``previous``: offset delta of the one before, -1 for none;
        ``last``: nothing follows. Raises CorruptError where they are wrong. Releases the GIL."""
    def find_timestamp(
        self, timestamp: int, start_offset: int = 0, payload: Buffer | None = None, record_count: int = -1
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after ``start_offset`` whose timestamp is at least
        ``timestamp``. ``record_count``: as for :meth:`records`."""
