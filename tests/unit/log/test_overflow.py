"""Segments whose offsets reach further than an index entry can say, as brokers before KAFKA-5413 left them: read
whole, and split."""

from __future__ import annotations

import errno
import os
from functools import partial
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, CorruptLogError, StorageError
from pyreplog.log import Log, LogReader, RecoveryContext, open_readers
from pyreplog.log.folder import apply_plan, plan_folder
from pyreplog.log.layout import TORN_PREFIX
from pyreplog.log.overflow import find_parts, split_segment
from pyreplog.log.transaction_index import AbortedRange, format_aborted, parse_aborted
from pyreplog.ports import Disk
from pyreplog.record import records_of
from pyreplog.repair import apply_repair, plan_repair
from pyreplog.runtime import open_log
from pyreplog.testing.crash import crash_points, error_points
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import MUTATING
from pyreplog.values import TopicPartition
from pyreplog.verify import CheckContext, Level, Report, check_partition
from tests.oracle.legacy import Old, message, wrapper
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch, contents, raw, sync

T: Final = "old-0"
LOG: Final = f"{T}/{0:020d}.log"
FAR: Final = 2**31 + 50
FARTHER: Final = 2**33 + 7
OFFSETS: Final = (0, 2, FAR, FAR + 2, FAR + 2**31 - 2, FARTHER)
FIRST_BOOT: Final = SimDisk().boot_id("")
SEED: Final = int(os.environ.get("REPLOG_CRASH_SEED", "5"))
REPLAY: Final = ".venv/bin/python -m pytest tests/unit/log/test_overflow.py"


def stretched() -> list[bytes]:
    """Batches of one file that fit three segments at least: two in the first, three in the second, one in the
    third."""
    return [
        bytes(batch(2, base_offset=at, leader_epoch=0, timestamp=1000 + 10 * n, tag=b"%d:" % at))
        for n, at in enumerate(OFFSETS)
    ]


THREE: Final = {0: b"".join(stretched()[:2]), FAR: b"".join(stretched()[2:5]), FARTHER: stretched()[5]}
"""What it is split into: base offset and content of each segment."""


def put(place: Place, batches: list[bytes]) -> None:
    """The folder of a broker, with one segment of them."""
    place.disk.make_directory(place.of(T))
    place.write(LOG, b"".join(batches))


def opened(
    disk: Disk, directory: str, durability: str = "sync", recovery_point: int = 0, high_watermark: int = 0
) -> Log:
    """The folder opened for writing, as its only replica."""
    same_boot = not isinstance(disk, SimDisk) or disk.boot_id("") == FIRST_BOOT
    config = LogConfig(durability=durability)  # type: ignore[arg-type]
    origin = RecoveryContext(
        clean=False, same_boot=same_boot, recovery_point=recovery_point, high_watermark=high_watermark
    )
    return Log.open(disk, directory, TopicPartition("old", 0), config, CLOCK, None, origin)


def reader_of(place: Place) -> LogReader:
    """The partition, for who only reads."""
    return open_readers(place.disk, place.path)[TopicPartition("old", 0)]


def bytes_of(reader: LogReader) -> bytes:
    """All that it shows."""
    return b"".join(bytes(one.data) for one in reader.batches(reader.start_offset, reader.end_offset))


def segments(place: Place) -> dict[int, bytes]:
    """Base offset and content of each log file."""
    names = [name for name in place.disk.list(place.of(T)) if name.endswith(".log")]
    return {int(name[:-4]): place.read(f"{T}/{name}") for name in names}


def leftovers(place: Place) -> list[str]:
    """Files that a finished split does not leave, and what was cut."""
    names = place.disk.list(place.of(T))
    return [name for name in names if name.endswith((".cleaned", ".swap", ".deleted")) or name.startswith(TORN_PREFIX)]


