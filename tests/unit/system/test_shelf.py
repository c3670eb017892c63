"""Few descriptors for many files: given up when not used, taken again when used, never where a failure could be
missed."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, OffsetOutOfRangeError, StorageError
from pyreplog.log import LogRoot, open_readers, random_uuid
from pyreplog.record import split
from pyreplog.system import SystemDisk
from pyreplog.system.descriptor_cache import DESCRIPTORS, DESCRIPTORS_MAX
from pyreplog.system.file import SystemFile
from tests.unit.log.support import CLOCK, batch
from tests.unit.system.syncing import PATIENCE_S, syncs_by


@pytest.fixture(params=[2, 8])
def few(request: pytest.FixtureRequest) -> Iterator[int]:
    """A shelf of two, or of eight."""
    DESCRIPTORS.size_max = request.param
    yield request.param
    DESCRIPTORS.size_max = DESCRIPTORS_MAX


def held() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_files_give_their_descriptors_up_and_take_them_again(tmp_path: Path, few: int) -> None:
    """Far more files than descriptors: each is read, written, measured and cut as if it had its own."""
    disk = SystemDisk()
    DESCRIPTORS.clear()
    before = held()
    files = []
    for number in range(100):
        file = disk.create(str(tmp_path / f"{number}"))
        file.write_at(0, [b"%d" % number])
        file.sync()
        files.append(file)
    assert held() <= before + 2 * few
    for number, file in enumerate(files):
        assert bytes(file.read_at(0, 10)) == b"%d" % number
        file.write_at(file.size(), [b"!"])
        file.sync()
    for number, file in enumerate(files):
        assert bytes(file.read_at(0, 10)) == b"%d!" % number
        file.truncate(1)
        assert file.size() == 1
        file.sync()
    assert held() <= before + 2 * few
    token = disk.submit_sync(files, lambda: None)
    done = [*disk.poll()]
    while not done:
        done += disk.poll()
    assert done[0].token == token
    assert done[0].error is None
    for file in files:
        file.close()
        with pytest.raises(ClosedError):
            file.read_at(0, 1)
    assert held() <= before
    disk.close()


def test_what_is_not_synced_keeps_its_descriptor(tmp_path: Path, few: int) -> None:
    """A file with unsynced writes, or a failed sync, stays open: only its own descriptor surely hears of a lost
    write."""
    disk = SystemDisk()
    dirty = disk.create(str(tmp_path / "dirty"))
    assert isinstance(dirty, SystemFile)
    dirty.write_at(0, [b"x"])
    kept = dirty.descriptor
    for number in range(40):
        disk.create(str(tmp_path / f"{number}"))
    assert dirty.descriptor is kept
    dirty.sync()
    others = [disk.create(str(tmp_path / f"more-{number}")) for number in range(40)]
    assert dirty._descriptor is not kept
    assert bytes(dirty.read_at(0, 1)) == b"x"
    assert len(others) == 40


def test_a_failed_sync_is_remembered(tmp_path: Path, few: int) -> None:
    """A file whose sync failed is never parked, so that the failure is not forgotten with its descriptor."""
    disk = SystemDisk()
    file = disk.create(str(tmp_path / "failed"))
    file.write_at(0, [b"x"])
    with syncs_by(lambda fd: errno.EIO), pytest.raises(StorageError):
        file.sync()
    DESCRIPTORS.clear()
    with pytest.raises(StorageError):
        file.sync()


def test_segments_that_go_while_they_are_synced(tmp_path: Path) -> None:
    """A sync that comes to a file of a segment that was deleted meanwhile, and had given its descriptor up, goes on
    with the others."""
    settings = {"segment.bytes": 1024, "max.message.bytes": 1000, "file.delete.delay.ms": 0}
    with pyreplog.open_log(tmp_path / "log", durability="os", config=settings) as log:
        left = [True]

        def delete_first(fd: int) -> int:
            if left and log.high_watermark == 20:
                left.clear()
                log.delete_records(18)
                DESCRIPTORS.clear()
            return 0

        with syncs_by(delete_first):
            log.append_many([bytes(900)] * 20)
            log.flush()
        assert not left
        assert (log.start_offset, log.high_watermark, log.stats().flushed_offset) == (18, 20, 20)
        assert log.append(b"next") == 20


def test_a_segment_that_began_anew_under_its_name(tmp_path: Path) -> None:
    """A reader whose file gave its descriptor up, and whose writer, a follower, began the segment anew meanwhile,
    looks again."""
    disk = SystemDisk()
    root = LogRoot.open(disk, str(tmp_path / "root"), clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, random_uuid(Random(2)), LogConfig(segment_bytes=1024))
    log.become_leader(0)

    def append() -> None:
        log.append_as_leader(batch(1, size=400), 0)
        log.advance_high_watermark(log.end_offset)
        log.write_mark()

    for _ in range(8):
        append()
    (reader,) = open_readers(disk, str(tmp_path / "root")).values()
    assert reader.segments()[-1][0] == 6
    assert split(reader.read(6, 1))[0].base_offset == 6
    DESCRIPTORS.clear()
    with open(f"{log.directory}/00000000000000000006.log", "rb"):  # so that no other file gets its inode
        log.truncate_fully(6)
        for _ in range(3):
            append()
        log.delete_records(8)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            reader.read(6, 1)
    assert caught.value.start == 8
    reader.refresh()
    assert split(reader.read(8, 1))[0].base_offset == 8
    reader.close()
    root.close()


def test_another_file_in_its_place_is_refused(tmp_path: Path, few: int) -> None:
    """What an outsider put there, or took away, is told of, and never read or written as if it were the file."""
    disk = SystemDisk()
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").write_bytes(b"old")
    replaced, removed = disk.open(str(tmp_path / "a"), write=True), disk.open(str(tmp_path / "b"))
    DESCRIPTORS.clear()
    (tmp_path / "new").write_bytes(b"new")
    os.replace(tmp_path / "new", tmp_path / "a")
    os.unlink(tmp_path / "b")
    with pytest.raises(StorageError) as caught:
        replaced.read_at(0, 3)
    assert caught.value.errno == errno.ESTALE
    with pytest.raises(StorageError):
        replaced.write_at(0, [b"x"])
    assert (tmp_path / "a").read_bytes() == b"new"
    with pytest.raises(StorageError) as caught:
        removed.read_at(0, 3)
    assert caught.value.errno == errno.ENOENT


def test_threads_share_a_shelf(tmp_path: Path, few: int) -> None:
    """Reads and writes from many threads over many files, while all of them take descriptors from one another."""
    disk = SystemDisk()
    files = [disk.create(str(tmp_path / f"{number}")) for number in range(40)]
    for number, file in enumerate(files):
        file.write_at(0, [b"%06d" % number])
        file.sync()
    wrong: list[object] = []

    def work(seed: int) -> None:
        for turn in range(300):
            number = (seed * 7 + turn * 13) % 40
            try:
                if turn % 10 == 0:
                    files[number].write_at(6, [b"%02d" % seed])
                    files[number].sync()
                if bytes(files[number].read_at(0, 6)) != b"%06d" % number:
                    wrong.append(number)
            except BaseException as error:
                wrong.append(error)
                raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_lives_with_few_descriptors(tmp_path: Path) -> None:
    """Where the process may open few files, unsynced ones are synced and let go, and a log works all the same."""
    script = textwrap.dedent(
        """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
        from pyreplog.system import SystemDisk
        disk = SystemDisk()
        files = [disk.create(f"{sys.argv[1]}/{number}") for number in range(200)]
        for turn in range(2):
            for number, file in enumerate(files):
                file.write_at(turn * 3, [b"%03d" % number])
        for number, file in enumerate(files):
            assert bytes(file.read_at(0, 6)) == b"%03d" % number * 2
        print("well")
        """
    )
    for limit in (24, 100):
        folder = tmp_path / str(limit)
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder), str(limit)], capture_output=True, text=True, check=False
        )
        assert done.stdout == "well\n", done.stderr


def test_a_child_of_fork_opens_nothing_of_its_parent(tmp_path: Path) -> None:
    """A parked file of the parent is refused in the child, as an open one is."""
    script = textwrap.dedent(
        """
        import os, sys
        from pyreplog.errors import ForkedError
        from pyreplog.system import SystemDisk
        from pyreplog.system.descriptor_cache import DESCRIPTORS
        file = SystemDisk().create(sys.argv[1] + "/a")
        DESCRIPTORS.clear()
        child = os.fork()
        if child == 0:
            try:
                file.read_at(0, 1)
            except ForkedError:
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bytes(file.read_at(0, 1)))
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "7 b''\n", done.stderr


