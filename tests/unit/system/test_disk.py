"""What the ports promise, on the real disk and on the simulated one."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import ClosedError, InternalError, LockedError, StorageError
from pyreplog.ports import File, SyncDone
from pyreplog.system import SystemDisk
from pyreplog.testing import SimDisk
from tests.unit.system.conftest import Place


def settle(place: Place, *files: File, count: int = 1) -> list[SyncDone]:
    """Submit ``files`` ``count`` times and wait until all have ended."""
    news = threading.Event()
    tokens = [place.disk.submit_sync(files, news.set) for _ in range(count)]
    done: list[SyncDone] = []
    while len(done) < count:
        assert news.wait(10)
        news.clear()
        done.extend(place.disk.poll())
    assert sorted(end.token for end in done) == sorted(tokens)
    return done


def refuses(code: int, call: Callable[..., Any], *args: Any, **kwargs: Any) -> StorageError:
    """``call`` raises a StorageError with ``code``, and its text says what was being done."""
    with pytest.raises(StorageError) as caught:
        call(*args, **kwargs)
    assert caught.value.errno == code
    assert " while " in str(caught.value)
    assert caught.value.filename
    return caught.value


class TestFiles:
    def test_what_was_written_is_read(self, place: Place) -> None:
        """Bytes come back from where they were put, whole, over parts of all kinds."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [b"one", bytearray(b"two"), memoryview(b"xthreex")[1:6], b""])
        assert bytes(file.read_at(0, 100)) == b"onetwothree"
        assert bytes(file.read_at(3, 3)) == b"two"
        assert file.size() == 11
        assert file.path == f"{place.root}/a"

    def test_one_part_of_any_kind(self, place: Place) -> None:
        """One part is written whole, also where its length in items is not its size in bytes."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [memoryview(b"abcdefgh").cast("I")])
        file.write_at(8, [memoryview(b"ijkl")])
        assert bytes(file.read_at(0, 100)) == b"abcdefghijkl"
        file.write_at(0, [b""])
        file.write_at(0, [])
        assert file.size() == 12

    def test_many_parts(self, place: Place) -> None:
        """More parts than a system call takes are written all."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(5, [bytes([index % 256]) * (index % 7) for index in range(3000)])
        assert bytes(file.read_at(5, 1 << 20)) == b"".join(bytes([index % 256]) * (index % 7) for index in range(3000))

    def test_reading_at_and_beyond_the_end(self, place: Place) -> None:
        """A read gives fewer bytes at the end of the file only, and none beyond it."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [b"12345"])
        assert bytes(file.read_at(3, 10)) == b"45"
        assert bytes(file.read_at(5, 10)) == b""
        assert bytes(file.read_at(500, 10)) == b""
        assert bytes(file.read_at(0, 0)) == b""

    def test_the_reader_owns_what_it_read(self, place: Place) -> None:
        """What was read does not change with the file."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [b"before"])
        read = file.read_at(0, 6)
        file.write_at(0, [b"after!"])
        assert bytes(read) == b"before"

    def test_a_gap_is_zeros(self, place: Place) -> None:
        """Bytes skipped by a write or a truncation are zeros."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(4, [b"x"])
        assert bytes(file.read_at(0, 9)) == b"\0\0\0\0x"
        file.truncate(2)
        file.truncate(7)
        assert bytes(file.read_at(0, 9)) == b"\0" * 7
        assert file.size() == 7

    def test_space_reserved_is_no_length(self, place: Place) -> None:
        """Reserving room leaves the file empty."""
        file = place.disk.create(f"{place.root}/a", 1 << 20)
        assert file.size() == 0
        assert bytes(file.read_at(0, 10)) == b""

    def test_a_sync_that_is_only_begun_changes_nothing(self, place: Place) -> None:
        """Neither length nor content, even where there is nothing at all; a sync that follows ends well. Of a
        closed file it is refused."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [b"x" * 10_000])
        for position, size in ((0, 4096), (4096, 100), (1 << 30, 10)):
            file.start_sync(position, size)
        file.sync()
        assert bytes(file.read_at(0, 20_000)) == b"x" * 10_000
        file.close()
        with pytest.raises(ClosedError):
            file.start_sync(0, 1)

    def test_create_wants_a_new_name_and_open_an_old_one(self, place: Place) -> None:
        """Create refuses what exists, open what does not; both name the path."""
        path = f"{place.root}/a"
        refuses(errno.ENOENT, place.disk.open, path)
        place.disk.create(path).close()
        assert refuses(errno.EEXIST, place.disk.create, path).filename == path
        refuses(errno.ENOENT, place.disk.create, f"{place.root}/none/a")

    def test_a_file_opened_for_reading_cannot_be_written(self, place: Place) -> None:
        """Writing through a reader's file is refused and changes nothing."""
        place.disk.create(f"{place.root}/a").write_at(0, [b"kept"])
        file = place.disk.open(f"{place.root}/a")
        refuses(errno.EBADF, file.write_at, 0, [b"lost"])
        refuses(errno.EINVAL, file.truncate, 0)
        assert bytes(file.read_at(0, 10)) == b"kept"

    def test_two_opens_see_one_file(self, place: Place) -> None:
        """What one handle wrote, another shows at once."""
        writer = place.disk.create(f"{place.root}/a")
        reader = place.disk.open(f"{place.root}/a")
        writer.write_at(0, [b"seen"])
        assert bytes(reader.read_at(0, 10)) == b"seen"
        place.disk.open(f"{place.root}/a", write=True).write_at(0, [b"S"])
        assert bytes(reader.read_at(0, 10)) == b"Seen"

    def test_a_closed_file_is_closed(self, place: Place) -> None:
        """Every use of a closed file is a ClosedError; closing twice is harmless."""
        file = place.disk.create(f"{place.root}/a")
        file.close()
        file.close()
        uses: list[Callable[[], object]] = [
            lambda: file.read_at(0, 1),
            lambda: file.write_at(0, [b"x"]),
            lambda: file.truncate(0),
            file.sync,
            file.size,
            lambda: place.disk.submit_sync([file], lambda: None),
        ]
        for use in uses:
            with pytest.raises(ClosedError):
                use()

    def test_a_file_outlives_its_name(self, place: Place) -> None:
        """A file that was removed, or replaced by a rename, stays readable to who has it open."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [b"old"])
        other = place.disk.create(f"{place.root}/b")
        place.disk.rename(f"{place.root}/b", f"{place.root}/a")
        other.write_at(0, [b"new"])
        place.disk.remove(f"{place.root}/a")
        assert (bytes(file.read_at(0, 9)), bytes(other.read_at(0, 9))) == (b"old", b"new")

    def test_negative_positions_are_refused(self, place: Place) -> None:
        """A negative position or size is an error, not another place."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [b"x"])
        refuses(errno.EINVAL, file.write_at, -1, [b"y"])
        refuses(errno.EINVAL, file.read_at, -1, 1)
        refuses(errno.EINVAL, file.truncate, -1)