def test_it_is_split_when_opened_for_writing(place: Place) -> None:
    """A new segment begins at each batch that no longer fits; every byte is there, nothing is cut, and the log goes
    on."""
    batches = stretched()
    put(place, batches)
    log = opened(place.disk, place.of(T))
    assert raw(log) == b"".join(batches)
    assert (log.start_offset, log.end_offset) == (0, FARTHER + 2)
    assert segments(place) == THREE
    assert not leftovers(place)
    assert log.recovery.torn_size == 0
    assert any("2147483647" in note for note in log.recovery.notes), log.recovery.notes
    assert [contents(log, at, log.end_offset)[0].offset for at in (0, 3, 4, FAR, FAR + 3, FARTHER + 1)] == [
        0,
        3,
        FAR,
        FAR,
        FAR + 3,
        FARTHER + 1,
    ]
    log.become_leader(1)
    assert log.append_as_leader(batch(1), 1).base_offset == FARTHER + 2
    sync(place.disk, log)
    log.close(clean=True)
    again = opened(place.disk, place.of(T))
    assert raw(again)[: len(b"".join(batches))] == b"".join(batches)
    again.close(clean=True)
    book = Report()
    check_partition(place.disk, place.of(T), "old", 0, CheckContext(), book)
    assert book.worst is Level.NOTE, book.findings


@pytest.mark.parametrize("recovery_point", [0, FARTHER + 2])
def test_the_first_batch_may_be_too_far_already(place: Place, recovery_point: int) -> None:
    """Of compacted segments the first may have become empty. What is made of it then has a first part without any
    batch."""
    batches = [bytes(batch(2, base_offset=at, leader_epoch=0, tag=b"%d:" % at)) for at in (FAR, FAR + 2, FARTHER)]
    put(place, batches)
    for _ in range(2):
        log = opened(place.disk, place.of(T), recovery_point=recovery_point)
        assert raw(log) == b"".join(batches)
        assert (log.end_offset, log.recovery.torn_size, leftovers(place)) == (FARTHER + 2, 0, [])
        log.close(clean=True)
    book = Report()
    check_partition(place.disk, place.of(T), "old", 0, CheckContext(), book)
    assert (book.worst, book.batch_count) == (Level.NOTE, 3), book.findings


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_was_split_survives_a_kill(place: Place, durability: str) -> None:
    """Nobody called it synced before; it is all the same, with the gaps between its segments."""
    put(place, stretched())
    opened(place.disk, place.of(T), durability)  # and never closed
    log = opened(place.disk, place.of(T), durability)
    assert raw(log) == b"".join(stretched())
    log.close(clean=True)


def test_readers_see_all_of_it(place: Place) -> None:
    """Without a writer nothing is changed, and everything is there: by offset, by time, in pieces, and after
    another look."""
    batches = stretched()
    put(place, batches)
    before = {name: place.read(f"{T}/{name}") for name in place.disk.list(place.of(T))}
    reader = reader_of(place)
    for _ in range(2):
        assert (reader.start_offset, reader.end_offset, reader.unreadable_size) == (0, FARTHER + 2, 0)
        assert bytes_of(reader) == b"".join(batches)
        for at, found in ((1, 0), (3, 2), (4, FAR), (FAR + 1, FAR), (FAR + 4, FAR + 2**31 - 2), (FARTHER, FARTHER)):
            assert int.from_bytes(reader.read(at, 1)[:8], "big") == found
        assert reader.find_timestamp(1011) == (3, 1011)
        assert reader.find_timestamp(1041) == (FAR + 2**31 - 1, 1041)
        assert reader.find_timestamp(1050) == (FARTHER, 1050)
        assert reader.split_points(0, reader.end_offset, 1)[-1] == FARTHER + 2
        assert sum(size for _, size in reader.segments()) == len(b"".join(batches))
        reader.release()
        reader.refresh()
    reader.close()
    assert {name: place.read(f"{T}/{name}") for name in place.disk.list(place.of(T))} == before


def test_a_checkpoint_is_reached(place: Place) -> None:
    """With a watermark and a recovery point at the end, readers do not end before, and a writer does not call it
    rot."""
    batches = stretched()
    put(place, batches)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        place.write(name, f"0\n1\nold 0 {FARTHER + 2}\n".encode())
    reader = reader_of(place)
    assert bytes_of(reader) == b"".join(batches)
    reader.close()
    log = opened(place.disk, place.of(T), recovery_point=FARTHER + 2)
    assert raw(log) == b"".join(batches)
    log.close(clean=True)


