"""Edge cases 105 to 116: retention, leader epochs, checkpoints, folders, roots."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, LockedError, StorageError
from pyreplog.log import EpochCache, LogRoot, parse_directory_name
from pyreplog.log.epochs import read_epochs, write_epochs
from pyreplog.log.snapshot import parse_offsets, read_offsets, write_offsets
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.interop.edges.support import filled
from tests.interop.edges.test_loading import ID, KEY, begun, root_of
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch, contents, sync
from tests.unit.log.test_epochs import compare
from tests.unit.log.test_retention import begin


@pytest.mark.parametrize(
    "settings", [{"retention_ms": 1000}, {"retention_bytes": 0}, {"retention_ms": 0, "retention_bytes": 0}]
)
def test_e105_nothing_goes_above_the_high_watermark(place: Place, settings: dict[str, int]) -> None:
    """What followers or readers may still need stays, however old, much, or far below the log's start it is."""
    life = begin(place, durability="sync", **settings)
    life.append(6)
    assert life.bases() == [0, 2, 4]
    life.clock.now_ms += 10**6
    sync(place.disk, life.log)
    for mark, left in ((0, [0, 2, 4]), (1, [0, 2, 4]), (2, [2, 4]), (3, [2, 4]), (4, [4]), (5, [4]), (6, [6])):
        life.log.advance_high_watermark(mark)
        life.log.apply_retention(confirmed=True)
        assert (life.bases(), life.log.start_offset) == (left, left[0]), mark
    assert life.log.end_offset == 6
    life.log.close(clean=True)


def test_e106_a_second_run_does_nothing(place: Place) -> None:
    """Retention run again at once removes nothing more, and changes no file."""
    log = filled(place, retention_bytes=2048)
    log.set_high_watermark(log.end_offset)
    assert log.apply_retention(confirmed=True) > 0
    before = (log.segments(), log.start_offset, sorted(place.disk.list(place.of("t-0"))))
    assert log.apply_retention(confirmed=True) == 0
    assert (log.segments(), log.start_offset, sorted(place.disk.list(place.of("t-0")))) == before
    log.close(clean=True)


def test_e107_a_passed_start_unblocks(place: Place) -> None:
    """A young segment wholly below the log's start goes first, and the old ones behind it go in the same run."""
    life = begin(place, retention_ms=1000)
    now = life.clock.now_ms
    life.append(2, timestamp=now + 10**6)
    life.append(2, timestamp=now - 5000)
    life.append(2, timestamp=now)
    assert life.log.apply_retention() == 0
    assert life.bases() == [0, 2, 4]
    # Not by a start that is within it.
    life.log.increment_start_offset(1)
    assert life.log.apply_retention() == 0
    life.log.increment_start_offset(2)
    assert life.log.apply_retention() == 2
    assert (life.bases(), life.log.start_offset) == ([4], 4)
    life.log.close(clean=True)


def test_e108_the_active_segment_goes_by_a_roll(place: Place) -> None:
    """Where everything is too old, an empty segment begins at the end; it stays, is never removed, and appends go
    on there."""
    life = begin(place, retention_ms=1000)
    life.append(3)
    active = life.bases()[-1]
    life.clock.now_ms += 2000
    assert life.log.apply_retention() == 2
    assert life.bases() == [3]
    assert active != 3
    assert (life.log.start_offset, life.log.end_offset, life.log.high_watermark) == (3, 3, 3)
    for _ in range(3):
        life.clock.now_ms += 10**7
        assert life.log.apply_retention() == 0
        assert life.bases() == [3]
    life.append(1)
    assert [record.offset for record in contents(life.log)] == [3]
    assert life.reopen().recovery.clean
    assert (life.log.start_offset, life.log.end_offset) == (3, 4)
    life.log.close(clean=True)


def test_e109_by_size_to_the_byte(place: Place) -> None:
    """A segment goes as long as at least retention.bytes is left without it, the limit itself included, and not
    with one byte less."""
    life = begin(place)
    life.append(8)
    assert life.bases() == [0, 2, 4, 6]
    one = life.log.stats().size // 4
    for limit, left in (
        (4 * one, [0, 2, 4, 6]),
        (3 * one + 1, [0, 2, 4, 6]),
        (3 * one, [2, 4, 6]),
        (2 * one + 1, [2, 4, 6]),
        (2 * one, [4, 6]),
        (one + 1, [4, 6]),
        (one, [6]),
        (1, [6]),
    ):
        life.log.update_config(
            LogConfig(durability="os", segment_bytes=1024, index_interval_bytes=100, retention_bytes=limit)
        )
        life.log.apply_retention()
        assert life.bases() == left, limit
        assert [record.offset for record in contents(life.log)] == list(range(left[0], 8)), limit
        assert life.log.apply_retention() == 0
    assert [record.offset for record in contents(life.log)] == [6, 7]
    life.log.close(clean=True)