class TestFolders:
    def test_names_are_listed_sorted(self, place: Place) -> None:
        """A folder lists what it holds, sorted; a missing one is an error."""
        for name in ("b", "a", "c-1"):
            place.disk.create(f"{place.root}/{name}").close()
        place.disk.make_directory(f"{place.root}/folder")
        assert place.disk.list(place.root) == ["a", "b", "c-1", "folder"]
        refuses(errno.ENOENT, place.disk.list, f"{place.root}/none")
        refuses(errno.ENOTDIR, place.disk.list, f"{place.root}/a")

    def test_stat(self, place: Place) -> None:
        """Stat tells size and kind, and None for what is not there."""
        place.disk.create(f"{place.root}/a").write_at(0, [b"12345"])
        found = place.disk.stat(f"{place.root}/a")
        assert found is not None
        assert (found.size, found.is_directory) == (5, False)
        folder = place.disk.stat(place.root)
        assert folder is not None
        assert folder.is_directory
        assert place.disk.stat(f"{place.root}/b") is None
        assert place.disk.stat(f"{place.root}/a/b") is None

    def test_the_name_of_an_empty_folder_is_synced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Making one below it, it may be what a process made that was killed before it could sync the name."""
        synced: list[str] = []
        monkeypatch.setattr("pyreplog.system.disk._sync_directory", synced.append)
        (tmp_path / "a").mkdir()
        SystemDisk().make_directory(str(tmp_path / "a/b"))
        assert synced == [str(tmp_path)]
        SystemDisk().make_directory(str(tmp_path / "a/c"))
        assert synced == [str(tmp_path)], "with something in it, it was made by who synced its name, or not for us"

    def test_a_name_that_cannot_be_synced_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a folder that may be written to and not read, the second try is not to succeed where the first one
        failed: nothing that was made stays. Where nobody of ours may write, we made nothing."""

        def refused(folder: str) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", folder)

        (tmp_path / "other").touch()
        monkeypatch.setattr("pyreplog.system.disk._sync_directory", refused)
        for _ in range(2):
            with pytest.raises(StorageError) as caught:
                SystemDisk().make_directory(str(tmp_path / "a/b/c"))
            assert caught.value.errno == errno.EACCES
        assert [path.name for path in tmp_path.iterdir()] == ["other"]
        (tmp_path / "a").mkdir()
        with pytest.raises(StorageError):
            SystemDisk().make_directory(str(tmp_path / "a/b"))
        monkeypatch.setattr("os.access", lambda path, mode, **rest: path != str(tmp_path))
        SystemDisk().make_directory(str(tmp_path / "a/b"))

    def test_make_directory(self, place: Place) -> None:
        """Folders are made with their parents; one that exists is fine; a file in the way is not."""
        place.disk.make_directory(f"{place.root}/x/y/z")
        place.disk.make_directory(f"{place.root}/x/y/z")
        place.disk.make_directory(f"{place.root}/x/y/z/")
        assert place.disk.list(f"{place.root}/x/y") == ["z"]
        place.disk.create(f"{place.root}/file").close()
        refuses(errno.EEXIST, place.disk.make_directory, f"{place.root}/file")
        refuses(errno.ENOTDIR, place.disk.make_directory, f"{place.root}/file/below")

    def test_remove(self, place: Place) -> None:
        """Files and empty folders can be removed; others and missing ones not."""
        place.disk.make_directory(f"{place.root}/x")
        place.disk.create(f"{place.root}/x/a").close()
        refuses(errno.ENOTEMPTY, place.disk.remove_directory, f"{place.root}/x")
        refuses(errno.EISDIR, place.disk.remove, f"{place.root}/x")
        place.disk.remove(f"{place.root}/x/a")
        refuses(errno.ENOENT, place.disk.remove, f"{place.root}/x/a")
        place.disk.remove_directory(f"{place.root}/x")
        assert place.disk.list(place.root) == []
        refuses(errno.ENOENT, place.disk.remove_directory, f"{place.root}/x")

    def test_rename(self, place: Place) -> None:
        """A rename replaces a file, moves folders with all they hold, and refuses what would lose something."""
        disk, root = place
        disk.create(f"{root}/a").write_at(0, [b"new"])
        disk.create(f"{root}/b").write_at(0, [b"old"])
        disk.rename(f"{root}/a", f"{root}/b")
        assert disk.list(root) == ["b"]
        assert bytes(disk.open(f"{root}/b").read_at(0, 9)) == b"new"
        disk.make_directory(f"{root}/x/y")
        disk.create(f"{root}/x/y/c").close()
        disk.rename(f"{root}/x", f"{root}/z")
        assert disk.list(f"{root}/z/y") == ["c"]
        refuses(errno.ENOENT, disk.rename, f"{root}/x", f"{root}/q")
        refuses(errno.EISDIR, disk.rename, f"{root}/b", f"{root}/z")
        refuses(errno.ENOTDIR, disk.rename, f"{root}/z", f"{root}/b")
        refuses(errno.EINVAL, disk.rename, f"{root}/z", f"{root}/z/y/w")
        disk.make_directory(f"{root}/full/1")
        refuses(errno.ENOTEMPTY, disk.rename, f"{root}/z", f"{root}/full")
        disk.rename(f"{root}/b", f"{root}/b")
        assert disk.list(root) == ["b", "full", "z"]

    def test_sync_directory(self, place: Place) -> None:
        """A folder can be synced; what is none cannot."""
        place.disk.create(f"{place.root}/a").close()
        place.disk.sync_directory(place.root)
        refuses(errno.ENOTDIR, place.disk.sync_directory, f"{place.root}/a")
        refuses(errno.ENOENT, place.disk.sync_directory, f"{place.root}/none")


