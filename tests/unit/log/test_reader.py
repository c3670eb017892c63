"""Reading beside a live writer, after its end, from a cluster's folder, and from folders that lie."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import (
    ClosedError,
    CorruptError,
    CorruptLogError,
    OffsetOutOfRangeError,
    PyreplogError,
    StorageError,
    TopicRecreatedError,
)
from pyreplog.log import Log, LogReader, LogRoot, list_topics, mark, open_readers
from pyreplog.log import reader as reader_module
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import MARK_NAME
from pyreplog.log.mark import SLOT_POSITIONS, SLOT_SIZE, parse_slot
from pyreplog.ports import Disk, Stat
from pyreplog.record import records_of, split
from pyreplog.system.descriptor_cache import DESCRIPTORS
from pyreplog.system.disk import SystemDisk
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import Call
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch, create, raw, sync

KEY = TopicPartition("events", 0)
ID = "AbCdEfGhIjKlMnOpQrStUw"
CLUSTER = "ClUsTeRiDeNtItYoFtHeMQ"
SMALL = LogConfig(durability="os", segment_bytes=1200, index_interval_bytes=100)


def begin(place: Place, name: str = "root", config: LogConfig = SMALL, seed: int = 1) -> tuple[LogRoot, Log]:
    """A root of one cluster and, if ``name`` ends in a number, of that node."""
    root = open_root(place, name, seed)
    log = root.logs.get(KEY) or root.create_log("events", 0, ID, config)
    log.become_leader(log.epochs.latest + 1)
    return root, log


def open_root(place: Place, name: str, seed: int) -> LogRoot:
    node_id = int(name.rpartition("-")[2]) if "-" in name else None
    return LogRoot.open(
        place.disk, place.of(name), clock=CLOCK, random=Random(seed), node_id=node_id, cluster_id=CLUSTER
    )


def ended(place: Place, count: int, config: LogConfig, *, size: int = 50) -> None:
    """A root of one log of ``count`` batches of two records, synced and seen, that was closed."""
    root, log = begin(place, config=config)
    for _ in range(count):
        log.append_as_leader(batch(2, size=size), 0)
    sync(place.disk, log)
    log.advance_high_watermark(2 * count)
    root.close()


def only(found: dict[TopicPartition, LogReader]) -> LogReader:
    ((_, reader),) = found.items()
    return reader


def offsets(reader: LogReader, start: int | None = None, end: int | None = None) -> list[int]:
    start = reader.start_offset if start is None else start
    end = reader.end_offset if end is None else end
    return [record.offset for one in reader.batches(start, end) for record in records_of(one, "events", 0, start, end)]


def test_a_reader_follows_a_live_writer(place: Place) -> None:
    """A reader sees up to the high watermark as of its last refresh, over rolls, without a lock, and writes
    nothing."""
    root, log = begin(place)
    reader = only(open_readers(place.disk, place.of("root")))
    assert (reader.topic, reader.partition, reader.topic_id) == ("events", 0, ID)
    assert offsets(reader) == []
    for number in range(40):
        log.append_as_leader(batch(2, size=50, timestamp=1000 + 10 * number, tag=b"%d:" % number), 0)
        if number % 3 == 0:
            log.advance_high_watermark(log.end_offset - 2)
            log.write_mark()
            before = reader.end_offset
            assert offsets(reader) == list(range(before))
            reader.refresh()
            assert reader.end_offset == log.high_watermark
            assert offsets(reader) == list(range(reader.end_offset))
            if reader.end_offset:
                assert reader.find_timestamp(1000 + number // 2 * 10) == (number // 2 * 2, 1000 + number // 2 * 10)
    assert reader.leader_epoch == 0
    with pytest.raises(OffsetOutOfRangeError):
        reader.read(reader.end_offset + 1, 100)
    with pytest.raises(OffsetOutOfRangeError):
        reader.batches(-1, 5)
    assert reader.read(reader.end_offset, 100).nbytes == 0
    data = reader.read(7, 500)
    assert split(data)[0].base_offset == 6
    reader.close()
    reader.close()
    with pytest.raises(ClosedError):
        reader.refresh()
    with pytest.raises(ClosedError):
        reader.read(0, 100)
    root.close()


@pytest.mark.parametrize("shown", [1, 9])
def test_a_reader_sees_what_took_the_place_of_a_tail_that_was_cut(place: Place, shown: int) -> None:
    """A follower's tail goes and others' records come, in files of the same size: searches by time and reads find
    these. So they do where an unclean election took what the reader had been shown."""
    root, log = begin(place, config=LogConfig(durability="os", segment_bytes=1024))
    for number in range(9):  # two in a segment, which first have no timestamps
        log.append_as_leader(batch(1, size=300, timestamp=-1 if number < 4 else 1000 + number, tag=b"old"), 0)
    log.advance_high_watermark(shown)
    log.write_mark()
    reader = only(open_readers(place.disk, place.of("root")))
    for _ in range(2):
        reader.refresh()
        assert reader.find_timestamp(1) == (None if shown == 1 else (4, 1004))
        assert offsets(reader) == list(range(shown))
    sizes = log.segments()
    log.truncate_to(1)
    epoch = log.epochs.latest + (shown > 1)
    for number in range(8):
        log.append_as_leader(batch(1, size=300, timestamp=5000 + number, tag=b"new"), epoch)
    assert log.segments() == sizes
    log.advance_high_watermark(9)
    log.write_mark()
    reader.refresh()
    assert reader.find_timestamp(1) == (1, 5000)
    assert reader.find_timestamp(5006) == (7, 5006)
    found = [record.value for one in reader.batches(0, 9) for record in records_of(one)]
    assert [bytes(value or b"")[:3] for value in found] == [b"old"] + [b"new"] * 8
    reader.close()
    root.close()


def test_a_reader_loads_an_index_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot have changed is not looked at anew with each refresh: what is committed, and, without a mark, a
    file nobody touched."""
    root, log = begin(place)
    for number in range(40):
        log.append_as_leader(batch(2, size=50, timestamp=1000 + number), 0)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    loads: list[int] = []
    load = IndexFiles.load

    def counting(disk: Disk, directory: str, base_offset: int, *names: str) -> IndexFiles:
        loads.append(base_offset)
        return load(disk, directory, base_offset, *names)

    monkeypatch.setattr(IndexFiles, "load", counting)
    reader = only(open_readers(place.disk, place.of("root")))
    assert reader.find_timestamp(5000) is None
    before = sorted(loads)
    assert before == [base for base, _ in log.segments()]
    loads.clear()
    log.append_as_leader(batch(1), 0)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    reader.refresh()
    assert reader.find_timestamp(5000) is None
    assert loads == before[-1:]
    reader.close()
    root.close()
    place.disk.remove(f"{place.of('root')}/events-0/{MARK_NAME}")
    reader = only(open_readers(place.disk, place.of("root")))
    assert reader.find_timestamp(5000) is None
    loads.clear()
    reader.refresh()
    assert reader.find_timestamp(5000) is None
    assert loads == []
    reader.close()


