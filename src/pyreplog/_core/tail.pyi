"""The end of a log: what an append looks at and changes, the memory of what was appended last, and what a read
hands out."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

from typing_extensions import Buffer, disjoint_base

ENTRIES_PENDING_MAX: int
"""Index entries that are made before they are written to their files."""
UNKNOWN_POSITION: int
"""For :attr:`SegmentEnd.first_producer`: nobody knows."""
TAIL_COUNT: int
"""Entries that a :class:`TailCache` keeps at most: small ones cost more to keep than their bytes."""

class _Generational(Protocol):
    """What a slice was cut from."""

    generation: int

@final
class LogSlice:
    """Whole batches from ``offset`` on, ``size`` bytes. Immutable; any thread.

    The bytes are those that were in the log when it was read. Once the log was truncated they may no longer be:
    then :meth:`parts` raises.
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
class TailBudget:
    """The memory that several tails may take together. Where it is full, those that were not appended to for
    longest are emptied. Belongs to the owner of their logs."""

    def __init__(self, size_max: int) -> None: ...
    @property
    def size_max(self) -> int:
        """As it was made."""
    @property
    def size(self) -> int:
        """Bytes of all that is kept, and of what it takes to keep it."""
    def __len__(self) -> int:
        """Tails that keep anything."""

@final
class TailCache:
    """The newest appended buffers, by offset, up to ``size_max`` bytes and :data:`TAIL_COUNT`. Belongs to the log's
    owner.

    ``room``: what it shares with others; each may take as much as the others leave.
    """

    def __init__(self, size_max: int, room: TailBudget | None = None) -> None: ...
    @property
    def size_max(self) -> int:
        """As it was made."""
    @property
    def size(self) -> int:
        """Bytes kept."""
    def __len__(self) -> int:
        """Entries kept."""
    def append(self, start: int, end: int, data: Buffer, size: int) -> None:
        """Keep ``data`` (whole batches of ``size`` bytes, never changed again) as the offsets from ``start`` to
        ``end``."""
    def read(self, offset: int, wanted_max: int, end_offset: int) -> tuple[list[memoryview], int] | None:
        """Parts and their bytes from the batch that holds ``offset`` on, below ``end_offset``; None where it is not
        here."""
    def clear(self) -> None:
        """Forget everything."""

@final
class SentBatch:
    """One batch of a producer. ``offset_delta``: last minus first offset. ``timestamp``: its greatest, in ms.
    Immutable."""

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None: ...
    @property
    def last_sequence(self) -> int:
        """Sequence of its last record."""
    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
    @property
    def offset_delta(self) -> int:
        """Last minus first offset."""
    @property
    def timestamp(self) -> int:
        """The greatest of its records, in ms."""
    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
    @property
    def base_offset(self) -> int:
        """Offset of its first record."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ProducerEntry:
    """What a log knows of one producer. -1 stands for none in every field. Belongs to the log's owner."""

    epoch: int
    coordinator_epoch: int
    last_timestamp: int
    """Of the newest batch or marker, in ms."""
    transaction_start: int
    """First offset of the open transaction."""
    seen_ms: int
    """When it was last heard of, by the wall clock; -1: since the table was last looked through."""

    def __init__(
        self,
        producer_id: int,
        epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        transaction_start: int = -1,
    ) -> None: ...
    @property
    def producer_id(self) -> int:
        """Its id."""
    @property
    def batches(self) -> list[SentBatch]:
        """The newest last; at most five (a client has no more than that under way), all of this epoch."""
    @property
    def last_sequence(self) -> int:
        """Of the newest batch in this epoch."""
    def begin_epoch(self, epoch: int) -> None:
        """From now on it sends in ``epoch``: batches of another one are forgotten."""
    def sent(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """A batch of it is in the log."""

class _Producers(Protocol):
    """Of a log. Its ``table`` has ``entries`` by producer id, and the ``end_offset`` of what it knows."""

    def note_bytes(self, batch: Buffer, base_offset: int, segment: Any) -> None: ...

@disjoint_base
class SegmentEnd:
    """Where the segment that is written ends, and what decides when it is full.

    What a :class:`~pyreplog.log.segment.Segment` is besides is in Python. It has ``make_ready(size)``, called
    before a write where anything is to be done first (the file is not open, the indexes have much to be written,
    the reserved room ends, a refused write left something), ``take_back(error)``, called where a write was refused,
    and ``write_in_pieces(parts)``, which writes what has ``_pieces_from`` bytes or more.

    Belongs to the log's owner. Sizes in bytes, timestamps in ms.
    """

    size: int
    """Of what counts in the log file."""
    next_offset: int
    """One past the last offset; -1 where nobody has looked yet."""
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    """Greatest timestamp of the first batch; -1 while there is none, or it has none."""
    first_producer: int
    """Where the first batch lies that bears a producer id; -1 where there is none, :data:`UNKNOWN_POSITION` where
    nobody knows."""
    bytes_since_entry: int
    entries_left: int
    """Index entries that still have room. Set by whoever writes the log; :meth:`note` counts them down."""
    size_max: int
    """With one byte more the segment is full."""
    roll_offset: int
    """An offset that a batch must not end behind."""
    roll_timestamp: int
    """For a batch that is newer the caller must look whether the segment is too old."""
    unheard: bool
    """Whether a batch was counted last that bears a producer id, and what knows the producers was not told of it in
    full."""
    _interval: int
    _reserved: int
    _pieces_from: int
    _pending: int
    _torn: bool
    _file: Any
    _indexes: Any

    def has_room(self, size: int, next_offset: int, max_timestamp: int) -> bool:
        """Whether a batch that ends before ``next_offset`` fits. False may be too careful about its timestamp."""
    def write(self, parts: Sequence[Buffer], size: int) -> None:
        """Write whole batches behind the last one; :meth:`note` then counts each. REQUIRES that the indexes were
        loaded."""
    def note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Count a batch that :meth:`write` wrote: index entries by Kafka's rule (one as soon as more than
        ``index.interval.bytes`` lie behind the one before; without memory for it the next batch may have it),
        timestamps, size and end."""
    tried: int
    """Batches that the latest :meth:`append_own` set out to write."""

    def append_next(
        self, batches: Sequence[Buffer], end_offset: int, leader_epoch: int, tail: TailCache, producers: _Producers
    ) -> int:
        """What a follower is given nearly always: whole batches, one in each buffer, the very next ones, of the
        epoch that goes on, into this segment, with one write. Their bytes; 0: they are something else, and nothing
        was done.

        Raises :class:`CorruptError` where a header or checksum is wrong, :class:`StorageError` where they could not
        be written. After any other error (no memory) those are in the log by which ``size`` has grown.
        """
    def append_own(
        self,
        batches: Sequence[tuple[Buffer, bool]],
        end_offset: int,
        leader_epoch: int,
        size_max: int,
        tail: TailCache,
        producers: _Producers,
        is_valid: Callable[[Buffer], bool],
    ) -> list[tuple[int, int, int, int, int, bool]]:
        """What a leader is given: of ``batches``, each with whether our own encoder made it or ``is_valid`` is to
        be asked, those from the first on that can be appended as they are, given offsets and epoch in place, and
        appended as :meth:`append_next` does. Where they went, in the order of :class:`~pyreplog.log.Appended`.

        Empty (the first is larger than ``size_max``, read-only, not the very next of its producer, has no room
        here): nothing was done. Where the write was refused they are as they came.
        """
