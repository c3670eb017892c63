"""Walk the batches in a range of bytes; the sparse indexes of a segment. No I/O."""

from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

@final
class SegmentScanner:
    """Walks the batches of one segment, chunk by chunk, and collects its index entries and epochs.

    The attributes describe the state at ``position``, the first byte not yet taken. It takes a batch if it is
    complete, magic (2), length and CRC (if ``check_crc``) are right, its base offset is at least ``next_offset``, its
    last offset at most ``base_offset`` + 2**31 - 1, and the leader epoch does not fall.
    """

    def __new__(
        cls,
        base_offset: int,
        *,
        position: int = 0,
        next_offset: int = -1,
        index_interval: int = 4096,
        check_crc: bool = True,
        dense: bool = False,
    ) -> SegmentScanner:
        """Begin at ``position``. A ``dense`` scan stops at a gap: at a batch that does not begin at
        ``next_offset``."""
    def feed(self, data: Buffer) -> int:
        """Take complete batches from ``data``, which starts at ``position``; return the bytes taken.

        Stops at the first bad batch (see ``status``) or at an incomplete one (see ``needed``). Releases the GIL.
        """
    @property
    def status(self) -> int:
        """0, or the kernel status of the bad batch at ``position``: ``raise_for_status`` describes it."""
    @property
    def needed(self) -> int:
        """The size of the batch at ``position`` if its length is known and exceeds the data given, else 0."""
    @property
    def gap(self) -> bool:
        """Whether a ``dense`` scan stopped at a batch at ``position`` that does not begin at ``next_offset``; it
        did not check that batch."""
    @property
    def position(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the earliest batch that holds ``max_timestamp``."""
    @property
    def batch_count(self) -> int: ...
    @property
    def first_producer(self) -> int:
        """Position of the first batch with a producer id, or -1."""
    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(leader epoch, base offset) of each batch at which the epoch rises."""
    @property
    def bytes_since_entry(self) -> int: ...
    def offset_entries(self) -> bytes:
        """Return the ``.index`` content: one entry for each batch that starts more than ``index_interval`` bytes
        after the batch of the last entry."""
    def time_entries(self) -> bytes:
        """Return the ``.timeindex`` content, with the final entry of a closed segment."""

@final
class OffsetIndex:
    """Entries (offset, position) of one segment, in Kafka's 8-byte form, in memory."""

    def __new__(cls, base_offset: int, data: Buffer = b"") -> OffsetIndex:
        """Copy the complete entries of ``data``. Raises CorruptError if an offset does not rise or a position
        falls."""
    def append(self, offset: int, position: int) -> None: ...
    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the greatest entry not above ``offset``, or (base offset, 0)."""
    def truncate(self, offset: int) -> None:
        """Drop each entry at or above ``offset``."""
    @property
    def last(self) -> tuple[int, int]: ...
    @property
    def count(self) -> int: ...
    def entry(self, slot: int) -> tuple[int, int]: ...
    def data(self, start: int = 0) -> bytes:
        """Return the entries from slot ``start`` on, in the file's format."""

@final
class TimeIndex:
    """Entries (timestamp, offset) of one segment, in Kafka's 12-byte form, in memory."""

    def __new__(cls, base_offset: int, data: Buffer = b"") -> TimeIndex:
        """Copy the complete entries of ``data``. Raises CorruptError if a timestamp does not rise or an offset
        falls."""
    def append(self, timestamp: int, offset: int) -> bool:
        """Add an entry. Return False and add nothing if ``timestamp`` is not above the last one."""
    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return the greatest entry whose timestamp is not above ``timestamp``, or (-1, base offset)."""
    def truncate(self, offset: int) -> None: ...
    @property
    def last(self) -> tuple[int, int]: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of memory: the entries, and the notes of each :class:`TimeSearch` about them."""
    def entry(self, slot: int) -> tuple[int, int]: ...
    def data(self, start: int = 0) -> bytes: ...

def find_offset(data: Buffer, offset: int) -> tuple[int, int]:
    """Return (position in ``data``, size) of the first batch whose last offset is at least ``offset``.

    If there is none, return (-1, the position to continue at), which is beyond the end of ``data`` if the last batch
    is cut off. It reads only headers: the batch found may be cut off. Raises CorruptError for a bad header before it.
    """

def find_timestamp(data: Buffer, timestamp: int) -> tuple[int, int]:
    """Do as :func:`find_offset` for the first batch whose max timestamp is at least ``timestamp``."""

@final
class TimeSearch:
    """The usual search by time, in one segment without gaps. It says which bytes it needs next, is fed them, and
    ends with the record or gives up.

    It begins at a batch that the index names exactly, and each batch must continue the offsets of the one before.
    Each irregularity, such as damage, ends it without an answer, and so does a compressed batch that may hold the
    record.
    """

    def __new__(
        cls, times: TimeIndex, offsets: OffsetIndex, timestamp: int, start_offset: int, end_offset: int, size: int
    ) -> TimeSearch:
        """Search the first record in [``start_offset``, ``end_offset``) with a timestamp of at least ``timestamp``
        (ms), in a segment of ``size`` bytes with these indexes.

        The search keeps a reference to ``times`` and notes in it which entries are right and the end positions of
        their batches, so that the next search need not check them. REQUIRES that neither index changes during the
        search.
        """
    @property
    def anchor(self) -> int:
        """An offset of the batch that the search begins at."""
    def expect(self, epoch: int, change: int) -> None:
        """Expect that the batches up to offset ``change`` have leader ``epoch``; -1: any epoch. A search without
        this call finds no record."""
    @property
    def position(self) -> int:
        """The position of the next read."""
    @property
    def wanted(self) -> int:
        """The number of bytes to read next; 0: the search is over."""
    def feed(self, data: Buffer) -> None:
        """Take the bytes that were read at :attr:`position`, which may be fewer than :attr:`wanted`. Releases the
        GIL above 5 KiB."""
    @property
    def answer(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the record, or None if only a thorough search can find it."""
    def run(self, read_at: Callable[[int, int], Buffer]) -> tuple[int, int] | None:
        """Feed the bytes of ``read_at(position, size)`` until the search is over, and return :attr:`answer`. An
        exception of ``read_at`` is passed on."""

def find_producers(data: Buffer, transactional: bool = False) -> tuple[list[int], int]:
    """Return the positions in ``data`` of the complete batches with a producer id, and the end of the complete
    batches, in bytes.

    With ``transactional``: only of batches of a transaction, including its markers. A bad header ends the walk, but
    is a CorruptError in the first batch. Releases the GIL.
    """

def whole_batches(data: Buffer, end_offset: int, size_max: int) -> int:
    """Return the size of the leading complete batches whose last offset is below ``end_offset``: as many as fit
    ``size_max``, but at least the first complete one.

    A bad header ends the walk, but is a CorruptError in the first batch.
    """