def test_a_look_at_a_log_that_grew_is_not_one_at_each_segment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows a log looks after every commit: where no file came or went, only those are asked for that may
    be other ones."""
    root, log = begin(place)
    reader = only(open_readers(place.disk, place.of("root")))
    asked: list[str] = []
    stat = type(place.disk).stat

    def counting(disk: Disk, path: str) -> Stat | None:
        asked.append(path)
        return stat(disk, path)

    monkeypatch.setattr(type(place.disk), "stat", counting)
    counts = []
    for _ in range(100):
        known = len(log.segments())
        log.append_as_leader(batch(1), 0)
        log.advance_high_watermark(log.end_offset)
        log.write_mark()
        asked.clear()
        reader.refresh()
        if len(log.segments()) == known:
            counts.append(len(asked))
        assert reader.end_offset == log.end_offset
    assert len(log.segments()) > 5
    assert max(counts) <= 3, counts
    assert offsets(reader) == list(range(100))
    reader.close()
    root.close()


@pytest.mark.parametrize("is_open", [True, False])
def test_what_went_on_from_a_backup_is_another_file_under_the_same_name(tmp_path: Path, is_open: bool) -> None:
    """A backup is put back and written to, until its segments have the names, the sizes, the times and the history
    of those that were there. A reader finds none of the rows that are gone, whether it has their files open or
    not."""
    disk = SystemDisk()
    place = Place(disk, str(tmp_path))
    for name, tag, count in (("root", b"old", 29), ("other", b"new", 30)):
        root, log = begin(place, name)
        for number in range(count):
            log.append_as_leader(batch(1, size=300, tag=b"all" if number < 4 else tag), 0)
            log.advance_high_watermark(log.end_offset)
            log.write_mark()
        root.close(clean=False)
        for path in (tmp_path / name / "events-0").glob("*.log"):
            os.utime(path, (1, 1))
    reader = only(open_readers(disk, place.of("root")))
    assert offsets(reader) == list(range(29))
    if not is_open:
        reader.release()
    (tmp_path / "root").rename(tmp_path / "gone")
    (tmp_path / "other").rename(tmp_path / "root")
    reader.refresh()
    found = [bytes(record.value or b"")[:3] for one in reader.batches(0, 30) for record in records_of(one)]
    assert found == [b"all"] * 4 + [b"new"] * 26
    reader.close()
    disk.close()


@pytest.mark.parametrize("which", ["*", "*01.log"])
def test_a_copy_in_the_place_of_a_file_is_read(tmp_path: Path, which: str) -> None:
    """A backup was put back, times and all, or one file exchanged for a copy: who had given up its descriptors
    finds other files by the names that they had, and reads those."""
    disk = SystemDisk()
    place = Place(disk, str(tmp_path))
    root, log = begin(place)
    for _ in range(30):
        log.append_as_leader(batch(1, size=1000), 0)
    log.advance_high_watermark(30)
    root.close()
    reader = only(open_readers(disk, place.of("root")))
    assert offsets(reader) == list(range(30))
    DESCRIPTORS.clear()
    for path in (tmp_path / "root" / "events-0").glob(which):
        shutil.copy2(path, tmp_path / "copy")
        (tmp_path / "copy").rename(path)
    assert offsets(reader) == list(range(30))
    reader.close()
    disk.close()


def test_a_mark_with_the_number_of_the_one_before_may_say_something_else(place: Place) -> None:
    """A log that went on from a backup numbers its marks on from there, and may have come to the number that a
    reader knows."""
    for name, count in (("root", 1), ("other", 2)):
        root, log = begin(place, name)
        log.append_as_leader(batch(count), 0)
        log.advance_high_watermark(count)
        log.write_mark()
        root.close(clean=False)
    reader = only(open_readers(place.disk, place.of("root")))
    assert offsets(reader) == [0]
    place.disk.rename(place.of("root"), place.of("gone"))
    place.disk.rename(place.of("other"), place.of("root"))
    reader.refresh()
    assert offsets(reader) == [0, 1]
    reader.close()


def test_a_reader_sees_the_start_move(place: Place) -> None:
    """What the writer hides is hidden after the next refresh."""
    root, log = begin(place)
    for _ in range(10):
        log.append_as_leader(batch(2, size=50), 0)
    log.advance_high_watermark(20)
    log.write_mark()
    reader = only(open_readers(place.disk, place.of("root"), "events"))
    assert open_readers(place.disk, place.of("root"), "other") == {}
    log.increment_start_offset(7)
    reader.refresh()
    assert offsets(reader) == list(range(7, 20))
    reader.close()
    root.close()


def test_a_reader_survives_a_truncation(place: Place) -> None:
    """A follower's tail is cut and replaced beside a reader: it goes on with what is there."""
    root, log = begin(place)
    for number in range(20):
        log.append_as_leader(batch(2, size=50, tag=b"%d" % number), 0)
    log.advance_high_watermark(12)
    log.write_mark()
    reader = only(open_readers(place.disk, place.of("root")))
    assert offsets(reader) == list(range(12))
    log.truncate_to(14)
    log.become_leader(5)
    for number in range(30):
        log.append_as_leader(batch(2, size=70, tag=b"new%d" % number), 5)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    reader.refresh()
    assert offsets(reader) == list(range(log.end_offset))
    assert b"".join(bytes(one.data) for one in reader.batches(0, reader.end_offset)) == raw(log)
    assert reader.leader_epoch == 5
    log.truncate_fully(500)
    reader.refresh()
    assert (reader.start_offset, reader.end_offset) == (500, 500)
    reader.close()
    root.close()