def test_e112_the_history_of_leader_epochs(place: Place) -> None:
    """Every rule of it by hand, and whatever is done to it as its slow twin; kept in its file from one opening to
    the next."""
    cache = EpochCache()
    assert (cache.latest, list(cache.entries), tuple(cache.end_offset_for(0, 20)), cache.epoch_for_offset(5)) == (
        -1,
        [],
        (-1, -1),
        -1,
    )
    assert not cache.truncate_from_end(0)
    assert not cache.truncate_from_start(10)
    for epoch, start, changes in ((0, 0, True), (0, 5, False), (3, 17, True), (3, 30, False), (5, 40, True)):
        assert cache.assign(epoch, start) is changes
    assert [tuple(entry) for entry in cache.entries] == [(0, 0), (3, 17), (5, 40)]
    answers = {-1: (-1, -1), 0: (0, 17), 1: (0, 17), 2: (0, 17), 3: (3, 40), 4: (3, 40), 5: (5, 50), 6: (-1, -1)}
    assert {epoch: tuple(cache.end_offset_for(epoch, 50)) for epoch in answers} == answers
    assert [cache.epoch_for_offset(offset) for offset in (0, 16, 17, 39, 40, 10**9)] == [0, 0, 3, 3, 5, 5]
    # Older than everything: the epoch that was asked for, and where the first begins.
    assert cache.truncate_from_start(20)
    assert [tuple(entry) for entry in cache.entries] == [(3, 20), (5, 40)]
    assert tuple(cache.end_offset_for(1, 50)) == (1, 20)
    assert not cache.truncate_from_start(20)
    # An older epoch, or a lower start, takes the place of what it contradicts.
    assert cache.assign(4, 30)
    assert [tuple(entry) for entry in cache.entries] == [(3, 20), (4, 30)]
    assert not cache.truncate_from_end(31)
    assert cache.truncate_from_end(30)
    assert [tuple(entry) for entry in cache.entries] == [(3, 20)]
    random = Random(112)
    for _ in range(400):
        steps: list[tuple[object, ...]] = []
        for _ in range(random.randrange(12)):
            name = random.choice(("assign", "truncate_from_end", "truncate_from_start"))
            steps.append((name, *(random.randrange(13) for _ in range(2 if name == "assign" else 1))))
        compare(EpochCache(), steps)
    assert read_epochs(place.disk, place.path) is None
    for entries in ([], [(0, 0)], [(0, 0), (3, 17), (4, 2**40)]):
        write_epochs(place.disk, place.path, EpochCache(entries), durable=True)
        again = read_epochs(place.disk, place.path)
        assert again == EpochCache(entries)
        assert again is not None
        assert again.assign(9, 2**41)


def test_e113_checkpoints(place: Place) -> None:
    """An empty file, many lines, one written over another; a wrong version, number, count or line is refused; and
    where the folder is gone nothing can be written, and it is said."""
    path = place.of("recovery-point-offset-checkpoint")
    name = "recovery-point-offset-checkpoint"
    place.write(name, b"")
    assert read_offsets(place.disk, path) == {}
    place.write(name, b"0\n")
    assert read_offsets(place.disk, path) == {}
    many = {TopicPartition("t", number): number * 2**40 for number in range(5000)}
    write_offsets(place.disk, path, many)
    assert read_offsets(place.disk, path) == many
    assert place.read(name).startswith(b"0\n5000\nt 0 0\nt 1 1099511627776\n")
    few = {TopicPartition("a.b-c", 7): 5}
    write_offsets(place.disk, path, few)
    assert place.read(name) == b"0\n1\na.b-c 7 5\n"
    assert read_offsets(place.disk, path) == few
    assert [one for one in place.disk.list(place.path) if one.startswith(name)] == [name]
    assert parse_offsets(b"0\n1\nt \t 3   4\n", "x") == {TopicPartition("t", 3): 4}
    for bad in (
        b"1\n0\n",
        b"-1\n0\n",
        b"x\n0\n",
        b"0\n1\n",
        b"0\n0\nt 0 0\n",
        b"0\n2\nt 0 0\n",
        b"0\nx\n",
        b"0\n-1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 0 0\n",
        b"0\n1\nt 0 x\n",
        b"0\n1\nt x 0\n",
        b"\xff\xfe",
    ):
        with pytest.raises(CorruptError) as caught:
            parse_offsets(bad, "the-file")
        assert caught.value.file == "the-file"
    with pytest.raises(StorageError) as refused:
        write_offsets(place.disk, place.of("gone/recovery-point-offset-checkpoint"), {})
    assert refused.value.errno == errno.ENOENT
    # Beside other work, too: a root whose log's folder somebody took away says so, and does not
    # make it anew.
    root = root_of(place)
    log = begun(root)
    for one in list(place.disk.list(place.of("root/events-0"))):
        place.disk.remove(place.of(f"root/events-0/{one}"))
    _remove_folder(place, "root/events-0")
    with pytest.raises(StorageError):
        log.become_leader(5)
    root.close(clean=False)


def _remove_folder(place: Place, name: str) -> None:
    """As somebody else would."""
    if isinstance(place.disk, SimDisk):
        place.disk.remove_directory(place.of(name))
    else:
        Path(place.of(name)).rmdir()


