"""The simulated disk is as bad as it says and no worse: bugs that lose data on it do, and what was synced is never
lost."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import ClosedError, LockedError, StorageError
from pyreplog.testing import Call, SimClock, SimDisk
from pyreplog.testing.storage import PIECES_MAX

STATES = 300


def content(disk: SimDisk, path: str) -> bytes | None:
    return bytes(disk.open(path).read_at(0, 1 << 20)) if disk.stat(path) is not None else None


def left(disk: SimDisk, path: str, states: int = STATES) -> Counter[bytes | None]:
    """What many power losses leave of a file."""
    return Counter(content(disk.crash(Random(seed)), path) for seed in range(states))


def fresh() -> SimDisk:
    disk = SimDisk()
    disk.make_directory("/a")
    disk.sync_directory("/")
    return disk


class TestPowerLoss:
    def test_a_missing_file_sync_loses_data(self) -> None:
        """A file whose name is durable and whose content was not synced may come back whole, empty and torn."""
        disk = fresh()
        disk.create("/a/f").write_at(0, [b"x" * 2000])
        disk.sync_directory("/a")
        found = left(disk, "/a/f")
        assert None not in found
        assert found[b""] > 0
        assert found[b"x" * 2000] > 0
        assert len(found) > 20

    def test_a_missing_directory_sync_loses_the_file(self) -> None:
        """A file that was synced may be gone as long as its folder was not."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"x"])
        file.sync()
        found = left(disk, "/a/f")
        assert found[None] > 0
        assert found[b"x"] > 0
        assert set(found) == {None, b"x"}

    def test_a_missing_sync_of_the_parent_loses_the_folder(self) -> None:
        """All that is in a folder goes with the folder's name."""
        disk = SimDisk()
        disk.make_directory("/a")
        disk.create("/a/f").sync()
        disk.sync_directory("/a")
        assert left(disk, "/a/f")[None] > 0
        disk.sync_directory("/")
        assert set(left(disk, "/a/f")) == {b""}

    def test_parents_made_on_the_way_stay(self) -> None:
        """Only the last folder's name is the caller's business."""
        disk = SimDisk()
        disk.make_directory("/a/b/c")
        assert {tuple(disk.crash(Random(seed)).list("/a")) for seed in range(50)} == {("b",)}
        assert {tuple(disk.crash(Random(seed)).list("/a/b")) for seed in range(50)} == {(), ("c",)}

    @pytest.mark.parametrize("through", ["file", "background"])
    def test_what_was_synced_is_never_lost(self, through: str) -> None:
        """Synced bytes, length and name survive every crash, whatever was written after them."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"a" * 1000])
        file.truncate(900)
        disk.sync_directory("/a")
        if through == "file":
            file.sync()
        else:
            disk.submit_sync([file], lambda: None)
            assert disk.poll()[0].error is None
        file.write_at(900, [b"b" * 3000])
        disk.create("/a/g").write_at(0, [b"c"])
        for found in left(disk, "/a/f"):
            assert found is not None
            assert found[:900] == b"a" * 900
            assert len(found) <= 3900

    def test_an_overwrite_leaves_each_byte_old_or_new(self) -> None:
        """Bytes that are durable never turn into anything but what was written over them, and their neighbours
        stay."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"a" * 3000])
        file.sync()
        disk.sync_directory("/a")
        file.write_at(1000, [b"b" * 1000])
        found = left(disk, "/a/f")
        assert len(found) > 10
        for data in found:
            assert data is not None
            assert (data[:1000], data[2000:], set(data[1000:2000]) <= set(b"ab")) == (b"a" * 1000, b"a" * 1000, True)

    def test_later_pieces_survive_earlier_ones(self) -> None:
        """The order in which bytes reach the disk is not the order of the writes."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"1"])
        file.write_at(1, [b"2"])
        disk.sync_directory("/a")
        found = left(disk, "/a/f")
        assert found[b"\0" + b"2"] > 0
        assert found[b"1"] > 0

    def test_a_truncation_may_be_undone(self) -> None:
        """A shortened file may come back long, also with new bytes over the old ones."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"aaaa"])
        file.sync()
        disk.sync_directory("/a")
        file.truncate(1)
        file.write_at(1, [b"b"])
        found = left(disk, "/a/f")
        assert found[b"aaaa"] > 0
        assert found[b"abaa"] > 0
        assert found[b"ab"] > 0
        assert found[b"a"] > 0

    def test_a_rename_is_atomic_and_volatile(self) -> None:
        """The target holds the old or the new file, whole where that was synced, and the source may be left."""
        disk = fresh()
        for name, data in (("target", b"old"), ("new", b"new")):
            file = disk.create(f"/a/{name}")
            file.write_at(0, [data])
            file.sync()
        disk.sync_directory("/a")
        disk.rename("/a/new", "/a/target")
        found = Counter((content(crashed, "/a/new"), content(crashed, "/a/target")) for crashed in crashes(disk))
        assert set(found) == {(b"new", b"old"), (None, b"new"), (b"new", b"new")}
        disk.sync_directory("/a")
        assert {(content(crashed, "/a/new"), content(crashed, "/a/target")) for crashed in crashes(disk)} == {
            (None, b"new")
        }

    def test_a_rename_of_an_unsynced_file_may_leave_it_empty(self) -> None:
        """The classic: checkpoint written, not synced, renamed over the old one."""
        disk = fresh()
        file = disk.create("/a/target")
        file.write_at(0, [b"old"])
        file.sync()
        disk.sync_directory("/a")
        disk.create("/a/new").write_at(0, [b"new"])
        disk.rename("/a/new", "/a/target")
        found = left(disk, "/a/target")
        assert found[b""] > 0
        assert found[b"old"] > 0

    def test_a_removed_file_may_come_back(self) -> None:
        """A removal is volatile too."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"x"])
        file.sync()
        disk.sync_directory("/a")
        disk.remove("/a/f")
        assert set(left(disk, "/a/f")) == {None, b"x"}
        disk.sync_directory("/a")
        assert set(left(disk, "/a/f")) == {None}

    def test_a_rename_between_folders_never_loses_the_file(self) -> None:
        """Whichever folder is synced, the file has a name."""
        for synced in ("/a", "/b", None):
            disk = fresh()
            disk.make_directory("/b")
            disk.sync_directory("/")
            disk.create("/a/f").close()
            disk.sync_directory("/a")
            disk.rename("/a/f", "/b/g")
            if synced is not None:
                disk.sync_directory(synced)
            for crashed in crashes(disk):
                assert [*crashed.list("/a"), *crashed.list("/b")] in ([["g"]] if synced else [["g"], ["f"], ["f", "g"]])

    def test_the_same_chance_makes_the_same_crash(self) -> None:
        """A crash follows from its seed, and looking at one changes neither the disk nor the next."""
        disk = fresh()
        file = disk.create("/a/f")
        for number in range(10):
            file.write_at(number * 100, [bytes([number]) * 100])
        once = [content(disk.crash(Random(seed)), "/a/f") for seed in range(100)]
        assert once == [content(disk.crash(Random(seed)), "/a/f") for seed in range(100)]
        assert len(set(once)) > 20
        assert content(disk, "/a/f") == b"".join(bytes([number]) * 100 for number in range(10))

    def test_what_a_crash_left_is_durable(self) -> None:
        """A second power loss right after the first changes nothing more."""
        disk = fresh()
        disk.create("/a/f").write_at(0, [b"x" * 3000])
        for crashed in crashes(disk, 50):
            assert {content(crashed.crash(Random(seed)), "/a/f") for seed in range(5)} == {content(crashed, "/a/f")}

    def test_the_boot_id_tells(self) -> None:
        """It changes with power loss, not with a process kill; locks survive neither."""
        disk = fresh()
        disk.lock("/a/.lock", "me")
        boot = disk.boot_id("")
        assert disk.snapshot().boot_id("") == boot
        disk.snapshot().lock("/a/.lock", "")
        crashed = disk.crash(Random(1))
        assert crashed.boot_id("") != boot
        crashed.lock("/a/.lock", "") if crashed.stat("/a") else None
        disk.kill()
        assert disk.boot_id("") == boot
        disk.lock("/a/.lock", "")


def crashes(disk: SimDisk, states: int = STATES) -> list[SimDisk]:
    return [disk.crash(Random(seed)) for seed in range(states)]


class TestKill:
    def test_everything_written_stays_and_nothing_more_is_durable(self) -> None:
        """After a kill the content is whole; a power loss after that may still take it."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"x" * 100])
        for killed in (disk.snapshot(), disk):
            killed.kill()
            assert content(killed, "/a/f") == b"x" * 100
            assert left(killed, "/a/f")[None] > 0

    def test_handles_die(self) -> None:
        """What the dead process had open is closed; its locks are free; its syncs never end."""
        disk = fresh()
        file = disk.create("/a/f")
        lock = disk.lock("/a/.lock", "dead")
        disk.submit_sync([file], lambda: None)
        disk.kill()
        for use in (
            lambda: file.write_at(0, [b"x"]),
            lambda: file.read_at(0, 1),
            file.sync,
            file.size,
            lambda: file.truncate(0),
        ):
            with pytest.raises(ClosedError):
                use()
        file.close()
        assert [*disk.poll()] == []
        new = disk.lock("/a/.lock", "new")
        lock.release()
        with pytest.raises(LockedError):
            disk.lock("/a/.lock", "the dead one's release frees nothing")
        new.release()

    def test_a_snapshot_is_another_disk(self) -> None:
        """Neither sees what happens to the other, and a write under way is there in part."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"abc"])
        seen: list[Call] = []
        disk.observer = seen.append
        file.write_at(3, [b"defgh"])
        disk.observer = None
        call = seen[-1]
        assert str(call).endswith("write /a/f 5 bytes at 3")
        copy = disk.snapshot(call, 2)
        disk.open("/a/f", write=True).write_at(0, [b"X"])
        assert content(copy, "/a/f") == b"abcdefgh"
        early = fresh()
        target = early.create("/a/f")
        copies: list[SimDisk] = []
        early.observer = lambda call: copies.append(early.snapshot(call, 2))
        target.write_at(0, [b"abcdef"])
        assert [content(copy, "/a/f") for copy in copies] == [b"ab"]
        copies[0].remove("/a/f")
        early.observer = None
        assert content(early, "/a/f") == b"abcdef"


class TestFaults:
    def test_a_sync_that_fails_when_it_is_begun(self) -> None:
        """Every later sync of the process fails, and what was not synced is for the disk's chance to keep. The next
        process's do not."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"kept"])
        file.sync()
        disk.sync_directory("/a")
        fault = disk.fail("start_sync", "/a/f", error=errno.ENOSPC)
        file.write_at(4, [b"x" * 1000])
        file.start_sync(4, 1000)
        assert fault.hits == 1
        for _ in range(2):
            with pytest.raises(StorageError) as caught:
                file.sync()
            assert caught.value.errno == errno.ENOSPC
        disk.kill()
        disk.open("/a/f", write=True).sync()
        assert {(content(disk.crash(Random(seed)), "/a/f") or b"")[:4] for seed in range(9)} == {b"kept"}

    def test_a_sync_is_not_begun_beside_another(self) -> None:
        """That could not tell of what fails, as on a real disk."""
        disk = fresh()
        disk.manual = True
        file = disk.create("/a/f")
        file.write_at(0, [b"x"])
        fault = disk.fail("start_sync", "/a/f")
        token = disk.submit_sync([file], lambda: None)
        file.start_sync(0, 1)
        disk.complete(token)
        assert fault.hits == 0
        assert [done.error for done in disk.poll()] == [None]

    def test_the_nth_call_fails(self) -> None:
        """A fault strikes its call, as often as told, on its kind and path alone."""
        disk = fresh()
        one, two = disk.create("/a/one.log"), disk.create("/a/two.index")
        fault = disk.fail("write", "*.log", nth=2, times=2, error=errno.ENOSPC)
        outcome: list[object] = []
        for number in range(5):
            two.write_at(0, [b"y"])
            try:
                one.write_at(number, [b"x"])
                outcome.append((0, ""))
            except StorageError as error:
                outcome.append((error.errno, error.filename))
        failed = (errno.ENOSPC, "/a/one.log")
        assert outcome == [(0, ""), failed, failed, (0, ""), (0, "")]
        assert (fault.hits, fault.seen) == (2, 5)

    @pytest.mark.parametrize(
        ("kind", "call"),
        [
            ("read", lambda disk, file: file.read_at(0, 1)),
            ("write", lambda disk, file: file.write_at(0, [b"x"])),
            ("truncate", lambda disk, file: file.truncate(0)),
            ("sync", lambda disk, file: file.sync()),
            ("close", lambda disk, file: file.close()),
            ("submit_sync", lambda disk, file: disk.submit_sync([file], lambda: None)),
            ("create", lambda disk, file: disk.create("/a/new")),
            ("open", lambda disk, file: disk.open("/a/f")),
            ("stat", lambda disk, file: disk.stat("/a/f")),
            ("list", lambda disk, file: disk.list("/a")),
            ("rename", lambda disk, file: disk.rename("/a/f", "/a/g")),
            ("remove", lambda disk, file: disk.remove("/a/f")),
            ("make_directory", lambda disk, file: disk.make_directory("/a/d")),
            ("remove_directory", lambda disk, file: disk.remove_directory("/a/d")),
            ("sync_directory", lambda disk, file: disk.sync_directory("/a")),
            ("lock", lambda disk, file: disk.lock("/a/.lock", "")),
        ],
    )
    def test_every_kind_can_fail_and_changes_nothing(self, kind: str, call: Callable[[SimDisk, Any], object]) -> None:
        """A failing call raises a StorageError with its errno, leaves what was shown, and works again later."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"kept"])
        for times in (2, None):
            fault = disk.fail(kind, times=times, error=errno.EMFILE)
            for _ in range(1 if kind == "close" else 2):
                with pytest.raises(StorageError) as caught:
                    call(disk, disk.open("/a/f", write=True) if kind == "close" else file)
                assert caught.value.errno == errno.EMFILE
            assert fault.hits > 0
            disk.clear_faults()
        assert disk.list("/a") == ["f"]
        assert content(disk, "/a/f") == b"kept"

    def test_a_sync_without_a_descriptor_did_not_begin(self) -> None:
        """What it was to make stable is neither lost nor stable, and the next one makes it so."""
        disk = fresh()
        disk.create("/a/f").write_at(0, [b"kept"])
        for kind in ("sync", "sync_directory", "start_sync"):
            disk.fail(kind, error=errno.ENFILE)
        file = disk.open("/a/f", write=True)
        file.start_sync(0, 4)
        for sync in (file.sync, lambda: disk.sync_directory("/a")):
            with pytest.raises(StorageError, match="Too many"):
                sync()
            sync()
        assert content(disk.crash(Random(1)), "/a/f") == b"kept"

    def test_a_failing_write_may_have_written_a_part(self) -> None:
        """The part that a fault lets through is there."""
        disk = fresh()
        file = disk.create("/a/f")
        disk.fail("write", partial=3)
        with pytest.raises(StorageError):
            file.write_at(0, [b"abc", b"def"])
        assert content(disk, "/a/f") == b"abc"

    @pytest.mark.parametrize("background", [False, True])
    def test_a_failed_sync_loses_the_data_though_a_second_succeeds(self, background: bool) -> None:
        """As on ext4, XFS and btrfs: error, then success, the new bytes shown, the old ones on the disk."""
        lost = 0
        for seed in range(30):
            disk = SimDisk(Random(seed))
            file = disk.create("/f")
            disk.sync_directory("/")
            file.write_at(0, [b"a" * 2000])
            file.sync()
            file.write_at(0, [b"b" * 2000])
            disk.fail("sync")
            if background:
                disk.submit_sync([file], lambda: None)
                assert isinstance(disk.poll()[0].error, StorageError)
            else:
                with pytest.raises(StorageError):
                    file.sync()
            file.sync()
            assert content(disk, "/f") == b"b" * 2000
            file.write_at(2000, [b"c"])
            file.sync()
            kept = content(disk.crash(Random(0)), "/f")
            assert kept is not None
            assert kept[2000:] == b"c"
            lost += kept[:2000] != b"b" * 2000
        assert lost > 10

    def test_bits_rot(self) -> None:
        """A flipped bit is read at once, and survives crash and sync."""
        disk = fresh()
        file = disk.create("/a/f")
        file.write_at(0, [b"\0\0\0"])
        file.sync()
        disk.sync_directory("/a")
        disk.flip("/a/f", 1, 0x80)
        assert content(disk, "/a/f") == b"\0\x80\0"
        assert set(left(disk, "/a/f", 20)) == {b"\0\x80\0"}

    def test_the_disk_fills_up(self) -> None:
        """Beyond its capacity a disk takes what fits and says ENOSPC; removing gives room; reserved room is kept
        for its file."""
        disk = SimDisk(capacity=1000)
        reserved = disk.create("/reserved", 300)
        file = disk.create("/f")
        with pytest.raises(StorageError) as caught:
            file.write_at(0, [b"x" * 800])
        assert caught.value.errno == errno.ENOSPC
        assert file.size() == 700
        reserved.write_at(0, [b"y" * 300])
        with pytest.raises(StorageError):
            reserved.write_at(300, [b"y"])
        with pytest.raises(StorageError):
            disk.create("/more", 1)
        disk.remove("/f")
        disk.create("/more", 1)
        reserved.write_at(300, [b"y" * 600])

    def test_files_have_times(self) -> None:
        """With a clock given, a file's modification time is its wall time."""
        clock = SimClock()
        disk = SimDisk(clock=clock)
        file = disk.create("/f")
        clock.advance(5_000_000_000)
        file.write_at(0, [b"x"])
        found = disk.stat("/f")
        assert found is not None
        assert found.mtime_ms == clock.wall_ms()


