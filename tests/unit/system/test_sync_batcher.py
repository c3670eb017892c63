"""Syncs that somebody begins and waits for by himself: as those of the threads, whatever he does instead of
waiting."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pyreplog._core import _platform
from pyreplog.errors import StorageError
from pyreplog.ports import SyncDone
from pyreplog.system import SyncBatcher, SystemDisk
from pyreplog.system import sync_batcher as batcher_module
from pyreplog.system import sync_pool as pool_module
from pyreplog.system.file import Descriptor, SystemFile
from pyreplog.system.sync_pool import SyncPool

PATIENCE_S = 10.0
LONG_NS = 10_000_000_000
RL_SYNCS_MAX = _platform.lib.RL_SYNCS_MAX


class Rig:
    """Three disks that hold their syncs back together, and one file on each."""

    def __init__(self, folder: Path) -> None:
        self.held = SyncBatcher()
        self.disks = [SystemDisk(batcher=self.held) for _ in range(3)]
        self.files = [disk.create(f"{folder}/{number}") for number, disk in enumerate(self.disks)]
        self.news = threading.Semaphore(0)

    def submit(self, number: int) -> int:
        """Write something, and ask for its sync."""
        self.files[number].write_at(0, [b"x"])
        return self.disks[number].submit_sync([self.files[number]], self.news.release)

    def outcome(self, number: int) -> SyncDone:
        """What came of the one sync that was asked for."""
        while not (done := self.disks[number].poll()):
            assert self.news.acquire(timeout=PATIENCE_S)
        (one,) = done
        return one

    def spoil(self, number: int) -> None:
        """From now on a sync of that file fails with EINVAL: its descriptor is a pipe's."""
        file = self.files[number]
        assert isinstance(file, SystemFile)
        reading, writing = os.pipe()
        os.dup2(writing, file.descriptor.fd)
        os.close(reading)
        os.close(writing)

    @property
    def threads(self) -> int:
        """Python's threads at work for the disks."""
        return sum(len(disk._syncs._threads) for disk in self.disks)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A rig that is closed afterwards; its waits last until what is waited for is there."""
    monkeypatch.setattr(batcher_module, "WAIT_MAX_NS", LONG_NS)
    rig = Rig(tmp_path)
    yield rig
    for disk in rig.disks:
        disk.close()


def carry_out(held: SyncBatcher) -> None:
    """Begin, wait, tell; no thread of Python takes part in that."""
    slept: list[bool] = []

    def sleep(wait: Callable[[], object]) -> None:
        slept.append(True)
        wait()

    held.flush_and_wait(LONG_NS, sleep)
    assert slept


def begin(held: SyncBatcher) -> None:
    """Leave all of it to threads."""
    held.flush_and_wait(0)


def adopt(held: SyncBatcher) -> None:
    """Begin, and leave the rest to a thread."""
    assert held._lend()
    held._leave_to_thread()


WAYS = pytest.mark.parametrize("way", [carry_out, begin, adopt])


def test_no_thread_of_python_takes_part(rig: Rig) -> None:
    """Who waits by himself finds everybody told when he has, again and again."""
    for _ in range(3):
        tokens = [rig.submit(number) for number in range(3)]
        carry_out(rig.held)
        assert [[*disk.poll()] for disk in rig.disks] == [[SyncDone(token, None)] for token in tokens]
        assert not rig.held.pools
    assert rig.threads == 0
    assert [disk._syncs.calls for disk in rig.disks] == [3, 3, 3]


@WAYS
def test_a_failure_is_that_file_s_alone_and_for_good(rig: Rig, way: Callable[[SyncBatcher], None]) -> None:
    """Whoever carries it out: the error has the file's name and number, its later syncs fail too, others go on."""
    rig.spoil(1)
    tokens = [
        rig.submit(number) if number != 1 else rig.disks[1].submit_sync([rig.files[1]], rig.news.release)
        for number in range(3)
    ]
    way(rig.held)
    ends = [rig.outcome(number) for number in range(3)]
    assert [end.token for end in ends] == tokens
    assert [type(end.error) for end in ends] == [type(None), StorageError, type(None)]
    error = ends[1].error
    assert isinstance(error, StorageError)
    assert (error.errno, error.filename) == (errno.EINVAL, rig.files[1].path)
    file = rig.files[1]
    assert isinstance(file, SystemFile)
    os.dup2(rig.files[0].descriptor.fd, file.descriptor.fd)  # type: ignore[attr-defined]  # from now on it would succeed
    rig.disks[1].submit_sync([file], rig.news.release)
    begin(rig.held)
    assert isinstance(rig.outcome(1).error, StorageError)
    rig.disks[1].submit_sync([file], rig.news.release)
    carry_out(rig.held)
    assert isinstance(rig.outcome(1).error, StorageError)