class TestSyncs:
    def test_every_submitted_sync_ends_once(self, place: Place) -> None:
        """Each token comes back once, without an error, and poll then has no more."""
        files = [place.disk.create(f"{place.root}/{name}") for name in "abc"]
        for file in files:
            file.write_at(0, [b"x" * 5000])
            file.sync()
        assert [end.error for end in settle(place, *files, count=20)] == [None] * 20
        assert [*place.disk.poll()] == []

    def test_a_sync_of_nothing_ends(self, place: Place) -> None:
        """No files: done at once."""
        assert settle(place)[0].error is None

    def test_a_file_closed_meanwhile_is_synced_all_the_same(self, place: Place) -> None:
        """Closing a file does not undo a sync that was asked for."""
        file = place.disk.create(f"{place.root}/a")
        file.write_at(0, [b"x"])
        news = threading.Event()
        token = place.disk.submit_sync([file], news.set)
        file.close()
        assert news.wait(10)
        assert [*place.disk.poll()] == [SyncDone(token, None)]

    def test_another_disks_file_is_refused(self, place: Place) -> None:
        """A file belongs to the disk that opened it."""
        foreign = SimDisk().create("/a")
        with pytest.raises(InternalError):
            place.disk.submit_sync([foreign], lambda: None)


class TestLocks:
    def test_the_lock_is_exclusive_and_names_its_holder(self, place: Place) -> None:
        """A second lock in the same process is refused with the first one's text, until it is released."""
        path = f"{place.root}/.lock"
        lock = place.disk.lock(path, "node 7")
        for _ in range(2):
            with pytest.raises(LockedError, match="node 7") as caught:
                place.disk.lock(path, "node 8")
            assert "pid" in caught.value.holder
        place.disk.open(path).close()
        with pytest.raises(LockedError):
            place.disk.lock(path, "opening and closing the file elsewhere must not give it up")
        lock.release()
        lock.release()
        assert place.disk.open(path).size() == 0
        again = place.disk.lock(path, "node 8")
        lock.release()
        with pytest.raises(LockedError, match="node 8"):
            place.disk.lock(path, "")
        again.release()

    def test_a_locked_file_may_have_other_content(self, place: Place) -> None:
        """The holder's text has a place of its own in it; the lock leaves the rest alone, and knows which file it is
        of, whatever becomes of the name."""
        path = f"{place.root}/state"
        file = place.disk.create(path)
        file.write_at(0, [b"h" * 300 + b"rest"])
        lock = place.disk.lock(path, "reader", 16)
        with pytest.raises(LockedError, match=r"pid \d+ on .*reader") as caught:
            place.disk.lock(path, "another", 16)
        assert caught.value.holder
        found = place.disk.stat(path)
        assert found is not None
        assert found.identity == lock.identity
        place.disk.rename(path, f"{place.root}/moved")
        other = place.disk.lock(path, "new", 16)
        assert other.identity != lock.identity
        other.release()
        lock.release()
        moved = place.disk.open(f"{place.root}/moved")
        assert bytes(moved.read_at(0, 304)) == b"h" * 16 + bytes(248) + b"h" * 36 + b"rest"
        moved.close()
        file.close()
        place.disk.lock(f"{place.root}/moved", "again", 16).release()

    def test_a_lock_needs_its_folder(self, place: Place) -> None:
        """Locking in a folder that is not there is an error with the path."""
        refuses(errno.ENOENT, place.disk.lock, f"{place.root}/none/.lock", "")

    def test_boot_id_stays(self, place: Place) -> None:
        """The boot id is the same all the time."""
        assert place.disk.boot_id("") == place.disk.boot_id("")
        assert place.disk.boot_id("") != "" or isinstance(place.disk, SystemDisk)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 300), st.lists(st.binary(max_size=90), max_size=4)),
        st.tuples(st.just("truncate"), st.integers(0, 400), st.just([])),
        st.tuples(st.just("read"), st.integers(0, 400), st.just([])),
    ),
    max_size=30,
)


@given(operations=OPERATIONS)
def test_a_file_is_a_bytearray(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, list[bytes]]]
) -> None:
    """Any sequence of writes, truncations and reads does to a file, real or simulated, what it does to a
    bytearray."""
    system = SystemDisk()
    real = system.create(str(tmp_path_factory.mktemp("model") / "a"))
    simulated = SimDisk().create("/a")
    model = bytearray()
    for kind, number, parts in operations:
        if kind == "write":
            data = b"".join(parts)
            if data:
                model.extend(bytes(max(0, number - len(model))))
                model[number : number + len(data)] = data
            real.write_at(number, parts)
            simulated.write_at(number, parts)
        elif kind == "truncate":
            del model[number:]
            model.extend(bytes(number - len(model)))
            real.truncate(number)
            simulated.truncate(number)
        else:
            want = bytes(model[number : number + 64])
            assert (bytes(real.read_at(number, 64)), bytes(simulated.read_at(number, 64))) == (want, want)
    want = bytes(model)
    assert (bytes(real.read_at(0, 1000)), bytes(simulated.read_at(0, 1000))) == (want, want)
    assert (real.size(), simulated.size()) == (len(model), len(model))
    real.close()
    system.close()
