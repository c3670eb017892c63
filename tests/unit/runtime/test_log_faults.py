"""``open_log`` when things go wrong: power loss, failing and full disks, threads, interrupts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pyarrow
import pytest

import pyreplog
from pyreplog.log.log_segments import LogSegments
from pyreplog.runtime.encoder import Encoder
from pyreplog.runtime.group_commit import GroupCommit
from pyreplog.testing import SimDisk
from tests.seed import EVERY, FIRST, tell
from tests.unit.runtime.interrupt_injection import Struck, interrupted
from tests.unit.runtime.slow import FOREVER, SlowDisk

PATH = "/events"


MUTE = """
import sys, threading
import pyreplog
import pyreplog.system.file as file_module

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "logging":
            raise OSError(24, "Too many open files")

assert "logging" not in sys.modules
sys.meta_path.insert(0, Refuse())
log = pyreplog.open_log(sys.argv[1])
log.append(b"one")
came = threading.Event()

def follow():
    try:
        for record in log.follow():
            came.set()
    except pyreplog.PyreplogError as error:
        print(type(error).__name__)

thread = threading.Thread(target=follow, daemon=True)
thread.start()
assert came.wait(20)
file_module._file_sync = lambda handle: 5
try:
    log.append(b"two")
except pyreplog.PyreplogError as error:
    thread.join(20)
    print(type(error).__name__)
"""


def append_by(way: str, log: pyreplog.Log, value: bytes) -> None:
    """One record, by the method of that name; returns when it is told what became of it."""
    if way == "append":
        log.append(value)
    elif way == "append_many":
        log.append_many([value])
    else:
        log.append_nowait(value).result()


def opened(disk: SimDisk, **settings: Any) -> pyreplog.Log:
    """The log on a simulated disk."""
    return pyreplog.open_log(PATH, disk=disk, **settings)


def no_descriptor(*_: object) -> NoReturn:
    """In the place of a method: the process has as many open files as it may."""
    raise pyreplog.StorageError(errno.EMFILE, "Too many open files", "x")


def killed(log: pyreplog.Log) -> None:
    """End the log's threads as the end of its process would, without touching the disk."""
    assert log._writer is not None
    log._writer._forked()
    log._writer._background.stop()
    log._closed = True


def everything(disk: SimDisk) -> list[bytes | None]:
    """All values that a new opening finds, oldest first."""
    with opened(disk) as log:
        return [record.value for record in log]


# --------------------------------------------------------------------------------------- power loss


def losses(durability: str, *, power: bool) -> int:
    """How many acknowledged records are missing after 60 ends at moments and with damages drawn from a seed."""
    lost = 0
    for seed in range(60):
        chance = Random(seed)
        disk = SimDisk(Random(seed))
        log = opened(disk, durability=durability)
        acknowledged: list[bytes] = []
        for number in range(chance.randrange(1, 8)):
            values = [b"%d-%d-%d" % (seed, number, index) for index in range(chance.randrange(1, 5))]
            way = chance.randrange(3)
            if way == 0:
                log.append(values[0])
                values = values[:1]
            elif way == 1:
                log.append_many(values)
            else:
                for ack in [log.append_nowait(value) for value in values]:
                    ack.result()
            acknowledged += values
        killed(log)
        after = disk.crash(chance) if power else disk.snapshot()
        lost += len(set(acknowledged) - set(everything(after)))
    return lost


def test_sync_survives_power_loss() -> None:
    """What durability "sync" acknowledged survives the loss of all that was not synced, in any order and torn
    anywhere."""
    assert losses("sync", power=True) == 0


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_kill_loses_nothing(durability: str) -> None:
    """What was acknowledged survives the end of the process, whatever the durability."""
    assert losses(durability, power=False) == 0