def test_after_power_loss_only_what_was_synced_is_shown() -> None:
    """Before a writer has recovered an os log, a reader sees what was synced; after a kill, what was promised."""
    disk = SimDisk(Random(6))
    disk.make_directory("data")
    disk.sync_directory("/")
    _, log = begin(Place(disk, "data"))
    for number in range(10):
        log.append_as_leader(batch(2, size=50), 0)
        if number == 4:
            sync(disk, log)
    log.advance_high_watermark(18)
    log.write_mark()
    disk.kill()
    killed = only(open_readers(disk, "data/root"))
    assert offsets(killed) == list(range(18))
    for seed in range(20):
        left = disk.crash(Random(seed))
        reader = only(open_readers(left, "data/root"))
        # The mark itself may be that of the sync, or the newer one.
        assert reader.end_offset <= 10
        assert offsets(reader) == list(range(reader.end_offset))


@pytest.mark.parametrize("harm", ["cut", "flipped", "removed"])
def test_after_a_kill_what_was_promised_is_there_or_missed(place: Place, harm: str) -> None:
    """The page cache of an os log outlives the process: what is damaged of it is no end, and what lies behind it is
    still read."""
    _, log = begin(place, config=LogConfig(durability="os", index_interval_bytes=0))
    for _ in range(6):
        log.append_as_leader(batch(2, size=50), 0)
    log.advance_high_watermark(12)
    log.write_mark()
    log._segments.last.indexes.write()
    if isinstance(place.disk, SimDisk):
        place.disk.kill()
    path = f"root/events-0/{0:020}.log"
    content = bytearray(place.read(path))
    size = len(content) // 6
    if harm == "removed":
        place.disk.remove(place.of(path))
    else:
        content[2 * size + 70] ^= 1
        place.write(path, bytes(content[: 2 * size + 20] if harm == "cut" else content))
    with contextlib.closing(only(open_readers(place.disk, place.of("root")))) as reader:
        assert reader.end_offset == 12
        with pytest.raises(CorruptLogError) as caught:
            offsets(reader)
        first = 0 if harm == "removed" else 4
        assert (caught.value.start, caught.value.end) == (first, 6 if harm == "flipped" else 12)
        if harm == "flipped":
            assert offsets(reader, 6) == list(range(6, 12))


