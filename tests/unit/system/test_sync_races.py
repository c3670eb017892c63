"""Once a sync of a file has failed none of it succeeds: not after it, not beside it, whoever makes them, whoever
hears of it first."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

from pyreplog._core import _platform
from pyreplog.errors import ForkedError, StorageError
from pyreplog.ports import Disk, SyncDone
from pyreplog.runtime.background_syncs import BackgroundSyncs
from pyreplog.system import SyncBatcher, SystemDisk
from pyreplog.system import file as file_module
from pyreplog.system import sync_batcher as batcher_module
from pyreplog.system import sync_pool as pool_module
from pyreplog.system.file import SystemFile
from tests.unit.system.syncing import PATIENCE_S, Kernel, syncs_by

Written: TypeAlias = Callable[[str], SystemFile]
LONG_NS = int(PATIENCE_S * 1e9)


def test_a_sync_is_not_begun_beside_another() -> None:
    """The one under way could not hear of what fails then, and would call durable what is not. Before it and after
    it, it is begun, and what fails is a failure of every sync from then on."""
    lib = _platform.lib
    nowhere = 1 << 20  # a descriptor that no process has: whatever is begun fails
    file = lib.rl_file_new(nowhere, _platform.ffi.NULL)
    inside, go = threading.Event(), threading.Event()

    def sync(fd: int) -> int:
        inside.set()
        return 0 if go.wait(PATIENCE_S) else errno.ETIMEDOUT

    outcomes: list[int] = []
    with syncs_by(sync):
        thread = threading.Thread(target=lambda: outcomes.append(lib.rl_file_sync(file)))
        thread.start()
        assert inside.wait(PATIENCE_S)
        lib.rl_file_start_sync(file, 0, 4096)
        go.set()
        thread.join(PATIENCE_S)
        assert (outcomes, lib.rl_file_error(file)) == ([0], 0)
        lib.rl_file_start_sync(file, 0, 4096)
        failure = 0 if sys.platform == "darwin" else errno.EBADF  # which has no such call
        assert (lib.rl_file_sync(file), lib.rl_file_error(file)) == (failure, failure)


# ------------------------------------------------------------------ every way to have a file synced


def outcome(disk: Disk, token: int, news: threading.Event) -> None:
    """Wait for that sync, and raise what came of it."""
    while not (done := [one for one in disk.poll() if one.token == token]):
        assert news.wait(PATIENCE_S)
        news.clear()
    if done[0].error is not None:
        raise done[0].error


def direct(file: SystemFile) -> None:
    """In this thread."""
    file.sync()


def pooled(file: SystemFile) -> None:
    """In a thread of a disk."""
    disk, news = SystemDisk(), threading.Event()
    outcome(disk, disk.submit_sync([file], news.set), news)
    disk.close()


def early(file: SystemFile) -> None:
    """As files are synced that are still written."""
    disk = SystemDisk()
    syncs = BackgroundSyncs(disk)
    syncs.begin([file])
    for ended in syncs.rest():
        for done in ended:
            if done.error is not None:
                raise done.error
    disk.close()


def grouped(file: SystemFile) -> None:
    """In a group of its own, waited for without a thread of Python."""
    held, news = SyncBatcher(), threading.Event()
    disk = SystemDisk(batcher=held)
    token = disk.submit_sync([file], news.set)
    held.flush_and_wait(LONG_NS)
    outcome(disk, token, news)
    disk.close()


def adopted(file: SystemFile) -> None:
    """In a group of its own that was left to a thread."""
    held, news = SyncBatcher(), threading.Event()
    disk = SystemDisk(batcher=held)
    token = disk.submit_sync([file], news.set)
    assert held._lend()
    held._leave_to_thread()
    outcome(disk, token, news)
    disk.close()


def shelved(file: SystemFile) -> None:
    """Before it gives its descriptor up."""
    if not file.release_descriptor(sync=True):
        raise StorageError(file.descriptor.sync_error, "not given up", file.path)


WAYS: list[Callable[[SystemFile], None]] = [direct, pooled, early, grouped, adopted, shelved]


class Beside:
    """``work`` in a thread of its own."""

    def __init__(self, work: Callable[[SystemFile], None], file: SystemFile) -> None:
        self.error: BaseException | None = None

        def run() -> None:
            try:
                work(file)
            except BaseException as error:  # whatever it is, the test has to see it
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def ends(self, timeout_s: float) -> bool:
        """Whether it has ended, after so long at most."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def errno(self) -> int:
        """Once it has ended: 0, or the errno it was told."""
        assert self.ends(PATIENCE_S)
        if self.error is None:
            return 0
        assert isinstance(self.error, StorageError), self.error
        return self.error.errno or 0