def test_in_the_middle_and_with_stale_indexes(place: Place) -> None:
    """A segment that is not the last, with indexes that hold what fitted, and the next one behind it."""
    batches = stretched()
    put(place, batches[:4])
    place.write(f"{T}/{0:020d}.index", (3).to_bytes(4, "big") + len(batches[0]).to_bytes(4, "big"))
    place.write(f"{T}/{0:020d}.timeindex", (1011).to_bytes(8, "big") + (3).to_bytes(4, "big"))
    place.write(f"{T}/{FAR + 4:020d}.log", b"".join(batches[4:5]))
    reader = reader_of(place)
    assert bytes_of(reader) == b"".join(batches[:5])
    reader.close()
    log = opened(place.disk, place.of(T))
    assert raw(log) == b"".join(batches[:5])
    assert list(segments(place)) == [0, FAR, FAR + 4]
    log.close(clean=True)


def test_a_torn_tail_behind_it_is_cut_alone(place: Place) -> None:
    """What is torn behind the last whole batch is kept beside the log; all before it stays."""
    batches = stretched()
    put(place, [*batches, batches[0][:40]])
    reader = reader_of(place)
    assert (bytes_of(reader), reader.unreadable_size) == (b"".join(batches), 40)
    reader.close()
    log = opened(place.disk, place.of(T))
    assert raw(log) == b"".join(batches)
    assert log.recovery.torn_size == 40
    log.close(clean=True)


def test_damage_in_a_later_part_is_damage(place: Place) -> None:
    """A flipped bit behind the first overflow, below a watermark: readers get what lies before it, then the error
    says where."""
    batches = stretched()
    batches[3] = batches[3][:70] + bytes([batches[3][70] ^ 1]) + batches[3][71:]
    put(place, batches)
    place.write("replication-offset-checkpoint", f"0\n1\nold 0 {FARTHER + 2}\n".encode())
    reader = reader_of(place)
    assert bytes(reader.read(FAR, 1)) == batches[2]
    with pytest.raises(CorruptLogError) as caught:
        reader.read(FAR + 2, 1)
    assert caught.value.start == FAR + 2
    reader.close()
    with pytest.raises(CorruptLogError) as caught:
        opened(place.disk, place.of(T), recovery_point=FARTHER + 2)
    assert (caught.value.start, caught.value.end) == (FAR + 2, FAR + 2**31 - 2)


def test_an_offset_that_later_ones_contradict_is_none(place: Place) -> None:
    """The checksum does not cover the offset: one high bit flipped is damage, not an overflow, and nothing is split
    for it."""
    batches = [bytes(batch(2, base_offset=at, leader_epoch=0)) for at in (0, 2, 4, 6)]
    batches[1] = (2 | 1 << 40).to_bytes(8, "big") + batches[1][8:]
    put(place, batches)
    place.write("replication-offset-checkpoint", b"0\n1\nold 0 8\n")
    reader = reader_of(place)
    assert (reader.end_offset, reader.unreadable_size) == (8, len(b"".join(batches[1:])))
    with pytest.raises(CorruptLogError):  # whole batches lie behind it, so it is no torn tail
        list(reader.batches(2, 8))
    reader.close()
    with pytest.raises(CorruptLogError):
        opened(place.disk, place.of(T), recovery_point=8)
    assert list(segments(place)) == [0]


def test_a_mark_says_that_there_is_none(place: Place) -> None:
    """In a log of ours, which never makes such a segment, an offset too far is damage as before."""
    put(place, [bytes(batch(2, base_offset=at, leader_epoch=0)) for at in (0, 2, 4)])
    log = opened(place.disk, place.of(T))
    log.close(clean=True)
    whole = place.read(LOG)
    at = len(batch(2))
    place.write(LOG, whole[: 2 * at] + (4 | 1 << 40).to_bytes(8, "big") + whole[2 * at + 8 :])
    with pytest.raises(CorruptLogError):
        opened(place.disk, place.of(T))


def test_messages_of_the_old_formats(place: Place) -> None:
    """They are what such brokers wrote: magic 1, compressed too, split where they no longer fit and at their first
    record."""
    parts = [message(1, 0, 1000, b"k0", b"a"), message(1, FAR, 1001, b"k1", b"b")]
    parts.append(wrapper(1, 1, [Old(FARTHER + n, 1002 + n, b"k%d" % n, b"c%d" % n) for n in range(3)]))
    put(place, parts)
    reader = reader_of(place)
    seen = [record.offset for one in reader.batches(0, reader.end_offset) for record in records_of(one)]
    assert seen == [0, FAR, FARTHER, FARTHER + 1, FARTHER + 2]
    reader.close()
    log = opened(place.disk, place.of(T))
    assert [one.offset for one in contents(log, 0, log.end_offset)] == seen
    assert segments(place) == {0: parts[0], FAR: parts[1], FARTHER: parts[2]}
    log.close(clean=True)