def test_acknowledging_before_the_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: were acknowledgements given before the sync, the same test would see records lost."""
    monkeypatch.setattr(GroupCommit, "wait", lambda self, offset, timeout=None: None)
    monkeypatch.setattr(
        pyreplog.runtime.log_writer.LogWriter, "wait_for", lambda self, pending, timeout: pending.succeed(0, 0)
    )
    assert losses("sync", power=True) > 0


def test_the_mark_is_written_before_a_sync_is_answered() -> None:
    """Of a ``sync`` log, too, a reader sees what was acknowledged."""
    disk = SimDisk()
    with opened(disk) as log:
        for count in range(1, 4):
            log.append(b"x")
            with opened(disk, mode="r") as reader:
                assert reader.end_offset == count


def test_a_mark_left_behind_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: were the mark not written before an ``os`` log acknowledges, a reader would not see what it
    acknowledged."""
    disk = SimDisk()
    with opened(disk, durability="os") as log:
        log.append(b"x")
        with opened(disk, mode="r") as reader:
            assert reader.end_offset == 1
        monkeypatch.setattr(pyreplog.log.Log, "write_mark", lambda self: None)
        log.append(b"y")
        with opened(disk, mode="r") as reader:
            assert reader.end_offset == 1, "the planted bug was not planted"


# ------------------------------------------------------------------------------------ failing disks


@pytest.mark.parametrize("way", ["append", "append_many", "append_nowait"])
def test_a_failed_sync_poisons(way: str) -> None:
    """The append that needed it is of unknown outcome (and a StorageError, and a ClosedError), nothing is
    acknowledged any more, reads end at what was durable, reopening heals."""
    disk = SimDisk()
    log = opened(disk)
    log.append(b"durable")
    fault = disk.fail("sync", "*.log", times=None)
    with pytest.raises(
        pyreplog.OutcomeUnknownError, match="append of 1 record to events-0: written, but not known to be"
    ) as caught:
        append_by(way, log, b"lost?")
    error = caught.value
    assert isinstance(error, pyreplog.StorageError)
    assert isinstance(error, pyreplog.ClosedError)
    assert error.errno == errno.EIO
    assert str(error.filename).endswith(".log")
    assert isinstance(error.__cause__ if way != "append_nowait" else error, pyreplog.StorageError)
    assert fault.hits == 1
    disk.clear_faults()
    for use in (
        lambda: log.append(b"x"),
        lambda: log.append_many([b"x"]),
        lambda: log.append_nowait(b"x").result(),
        log.flush,
    ):
        with pytest.raises(pyreplog.ClosedError, match="poisoned") as closed:
            use()
        assert isinstance(closed.value.__cause__, pyreplog.StorageError)
    assert [record.value for record in log.read()] == [b"durable"]
    assert log.high_watermark == 1
    log.close()
    found = everything(disk)
    assert found[0] == b"durable"
    with opened(disk) as log:
        assert log.append(b"again") == len(found)


@pytest.mark.parametrize("way", ["append_many", "append_arrow"])
def test_what_the_disk_takes_in_part_is_not_told_as_refused(way: str) -> None:
    """Many records go in several batches, and there is room for the first: the error says which are there, and
    whoever reads finds them."""
    disk = SimDisk()
    log = opened(disk, config={"max.message.bytes": 1000})
    values = [b"x" * 400] * 6
    disk.fail("write", "*.log", nth=2, error=errno.ENOSPC)
    with pytest.raises(
        pyreplog.OutcomeUnknownError, match="append of 6 records to events-0: those at offsets 0 to 1 are written"
    ):
        if way == "append_many":
            log.append_many(values)
        else:
            log.append_arrow(pyarrow.table({"value": values}))
    assert [record.value for record in log.read()] == values[:2]
    assert (log.end_offset, log.stats().flushed_offset) == (2, 2)
    disk.fail("write", "*.log", error=errno.ENOSPC)
    with pytest.raises(pyreplog.StorageError):
        log.append_many(values)
    assert log.end_offset == 2
    log.close()


def test_the_sync_of_what_the_disk_took_in_part_fails() -> None:
    """Nobody knows any more whether the first are there; that the others are not is said."""
    disk = SimDisk()
    log = opened(disk, config={"max.message.bytes": 1000})
    disk.fail("write", "*.log", nth=2, error=errno.ENOSPC)
    disk.fail("sync", "*.log")
    with pytest.raises(
        pyreplog.UnsyncedError, match=r"of which those at 0 to 1 were, the others are refused \(.*\): written, but"
    ):
        log.append_many([b"x" * 400] * 6)
    log.close()


