"""Logs that begin in Kafka's formats before 0.11: read as Kafka's consumer read them, taken over, gone on with, and
never rewritten."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest

import pyreplog
from pyreplog.errors import CorruptError, CorruptLogError
from pyreplog.log import LogReader, LogRoot, open_readers
from pyreplog.log.legacy import LegacyPrefix
from pyreplog.log.scan import scan_segment
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.record import Record, RecordBatch, records_of
from pyreplog.system.clock import SystemClock
from pyreplog.system.disk import SystemDisk
from pyreplog.values import TimestampType, TopicPartition
from tests.interop.golden.units import copy_of, hash_of, manifest, unit
from tests.interop.golden.vectors import A13_MAGIC_1
from tests.unit.log.support import batch, contents

UNIT = "old-format-2.8.2"
DISK = SystemDisk()


def partitions() -> list[Any]:
    """Those of the unit, as test parameters."""
    return [pytest.param(partition, id=partition["dir"]) for partition in manifest(UNIT)["partitions"]]


def reader_of(partition: dict[str, Any]) -> LogReader:
    """A reader of one partition."""
    ((_, reader),) = open_readers(DISK, str(unit(UNIT) / "data"), partition["topic"]).items()
    return reader


def read(reader: LogReader, start: int, end: int, size_max: int = 1 << 20) -> list[Record]:
    """The records of a range, read in pieces of about ``size_max`` bytes."""
    found: list[Record] = []
    while start < end:
        data = reader.read(start, size_max)
        if not data.nbytes:
            break
        position = 0
        while position < data.nbytes:
            one = RecordBatch(data, position)
            one.check_crc()
            found += records_of(one, reader.topic, reader.partition, start, end)
            position += one.size
            start = one.next_offset
    return found


@pytest.mark.parametrize("partition", partitions())
def test_a_partition_reads_as_listed(partition: dict[str, Any]) -> None:
    """Every partition reads as its manifest lists: records, timestamps and their type, offsets in both isolations;
    whole, from anywhere, in pieces of any size."""
    reader = reader_of(partition)
    start, end = reader.start_offset, reader.end_offset
    assert (start, end) == (partition["logStartOffset"], partition["highWatermark"])
    records = read(reader, start, end)
    assert hash_of(records) == (partition["records"], partition["recordsSha256"])
    assert reader.last_stable_offset == partition["lastStableOffset"]
    assert [record.leader_epoch for record in records] == [
        0 if record.offset >= first_v2(partition) else -1 for record in records
    ]
    for begin in range(start, end + 1):
        for size in (1, 300, 1 << 20):
            assert [record.offset for record in read(reader, begin, end, size)] == list(range(begin, end))
        if begin < end:
            assert [record.offset for record in read(reader, begin, begin + 1)] == [begin]
    committed = reader.isolated("read_committed")
    assert sum(one.record_count for one in committed.batches(start, end)) == partition["committedRecords"]
    for timestamp in sorted(
        {record.timestamp + more for record in records if record.timestamp >= 0 for more in (-1, 0, 1)}
    ):
        expected = next(
            ((record.offset, record.timestamp) for record in records if record.timestamp >= timestamp), None
        )
        assert reader.find_timestamp(timestamp) == expected, timestamp
    reader.close()


def first_v2(partition: dict[str, Any]) -> int:
    """The first offset in today's format."""
    if partition["topic"].startswith("magic2"):
        return 0
    return 40 if partition["topic"].startswith("magicmix") else 1 << 60


@pytest.mark.parametrize("partition", partitions())
def test_arrow_and_iterating(partition: dict[str, Any]) -> None:
    """``open_log`` iterates the same records, and a scan has them as columns; what has no timestamp is null and of
    type -1."""
    with pyreplog.open_log(unit(UNIT) / "data", "r", topic=partition["topic"]) as log:
        records = list(log)
        assert hash_of(records) == (partition["records"], partition["recordsSha256"])
        table = pyarrow.table(log.scan(["offset", "timestamp", "timestamp_type", "key", "value", "leader_epoch"]))
    assert table.column("offset").to_pylist() == [record.offset for record in records]
    assert table.column("value").to_pylist() == [record.value for record in records]
    assert table.column("key").to_pylist() == [record.key for record in records]
    assert table.column("timestamp_type").to_pylist() == [int(record.timestamp_type) for record in records]
    assert table.column("timestamp").cast(pyarrow.int64()).to_pylist() == [
        None if record.timestamp == -1 else record.timestamp for record in records
    ]
    if partition["topic"].startswith("magic0"):
        assert {record.timestamp_type for record in records} == {TimestampType.NONE}


