"""What the port promises of a file that several processes change, on the real disk and on the simulated one."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyreplog._core import APPEND_DONE, APPEND_REFUSED, QuickAppend
from pyreplog.errors import ClosedError, ForkedError, LockedError, StorageError
from pyreplog.ports import SharedFile
from pyreplog.system import SystemDisk, shared_file
from pyreplog.testing import SimDisk
from tests.unit.system.conftest import Place


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "LOCK_WAIT_S", 0.0)


def two(place: Place) -> tuple[SharedFile, SharedFile]:
    path = f"{place.root}/shared"
    return place.disk.open_shared(path), place.disk.open_shared(path)


def test_a_missing_file_is_made_and_both_openings_see_its_bytes(place: Place) -> None:
    """Bytes that one opening wrote are read by the other, also before any sync."""
    one, other = two(place)
    one.write_at(5, memoryview(b"bytes"))
    assert other.read_at(0, 100) == b"\0\0\0\0\0bytes"
    assert other.read_at(8, 2) == b"es"
    one.sync()
    assert one.path == other.path == f"{place.root}/shared"


def test_the_lock_keeps_another_opening_out_until_it_is_given_back(place: Place) -> None:
    """Two openings in one process exclude each other; the owner may take the lock again."""
    one, other = two(place)
    one.lock()
    one.lock()
    with pytest.raises(LockedError):
        other.lock()
    other.unlock()  # it has no lock, and takes none away
    with pytest.raises(LockedError):
        other.lock()
    one.unlock()
    other.lock()
    other.close()
    one.lock()


def test_a_number_is_held_until_its_file_is_closed(place: Place) -> None:
    """A number belongs to one opening. It is free as soon as that one is closed, and the lock is another thing."""
    one, other = two(place)
    other.lock()
    assert one.hold(7)
    assert one.hold(7)
    assert not other.hold(7)
    assert other.is_held(7)
    assert not one.is_held(7)
    assert not other.is_held(8)
    one.close()
    assert not other.is_held(7)
    assert other.hold(7)


def test_a_removed_or_replaced_file_is_noticed(place: Place) -> None:
    """An opening knows whether its name still means its file."""
    one, _ = two(place)
    assert one.is_current()
    place.disk.rename(one.path, f"{place.root}/elsewhere")
    assert not one.is_current()
    place.disk.open_shared(one.path)
    assert not one.is_current()


def test_an_append_is_made_only_if_the_file_is_as_its_writer_knows_it(place: Place) -> None:
    """Otherwise nothing is written, and the lock is free again either way."""
    one, other = two(place)
    one.write_at(0, b"expected")
    one.write_at(8, bytes(100))
    assert one.append_unchanged(0, b"expected", 8, b"entry")
    assert not other.append_unchanged(0, b"expected", 8, b"wrong")  # the place is taken
    assert not other.append_unchanged(0, b"unexpected"[:8], 13, b"wrong")
    assert not other.append_unchanged(0, b"expected", 200, b"wrong")  # behind the end, where nothing is prepared
    one.lock()
    assert not other.append_unchanged(0, b"expected", 13, b"wrong")
    one.unlock()
    assert other.append_unchanged(0, b"expected", 13, b"more")
    assert one.read_at(0, 1000) == b"expected" + b"entrymore" + bytes(91)
    one.lock()


def test_an_append_that_fails_leaves_the_lock_to_its_caller(tmp_path: Path) -> None:
    """The caller must see which bytes were written before another opening may append."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    reader, other = os.open(path, os.O_RDONLY), os.open(path, os.O_RDWR)
    try:
        append = QuickAppend().append
        assert append(reader, 0, bytes(16), 50, b"entry") == -errno.EBADF
        assert append(other, 0, bytes(16), 50, b"entry") == APPEND_REFUSED
        fcntl.flock(reader, fcntl.LOCK_UN)
        assert append(other, 0, bytes(16), 50, b"entry") == APPEND_DONE
        assert append(other, 0, bytes(65), 60, b"entry") == APPEND_REFUSED
        assert append(-1, 0, bytes(16), 60, b"entry") == APPEND_REFUSED
    finally:
        os.close(reader)
        os.close(other)


def test_a_closed_file_refuses_everything(place: Place) -> None:
    """After the close every call is a ClosedError, and a second close is harmless."""
    one, _ = two(place)
    one.close()
    one.close()
    for call in (
        one.lock,
        one.sync,
        one.is_current,
        lambda: one.hold(1),
        lambda: one.read_at(0, 1),
        lambda: one.append_unchanged(0, b"", 0, b""),
    ):
        with pytest.raises(ClosedError):
            call()
    one.unlock()


def test_a_failed_sync_is_never_tried_again() -> None:
    """After one failure every sync fails, although the disk would report success."""
    disk = SimDisk()
    file = disk.open_shared("shared")
    file.write_at(0, b"x")
    disk.fail("sync")
    for _ in range(2):
        with pytest.raises(StorageError):
            file.sync()


def test_a_failed_sync_of_the_real_disk_is_never_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the simulated disk."""
    file = SystemDisk().open_shared(str(tmp_path / "shared"))
    codes = [errno.EIO]
    monkeypatch.setattr(shared_file, "sync_outcome", lambda sync, fd: codes.pop() if codes else 0)
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            file.sync()
        assert caught.value.errno == errno.EIO


def test_no_other_kind_of_file_is_opened(tmp_path: Path) -> None:
    """A folder, a FIFO and a symbolic link are refused with their path."""
    os.mkdir(tmp_path / "folder")
    os.mkfifo(tmp_path / "fifo")
    os.symlink(tmp_path / "target", tmp_path / "link")
    for name in ("folder", "fifo", "link"):
        with pytest.raises(StorageError) as caught:
            SystemDisk().open_shared(str(tmp_path / name))
        assert caught.value.filename == str(tmp_path / name)
    assert not (tmp_path / "target").exists()


CHILD = """
import os, sys
from pyreplog.system import SystemDisk
file = SystemDisk().open_shared(sys.argv[1])
file.lock()
assert file.hold(3)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_gives_back_its_lock_and_its_number(tmp_path: Path) -> None:
    """Both are free when the process is gone, without any step of its own."""
    path = str(tmp_path / "shared")
    file = SystemDisk().open_shared(path)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert file.is_held(3)
        with pytest.raises(LockedError):
            file.lock()
        child.kill()
        child.wait()
        assert not file.is_held(3)
        file.lock()
    file.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_neither_uses_nor_keeps_it(tmp_path: Path) -> None:
    """The child gets a ForkedError, and the parent's close frees the lock while the child lives."""
    path = str(tmp_path / "shared")
    file = SystemDisk().open_shared(path)
    file.lock()
    assert file.hold(1)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                file.lock()
            except ForkedError:
                code = 0
            file.close()
            os.write(ready[1], b"x")
            os.read(go[0], 1)
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    other = SystemDisk().open_shared(path)
    assert other.is_held(1)
    file.close()
    assert not other.is_held(1)
    other.lock()
    os.write(go[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (*ready, *go):
        os.close(end)