def test_what_goes_with_the_segment_goes_with_its_parts(place: Place) -> None:
    """Aborted transactions stay beside the batches of their markers, and the producers' snapshot where the segment
    begins; of a damaged index each part's says that it is."""
    batches = stretched()
    put(place, batches)
    entries = [
        AbortedRange(7, 0, 3, 4),
        AbortedRange(7, FAR, FAR + 3, FAR + 4),
        AbortedRange(7, FARTHER, FARTHER + 1, 0),
    ]
    index = f"{T}/{0:020d}.txnindex"
    place.write(index, format_aborted(entries))
    place.write(f"{T}/{0:020d}.snapshot", b"as it was")
    parts = find_parts(place.disk.open(place.of(LOG)), len(b"".join(batches)), 0, None)
    assert [(part.base_offset, part.end - part.start) for part in parts] == [
        (base, len(content)) for base, content in THREE.items()
    ]
    split_segment(place.disk, place.of(T), 0, parts)
    for base, entry in zip(THREE, entries, strict=True):
        path = f"{T}/{base:020d}.txnindex.swap"
        assert parse_aborted(place.read(path), base, path) == [entry]
    apply_plan(place.disk, place.of(T), plan_folder(place.disk, place.of(T), place.disk.list(place.of(T))))
    assert place.read(index) == format_aborted(entries[:1])
    assert place.read(f"{T}/{0:020d}.snapshot") == b"as it was"
    for base in (FAR, FARTHER):
        for suffix in ("log", "txnindex"):
            place.disk.remove(place.of(f"{T}/{base:020d}.{suffix}"))
    place.write(LOG, b"".join(batches))
    place.write(index, b"?" * 34)
    split_segment(place.disk, place.of(T), 0, parts)
    for base in THREE:
        path = f"{T}/{base:020d}.txnindex.swap"
        with pytest.raises(CorruptError):
            parse_aborted(place.read(path), base, path)


# -- wherever it ends --


def prepared(random: Random) -> SimDisk:
    """A disk with the folder on it, durable."""
    disk = SimDisk(random)
    place = Place(disk, "data")
    disk.make_directory("data")
    put(place, stretched())
    place.write(f"{T}/{0:020d}.index", bytes(8))
    place.write("recovery-point-offset-checkpoint", f"0\n1\nold 0 {FARTHER + 2}\n".encode())
    disk.write_back()
    return disk


def life(disk: SimDisk, facts: list[int], *, durability: str) -> None:
    """The folder is opened for writing, and a batch appended."""
    log = opened(disk, f"data/{T}", durability, high_watermark=FARTHER + 2)
    facts.append(log.end_offset)
    log.become_leader(1)
    log.append_as_leader(batch(1, tag=b"new"), 1)
    sync(disk, log)
    facts.append(log.end_offset)


def check(disk: SimDisk, facts: list[int], *, durability: str) -> None:
    """Readers see all of it before anybody repairs it, and the writer finds all of it; nothing is cut, and nothing
    lies about."""
    whole = b"".join(stretched())
    place = Place(disk, "data")
    reader = reader_of(place)
    seen = bytes_of(reader)
    assert seen[: len(whole)] == whole, "a reader misses something"
    reader.close()
    log = opened(disk, f"data/{T}", durability, high_watermark=FARTHER + 2)
    assert raw(log)[: len(whole)] == whole, "lost"
    assert log.end_offset >= max(facts, default=0), "what was synced is lost"
    assert list(segments(place))[:3] == [0, FAR, FARTHER]
    assert not [name for name in leftovers(place) if not name.startswith(TORN_PREFIX)]
    log.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_no_end_loses_any_of_it(durability: str) -> None:
    """Power loss or a kill at any call, and again while it is mended: the old segment or the new ones, whole."""
    report = crash_points(
        partial(life, durability=durability),
        partial(check, durability=durability),
        seed=SEED,
        damages=8,
        thorough=0.01,
        disk=prepared,
        replay=REPLAY,
    )
    assert report.states > 150