def test_e114_names_of_folders(place: Place) -> None:
    """Without a dash, a topic or a partition, or with a partition that is none, a folder is no partition's; dots
    and dashes belong to the topic; a folder on its way out has a name of 255 bytes at most, and is known for what
    it is."""
    for name in (
        "topic",
        "",
        "-0",
        "-",
        "t-",
        "t-x",
        "t-1x",
        "t-01",
        "t--",
        "t-1.5",
        "t-\u0663",
        "t-99999999999",
        "t-0-delete",
        "t.0-delete",
        "..-0",
    ):
        assert parse_directory_name(name) is None, name
    unique = "0123456789abcdef0123456789abcdef"
    for name, topic, partition, kind in (
        ("t-0", "t", 0, ""),
        ("a-b.c-12", "a-b.c", 12, ""),
        ("a--1", "a-", 1, ""),
        (f"a.b.c-3.{unique}-delete", "a.b.c", 3, "delete"),
        (f"a-b-3.{unique}-stray", "a-b", 3, "stray"),
        (f"a.b-c-1.{unique}-future", "a.b-c", 1, "future"),
    ):
        parsed = parse_directory_name(name)
        assert parsed is not None
        assert (*parsed.topic_partition, parsed.kind) == (topic, partition, kind)
    longest = "t" * 240 + ".dots.x-y"
    assert len(longest) == 249
    root = root_of(place)
    root.create_log(longest, 7, ID, LogConfig())
    assert parse_directory_name(f"{longest}-7") is not None
    stray = root.move_to_stray(TopicPartition(longest, 7)).rpartition("/")[2]
    assert len(stray) <= 255
    parsed = parse_directory_name(stray)
    assert parsed is not None
    assert parsed.kind == "stray"
    root.close()
    again = root_of(place, seed=2)
    assert TopicPartition(longest, 7) not in again.logs
    again.close()


@pytest.mark.parametrize("place", ["sim"], indirect=True)
def test_e114_on_its_way_out(place: Place) -> None:
    """A removal that was interrupted leaves such a name, and the next opening ends it."""
    disk = place.disk
    assert isinstance(disk, SimDisk)
    longest = "t" * 240 + ".dots.x-y"
    root = root_of(place)
    root.create_log(longest, 2**31 - 1, ID, LogConfig())
    fault = disk.fail("remove", "*-delete/*", error=errno.EIO, times=None)
    with pytest.raises(StorageError):
        root.remove_log(TopicPartition(longest, 2**31 - 1))
    assert fault.hits
    disk.clear_faults()
    (name,) = [one for one in disk.list(place.of("root")) if one.endswith("-delete")]
    assert len(name) == 255
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert parsed.kind == "delete"
    root.close(clean=False)
    again = root_of(place, seed=2)
    assert not [one for one in disk.list(place.of("root")) if "-delete" in one or one.startswith("ttt")]
    again.close()


def test_e115_one_writer_of_a_root(place: Place) -> None:
    """A second opening is refused while the first lives, whatever it did meanwhile, and says who has it; after a
    close it works."""
    root = root_of(place)
    for work in (lambda: None, lambda: begun(root), lambda: root.checkpoint_recovery_points()):
        work()
        with pytest.raises(LockedError, match="already open"):
            root_of(place, seed=2)
    assert contents(root.logs[KEY])[0].offset == 0
    other = root_of(place, "other", seed=3)
    other.close()
    for clean in (True, False):
        root.close(clean=clean)
        root = root_of(place, seed=4 + clean)
        with pytest.raises(LockedError):
            root_of(place, seed=6)
    root.close()


@pytest.mark.parametrize("place", ["sim"], indirect=True)
@pytest.mark.parametrize("how", ["poisoned", "while closing"])
def test_e116_a_failing_log_spoils_its_own_root(place: Place, how: str) -> None:
    """Of two roots the one with a failing log gets no marker of a clean stop; the other one does, and so do the
    failing one's other logs have all of their records."""
    disk = place.disk
    assert isinstance(disk, SimDisk)
    roots = {name: root_of(place, name, seed) for seed, name in enumerate(("bad", "good"))}
    for root in roots.values():
        begun(root)
        other = root.create_log("others", 1, ID, LogConfig())
        other.become_leader(0)
        other.append_as_leader(batch(4), 0)
    if how == "poisoned":
        roots["bad"].logs[KEY].poison(OSError("a sync failed"))
        roots["bad"].close()
    else:
        roots["bad"].logs[KEY].append_as_leader(batch(3), 0)
        fault = disk.fail("sync", "*bad/events-0/*.log", error=errno.EIO, times=None)
        with pytest.raises(StorageError):
            roots["bad"].close()
        assert fault.hits
        disk.clear_faults()
    roots["good"].close()
    marker = ".kafka_cleanshutdown"
    assert disk.stat(place.of(f"bad/{marker}")) is None
    assert disk.stat(place.of(f"good/{marker}")) is not None
    for name, clean in (("bad", False), ("good", True)):
        again = LogRoot.open(disk, place.of(name), clock=CLOCK, random=Random(9))
        assert again.clean is clean
        assert len(contents(again.logs[TopicPartition("others", 1)])) == 4
        assert len(contents(again.logs[KEY])) >= 9
        again.close()
