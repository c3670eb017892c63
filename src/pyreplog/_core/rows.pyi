"""Encode rows of Arrow arrays as record batches. No policy, no I/O."""

from typing import Protocol, final

from typing_extensions import Buffer

class _ArrowBatch(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def murmur2(key: Buffer) -> int:
    """Return Kafka's 32-bit hash of ``key``, unsigned."""

def xxh64(data: Buffer, seed: int = 0) -> int:
    """Return the 64-bit hash XXH64 of ``data``."""

@final
class RowEncoder:
    """Encodes rows of Arrow arrays as record batches, with one open batch for each partition. Belongs to one thread.

    A batch is full at ``size_target`` bytes; one with a single record may have ``size_max`` bytes.
    """

    def __new__(
        cls, partition_count: int, size_target: int = 262144, size_max: int = 1048588, seed: int = 0
    ) -> RowEncoder: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the records in open batches."""
    @property
    def row_sum(self) -> int:
        """The sum of the hashes of all rows that were added, modulo 2**64.

        A row's hash is the XXH64 of its key, value and headers as a record holds them. Its seed is ``seed``, or
        ``seed`` + partition + 1 if the row names its partition. Neither the order of the rows nor their times or
        batches change the sum."""
    def add(self, array: _ArrowBatch, timestamp: int, keyless: int) -> list[tuple[int, bytes]]:
        """Add all rows of a record batch. Return (partition, batch) of each batch that became full, in the order of
        each partition's rows.

        Columns by name; missing ones count as null: ``key`` and ``value`` (binary or string), ``headers`` (list of
        structs of key and value in either order), ``timestamp`` (timestamp[us]; if null, the argument ``timestamp``
        in ms), ``partition`` (int32). A row goes to the partition that it names, else to the one that murmur2
        selects for its key; without a key it goes to ``keyless``.

        Raises TypeError for other columns or types, and ValueError for an array that was taken already or violates
        Arrow's C data interface. InvalidRequestError and MessageTooLargeError name the row. After an error the
        encoder cannot be used any more."""
    def drain(self) -> list[tuple[int, bytes]]:
        """Return (partition, batch) of each open batch, in order of partitions, and close them."""
