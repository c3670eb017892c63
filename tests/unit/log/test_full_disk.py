"""Room for the small files of a root whose disk is full: opened, emptied and closed all the same."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, LockedError, StorageError
from pyreplog.log import LogRoot
from pyreplog.log.reserve import RESERVE_SIZE, RESERVE_STEP, keep_reserve, with_reserve
from pyreplog.log.snapshot import replace_file
from pyreplog.ports import File, Lock, Stat
from pyreplog.record import stamp
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import Call
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch, contents, sync

KEY = TopicPartition("events", 0)
ID = "AbCdEfGhIjKlMnOpQrStUw"
CONFIG = LogConfig(segment_bytes=1024, file_delete_delay_ms=0)
RESERVE = "data/replog.reserve"


@pytest.fixture
def disk() -> SimDisk:
    """With a folder for what is kept."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    return disk


def fill(disk: SimDisk) -> None:
    """Nobody finds room from now on."""
    disk.capacity = disk.used


def open_root(disk: SimDisk) -> LogRoot:
    return LogRoot.open(disk, "data/root", clock=CLOCK, random=Random(1))


def written(disk: SimDisk, *, clean: bool) -> int:
    """A root with a log of several segments, whose disk is full since; where it ends."""
    root = open_root(disk)
    log = root.create_log(*KEY, ID, CONFIG)
    log.become_leader(0)
    for _ in range(60):
        log.append_as_leader(batch(3), 0)
    log.high_watermark = log.end_offset
    sync(disk, log)
    end = log.end_offset
    if not clean:
        log.write_mark()
    root.close(clean=clean)
    return end


@pytest.mark.parametrize("clean", [True, False])
def test_a_full_disk_is_opened_and_emptied(disk: SimDisk, clean: bool) -> None:
    """After a stop in order or a kill: it opens with all its records, deletes some, takes new ones in their room,
    and closes in order."""
    end = written(disk, clean=clean)
    fill(disk)
    root = open_root(disk)
    assert not root.damaged
    log = root.logs[KEY]
    assert (log.start_offset, log.end_offset) == (0, end)
    with pytest.raises(StorageError, match="No space"):
        while True:
            log.append_as_leader(batch(3), 0)
    end = log.end_offset
    log.high_watermark = end
    assert log.delete_records(end - 3) == end - 3
    assert log.apply_retention() > 1
    root.checkpoint_log_starts()
    log.append_as_leader(batch(3), 0)
    root.close()
    again = open_root(disk)
    assert again.clean
    assert (again.logs[KEY].start_offset, again.logs[KEY].end_offset) == (end - 3, end + 3)
    again.close()


def test_a_log_is_closed_in_order_on_a_full_disk(disk: SimDisk) -> None:
    """Its indexes and its history find room, so that the next start needs no scan. Again and again the reserve is
    all there."""
    written(disk, clean=True)
    root = open_root(disk)
    root.logs[KEY].append_as_leader(batch(3), 0)
    fill(disk)
    root.close()
    for _ in range(40):
        root = open_root(disk)
        assert root.clean
        root.close()


def test_without_it_a_full_disk_is_an_error(disk: SimDisk) -> None:
    """That says so; nothing is changed, and there is a reserve again as soon as there is room."""
    end = written(disk, clean=True)
    disk.remove("data/root/replog.reserve")
    fill(disk)
    with pytest.raises(StorageError, match=r"No space left .*replog.incarnation.tmp"):
        open_root(disk)
    disk.capacity = None
    root = open_root(disk)
    assert (root.clean, root.logs[KEY].end_offset) == (True, end)
    root.close()
    assert disk.stat("data/root/replog.reserve") is not None


def test_a_reserve_that_was_lost_is_made_anew(disk: SimDisk) -> None:
    """Others may take its room while it is in use. Once the disk has some again, an open root does not wait with it
    for its close, which may come when the disk is full another time."""
    written(disk, clean=True)
    root = open_root(disk)
    root.logs[KEY].append_as_leader(batch(3), 0)
    disk.remove("data/root/replog.reserve")
    root.checkpoint_recovery_points()
    fill(disk)
    root.close()
    assert open_root(disk).clean