class TestSyncsAsEvents:
    def test_a_sync_covers_what_was_written_before_it_was_submitted(self) -> None:
        """What is written between submission and completion is not durable."""
        disk = SimDisk(manual=True)
        file = disk.create("/f")
        disk.sync_directory("/")
        file.write_at(0, [b"before"])
        news: list[int] = []
        token = disk.submit_sync([file], lambda: news.append(1))
        file.write_at(6, [b"after"])
        assert [*disk.poll()] == []
        assert [*disk.pending_syncs] == [token]
        disk.complete(token)
        assert news == [1]
        assert disk.poll()[0] == (token, None)
        found = left(disk, "/f")
        assert all(data is not None and data[:6] == b"before" for data in found)
        assert found[b"before"] > 0

    def test_they_end_in_any_order_and_may_fail(self) -> None:
        """The order of completions is the caller's, or the seed's; one that fails says so and loses what it
        covered."""
        disk = SimDisk(manual=True)
        files = [disk.create(f"/{name}") for name in "ab"]
        disk.sync_directory("/")
        for file in files:
            file.write_at(0, [b"x" * 1000])
        one, two = (disk.submit_sync([file], lambda: None) for file in files)
        disk.complete(two, errno.EIO)
        disk.complete(one)
        first, second = disk.poll()
        assert (first.token, second) == (two, (one, None))
        assert isinstance(first.error, StorageError)
        assert set(left(disk, "/a", 30)) == {b"x" * 1000}
        orders = set()
        for seed in range(20):
            disk = SimDisk(Random(seed))
            file = disk.create("/a")
            for _ in range(4):
                disk.submit_sync([file], lambda: None)
            orders.add(tuple(end.token for end in disk.poll()))
        assert len(orders) > 5


