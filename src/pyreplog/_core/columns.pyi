"""Records to Arrow buffers, through the Arrow C data interface: no pyarrow needed."""

from collections.abc import Iterable, Sequence
from typing import final

from typing_extensions import Buffer

from pyreplog._core.batch import RecordBatch

COLUMNS: tuple[str, ...]
"""``("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")``."""

LOG_COLUMN: str
"""``"log"``: the column that says which of several logs a row is from. It is not in the records:
:meth:`ColumnsBuilder.finish` takes it."""

@final
class ArrowSchema:
    """The schema of ``columns``, in the order given: partition int32, offset int64, timestamp timestamp[ms, UTC]
    (-1 is null), timestamp_type int8, key binary, value binary, headers list<struct<key utf8 not null, value
    binary>>, leader_epoch int32, log utf8. ValueError for an unknown or repeated name."""

    def __new__(cls, columns: Sequence[str]) -> ArrowSchema: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class ColumnsBuilder:
    """Gathers the asked-for columns of many batches. Belongs to one thread (a second one inside is a RuntimeError).
    Only those columns are decoded: what lies behind the last of them in a record is skipped unread.

    Both ways of adding take half-open ranges; a record without timestamp (-1) is in no timestamp range. A batch is
    added whole or, on :class:`CorruptError` (``position`` is in the bytes given) and OverflowError (a column would
    pass 2**31 - 1 bytes: ``finish`` earlier), not at all.
    """

    def __new__(cls, columns: Sequence[str]) -> ColumnsBuilder: ...
    @property
    def row_count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the variable-size columns so far."""
    @property
    def next_offset(self) -> int:
        """The offset behind the last batch added (-1 before the first), whether or not its records were selected.
        ``finish`` keeps it."""
    def append(
        self,
        batch: RecordBatch,
        payload: Buffer | None = None,
        *,
        partition: int = -1,
        start_offset: int = 0,
        end_offset: int = 0x7FFFFFFFFFFFFFFF,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        record_count: int = -1,
    ) -> int:
        """Add one batch, whose CRC the caller has checked; rows added (0 for a control batch). ``payload`` is its
        decompressed records where it has a codec, or a part of them that holds ``record_count``. Releases the GIL
        above 5 KiB."""
    def extend(
        self,
        data: Buffer,
        position: int = 0,
        *,
        partition: int = -1,
        start_offset: int = 0,
        end_offset: int = 0x7FFFFFFFFFFFFFFF,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        check_crc: bool = True,
        row_limit: int = 32768,
        size_limit: int = 2097152,
    ) -> int:
        """Add the whole batches in ``data`` from ``position``, their CRC checked unless the caller has; the
        position of the first one not taken.

        Stops at the end, at a batch that is cut off, compressed, a control batch, or begins at or behind
        ``end_offset``, and before one that might make it more than ``row_limit`` rows or ``size_limit`` bytes of
        keys, values and headers (the first is always taken). Batches before a corrupt one stay added. Releases the
        GIL above 5 KiB."""
    def finish(self, log: str = "") -> ArrowBatch:
        """What was gathered; the builder begins anew, in memory of earlier batches where all that imported them let
        go of it. ``log`` is the value of the column ``log`` in each row, if that column was asked for."""

@final
class ArrowBatch:
    """One Arrow record batch, made by :meth:`ColumnsBuilder.finish`. Its buffers live as long as anything that
    imported them, and are released from any thread without the GIL."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Raises TypeError: only a builder makes one."""
    @property
    def row_count(self) -> int: ...
    def slices(self, row_count: int) -> list[ArrowBatch]:
        """The same rows as batches of at most ``row_count``; nothing is copied."""
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class ArrowStream:
    """Batches of ``source``, pulled when the importer asks. An exception of ``source`` reaches the importer as an
    error text, and the stream stays failed. It can be handed over once; a second time is a :class:`ClosedError`."""

    def __new__(cls, columns: Sequence[str], source: Iterable[ArrowBatch]) -> ArrowStream: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