def users(file: SystemFile) -> int:
    """How many hold on to the file's descriptor, syncs among them."""
    return _platform.lib.rl_file_users(file.descriptor.handle)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """What all syncs ask; whoever waits for a group does so until it has ended."""
    monkeypatch.setattr(batcher_module, "WAIT_MAX_NS", LONG_NS)
    kernel = Kernel()
    with syncs_by(kernel):
        yield kernel
        kernel.go.set()


@pytest.fixture
def written(tmp_path: Path, kernel: Kernel) -> Iterator[Written]:
    """Makes a new file with something in it that no sync covered."""
    files: list[SystemFile] = []

    def write(name: str) -> SystemFile:
        file = SystemDisk().create(f"{tmp_path}/{name}")
        assert isinstance(file, SystemFile)
        files.append(file)
        file.write_at(0, [b"x"])
        return file

    yield write
    kernel.go.set()
    for file in files:
        file.close()


# -------------------------------------------------------------------------------------------- races


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_no_sync_succeeds_beside_one_that_fails(
    kernel: Kernel, written: Written, first: Callable[[SystemFile], None], second: Callable[[SystemFile], None]
) -> None:
    """The kernel has told one of them, which has not heard it yet; and would tell the other that all is well."""
    file = written("file")
    kernel.lose(file.descriptor.fd)
    one = Beside(first, file)
    assert kernel.told.acquire(timeout=PATIENCE_S)
    before = users(file)
    other = Beside(second, file)
    while not other.ends(0.001) and users(file) == before:
        pass  # until it is over, which it must not be, or waits for the first
    kernel.go.set()
    assert [one.errno, other.errno] == [errno.EIO, errno.EIO]
    assert [Beside(way, file).errno for way in WAYS] == [errno.EIO] * len(WAYS)
    assert len(kernel.calls) == 1


@pytest.mark.parametrize("way", WAYS)
def test_what_was_synced_before_a_failure_stays_synced(
    kernel: Kernel, written: Written, way: Callable[[SystemFile], None]
) -> None:
    """A sync that was over before another began, and failed, has nothing to do with it; nor have interruptions, or
    other files."""
    file, good = written("file"), written("good")
    kernel.go.set()
    kernel.lose(file.descriptor.fd, errno.EINTR, errno.EINTR)
    assert Beside(way, file).errno == 0
    file.write_at(0, [b"y"])
    kernel.lose(file.descriptor.fd, errno.EINTR, errno.ENOSPC)
    assert Beside(way, file).errno == errno.ENOSPC
    assert Beside(direct, file).errno == errno.ENOSPC
    assert Beside(way, good).errno == 0
    assert len(kernel.calls) == 6


def test_a_failure_of_one_file_of_a_group_beside_its_close(kernel: Kernel, written: Written) -> None:
    """The others are told at once; the closed one's number is nobody else's before its sync is over, and then a
    clean one."""
    held, news = SyncBatcher(), threading.Semaphore(0)
    disks = [SystemDisk(batcher=held) for _ in range(3)]
    files = [written(str(number)) for number in range(3)]
    number = files[1].descriptor.fd
    kernel.lose(number)
    tokens = [disk.submit_sync([file], news.release) for disk, file in zip(disks, files, strict=True)]

    def close_and_wake(wait: Callable[[], object]) -> None:
        assert kernel.told.acquire(timeout=PATIENCE_S)
        files[1].close()
        held.wake()
        wait()

    held.flush_and_wait(LONG_NS, close_and_wake)  # a thread finishes the rest
    assert news.acquire(timeout=PATIENCE_S)
    assert news.acquire(timeout=PATIENCE_S)
    assert [[*disks[place].poll()] for place in (0, 2)] == [[SyncDone(tokens[0], None)], [SyncDone(tokens[2], None)]]
    other = written("other")
    assert other.descriptor.fd != number
    os.fstat(number)
    kernel.go.set()
    assert news.acquire(timeout=PATIENCE_S)
    (done,) = disks[1].poll()
    assert isinstance(done.error, StorageError)
    assert (done.token, done.error.errno, done.error.filename) == (tokens[1], errno.EIO, files[1].path)
    for disk in disks:
        disk.close()
    with pytest.raises(OSError) as closed:
        os.fstat(number)
    assert closed.value.errno == errno.EBADF
    again = written("again")
    while again.descriptor.fd < number:
        again = written(f"after-{again.descriptor.fd}")
    assert again.descriptor.fd == number
    again.sync()