def test_a_disk_that_takes_a_part_and_then_fails() -> None:
    """An error that poisons the log takes back what was written before and not synced: it is not called there."""
    disk = SimDisk()
    log = opened(disk, config={"max.message.bytes": 1000})
    disk.fail("write", "*.log", nth=2, error=errno.EIO)
    with pytest.raises(pyreplog.UnsyncedError, match="the others are refused"):
        log.append_many([b"x" * 400] * 6)
    assert [record.value for record in log.read()] == []
    log.close()


def test_a_table_without_memory_for_a_later_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first batch is there by then, and the error says so."""
    log = opened(SimDisk(), config={"max.message.bytes": 1000})
    encode = Encoder.rows

    def short(self: Encoder, rows: Any) -> Iterator[tuple[memoryview, int, int, int]]:
        yield next(encode(self, rows))
        raise MemoryError

    monkeypatch.setattr(Encoder, "rows", short)
    with pytest.raises(pyreplog.OutcomeUnknownError, match=r"0 to 1 are written, the others are refused \(no memory\)"):
        log.append_arrow(pyarrow.table({"value": [b"x" * 400] * 6}))
    assert log.end_offset == 2
    log.close()


@pytest.mark.parametrize("way", ["append", "append_many"])
def test_a_failed_flush_is_not_told_as_a_refusal(way: str) -> None:
    """An ``os`` log is synced by ``flush.messages``, and when a segment is full: the records of the append that did
    it are written."""
    disk = SimDisk()
    log = opened(disk, durability="os", config={"flush.messages": 2})
    log.append(b"there")
    disk.fail("sync", "*.log", times=None)
    with pytest.raises(pyreplog.OutcomeUnknownError, match="append of 1 record to events-0: written") as caught:
        append_by(way, log, b"there too?")
    assert isinstance(caught.value, pyreplog.StorageError)
    disk.clear_faults()
    log.close()
    with opened(disk) as log:
        assert log.end_offset == 2


def test_a_sync_that_cannot_begin_leaves_the_outcome_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no descriptor for it: whoever waits for the handle is not told that nothing was appended, and a
    later sync settles it."""
    log = opened(SimDisk())
    ack = log.append_nowait(b"x")
    with monkeypatch.context() as patch:
        patch.setattr("pyreplog.log.Log.sync_plan", no_descriptor)
        with pytest.raises(pyreplog.OutcomeUnknownError, match="append of 1 record to events-0: written") as caught:
            ack.result()
    assert isinstance(caught.value, pyreplog.StorageError)
    assert ack.result().offset == 0
    log.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_sync_for_which_there_is_no_descriptor_poisons_nothing(durability: str, code: int) -> None:
    """A file that gave its own up and is to be synced finds none: what was written stays readable, for others too,
    appends go on, the next sync makes all of it durable. So it is where the log is closed meanwhile, and opened
    again."""
    disk = SimDisk()
    log = opened(disk, durability=durability)
    log.append(b"1")
    disk.fail("sync", "*.log", times=None, error=code)
    log.append_nowait(b"2")
    with pytest.raises(pyreplog.StorageError) as caught:
        log.flush()
    assert caught.value.errno == code
    if durability == "os":
        assert log.append(b"3") == 2
        with opened(disk, mode="r") as reader:
            assert [record.value for record in reader] == [b"1", b"2", b"3"]
    else:
        with pytest.raises(pyreplog.UnsyncedError):
            log.append(b"3")
    with pytest.raises(pyreplog.StorageError):
        log.close()
    if durability == "os":
        with opened(disk, mode="r") as reader:
            assert [record.value for record in reader] == [b"1", b"2", b"3"]
    disk.clear_faults()
    with opened(disk) as log:
        assert log.append(b"4") == 3
        after_power_loss = disk.crash(Random(1)) if durability == "sync" else disk.snapshot()
    for after in (disk, after_power_loss):
        assert everything(after) == [b"1", b"2", b"3", b"4"]


def test_a_sync_for_which_there_was_no_descriptor_is_made_by_the_next_one() -> None:
    """Nobody has to open the log again."""
    disk = SimDisk()
    log = opened(disk)
    disk.fail("sync", "*.log", times=1, error=errno.EMFILE)
    with pytest.raises(pyreplog.UnsyncedError):
        log.append(b"1")
    assert log.append(b"2") == 1
    assert everything(disk.crash(Random(1))) == [b"1", b"2"]
    log.close()