def test_the_limit_of_the_process_is_known() -> None:
    """Some descriptors are left to others."""
    from pyreplog.system.descriptor_cache import RESERVED, hard_limit  # noqa: PLC0415  (only here)

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert hard_limit() in (soft - RESERVED, soft // 2, 1 << 30)


def test_syncs_leave_descriptors_to_others(tmp_path: Path) -> None:
    """A file keeps its own until its sync has ended: no more begin than leave some for who appends meanwhile."""
    go = threading.Event()

    def held(fd: int) -> int:
        return 0 if go.wait(PATIENCE_S) else errno.ETIMEDOUT

    disk = SystemDisk()
    files = [disk.create(f"{tmp_path}/{number}") for number in range(12)]
    with syncs_by(held), pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyreplog.system.sync_pool.hard_limit", lambda: 20)
        for file in files:
            file.write_at(0, [b"x"])
        for file in files[:10]:
            disk.submit_sync([file], lambda: None)
        with pytest.raises(StorageError) as caught:
            disk.submit_sync(files[10:11], lambda: None)
        assert caught.value.errno == errno.EMFILE
        go.set()
        done = 0
        while done < 10:
            done += len([*disk.poll()])
        token = disk.submit_sync(files, lambda: None)  # nothing else is under way
        while token not in [one.token for one in disk.poll()]:
            pass
    for file in files:
        file.close()
