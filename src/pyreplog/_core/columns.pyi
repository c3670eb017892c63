"""Decode records into Arrow buffers, through the Arrow C data interface: no pyarrow needed."""

from collections.abc import Iterable, Sequence
from typing import final

from typing_extensions import Buffer

from pyreplog._core.batch import RecordBatch

COLUMNS: tuple[str, ...]
"""``("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")``."""

LOG_COLUMN: str
"""``"log"``: the column that names the log of a row if there are several. It is not in the records:
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
    """Collects the selected columns of many batches. Belongs to one thread; concurrent use is a RuntimeError.

    Only those columns are decoded: the rest of a record after the last of them is skipped unread.

    :meth:`append` and :meth:`extend` take half-open ranges; a record without timestamp (-1) is in no timestamp range.
    A batch is added completely or, on :class:`CorruptError` (``position`` is in the bytes given) and OverflowError (a
    column would exceed 2**31 - 1 bytes: ``finish`` earlier), not at all.
    """

    def __new__(cls, columns: Sequence[str]) -> ColumnsBuilder: ...
    @property
    def row_count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the variable-size columns so far."""
    @property
    def next_offset(self) -> int:
        """The offset after the last batch added (-1 before the first), whether or not its records were selected.
        ``finish`` does not reset it."""
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
        """Add one batch, whose CRC the caller has checked, and return the rows added (0 for a control batch).

        ``payload`` is its decompressed records if it has a codec, or a part of them with ``record_count`` records.
        Releases the GIL above 5 KiB.
        """
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
        """Add the complete batches in ``data`` from ``position`` on, and return the position of the first one not
        taken. Pass ``check_crc=False`` if the caller has checked their CRC.

        Stops at the end, at a batch that is cut off, compressed, a control batch, or begins at or after
        ``end_offset``, and before one that might exceed ``row_limit`` rows or ``size_limit`` bytes of keys, values
        and headers (the first is always taken). Batches before a corrupt one stay added. Releases the GIL above
        5 KiB."""
    def finish(self, log: str = "") -> ArrowBatch:
        """Return the collected rows and begin the next batch. The builder reuses the memory of earlier batches that
        all importers have released.

        ``log`` is the value of the column ``log`` in each row, if that column was selected.
        """

@final
class ArrowBatch:
    """One Arrow record batch, made by :meth:`ColumnsBuilder.finish`. Its buffers live until the last importer has
    released them, from any thread and without the GIL."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Raise TypeError: only a builder can make a batch."""
    @property
    def row_count(self) -> int: ...
    def slices(self, row_count: int) -> list[ArrowBatch]:
        """Return the rows as batches of at most ``row_count`` rows. Nothing is copied."""
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class ArrowStream:
    """A stream of the batches of ``source``, read when the importer asks for one.

    An exception of ``source`` reaches the importer as an error text, and the stream stays failed. A stream can be
    imported once; a second import is a :class:`ClosedError`.
    """

    def __new__(cls, columns: Sequence[str], source: Iterable[ArrowBatch]) -> ArrowStream: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