@WAYS
def test_what_is_asked_for_meanwhile_has_a_sync_of_its_own(rig: Rig, way: Callable[[SyncBatcher], None]) -> None:
    """A sync promises nothing about what was written after it began."""
    first = rig.submit(0)
    again = 0

    def submit_and(wait: Callable[[], object]) -> None:
        nonlocal again
        again = rig.submit(0)
        wait()

    rig.held.flush_and_wait(LONG_NS, submit_and)
    assert [*rig.disks[0].poll()] == [SyncDone(first, None)]
    assert rig.held.pools == [rig.disks[0]._syncs]
    way(rig.held)
    assert rig.outcome(0) == SyncDone(again, None)
    assert rig.disks[0]._syncs.calls == 2


def test_a_file_closed_afterwards_is_closed(rig: Rig) -> None:
    """Nothing that carried its sync out keeps it open: its space is given back, and an error of closing is told."""
    token = rig.submit(0)
    carry_out(rig.held)
    assert rig.outcome(0) == SyncDone(token, None)
    file = rig.files[0]
    assert isinstance(file, SystemFile)
    fd = file.descriptor.fd
    os.fstat(fd)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_who_is_woken_leaves_the_rest_to_a_thread(rig: Rig) -> None:
    """A wake that comes before the wait is not lost; what had not ended then is told by a thread, with what was
    asked for since."""

    def wake_before(wait: Callable[[], object]) -> None:
        rig.held.wake()
        wait()

    for _ in range(20):
        tokens = [rig.submit(number) for number in range(3)]
        rig.held.flush_and_wait(LONG_NS, wake_before)
        assert [rig.outcome(number) for number in range(3)] == [SyncDone(token, None) for token in tokens]
        later = rig.submit(1)
        begin(rig.held)
        assert rig.outcome(1) == SyncDone(later, None)


def test_cut_short_anywhere_a_thread_sees_to_it(rig: Rig) -> None:
    """After beginning, and before: rescued twice, too, and by the next start."""
    token = rig.submit(0)
    rig.held._batch = batch = batcher_module._SyncBatch()
    rig.disks[0]._syncs.lend(batch.loans)  # and here somebody was interrupted
    added = rig.submit(0)
    begin(rig.held)
    begin(rig.held)
    ends: set[SyncDone] = set()
    while len(ends) < 2:
        assert rig.news.acquire(timeout=PATIENCE_S)
        ends.update(rig.disks[0].poll())
    assert ends == {SyncDone(token, None), SyncDone(added, None)}
    token = rig.submit(1)
    assert rig.held._lend()  # and here
    other = rig.submit(2)
    carry_out(rig.held)
    assert rig.outcome(1) == SyncDone(token, None)
    assert rig.outcome(2) == SyncDone(other, None)


def test_a_failure_outlives_every_interrupt(rig: Rig) -> None:
    """Wherever Ctrl-C strikes while a failed sync is told, it is told as failed by whoever goes on."""
    rig.spoil(1)
    file = rig.files[1]
    assert isinstance(file, SystemFile)
    places = {SyncPool.end_lent.__code__, pool_module._end.__code__}
    struck: set[int] = set()

    def told_as_failed(token: int) -> None:
        tokens: set[int] = set()
        while token not in tokens:  # those before may be told twice
            for end in rig.disks[1].poll():
                assert isinstance(end.error, StorageError)
                tokens.add(end.token)
            assert token in tokens or rig.news.acquire(timeout=PATIENCE_S)

    for number in itertools.count():
        token = rig.disks[1].submit_sync([file], rig.news.release)
        while not rig.held._lend():  # the thread that told the one before has not given it back: it does this one, too
            begin(rig.held)
            told_as_failed(token)
            token = rig.disks[1].submit_sync([file], rig.news.release)
        rig.held._wait()
        seen: set[int] = set()

        def strike(frame: FrameType, event: str, _: Any, seen: set[int] = seen, number: int = number) -> Any:
            if frame.f_code not in places:
                return None
            if event == "line" and frame.f_lineno not in seen:
                seen.add(frame.f_lineno)
                if len(seen) == number + 1:
                    struck.add(frame.f_lineno)
                    raise KeyboardInterrupt
            return strike

        before = sys.gettrace()
        sys.settrace(strike)
        try:
            rig.held._finish()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        begin(rig.held)
        told_as_failed(token)
        if number not in range(len(seen)):
            break
    assert len(struck) >= 10


