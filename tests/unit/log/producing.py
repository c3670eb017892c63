"""What producers and transactions write, for the tests of whoever has to tell it apart."""

from __future__ import annotations

import struct

from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import CorruptLogError
from pyreplog.log import CommittedSource, Log
from pyreplog.record import BatchBuilder, records_of, split
from tests.unit.log.support import batch


def produced(
    sequence: int,
    count: int = 1,
    *,
    producer: int = 7,
    epoch: int = 0,
    transactional: bool = False,
    base: int = 0,
    leader: int = -1,
) -> memoryview:
    """A batch of ``count`` records of a producer."""
    builder = BatchBuilder()
    for number in range(count):
        assert builder.append(b"%d-%d-%d" % (producer, epoch, sequence + number), b"k", (), 1000 + number)
    return builder.finish(
        base_offset=base,
        leader_epoch=leader,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(
    *, commit: bool, producer: int = 7, epoch: int = 0, base: int = 0, leader: int = 0, coordinator: int = 3
) -> memoryview:
    """A transaction marker."""
    builder = BatchBuilder()
    assert builder.append(struct.pack(">hi", 0, coordinator), struct.pack(">hh", 0, int(commit)), (), 5000)
    return builder.finish(
        base_offset=base,
        leader_epoch=leader,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=-1,
        transactional=True,
        control=True,
    )


def send(log: Log, *arguments: int, **fields: int) -> tuple[int, int, bool]:
    """(base, last offset, duplicate) of an append as the leader."""
    done = log.append_as_leader(produced(*arguments, **fields), 0)  # type: ignore[arg-type]
    return done.base_offset, done.last_offset, done.duplicate


class Play:
    """Writes transactions to a log as a follower's leader would have, and remembers what became of each record."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.plain: list[int] = []
        self.aborted: list[int] = []
        self.committed: list[int] = []

    def data(self, producer: int, count: int = 2) -> None:
        """A batch within the producer's transaction."""
        base = self.log.end_offset
        sequence = self.sequences.get(producer, 0)
        self.log.append_as_follower(
            [produced(sequence, count, producer=producer, base=base, leader=0, transactional=True)]
        )
        self.sequences[producer] = sequence + count
        self.open.setdefault(producer, []).extend(range(base, base + count))

    def end(self, producer: int, *, commit: bool) -> None:
        """Its end."""
        self.log.append_as_follower([marker(commit=commit, producer=producer, base=self.log.end_offset)])
        (self.committed if commit else self.aborted).extend(self.open.pop(producer, []))

    def other(self) -> None:
        """A record without a producer."""
        self.plain.append(self.log.end_offset)
        self.log.append_as_follower([batch(base_offset=self.log.end_offset, leader_epoch=0)])

    @property
    def stable(self) -> int:
        """Where the oldest open transaction begins."""
        return min((offsets[0] for offsets in self.open.values()), default=self.log.end_offset)

    def visible(self, end: int) -> list[int]:
        """The offsets that a reader of committed records sees below ``end``."""
        return sorted(offset for offset in [*self.plain, *self.committed] if offset < end)


class Live:
    """A log as a source."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.start_offset = log.start_offset
        self.max_batch_bytes = MAX_BATCH_BYTES

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self._log.high_watermark

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Of the log."""
        return self._log.damage(offset, self._log.high_watermark, reason)

    @property
    def last_stable_offset(self) -> int:
        """Of the log."""
        return self._log.last_stable_offset

    def refresh(self) -> None:
        """Nothing to do."""

    def read(self, offset: int, size_max: int) -> memoryview:
        """Up to the high watermark."""
        return memoryview(b"".join(self._log.read(offset, size_max, self._log.high_watermark).parts()))

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Of the log."""
        return self._log.find_timestamp(timestamp, self._log.high_watermark)


def offsets_of(source: CommittedSource, size_max: int = 1 << 20) -> list[int]:
    """Every offset that a source gives, read in pieces of ``size_max`` bytes."""
    found: list[int] = []
    offset = source.start_offset
    while offset < source.end_offset:
        data = source.read(offset, size_max)
        if not data.nbytes:
            break
        for one in split(data):
            found += [record.offset for record in records_of(one, "", 0, offset)]
            offset = one.next_offset
    return found