def test_a_sync_that_cannot_begin_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the background thread, for whoever waits for a handle without asking for a sync."""
    log = opened(SimDisk())
    writer = log._writer
    assert writer is not None
    writer._background.stop()
    writer._maintenance.step()  # what is due when a log is opened
    acks = log.append_many([b"x"], wait=False)
    with monkeypatch.context() as patch:
        patch.setattr("pyreplog.log.Log.sync_plan", no_descriptor)
        pause = writer._maintenance.step()
    assert pause is not None
    assert 0 < pause <= 0.5
    writer._maintenance.step()
    assert acks.done()
    log.close()


def test_waiting_threads_hear_of_a_failed_sync() -> None:
    """Acks that wait for the sync which fails all raise; none hangs."""
    disk = SimDisk()
    log = opened(disk)
    acks = [log.append_nowait(b"x") for _ in range(5)]
    disk.fail("sync", "*.log", times=None)
    for ack in acks:
        error = ack.exception(timeout=10)
        assert isinstance(error, pyreplog.StorageError)
        assert isinstance(error, pyreplog.OutcomeUnknownError)
    log.close()


def test_a_failed_sync_is_told_while_nobody_has_to_wait() -> None:
    """A handler of ``logging`` may wait for another thread that uses the log, as it does for one whose own message
    it is to append."""
    disk = SimDisk()
    log = opened(disk)
    ended: list[bool] = []

    def append() -> None:
        with pytest.raises(pyreplog.ClosedError):
            log.append(b"a message")

    class Waiting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            other = threading.Thread(target=append, daemon=True)
            other.start()
            other.join(FOREVER)
            ended.append(not other.is_alive())

    handler = Waiting()
    logging.getLogger("pyreplog").addHandler(handler)
    try:
        disk.fail("sync", "*.log", times=None)
        with pytest.raises(pyreplog.UnsyncedError):
            log.append(b"x")
    finally:
        logging.getLogger("pyreplog").removeHandler(handler)
    assert ended == [True]
    log.close()


def test_a_full_disk_loses_only_what_did_not_fit() -> None:
    """ENOSPC is an error at once, wherever in the write it strikes; what was acknowledged stays; with room again
    appending goes on."""
    for partial in (0, 1, 60, 70):
        disk = SimDisk()
        log = opened(disk)
        log.append(b"before")
        disk.fail("write", "*.log", error=errno.ENOSPC, partial=partial)
        with pytest.raises(pyreplog.StorageError) as caught:
            log.append(b"too much")
        assert caught.value.errno == errno.ENOSPC
        ack = log.append_nowait(b"room again")
        assert ack.result().offset == 1
        log.close()
        assert everything(disk) == [b"before", b"room again"]


def test_gathered_records_that_do_not_fit_fail_alone() -> None:
    """A batch of ``append_nowait`` that the disk refuses fails its own Acks, not the append that follows it."""
    disk = SimDisk()
    with opened(disk, durability="os") as log:
        lost = log.append_nowait(b"lost")
        disk.fail("write", "*.log", error=errno.ENOSPC)
        assert log.append(b"kept") == 0
        assert isinstance(lost.exception(), pyreplog.StorageError)
        assert lost.offset is None


def test_who_may_not_make_a_file_is_not_told_that_the_disk_is_in_doubt() -> None:
    """The log has ended, and says why. When it is opened again with leave to write, it goes on."""
    disk = SimDisk(Random(1))
    log = pyreplog.open_log(PATH, disk=disk, config={"segment.bytes": 4000})
    log.append(bytes(3000))
    disk.fail("create", times=None, error=errno.EACCES)
    with pytest.raises(pyreplog.StoragePermissionError):
        log.append(bytes(3000))
    with pytest.raises(
        pyreplog.ClosedError, match=r"has ended with an earlier failure \(.*Permission denied.*\): close the log"
    ):
        log.append(b"x")
    disk.clear_faults()
    log.close()
    with pyreplog.open_log(PATH, disk=disk) as log:
        assert log.append(b"x") == 1


def test_a_write_error_ends_writing() -> None:
    """After EIO on a write nobody knows what is on the disk: the log refuses until it is opened again."""
    disk = SimDisk()
    log = opened(disk, durability="os")
    log.append(b"before")
    disk.fail("write", "*.log")
    with pytest.raises(pyreplog.StorageError):
        log.append(b"x")
    with pytest.raises(pyreplog.ClosedError):
        log.append(b"y")
    log.close()
    assert everything(disk)[0] == b"before"


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_write_that_failed_and_could_not_be_undone(durability: str) -> None:
    """What the disk refused and did not let cut off may be there after all: nobody calls it refused, whichever way
    it was appended."""
    ways: list[Callable[[pyreplog.Log], object]] = [
        lambda log: log.append(b"x"),
        lambda log: log.append_many([b"x"]),
        lambda log: log.append_nowait(b"x").result(),
    ]
    for way in ways:
        disk = SimDisk()
        log = opened(disk, durability=durability)
        log.append(b"before")
        disk.fail("write", "*.log", partial=1 << 20)
        disk.fail("truncate", "*.log")
        with pytest.raises(pyreplog.OutcomeUnknownError):
            way(log)
        with pytest.raises(pyreplog.ClosedError):
            log.append(b"y")
        log.close()
        assert everything(disk) == [b"before", b"x"]


@pytest.mark.parametrize("way", ["append", "append_many", "append_nowait"])
def test_what_the_mark_does_not_say_is_not_called_refused(way: str) -> None:
    """An append whose record is in the log, and whose mark could not be written: unknown, for the next opening
    finds it."""
    disk = SimDisk()
    log = opened(disk, durability="os")
    log.append(b"before")
    disk.fail("write", "*/replog.mark", times=None)
    with pytest.raises(pyreplog.OutcomeUnknownError) as caught:
        append_by(way, log, b"x")
    assert isinstance(caught.value.__cause__, pyreplog.StorageError)
    with pytest.raises(pyreplog.ClosedError):
        log.append(b"y")
    disk.clear_faults()
    log.close()
    with opened(disk), opened(disk, mode="r") as reader:
        assert reader.end_offset == 2, "found by the opening, and said to all"
    assert everything(disk) == [b"before", b"x"]


def test_opening_fails_cleanly() -> None:
    """Whichever call of an opening fails, the error is typed and the next opening works, with what was there."""
    disk = SimDisk()
    with opened(disk) as log:
        log.append(b"kept")
    number = 0
    while True:
        number += 1
        fault = disk.fail("*", "*", nth=number)
        try:
            opened(disk).close()
        except pyreplog.PyreplogError:
            pass
        disk.clear_faults()
        assert everything(disk) == [b"kept"]
        if not fault.hits:
            break
    assert number > 20


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_really_full_disk(tmp_path: Path) -> None:
    """On a file system of 1 MB: StorageError when full, all that was acknowledged is there, and appending goes on
    once there is room."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("this machine does not let us mount")
    try:
        ballast = place / "ballast"
        ballast.write_bytes(bytes(200_000))
        with pyreplog.open_log(place / "log", durability="os") as log:
            acknowledged = 0
            with pytest.raises(pyreplog.StorageError) as caught:
                while True:
                    log.append(bytes(10_000))
                    acknowledged += 1
            assert caught.value.errno == errno.ENOSPC
            assert acknowledged > 50
            assert sum(1 for _ in log) == acknowledged
            ballast.unlink()
            assert log.append(b"room") == acknowledged
        with pyreplog.open_log(place / "log", mode="r") as reader:
            assert sum(1 for _ in reader) == acknowledged + 1
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