def test_much_unsynced_is_written_back_in_the_end() -> None:
    """A file that nobody ever syncs keeps a bounded number of pieces: the older ones reach the disk, as with a real
    kernel."""
    disk = SimDisk()
    file = disk.create("/f")
    disk.sync_directory("/")
    for number in range(PIECES_MAX + 10):
        file.write_at(number, [b"x"])
    assert all(
        data is not None and data[: PIECES_MAX // 2] == b"x" * (PIECES_MAX // 2) for data in left(disk, "/f", 20)
    )
    disk.write_back()
    assert set(left(disk, "/f", 20)) == {b"x" * (PIECES_MAX + 10)}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("ab"), st.integers(0, 40), st.binary(min_size=1, max_size=20)),
        st.tuples(st.just("truncate"), st.sampled_from("ab"), st.integers(0, 40), st.just(b"")),
        st.tuples(st.just("sync"), st.sampled_from("ab"), st.just(0), st.just(b"")),
    ),
    max_size=20,
)


@given(steps=STEPS, seed=st.integers(0, 1000))
def test_each_byte_after_a_crash_was_once_there(steps: list[tuple[str, str, int, bytes]], seed: int) -> None:
    """With every name durable, bytes since the last sync alone are in doubt, and each is one that the file had at
    that place since then, or lies beyond the length that the last sync covered."""
    disk = SimDisk()
    files = {name: disk.create(f"/{name}") for name in "ab"}
    disk.sync_directory("/")
    shown = dict.fromkeys("ab", b"")
    versions = {name: [b""] for name in "ab"}
    for kind, name, number, data in steps:
        file = files[name]
        if kind == "write":
            file.write_at(number, [data])
        elif kind == "truncate":
            file.truncate(number)
        else:
            file.sync()
            versions[name].clear()
        shown[name] = bytes(file.read_at(0, 1000))
        versions[name].append(shown[name])
    crashed = disk.crash(Random(seed))
    for name, history in versions.items():
        found = content(crashed, f"/{name}")
        assert found is not None
        if len(history) == 1:
            assert found == history[0]
        # Where a byte was there at all times since the sync, it was written over or it is what it
        # was.
        always = min(len(version) for version in history)
        for position in range(min(always, len(found))):
            assert found[position] in {version[position] for version in history}
        assert len(found) <= max(len(version) for version in history)
    assert {name: content(disk, f"/{name}") for name in "ab"} == shown
