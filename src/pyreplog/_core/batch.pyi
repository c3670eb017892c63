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

def chained_frame(body: bytes, chain: int) -> tuple[bytes, int]: ...
def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``, continuing from ``value``. Releases the GIL above 5 KiB."""

def stamp(batch: Buffer, base_offset: int, leader_epoch: int) -> None:
    """Write ``base_offset`` and ``leader_epoch`` into the header of the (writable) batch.

    The CRC covers neither of them.
    """

@final
class Record:
    """One record: a lazy view over its batch. Immutable.

    ``key`` and ``value`` are copied on each access (bytes, or None if null); ``key_view`` and ``value_view`` are
    memoryviews that keep the batch's bytes alive. ``timestamp`` is in ms since 1970 (-1: none); the constructor
    also accepts an aware datetime.

    A record can be pickled; the pickle contains no bytes of other records. A copy is the record itself.
    ``_asdict()`` returns all fields by name.
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
        """Make a record that is in no log, for your own tests. The arguments are checked and copied as for an
        append: a ``str`` is a TypeError."""
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
    @property
    def delivery_count(self) -> int:
        """How many times a queue has delivered the record, this time included; 0 if it is not from a queue."""

    def _asdict(self) -> dict[str, Any]:
        """Return all fields by name, as a named tuple does: ``Record(**record._asdict())`` is equal to the record."""
    def __copy__(self) -> Record: ...
    def __deepcopy__(self, memo: object, /) -> Record: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def delivered(records: list[Record], delivery_count: int) -> list[Record]:
    """Return ``records`` as a queue delivers them for the ``delivery_count``-th time. They share their bytes."""

@final
class RecordBatch:
    """One complete batch at ``position`` of ``data``, which is kept alive. Immutable.

    Raises :class:`CorruptError` if the header is cut off, the magic is not 2, or the length contradicts ``data``.
    Only :meth:`check_crc` checks the CRC.
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
        """The size of the batch in bytes, header included."""
    @property
    def leader_epoch(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def codec(self) -> int:
        """The codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are unknown."""
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
        """A view of the whole batch."""
    @property
    def payload(self) -> memoryview:
        """A view of the records as stored (compressed if ``codec`` is not 0)."""
    def place(self) -> tuple[int, int, int, int, int, int, bool]:
        """Return ``base_offset``, ``last_offset``, ``leader_epoch``, ``size``, ``max_timestamp``,
        ``producer_id`` and ``is_control`` in one call."""
    def origin(self) -> tuple[int, int, int, int, int, bool, bool]:
        """Return ``producer_id``, ``producer_epoch``, ``last_sequence``, last minus base offset,
        ``max_timestamp``, ``is_control`` and ``is_transactional`` in one call."""
    def check_crc(self) -> None:
        """Raise :class:`CorruptError` if the stored CRC is not the CRC of the bytes."""
    def check_records(self, payload: Buffer | None = None) -> None:
        """Raise :class:`CorruptError` unless ``payload`` holds exactly ``record_count`` well-formed records, with
        strictly increasing offset deltas not above the last one, and no byte after them.

        The default is the stored payload. If ``codec`` is not 0, pass the decompressed one.
        """
    def is_dense(self, payload: Buffer | None = None) -> bool:
        """Return whether the offset deltas are 0, 1, 2, ... and the last one is ``record_count`` - 1. A leader
        requires this of a client."""
    def examine(self, payload: Buffer | None = None) -> tuple[bool, int]:
        """Check as :meth:`check_records` does, and return (:meth:`is_dense`, the greatest timestamp of a record).

        The timestamp, -1 if no record has one, should equal ``max_timestamp``.
        """
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
        """Return the records with ``start_offset`` <= offset < ``end_offset``, in order; ``payload`` as for
        :meth:`check_records`.

        ``record_count`` is the number of records in ``payload`` if that is only a part of them (see
        :meth:`whole_records`)."""
    def whole_records(self, payload: Buffer, left: int, previous: int, *, last: bool) -> tuple[int, int, int]:
        """Return (bytes, count, offset delta of the last) of the records that are complete in ``payload``, a part
        of the uncompressed records.

        ``left`` is the number of records of the batch from there on, ``previous`` the offset delta of the record
        before (-1: none); ``last`` says that no part follows. Raises CorruptError if a record is malformed.
        Releases the GIL."""
    def find_timestamp(
        self, timestamp: int, start_offset: int = 0, payload: Buffer | None = None, record_count: int = -1
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after ``start_offset`` whose timestamp is at least
        ``timestamp``, or None. ``record_count``: as for :meth:`records`."""