def test_power_loss_after_a_kill_takes_nothing_back() -> None:
    """A kill amid the last renaming leaves names that are seen and not yet durable. The old segment must not go
    before they are."""
    machine = prepared(Random(SEED))
    seen: list[SimDisk] = []
    machine.observer = lambda call: seen.append(machine.snapshot(call)) if call.kind == "sync_directory" else None
    source = machine.open(f"data/{LOG}")
    split_segment(machine, f"data/{T}", 0, find_parts(source, source.size(), 0, None))
    source.close()
    killed = seen[-1]
    assert sum(name.endswith(".swap") for name in killed.list(f"data/{T}")) == len(THREE)
    left: list[SimDisk] = []
    killed.observer = lambda call: (
        left.extend(killed.crash(Random(f"{call.number}:{n}")) for n in range(8)) if call.kind in MUTATING else None
    )
    apply_plan(killed, f"data/{T}", plan_folder(killed, f"data/{T}", killed.list(f"data/{T}")))
    assert len(left) > 40
    for disk in left:
        check(disk, [], durability="sync")


def test_no_refused_call_loses_any_of_it() -> None:
    """Whichever call the disk refuses: an error of this library, and everything is there afterwards."""
    report = error_points(
        partial(life, durability="sync"),
        partial(check, durability="sync"),
        seed=SEED,
        damages=1,
        disk=prepared,
        replay=REPLAY,
    )
    assert report.errors > 50


def test_a_full_disk_leaves_it_as_it_was() -> None:
    """Without room for the parts the log is not opened; with room, it is."""
    disk = SimDisk()
    disk.make_directory("data")
    place = Place(disk, "data")
    put(place, stretched())
    disk.fail("write", "*.cleaned", nth=3, error=errno.ENOSPC)
    with pytest.raises(StorageError):
        opened(place.disk, place.of(T))
    disk.clear_faults()
    reader = reader_of(place)
    assert bytes_of(reader) == b"".join(stretched())
    reader.close()
    log = opened(place.disk, place.of(T))
    assert raw(log) == b"".join(stretched())
    log.close(clean=True)


def test_scans_see_all_of_it(place: Place) -> None:
    """The embedded face, record by record and as Arrow."""
    put(place, stretched())
    offsets = [at for first in OFFSETS for at in (first, first + 1)]
    with open_log(place.path, "r", disk=place.disk) as log:
        assert [record.offset for record in log] == offsets
        assert pa.table(log.scan(columns=["offset"])).column("offset").to_pylist() == offsets


# -- for people --


def findings(place: Place) -> list[tuple[Level, int, str]]:
    """What verification says of the folder: level, byte, words."""
    book = Report()
    check_partition(place.disk, place.of(T), "old", 0, CheckContext(), book)
    return [(one.level, one.position, one.what) for one in book.findings]


def test_verification_says_what_it_is(place: Place) -> None:
    """One warning for the file, at the first byte of what does not fit; damage behind it is still found."""
    batches = stretched()
    put(place, batches)
    first = len(b"".join(batches[:2]))
    found = findings(place)
    assert [(level, position) for level, position, what in found if "2147483647" in what] == [(Level.WARNING, first)]
    assert not [what for level, _, what in found if level is Level.DAMAGE]
    place.write(LOG, b"".join([*batches[:3], batches[3][:70] + b"\xff" + batches[3][71:], *batches[4:]]))
    assert [position for level, position, _ in findings(place) if level is Level.DAMAGE] == [first + len(batches[2])]
    lie = (2 | 1 << 40).to_bytes(8, "big") + bytes(batch(2, base_offset=2, leader_epoch=0))[8:]
    place.write(LOG, b"".join([batches[0], lie, bytes(batch(2, base_offset=4, leader_epoch=0))]))
    assert [position for level, position, _ in findings(place) if level is Level.DAMAGE] == [len(batches[0])]


def test_repair_saves_all_of_it(place: Place) -> None:
    """Into a new log, whose segments fit."""
    put(place, stretched())
    apply_repair(
        place.disk,
        place.path,
        place.path + "-saved",
        plan_repair(place.disk, place.path),
        clock=CLOCK,
        random=Random(1),
    )
    (reader,) = open_readers(place.disk, place.path + "-saved").values()
    seen = [
        record.offset for one in reader.batches(reader.start_offset, reader.end_offset) for record in records_of(one)
    ]
    assert seen == [
        at for one in stretched() for at in (int.from_bytes(one[:8], "big"), int.from_bytes(one[:8], "big") + 1)
    ]
    reader.close()
