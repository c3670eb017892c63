"""Rows from Arrow arrays into record batches. No policy, no I/O."""

from typing import Protocol, final

from typing_extensions import Buffer

class _ArrowBatch(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def murmur2(key: Buffer) -> int:
    """Kafka's 32-bit hash of ``key``, unsigned."""

def xxh64(data: Buffer, seed: int = 0) -> int:
    """The 64-bit hash XXH64 of ``data``."""

@final
class RowEncoder:
    """Rows from Arrow into record batches, one being gathered for each partition. Belongs to one thread.

    A batch is full at ``size_target`` bytes; one with a single record may have ``size_max``.
    """

    def __new__(
        cls, partition_count: int, size_target: int = 262144, size_max: int = 1048588, seed: int = 0
    ) -> RowEncoder: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the records being gathered."""
    @property
    def row_sum(self) -> int:
        """What the hashes of all rows that were added sum up to, modulo 2**64.

        A row's hash is the XXH64 of its key, value and headers as a record holds them. Its seed is ``seed``, or
        ``seed`` + partition + 1 if the row names its partition. Neither the order of the rows nor their times or
        batches change the sum."""
    def add(self, array: _ArrowBatch, timestamp: int, keyless: int) -> list[tuple[int, bytes]]:
        """Add all rows of a record batch; (partition, batch) of each batch that became full, in the order of each
        partition's rows.

        Columns by name, those that are not there are null: ``key`` and ``value`` (binary or string), ``headers``
        (list of structs of key and value in either order), ``timestamp`` (timestamp[us]; ``timestamp`` in ms where
        null), ``partition`` (int32). A row goes to its partition if it names one, else where murmur2 puts its key,
        without key to ``keyless``. TypeError for other columns or types, ValueError for an array that was taken
        already or is not what Arrow's C data interface allows, InvalidRequestError and MessageTooLargeError name
        the row; the encoder is of no use afterwards."""
    def drain(self) -> list[tuple[int, bytes]]:
        """(partition, batch) of every batch that was begun, in order of partitions."""