# ------------------------------------------------------------------------------------------ threads


def in_threads(count: int, work: Any) -> list[threading.Thread]:
    """Start ``work(number)`` in as many threads."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    """All of them have ended."""
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_waiting_threads_share_a_sync(tmp_path: Path) -> None:
    """While one sync is under way others append; the next sync serves all of them: 21 appends cost two."""
    disk = SlowDisk()
    with pyreplog.open_log(tmp_path / "log", disk=disk) as log:
        before = log.stats().syncs
        disk.gate.clear()
        offsets: list[int] = []
        first = in_threads(1, lambda number: offsets.append(log.append(b"first")))
        assert disk.entered.wait(FOREVER)
        appended = threading.Barrier(21)

        def append(number: int) -> None:
            ack = log.append_nowait(b"%d" % number)
            appended.wait(20)
            offsets.append(ack.result().offset)

        others = in_threads(20, append)
        appended.wait(20)
        assert log.high_watermark == 0, "nothing counts before it is synced"
        disk.gate.set()
        joined(first + others)
        assert sorted(offsets) == list(range(21))
        assert log.stats().syncs - before == 2


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_threads_mix_all_ways_to_append(tmp_path: Path, durability: str) -> None:
    """Eight threads append in every way: each record is there once, at the offset that was told, and each thread's
    in its order."""
    told: dict[int, bytes] = {}
    with pyreplog.open_log(tmp_path / "log", durability=durability) as log:  # type: ignore[arg-type]

        def work(number: int) -> None:
            chance = Random(number)
            for turn in range(30):
                values = [b"%d/%d/%d" % (number, turn, index) for index in range(chance.randrange(1, 6))]
                way = chance.randrange(3)
                if way == 0:
                    for value in values:
                        told[log.append(value)] = value
                elif way == 1:
                    told.update(zip(log.append_many(values), values, strict=True))
                else:
                    acks = [log.append_nowait(value) for value in values]
                    told.update((ack.result().offset, value) for ack, value in zip(acks, values, strict=True))

        joined(in_threads(8, work))
        found = {record.offset: record.value for record in log}
    assert found == told
    for number in range(8):
        mine = [value for _, value in sorted(told.items()) if value.startswith(b"%d/" % number)]
        assert mine == sorted(mine, key=lambda value: [int(part) for part in value.split(b"/")])


def test_closing_while_others_append(tmp_path: Path) -> None:
    """Every append either has its record in the log or raises ClosedError; nobody hangs."""
    log = pyreplog.open_log(tmp_path / "log", durability="os")
    told: list[bytes] = []
    started = threading.Barrier(5)

    def work(number: int) -> None:
        started.wait(20)
        for turn in range(10_000):
            value = b"%d/%d" % (number, turn)
            try:
                if number % 2:
                    log.append(value)
                else:
                    log.append_nowait(value).result()
            except pyreplog.ClosedError:
                return
            told.append(value)

    threads = in_threads(4, work)
    started.wait(20)
    while not told:
        pass
    log.close()
    joined(threads)
    with pyreplog.open_log(tmp_path / "log", mode="r") as reader:
        assert set(told) <= {record.value for record in reader}


# ------------------------------------------------------------------------------------------ asyncio


def test_acks_can_be_awaited(tmp_path: Path) -> None:
    """``await ack`` gives the metadata without blocking the loop; many at once; an error is raised there."""

    async def main() -> None:
        with pyreplog.open_log(tmp_path / "log") as log:
            place = await log.append_nowait(b"one")
            assert place.offset == 0
            places = await asyncio.gather(*(_awaited(log.append_nowait(b"%d" % number)) for number in range(50)))
            assert [place.offset for place in places] == list(range(1, 51))
            late = log.append_nowait(b"cancelled")
            task = asyncio.ensure_future(_awaited(late))
            await asyncio.sleep(0)
            task.cancel()
            assert late.result(10).offset == 51

    asyncio.run(main())


async def _awaited(ack: pyreplog.Ack) -> pyreplog.RecordMetadata:
    return await ack


def test_awaiting_a_failure() -> None:
    """The error of a failed sync comes out of ``await``."""

    async def main() -> None:
        disk = SimDisk()
        log = opened(disk)
        disk.fail("sync", "*.log", times=None)
        with pytest.raises(pyreplog.StorageError):
            await log.append_nowait(b"x")
        log.close()

    asyncio.run(main())


def test_result_times_out(tmp_path: Path) -> None:
    """``result(timeout)`` gives up in time while others sync, and the record is acknowledged all the same."""
    disk = SlowDisk()
    with pyreplog.open_log(tmp_path / "log", disk=disk) as log:
        disk.gate.clear()
        threads = in_threads(1, lambda number: log.append(b"stuck"))
        assert disk.entered.wait(FOREVER)
        ack = log.append_nowait(b"x")
        with pytest.raises(TimeoutError):
            ack.result(0.01)
        disk.gate.set()
        joined(threads)
        assert ack.result(20).offset == 1


# --------------------------------------------------------------------------------------- interrupts


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # where the interpreter closes a generator it cannot raise
@pytest.mark.parametrize("error", [Struck, TimeoutError])
@pytest.mark.parametrize("way", ["append", "append_many", "append_nowait", "flush"])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_interrupts_at_any_moment(durability: str, way: str, error: type[BaseException]) -> None:
    """A handler that raises at any point of an append (a third of them, drawn by seed) loses nothing acknowledged and
    leaves no thread waiting, and the log goes on; nor does a kill behind it lose anything. Each append rolls."""
    tell()
    disk = SimDisk()
    log = opened(disk, durability=durability, config={"segment.bytes": 1024})
    told: dict[int, bytes] = {}
    moment = FIRST - EVERY
    struck = True
    while struck:
        moment += EVERY
        acks: list[pyreplog.Ack] = []
        values = [b"%d" % moment + bytes(900), b"%d again" % moment + bytes(900)]

        def use(acks: list[pyreplog.Ack] = acks, values: list[bytes] = values) -> None:
            if way == "append":
                told[log.append(values[0])] = values[0]
            elif way == "append_many":
                told.update(zip(log.append_many(values), values, strict=True))
            elif way == "append_nowait":
                acks += [log.append_nowait(value) for value in values]
                told.update((ack.result().offset, value) for ack, value in zip(acks, values, strict=True))
            else:
                acks.append(log.append_nowait(values[0]))
                log.flush()
                told[acks[0].result().offset] = values[0]

        struck = interrupted(moment, use, error)
        for ack, value in zip(acks, values, strict=False):
            try:
                told[ack.result(20).offset] = value
            except pyreplog.OutcomeUnknownError:
                pass
        told[log.append(b"after")] = b"after"
        assert log.high_watermark == log.end_offset
        if way == "flush":  # nor has the next one more to do for each that was interrupted
            log.flush()
        if moment // EVERY % 8 == 0:  # what went wrong before shows here, too, or when the partition is opened again
            assert log._writer is not None
            with log._writer.lock:
                as_killed = disk.snapshot()
            with opened(as_killed, durability=durability) as after_a_kill:
                assert told.items() <= {record.offset: record.value for record in after_a_kill}.items()
    assert moment > 20
    found = {record.offset: record.value for record in log.read()}
    assert told.items() <= found.items()
    log.close()
    assert len(everything(disk)) == len(found)


@pytest.mark.parametrize("then", ["append", "append_nowait", "flush", "read", "close"])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_roll_cut_short_leaves_a_log_that_goes_on(
    durability: str, error: type[BaseException], then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory, or Ctrl-C, just after the files of a new segment were made: the next call opens the partition
    again, whichever it is, and nothing acknowledged is lost or hidden."""
    disk = SimDisk()
    log = opened(disk, durability=durability, config={"segment.bytes": 1024})
    told = [b"%d" % number * 300 for number in range(2)]
    for value in told:
        log.append(value)

    def struck(*_: object) -> None:
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(LogSegments, "append", struck)
    with pytest.raises((pyreplog.OutcomeUnknownError, KeyboardInterrupt)):
        log.append(bytes(300))
    if then == "append":
        assert log.append(b"after") == 2
        told.append(b"after")
    elif then == "append_nowait":
        ack = log.append_nowait(b"after")
        assert ack.result(20).offset == 2
        told.append(b"after")
    elif then == "flush":
        log.flush()
    if then != "close":
        assert [record.value for record in log.read()] == told
    log.close()
    assert everything(disk) == told


def test_a_failed_sync_is_told_where_logging_cannot_be_loaded(tmp_path: Path) -> None:
    """No descriptor is left for the module that would write it down: the caller hears of the failure all the same,
    and who follows."""
    ended = subprocess.run(
        [sys.executable, "-c", MUTE, tmp_path / "events"], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout.split() == ["ClosedError", "UnsyncedError"], ended.stderr
