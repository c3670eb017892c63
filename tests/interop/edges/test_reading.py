"""Edge cases 84 to 90: reading, high watermark, last stable offset."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import OffsetOutOfRangeError
from pyreplog.log import open_readers
from pyreplog.log.read_committed import CommittedSource
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.record import records_of, split
from pyreplog.system.disk import SystemDisk
from tests.interop.edges.support import filled, segments
from tests.unit.log.conftest import Place
from tests.unit.log.producing import Live, Play, offsets_of
from tests.unit.log.support import batch, contents, create, reopen, sync


def test_e084_outside_of_the_log(place: Place) -> None:
    """Below the log's start and above its end is out of range, with what was asked and what there is; exactly at
    the end is empty."""
    log = filled(place)
    log.set_high_watermark(80)
    log.increment_start_offset(11)
    for asked in (-1, 0, 10, 81, 2**62):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(asked, 100, 80)
        assert (caught.value.asked, caught.value.start, caught.value.end) == (asked, 11, 80)
    assert (log.read(80, 100, 80).size, log.read(80, 100, 80).parts()) == (0, [])
    assert contents(log)[0].offset == 11
    assert log.read(79, 100, 80).size > 0
    for offset in (81, 2**62):
        with pytest.raises(OffsetOutOfRangeError):
            log.increment_start_offset(offset)
    log.close(clean=True)
    ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
    for asked in (10, 81):
        with pytest.raises(OffsetOutOfRangeError):
            reader.read(asked, 100)
    assert reader.read(80, 100).nbytes == 0
    reader.close()


@pytest.mark.parametrize("tail", [0, 1 << 20])
def test_e085_how_much_is_read(place: Place, tail: int) -> None:
    """0 bytes asked for give none. From 1 byte on whole batches come, at least one: what Kafka does where one
    message at least is wanted. Without that Kafka gives the beginning of a batch and says that it is incomplete;
    here no batch is cut, for a piece of one cannot be checked, and nothing is handed out unchecked."""
    log = filled(place, segment_bytes=1 << 20)
    log.set_tail_cache_size(tail)
    if tail:
        log.truncate_to(0)
        for _ in range(40):
            log.append_as_leader(batch(2), 0)
    log.set_high_watermark(80)
    size = batch(2).nbytes
    for asked, expected in (
        (0, 0),
        (-1, 0),
        (1, 1),
        (size - 1, 1),
        (size, 1),
        (2 * size - 1, 1),
        (2 * size, 2),
        (2**40, 40),
    ):
        found = log.read(0, asked, log.end_offset)
        assert found.size == sum(part.nbytes for part in found.parts()) == expected * size
        assert sum(one.size for part in found.parts() for one in split(part)) == found.size
    sync(place.disk, log)
    log.write_mark()
    ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
    for asked, expected in ((0, 0), (1, 1), (2 * size - 1, 1), (2 * size, 2)):
        assert reader.read(0, asked).nbytes == expected * size
        assert reader.isolated("read_committed").read(0, asked).nbytes == expected * size
    reader.close()
    log.close(clean=True)


def played(place: Place) -> Play:
    """A log of transactions over several segments: committed, aborted and open ones, and records of no producer."""
    play = Play(create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024)))
    for number in range(30):
        if number % 5 == 4:
            play.end(number % 2 + 1, commit=number % 10 == 4)
        elif number % 5 == 3:
            play.other()
        else:
            play.data(number % 2 + 1)
    return play


def test_e086_each_isolation_is_bounded(place: Place) -> None:
    """Wherever the high watermark stands, a reader gets exactly the batches below it, and a committed one exactly
    the records below the last stable offset that were not aborted."""
    play = played(place)
    log = play.log
    source = Live(log)
    ends = [one.next_offset for part in log.read(0, 1 << 20, log.end_offset).parts() for one in split(part)]
    log.set_tail_cache_size(0)
    everything = [one.offset for one in contents(log)]
    for mark in range(log.end_offset + 1):
        log.set_high_watermark(mark)
        # A batch that reaches above the mark is not there yet.
        whole = max((end for end in ends if end <= mark), default=0)
        assert [one.offset for one in contents(log, 0, mark)] == [one for one in everything if one < whole]
        stable = source.last_stable_offset
        assert stable <= mark
        below = max((end for end in ends if end <= stable), default=0)
        assert offsets_of(CommittedSource(source)) == play.visible(below)
    log.close(clean=True)


def test_e086_while_the_high_watermark_moves(place: Place) -> None:
    """Between any two batches of a reader the high watermark may rise, and records be appended: it ends where it
    was when it was asked, in both isolations, and the next one goes on just there."""
    play = played(place)
    log = play.log
    sync(place.disk, log)
    random = Random(86)
    ends = [0, *(one.next_offset for part in log.read(0, 1 << 20, log.end_offset).parts() for one in split(part))]
    log.set_tail_cache_size(0)
    ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
    seen: dict[str, list[int]] = {"read_uncommitted": [], "read_committed": []}
    done = dict.fromkeys(seen, 0)
    mark = 0

    def rise(steps: int) -> None:
        """Let the high watermark rise, by whole batches."""
        nonlocal mark
        mark = ends[min(ends.index(mark) + steps, len(ends) - 1)]
        log.set_high_watermark(mark)
        log.write_mark()

    for _ in range(30):
        for isolation, offsets in seen.items():
            reader.refresh()
            source = reader.isolated(isolation)
            end = source.end_offset
            assert end == (mark if isolation == "read_uncommitted" else log.last_stable_offset)
            reached = done[isolation]
            for one in source.batches(done[isolation], end):
                offsets += [record.offset for record in records_of(one, "t", 0, reached, end)]
                reached = one.next_offset
                assert reached <= end
                # While it is under way.
                rise(random.randrange(3))
                if random.random() < 0.2:
                    play.other()
                    ends.append(log.end_offset)
                    sync(place.disk, log)
            done[isolation] = max(reached, done[isolation])
        rise(1)
    assert mark > 40
    reader.refresh()
    assert seen["read_uncommitted"] == sorted({*seen["read_uncommitted"]})
    assert seen["read_committed"] == sorted({*seen["read_committed"]})
    assert not {*seen["read_committed"]} & {*play.aborted}
    for isolation, offsets in seen.items():
        source = reader.isolated(isolation)
        rest = [
            record.offset
            for one in source.batches(done[isolation], source.end_offset)
            for record in records_of(one, "t", 0, done[isolation])
        ]
        wanted = [*play.plain, *play.committed]
        if isolation == "read_uncommitted":
            wanted += [*play.aborted, *(offset for open_ones in play.open.values() for offset in open_ones)]
        assert offsets + rest == sorted(offset for offset in wanted if offset < source.end_offset)
    reader.close()
    log.close(clean=True)


def test_e086_within_a_batch_of_a_transaction(place: Place) -> None:
    """A high watermark may lie within a batch that nobody is shown yet: committed records end where that batch
    begins, not in it."""
    log = create(place.disk, place.of("t-0"), LogConfig(durability="os"))
    play = Play(log)
    play.data(1, 3)
    play.end(1, commit=True)
    begun = log.end_offset
    play.data(2, 4)
    ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
    for mark in range(begun, log.end_offset + 1):
        log.set_high_watermark(mark)
        log.write_mark()
        reader.refresh()
        assert reader.isolated("read_committed").end_offset == log.last_stable_offset == begun
    reader.close()
    log.close(clean=True)


def test_e086_beside_a_thread_that_moves_it(tmp_path: Path) -> None:
    """The same with a writer in another thread: no reader ever gets a record that was not below the high watermark
    yet, nor one of a transaction that was not ended, and none is left out below what it was told is the end."""
    disk = SystemDisk()
    log = create(disk, str(tmp_path / "t-0"), LogConfig(durability="os", segment_bytes=4096))
    play = Play(log)
    promised = [0]  # the greatest high watermark that anybody was told of
    committed: set[int] = set()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(250):
                producer = number % 3 + 1
                play.data(producer, number % 4 + 1)
                if number % 5 == 4:
                    for one in list(play.open):
                        play.end(one, commit=number % 10 == 4)
                    committed.update(play.committed)  # before it is promised
                promised.append(log.end_offset - number % 2)
                log.set_high_watermark(promised[-1])
                log.write_mark()
        except BaseException as error:
            failures.append(error)
            raise

    writer = threading.Thread(target=write)
    writer.start()
    ((_, reader),) = open_readers(SystemDisk(), str(tmp_path / "t-0")).items()
    rounds = 0
    last_end = {"read_uncommitted": 0, "read_committed": 0}
    while writer.is_alive() or rounds < 5:
        rounds += 1
        reader.refresh()
        for isolation, before in last_end.items():
            source = reader.isolated(isolation)
            end = source.end_offset
            assert end >= before
            start = max(before - 20, 0)
            reached = start
            for one in source.batches(start, end):
                if isolation == "read_uncommitted":
                    assert one.base_offset <= reached < one.next_offset <= end
                    reached = one.next_offset
                else:
                    assert one.next_offset <= end
                    assert {record.offset for record in records_of(one)} <= committed
                assert one.next_offset <= promised[-1]
            last_end[isolation] = end
    writer.join()
    assert not failures
    assert rounds > 4
    reader.refresh()
    assert reader.end_offset == promised[-1]
    found = [
        record.offset
        for one in reader.isolated("read_committed").batches(0, reader.end_offset)
        for record in records_of(one)
    ]
    assert found == sorted(committed)
    reader.close()
    log.close(clean=True)
    disk.close()


def test_e087_the_high_watermark_stays_within(place: Place) -> None:
    """Set, it is brought to between the log's start and its end; raised, it goes up only, and to the end at most,
    where Kafka says that more is an error; a truncation and a new start take it along."""
    log = filled(place)
    for asked, expected in ((30, 30), (-5, 0), (10**9, 80), (80, 80), (0, 0)):
        log.set_high_watermark(asked)
        assert log.high_watermark == expected
    for asked, rises, expected in ((10, True, 10), (10, False, 10), (5, False, 10), (10**9, True, 80), (81, False, 80)):
        assert log.advance_high_watermark(asked) is rises
        assert log.high_watermark == expected
    log.increment_start_offset(20)
    log.set_high_watermark(3)
    assert log.high_watermark == 20
    # Deleting beyond it is the error.
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_start_offset(21)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(81)
    log.set_high_watermark(70)
    log.truncate_to(40)
    assert (log.high_watermark, log.end_offset) == (40, 40)
    log.truncate_to(10)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (10, 10, 10)
    log.close(clean=True)


def test_e088_reading_up_to_a_mark_in_a_new_segment(place: Place) -> None:
    """A high watermark that stands where a segment was just begun bounds reads exactly."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    log.set_tail_cache_size(0)
    while len(segments(log)) < 3:
        log.append_as_leader(batch(2), 0)
    log.set_high_watermark(segments(log)[-1].base_offset)
    assert [one.offset for one in contents(log, 0, log.high_watermark)] == list(range(log.high_watermark))
    assert log.read(log.high_watermark, 100, log.high_watermark).size == 0
    log.close(clean=True)


