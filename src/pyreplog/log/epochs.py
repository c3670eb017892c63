"""The leader epoch history: which epoch begins at which offset. Replicas find with it where their logs diverge.

The rules are those of Kafka's ``LeaderEpochFileCache``. The file, ``leader-epoch-checkpoint``, is Kafka's: text
without a checksum. Recovery can rebuild it from the batches, so the log replaces it without waiting for the disk.
The durable mark holds the checksum of the expected content; if the two do not agree, recovery scans the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from pyreplog._core import crc32c
from pyreplog.errors import CorruptError, InternalError
from pyreplog.log.layout import EPOCHS_NAME, INT32_MAX, INT64_MAX, join, parent_of
from pyreplog.log.snapshot import format_entries, parse_entries, parse_number, read_whole, replace_file
from pyreplog.ports import Disk
from pyreplog.values import NO_EPOCH, NO_OFFSET, EpochEntry


class EpochCache:
    """A leader epoch history in memory: entries (epoch, start offset) that rise strictly in both. Only the log's
    owner may change it."""

    __slots__ = ("_epochs", "_starts", "current", "latest")

    def __init__(self, entries: Iterable[EpochEntry | tuple[int, int]] = ()) -> None:
        # Tuples, because most histories are empty or short, and a process may hold very many.
        self._epochs: tuple[int, ...] = ()
        self._starts: tuple[int, ...] = ()
        #: The newest epoch; -1 if there is none.
        self.latest = NO_EPOCH
        #: The newest epoch, or None if the disk refused a change half-way. The file must then be
        #: written before the next append, or the next opening would assign the batch to a wrong
        #: epoch.
        self.current: int | None = NO_EPOCH
        before = (-1, -1)
        kept = [*entries]
        for epoch, start in kept:
            if epoch <= before[0] or start <= before[1]:
                raise CorruptError(f"epoch {epoch} at offset {start} does not follow the entry before it")
            before = (epoch, start)
        self.restore(kept)

    @property
    def entries(self) -> list[EpochEntry]:
        """A copy of the history, oldest first."""
        return [EpochEntry(epoch, start) for epoch, start in zip(self._epochs, self._starts, strict=True)]

    def __len__(self) -> int:
        return len(self._epochs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochCache) and self._epochs == other._epochs and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def assign(self, epoch: int, offset: int) -> bool:
        """Let ``epoch`` begin at ``offset``, and return whether anything changed.

        Nothing changes if it is the latest epoch already and began no later. Otherwise every entry that is not older
        both in epoch and in offset is dropped first.
        """
        if epoch < 0 or offset < 0:
            raise InternalError(f"epoch {epoch} cannot begin at offset {offset}")
        if epoch == self.latest and offset >= self._starts[-1]:
            return False
        kept = len(self._epochs)
        while kept and (self._epochs[kept - 1] >= epoch or self._starts[kept - 1] >= offset):
            kept -= 1
        self._set((*self._epochs[:kept], epoch), (*self._starts[:kept], offset))
        return True

    def restore(self, entries: Sequence[EpochEntry | tuple[int, int]]) -> None:
        """Undo changes. REQUIRES that :attr:`entries` returned ``entries`` before them."""
        self._set(tuple([epoch for epoch, _ in entries]), tuple([start for _, start in entries]))

    def end_offset_for(self, epoch: int, end_offset: int) -> EpochEntry:
        """Return the largest epoch not above ``epoch`` and its end offset, with ``end_offset`` the log's end; (-1, -1)
        if the history does not tell."""
        if epoch == NO_EPOCH or not self._epochs:
            return EpochEntry(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochEntry(epoch, end_offset)
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return EpochEntry(NO_EPOCH, NO_OFFSET)
        if above == 0:
            return EpochEntry(epoch, self._starts[0])
        return EpochEntry(self._epochs[above - 1], self._starts[above])

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that ``offset`` belongs to, or -1 if the offset lies before the history."""
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else NO_EPOCH

    def span_of(self, offset: int) -> tuple[int, int]:
        """Return the epoch that ``offset`` belongs to (-1 before the history), and the start offset of the next epoch
        (2**63 - 1 if there is none)."""
        slot = bisect_right(self._starts, offset)
        return (
            self._epochs[slot - 1] if slot else NO_EPOCH,
            self._starts[slot] if slot < len(self._starts) else INT64_MAX,
        )

    def truncate_from_end(self, offset: int) -> bool:
        """Drop every entry that begins at or above ``offset``, and return whether anything changed."""
        if offset < 0:
            return False
        kept = bisect_left(self._starts, offset)
        if kept == len(self._starts):
            return False
        self._set(self._epochs[:kept], self._starts[:kept])
        return True

    def truncate_from_start(self, offset: int) -> bool:
        """Forget the history below ``offset``, and return whether anything changed. The epoch that covers ``offset``
        then begins there."""
        covering = bisect_right(self._starts, offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == offset):
            return False
        self._set(self._epochs[covering:], (offset, *self._starts[covering + 1 :]))
        return True

    def keep_those_of(self, start: int, end: int) -> bool:
        """Keep the history of the offsets from ``start`` to below ``end``, and return whether anything changed.

        If all records were deleted the last epoch stays and begins at the end, because the next batch must not have
        an older epoch than the deleted ones.
        """
        changed = self.truncate_from_start(start)
        return self.truncate_from_end(end + (0 < start == end)) or changed

    def clear(self) -> bool:
        """Forget the whole history, and return whether anything changed."""
        changed = bool(self._epochs)
        self._set((), ())
        return changed

    def agrees_up_to(self, other: EpochCache) -> int:
        """Return the offset below which this history and ``other`` agree, as far as both reach back; 2**63 - 1 if they
        never differ.

        If one history is a prefix of the other, they differ from the first entry that only the longer one has.
        Entries that one of them lost with deleted records make no difference. Logs with the same epoch at an offset
        have the same records up to it (Kafka's KIP-101).
        """
        if not self._starts or not other._starts:
            return min([*self._starts, *other._starts], default=INT64_MAX)
        offset = max(self._starts[0], other._starts[0])
        while offset < INT64_MAX:
            (mine, end), (theirs, other_end) = self.span_of(offset), other.span_of(offset)
            if mine != theirs:
                break
            offset = min(end, other_end)
        return offset

    def format(self) -> bytes:
        """Return the content of ``leader-epoch-checkpoint``."""
        return format_entries(zip(self._epochs, self._starts, strict=True))

    @classmethod
    def parse(cls, content: bytes, path: str = EPOCHS_NAME) -> EpochCache:
        """Return the history in the content of a ``leader-epoch-checkpoint``. Raises :class:`CorruptError`."""
        entries: list[tuple[int, int]] = []
        for epoch, start in parse_entries(content, 2, path):
            try:
                entries.append((parse_number(epoch, 0, INT32_MAX), parse_number(start, 0, INT64_MAX)))
            except ValueError as error:
                raise CorruptError(str(error), file=path) from None
        try:
            return cls(entries)
        except CorruptError as error:
            raise CorruptError(error.reason, file=path) from None

    def checksum(self) -> int:
        """Return the CRC-32C of :meth:`format`, for the durable mark."""
        return crc32c(self.format())

    def _set(self, epochs: tuple[int, ...], starts: tuple[int, ...]) -> None:
        # The tuples exist before the first assignment, so a lack of memory leaves the history
        # unchanged.
        self._epochs, self._starts = epochs, starts
        self.current = self.latest = epochs[-1] if epochs else NO_EPOCH


def read_epochs(disk: Disk, directory: str) -> EpochCache | None:
    """Return the history that is kept in ``directory``, or None if there is no file. Raises :class:`CorruptError` if
    the file is damaged."""
    path = join(directory, EPOCHS_NAME)
    content = read_whole(disk, path)
    return None if content is None else EpochCache.parse(content, path)


def write_epochs(disk: Disk, directory: str, epochs: EpochCache, *, durable: bool = False) -> None:
    """Replace the history that is kept in ``directory``. Without ``durable``, power loss may leave the old file or
    garbage."""
    replace_file(disk, join(directory, EPOCHS_NAME), epochs.format(), durable=durable, reserve_in=parent_of(directory))