class Xfs(SimDisk):
    """A disk that makes no file, however small, where it has less than 200 KB free. XFS sets so much aside for what
    an inode and a name may take of it at worst."""

    def create(self, path: str, size: int = 0) -> File:
        """As of any disk, with room enough."""
        if self.capacity is not None and self.used + (200 << 10) > self.capacity:
            raise StorageError(errno.ENOSPC, "No space left on device while creating", path)
        return super().create(path, size)


def test_xfs_is_opened_and_emptied() -> None:
    """The reserve is enough for one file more, and is not lost by that, however often."""
    disk = Xfs(Random(1))
    disk.make_directory("data")
    end = written(disk, clean=True)
    fill(disk)
    for _ in range(20):
        root = open_root(disk)
        assert root.clean
        root.close()
    root = open_root(disk)
    assert root.logs[KEY].delete_records(end - 3) == end - 3
    root.checkpoint_log_starts()
    root.close()
    assert open_root(disk).clean


@pytest.mark.parametrize("clean", [True, False])
def test_a_mark_finds_room_where_what_is_written_anew_needs_some(disk: SimDisk, clean: bool) -> None:
    """A file system that copies on write refuses it on a full disk, though the file gets no longer: by the reserve
    the log is opened all the same, emptied and closed."""
    end = written(disk, clean=clean)
    refused = "data/root/events-0/replog.mark"
    disk.fail("write", refused, error=errno.ENOSPC)
    root = open_root(disk)
    log = root.logs[KEY]
    log.high_watermark = end
    disk.fail("write", refused, error=errno.ENOSPC)
    assert log.delete_records(end - 3) == end - 3
    disk.fail("write", refused, error=errno.ENOSPC)
    root.close()
    again = open_root(disk)
    assert again.clean
    assert (again.logs[KEY].start_offset, again.logs[KEY].end_offset) == (end - 3, end)
    again.close()


class FullLock(SimDisk):
    """A disk that has no room for the text in a lock file, but in the reserve."""

    def lock(self, path: str, about: str, text_position: int | None = None) -> Lock:
        """As the real one, which gives the lock up again then."""
        if self.capacity is not None and self.used + 50 > self.capacity:
            raise StorageError(errno.ENOSPC, "No space left on device while locking", path)
        return super().lock(path, about, text_position)


def test_the_lock_finds_room() -> None:
    """Its text is gone after a stop in order, and somebody else may have filled the place. A lock that another
    holds is not waited for."""
    disk = FullLock(Random(1))
    disk.make_directory("data")
    written(disk, clean=True)
    fill(disk)
    root = open_root(disk)
    with pytest.raises(LockedError):
        open_root(disk)
    disk.capacity = None
    root.close()


# -- the reserve itself --


def test_as_much_as_there_is_room_for(disk: SimDisk) -> None:
    """All of it, or a few blocks less; what is not whole is made anew when there is room."""
    disk.capacity = disk.used + RESERVE_STEP
    keep_reserve(disk, "data")
    assert disk.used == RESERVE_STEP
    disk.remove(RESERVE)
    disk.capacity = disk.used + RESERVE_SIZE - 1
    keep_reserve(disk, "data")
    assert disk.used == RESERVE_SIZE - RESERVE_STEP
    keep_reserve(disk, "data")
    assert disk.used == RESERVE_SIZE - RESERVE_STEP
    disk.capacity = None
    keep_reserve(disk, "data")
    assert (disk.used, disk.list("data")) == (RESERVE_SIZE, ["replog.reserve"])
    before = disk.calls
    keep_reserve(disk, "data")
    assert disk.calls - before == 1, "a look"


def test_what_is_left_of_it_is_not_given_up(disk: SimDisk) -> None:
    """Whoever else waits for room on the full disk would have it at once: it gives way only to a larger one, which
    is made beside it. What an end in between left there is in nobody's way."""
    disk.capacity = disk.used + RESERVE_SIZE - 1
    keep_reserve(disk, "data")
    disk.observer = lambda call: fill(disk) if call.kind == "create" else None
    disk.capacity = None
    for _ in range(2):
        keep_reserve(disk, "data")
        assert (disk.used, disk.list("data")) == (RESERVE_SIZE - RESERVE_STEP, ["replog.reserve"])
    disk.observer = None
    disk.capacity = None
    disk.create(f"{RESERVE}.tmp", 5).close()
    keep_reserve(disk, "data")
    assert (disk.used, disk.list("data")) == (RESERVE_SIZE, ["replog.reserve"])