def test_e089_where_the_stable_part_ends(place: Place) -> None:
    """The stable offset stops at the first open transaction, goes on only once the marker is below the high
    watermark, to the next open one, and is not below the log's start; so it is after a restart."""
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.other()
    play.data(1)  # 1, 2
    play.data(2)  # 3, 4
    play.other()  # 5
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == 1
    play.end(1, commit=True)  # at 6
    for mark, stable in ((6, 1), (7, 3)):
        log.set_high_watermark(mark)
        assert log.last_stable_offset == stable
    play.end(2, commit=False)  # at 7
    for mark, stable in ((7, 3), (8, 8)):
        log.set_high_watermark(mark)
        assert log.last_stable_offset == stable, mark
    play.data(3)  # 8, 9
    play.other()
    log.set_high_watermark(11)
    assert log.last_stable_offset == 8
    sync(place.disk, log)
    log.write_mark()
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    log.set_high_watermark(11)
    assert log.last_stable_offset == 8
    log.increment_start_offset(10)
    assert log.last_stable_offset == 10
    log.close(clean=True)


def test_e090_an_aborted_transaction_across_segments(place: Place) -> None:
    """A transaction that spans segments and was aborted is told of whichever of them is read, and none of its
    records is shown."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    play = Play(log)
    for _ in range(12):
        play.data(1, 5)
        play.other()
    play.end(1, commit=False)
    last = log.end_offset - 1
    play.other()
    log.set_high_watermark(log.end_offset)
    entries = [bool(segment.transactions.entries) for segment in segments(log)]
    assert len(entries) > 2
    assert entries == [False] * (len(entries) - 1) + [True]  # its entry lies where its marker is
    for offset in range(last + 1):
        assert log.aborted_transactions(offset, offset + 1) == [AbortedRange(1, 0, last, last + 1)]
    assert log.aborted_transactions(last + 1, last + 2) == []
    for size in (1, 300, 1 << 20):
        assert offsets_of(CommittedSource(Live(log)), size) == play.plain
    sync(place.disk, log)
    log.close(clean=True)
    ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
    assert offsets_of(CommittedSource(reader), 300) == play.plain
    reader.close()
