"""What only a real disk can show: modes, links, full disks, threads, forks."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyreplog._core import _platform
from pyreplog.errors import ClosedError, ForkedError, LockedError, StorageError
from pyreplog.ports import Clock, File, SyncDone
from pyreplog.system import SyncBatcher, SystemClock, SystemDisk
from pyreplog.system import disk as disk_module
from pyreplog.system import file as file_module
from pyreplog.system import file_lock as lock_module
from pyreplog.system import sync_pool as syncs_module
from pyreplog.system.descriptor_cache import DESCRIPTORS
from pyreplog.system.file import Descriptor, SystemFile
from tests.unit.system.syncing import syncs_by


@pytest.fixture
def disk() -> Iterator[SystemDisk]:
    disk = SystemDisk()
    yield disk
    disk.close()


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir(0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=20,mode=700", "none", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"SKIPPED FAULT RIG: cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    yield folder
    gc.collect()
    subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def in_child(check: Callable[[], object]) -> str:
    """What ``check`` returns or raises in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = repr(check())
        except BaseException as error:
            answer = type(error).__name__
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


def test_a_link_that_leads_to_itself_leads_nowhere(disk: SystemDisk, tmp_path: Path) -> None:
    """As one to what is not there: nothing is at its end."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("nowhere")
    assert [disk.stat(f"{tmp_path}/{name}") for name in ("loop", "lost", "loop/below")] == [None] * 3


class TestModes:
    @pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
    def test_what_is_made_is_private_whatever_the_umask(self, disk: SystemDisk, tmp_path: Path, mask: int) -> None:
        """Folders are 0700 and files 0600, also parents and lock files."""
        with umask(mask):
            disk.make_directory(f"{tmp_path}/a/b")
            disk.create(f"{tmp_path}/a/b/file").close()
            disk.lock(f"{tmp_path}/a/.lock", "").release()
        assert [mode_of(f"{tmp_path}/{name}") for name in ("a", "a/b", "a/b/file", "a/.lock")] == [
            0o700,
            0o700,
            0o600,
            0o600,
        ]

    def test_an_unsafe_folder_is_not_written_in(self, disk: SystemDisk, tmp_path: Path) -> None:
        """A folder that others may write to, or a link that they could replace, gets no lock, and the text says
        what to do; unless told otherwise. A link that only this user can replace is followed."""
        folder = tmp_path / "loose"
        folder.mkdir()
        folder.chmod(0o775)
        with pytest.raises(StorageError, match="chmod go-w"):
            disk.lock(f"{folder}/.lock", "")
        folder.chmod(0o755)
        disk.lock(f"{folder}/.lock", "").release()
        (tmp_path / "link").symlink_to(folder)
        disk.lock(f"{tmp_path}/link/.lock", "").release()
        tmp_path.chmod(0o770)
        with pytest.raises(StorageError, match="symbolic link"):
            disk.lock(f"{tmp_path}/link/.lock", "")
        folder.chmod(0o777)
        SystemDisk(any_folder=True).lock(f"{tmp_path}/link/.lock", "").release()

    @pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FAULT RIG: giving a folder away needs root")
    def test_a_foreign_folder_is_not_written_in(self, disk: SystemDisk, tmp_path: Path) -> None:
        """A folder of another user gets no lock."""
        folder = tmp_path / "foreign"
        folder.mkdir(0o700)
        os.chown(folder, 12345, 12345)
        with pytest.raises(StorageError, match="12345"):
            disk.lock(f"{folder}/.lock", "")

    def test_links_and_devices_are_no_files(
        self, disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A symbolic link, a FIFO, a socket, a device or a folder is refused as a file, at once."""
        target = tmp_path / "target"
        target.write_bytes(b"secret")
        (tmp_path / "link").symlink_to(target)
        os.mkfifo(tmp_path / "fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(tmp_path)
            listener.bind("socket")
            for name in ("link", "fifo", "socket", "", "/dev/zero"):
                for write in (False, True):
                    with pytest.raises(StorageError):
                        disk.open(os.path.join(tmp_path, name), write=write)
        for name in ("link", "fifo"):
            with pytest.raises(StorageError):
                disk.lock(f"{tmp_path}/{name}", "")
        with pytest.raises(StorageError):
            disk.create(f"{tmp_path}/link")
        assert target.read_bytes() == b"secret"

    def test_a_dangling_link_is_not_created_through(self, disk: SystemDisk, tmp_path: Path) -> None:
        """Creating a file where a link points nowhere fails, and the link's target stays missing."""
        (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StorageError):
            disk.create(f"{tmp_path}/link")
        assert not (tmp_path / "elsewhere").exists()

    def test_descriptors_are_not_inherited(self, disk: SystemDisk, tmp_path: Path) -> None:
        """A program started by exec gets none of our files."""
        file = disk.create(f"{tmp_path}/a")
        lock = disk.lock(f"{tmp_path}/.lock", "")
        listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False)
        if listed.returncode:
            pytest.skip("no /proc")
        assert str(tmp_path) not in listed.stdout
        lock.release()
        file.close()