def test_many_files_are_for_the_threads(rig: Rig, tmp_path: Path) -> None:
    """More than fit are carried out all the same."""
    files = [rig.disks[0].create(f"{tmp_path}/more-{number}") for number in range(RL_SYNCS_MAX + 1)]
    token = rig.disks[0].submit_sync(files, rig.news.release)
    rig.held.flush_and_wait(LONG_NS, lambda _: pytest.fail("they do not fit"))
    assert rig.outcome(0) == SyncDone(token, None)


def test_an_errand_does_not_wait_behind_a_sync(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is woken for both takes one, and has another thread take the other."""
    rig.submit(0)
    begin(rig.held)
    rig.outcome(0)
    pool = rig.disks[0]._syncs
    told = threading.Event()
    in_time: list[bool] = []

    def hang(descriptor: Descriptor) -> int:
        in_time.append(told.wait(PATIENCE_S))
        return 0

    monkeypatch.setattr(pool_module, "sync_data", hang)
    with pool._lock:  # so that the thread sees both, or is on its way to
        token = rig.submit(0)
        pool.employ(told.set)
        pool.begin()
    assert rig.outcome(0) == SyncDone(token, None)
    assert in_time == [True]


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt])
def test_threads_that_could_not_be_started_are_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Nobody counts them, or waits for them; as soon as there is one to be had it does what was left."""

    def fail(thread: threading.Thread) -> None:
        raise error

    token = rig.submit(0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(pool_module.THREADS_MAX):
            with pytest.raises(error):
                begin(rig.held)
    begin(rig.held)
    assert rig.outcome(0) == SyncDone(token, None)


def test_in_a_child_new_threads_do_it(rig: Rig, tmp_path: Path) -> None:
    """The threads of the parent are not there after a fork; the child's own disks sync with others."""
    rig.submit(0)
    carry_out(rig.held)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (tmp_path / "child").mkdir()
            own = Rig(tmp_path / "child")
            token = own.submit(0)
            carry_out(own.held)
            code = 0 if [*own.disks[0].poll()] == [SyncDone(token, None)] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_group_answers_for_itself() -> None:
    """What the C has to refuse, and that a group which is let go of while at work does no harm."""
    lib, ffi = _platform.lib, _platform.ffi
    group = lib.rl_syncs_new()
    codes = ffi.new("int[]", RL_SYNCS_MAX)
    reading, writing = os.pipe()
    pipe, none = lib.rl_file_new(writing, ffi.NULL), lib.rl_file_new(-1, ffi.NULL)
    assert lib.rl_syncs_begin(group, [pipe], 0) == errno.EINVAL
    assert lib.rl_syncs_begin(group, [pipe] * (RL_SYNCS_MAX + 1), RL_SYNCS_MAX + 1) == errno.EINVAL
    assert lib.rl_syncs_begin(group, [pipe, none], 2) == 0
    while lib.rl_syncs_wait(group, LONG_NS, codes):
        pass
    assert [codes[0], codes[1]] == [errno.EINVAL, errno.EBADF]
    assert [lib.rl_file_error(pipe), lib.rl_file_error(none)] == [errno.EINVAL, errno.EBADF]
    assert lib.rl_syncs_begin(group, [pipe], 1) == 0
    lib.rl_syncs_free(group)
    while lib.rl_file_users(pipe) > 1:
        os.sched_yield()
    os.close(writing)
    assert [lib.rl_file_let_go(one) for one in (pipe, none, ffi.NULL)] == [errno.EBADF, 0, 0]
    os.close(reading)
