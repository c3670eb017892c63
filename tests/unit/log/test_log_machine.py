"""A log against an oracle: a list of batches. Whatever is done, in any order, on any disk, both say the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyreplog.config import LogConfig
from pyreplog.log import Log
from pyreplog.ports import Disk
from pyreplog.record import CODEC_NUMBERS, RecordBatch, split
from pyreplog.system.disk import SystemDisk
from pyreplog.testing.disk import SimDisk
from tests.unit.log.support import batch, contents, create, raw, reopen, sync

CODECS = st.sampled_from([CODEC_NUMBERS[name] for name in ("none", "none", "gzip", "snappy", "lz4", "zstd")])


class LogMachine(RuleBasedStateMachine):
    """``batches`` is what the log holds; ``synced`` below which offset it may not lose anything."""

    def make_disk(self) -> tuple[Disk, str]:
        """A disk, and an empty folder on it."""
        disk = SimDisk(Random(0))
        disk.make_directory("data")
        disk.sync_directory("/")
        return disk, "data"

    @initialize(
        segment_bytes=st.sampled_from([1024, 1500, 1 << 20]),
        interval=st.sampled_from([0, 60, 4096]),
        durability=st.sampled_from(["sync", "os"]),
        tail=st.sampled_from([0, 300, 1 << 20]),
    )
    def begin(self, segment_bytes: int, interval: int, durability: str, tail: int) -> None:
        self.disk, folder = self.make_disk()
        self.directory = f"{folder}/t-0"
        self.tail = tail
        config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, durability=durability)  # type: ignore[arg-type]
        self.log: Log = create(self.disk, self.directory, config)
        self.disk.sync_directory(folder)
        self.log.set_tail_cache_size(tail)
        self.batches: list[bytes] = []
        self.synced = 0
        self.count = 0

    def _add(self, data: bytes) -> None:
        self.batches.append(data)
        self.count += 1

    @rule(
        records=st.integers(1, 4),
        size=st.integers(10, 150),
        codec=CODECS,
        timestamp=st.integers(0, 50),
        trusted=st.booleans(),
    )
    def append_as_leader(self, records: int, size: int, codec: int, timestamp: int, trusted: bool) -> None:
        one = batch(records, size=size, codec=codec, timestamp=timestamp, tag=b"%d:" % self.count)
        end = self.log.end_offset
        appended = self.log.append_as_leader(
            one, self.log.epochs.latest if self.log.epochs.latest >= 0 else 0, trusted=trusted
        )
        assert (appended.base_offset, appended.last_offset) == (end, end + records - 1)
        self._add(bytes(one))

    @rule(
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=6),
        size=st.integers(10, 300),
        timestamp=st.integers(0, 50),
    )
    def append_many_as_leader(self, counts: list[int], size: int, timestamp: int) -> None:
        ones = [
            (batch(count, size=size, timestamp=timestamp, tag=b"%d-%d:" % (self.count, i)), False)
            for i, count in enumerate(counts)
        ]
        waiting = list(ones)
        while waiting:
            end = self.log.end_offset
            places = self.log.append_many_as_leader(waiting, max(self.log.epochs.latest, 0))
            for (one, _), place in zip(waiting, places, strict=False):
                header = RecordBatch(one)
                assert (place.base_offset, place.last_offset, place.size) == (end, header.last_offset, header.size)
                end = header.next_offset
            assert end == self.log.end_offset
            del waiting[: len(places)]
        for one, _ in ones:
            self._add(bytes(one))

    @rule(rise=st.integers(0, 2), counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), joined=st.booleans())
    def append_as_follower(self, rise: int, counts: list[int], joined: bool) -> None:
        parts = []
        end = self.log.end_offset
        epoch = max(self.log.epochs.latest, 0) + rise
        for number in counts:
            parts.append(
                bytes(batch(number, base_offset=end, leader_epoch=epoch, timestamp=20, tag=b"%d/" % self.count))
            )
            end += number
        assert self.log.append_as_follower([b"".join(parts)] if joined else parts) == end
        for part in parts:
            self._add(part)

    @rule(rise=st.integers(1, 3))
    def become_leader(self, rise: int) -> None:
        self.log.become_leader(max(self.log.epochs.latest, 0) + rise)

    @rule(share=st.floats(0, 1.1))
    def truncate(self, share: float) -> None:
        offset = int(self.log.end_offset * share)
        self.log.truncate_to(offset)
        while self.batches and RecordBatch(self.batches[-1]).last_offset >= offset:
            self.batches.pop()
        self.synced = min(self.synced, self.log.end_offset)

    @precondition(lambda self: self.log.end_offset > 0)
    @rule(share=st.floats(0, 1))
    def raise_high_watermark(self, share: float) -> None:
        self.log.advance_high_watermark(int(self.log.ack_offset * share))
        self.log.write_mark()

    @rule()
    def flush(self) -> None:
        sync(self.disk, self.log)
        assert self.log.flushed_offset == self.log.end_offset
        self.synced = self.log.end_offset

    @rule(clean=st.booleans())
    def close_and_reopen(self, clean: bool) -> None:
        before = (self.log.high_watermark, self.log.epochs.entries)
        self.log.write_mark()
        self.log.close(clean=clean)
        self.log = reopen(self.disk, self.directory, clean=clean)
        self.log.set_tail_cache_size(self.tail)
        assert self.log.recovery.torn_size == 0
        assert self.log.high_watermark == before[0]
        # An epoch that began at the end holds nothing, and is not remembered.
        assert self.log.epochs.entries == [entry for entry in before[1] if entry.start_offset < self.log.end_offset]
        if clean:
            self.synced = self.log.end_offset

    @invariant()
    def the_bytes_are_those_of_the_oracle(self) -> None:
        assert raw(self.log) == b"".join(self.batches)
        assert self.log.end_offset == (RecordBatch(self.batches[-1]).next_offset if self.batches else 0)
        assert 0 <= self.log.high_watermark <= self.log.end_offset
        assert self.synced <= self.log.end_offset

    @invariant()
    def the_epochs_are_those_of_the_batches(self) -> None:
        seen: list[tuple[int, int]] = []
        for one in map(RecordBatch, self.batches):
            if not seen or seen[-1][0] < one.leader_epoch:
                seen.append((one.leader_epoch, one.base_offset))
        entries = [tuple(entry) for entry in self.log.epochs.entries if entry.start_offset < self.log.end_offset]
        assert entries == seen

    @rule(share=st.floats(0, 1), size_max=st.integers(0, 2000))
    def read(self, share: float, size_max: int) -> None:
        offset = int(self.log.end_offset * share)
        expected = b""
        for one in map(RecordBatch, self.batches):
            if one.last_offset >= offset and size_max and (not expected or len(expected) + one.size <= size_max):
                expected += one.data
            elif expected:
                break
        data = b"".join(self.log.read(offset, size_max, self.log.end_offset).parts())
        # A read may end early, at a segment's end, but never in the wrong place.
        assert expected.startswith(data)
        assert bool(data) == bool(expected)

    @rule(timestamp=st.integers(-1, 60))
    def find_timestamp(self, timestamp: int) -> None:
        end = self.log.end_offset
        expected = next(
            ((record.offset, record.timestamp) for record in contents(self.log) if record.timestamp >= timestamp), None
        )
        assert self.log.find_timestamp(timestamp, end) == expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)


class RealLogMachine(LogMachine):
    """The same on this machine's disk."""

    def make_disk(self) -> tuple[Disk, str]:
        self.folder = Path(tempfile.mkdtemp())
        return SystemDisk(), str(self.folder)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


