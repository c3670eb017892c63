"""The end of an open log when things go wrong: closing that fails, is cut short, or happens twice; and what a
failure leaves waiting."""

from __future__ import annotations

import errno
import gc
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog.log import Log as PartitionLog
from pyreplog.log import SyncPlan
from pyreplog.log.log_segments import LogSegments
from pyreplog.runtime.at_exit import forget, remember, remembered
from pyreplog.runtime.background import Background
from pyreplog.runtime.group_commit import GroupCommit
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.views import ReaderView
from pyreplog.testing import SimDisk
from tests.seed import EVERY, FIRST, SEED, tell
from tests.unit.runtime.interrupt_injection import Struck, interrupted
from tests.unit.runtime.slow import SlowDisk
from tests.unit.runtime.test_log_faults import no_descriptor, opened

PATIENCE_S = 20.0


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    """``work`` in a thread, and where its result is, or what it raised."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except pyreplog.PyreplogError as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ended


def alone(log: pyreplog.Log) -> None:
    """From now on its background thread does nothing."""
    assert log._writer is not None
    log._writer._background._work = lambda: None


def cut_short(log: pyreplog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that a signal handler interrupts within the change of the log."""

    def strike(*_: object, **__: object) -> None:
        raise Struck

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append_as_leader", strike)
        with pytest.raises(Struck):
            log.append(b"interrupted")


def drop(held: list[pyreplog.Log]) -> None:
    """Nobody has them any more."""
    held.clear()
    gc.collect()


# ------------------------------------------------------------------------------------ a failed sync


def test_what_is_gathered_while_a_sync_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handles hear of the failure although nobody wrote it, and reads of what was durable go on."""
    disk = SimDisk()
    log = opened(disk)
    log.append(b"durable")
    alone(log)
    gathered: list[pyreplog.Ack] = []
    sync = GroupCommit._sync

    def during(self: GroupCommit, of: PartitionLog, plan: SyncPlan) -> None:
        gathered.append(log.append_nowait(b"gathered"))
        sync(self, of, plan)

    monkeypatch.setattr(GroupCommit, "_sync", during)
    disk.fail("sync", "*.log", times=None)
    with pytest.raises(pyreplog.UnsyncedError):
        log.append(b"lost?")
    assert gathered[0].done()
    assert isinstance(gathered[0].exception(), pyreplog.ClosedError)
    with pytest.raises(pyreplog.ClosedError):
        log.append_nowait(b"nor is anything gathered behind it")
    assert [record.value for record in log.read()] == [b"durable"]
    assert [record.value for record in log] == [b"durable"]
    assert log.high_watermark == 1
    log.close()


def test_a_chore_that_poisons_the_log_is_told() -> None:
    """Who waits for a record that was gathered hears of it, whoever found out that the log takes nothing any
    more."""
    log = opened(SimDisk())
    log.append(b"durable")
    alone(log)
    ack = log.append_nowait(b"gathered")
    assert log._writer is not None
    log._writer.log.poison(pyreplog.StorageError(errno.EIO, "told to", "x"))
    assert [record.value for record in log.read()] == [b"durable"]
    assert isinstance(ack.exception(), pyreplog.ClosedError)
    log.close()


def test_the_background_thread_tells_of_a_poisoned_log() -> None:
    """The same where nobody reads or asks."""
    log = opened(SimDisk())
    log.append(b"durable")
    alone(log)
    ack = log.append_nowait(b"gathered")
    assert log._writer is not None
    log._writer.log.poison(pyreplog.StorageError(errno.EIO, "told to", "x"))
    assert log._writer._maintenance.step() is None
    assert ack.done()
    log.close()


@pytest.mark.parametrize("way", ["append", "append_many"])
def test_a_sync_that_failed_for_somebody_else(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the write and its own sync: the error says what the disk said to the other one."""
    log = opened(SimDisk())
    log.append(b"durable")
    alone(log)
    writer = log._writer
    assert writer is not None
    write = writer._pending.write

    def fails_then(batch: memoryview) -> Any:
        appended = write(batch)
        writer.log.poison(pyreplog.StorageError(errno.EIO, "told to", "x"))
        return appended

    monkeypatch.setattr(writer._pending, "write", fails_then)
    with pytest.raises(pyreplog.UnsyncedError) as caught:
        if way == "append":
            log.append(b"lost?")
        else:
            log.append_many([b"lost?"])
    assert caught.value.errno == errno.EIO
    log.close()