def test_what_is_left_of_it_grows_with_the_room_beside_it(disk: SimDisk) -> None:
    """Not only where a whole one fits: what a removal frees a step at a time is kept, too."""
    disk.capacity = disk.used + RESERVE_STEP
    keep_reserve(disk, "data")
    disk.capacity = disk.used + 3 * RESERVE_STEP + 5
    keep_reserve(disk, "data")
    assert (disk.used, disk.list("data")) == (3 * RESERVE_STEP, ["replog.reserve"])
    disk.capacity = disk.used + 3 * RESERVE_STEP
    keep_reserve(disk, "data")
    assert (disk.used, disk.list("data")) == (3 * RESERVE_STEP, ["replog.reserve"])


def test_none(disk: SimDisk) -> None:
    """Less than a block, no descriptor, a folder in its place: done without. A broken disk is said to be one."""
    disk.capacity = disk.used + RESERVE_STEP - 1
    assert keep_reserve(disk, "data"), "an inode"
    assert disk.stat(RESERVE) is not None
    disk.capacity = None
    for code in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EFBIG):
        disk.fail("create", error=code)
        keep_reserve(disk, "data")
        assert disk.list("data") == []
    disk.fail("create", error=errno.EIO)
    with pytest.raises(StorageError, match="Input/output"):
        keep_reserve(disk, "data")
    disk.make_directory(RESERVE)
    keep_reserve(disk, "data")
    fill(disk)
    with pytest.raises(StorageError, match=r"No space.*data/a.tmp"):
        replace_file(disk, "data/a", b"new", reserve_in="data")


def test_only_for_lack_of_room(disk: SimDisk) -> None:
    """Another refusal is not tried again, nor one for which there is no reserve, nor one that the reserve does not
    help."""
    keep_reserve(disk, "data")
    calls: list[int] = []

    def refused(code: int) -> Any:
        calls.append(code)
        raise StorageError(code, "refused", "x")

    for code, times in ((errno.EIO, 1), (errno.EFBIG, 1), (errno.ENOSPC, 2), (errno.EDQUOT, 2)):
        calls.clear()
        with pytest.raises(StorageError, match="refused"):
            with_reserve(disk, "data", partial(refused, code))
        assert calls == [code] * times
        assert disk.used == RESERVE_SIZE, "it is there again"
    disk.remove(RESERVE)
    calls.clear()
    with pytest.raises(StorageError):
        with_reserve(disk, "data", partial(refused, errno.ENOSPC))
    assert len(calls) == 1


