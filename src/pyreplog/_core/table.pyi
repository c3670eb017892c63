"""Arrow tables to record batches, through the Arrow C data interface: no pyarrow needed."""

from typing import final

from typing_extensions import Buffer

@final
class ArrowRows:
    """The rows of ``source``, which has ``__arrow_c_stream__`` (pulled to its end) or ``__arrow_c_array__``.
    Nothing is copied: the arrays are moved out of their capsules, and held as long as this object lives. Immutable:
    any thread.

    Columns: ``value`` and ``key`` (binary or string, large, view or fixed-size too), ``headers`` (list<struct<key,
    value>> or map), ``timestamp`` (timestamp of any unit, or int64 in ms); others are left out. TypeError for
    another type, ValueError where the stream fails, was taken by somebody else already, or is not what Arrow's C
    data interface allows.
    """

    def __new__(cls, source: object) -> ArrowRows: ...
    @property
    def names(self) -> tuple[str, ...]:
        """Of all columns, in order."""
    @property
    def row_count(self) -> int: ...
    def check(self, size_max: int) -> int:
        """The first row that would not fit a batch of ``size_max`` bytes, or ``row_count``. ConfigError for what no
        record can hold: a header without a key or with one that is not UTF-8, a moment before 1970, offsets that go
        backwards, or lead beyond what the array has where that can be seen. Releases the GIL."""
    def timestamp(self, row: int, otherwise: int) -> int:
        """The timestamp (ms) that :meth:`encode` gives ``row``: -1 where it is null, ``otherwise`` where there is
        no such column."""
    def encode(self, row: int, timestamp: int, target: Buffer, size_target: int | None = None) -> tuple[int, int]:
        """Write a batch of the rows from ``row`` on, as many as fit, into ``target``: (the first row not taken,
        bytes written).

        A batch of several rows has ``size_target`` bytes at most (None: as many as there are): a larger row is
        alone in its batch. ``timestamp`` (ms) is theirs where the table has no such column; a null is none (-1).
        REQUIRES that :meth:`check` found nothing. Releases the GIL."""