class CrashingLogMachine(LogMachine):
    """The same, and the power fails now and then: what was synced is there, and what is there is a beginning of
    what was written."""

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        assert isinstance(self.disk, SimDisk)
        self.disk = self.disk.crash(Random(seed))
        self.log = reopen(self.disk, self.directory, same_boot=False)
        self.log.set_tail_cache_size(self.tail)
        found = [bytes(one.data) for one in split(raw(self.log))]
        kept = len(found)
        assert self.log.end_offset >= self.synced
        if (
            self.log.end_offset <= (RecordBatch(self.batches[-1]).next_offset if self.batches else 0)
            and found == self.batches[:kept]
        ):
            self.batches = self.batches[:kept]
        else:
            # A truncation that was not synced may come undone, above what was synced.
            below = [one for one in self.batches if RecordBatch(one).next_offset <= self.synced]
            assert found[: len(below)] == below
            self.batches = found
        self.synced = min(self.log.flushed_offset, self.log.end_offset)


FEW = settings(max_examples=40, stateful_step_count=30)
TestLog = LogMachine.TestCase
TestLog.settings = FEW
TestRealLog = RealLogMachine.TestCase
TestRealLog.settings = settings(max_examples=12, stateful_step_count=25)
TestCrashingLog = CrashingLogMachine.TestCase
TestCrashingLog.settings = FEW