def test_a_group_that_is_dropped_keeps_its_files_open(kernel: Kernel, written: Written) -> None:
    """Nobody waits for it any more, and its file is closed: the number is free when the sync is over, not
    before."""
    file = written("file")
    number, handle = file.descriptor.fd, file.descriptor.handle
    kernel.lose(number)
    group = batcher_module._SyncBatch()
    group.files[0] = handle
    assert batcher_module._begin(group.handle, group.files, 1) == 0
    assert kernel.told.acquire(timeout=PATIENCE_S)
    del group
    file.close()
    os.fstat(number)
    kernel.go.set()
    with pytest.raises(OSError) as closed:
        while True:
            os.fstat(number)
    assert closed.value.errno == errno.EBADF


@pytest.mark.parametrize("way", [pooled, early, grouped, adopted])
def test_a_failure_is_the_file_s_not_the_descriptor_s(
    kernel: Kernel, written: Written, way: Callable[[SystemFile], None]
) -> None:
    """A file that gives its descriptor up while a sync of it is under way, and gets another: what comes of that
    sync counts for it, too."""
    file = written("file")
    file.sync()
    old = file.descriptor
    kernel.lose(old.fd)
    one = Beside(way, file)
    assert kernel.told.acquire(timeout=PATIENCE_S)
    assert file.release_descriptor(sync=False)
    before = users(file)  # of another descriptor now
    assert file.descriptor is not old
    other = Beside(direct, file)
    while not other.ends(0.001) and users(file) == before:
        pass
    kernel.go.set()
    assert [one.errno, other.errno] == [errno.EIO, errno.EIO]
    assert not file.release_descriptor(sync=False)


def test_no_interrupt_loses_a_failure(kernel: Kernel, written: Written) -> None:
    """Wherever Ctrl-C strikes in a sync that the kernel told of it: later ones fail."""
    kernel.go.set()
    place = file_module.sync_data.__code__
    for number in range(100):
        file = written(str(number))
        kernel.lose(file.descriptor.fd)
        calls, left = len(kernel.calls), number

        def strike(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code is not place:
                return None
            if event == "line":
                left -= 1
                if left == -1:
                    raise KeyboardInterrupt
            return strike

        before = sys.gettrace()
        sys.settrace(strike)
        try:
            file.sync()
        except KeyboardInterrupt:
            pass
        except StorageError:
            assert left >= 0
            break
        finally:
            sys.settrace(before)
        assert left == -1
        for _ in range(2):
            with pytest.raises(StorageError):
                file.sync()
        assert len(kernel.calls) == calls + 1
    assert number >= 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_waits_for_no_sync_of_its_parent(kernel: Kernel, written: Written) -> None:
    """A fork while a sync is under way: the child's copy of the file refuses, and is closed; its own files sync."""
    file = written("file")
    kernel.lose(file.descriptor.fd)
    one = Beside(grouped, file)
    assert kernel.told.acquire(timeout=PATIENCE_S)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                file.sync()
            except ForkedError:
                file.close()
                own = written("child")
                own.sync()
                own.close()
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kernel.go.set()
    assert one.errno == errno.EIO


def test_ctrl_c_in_a_sync_of_the_callers_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be started, the caller syncs itself. A Ctrl-C in that sync ends only the caller's request: the
    requests of other threads are finished, and a later sync of the file is done."""
    tmp_path.chmod(0o700)
    disk = SystemDisk()
    file = disk.create(str(tmp_path / "file"), 0)
    sync_data, others = vars(pool_module)["sync_data"], threading.Event()

    def interrupted(descriptor: Any) -> int:
        monkeypatch.setattr(pool_module, "sync_data", sync_data)
        thread = threading.Thread(target=disk.submit_sync, args=([file], others.set))
        real_start(thread)
        thread.join(PATIENCE_S)
        raise KeyboardInterrupt

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    real_start = threading.Thread.start
    file.write_at(0, [b"abc"])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        monkeypatch.setattr(pool_module, "sync_data", interrupted)
        with pytest.raises(KeyboardInterrupt):
            disk.submit_sync([file], lambda: None)
        assert others.wait(PATIENCE_S)
    later = threading.Event()
    file.write_at(0, [b"abd"])
    disk.submit_sync([file], later.set)
    assert later.wait(PATIENCE_S)
    file.close()
    disk.close()