class TestFullDisk:
    def test_a_full_device_is_an_error_with_its_errno(self) -> None:
        """ENOSPC comes out as such, with what was being done."""
        if not os.path.exists("/dev/full"):
            pytest.skip("SKIPPED FAULT RIG: no /dev/full")
        file = SystemFile("/dev/full", os.open("/dev/full", os.O_RDWR), write=True)
        for parts in ([b"x"], [b"x", b"y"]):
            with pytest.raises(StorageError, match="writing at byte 0") as caught:
                file.write_at(0, parts)
            assert caught.value.errno == errno.ENOSPC
        file.close()

    def test_a_small_disk_takes_a_part_and_then_refuses(self, disk: SystemDisk, tmpfs: Path) -> None:
        """When room runs out amid a write, the part that fitted is there, the error is ENOSPC, and room given back
        can be used."""
        file = disk.create(f"{tmpfs}/a")
        file.write_at(0, [bytes(900_000)])
        with pytest.raises(StorageError) as caught:
            file.write_at(900_000, [b"x" * 300_000])
        assert caught.value.errno == errno.ENOSPC
        assert 900_000 <= file.size() <= 1 << 20
        file.truncate(1000)
        file.write_at(1000, [b"y" * 500_000, b"z"])
        assert file.size() == 501_001
        file.close()

    def test_room_that_is_not_there_is_not_reserved(self, disk: SystemDisk, tmpfs: Path) -> None:
        """A file whose reservation fails does not exist afterwards."""
        with pytest.raises(StorageError, match="reserving") as caught:
            disk.create(f"{tmpfs}/a", 10 << 20)
        assert caught.value.errno == errno.ENOSPC
        assert disk.list(str(tmpfs)) == []

    def test_inodes_run_out(self, disk: SystemDisk, tmpfs: Path) -> None:
        """Too many files is ENOSPC, and removing one makes room for another."""

        def fill() -> None:
            for number in range(30):
                disk.create(f"{tmpfs}/{number}").close()

        with pytest.raises(StorageError) as caught:
            fill()
        assert caught.value.errno == errno.ENOSPC
        disk.remove(f"{tmpfs}/0")
        disk.create(f"{tmpfs}/again").close()

    def test_a_short_write_is_continued(self, disk: SystemDisk, tmp_path: Path) -> None:
        """Where the system takes a part of a write the rest follows, until it refuses."""
        file = disk.create(f"{tmp_path}/a")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
            file.write_at(0, [b"a" * 4000, b"b" * 4000])
            for parts in ([b"c" * 4000], [b"c" * 1500, b"c" * 2500]):
                with pytest.raises(StorageError) as caught:
                    file.write_at(8000, parts)
                assert caught.value.errno == errno.EFBIG
                assert bytes(file.read_at(7999, 9000)) == b"b" + b"c" * 2000
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        file.close()

    def test_short_counts_anywhere_are_continued(
        self, disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Writes and reads of which the system does a few bytes at a time come out whole."""

        class Stingy:
            """``os``, as a system that does at most seven bytes per call."""

            def __getattr__(self, name: str) -> object:
                return getattr(os, name)

            def pwrite(self, fd: int, part: bytes, position: int) -> int:
                return os.pwrite(fd, memoryview(part).cast("B")[:7], position)

            def pwritev(self, fd: int, parts: list[memoryview], position: int) -> int:
                return os.pwrite(fd, b"".join(parts)[:7], position)

            def pread(self, fd: int, size: int, position: int) -> bytes:
                return os.pread(fd, min(size, 7), position)

        file = disk.create(f"{tmp_path}/a")
        monkeypatch.setattr(file_module, "os", Stingy())
        file.write_at(0, [b"0123456789" * 3])
        file.write_at(30, [b"abcdefghij", b"", b"klm", memoryview(b"nopqrstuvwxyz"), b""])
        assert bytes(file.read_at(0, 100)) == b"0123456789" * 3 + b"abcdefghijklmnopqrstuvwxyz"
        file.close()

    def test_file_descriptors_run_out(self, disk: SystemDisk, tmp_path: Path) -> None:
        """Files share what descriptors there are. Where there is none at all, that is an error, and one is enough
        to go on."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        files: list[File] = []
        others: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 5, limits[1]))
            files.extend(disk.create(f"{tmp_path}/{number}") for number in range(50))
            while files:
                files.pop().close()
            with contextlib.suppress(OSError):
                while True:
                    others.append(os.open("/dev/null", os.O_RDONLY))
            DESCRIPTORS.clear()
            with contextlib.suppress(OSError):
                while True:
                    others.append(os.open("/dev/null", os.O_RDONLY))
            with pytest.raises(StorageError) as caught:
                disk.create(f"{tmp_path}/one-more")
            assert caught.value.errno == errno.EMFILE
            os.close(others.pop())
            disk.create(f"{tmp_path}/again").close()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in others:
                os.close(fd)


