"""Backups on the simulated disk: crashed at every call, refused at every call, and of sources that lose records in
order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import pytest

from pyreplog.backups import make
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, PyreplogError, UnfinishedBackupError
from pyreplog.log import Log, LogRoot, open_readers
from pyreplog.testing import SimDisk, crash_points, error_points
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, verify
from tests.unit.log.support import CLOCK, batch, sync

SOURCE: Final = "/source"
TARGET: Final = "/target"
SMALL: Final = LogConfig.from_mapping({"segment.bytes": 1024, "index.interval.bytes": 100, "durability": "sync"})
KEYS: Final = (TopicPartition("a", 0), TopicPartition("a", 1))

Content = dict[TopicPartition, tuple[int, list[tuple[int, int]]]]
"""Of each partition its start, and offset and checksum of each batch."""


def topic_id_in(root: LogRoot, topic: str) -> str:
    """The id of ``topic`` in ``root``, or a new one if it has no partition there: the partitions of a topic share
    its id."""
    return next((log.topic_id for key, log in root.logs.items() if key.topic == topic), "") or root.new_topic_id()


def open_source(disk: SimDisk) -> LogRoot:
    """The root that is backed up, with two partitions."""
    root = LogRoot.open(disk, SOURCE, clock=CLOCK, random=Random(5))
    for key in KEYS:
        if key not in root.logs:
            root.create_log(key.topic, key.partition, topic_id_in(root, key.topic), SMALL)
        log = root.logs[key]
        log.become_leader(log.epochs.latest + 1)
    return root


def append(disk: SimDisk, log: Log, count: int, *, sequence: int = -1) -> None:
    """``count`` batches of two records, durable and shown to readers; producer 7 sends them if it has a
    ``sequence``."""
    for number in range(count):
        sent = -1 if sequence < 0 else sequence + 2 * number
        log.append_as_leader(batch(2, size=100, sequence=sent), log.epochs.latest)
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()


def content(disk: SimDisk, folder: str) -> Content:
    """What readers see of every partition under ``folder``."""
    found: Content = {}
    for key, reader in open_readers(disk, folder).items():
        held = reader.batches(reader.start_offset, reader.end_offset)
        found[key] = (reader.start_offset, [(one.base_offset, one.crc) for one in held])
        reader.close()
    return found


def back_up(disk: SimDisk) -> Content:
    """Make the backup, which is sound and holds what readers of the source see."""
    make(disk, SOURCE, TARGET, random=Random(6))
    book = verify(disk, TARGET)
    assert book.worst is Level.NOTE, book.findings
    found = content(disk, TARGET)
    assert found == content(disk, SOURCE)
    return found


def life(disk: SimDisk, whole: list[Content]) -> None:
    """Two backups, with records and a raised start between them."""
    root = open_source(disk)
    for number in range(2):
        for key in KEYS:
            append(disk, root.logs[key], 7)
        if number:
            log = root.logs[KEYS[0]]
            log.increment_start_offset(10)
            log.write_mark()
            log.apply_retention()
        make(disk, SOURCE, TARGET, random=Random(6 + number))
        whole.append(content(disk, TARGET))


def check(disk: SimDisk, whole: Sequence[Content]) -> None:
    """A backup that can be opened is one that was finished; the next run finishes what was begun, and the result
    can be appended to."""
    stat = disk.stat(TARGET)
    if stat is not None and "replog.backup" in disk.list(TARGET):
        try:
            there = content(disk, TARGET)
        except UnfinishedBackupError:
            there = None
        if there is not None:
            book = verify(disk, TARGET)
            assert book.worst is Level.NOTE, book.findings
            assert set(there) == set(KEYS)
            assert all(held for _, held in there.values())
            assert not whole or all(there[key][1][-1] >= whole[-1][key][1][-1] for key in KEYS)
    else:
        assert not whole
    root = open_source(disk)
    for key in KEYS:
        append(disk, root.logs[key], 3)
    back_up(disk)
    root.close()
    restored = disk.snapshot()  # what is written to it is no part of the run that is crashed
    copy = LogRoot.open(restored, TARGET, clock=CLOCK, random=Random(8))
    assert copy.clean
    for key in KEYS:
        log = copy.logs[key]
        assert not log.incomplete
        log.become_leader(log.epochs.latest + 1)
        append(restored, log, 1)
    copy.close()


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.soak)])
def test_a_backup_may_be_crashed_at_every_call(every: int) -> None:
    """Never taken for whole before it is; the next run goes on from whatever a crash left, and may be crashed
    too."""
    report = crash_points(life, check, seed=1, damages=1, every=every)
    assert report.states > 20


@pytest.mark.parametrize("every", [801, pytest.param(5, marks=pytest.mark.soak)])
def test_every_call_of_a_backup_may_be_refused(every: int) -> None:
    """An error of the disk ends the run with that error, and the next one goes on."""
    report = error_points(life, check, seed=1, damages=1, every=every)
    assert report.errors > 10


def test_records_that_were_deleted_leave_the_backup() -> None:
    """The start of the source is that of the backup, and segments below it go, also if all that the backup had is
    deleted."""
    disk = SimDisk()
    root = open_source(disk)
    log = root.logs[KEYS[0]]
    append(disk, log, 10)
    back_up(disk)
    before = set(disk.list(f"{TARGET}/a-0"))
    for start in (11, 20, 34):
        append(disk, log, 7)
        log.increment_start_offset(start)
        log.write_mark()
        log.apply_retention()
        assert back_up(disk)[KEYS[0]][0] == start
    assert not {name for name in before if name.endswith(".log")} & set(disk.list(f"{TARGET}/a-0"))


def test_topics_that_went_or_were_made_again_are_set_aside() -> None:
    """The records of the last backup are kept under Kafka's name for a stray partition, and the report says
    where."""
    disk = SimDisk()
    root = open_source(disk)
    for key in KEYS:
        append(disk, root.logs[key], 3)
    back_up(disk)
    for key in KEYS:
        root.remove_log(key)
    append_to = root.create_log("a", 0, root.new_topic_id(), SMALL)
    append_to.become_leader(0)
    append(disk, append_to, 1)
    report = make(disk, SOURCE, TARGET, random=Random(6))
    strays = [name for name in disk.list(TARGET) if name.endswith("-stray")]
    assert len(strays) == len(report.notes) == 2
    assert all(any(name in note for note in report.notes) for name in strays)
    assert content(disk, TARGET) == content(disk, SOURCE)
    assert set(content(disk, TARGET)) == {KEYS[0]}


def test_the_producers_of_deleted_records_are_known_to_the_backup() -> None:
    """A batch that is sent again after a restore is recognised, although only a snapshot tells of its producer."""
    disk = SimDisk()
    root = open_source(disk)
    log = root.logs[KEYS[0]]
    append(disk, log, 4, sequence=0)
    append(disk, log, 8)
    log.increment_start_offset(20)
    log.write_mark()
    log.apply_retention()
    back_up(disk)
    copy = LogRoot.open(disk, TARGET, clock=CLOCK, random=Random(8)).logs[KEYS[0]]
    copy.become_leader(copy.epochs.latest + 1)
    for one in (log, copy):
        assert one.append_as_leader(batch(2, size=100, sequence=6), one.epochs.latest).duplicate


def test_an_unsynced_tail_is_not_in_a_backup() -> None:
    """What lies above the high watermark, or is torn, stays out."""
    disk = SimDisk()
    root = open_source(disk)
    log = root.logs[KEYS[0]]
    append(disk, log, 2)
    log.append_as_leader(batch(2), log.epochs.latest)
    found = back_up(disk)
    assert [offset for offset, _ in found[KEYS[0]][1]] == [0, 2]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_backup_is_complete_after_the_machine_went_down(durability: str) -> None:
    """All of it was synced: power loss takes nothing, and no replica counts as one that may miss records."""
    disk = SimDisk()
    root = LogRoot.open(disk, SOURCE, clock=CLOCK, random=Random(5))
    for key in KEYS:
        log = root.create_log(
            key.topic, key.partition, topic_id_in(root, key.topic), LogConfig.from_mapping({"durability": durability})
        )
        log.become_leader(0)
        append(disk, log, 5)
    before = back_up(disk)
    for seed in range(20):
        lost = disk.crash(Random(seed))
        assert content(lost, TARGET) == before
        copy = LogRoot.open(lost, TARGET, clock=CLOCK, random=Random(8))
        assert not any(copy.logs[key].incomplete for key in KEYS)
        copy.close()


def test_a_wrong_or_missing_index_of_the_source_is_right_in_the_backup() -> None:
    """Both are made from the batches: retention may remove one at any moment, and power loss take its bytes."""
    disk = SimDisk()
    root = open_source(disk)
    append(disk, root.logs[KEYS[0]], 20)
    names = [name for name in disk.list(f"{SOURCE}/a-0") if name.endswith("index")]
    disk.flip(f"{SOURCE}/a-0/{names[0]}", 7)
    for name in names[2:4]:
        disk.remove(f"{SOURCE}/a-0/{name}")
    back_up(disk)


def test_rot_of_the_backup_is_found_by_the_next_run() -> None:
    """The error names the file; without that file the next run copies it again."""
    disk = SimDisk()
    root = LogRoot.open(disk, SOURCE, clock=CLOCK, random=Random(5))
    log = root.create_log(
        "a", 0, root.new_topic_id(), LogConfig.from_mapping({"segment.bytes": 10_000, "durability": "sync"})
    )
    log.become_leader(0)
    append(disk, log, 100)
    back_up(disk)
    file = f"{TARGET}/a-0/00000000000000000000.log"
    disk.flip(file, 100)
    with pytest.raises(CorruptError, match="remove the damaged file") as caught:
        make(disk, SOURCE, TARGET, random=Random(6))
    assert caught.value.file == file
    disk.remove(file)
    back_up(disk)


def test_an_error_in_the_middle_is_told_as_it_is() -> None:
    """No room: the run ends with the disk's error, and the backup is unfinished."""
    disk = SimDisk()
    root = open_source(disk)
    append(disk, root.logs[KEYS[0]], 20)
    disk.fail("write", nth=12, error=28)
    with pytest.raises(PyreplogError, match="No space"):
        make(disk, SOURCE, TARGET, random=Random(6))
    disk.clear_faults()
    with pytest.raises(UnfinishedBackupError):
        content(disk, TARGET)
    back_up(disk)
