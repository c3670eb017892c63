"""Walking batches in a byte range, and the sparse indexes of a segment. No I/O."""

from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

@final
class SegmentScanner:
    """Walks the batches of one segment, chunk by chunk, and gathers its index entries and epochs on the way.

    The state after a chunk is that of ``position``: the first byte not yet taken. Batch rules: whole, magic 2,
    length, CRC (when ``check_crc``), base offset at least ``next_offset``, last offset within ``base_offset`` +
    2**31 - 1, leader epoch never falling.
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
        """``dense``: stops at a batch that does not begin where the one before it ends, the first at
        ``next_offset``."""
    def feed(self, data: Buffer) -> int:
        """Take whole batches from ``data``, which starts at ``position``; bytes taken. Stops at the first bad one
        (see ``status``) or at one that is not all there (``needed``). Releases the GIL."""
    @property
    def status(self) -> int:
        """0, or the kernel status of the bad batch at ``position``: ``raise_for_status`` gives its words."""
    @property
    def needed(self) -> int:
        """Bytes that the batch at ``position`` has in all where its length is known and more than was given, else
        0."""
    @property
    def gap(self) -> bool:
        """Whether a ``dense`` scan met a batch at ``position`` that does not begin at ``next_offset``: it was not
        looked at."""
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
        """Position of the first batch that bears a producer id; -1 where there is none."""
    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(leader epoch, base offset) where the epoch rises."""
    @property
    def bytes_since_entry(self) -> int: ...
    def offset_entries(self) -> bytes:
        """``.index`` content by the rule of one entry per batch that starts more than ``index_interval`` bytes
        after the last entry."""
    def time_entries(self) -> bytes:
        """``.timeindex`` content, with the final entry of a closed segment."""

@final
class OffsetIndex:
    """Entries (offset, position) of one segment, in Kafka's 8-byte form, in memory."""

    def __new__(cls, base_offset: int, data: Buffer = b"") -> OffsetIndex:
        """Takes a copy of ``data``'s whole entries. Raises CorruptError where offsets do not rise or positions
        fall."""
    def append(self, offset: int, position: int) -> None: ...
    def lookup(self, offset: int) -> tuple[int, int]:
        """Greatest entry not above ``offset``, else (base offset, 0)."""
    def truncate(self, offset: int) -> None:
        """Drop every entry at or above ``offset``."""
    @property
    def last(self) -> tuple[int, int]: ...
    @property
    def count(self) -> int: ...
    def entry(self, slot: int) -> tuple[int, int]: ...
    def data(self, start: int = 0) -> bytes:
        """The entries from slot ``start`` as they stand in the file."""

@final
class TimeIndex:
    """Entries (timestamp, offset) of one segment, in Kafka's 12-byte form, in memory."""

    def __new__(cls, base_offset: int, data: Buffer = b"") -> TimeIndex:
        """As :class:`OffsetIndex`; timestamps must rise, offsets not fall."""
    def append(self, timestamp: int, offset: int) -> bool:
        """False when ``timestamp`` is not above the last one: nothing is added."""
    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Greatest entry whose timestamp is not above, else (-1, base offset)."""
    def truncate(self, offset: int) -> None: ...
    @property
    def last(self) -> tuple[int, int]: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes that it takes in memory: its entries, and what a :class:`TimeSearch` found out about them."""
    def entry(self, slot: int) -> tuple[int, int]: ...
    def data(self, start: int = 0) -> bytes: ...

def find_offset(data: Buffer, offset: int) -> tuple[int, int]:
    """(position in ``data``, size) of the first batch whose last offset is at least ``offset``, else (-1, where to
    go on): bytes from the start of ``data``, beyond its end when the last batch reaches beyond. Headers only: the
    body of the batch found may be cut. Raises CorruptError at a bad header before it."""

def find_timestamp(data: Buffer, timestamp: int) -> tuple[int, int]:
    """As :func:`find_offset` for the first batch whose max timestamp is at least ``timestamp``."""

@final
class TimeSearch:
    """The usual search by time in one segment without gaps: says what to read next, is fed it, and ends with the
    record or gives up.

    It begins at a batch that the index names exactly, and each batch must begin where the one before it ends.
    Whatever is out of the ordinary, damage too, ends it without an answer. Compressed batches are not looked into.
    """

    def __new__(
        cls, times: TimeIndex, offsets: OffsetIndex, timestamp: int, start_offset: int, end_offset: int, size: int
    ) -> TimeSearch:
        """For the first record in the half-open range with a timestamp of at least ``timestamp`` (ms), in a segment
        of ``size`` bytes with these indexes. ``times`` is kept until the search is gone, and notes which of its
        entries were found right and where their batches end, so that the next search need not look. REQUIRES that
        neither index is changed meanwhile."""
    @property
    def anchor(self) -> int:
        """An offset of the batch that the search begins with."""
    def expect(self, epoch: int, change: int) -> None:
        """The batches up to offset ``change`` have leader ``epoch``; -1: any. Without this nothing is found."""
    @property
    def position(self) -> int:
        """Where to read next."""
    @property
    def wanted(self) -> int:
        """How many bytes; 0: it is over."""
    def feed(self, data: Buffer) -> None:
        """Take what was read at :attr:`position`, which may be less than was wanted. Releases the GIL above 5
        KiB."""
    @property
    def answer(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the record, or None where only a thorough search can say."""
    def run(self, read_at: Callable[[int, int], Buffer]) -> tuple[int, int] | None:
        """All of it: feeds what ``read_at(position, size)`` gives until nothing is wanted, and returns
        :attr:`answer`. What ``read_at`` raises goes through."""

def find_producers(data: Buffer, transactional: bool = False) -> tuple[list[int], int]:
    """Positions in ``data`` of the whole batches that bear a producer id (with ``transactional``: that belong to a
    transaction, its markers among them), and how far whole batches reach, in bytes. A bad header ends the walk;
    CorruptError where the first batch has it. Releases the GIL."""

def whole_batches(data: Buffer, end_offset: int, size_max: int) -> int:
    """Bytes of the leading whole batches whose last offset is below ``end_offset``, as many as fit ``size_max`` but
    at least one where one is whole. A bad header ends the walk; CorruptError where the first batch has it."""
