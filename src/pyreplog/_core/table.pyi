"""Encode Arrow tables as record batches, through the Arrow C data interface: no pyarrow needed."""

from typing import final

from typing_extensions import Buffer

@final
class ArrowRows:
    """The rows of ``source``, which has ``__arrow_c_stream__`` (read to its end) or ``__arrow_c_array__``.

    Nothing is copied: the arrays are moved out of their capsules and held by this object. Immutable: any thread.

    Columns: ``value`` and ``key`` (binary or string; also large, view or fixed-size), ``headers`` (list<struct<key,
    value>> or map), ``timestamp`` (timestamp of any unit, or int64 in ms); others are ignored. Raises TypeError for
    another type, and ValueError if the stream fails, was taken by another consumer, or violates Arrow's C data
    interface.
    """

    def __new__(cls, source: object) -> ArrowRows: ...
    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, in order."""
    @property
    def row_count(self) -> int: ...
    def check(self, size_max: int) -> int:
        """Return the first row that does not fit a batch of ``size_max`` bytes, or ``row_count``.

        Raises ConfigError for a row that no record can hold: a header without a key, a key that is not UTF-8, a time
        before 1970, Arrow offsets that go backwards, or (if that can be detected) beyond the data. Releases the GIL.
        """
    def timestamp(self, row: int, otherwise: int) -> int:
        """Return the timestamp (ms) that :meth:`encode` gives to ``row``: -1 if it is null, ``otherwise`` if the
        table has no such column."""
    def encode(self, row: int, timestamp: int, target: Buffer, size_target: int | None = None) -> tuple[int, int]:
        """Write a batch of the rows from ``row`` on, as many as fit, into ``target``. Return (the first row not
        taken, bytes written).

        A batch of several rows has at most ``size_target`` bytes (None: the size of ``target``): a larger row is
        alone in its batch. The rows get ``timestamp`` (ms) if the table has no such column; a null becomes -1.
        REQUIRES that :meth:`check` returned ``row_count``. Releases the GIL."""