def test_a_taken_over_folder_goes_on(tmp_path: Path) -> None:
    """A log is appended to, in today's format, behind the old messages, which stay byte for byte; read, killed and
    reopened, truncated."""
    folder = copy_of(UNIT, tmp_path / "data")
    before = {path.relative_to(folder): path.read_bytes() for path in folder.glob("magic*/*.log")}
    for attempt in range(3):
        root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(attempt))
        assert not root.damaged
        for partition in manifest(UNIT)["partitions"]:
            log = root.logs[TopicPartition(partition["topic"], 0)]
            end = partition["logEndOffset"] + 3 * attempt
            assert log.end_offset == end
            if attempt == 0:
                assert [list(entry) for entry in log.epochs.entries] == [
                    entry for entry in partition["leaderEpochs"] or [] if entry[1] < end
                ]
            log.set_high_watermark(end)
            log.become_leader(log.epochs.latest + 1)
            assert log.append_as_leader(batch(3), log.epochs.latest).base_offset == end
            found = contents(log, log.start_offset, log.end_offset)
            assert hash_of(found[: partition["records"]]) == (partition["records"], partition["recordsSha256"])
            assert [record.offset for record in found] == list(range(log.start_offset, end + 3))
        root.close(clean=attempt != 1)
    for path, content in before.items():
        assert (folder / path).read_bytes()[: len(content)] == content
    root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(9))
    for topic in ("magic0-none", "magic1-lz4", "magicmix-lz4"):
        log = root.logs[TopicPartition(topic, 0)]
        log.truncate_to(27)
        assert log.end_offset <= 27
        end = log.end_offset
        log.become_leader(log.epochs.latest + 1)
        log.append_as_leader(batch(2), log.epochs.latest)
        assert [record.offset for record in contents(log, 0, log.end_offset)] == list(range(end + 2))
    root.close()


def test_indexes_are_not_needed(tmp_path: Path) -> None:
    """Without any index file, and with another's, everything is found all the same."""
    folder = copy_of(UNIT, tmp_path / "data")
    for path in folder.glob("*/*index"):
        path.unlink()
    for key, reader in open_readers(DISK, str(folder)).items():
        if key.topic.startswith("magic"):
            assert [record.offset for record in read(reader, 0, 60, 1)] == list(range(60))
        reader.close()


def test_damage_is_seen(tmp_path: Path) -> None:
    """Every flipped byte in the old messages is noticed: nothing wrong is read, and what lies before it is."""
    source = unit(UNIT) / "data" / "magic1-none-0"
    good = [
        (record.offset, record.key, record.value, record.timestamp)
        for record in read(reader_of({"topic": "magic1-none"}), 0, 60)
    ]
    (folder := tmp_path / "magic1-none-0").mkdir()
    for path in source.iterdir():
        shutil.copy(path, folder / path.name)
    log = sorted(folder.glob("*.log"))[0]
    content = log.read_bytes()
    for position in range(0, len(content), 13):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        log.chmod(0o600)
        log.write_bytes(damaged)
        try:
            ((_, reader),) = open_readers(DISK, str(folder)).items()
            found = read(reader, reader.start_offset, reader.end_offset)
        except CorruptError:
            continue
        for record in found:
            # The offset is not covered by the checksum, as in Kafka; everything else is.
            assert (record.key, record.value, record.timestamp) in {fact[1:] for fact in good}
        reader.close()


@pytest.mark.parametrize("name", ["magic0-none", "magic1-none", "magic1-gzip"])
def test_damage_after_the_opening_is_seen(tmp_path: Path, name: str) -> None:
    """Whatever bit flips in a log that is open: a record is what it was, or the error names offsets with it among
    them. Behind the group of messages that is damaged it goes on, and who looks for a time is told, too."""
    partition = next(one for one in manifest(UNIT)["partitions"] if one["topic"] == name)
    whole = [(record.offset, record.value) for record in read(reader_of(partition), 0, 1 << 40)]
    end = whole[-1][0] + 1
    random = Random(name)
    seen = 0
    folder = copy_of(UNIT, tmp_path / "data")
    segment = min((folder / f"{name}-0").glob("*.log"))
    good = segment.read_bytes()
    prefix = LegacyPrefix(lambda: DISK.open(str(segment)), len(good), 0)
    for _ in range(40):
        segment.write_bytes(good)
        ((_, reader),) = open_readers(DISK, str(folder), name).items()
        assert read(reader, 0, 1, 1)
        data = bytearray(good)
        data[random.randrange(prefix.end)] ^= 1 << random.randrange(8)
        segment.write_bytes(data)
        got: list[tuple[int, bytes | None]] = []
        at = 0
        while at < end:
            try:
                found = [(record.offset, record.value) for record in read(reader, at, end, 300)]
            except CorruptError as error:
                seen += 1
                assert isinstance(error, CorruptLogError)
                assert at <= error.start < error.end
                got += [(record.offset, record.value) for record in read(reader, at, error.start)]
                got += [one for one in whole if error.start <= one[0] < error.end]  # which are not served
                at = error.end
                continue
            if not found:
                break
            got += [one for one in found if one[0] >= at]
            at = got[-1][0] + 1
        assert got == whole
        reader.close()
    assert seen > 20