@pytest.mark.parametrize("harm", ["swapped", "misdirected", "length", "ahead", "beyond", "below"])
def test_no_damage_hides_a_record_where_offsets_may_have_gaps(place: Place, harm: str) -> None:
    """What is passed over in a folder without a mark is named: what lies in a segment before the one it belongs to
    is no gap."""
    ended(place, 24, LogConfig(segment_bytes=1200))
    place.disk.remove(place.of(f"root/events-0/{MARK_NAME}"))
    first, second = (f"root/events-0/{base:020}.log" for base in (12, 36))
    one, two = bytearray(place.read(first)), place.read(second)
    size = len(one) // 6
    if harm == "swapped":
        one = bytearray(two)
        place.write(second, place.read(first))
    elif harm == "misdirected":
        one[2 * size : 3 * size] = two[:size]
    elif harm == "length":
        one[2 * size + 8] ^= 0x40
    elif harm == "ahead":
        one[2 * size + 7] ^= 4  # the batch of 16 says 20
    else:
        at, says = (2 * size + 7, 104) if harm == "beyond" else (7, 35)  # the batch of 40, or that of 36
        place.write(second, two[:at] + bytes([says]) + two[at + 1 :])
    place.write(first, bytes(one))
    seen: list[int] = []
    missed: list[int] = []
    with contextlib.closing(only(open_readers(place.disk, place.of("root")))) as reader:
        offset = 0
        while offset < reader.end_offset:
            try:
                part = split(reader.read(offset, 1 << 20))
            except CorruptLogError as error:
                missed += range(error.start, error.end)
                offset = error.end
            else:
                seen += [number for one in part for number in range(max(one.base_offset, offset), one.next_offset)]
                offset = part[-1].next_offset
    assert sorted(seen + missed) == list(range(48))
    assert min(missed) in (12, 16, 36, 40)


