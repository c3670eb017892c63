"""The end of a log: the state that an append checks and changes, the cache of the newest batches, and the slices
that a read returns."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

from typing_extensions import Buffer, disjoint_base

ENTRIES_PENDING_MAX: int
"""Number of index entries that are made before they are written to their files."""
UNKNOWN_POSITION: int
"""Value of :attr:`SegmentEnd.first_producer` if the position is not known."""
TAIL_COUNT: int
"""Most entries of a :class:`TailCache`. The overhead of small ones exceeds their bytes."""

class _Generational(Protocol):
    """The log that a slice was read from."""

    generation: int

@final
class LogSlice:
    """Complete batches from ``offset`` on, ``size`` bytes in all. Immutable; any thread.

    The bytes are those of the log at the time of the read. After a truncation they may have left the log, so
    :meth:`parts` raises.
    """

    def __init__(self, log: _Generational, offset: int, parts: Sequence[memoryview], size: int) -> None: ...
    @property
    def offset(self) -> int:
        """The offset of the read."""
    @property
    def size(self) -> int:
        """The size in bytes."""
    @property
    def generation(self) -> int:
        """The generation of the log at the time of the read."""
    def parts(self) -> list[memoryview]:
        """Return the bytes in order; each part holds complete batches. The memory is shared: do not write into it.

        Raises :class:`OutcomeUnknownError` if the log has been truncated since: drop the slice and read again.
        """
    def __len__(self) -> int: ...

@final
class TailBudget:
    """A memory limit that several tails share. If it is exceeded, tails without recent appends are emptied. Belongs
    to the owner of their logs."""

    def __init__(self, size_max: int) -> None: ...
    @property
    def size_max(self) -> int:
        """The limit in bytes."""
    @property
    def size(self) -> int:
        """Bytes of all entries, including their overhead."""
    def __len__(self) -> int:
        """Return the number of tails with entries."""

@final
class TailCache:
    """The newest appended buffers by offset, at most ``size_max`` bytes and :data:`TAIL_COUNT` entries. Belongs to
    the log's owner.

    ``room`` is a budget that it shares with other tails.
    """

    def __init__(self, size_max: int, room: TailBudget | None = None) -> None: ...
    @property
    def size_max(self) -> int:
        """The limit in bytes."""
    @property
    def size(self) -> int:
        """Bytes of all entries."""
    def __len__(self) -> int:
        """Return the number of entries."""
    def append(self, start: int, end: int, data: Buffer, size: int) -> None:
        """Keep ``data`` (complete batches of ``size`` bytes, never changed again) as the offsets from ``start`` to
        ``end``."""
    def read(self, offset: int, wanted_max: int, end_offset: int) -> tuple[list[memoryview], int] | None:
        """Return parts and their size, from the batch that holds ``offset`` on, below ``end_offset``. Return None
        if that batch is not cached."""
    def clear(self) -> None:
        """Remove all entries."""

@final
class SentBatch:
    """One batch of a producer in the log. Immutable."""

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None: ...
    @property
    def last_sequence(self) -> int:
        """Sequence of the last record."""
    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
    @property
    def offset_delta(self) -> int:
        """Last minus first offset."""
    @property
    def timestamp(self) -> int:
        """Greatest timestamp of a record, in ms."""
    @property
    def first_sequence(self) -> int:
        """Sequence of the first record."""
    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ProducerEntry:
    """The state that a log keeps for one producer. -1 means none in each field. Belongs to the log's owner."""

    epoch: int
    coordinator_epoch: int
    last_timestamp: int
    """Timestamp of the newest batch or marker, in ms."""
    transaction_start: int
    """First offset of the open transaction."""
    seen_ms: int
    """Wall-clock time (ms) of the first check for expired producers after its last batch; -1: no check yet."""

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
        """The producer's id."""
    @property
    def batches(self) -> list[SentBatch]:
        """At most five batches (a client has no more in flight), all of this epoch, the newest last."""
    @property
    def last_sequence(self) -> int:
        """Last sequence of the newest batch in this epoch."""
    def begin_epoch(self, epoch: int) -> None:
        """Set the producer's epoch to ``epoch`` and forget the batches of another one."""
    def sent(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """Note a batch of the producer that is in the log."""

class _Producers(Protocol):
    """The producers of a log. Its ``table`` has ``entries`` by producer id, and the ``end_offset`` it covers."""

    def note_bytes(self, batch: Buffer, base_offset: int, segment: Any) -> None: ...

@disjoint_base
class SegmentEnd:
    """The end of the segment that is being written. It appends batches and knows when the segment is full.

    The rest of a segment is in Python: :class:`~pyreplog.log.segment_writer.SegmentWriter` has these
    methods, which an append calls if it needs them:

    * ``make_ready(size)`` before a write, if the file is not open, many index entries are unwritten,
      the reserved room ends, or a refused write left bytes behind;
    * ``write_in_pieces(parts)`` for a write of ``_pieces_from`` bytes or more;
    * ``take_back(error)`` after a write was refused;
    * ``is_too_old(max_timestamp)`` for a batch that is newer than ``roll_timestamp``.

    Belongs to the log's owner. Sizes in bytes, timestamps in ms.
    """

    size: int
    """Bytes of the log file that count."""
    next_offset: int
    """One past the last offset; -1 if it is not known yet."""
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    """Greatest timestamp of the first batch; -1 if there is no batch, or it has none."""
    first_producer: int
    """Position of the first batch with a producer id; -1 if there is none,
    :data:`UNKNOWN_POSITION` if it is not known."""
    bytes_since_entry: int
    index_interval: int
    entries_left: int
    """Index entries that still have room. The log's owner sets it; appends count it down."""
    size_max: int
    """With one byte more the segment is full."""
    roll_offset: int
    """The last offset of a batch must lie below it."""
    roll_timestamp: int
    """A newer batch may be too new for the segment: ``is_too_old`` decides."""
    producers_pending: bool
    """Whether the newest batches have producer ids and the table of producers lacks some of them."""
    batches_appended: int
    records_appended: int
    bytes_appended: int
    tried: int
    """Batches that the latest :meth:`append_own` or :meth:`commit` set out to write."""
    _reserved: int
    _pieces_from: int
    _pending: int
    _torn: bool
    _file: Any
    _indexes: Any

    def fits(self, size: int, count: int, last_offset: int, max_timestamp: int) -> bool:
        """Return whether ``count`` batches of ``size`` bytes in all belong into this segment.

        ``last_offset`` is that of the last of them. This is the only rule for a full segment; the
        appends below follow it too.
        """
    def write(self, parts: Sequence[Buffer], size: int) -> None:
        """Write whole batches behind the last one; :meth:`note` then counts each. REQUIRES that the indexes are
        loaded."""
    def note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Count a batch that :meth:`write` wrote: timestamps, size, end, and index entries.

        Kafka's rule: one entry as soon as more than ``index.interval.bytes`` follow the last one.
        Without memory for an entry the next batch may get it.
        """
    def append_next(
        self, batches: Sequence[Buffer], end_offset: int, leader_epoch: int, tail: TailCache, producers: _Producers
    ) -> int:
        """Append a follower's batches with one write, if they are of the usual kind; return their bytes.

        The usual kind: one whole batch in each buffer, the very next offsets, the epoch that goes on,
        no control batch, and all fit this segment. Otherwise return 0 and change nothing.

        Raises :class:`CorruptError` for a wrong header or checksum, and :class:`StorageError` if the
        write was refused. After any other error (no memory) the batches by which ``size`` has grown
        are in the log.
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
        """Append the first of a leader's ``batches`` with one write, as many as are of the usual kind.

        Each batch comes with whether our own encoder made it; otherwise ``is_valid`` is asked. The
        usual kind: writable, at most ``size_max`` bytes, the next one of its producer or without a
        producer id, and it fits this segment. Offsets and epoch are written into the batches.

        Returns where they went, in the order of :class:`~pyreplog.log.Appended`. If the first batch
        is of another kind, the list is empty and nothing has changed. If the write was refused, the
        batches are as they came.
        """
    def commit(
        self, parts: Sequence[Buffer], count: int, end_offset: int, tail: TailCache, producers: _Producers
    ) -> None:
        """Append ``count`` checked batches with one write. They follow one another in ``parts``.

        Their offsets and epochs are in place. ``end_offset`` is the log's end, at or below the first
        offset. :meth:`append_next` and :meth:`append_own` end in the same code.

        REQUIRES that they fit. Errors as of :meth:`append_next`.
        """