def test_the_first_offset_of_a_segment_is_no_lower_than_its_base(tmp_path: Path) -> None:
    """No checksum covers an offset: the first message of a segment that claims one below it is damaged, not of
    another place."""
    good = bytearray(b"".join((1000 + number).to_bytes(8, "big") + A13_MAGIC_1[8:] for number in range(5)))
    path = tmp_path / "segment"
    path.write_bytes(good)
    prefix = LegacyPrefix(lambda: DISK.open(str(path)), len(good), 1000)
    assert prefix.next_offset == 1005
    path.write_bytes((1000 - 128).to_bytes(8, "big") + good[8:])
    with pytest.raises(CorruptLogError) as caught:
        prefix.locate(1000, 1 << 20, 1005)
    assert (caught.value.start, caught.value.end) == (1000, 1005)


def test_a_prefix_knows_its_end() -> None:
    """What is old ends where the first batch of today's format begins; a segment without any has none."""
    for topic, expected in (("magicmix-none", 40), ("magic0-gzip", 60), ("magic2-none", None)):
        folder = unit(UNIT) / "data" / f"{topic}-0"
        segments = [
            SegmentReader(DISK, str(folder), int(path.stem), size=path.stat().st_size, index_interval=4096)
            for path in sorted(folder.glob("*.log"))
        ]
        prefixes = [segment.legacy for segment in segments]
        ends = [prefix.next_offset for prefix in prefixes if prefix is not None]
        assert (max(ends) if ends else None) == expected
        for segment, prefix in zip(segments, prefixes, strict=True):
            scan = scan_segment(segment.file, segment.size, segment.base_offset)
            assert scan.position == segment.size
            if isinstance(prefix, LegacyPrefix) and prefix.end < segment.size:
                assert bytes(segment.file.read_at(prefix.end + 16, 1)) == b"\x02"
            segment.release()


def test_an_absurd_length_costs_no_memory(tmp_path: Path) -> None:
    """A message that says it is as large as its file of 1 GiB (nearly all of it a hole) is not read into memory to
    find that it is none."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(bytes(8) + ((1 << 30) - 12).to_bytes(4, "big") + bytes(200))
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    segment = SegmentReader(DISK, str(tmp_path), 0, size=1 << 30, index_interval=4096)
    tracemalloc.start()
    assert segment.legacy is None
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    segment.release()


@pytest.mark.parametrize("name", ["magic0-none", "magic1-none", "magic1-lz4", "magicmix-none", "magicmix-lz4"])
def test_an_old_message_that_claims_a_later_offset_hides_none_behind_it(tmp_path: Path, name: str) -> None:
    """No checksum covers the offset of the last message before newer batches, or before another segment: what is
    missing is told."""
    folder = copy_of(UNIT, tmp_path / "data")
    segment = min((folder / f"{name}-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    position = last = 0
    while position < len(data) and data[position + 16] < 2:
        last, position = position, position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    data[last + 7] ^= 0x40
    segment.write_bytes(data)
    seen: list[int] = []
    ((_, reader),) = open_readers(DISK, str(folder), name).items()
    with pytest.raises(CorruptLogError) as caught:
        while found := read(reader, len(seen), min(len(seen) + 1, reader.end_offset)):
            seen += [record.offset for record in found]
    assert seen == list(range(caught.value.start))
    reader.close()


def test_an_old_message_out_of_order_is_not_said_to_lie_behind_newer_ones(tmp_path: Path) -> None:
    """Where all is of an old format, nothing newer is to blame for what cannot be read."""
    folder = copy_of(UNIT, tmp_path / "data")
    segment = max((folder / "magic1-lz4-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[12 + int.from_bytes(data[8:12], "big") + 7] ^= 8  # the second one
    segment.write_bytes(data)
    with pytest.raises(CorruptError, match="they do not rise"):
        open_readers(DISK, str(folder), "magic1-lz4")
