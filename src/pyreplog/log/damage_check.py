"""Whether a partition's folder is damaged below the end that its mark vouches for, found without its writer, a lock or
a write.

The rules are those of :mod:`pyreplog.log.loader` after a restart of the machine: damage at or above the mark's synced
end is a torn tail, which opening truncates; damage below it is rot, which opening refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyreplog._core import SegmentScanner
from pyreplog.errors import CorruptError
from pyreplog.log.epochs import EpochCache, read_epochs
from pyreplog.log.identity import read_topic_id
from pyreplog.log.layout import LOG_SUFFIX, join, parse_base_offset, segment_name
from pyreplog.log.mark import MarkState, find_mark, read_mark
from pyreplog.log.scan import feed_segment
from pyreplog.ports import Disk
from pyreplog.values import NO_EPOCH

__all__ = ["VouchedEpochs", "find_damage"]


def find_damage(disk: Disk, directory: str, topic_id: str, partition: int) -> str | None:
    """Return the reason for which a log that pyreplog made cannot be opened; None if it can. Reads the whole log.

    Beside a live writer a damage may be reported that is none: ask again then. Raises :class:`StorageError`.
    """
    try:
        kept = read_topic_id(disk, directory)
    except CorruptError as error:
        return str(error)
    if kept not in (None, topic_id):
        return f"the folder is of topic id {kept}, not {topic_id}"
    found = find_mark(disk, directory, topic_id=topic_id, partition=partition)
    if found is None:
        return "the mark of the log is missing or damaged"
    state = found[0]
    bases = sorted(base for name in disk.list(directory) if (base := parse_base_offset(name)) is not None)
    while len(bases) > 1 and bases[1] <= state.start_offset:
        del bases[0]  # opening finishes their removal
    if not bases:
        return None if state.start_offset >= state.synced_end else "the files of the log are gone"
    if bases[0] > state.start_offset and state.start_offset < state.synced_end:
        return f"the beginning of the log is missing, offsets {state.start_offset} to {bases[0] - 1}"
    end = _sound_end(disk, directory, bases, state)
    if end < state.synced_end:
        return f"the log is sound up to offset {end}, and its mark vouches for all below {state.synced_end}"
    return None


class VouchedEpochs(NamedTuple):
    """The leader epochs of the batches below ``synced_end``. No checksum of a batch covers its epoch, and the mark has
    one of their history."""

    history: EpochCache | None
    synced_end: int

    @classmethod
    def read(cls, disk: Disk, directory: str) -> VouchedEpochs:
        """Read them for a reader without a lock."""
        state = read_mark(disk, directory)
        return cls(None, 0) if state is None else cls.of(disk, directory, state)

    @classmethod
    def of(cls, disk: Disk, directory: str, state: MarkState) -> VouchedEpochs:
        """Read those that the mark vouches for."""
        try:
            epochs = read_epochs(disk, directory)
        except CorruptError:
            epochs = None
        is_trusted = epochs is not None and epochs.checksum() == state.epochs_crc
        return cls(epochs if is_trusted else None, state.synced_end)

    def fits(self, epoch: int, offset: int) -> bool:
        """Return whether the batch at ``offset`` may have this epoch."""
        if self.history is None or offset >= self.synced_end:
            return True
        return self.history.epoch_for_offset(offset) in (epoch, NO_EPOCH)


def _sound_end(disk: Disk, directory: str, bases: Sequence[int], state: MarkState) -> int:
    """Return the offset below which the segments with these ``bases`` are sound and without a gap."""
    vouched = VouchedEpochs.of(disk, directory, state)
    end = bases[0]
    for base in bases:
        if base != end:
            return min(base, end)
        file = disk.open(join(directory, segment_name(base, LOG_SUFFIX)))
        try:
            size = file.size()
            scan = feed_segment(SegmentScanner(base, next_offset=base, dense=not state.may_have_gaps), file, size)
        finally:
            file.close()
        strange = next((offset for epoch, offset in scan.epochs if not vouched.fits(epoch, offset)), None)
        if strange is not None:
            return strange
        end = scan.next_offset if scan.batch_count else base
        if scan.position < size:
            break
    return end