class TestSyncs:
    def test_those_who_wait_for_one_file_share_a_call(
        self, disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While a file's sync runs, all who ask for it wait for one more, together; another file's sync runs beside
        it."""
        begun, go_on, news = threading.Event(), threading.Event(), threading.Event()
        calls: list[str] = []
        slow, fast = disk.create(f"{tmp_path}/slow"), disk.create(f"{tmp_path}/fast")
        assert isinstance(slow, SystemFile)
        slow_descriptor = slow.descriptor

        def sync(descriptor: Descriptor) -> int:
            name = "slow" if descriptor is slow_descriptor else "fast"
            calls.append(name)
            if name == "slow":
                begun.set()
                assert go_on.wait(10)
            return 0

        monkeypatch.setattr(syncs_module, "sync_data", sync)
        first = disk.submit_sync([slow], news.set)
        assert begun.wait(10)
        later = [disk.submit_sync([slow], news.set) for _ in range(10)]
        beside = disk.submit_sync([fast], news.set)
        assert news.wait(10)
        assert [*disk.poll()] == [SyncDone(beside, None)]
        news.clear()
        go_on.set()
        done: list[SyncDone] = []
        while len(done) < 11:
            assert news.wait(10)
            news.clear()
            done.extend(disk.poll())
        assert [end.token for end in done] == [first, *later]
        assert calls == ["slow", "fast", "slow"]

    def test_held_back_until_somebody_begins_them(self, tmp_path: Path) -> None:
        """Syncs of several disks that are held together begin together; a disk that is closed meanwhile begins its
        own."""
        held = SyncBatcher()
        news = threading.Semaphore(0)
        disks = [SystemDisk(batcher=held) for _ in range(3)]
        files = [one.create(f"{tmp_path}/{number}") for number, one in enumerate(disks)]
        tokens = [one.submit_sync([file], news.release) for one, file in zip(disks, files, strict=True)]
        again = disks[0].submit_sync([files[0]], news.release)
        assert [one._syncs.calls for one in disks] == [0, 0, 0]
        assert len(held.pools) == 3
        disks[2].close()
        assert [*disks[2].poll()] == [SyncDone(tokens[2], None)]
        held.flush_and_wait(0)
        assert not held.pools
        for _ in range(4):
            assert news.acquire(timeout=10)
        assert [*disks[0].poll()] == [SyncDone(tokens[0], None), SyncDone(again, None)]
        assert [*disks[1].poll()] == [SyncDone(tokens[1], None)]
        assert [one._syncs.calls for one in disks] == [1, 1, 1]
        for one in disks:
            one.close()

    def test_the_end_waits_for_no_idle_thread(
        self, disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Threads that found nothing to do while another's file waited for one more sync end with that sync, not
        when they are bored."""
        begun, go_on, go_on_first = threading.Semaphore(0), threading.Event(), threading.Event()
        files = [disk.create(f"{tmp_path}/{number}") for number in range(3)]
        assert isinstance(files[0], SystemFile)
        first = files[0].descriptor

        def sync(descriptor: Descriptor) -> int:
            begun.release()
            assert (go_on_first if descriptor is first else go_on).wait(10)
            return 0

        monkeypatch.setattr(syncs_module, "sync_data", sync)
        monkeypatch.setattr(syncs_module, "IDLE_S", 30.0)
        for file in files:
            disk.submit_sync([file], lambda: None)
        for _ in files:
            assert begun.acquire(timeout=10)
        disk.submit_sync([files[0]], lambda: None)
        pool = disk._syncs
        threads = list(pool._threads)
        pool.stop()
        go_on.set()
        while True:
            with pool._lock:
                if pool._idle == len(threads) - 1:
                    break
            os.sched_yield()
        go_on_first.set()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()

    def test_a_failed_sync_is_reported_and_never_tried_again(self, disk: SystemDisk, tmp_path: Path) -> None:
        """All who waited hear of the failure; the file's later syncs fail too, without another call; other files go
        on."""
        calls: list[int] = []

        def failing(fd: int) -> int:
            calls.append(fd)
            return errno.EIO if len(calls) == 1 else 0

        bad, good = disk.create(f"{tmp_path}/bad"), disk.create(f"{tmp_path}/good")
        news = threading.Event()

        def outcome(*files: object) -> OSError | None:
            news.clear()
            disk.submit_sync(files, news.set)  # type: ignore[arg-type]
            assert news.wait(10)
            return disk.poll()[0].error

        with syncs_by(failing):
            error = outcome(bad)
            assert isinstance(error, StorageError)
            assert (error.errno, error.filename) == (errno.EIO, f"{tmp_path}/bad")
            assert outcome(bad, good) is not None
            assert outcome(good) is None
            with pytest.raises(StorageError, match="syncing"):
                bad.sync()
        assert len(calls) == 3

    def test_a_sync_that_was_made_has_not_the_number_of_one_that_was_not(
        self, disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file system that is a program gives any number: what it failed must not be taken for what did not even
        begin."""
        file = disk.create(f"{tmp_path}/f")
        monkeypatch.setattr(file_module, "_file_sync", lambda handle: errno.ENFILE)
        monkeypatch.setattr(disk_module, "_sync_all", lambda fd: errno.EMFILE)
        for sync in (file.sync, lambda: disk.sync_directory(str(tmp_path))):
            with pytest.raises(StorageError) as caught:
                sync()
            assert caught.value.errno == errno.EIO

    def test_an_interrupted_sync_is_begun_again(self, disk: SystemDisk, tmp_path: Path) -> None:
        """EINTR is no outcome: it neither fails a sync nor passes for success."""
        answers = [errno.EINTR, errno.EINTR, 0]
        with syncs_by(lambda fd: answers.pop(0)):
            disk.create(f"{tmp_path}/a").sync()
        assert answers == []

    def test_threads_end(self, tmp_path: Path) -> None:
        """Closing a disk finishes its syncs and ends its threads; then it syncs no more. A disk dropped without a
        close ends them too."""
        others = set(threading.enumerate())
        for close in (True, False):
            disk = SystemDisk()
            file = disk.create(f"{tmp_path}/{close}")
            news = threading.Event()
            tokens = [disk.submit_sync([file], news.set) for _ in range(3)]
            if close:
                disk.close()
                assert sorted(end.token for end in disk.poll()) == tokens
                with pytest.raises(ClosedError):
                    disk.submit_sync([file], news.set)
                assert others.issuperset(threading.enumerate())
            else:
                del disk
                gc.collect()
                # It may have begun another one to finish with.
                while left := [thread for thread in threading.enumerate() if thread not in others]:
                    left[0].join(10)
                    assert not left[0].is_alive()
            file.close()

    def test_many_threads_at_once(self, disk: SystemDisk, tmp_path: Path) -> None:
        """Writers, readers and syncs of one file in many threads neither fail nor mix bytes up."""
        file = disk.create(f"{tmp_path}/a")
        file.write_at(0, [bytes(64 * 1000)])
        errors: list[BaseException] = []
        barrier = threading.Barrier(8)

        def work(lane: int) -> None:
            try:
                barrier.wait(10)
                for number in range(200):
                    position = (lane * 200 + number) % 1000 * 64
                    file.write_at(position, [bytes([number % 256]) * 64])
                    read = bytes(file.read_at(position, 64))
                    assert read == read[:1] * 64
                    if number % 50 == 0:
                        disk.submit_sync([file], lambda: None)
                        disk.poll()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(lane,)) for lane in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        file.close()

    def test_a_read_under_way_survives_a_close(self, disk: SystemDisk, tmp_path: Path) -> None:
        """Threads that read while another closes the file get its bytes or a ClosedError, never those of a file
        opened since."""
        wrong: list[bytes] = []
        for round_number in range(30):
            path = f"{tmp_path}/{round_number}"
            file = disk.create(path)
            file.write_at(0, [b"a" * 4096])
            started = threading.Barrier(3)

            def read(file: object = file, started: threading.Barrier = started) -> None:
                started.wait(10)
                with contextlib.suppress(ClosedError):
                    while True:
                        read = bytes(file.read_at(0, 4096))  # type: ignore[attr-defined]
                        if read != b"a" * 4096:
                            wrong.append(read[:10])

            threads = [threading.Thread(target=read) for _ in range(2)]
            for thread in threads:
                thread.start()
            started.wait(10)
            file.close()
            others = [disk.create(f"{path}-{number}") for number in range(3)]
            for other in others:
                other.write_at(0, [b"b" * 4096])
            for thread in threads:
                thread.join(10)
            for other in others:
                other.close()
        assert wrong == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestForks:
    def test_a_childs_copy_is_refused(self, disk: SystemDisk, tmp_path: Path) -> None:
        """In a forked child every use of the parent's disk and files is a ForkedError; a disk of its own works."""
        file = disk.create(f"{tmp_path}/a")
        file.write_at(0, [b"parent"])
        lock = disk.lock(f"{tmp_path}/.lock", "parent")
        uses: list[Callable[[], object]] = [
            lambda: file.write_at(0, [b"child!"]),
            lambda: file.write_at(0, [b"chi", b"ld!"]),
            lambda: file.read_at(0, 1),
            lambda: file.truncate(0),
            file.sync,
            file.size,
            lambda: disk.submit_sync([file], lambda: None),
            lambda: disk.list(str(tmp_path)),
            lambda: disk.lock(f"{tmp_path}/other", ""),
        ]
        assert [in_child(use) for use in uses] == [ForkedError.__name__] * len(uses)
        assert in_child(lambda: bytes(SystemDisk().open(f"{tmp_path}/a").read_at(0, 9))) == "b'parent'"
        assert in_child(lambda: SystemDisk().lock(f"{tmp_path}/.lock", "")) == LockedError.__name__
        assert in_child(lock.release) == "None"
        assert in_child(file.close) == "None"
        with pytest.raises(LockedError):
            disk.lock(f"{tmp_path}/.lock", "")
        assert bytes(file.read_at(0, 9)) == b"parent"
        lock.release()
        file.close()

    def test_a_childs_disk_syncs(self, disk: SystemDisk, tmp_path: Path) -> None:
        """A child forked while the parent's sync threads exist can sync through a disk of its own, and exits."""
        file = disk.create(f"{tmp_path}/a")
        news = threading.Event()
        disk.submit_sync([file], news.set)
        assert news.wait(10)

        def child() -> object:
            own = SystemDisk()
            news = threading.Event()
            own.submit_sync([own.open(f"{tmp_path}/a", write=True)], news.set)
            assert news.wait(10)
            error = own.poll()[0].error
            own.close()
            return error

        assert in_child(child) == "None"
        file.close()

    def test_the_lock_ends_with_its_process_though_a_child_lives(self, disk: SystemDisk, tmp_path: Path) -> None:
        """A forked child does not keep its dead parent's lock."""
        program = f"""
import os, sys, time
from pyreplog.system import SystemDisk
disk = SystemDisk()
lock = disk.lock({str(tmp_path / ".lock")!r}, "parent")
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, b"!")
    sys.stdin.read()
    os._exit(0)
os.read(reading, 1)  # the child runs: it has closed its copy of the lock
print("forked", flush=True)
os.kill(os.getpid(), 9)
"""
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"forked\n"
        process.wait()
        disk.lock(f"{tmp_path}/.lock", "").release()
        process.stdin.close()
        process.stdout.close()


def environment() -> dict[str, str]:
    """This process's, with its import path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class TestExit:
    @pytest.mark.parametrize(
        "ending", ["", "raise SystemExit(0)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGINT)"]
    )
    def test_the_interpreter_ends_with_syncs_under_way(self, tmp_path: Path, ending: str) -> None:
        """A program may end at any moment without closing anything: no hang, no traceback from a background
        thread."""
        program = f"""
import os, signal
from pyreplog.system import SystemDisk
disk = SystemDisk()
files = [disk.create({str(tmp_path)!r} + "/" + str(number)) for number in range(8)]
for round in range(5):
    for file in files:
        file.write_at(0, [bytes(100_000)])
        disk.submit_sync([file], lambda: None)
try:
    {ending or "pass"}
except KeyboardInterrupt:
    pass
"""
        ended = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "ignore", "-c", program],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stderr) == (0, "")


class TestPlatform:
    def test_every_call_answers_with_an_errno(self, tmp_path: Path) -> None:
        """Each function does its work on a good descriptor (or says ENOSYS), and returns EBADF for a bad one."""
        fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
        os.write(fd, bytes(10_000))
        lib = _platform.lib
        assert lib.rl_sync_data(fd) == 0
        assert lib.rl_sync_all(fd) == 0
        assert lib.rl_preallocate(fd, 1 << 20) in (0, errno.EOPNOTSUPP, errno.ENOSYS)
        assert os.fstat(fd).st_size == 10_000
        assert lib.rl_start_writeout(fd, 0, 10_000) in (0, errno.ENOSYS)
        assert lib.rl_drop_cache(fd, 0, 0) in (0, errno.ENOSYS)
        os.close(fd)
        bad = (lib.rl_sync_data(fd), lib.rl_sync_all(fd), lib.rl_preallocate(fd, 10))
        assert bad == (errno.EBADF, errno.EBADF, errno.EBADF)
        assert {lib.rl_start_writeout(fd, 0, 1), lib.rl_drop_cache(fd, 0, 1)} <= {errno.EBADF, errno.ENOSYS}

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_the_fallback_lock(self, disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where there is no open-file-description lock, this process's registry and a POSIX lock exclude a second
        writer all the same."""
        monkeypatch.setattr(lock_module, "_SETLK", 0)
        monkeypatch.setattr(lock_module, "_GETLK", 0)
        path = f"{tmp_path}/.lock"
        lock = disk.lock(path, "first")
        with pytest.raises(LockedError, match="first"):
            disk.lock(path, "second")
        monkeypatch.undo()
        assert (
            in_child(lambda: SystemDisk().lock(path, "")) == LockedError.__name__
        )  # and an open-file-description lock sees it
        lock.release()
        disk.lock(path, "third").release()

    def test_the_clock(self) -> None:
        """Monotonic time does not go back, and wall time is the system's."""
        clock: Clock = SystemClock()
        assert clock.monotonic_ns() <= clock.monotonic_ns()
        assert abs(clock.wall_ms() - time.time() * 1000) < 5000


def test_what_a_handler_raises_is_no_answer_of_the_systems(
    disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that a file is not there, nor that the system does not say since when it runs: both would hide
    records."""

    def ring(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "of the handler's")

    look = os.stat

    def strike(*arguments: Any, **named: Any) -> os.stat_result:
        signal.raise_signal(signal.SIGALRM)
        return look(*arguments, **named)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for ask in (disk.stat, disk.boot_id):
            with monkeypatch.context() as during:
                during.setattr(os, "stat", strike)
                with pytest.raises(FileNotFoundError, match="of the handler's"):
                    ask(str(tmp_path))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_descriptor_that_a_signal_handler_came_before_has_nothing_to_close() -> None:
    """What its making had not come to is not there."""
    Descriptor.__new__(Descriptor).__del__()


@pytest.mark.parametrize(
    "call",
    [
        lambda file: file.write_at(0, [b"x"]),
        lambda file: file.write_at(0, [b"x", b"y"]),
        lambda file: file.read_at(-1, 1),
        lambda file: file.truncate(0),
        lambda file: file.sync(),
    ],
    ids=["write", "write parts", "read", "truncate", "sync"],
)
def test_an_error_keeps_no_file_open(
    disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[SystemFile], object]
) -> None:
    """Whoever keeps what a call raised keeps its traceback and all that this holds; the descriptor is given back
    with the file's close all the same. Of the copies that a full disk does not let be made each would hold one, and
    the room of its file."""
    path = tmp_path / "file"
    path.write_bytes(b"data")
    file = disk.open(str(path))  # not for writing
    assert isinstance(file, SystemFile)
    fd = file.descriptor.fd
    monkeypatch.setattr(file_module, "sync_data", lambda _: errno.EIO)
    with pytest.raises(StorageError) as kept:
        call(file)
    monkeypatch.undo()
    file.close()
    with pytest.raises(OSError) as closed:
        os.fstat(fd)
    assert (kept.value.filename, closed.value.errno) == (str(path), errno.EBADF)
