"""Records to Arrow buffers, through the Arrow C data interface: no pyarrow needed."""

from collections.abc import Iterator, Sequence
from typing import final

from typing_extensions import Buffer

from pyreplog._core.batch import RecordBatch

COLUMNS: tuple[str, ...]
"""``("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")``: the order of a schema."""

@final
class ArrowSchema:
    """The schema of ``columns``: partition int32, offset int64, timestamp timestamp[ms, UTC] (-1 is null), timestamp_type int8, key binary,
    value binary, headers list<struct<key utf8 not null, value binary>>, leader_epoch int32."""

    def __new__(cls, columns: Sequence[str]) -> ArrowSchema: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class ColumnsBuilder:
    """Gathers the asked-for columns of many batches. Belongs to one thread. Only those columns are decoded."""

    def __new__(cls, columns: Sequence[str]) -> ColumnsBuilder: ...
    @property
    def row_count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the variable-size columns so far; ``append`` refuses what would pass 2**31 - 1."""
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
    ) -> int:
        """Add the records in the half-open ranges; rows added. A record without timestamp (-1) is in no timestamp range. ``payload`` is the
        decompressed records where the batch has a codec. All or nothing on :class:`CorruptError`. Releases the GIL."""
    def finish(self) -> ArrowBatch:
        """What was gathered; the builder begins anew."""

@final
class ArrowBatch:
    """One Arrow record batch. Its buffers live as long as anything that imported them."""

    @property
    def row_count(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class ArrowStream:
    """Batches of ``source``, pulled when the importer asks. An exception of ``source`` reaches the importer as an error text."""

    def __new__(cls, columns: Sequence[str], source: Iterator[ArrowBatch]) -> ArrowStream: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