@pytest.mark.parametrize("call", ["sync", "write"])
def test_who_follows_is_told_by_whoever_finds_the_failure(call: str) -> None:
    """In the moment of the failure, not when the background thread looks."""
    disk = SimDisk()
    log = opened(disk)
    alone(log)
    assert log._writer is not None
    log.append(b"x")
    news = log._writer.follow()
    disk.fail(call, "*.log", times=None)
    with pytest.raises(pyreplog.StorageError):
        log.append(b"y")
    assert news._signal.acquire(blocking=False)
    news.close()
    log.close()


def test_what_was_written_before_an_interruption_is_settled_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was opened again in between, which made durable what is there."""
    log = opened(SimDisk())
    alone(log)
    writer = log._writer
    assert writer is not None
    acks = log.append_many([b"a", b"b"], wait=False)
    cut_short(log, monkeypatch)
    with writer.lock:
        writer.nowait.prepare_change()
    assert (writer.nowait._budget.size, len(writer.nowait._budget._batches)) == (0, 0)
    assert log.stats().flushed_offset == 2
    assert [place.offset for place in acks.result(PATIENCE_S)] == [0, 1]
    log.close()


def test_nothing_is_offered_to_a_log_that_is_to_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes the disk, and who offers does not wait for it."""
    log = opened(SimDisk())
    alone(log)
    cut_short(log, monkeypatch)
    writer = log._writer
    assert writer is not None
    before = writer.log
    assert writer.nowait.try_append(b"x", None, (), None) is None
    assert writer.log is before
    assert log.append(b"x") == 0
    log.close()


def test_sleepers_are_woken_by_the_sync() -> None:
    """Who waits for another one's sync need not look by itself."""
    log = opened(SimDisk())
    alone(log)
    turn = threading.Lock()
    turn.acquire()
    assert log._writer is not None
    log._writer._group_commit._turns.append(turn)
    log.append(b"x")
    assert not turn.locked()
    log.close()


def test_a_sync_of_what_is_not_there_is_refused() -> None:
    """Opened again after an interruption, a log may end before what somebody waits for: it says so, and does not
    try for ever."""
    with opened(SimDisk()) as log:
        log.append(b"x")
        assert log._writer is not None
        with pytest.raises(pyreplog.ClosedError, match="ends at 1"):
            log._writer._group_commit.wait(2, 0.1)


# ------------------------------------------------------------------------------- closing that fails


@pytest.mark.parametrize("call", ["rename", "create", "sync_directory"])
def test_a_failed_close_ends_who_follows(call: str) -> None:
    """No room for the checkpoints: ``close`` raises it, and nobody goes on waiting for records of a closed log."""
    disk = SimDisk()
    log = opened(disk)
    log.append(b"x")
    first = threading.Event()

    def follow() -> list[bytes | None]:
        found = []
        for record in log.follow():
            found.append(record.value)
            first.set()
        return found

    thread, ended = in_thread(follow)
    assert first.wait(PATIENCE_S)
    disk.fail(call, "*", times=None, error=errno.ENOSPC)
    with pytest.raises(pyreplog.StorageError):
        log.close()
    thread.join(PATIENCE_S)
    assert ended == [[b"x"]]
    disk.clear_faults()
    with opened(disk) as log:
        assert log.end_offset == 1


def test_a_close_without_descriptors_settles_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sync could begin, and none will any more: the handles say so, to who awaits them too."""
    disk = SimDisk()
    log = opened(disk)
    alone(log)
    ack = log.append_nowait(b"x")
    assert log._writer is not None
    with log._writer.lock:
        log._writer.nowait.prepare_change()
    monkeypatch.setattr(PartitionLog, "sync_plan", no_descriptor)
    monkeypatch.setattr(PartitionLog, "_sync_blocking", no_descriptor)
    with pytest.raises(pyreplog.StorageError, match="Too many"):
        log.close()
    assert ack.done()
    assert isinstance(ack.exception(), pyreplog.UnsyncedError)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_deletion_cut_short_leaves_a_log_that_goes_on(
    durability: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all segments may go a new one is begun: cut short just then, the next call opens the partition again,
    and what was deleted is not there."""
    disk = SimDisk()
    log = opened(disk, durability=durability, config={"retention.bytes": 0})
    alone(log)
    log.append_many([b"a", b"b"])

    def struck(*_: object) -> None:
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(LogSegments, "append", struck)
    with pytest.raises(error):
        log.delete_records(1)
    assert [record.value for record in log.read()] == [b"b"]
    assert log.append(b"after") == 2
    assert [record.value for record in log.read()] == [b"b", b"after"]
    log.close()