def test_who_finds_no_room_while_it_is_lent_waits_for_it(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several logs that are closed side by side one has the reserve, and then the next: nobody finds it gone."""
    keep_reserve(disk, "data")
    stat, mutex, arrived = disk.stat, disk.reserve_lock, threading.Event()
    tries: list[str] = []

    class Watched:
        """The lock, which tells that the other thread asks for it."""

        def __enter__(self) -> None:
            arrive()
            mutex.acquire()

        def __exit__(self, *_: object) -> None:
            mutex.release()

    def arrive() -> None:
        if threading.current_thread() is other:
            arrived.set()

    def look(path: str) -> Stat | None:
        arrive()  # who does not wait for the lock looks for the reserve
        return stat(path)

    def needs_room(name: str) -> str:
        tries.append(name)
        if tries.count(name) == 1:
            raise StorageError(errno.ENOSPC, "no room", "data/x")
        if name == "first":
            other.start()
            assert arrived.wait(30)
        return name

    done: list[str] = []
    other = threading.Thread(target=lambda: done.append(with_reserve(disk, "data", partial(needs_room, "second"))))
    monkeypatch.setattr(disk, "stat", look)
    monkeypatch.setattr(SimDisk, "reserve_lock", Watched())
    assert with_reserve(disk, "data", partial(needs_room, "first")) == "first"
    other.join()
    assert done == ["second"]


def test_a_reserve_that_cannot_be_removed(disk: SimDisk) -> None:
    """Whoever asked for room hears of the lack of it."""
    keep_reserve(disk, "data")
    fill(disk)
    disk.fail("remove", RESERVE, error=errno.EIO)
    with pytest.raises(StorageError, match=r"No space.*data/a.tmp"):
        replace_file(disk, "data/a", b"new", reserve_in="data")


def test_without_a_folder_for_it_none_is_used(disk: SimDisk) -> None:
    """Whoever is not alone in a folder takes nothing from its owner."""
    keep_reserve(disk, "data")
    fill(disk)
    with pytest.raises(StorageError, match="No space"):
        replace_file(disk, "data/a", b"new")
    assert disk.stat(RESERVE) is not None
    replace_file(disk, "data/a", b"new", reserve_in="data")


def test_the_system_reserves_room(place: Place) -> None:
    """On the real disk, too: an empty file that takes its place. One that was copied does not, and is made anew."""
    keep_reserve(place.disk, place.path)
    found = place.disk.stat(place.of("replog.reserve"))
    assert found is not None
    if not found.allocated:
        pytest.skip("this file system reserves nothing")
    assert (found.size, found.allocated) == (0, RESERVE_SIZE)
    place.write("replog.reserve", b"")
    keep_reserve(place.disk, place.path)
    again = place.disk.stat(place.of("replog.reserve"))
    assert again is not None
    assert (again.size, again.allocated) == (0, RESERVE_SIZE)


@pytest.mark.parametrize("code", [errno.EEXIST, errno.ENOENT])
def test_another_who_lost_the_lock_just_now(disk: SimDisk, code: int) -> None:
    """It made the reserve anew, or removed it: no reason to refuse the owner."""
    disk.fail("create", error=code)
    keep_reserve(disk, "data")


def test_whoever_finds_the_folder_locked_makes_nothing_in_it(disk: SimDisk) -> None:
    """It had made room for the text of a lock that another has meanwhile."""
    keep_reserve(disk, "data")
    tries: list[OSError] = [StorageError(errno.ENOSPC, "No space", "x"), LockedError("x", "somebody")]

    def lock() -> None:
        raise tries.pop(0)

    with pytest.raises(LockedError):
        with_reserve(disk, "data", lock)
    assert disk.list("data") == []


def test_a_reserve_that_cannot_be_made_anew_is_no_failure_of_the_step(disk: SimDisk) -> None:
    """What was asked for is done; the next opening or close says what is wrong."""
    keep_reserve(disk, "data")
    fill(disk)
    disk.fail("create", RESERVE, error=errno.EIO)
    replace_file(disk, "data/a", b"new", reserve_in="data")
    with pytest.raises(StorageError, match="No space"):
        disk.capacity = disk.used
        replace_file(disk, "data/b", b"new", reserve_in="data")


def test_a_failed_sync_is_not_made_again(disk: SimDisk) -> None:
    """What a recovery could not sync for lack of room, where room is looked for late, is not believed after a
    second try."""
    written(disk, clean=False)
    disk.remove("data/root/events-0/replog.mark")
    disk.fail("sync", f"*/{0:020}.log", error=errno.ENOSPC)
    with pytest.raises(StorageError, match="sync"):
        open_root(disk)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM])
def test_a_log_that_there_are_no_means_to_open_is_not_damaged(disk: SimDisk, code: int) -> None:
    """Of two logs one finds no room, no descriptor or no memory: the root is not opened, and whoever counts on its
    copies hears of no damage. When there is some, both are as they were."""
    end = written(disk, clean=False)
    root = open_root(disk)
    root.create_log("other", 0, ID, CONFIG)
    root.close(clean=False)
    disk.fail("open", "*/events-0/*.log", times=None, error=code)
    with pytest.raises(StorageError) as caught:
        open_root(disk)
    assert caught.value.errno == code
    disk.clear_faults()
    root = open_root(disk)
    assert (root.logs[KEY].end_offset, root.logs[KEY].incomplete, root.damaged) == (end, False, {})
    root.close()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_a_file_that_may_not_be_made_puts_nothing_in_doubt(disk: SimDisk, code: int) -> None:
    """The permissions of its folder are taken away while an "os" log is written to: it ends. When they are back, it
    has all it had, and lacks nothing."""
    root = open_root(disk)
    log = root.create_log("other", 0, ID, replace(CONFIG, durability="os"))
    log.append_as_leader(batch(3), 0)
    disk.fail("create", "*/other-0/*", times=None, error=code)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(3), 1)
    with pytest.raises(ClosedError):
        log.append_as_leader(batch(3), 1)
    root.close()
    disk.clear_faults()
    again = open_root(disk).logs[TopicPartition("other", 0)]
    assert (again.end_offset, again.incomplete) == (3, False)


def test_a_torn_tail_is_kept_on_a_full_disk(disk: SimDisk) -> None:
    """And the report says so."""
    end = written(disk, clean=False)
    path = f"data/root/events-0/{max(name for name in disk.list('data/root/events-0') if name.endswith('.log'))}"
    file = disk.open(path, write=True)
    file.write_at(file.size(), [b"torn" * 100])
    file.close()
    fill(disk)
    root = open_root(disk)
    report = root.logs[KEY].recovery
    assert (root.logs[KEY].end_offset, report.torn_size, len(report.kept)) == (end, 400, 1)
    root.close()


def test_a_log_with_producers_is_closed_in_order_on_a_full_disk(disk: SimDisk) -> None:
    """The next start finds who wrote, and needs no scan."""
    root = open_root(disk)
    log = root.create_log(*KEY, ID, CONFIG)
    log.become_leader(0)
    log.append_as_leader(batch(3, sequence=0), 0)
    refused: list[str] = []

    def full(call: Call) -> None:
        """Each new file finds no room the first time."""
        if call.kind == "create" and not call.path.endswith("replog.reserve") and call.path not in refused:
            refused.append(call.path)
            disk.fail("write", call.path, error=errno.ENOSPC)

    disk.observer = full
    root.close()
    disk.observer = None
    assert any(".snapshot" in path for path in refused)
    assert open_root(disk).clean


def test_files_that_cannot_be_renamed_are_removed(disk: SimDisk) -> None:
    """A folder may need a block for their longer names: no reason to refuse what makes room. Where that ends
    half-way, the next opening finds the rest."""
    end = written(disk, clean=True)
    root = open_root(disk)
    log = root.logs[KEY]
    names = len(disk.list("data/root/events-0"))
    disk.fail("rename", times=None, error=errno.ENOSPC)
    assert log.delete_records(end - 3) == end - 3
    assert log.apply_retention() > 1
    disk.clear_faults()
    assert len(disk.list("data/root/events-0")) < names / 2
    root.close()
    root = open_root(disk)
    assert (root.clean, root.logs[KEY].start_offset, root.logs[KEY].end_offset) == (True, end - 3, end)
    root.logs[KEY].append_as_leader(batch(3), 0)
    root.close(clean=False)


@pytest.mark.parametrize("follows", [False, True], ids=["leader", "follower"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for a while"])
def test_an_epoch_that_began_half_way_is_taken_back_before_the_next_append(
    disk: SimDisk, follows: bool, lasting: bool
) -> None:
    """Its file says that it begins, there was no room in the mark, and what comes is of an older epoch: the next
    opening finds it so."""
    root = open_root(disk)
    log = root.create_log(*KEY, ID, replace(CONFIG, durability="os"))
    log.append_as_leader(batch(2), 1)
    disk.fail("write", "*/replog.mark", error=errno.ENOSPC, times=None)
    newer = bytearray(batch(1))
    stamp(newer, 2, 5)
    append = log.append_as_follower
    with pytest.raises(StorageError):
        append([newer]) if follows else log.become_leader(5)
    disk.clear_faults()
    if lasting:
        disk.fail("write", "*/leader-epoch-checkpoint.tmp", error=errno.ENOSPC, times=None)
        with pytest.raises(StorageError):
            log.append_as_leader(batch(3), 1)
        assert log.end_offset == 2
        disk.clear_faults()
    if follows:
        older = bytearray(batch(3))
        stamp(older, 2, 1)
        log.append_as_follower([older])
    else:
        log.append_as_leader(batch(3), 1)
    assert log.end_offset == 5
    root.close(clean=False)
    log = open_root(disk).logs[KEY]
    assert [record.offset for record in contents(log)] == [*range(5)]
    assert log.epochs.entries == [(1, 0)]


@pytest.mark.parametrize("marked", [True, False])
def test_what_is_deleted_while_an_epoch_is_half_way_does_not_hide_that(disk: SimDisk, marked: bool) -> None:
    """On a full disk the history of epochs may say more than the log has. A deletion, which may find no room for it
    either, does not make it right: it is before the next append."""
    root = open_root(disk)
    log = root.create_log(*KEY, ID, replace(CONFIG, durability="os"))
    for _ in range(2):
        log.append_as_leader(batch(2), 1)
    log.high_watermark = 4
    sync(disk, log)
    log.write_mark()

    def add(epoch: int) -> None:
        data = bytearray(batch(3))
        stamp(data, log.end_offset, epoch)
        log.append_as_follower([data])

    disk.fail("write", "*.log", error=errno.ENOSPC, times=None)
    disk.fail("write", "*/leader-epoch-checkpoint.tmp", error=errno.ENOSPC, times=None, nth=2)
    with pytest.raises(StorageError):
        add(5)
    assert log.delete_records(2) == 2
    disk.clear_faults()
    for _ in range(20):
        add(1)
    end = log.end_offset
    if marked:
        sync(disk, log)
        log.high_watermark = end
        log.write_mark()
    root.close(clean=False)
    root = open_root(disk)
    assert not root.damaged
    assert [record.offset for record in contents(root.logs[KEY])] == list(range(2, end))


def test_a_first_epoch_that_began_half_way(disk: SimDisk) -> None:
    """The same where what comes is of no epoch at all, as in the logs of old brokers: it is not taken for
    damage."""
    root = open_root(disk)
    log = root.create_log(*KEY, ID, replace(CONFIG, durability="os"))
    disk.fail("write", "*/replog.mark", error=errno.ENOSPC, partial=600, times=None)  # it is there, and nobody knows
    with pytest.raises(StorageError):
        log.become_leader(0)
    disk.clear_faults()
    log.append_as_leader(batch(2), -1)
    root.close(clean=False)
    log = open_root(disk).logs[KEY]
    assert [record.offset for record in contents(log)] == [0, 1]
    assert log.epochs.entries == []


@pytest.mark.parametrize("suffix", [".timeindex", ".log"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_segment_that_cannot_be_begun_leaves_nothing(disk: SimDisk, suffix: str, code: int) -> None:
    """Of its three files one finds no room, or no descriptor: those that were made go again. The next segment may
    have another name, and where inodes are short they would take one."""
    log = open_root(disk).create_log(*KEY, ID, CONFIG)
    log.append_as_leader(batch(3, size=200), 0)
    names = sorted(disk.list("data/root/events-0"))
    disk.fail("create", f"*{suffix}", error=code)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(3, size=200), 0)
    assert sorted(disk.list("data/root/events-0")) == names
    log.append_as_leader(batch(1), 0)
    log.append_as_leader(batch(3, size=200), 0)
    assert [base for base, _ in log.segments()] == [0, 4]


def test_a_log_that_ended_for_lack_of_means_is_read_to_its_end(disk: SimDisk) -> None:
    """A roll that finds no descriptor half-way ends an "os" log, and puts nothing in doubt: what readers could see
    they see still."""
    log = open_root(disk).create_log(*KEY, ID, replace(CONFIG, durability="os"))
    log.append_as_leader(batch(3, size=300), 0)
    log.advance_high_watermark(3)
    disk.fail("sync_directory", "*/events-0", error=errno.EMFILE)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(3, size=300), 0)
    assert log.failure is not None
    assert not log.poisoned
    assert [record.offset for record in contents(log)] == [0, 1, 2]
    assert log.find_timestamp(0, log.high_watermark) is not None