@pytest.mark.parametrize("rest", [1, 20, 61, 100])
@pytest.mark.parametrize("interval", [0, 4096])
def test_a_search_by_time_ends_where_the_log_does(place: Place, rest: int, interval: int) -> None:
    """Behind the high watermark may lie a batch that the writer is about to write, or what it left."""
    root, log = begin(place, config=LogConfig(index_interval_bytes=interval))
    for number in range(3):
        log.append_as_leader(batch(2, size=50, timestamp=1000 * number), 0)
    sync(place.disk, log)
    log.advance_high_watermark(6)
    root.close()
    path = f"root/events-0/{0:020}.log"
    content = place.read(path)
    place.write(path, content + content[: len(content) // 3][:rest])
    with contextlib.closing(only(open_readers(place.disk, place.of("root")))) as reader:
        assert offsets(reader) == list(range(6))
        assert reader.find_timestamp(2001) == (5, 2001)
        assert reader.find_timestamp(2002) is None
        place.write(path, content[:-1] + bytes([content[-1] ^ 1]))
    with contextlib.closing(only(open_readers(place.disk, place.of("root")))) as reader, pytest.raises(CorruptError):
        reader.find_timestamp(2001)


def test_rot_is_reported_with_its_offsets(place: Place) -> None:
    """A damaged batch is never handed out: reading it raises with where the damage begins; what lies before is
    read."""
    ended(place, 6, LogConfig())
    path = "root/events-0/00000000000000000000.log"
    content = bytearray(place.read(path))
    size = len(content) // 6
    content[3 * size + 70] ^= 1
    place.write(path, bytes(content))
    reader = only(open_readers(place.disk, place.of("root")))
    assert offsets(reader, 0, 6) == list(range(6))
    with pytest.raises(CorruptLogError) as caught:
        reader.read(6, 1 << 20)
    assert (caught.value.start, caught.value.end) == (6, 8)
    assert split(reader.read(8, 1 << 20))[-1].next_offset == 12
    with pytest.raises(CorruptLogError):
        offsets(reader)
    reader.close()


@pytest.mark.parametrize(("harm", "span"), [("cut-first", (6, 8)), ("cut-last", (22, 24)), ("removed", (8, 16))])
def test_the_offsets_of_damage_are_all_that_cannot_be_read(place: Place, harm: str, span: tuple[int, int]) -> None:
    """Where no batch says how far the damage goes, it goes up to where reading can go on: everything outside the
    range can be read."""
    ended(place, 12, LogConfig(segment_bytes=1024), size=75)
    bases = [f"root/events-0/{base:020}.log" for base in (0, 8, 16)]
    assert [place.disk.stat(place.of(path)) is not None for path in bases] == [True] * 3
    if harm == "removed":
        place.disk.remove(place.of(bases[1]))
    else:
        path = bases[0 if harm == "cut-first" else 2]
        place.write(path, place.read(path)[:-20])
    with contextlib.closing(only(open_readers(place.disk, place.of("root")))) as reader:
        with pytest.raises(CorruptLogError) as caught:
            offsets(reader)
        assert (caught.value.start, caught.value.end) == span
        assert offsets(reader, 0, span[0]) == list(range(span[0]))
        assert offsets(reader, span[1]) == list(range(span[1], 24))


@pytest.mark.parametrize("position", [7, 15, 26])
def test_the_offsets_of_damage_hold_the_one_that_was_asked_for(place: Place, position: int) -> None:
    """Base offset, leader epoch or count of a batch are damaged, and one behind it is asked for, whose place nobody
    can be sure of then: the error is about that one, and who goes on where the range ends comes to the end."""
    ended(place, 12, LogConfig(index_interval_bytes=1 << 20), size=75)
    path = f"root/events-0/{0:020}.log"
    content = bytearray(place.read(path))
    content[2 * len(content) // 12 + position] ^= 4
    place.write(path, bytes(content))
    with contextlib.closing(only(open_readers(place.disk, place.of("root")))) as reader:
        for first in range(24):
            offset = first
            while offset < 24:
                try:
                    offset = split(reader.read(offset, 1 << 20))[-1].next_offset
                except CorruptLogError as error:
                    assert error.start <= offset < error.end <= 24, offset
                    offset = error.end


def test_the_offsets_of_damage_hold_the_one_that_was_asked_for_at_the_end(place: Place) -> None:
    """As above, where the log's end, up to which is read, lies within the batch that is asked for."""
    root, log = begin(place, config=LogConfig(durability="os"))
    for _ in range(3):
        log.append_as_leader(batch(4, size=75), 0)
    log.advance_high_watermark(10)
    log.write_mark()
    root.close()
    path = f"root/events-0/{0:020}.log"
    content = bytearray(place.read(path))
    content[7] ^= 1
    place.write(path, bytes(content))
    with contextlib.closing(only(open_readers(place.disk, place.of("root")))) as reader:
        for offset in (8, 9):
            with pytest.raises(CorruptLogError) as caught:
                reader.read(offset, 1 << 20)
            assert caught.value.start <= offset < caught.value.end


def test_batches_end_where_the_log_was_cut_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a clean election even what was seen may go: who is at the new end is at the end."""
    monkeypatch.setattr(reader_module, "_CHUNK_SIZE", 1)
    ended(place, 4, SMALL)
    reader = only(open_readers(place.disk, place.of("root")))
    batches = reader.batches(0, 8)
    assert next(batches).next_offset == 2
    reader.end_offset = 2
    assert next(batches, None) is None
    reader.close()


def test_a_topic_that_is_made_anew_is_another_one(place: Place) -> None:
    """A topic is deleted, and one of its name is made and written alike, so that both marks were written as often:
    a reader that looks again is told, as often as it does, and one that is opened has what is there now."""
    root, log = begin(place)
    key = TopicPartition("events", 0)
    for tag in (b"old", b"new"):
        if tag == b"new":
            root.remove_log(key)
            log = root.create_log(*key, root.new_topic_id(), SMALL)
            log.become_leader(0)
        for number in range(30):
            log.append_as_leader(batch(1, size=40, tag=b"%s %d:" % (tag, number)), 0)
        sync(place.disk, log)
        log.advance_high_watermark(30)
        log.write_mark()
        if tag == b"old":
            reader = only(open_readers(place.disk, place.of("root")))
            assert offsets(reader) == list(range(30))
            continue
        for _ in range(2):
            with pytest.raises(
                TopicRecreatedError, match="another log of its name is in .*events-0 now. Open it again"
            ):
                reader.refresh()
            with pytest.raises(TopicRecreatedError):
                reader.read(0, 1 << 20)
        reader.close()
        reader = only(open_readers(place.disk, place.of("root")))
        assert reader.topic_id == log.topic_id
        assert b"".join(bytes(one.data) for one in reader.batches(0, 30)) == raw(log)
    reader.close()
    root.close()


def test_a_look_that_lasts_over_two_writes_of_the_mark_is_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both slots that take turns are half-written then, and the third says only what was synced long ago: no reader
    goes back to that."""
    root, log = begin(place)
    for _ in range(4):
        log.append_as_leader(batch(2), 0)
        log.advance_high_watermark(log.end_offset)
        log.write_mark()
    reader = only(open_readers(place.disk, place.of("root")))
    assert reader.end_offset == 8
    log.append_as_leader(batch(2), 0)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    content = mark._content
    looks: list[bytearray] = []

    def caught(disk: Disk, directory: str) -> memoryview:
        data = bytearray(content(disk, directory) or b"")
        looks.append(data)
        if len(looks) == 1:
            slots = {position: parse_slot(bytes(data[position : position + SLOT_SIZE])) for position in SLOT_POSITIONS}
            for position in sorted(slots, key=lambda position: slots[position].sequence)[1:]:  # type: ignore[union-attr]
                data[position + SLOT_SIZE // 2] ^= 1
        return memoryview(data)

    monkeypatch.setattr(mark, "_content", caught)
    reader.refresh()
    assert reader.end_offset == 10
    assert len(looks) == 2
    reader.close()
    root.close()


def test_a_log_whose_files_are_all_gone_is_not_an_empty_one(place: Place) -> None:
    """Somebody else removed the segments: what the mark calls synced is reported as missing, not passed over."""
    root, log = begin(place)
    for _ in range(10):
        log.append_as_leader(batch(2, size=50), 0)
    sync(place.disk, log)
    log.advance_high_watermark(20)
    log.sync_mark()
    root.close()
    for name in place.disk.list(place.of("root/events-0")):
        if name.endswith(".log"):
            place.disk.remove(place.of(f"root/events-0/{name}"))
    reader = only(open_readers(place.disk, place.of("root")))
    assert (reader.start_offset, reader.end_offset) == (0, 20)
    with pytest.raises(CorruptLogError, match="segments are missing") as caught:
        reader.read(3, 1000)
    assert (caught.value.start, caught.value.end) == (3, 20)
    reader.close()


def test_a_clusters_folder_reads_the_replica_that_is_ahead(place: Place) -> None:
    """Of several replicas the one with the highest epoch is read, up to the highest watermark; refresh looks
    again."""
    nodes = [begin(place, f"node-{number}", seed=number) for number in (1, 2, 3)]
    logs = [log for _, log in nodes]
    first = [batch(2, base_offset=2 * number, leader_epoch=0, tag=b"a%d" % number) for number in range(5)]
    for log in logs:
        log.append_as_follower([bytes(one) for one in first])
    # Node 1 led in epoch 0, and has a tail that nobody else got; node 2 leads in epoch 3, node 3
    # follows it and is behind with its watermark.
    logs[0].append_as_follower([bytes(batch(2, base_offset=10, leader_epoch=0, tag=b"lost"))])
    logs[0].advance_high_watermark(10)
    for log in logs[1:]:
        log.append_as_follower([bytes(batch(2, base_offset=10, leader_epoch=3, tag=b"kept"))])
    logs[1].advance_high_watermark(12)
    logs[2].advance_high_watermark(8)
    for log in logs:
        log.write_mark()
    reader = only(open_readers(place.disk, place.path))
    assert reader.leader_epoch == 3
    assert reader.end_offset == 12
    assert b"".join(bytes(one.data) for one in reader.batches(0, 12)) == raw(logs[1])
    assert list_topics(place.disk, place.path) == {"events": [0]}
    # Node 3 goes on alone.
    logs[2].append_as_follower([bytes(batch(2, base_offset=12, leader_epoch=7))])
    logs[2].advance_high_watermark(14)
    logs[2].write_mark()
    reader.refresh()
    assert (reader.end_offset, reader.leader_epoch) == (14, 7)
    assert reader.directory.endswith("node-3/events-0")
    assert offsets(reader) == list(range(14))
    reader.close()
    for root, _ in nodes:
        root.close()


def test_replicas_that_are_made_later_or_moved_away(place: Place) -> None:
    """A node that was down when a topic was made has its copy later; a copy that is damaged is moved away. Whoever
    follows the log goes on with those that are there."""
    (one_root, one), (two_root, two) = begin(place, "node-1", seed=1), begin(place, "node-2", seed=2)
    late_root = open_root(place, "node-3", seed=3)
    for log in (one, two):
        log.append_as_follower([bytes(batch(2, leader_epoch=0))])
        log.advance_high_watermark(2)
        log.write_mark()
    reader = only(open_readers(place.disk, place.path))
    assert len(reader.replicas) == 2
    late = late_root.create_log("events", 0, ID, SMALL)
    late.append_as_follower([bytes(batch(2, leader_epoch=0)), bytes(batch(2, base_offset=2, leader_epoch=1))])
    late.advance_high_watermark(4)
    late.write_mark()
    reader.refresh()
    assert (offsets(reader), len(reader.replicas)) == ([0, 1, 2, 3], 3)
    late_root.close()
    place.disk.rename(place.of("node-3/events-0"), place.of("moved"))
    reader.refresh()
    assert (offsets(reader), len(reader.replicas)) == ([0, 1], 2)
    two_root.close()
    place.disk.rename(place.of("node-2/events-0"), place.of("another"))
    reader.refresh()
    assert (offsets(reader), len(reader.replicas)) == ([0, 1], 1)
    one_root.close()
    place.disk.rename(place.of("node-1/events-0"), place.of("the last"))
    with pytest.raises(StorageError, match="No such file"):
        reader.refresh()
    place.disk.rename(place.of("moved"), place.of("node-3/events-0"))
    place.disk.rename(place.of("the last"), place.of("node-1/events-0"))
    reader.refresh()
    assert (offsets(reader), len(reader.replicas)) == ([0, 1, 2, 3], 2)
    reader.close()


def test_a_replica_that_is_moved_away_during_a_look() -> None:
    """Between the look at its mark and the one at its end: the other is read on."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    place = Place(disk, "data")
    for number in (1, 2):
        root, log = begin(place, f"node-{number}", seed=number)
        log.append_as_follower([bytes(batch(2, leader_epoch=0))])
        log.advance_high_watermark(2)
        root.close()
    reader = only(open_readers(disk, "data"))
    reader.release()

    def move(call: Call) -> None:
        """As the end of the first is looked for."""
        if call.kind == "open" and call.path.endswith(f"node-1/events-0/{0:020}.log"):
            disk.observer = None
            disk.rename("data/node-2/events-0", "data/moved")

    disk.observer = move
    reader.refresh()
    assert disk.observer is None
    assert (offsets(reader), len(reader.replicas)) == ([0, 1], 1)
    reader.close()


def test_a_lagging_replicas_watermark_counts_only_as_far_as_histories_agree(place: Place) -> None:
    """A higher watermark of a replica whose history parts earlier is believed only up to where they part."""
    (one_root, one), (two_root, two) = begin(place, "node-1", seed=1), begin(place, "node-2", seed=2)
    for log, epoch in ((one, 0), (two, 4)):
        log.append_as_follower([bytes(batch(4, leader_epoch=0))])
        log.append_as_follower([bytes(batch(4, base_offset=4, leader_epoch=epoch))])
    one.advance_high_watermark(8)
    two.advance_high_watermark(2)
    one.write_mark()
    two.write_mark()
    reader = only(open_readers(place.disk, place.path))
    assert reader.end_offset == 4
    reader.close()
    one_root.close()
    two_root.close()


def test_a_bare_folder_needs_no_mark(place: Place) -> None:
    """Without mark and checkpoint the whole valid log is read; a torn tail is not, and nothing is written."""
    log = create(place.disk, place.of("t-0"), SMALL)
    for _ in range(12):
        log.append_as_leader(batch(2, size=50), 0)
    log.close(clean=True)
    place.disk.remove(place.of("t-0/replog.mark"))
    names = sorted(name for name in place.disk.list(place.of("t-0")) if name.endswith(".log"))
    content = place.read(f"t-0/{names[-1]}")
    place.write(f"t-0/{names[-1]}", content[:-3])
    before = {name: place.read(f"t-0/{name}") for name in place.disk.list(place.of("t-0"))}
    reader = only(open_readers(place.disk, place.of("t-0")))
    assert reader.end_offset == 22
    assert [one.next_offset for one in reader.batches(0, 22)][-1] == 22
    assert reader.split_points(0, 22, 200)[0] == 0
    reader.close()
    assert {name: place.read(f"t-0/{name}") for name in place.disk.list(place.of("t-0"))} == before


@pytest.mark.parametrize(
    "harm", ["a bit of its last batch", "a bit of the one before", "its last batch", "all of its last segment"]
)
def test_what_a_broker_flushed_is_there_or_missed(place: Place, harm: str) -> None:
    """Without a mark the root's checkpoints say how far a partition goes and what of it was flushed: damage to that
    is an error where it is read, with its offsets, and never an early end. What is in front of it is read."""
    root, log = begin(place)
    for number in range(12):
        log.append_as_leader(batch(2, size=50, timestamp=number), 0)
    log.advance_high_watermark(24)
    root.close()
    place.disk.remove(place.of("root/events-0/replog.mark"))
    name = max(name for name in place.disk.list(place.of("root/events-0")) if name.endswith(".log"))
    content = bytearray(place.read(f"root/events-0/{name}"))
    positions = [one.base_offset for one in split(content)]
    sizes = [one.size for one in split(content)]
    assert len(positions) > 1
    missing = positions[-1]
    if harm.startswith("a bit"):
        behind = sizes[-1] if "before" in harm else 0
        missing = positions[-2] if "before" in harm else missing
        content[-behind - 3] ^= 1
    elif harm == "its last batch":
        del content[-sizes[-1] :]
    place.write(f"root/events-0/{name}", bytes(content))
    if harm == "all of its last segment":
        missing = positions[0]
        for suffix in (".log", ".index", ".timeindex"):
            place.disk.remove(place.of(f"root/events-0/{name.removesuffix('.log')}{suffix}"))
    reader = only(open_readers(place.disk, place.of("root")))
    assert reader.end_offset == 24
    got: list[int] = []
    with pytest.raises(CorruptLogError) as caught:
        got += (one.next_offset for one in reader.batches(0, 24))
    assert caught.value.start == missing
    assert caught.value.end > missing
    assert [one.next_offset for one in reader.batches(0, missing)][-1] == missing
    reader.close()


def test_damage_to_the_replica_that_is_ahead_is_not_an_end(place: Place) -> None:
    """Where the only copy that had the newest committed records is damaged, reading goes as far as the others do,
    and says so there; where another has them, nobody notices."""
    config = LogConfig(durability="os")
    (one_root, one), (two_root, two) = begin(place, "node-1", config, seed=1), begin(place, "node-2", config, seed=2)
    for number in range(6):
        for log in (one, two) if number < 4 else (one,):
            log.append_as_follower([bytes(batch(2, base_offset=2 * number, leader_epoch=0))])
    one.advance_high_watermark(12)
    two.advance_high_watermark(8)
    one_root.close()
    two_root.close()
    name = max(name for name in place.disk.list(place.of("node-1/events-0")) if name.endswith(".log"))
    whole = place.read(f"node-1/events-0/{name}")
    assert len(list(split(whole))) == 6
    rotten = bytearray(whole)
    rotten[len(whole) // 2 - 3] ^= 1  # within the third batch
    place.write(f"node-1/events-0/{name}", bytes(rotten))
    reader = only(open_readers(place.disk, place.path))
    assert reader.directory.endswith("node-2/events-0")
    assert reader.end_offset == 12
    assert [found.next_offset for found in reader.batches(0, 8)] == [2, 4, 6, 8]
    for start in (0, 8, 11):
        with pytest.raises(CorruptLogError, match="the only copy that held these records is damaged") as caught:
            list(reader.batches(start, 12))
        assert (caught.value.start, caught.value.end) == (max(start, 8), 12)
    assert len(reader.read(0, 1 << 20)) == sum(found.size for found in list(split(whole))[:4])
    with pytest.raises(CorruptLogError, match="node-1/events-0"):
        reader.read(9, 1 << 20)
    reader.close()


def test_folders_without_logs(place: Place) -> None:
    """An empty folder has no readers; one that is not there is a StorageError."""
    assert open_readers(place.disk, place.path) == {}
    assert list_topics(place.disk, place.path) == {}
    with pytest.raises(StorageError):
        open_readers(place.disk, place.of("nowhere"))


def test_no_damage_makes_a_reader_fail_otherwise(place: Place) -> None:
    """Random damage to any file of a root: readers give valid batches or an error of ours."""
    root, log = begin(place)
    for number in range(14):
        log.append_as_leader(batch(2, size=50, timestamp=number), 0)
    log.advance_high_watermark(26)
    root.close()
    names = [f"root/events-0/{name}" for name in place.disk.list(place.of("root/events-0"))]
    names += [
        f"root/{name}"
        for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint", "replog.incarnation")
    ]
    files = {name: place.read(name) for name in names}
    random = Random(2)
    read = 0
    for _ in range(200):
        for name, saved in files.items():
            place.write(name, saved)
        for _ in range(random.randrange(1, 3)):
            name = random.choice(names)
            content = bytearray(files[name])
            match random.randrange(3):
                case 0:
                    content = content[: random.randrange(len(content) + 1)]
                case 1 if content:
                    for _ in range(random.randrange(1, 6)):
                        content[random.randrange(len(content))] = random.randrange(256)
                case _:
                    content += random.randbytes(50)
            place.write(name, bytes(content))
        with contextlib.suppress(PyreplogError):
            reader = only(open_readers(place.disk, place.of("root")))
            for one in reader.batches(reader.start_offset, reader.end_offset):
                one.check_crc()
                read += 1
            reader.find_timestamp(5)
            reader.close()
    assert read > 500