def test_a_close_that_syncs_at_last_acknowledges(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be synced before is durable when the root is closed: its handles say so."""
    disk = SimDisk()
    log = opened(disk)
    alone(log)
    acks = log.append_many([b"a", b"b"], wait=False)
    monkeypatch.setattr(GroupCommit, "wait", no_descriptor)
    with pytest.raises(pyreplog.StorageError, match="Too many"):
        log.close()
    assert [ack.offset for ack in acks] == [0, 1]
    monkeypatch.undo()
    with opened(disk) as log:
        assert log.end_offset == 2


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_closing_a_log_that_cannot_be_opened_again(durability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupted append there is no descriptor to open the partition with: ``close`` says so and ends,
    and nothing is lost."""
    disk = SimDisk()
    log = opened(disk, durability=durability)
    log.append(b"x")
    cut_short(log, monkeypatch)
    disk.fail("open", "*", times=None, error=errno.EMFILE)
    thread, ended = in_thread(log.close)
    thread.join(PATIENCE_S)
    assert [getattr(error, "errno", error) for error in ended] == [errno.EMFILE]
    disk.clear_faults()
    with opened(disk) as log:
        assert [record.value for record in log] == [b"x"]


# --------------------------------------------------------------------------- a repair beside others


def test_who_waits_for_a_sync_while_the_log_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that a thread is about to sync are closed by one that opens the partition again: its record is
    there, and counts."""
    log = opened(SimDisk())
    alone(log)
    sync = GroupCommit._sync
    once = [True]

    def during(self: GroupCommit, of: PartitionLog, plan: SyncPlan) -> None:
        if once.pop() if once else False:
            cut_short(log, monkeypatch)
            log.append_many([b"next"], wait=False)
        sync(self, of, plan)

    monkeypatch.setattr(GroupCommit, "_sync", during)
    assert log.append(b"first") == 0
    assert log.append(b"last") == 2
    assert [record.value for record in log] == [b"first", b"next", b"last"]
    log.close()


def test_who_waits_for_a_sync_opens_a_log_again_whose_opening_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """... by a second Ctrl-C: that is nothing that the others could not do."""
    log = opened(SimDisk())
    alone(log)
    sync = GroupCommit._sync
    once = [True]

    def strike(*_: object) -> None:
        raise Struck

    def during(self: GroupCommit, of: PartitionLog, plan: SyncPlan) -> None:
        if once.pop() if once else False:
            cut_short(log, monkeypatch)
            with monkeypatch.context() as second:
                second.setattr(PartitionLog, "set_tail_cache_size", strike)
                with pytest.raises(Struck):
                    log.append(b"interrupted, too")
        sync(self, of, plan)

    monkeypatch.setattr(GroupCommit, "_sync", during)
    assert log.append(b"first") == 0
    assert log.append(b"last") == 1
    assert [record.value for record in log] == [b"first", b"last"]
    log.close()


def test_who_waits_for_a_sync_hears_that_the_log_cannot_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """... and where the partition cannot be opened again just now, it does not wait for ever; later appends
    succeed."""
    disk = SimDisk()
    log = opened(disk)
    alone(log)
    sync = GroupCommit._sync
    once = [True]

    def during(self: GroupCommit, of: PartitionLog, plan: SyncPlan) -> None:
        if once.pop() if once else False:
            cut_short(log, monkeypatch)
            disk.fail("open", "*", times=None, error=errno.EMFILE)
            with pytest.raises(pyreplog.StorageError, match="open"):
                log.append(b"refused")
        sync(self, of, plan)

    monkeypatch.setattr(GroupCommit, "_sync", during)
    thread, ended = in_thread(lambda: log.append(b"first"))
    thread.join(PATIENCE_S)
    assert [type(error) for error in ended] == [pyreplog.UnsyncedError]
    assert "could not be opened again" in str(ended[0])
    disk.clear_faults()
    assert log.append(b"last") == 1
    log.close()


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("use", ["append", "append_many", "append_nowait", "delete_records"])
@pytest.mark.parametrize("error", [TimeoutError("late"), OSError(errno.ENOSPC, "the handler's"), KeyboardInterrupt()])
def test_what_a_handler_raises_is_no_refusal(
    error: BaseException, use: str, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler's error reaches the caller as it is. The next call repairs the change that it interrupted, here
    the start of a segment."""
    disk = SimDisk()
    log = opened(disk, durability=durability, config={"segment.bytes": 1024, "retention.bytes": 0})
    alone(log)
    told = {log.append(value): value for value in (b"a" * 900, b"b" * 900)}
    sync = PartitionLog._sync_directory

    def ring(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, ring)

    def signalled(self: PartitionLog) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)
        sync(self)

    monkeypatch.setattr(PartitionLog, "_sync_directory", signalled)
    try:
        with pytest.raises(type(error)) as caught:
            if use == "append":
                log.append(b"c" * 900)
            elif use == "append_many":
                log.append_many([b"c" * 900, b"d" * 900])
            elif use == "append_nowait":
                log.append_nowait(b"c" * 900)
                log.flush()
            else:
                log.delete_records(2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught.value is error
    for value in (b"x", b"y", b"z"):
        told[log.append(value)] = value
    with opened(disk.snapshot()) as after_a_kill:
        found = {record.offset: record.value for record in after_a_kill}
    start = 2 if use == "delete_records" else 0
    assert {offset: value for offset, value in told.items() if offset >= start}.items() <= found.items()
    log.close()


def test_a_sync_that_fails_when_the_log_was_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was of the same files: the mark says that nobody knows what the disk holds, and the next opening writes it
    again."""
    disk = SimDisk()
    log = opened(disk, durability="os")
    alone(log)
    log.append(b"first")
    sync = GroupCommit._sync

    def during(self: GroupCommit, of: PartitionLog, plan: SyncPlan) -> None:
        monkeypatch.undo()
        cut_short(log, monkeypatch)
        log.append(b"opens it again")
        disk.fail("sync", "*.log")
        sync(self, of, plan)

    monkeypatch.setattr(GroupCommit, "_sync", during)
    with pytest.raises(pyreplog.PyreplogError):
        log.flush()
    assert log._writer is not None
    assert log._writer.log.poisoned
    with pytest.raises(pyreplog.ClosedError, match="poisoned"):
        log.append(b"refused")
    log.close()
    with opened(disk) as log:
        assert log._writer is not None
        assert log._writer.log.recovery.poisoned


def test_a_log_that_cannot_be_opened_again_is_not_tried_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background thread waits a moment before it tries once more."""
    disk = SimDisk()
    log = opened(disk, durability="os")
    alone(log)
    cut_short(log, monkeypatch)
    writer = log._writer
    assert writer is not None
    writer._maintenance.retain_soon()
    disk.fail("open", "*", times=None, error=errno.EMFILE)
    assert writer._maintenance.step() == 0.5
    disk.clear_faults()
    assert log.append(b"x") == 0
    log.close()


@pytest.mark.parametrize("waits", ["acks", "thread"])
def test_who_waits_is_not_told_of_a_log_that_is_whole_again(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change cut short ends the log until the next call. To wait for what was written before is one."""
    log = opened(SimDisk(), config={"segment.bytes": 1024})
    alone(log)
    told: list[Any] = []
    wait = GroupCommit.wait

    def struck(*_: object) -> None:
        monkeypatch.setattr(LogSegments, "append", append)
        raise KeyboardInterrupt

    def roll() -> None:
        with pytest.raises(KeyboardInterrupt):
            log.append(b"c" * 900)

    def first_another(self: GroupCommit, offset: int, timeout: float | None = None) -> None:
        monkeypatch.setattr(GroupCommit, "wait", wait)
        roll()
        wait(self, offset, timeout)

    append = LogSegments.append
    monkeypatch.setattr(LogSegments, "append", struck)
    if waits == "acks":
        acks = log.append_many([b"a" * 900], wait=False)
        roll()
        told += [ack.offset for ack in acks.result(PATIENCE_S)]
    else:
        monkeypatch.setattr(GroupCommit, "wait", first_another)
        told.append(log.append(b"a" * 900))
    assert told == [0]
    assert [record.value for record in log.read()] == [b"a" * 900]
    log.close()


def test_who_waits_opens_a_log_again_that_could_not_be_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that failed left the log closed. What was written before waits for nobody else to try it again."""
    disk = SimDisk()
    log = opened(disk)
    alone(log)
    acks = log.append_many([b"a"], wait=False)
    cut_short(log, monkeypatch)
    disk.fail("open", "*", times=None, error=errno.EMFILE)
    with pytest.raises(pyreplog.StorageError, match="open"):
        log.append(b"refused")
    disk.clear_faults()
    assert [ack.offset for ack in acks.result(PATIENCE_S)] == [0]
    assert log.append(b"b") == 1
    log.close()


# ------------------------------------------------------------------------ closing that is cut short


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # where the interpreter closes a generator it cannot raise
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_close_interrupted_at_any_moment(durability: str) -> None:
    """A handler that raises at any point of ``close`` (a third of them, drawn by seed): the second call does the
    rest, nothing acknowledged is lost, nobody hangs."""
    tell()
    moment = FIRST - EVERY
    struck = True
    while struck:
        moment += EVERY
        disk = SimDisk()
        log = opened(disk, durability=durability)
        alone(log)
        told = [log.append(b"before")]
        acks = [log.append_nowait(b"%d" % number) for number in range(2)]
        struck = interrupted(moment, log.close)
        log.close()
        assert log._writer is not None
        assert log._writer not in remembered()
        for ack in acks:
            assert ack.done()
            if ack.offset is not None:
                told.append(ack.offset)
        with opened(disk) as again:
            assert again.end_offset > max(told)
    assert moment > 50


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_log_whose_close_was_cut_short_is_closed_when_opened_again(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then nobody has it any more, and its folder is not left locked; until then the process knows of it, to
    close it at exit."""
    disk = SimDisk()
    log = opened(disk)
    alone(log)
    ack = log.append_nowait(b"x")

    def strike(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(GroupCommit, "wait", strike)
        with pytest.raises(error):
            log.close()
    assert log._writer in remembered()
    assert log.closed
    with pytest.raises(pyreplog.LockedError):
        opened(disk)
    held = [log]
    del log
    with pytest.warns(ResourceWarning, match="unclosed log"):
        drop(held)
    with opened(disk) as log:
        assert [record.value for record in log] == [b"x"]
    assert ack.result().offset == 0


def test_a_close_that_is_cut_short_ends_who_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that follows must not keep the process, which ends of the same Ctrl-C, from ending."""
    log = opened(SimDisk())
    log.append(b"x")
    first = threading.Event()

    def follow() -> int:
        count = 0
        for _ in log.follow():
            count += 1
            first.set()
        return count

    thread, ended = in_thread(follow)
    assert first.wait(PATIENCE_S)

    def strike(*_: object) -> None:
        raise Struck

    with monkeypatch.context() as patch:
        patch.setattr(GroupCommit, "wait", strike)
        with pytest.raises(Struck):
            log.close()
    thread.join(PATIENCE_S)
    assert ended == [1]
    with pytest.raises(pyreplog.ClosedError):
        log.append(b"late")
    log.close()


def test_who_closes_beside_another_waits_for_it(tmp_path: Path) -> None:
    """When ``close`` returns, the log is closed, whoever closes it: its records count, and its folder may be
    opened."""
    disk = SlowDisk()
    log = pyreplog.open_log(tmp_path / "log", disk=disk)
    disk.gate.clear()
    ack = log.append_nowait(b"x")
    first, _ = in_thread(log.close)
    assert disk.entered.wait(PATIENCE_S)

    def close() -> bool:
        log.close()
        return ack.done()

    second, done = in_thread(close)
    second.join(0.1)  # one that does not wait has ended by then
    disk.gate.set()
    for thread in (first, second):
        thread.join(PATIENCE_S)
    assert done == [True]
    pyreplog.open_log(tmp_path / "log").close()


def test_closing_within_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler that closes the log while its thread does."""
    log = opened(SimDisk())
    log.append(b"x")
    wait = GroupCommit.wait

    def handler(self: GroupCommit, offset: int, timeout: float | None = None) -> None:
        log.close()
        wait(self, offset, timeout)

    monkeypatch.setattr(GroupCommit, "wait", handler)
    thread, ended = in_thread(log.close)
    thread.join(PATIENCE_S)
    assert ended == [None]


# ------------------------------------------------------------------------------------------ opening


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed log:ResourceWarning")  # struck between its making and its giving
@pytest.mark.parametrize(("there", "step"), [(False, EVERY), (True, 4 * EVERY)])
def test_open_log_interrupted_at_any_moment(there: bool, step: int) -> None:
    """A handler that raises at any point of an opening (a share of them, drawn by seed) leaves no folder locked and
    nothing to be closed at exit."""
    tell()
    known = remembered()
    moment = 1 + SEED % step - step
    struck = True
    while struck:
        moment += step
        disk = SimDisk()
        if there:
            opened(disk).close()
        made: list[pyreplog.Log] = []
        struck = interrupted(moment, lambda made=made, disk=disk: made.append(opened(disk)))  # type: ignore[misc]
        for log in made:
            log.close()
        with opened(disk) as log:
            log.append(b"x")
        assert remembered() == known
    assert moment > 100


# ------------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize(
    "error", [Struck, RuntimeError("release unlocked lock")], ids=["raised", "raised in a lock of Python's"]
)
def test_a_thread_whose_start_was_interrupted_is_started_again(
    error: type[BaseException] | BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before the system was asked for it: the next call asks again. One that came after all ends at once. It
    is not said that there are no threads."""
    worked: list[threading.Thread] = []
    done = threading.Event()

    def work() -> None:
        worked.append(threading.current_thread())
        done.set()

    background = Background("test", work)
    late: list[threading.Thread] = []
    start = threading.Thread.start

    def strike(thread: threading.Thread) -> None:
        late.append(thread)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", strike)
        with pytest.raises((Struck, RuntimeError)) as caught:
            background.start()
    assert not isinstance(caught.value, pyreplog.NoThreadError)
    assert not background.is_running
    start(late[0])
    late[0].join(PATIENCE_S)
    assert not worked
    background.start()
    assert done.wait(PATIENCE_S)
    assert background.is_running
    background.stop()
    assert late[0] not in worked


def test_a_thread_without_memory_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it lacks: nobody else would do the work."""
    done = threading.Event()
    background = Background("test", lambda: done.set())
    refused: list[str] = []
    current_thread = threading.current_thread

    def scarce() -> threading.Thread:
        thread = current_thread()
        if thread.name == "test" and len(refused) < 2:
            refused.append(thread.name)
            raise MemoryError
        return thread

    monkeypatch.setattr(threading, "current_thread", scarce)
    background.start()
    background.wake()
    assert done.wait(PATIENCE_S)
    assert len(refused) == 2
    background.stop()


def test_a_thread_that_runs_when_its_start_is_interrupted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the thread began: it is the one."""
    done = threading.Event()
    background = Background("test", lambda: done.set())
    start = threading.Thread.start

    def strike(thread: threading.Thread) -> None:
        start(thread)
        raise Struck

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", strike)
        with pytest.raises(Struck):
            background.start()
    assert background.is_running
    assert done.wait(PATIENCE_S)
    background.stop()


# ------------------------------------------------------------------------------- calls within calls


def within(log: pyreplog.Log, monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]) -> list[Any]:
    """What ``use`` gives in the middle of an append, as in a signal handler; the append succeeds."""
    append = PartitionLog.append_as_leader
    ended: list[Any] = []

    def handler(self: PartitionLog, *arguments: Any, **settings: Any) -> Any:
        if not ended:
            try:
                ended.append(use())
            except pyreplog.PyreplogError as error:
                ended.append(error)
        return append(self, *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append_as_leader", handler)
        thread, offsets = in_thread(lambda: log.append(b"outer"))
        thread.join(PATIENCE_S)
        assert len(offsets) == 1
        assert isinstance(offsets[0], int)
    return ended


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_call_within_a_call_of_the_same_thread_is_refused(durability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler or a ``__del__`` that uses the log in the middle of an append gets an error, and the append
    goes on."""
    log = opened(SimDisk(), durability=durability)
    log.append(b"first")
    uses: list[Callable[[], object]] = [
        lambda: log.append(b"inner"),
        lambda: log.append_many([b"inner"]),
        lambda: log.append_many([b"inner"], wait=False),
        lambda: log.append_nowait(b"inner").result(),
        lambda: log.flush(),
        lambda: list(log.read()),
        lambda: log.stats(),
        lambda: log.delete_records(0),
    ]
    for use in uses:
        assert [type(error) for error in within(log, monkeypatch, use)] == [pyreplog.ReentrantCallError]
    assert [record.value for record in log if record.value != b"outer"] == [b"first"]
    assert log.end_offset == 1 + len(uses)
    log.close()


def test_closing_within_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler of SIGTERM that closes the log: refused, and the next call closes it in order."""
    disk = SimDisk()
    log = opened(disk)
    assert [type(error) for error in within(log, monkeypatch, log.close)] == [pyreplog.ReentrantCallError]
    with pytest.raises(pyreplog.ClosedError):
        log.append(b"late")
    log.close()
    with opened(disk) as log:
        assert [record.value for record in log] == [b"outer"]


def test_an_append_within_a_sync_of_the_same_thread_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is written, and the outer one's thread is in the middle of the sync: whether it gets there is not
    known yet."""
    log = opened(SimDisk())
    alone(log)
    sync = GroupCommit._sync
    errors: list[BaseException | None] = []

    def handler(self: GroupCommit, of: PartitionLog, plan: SyncPlan) -> None:
        if not errors:
            with pytest.raises(pyreplog.UnsyncedError) as caught:
                log.append(b"inner")
            assert str(caught.value).startswith("outcome unknown: append of 1 record"), (
                "no number of the system's is there to name"
            )
            errors.append(caught.value.__cause__)
        sync(self, of, plan)

    monkeypatch.setattr(GroupCommit, "_sync", handler)
    thread, ended = in_thread(lambda: log.append(b"outer"))
    thread.join(PATIENCE_S)
    assert ended == [0]
    assert [type(error) for error in errors] == [pyreplog.ReentrantCallError]
    assert log.append(b"after") == 2
    log.close()


def test_a_reader_within_itself_is_refused() -> None:
    """The same of a log that is open for reading."""
    disk = SimDisk()
    with opened(disk) as log, opened(disk, mode="r") as reader:
        log.append(b"x")
        view = reader._view
        assert isinstance(view, ReaderView)
        with view._own_lock, pytest.raises(pyreplog.ReentrantCallError, match="within another use"):
            list(reader)
        assert [record.value for record in reader] == [b"x"]


def test_the_logger_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask takes a lock of ``logging`` that Ctrl-C may leave held: whoever tells something later would wait for
    it."""
    LOGGER.warning("first")
    asked: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(logging, "getLogger", asked.append)
        LOGGER.warning("second")
    assert not asked


def test_logs_are_forgotten_beside_others_that_open(tmp_path: Path) -> None:
    """A collection may begin anywhere, and while it runs another thread opens a log: the one that closes is closed,
    without an error."""
    log = pyreplog.open_log(tmp_path / "log")
    others: list[Any] = [log]
    threshold = gc.get_threshold()
    pairs = [
        (number, -number) for number in range(5000)
    ]  # no pair of an earlier life is left to be taken: making one counts

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and len(others) < 20:
            others.append(Another())
            remember(others[-1])
        elif len(others) == 20:
            gc.set_threshold(*threshold)

    assert log._writer is not None
    gc.collect()
    gc.freeze()  # what is there already need not be looked through each time
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        forget(log._writer)
        assert log._writer not in remembered()
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collecting)
        for other in others[1:]:
            forget(other)
        log.close()
    assert len(others) > 1, "nothing was collected"
    assert pairs
    assert not {log._writer, *others[1:]}.intersection(remembered())


class Another:
    """Something else that is open."""

    def close(self) -> None:
        """Nothing is owned."""

    def _forked(self) -> None:
        """Nothing is owned."""

    def _unclosed(self) -> str | None:
        """Nobody is to know."""
        return None
