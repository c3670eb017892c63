"""The journal of a queue: several workers on one disk, and a crash at each of their calls."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Literal

import pytest

from pyreplog.errors import ConfigError, CorruptError, StorageError, TopicRecreatedError
from pyreplog.readers import (
    QUEUE_FILE_SIZE,
    Accepted,
    Acquired,
    JournalIdentity,
    QueueJournal,
    QueueState,
    Released,
    queue_journal,
    queue_slots,
    read_queue,
)
from pyreplog.readers.queue_slots import slots_of
from pyreplog.record import crc32c
from pyreplog.testing import SimDisk, crash_points, error_points
from pyreplog.verify.findings import Level, Report
from pyreplog.verify.queues import check_queues, queue_rows

IDENTITY = JournalIdentity("work", "AbCdEfGhIjKlMnOpQrStUw", 1)
PATH = "root/replog.queue-work"
SMALL_AREA = 900
"""So small that a few entries fill it."""

Fact = tuple[Literal["tries", "accepted"], int]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_journal, "_AREA_SIZE", SMALL_AREA)


def made() -> SimDisk:
    disk = SimDisk()
    disk.make_directory("root")
    return disk


def opened(disk: SimDisk, *, is_sync: bool = True) -> QueueJournal:
    return QueueJournal.open(disk, PATH, IDENTITY, is_sync=is_sync)


def acquire(journal: QueueJournal, count: int, now_ns: int = 0) -> list[int]:
    """Acquire records of an endless log, and return their offsets: the short way if that is open."""
    next_offset = journal.state.next_offset
    if count == 1 and not journal.state.available and not journal.state.workers and journal.acquire_next(now_ns + 30):
        return [next_offset]
    with journal as state:
        gone = journal.gone(list(state.workers))
        fresh = range(state.next_offset, state.next_offset + count)
        choice = state.choose(count, fresh, now_ns, gone)
        runs = [*choice.exhausted, *choice.again, *choice.new]
        if runs:
            journal.append(Acquired(journal.worker, now_ns + 30, 0, runs))
        return [offset for run in runs for offset in range(run[0], run[0] + run[1])]


def accept(journal: QueueJournal, offsets: list[int]) -> None:
    if len(offsets) == 1 and journal.accept_one(offsets[0], 1):
        return
    with journal:
        for offset in offsets:
            journal.append(Accepted([(offset, 1)]))


def finished(state: QueueState) -> set[int]:
    """The offsets that no worker will get any more."""
    return {offset for offset in range(state.next_offset) if offset not in {**state.available, **state.acquired}}


def test_all_workers_have_one_picture(small: None) -> None:
    """What one worker appended the others apply before their next change, also over several turns of the areas."""
    disk = made()
    workers = [opened(disk, is_sync=False) for _ in range(3)]
    taken: list[int] = []
    for number in range(200):
        worker = workers[number * 7 % 3]
        offsets = acquire(worker, 1 + number % 3)
        taken += offsets
        accept(worker, offsets[:-1])
        if number % 5 == 0 and offsets:
            with worker:
                worker.append(Released([(offsets[-1], 1)]))
        else:
            accept(worker, offsets[-1:])
    snapshots = []
    for worker in workers:
        with worker as state:
            snapshots.append(state.snapshot())
    assert snapshots[0] == snapshots[1] == snapshots[2]
    identity, state = read_queue(disk, PATH)
    assert (identity, state.snapshot()) == (IDENTITY, snapshots[0])
    assert finished(state) | set(state.available) == set(taken)
    stat = disk.stat(PATH)
    assert stat is not None
    assert stat.size <= QUEUE_FILE_SIZE


def test_a_worker_that_slept_through_two_turns_notices(small: None) -> None:
    """Its area is in use again, with other entries: it reads all of it, and appends behind them."""
    disk = made()
    sleeper, busy = opened(disk, is_sync=False), opened(disk, is_sync=False)
    sequence = busy._sequence
    while busy._sequence < sequence + 2:
        accept(busy, acquire(busy, 1))
    with sleeper as state:
        assert state.snapshot() == busy.state.snapshot()
    accept(sleeper, acquire(sleeper, 1))
    with busy as state:
        assert state.snapshot() == sleeper.state.snapshot()


def test_the_short_way_is_refused_after_another_workers_change(small: None) -> None:
    """It appends only what was derived from the newest state: nothing is lost, and nothing is delivered twice."""
    disk = made()
    one, other = opened(disk, is_sync=False), opened(disk, is_sync=False)
    with one:
        pass
    assert one.acquire_next(30)
    assert not other.acquire_next(30)
    assert not other.accept_one(0, 1)
    with other:
        assert not one.accept_one(0, 1)
    assert not one.accept_one(0, 2)
    assert one.accept_one(0, 1)
    assert not one.accept_one(0, 1)
    assert acquire(other, 1) == [1]
    with one:
        pass
    while one.append_unchanged(Released([(1, 1)])) and one.append_unchanged(Acquired(one.worker, 30, 0, [(1, 1, 2)])):
        pass
    with other as state:
        assert state.snapshot() == one.state.snapshot()
    assert other._position + 60 > other._end, "the area was not full"


def test_a_worker_that_ended_gives_its_records_back_at_once() -> None:
    """Without any entry of its own, and before the lock of its records ends."""
    disk = made()
    one, other = opened(disk), opened(disk)
    offsets = acquire(one, 5)
    assert acquire(other, 2, now_ns=1) == [5, 6]
    one.close()
    assert acquire(other, 9, now_ns=2)[:5] == offsets
    assert other.state.acquired[0] == (other.worker, 2, 32)


def test_a_lock_that_ended_is_the_next_workers() -> None:
    """After the deadline another worker gets the record; then the first one has lost it."""
    disk = made()
    one, other = opened(disk), opened(disk)
    acquire(one, 1)
    assert acquire(other, 1, now_ns=29) == [1]
    assert acquire(other, 1, now_ns=30) == [0]
    with one as state:
        assert state.lost(one.worker, [(0, 1)]) == [0]


def life(disk: SimDisk, acknowledged: list[Fact], *, is_sync: bool) -> None:
    disk.make_directory("root")
    disk.sync_directory(".")
    workers = [opened(disk, is_sync=is_sync), opened(disk, is_sync=is_sync)]
    sequence = workers[1]._sequence
    for number in range(16):
        worker = workers[number % 2]
        offsets = acquire(worker, 3, now_ns=number)
        for offset in offsets[: 2 + number % 2]:
            acknowledged.append(("tries", offset))
            accept(worker, [offset])
            if is_sync:
                worker.sync()
            acknowledged.append(("accepted", offset))
        if number == 5:
            workers[0].close()
            workers[0] = opened(disk, is_sync=is_sync)
    assert workers[0]._sequence > sequence + is_sync, "no area was full"


def check_life(disk: SimDisk, acknowledged: Sequence[Fact], *, is_sync: bool, lost_power: bool) -> None:
    """Every accepted record stays accepted, and every other one is delivered again."""
    if disk.stat("root") is None:
        assert not acknowledged
        return
    journal = opened(disk, is_sync=is_sync)
    tried = {fact[1] for fact in acknowledged}
    accepted = {fact[1] for fact in acknowledged if fact[0] == "accepted"}
    with journal as state:
        done = finished(state)
    assert done <= tried, "records are lost"
    if is_sync or not lost_power:
        assert accepted <= done, "accepted records are delivered again"
    again = acquire(journal, 10)
    assert not set(again) & done
    assert acquire(journal, 1)
    assert read_queue(disk, PATH)[1].snapshot() == journal.state.snapshot()


@pytest.mark.parametrize("is_sync", [True, False])
def test_power_loss_at_every_call(small: None, is_sync: bool) -> None:
    """No record is lost. An accept of a ``sync`` log that returned holds; one of an ``os`` log may be undone."""
    for seed in (1, 2):
        report = crash_points(
            partial(life, is_sync=is_sync),
            partial(check_life, is_sync=is_sync, lost_power=True),
            seed=seed,
            damages=4,
            kills=False,
        )
        assert report.states > 100


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_kill_at_every_call(small: None, is_sync: bool) -> None:
    """No record is lost, and every accept that returned holds, whatever the durability of the log."""
    for seed in (3,):
        report = crash_points(
            partial(life, is_sync=is_sync),
            partial(check_life, is_sync=is_sync, lost_power=False),
            seed=seed,
            damages=0,
            compound=0,
        )
        assert report.states > 100


def test_an_error_at_every_call(small: None) -> None:
    """A call that fails is raised, and changes nothing that a later opening could miss."""

    def workload(disk: SimDisk, facts: list[Fact]) -> None:
        try:
            life(disk, facts, is_sync=True)
        except StorageError:
            pass

    def check(disk: SimDisk, facts: Sequence[Fact]) -> None:
        disk.clear_faults()
        disk.kill()
        check_life(disk, facts, is_sync=True, lost_power=False)

    report = error_points(workload, check, seed=1, errors=(errno.EIO, errno.ENOSPC), every=3)
    assert report.errors > 100


def test_a_refused_write_changes_nothing() -> None:
    """A write that fails with a part of its bytes leaves the state as it was; the next entry replaces the part."""
    disk = made()
    one, other = opened(disk), opened(disk)
    offsets = acquire(one, 2)
    disk.fail("write", partial=9)
    with pytest.raises(StorageError):
        accept(one, offsets[:1])
    with other as state:
        assert sorted(state.acquired) == offsets
    accept(one, offsets)
    with other as state:
        assert not state.acquired


def test_a_write_that_failed_after_its_last_byte_counts() -> None:
    """Others find the entry, so the one that appended it must not raise."""
    disk = made()
    one, other = opened(disk), opened(disk)
    offsets = acquire(one, 1)
    disk.fail("write", partial=1000)
    accept(one, offsets)
    with other as state:
        assert not state.acquired
    assert acquire(one, 1) == [1]


def test_a_new_journal_needs_the_room_for_both_areas() -> None:
    """On a full disk the opening fails, and succeeds later."""
    disk = made()
    disk.capacity = 10_000
    with pytest.raises(StorageError) as caught:
        opened(disk)
    assert caught.value.errno == errno.ENOSPC
    disk.capacity = None
    assert acquire(opened(disk), 1) == [0]


@pytest.mark.parametrize(
    ("identity", "error"),
    [
        (IDENTITY._replace(topic_id="BbCdEfGhIjKlMnOpQrStUw"), TopicRecreatedError),
        (IDENTITY._replace(partition=2), ConfigError),
        (IDENTITY._replace(name="other"), ConfigError),
    ],
)
def test_the_journal_of_another_queue_is_refused(identity: JournalIdentity, error: type[Exception]) -> None:
    """A log that was made again has other records at the same offsets."""
    disk = made()
    opened(disk).close()
    with pytest.raises(error):
        QueueJournal.open(disk, PATH, identity, is_sync=True)


def test_a_topic_without_an_id_keeps_its_journal_when_it_gets_one() -> None:
    """Logs from before Kafka 2.8 get their id from their first newer writer."""
    disk = made()
    old = QueueJournal.open(disk, PATH, IDENTITY._replace(topic_id=""), is_sync=False)
    acquire(old, 3)
    old.close()
    new = opened(disk)
    assert new.state.next_offset == 3
    assert read_queue(disk, PATH)[0] == IDENTITY


def test_damage_of_both_slots_is_an_error_and_of_a_fresh_file_is_not() -> None:
    """A journal that was used is never taken for a new one, which would deliver every record again."""
    disk = made()
    journal = opened(disk)
    acquire(journal, 3)
    journal.close()
    for position in (20, 532):
        disk.flip(PATH, position)
    with pytest.raises(CorruptError):
        opened(disk)
    with pytest.raises(CorruptError):
        read_queue(disk, PATH)


def test_a_file_of_other_bytes_is_an_error() -> None:
    """It is no journal whose first writer was interrupted: the rest of that one would be zeros."""
    disk = made()
    file = disk.create(PATH)
    file.write_at(0, [Random(1).randbytes(QUEUE_FILE_SIZE)])
    file.close()
    with pytest.raises(CorruptError, match="neither slot"):
        opened(disk)


@pytest.mark.parametrize("missing", [1, QUEUE_FILE_SIZE // 2, QUEUE_FILE_SIZE - 700])
def test_what_power_loss_leaves_of_a_new_file_is_a_new_one(missing: int) -> None:
    """Power loss may leave any bytes of writes that were not synced; the last byte comes behind the first slot."""
    disk = made()
    file = disk.create(PATH)
    file.write_at(0, [Random(1).randbytes(QUEUE_FILE_SIZE - missing)])
    book = Report()
    check_queues(disk, "root", ["replog.queue-work"], book)
    assert not book.findings
    journal = opened(disk)
    assert acquire(journal, 1) == [0]
    assert file.size() == QUEUE_FILE_SIZE


def test_a_flipped_byte_is_noticed_wherever_it_is() -> None:
    """Damage is an error or undoes the newest entries; it never finishes a record that no worker accepted."""
    random = Random(7)
    template = made()
    journal = opened(template, is_sync=False)
    accept(journal, acquire(journal, 3))
    acquire(journal, 4)
    journal.close()
    done = {0, 1, 2}
    used = [*range(64), *range(512, 576), *range(1024, 1040), *range(4096, 4400), *range(135168, 135500)]
    for position in random.sample(used, 200):
        disk = template.snapshot()
        disk.flip(PATH, position, 1 << random.randrange(8))
        try:
            damaged = opened(disk)
        except (CorruptError, ConfigError):
            continue
        assert finished(damaged.state) <= done


def entry_positions(disk: SimDisk) -> list[int]:
    """Where the entries of the area in use begin, and where they end."""
    data = bytes(disk.open(PATH).read_at(0, QUEUE_FILE_SIZE))
    newest = max(slots_of(data), key=lambda slot: slot.sequence)
    start = queue_journal._area_position(newest.sequence)
    found = queue_journal._entries(data[start : start + 5000], queue_journal._seed(newest.sequence, newest.topic_id))
    return [start, *(start + end for _, _, end in found)]


@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("at", [0, 3, 6, 8, 12])
def test_a_rotten_entry_is_told_with_its_place(is_sync: bool, at: int) -> None:
    """Size, checksum or content of an entry in the middle: the next opening says where the entries end, and where the
    next whole one is; it goes on there, and finishes no record that was not accepted before."""
    disk = made()
    journal = opened(disk, is_sync=is_sync)
    for offset in range(6):
        acquire(journal, 1)
        accept(journal, [offset])
    journal.close()
    places = entry_positions(disk)
    number = 4  # of the snapshot, the joined worker, and an acquired and an accepted entry for each record
    disk.flip(PATH, places[number] + at)
    told: list[str] = []
    again = QueueJournal.open(disk, PATH, IDENTITY, is_sync=is_sync, on_damage=told.append)
    assert len(told) == 1
    assert told[0].startswith(f"{PATH}: the ")
    assert f"at byte {places[number]} are no whole entry" in told[0]
    # A changed size hides where the damaged entry ends; the one behind it is found all the same.
    assert f"a whole one follows at byte {places[number + 1]}" in told[0]
    assert "delivered again" in told[0]
    assert finished(again.state) == {0}
    told.clear()
    again.close()
    QueueJournal.open(disk, PATH, IDENTITY, is_sync=is_sync, on_damage=told.append)
    assert not told, "the areas have turned"


def test_a_rotten_last_entry_is_told_too() -> None:
    """It cannot be told from a write within which a worker ended; the text says both."""
    disk = made()
    journal = opened(disk)
    accept(journal, acquire(journal, 1))
    journal.close()
    places = entry_positions(disk)
    disk.flip(PATH, places[-2] + 9)
    told: list[str] = []
    again = QueueJournal.open(disk, PATH, IDENTITY, is_sync=True, on_damage=told.append)
    assert f"the {places[-1] - places[-2]} bytes at byte {places[-2]}" in told[0]
    assert "a worker ended within a write" in told[0]
    assert finished(again.state) == set()


def test_a_worker_that_meets_a_rotten_entry_tells() -> None:
    """The entries of another worker since its last look."""
    disk = made()
    one = opened(disk, is_sync=False)
    told: list[str] = []
    other = QueueJournal.open(disk, PATH, IDENTITY, is_sync=False, on_damage=told.append)
    offsets = acquire(one, 3)
    before = entry_positions(disk)[-2]
    accept(one, offsets)
    disk.flip(PATH, before + 10)
    with other as state:
        assert state.next_offset == 0
    assert f"byte {before} " in told[0]


@pytest.mark.parametrize("position", [0, 4, 8, 15, 30, 54])
def test_a_rotten_slot_loses_nothing(small: None, position: int) -> None:
    """The area in use is found without it, because its entries continue the next sequence number."""
    disk = made()
    journal = opened(disk, is_sync=False)
    while journal._sequence < 3:
        accept(journal, acquire(journal, 1))
    accept(journal, acquire(journal, 1))
    expected = journal.state.snapshot()
    assert expected.next_offset
    used = queue_slots.SLOT_POSITIONS[journal._sequence % 2]
    journal.close()
    disk.flip(PATH, used + position)
    told: list[str] = []
    again = QueueJournal.open(disk, PATH, IDENTITY, is_sync=False, on_damage=told.append)
    assert again.state.snapshot()._replace(last_worker=expected.last_worker) == expected
    assert not told
    again.close()
    assert opened(disk).state.next_offset == expected.next_offset


def test_verify_tells_of_a_rotten_slot() -> None:
    """It shows what the next opening finds."""
    disk = made()
    for _ in range(3):  # each opening for a sync log turns the areas
        journal = opened(disk)
        accept(journal, acquire(journal, 1))
        journal.close()
    used = queue_slots.SLOT_POSITIONS[journal._sequence % 2]
    disk.flip(PATH, used + 10)
    book = Report()
    check_queues(disk, "root", ["replog.queue-work"], book)
    (finding,) = book.findings
    assert (finding.level, finding.position) == (Level.WARNING, used)
    assert "nothing is lost" in finding.advice
    (row,) = queue_rows(bytes(disk.open(PATH).read_at(0, QUEUE_FILE_SIZE)))
    assert (row["accepted"], row["sequence"]) == (3, journal._sequence)
    assert opened(disk).state.accepted_count == 3


def test_a_journal_of_a_newer_version_is_left_alone() -> None:
    """It is an error that says so, and the file stays as it is."""
    disk = made()
    opened(disk).close()
    file = disk.open(PATH, write=True)
    for position in queue_slots.SLOT_POSITIONS:
        slot = bytearray(file.read_at(position, queue_slots.SLOT_SIZE))
        slot[5] = 2
        slot[-4:] = crc32c(slot[:-4]).to_bytes(4, "big")
        file.write_at(position, [slot])
    with pytest.raises(CorruptError, match="newer pyreplog"):
        opened(disk)
