"""What a read of a log hands out, and the memory of what was appended last."""

from collections.abc import Sequence
from typing import Protocol, final

from typing_extensions import Buffer

TAIL_COUNT: int
"""Entries that a :class:`TailCache` keeps at most: small ones cost more to keep than their bytes."""

class _Generational(Protocol):
    """What a slice was cut from."""

    generation: int

@final
class LogSlice:
    """Whole batches from ``offset`` on, ``size`` bytes. Immutable; any thread.

    The bytes are those that were in the log when it was read. Once the log was truncated they may no longer be: then :meth:`parts` raises.
    """

    def __init__(self, log: _Generational, offset: int, parts: Sequence[memoryview], size: int) -> None: ...
    @property
    def offset(self) -> int:
        """Where it was read from."""
    @property
    def size(self) -> int:
        """In bytes."""
    @property
    def generation(self) -> int:
        """Of the log, when it was read."""
    def parts(self) -> list[memoryview]:
        """The bytes, each part whole batches, in order. The memory is shared: do not write into it.

        Raises :class:`OutcomeUnknownError` when the log was truncated since: drop the slice and read again.
        """
    def __len__(self) -> int: ...

@final
class TailCache:
    """The newest appended buffers, by offset, up to ``size_max`` bytes and :data:`TAIL_COUNT`. Belongs to the log's owner."""

    def __init__(self, size_max: int) -> None: ...
    @property
    def size_max(self) -> int:
        """As it was made."""
    @property
    def size(self) -> int:
        """Bytes kept."""
    def __len__(self) -> int:
        """Entries kept."""
    def append(self, start: int, end: int, data: Buffer, size: int) -> None:
        """Keep ``data`` (whole batches of ``size`` bytes, never changed again) as the offsets from ``start`` to ``end``."""
    def read(self, offset: int, wanted_max: int, end_offset: int) -> tuple[list[memoryview], int] | None:
        """Parts and their bytes from the batch that holds ``offset`` on, below ``end_offset``; None where it is not here."""
    def clear(self) -> None:
        """Forget everything."""
