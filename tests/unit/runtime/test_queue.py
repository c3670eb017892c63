"""The face of a queue: what a worker gets, what the others get when it ends, and what may go wrong."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyreplog
from pyreplog.errors import (
    ClosedError,
    ConfigError,
    ForkedError,
    InvalidRecordStateError,
    PyreplogError,
    StorageError,
    TopicRecreatedError,
    UnsyncedError,
)
from pyreplog.record import Record
from pyreplog.runtime import dead_letter_log, follow, queue_worker
from pyreplog.runtime import queue as queue_face
from pyreplog.system import SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.verify import Level, verify

TOPIC = "events"
JOURNAL = f"{TOPIC}/replog.queue-work"
LOCK_MS = queue_worker.LOCK_NS // 10**6


class Place:
    """A simulated machine with a log."""

    def __init__(self) -> None:
        self.clock = SimClock(1_700_000_000_000)
        self.disk = SimDisk(clock=self.clock)

    def open(self, mode: Any = "a", *, durability: Any = None, **options: Any) -> pyreplog.Log:
        return pyreplog.open_log(TOPIC, mode, durability=durability, disk=self.disk, clock=self.clock, **options)

    def letters(self) -> list[Record]:
        if self.disk.stat(f"{TOPIC}.dlq") is None:
            return []
        log = pyreplog.open_log(f"{TOPIC}.dlq", "r", topic=f"dlq.{TOPIC}", disk=self.disk)
        with log:
            return list(log.read())

    def later(self, ms: int) -> None:
        self.clock.advance(ms * 10**6)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def log(place: Place) -> Iterator[pyreplog.Log]:
    with place.open(durability="sync") as log:
        yield log


def drain(queue: pyreplog.Queue, count: int = 100) -> list[int]:
    return [record.offset for record in queue.receive_many(count)]


def one(queue: pyreplog.Queue) -> Record:
    record = queue.receive()
    assert record is not None
    return record


def test_each_record_goes_to_one_worker_in_order(log: pyreplog.Log) -> None:
    """Two workers share the records; none comes twice, and an accepted one never again."""
    log.append_many([b"%d" % number for number in range(10)])
    with log.queue("work") as first, log.queue("work") as second:
        taken = [(one(first), one(second)) for _ in range(5)]
        assert [record.offset for pair in taken for record in pair] == list(range(10))
        assert all(record.delivery_count == 1 for pair in taken for record in pair)
        assert first.receive() is None
        first.accept(pair[0] for pair in taken)
        second.accept([pair[1] for pair in taken])
    with log.queue("work") as again:
        assert again.receive() is None
        log.append(b"new")
        assert one(again).value == b"new"
        assert again.stats() == pyreplog.QueueStats(11, 1, 0, 10, 0, 0)


def test_two_queues_do_not_know_each_other(log: pyreplog.Log) -> None:
    """Each name begins at the first record and has a journal of its own."""
    log.append_many([b"a", b"b"])
    with log.queue("work") as work, log.queue("Work") as other:
        assert drain(work) == drain(other) == [0, 1]


def test_readers_in_mode_r_share_the_queue_with_the_writer(place: Place, log: pyreplog.Log) -> None:
    """Workers need no writer: they see what it wrote, and each other's entries."""
    log.append_many([b"a", b"b", b"c"])
    with place.open("r") as reader, reader.queue("work") as there, log.queue("work") as here:
        first = one(there)
        assert [first.offset, *drain(here, 1)] == [0, 1]
        there.accept(first)
        log.append(b"d")
        assert drain(there) == [2, 3]


def test_a_released_record_is_the_next_one(log: pyreplog.Log) -> None:
    """It comes before new ones, with a higher delivery count."""
    log.append_many([b"a", b"b", b"c"])
    with log.queue("work") as queue:
        first, second = queue.receive_many(2)
        queue.release(first)
        again = one(queue)
        assert (again, again.delivery_count) == (first, 2)
        assert one(queue).offset == 2
        with pytest.raises(InvalidRecordStateError) as caught:
            queue.accept([first, second])
        assert caught.value.offsets == [0]
        queue.accept([again, second])


def test_the_lock_ends_after_30_seconds(place: Place, log: pyreplog.Log) -> None:
    """Then another worker gets the record, and the first one's accept raises and changes nothing."""
    log.append(b"a")
    with log.queue("work") as slow, log.queue("work") as other:
        record = one(slow)
        place.later(LOCK_MS - 1)
        assert other.receive() is None
        place.later(1)
        again = one(other)
        assert again.delivery_count == 2
        for settle in (slow.accept, slow.release, slow.reject, slow.renew):
            with pytest.raises(InvalidRecordStateError):
                settle(record)
        other.accept(again)
        assert place.letters() == []
        with pytest.raises(InvalidRecordStateError):
            other.accept(again)


def test_a_late_accept_counts_while_no_other_worker_has_the_record(place: Place, log: pyreplog.Log) -> None:
    """The work was done, so it is not done again."""
    log.append(b"a")
    with log.queue("work") as slow, log.queue("work") as other:
        record = one(slow)
        place.later(10 * LOCK_MS)
        slow.accept(record)
        assert other.receive() is None


def test_renew_gives_another_30_seconds(place: Place, log: pyreplog.Log) -> None:
    """A worker that renews in time keeps its record."""
    log.append_many([b"a", b"b"])
    with log.queue("work") as slow, log.queue("work") as other:
        records = slow.receive_many(2)
        for _ in range(3):
            place.later(LOCK_MS - 1)
            slow.renew(records)
        place.later(LOCK_MS - 1)
        assert other.receive() is None
        slow.accept(records)


def test_a_worker_that_closes_gives_its_records_back(log: pyreplog.Log) -> None:
    """At once; the delivery counts."""
    log.append_many([b"a", b"b"])
    with log.queue("work") as other:
        with log.queue("work") as queue:
            queue.receive_many(2)
        assert [(record.offset, record.delivery_count) for record in other.receive_many(5)] == [(0, 2), (1, 2)]


def test_a_worker_that_ends_without_closing_gives_its_records_back(place: Place, log: pyreplog.Log) -> None:
    """Its number is free, which a worker without other work sees at once."""
    log.append_many([b"a", b"b"])
    with log.queue("work") as other:
        queue = log.queue("work")
        queue.receive_many(2)
        queue._worker._journal.close()  # as the end of a process does
        assert drain(other) == [0, 1]


def test_after_five_deliveries_a_record_is_a_dead_letter(place: Place, log: pyreplog.Log) -> None:
    """The sixth is none: value, key and headers go into the log of the dead letters, with six headers more."""
    log.append(b"poison", key=b"k", headers=[("h", b"1")])
    log.append(b"fine")
    with log.queue("work") as queue:
        for times in range(1, 6):
            record = one(queue)
            assert (record.offset, record.delivery_count) == (0, times)
            queue.release(record)
        assert one(queue).value == b"fine"
        assert queue.stats().dead_letters == 1
    (letter,) = place.letters()
    assert (letter.value, letter.key) == (b"poison", b"k")
    assert letter.headers == (
        ("h", b"1"),
        ("__dlq.errors.topic", b"events"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"0"),
        ("__dlq.errors.group", b"work"),
        ("__dlq.errors.delivery.count", b"5"),
        ("__dlq.errors.message", b"not accepted in 5 deliveries"),
    )


def test_reject_makes_a_dead_letter_at_once(place: Place, log: pyreplog.Log) -> None:
    """The reason is in it: an exception, a text, or none."""
    log.append_many([b"a", b"b", b"c", b"d"])
    with log.queue("work") as queue:
        records = queue.receive_many(4)
        queue.reject(records[0], ValueError("no number"))
        queue.reject(records[2], "too old")
        queue.reject([records[1], records[3]])
        assert queue.stats() == pyreplog.QueueStats(4, 0, 0, 0, 4, 0)
    reasons = [dict(letter.headers)["__dlq.errors.message"] for letter in place.letters()]
    assert reasons == [b"ValueError: no number", b"too old", b"rejected", b"rejected"]


def test_dead_letters_go_to_the_given_folder(place: Place, log: pyreplog.Log) -> None:
    """In place of the folder beside the log."""
    log.append(b"a")
    with log.queue("work", dead_letters="elsewhere") as queue:
        queue.reject(one(queue))
    assert place.letters() == []
    with pyreplog.open_log("elsewhere", "r", disk=place.disk) as letters:
        assert [letter.value for letter in letters.read()] == [b"a"]


def test_a_dead_letter_is_written_once_whatever_ends(place: Place) -> None:
    """Kill the machine before every change of the disk while records are rejected: each is a dead letter exactly once
    in the end, and no other record is one."""
    calls = 0
    for at in range(1, 400):
        place = Place()
        with place.open(durability="os") as log:
            log.append_many([b"%d" % number for number in range(3)])
            queue = log.queue("work")
            records = queue.receive_many(3)
            place.disk.fail("[wsctr]*", nth=at, times=None)
            fault = place.disk._faults[-1]
            try:
                queue.reject(records[:2])
            except PyreplogError:
                pass
            done = fault.hits == 0
            place.disk.clear_faults()
            place.disk.kill()
            with pytest.raises(PyreplogError):
                log.close()
        calls += 1
        with place.open() as log, log.queue("work") as queue:
            left = queue.receive_many(5)
            # Records of which the journal does not know yet that they were rejected come again.
            assert [record.offset for record in left] in ([2], [0, 1, 2])
            queue.reject(left[:-1])
        assert sorted(letter.value or b"" for letter in place.letters()) == [b"0", b"1"], at
        if done:
            break
    assert calls > 10
    assert done


def test_a_failed_dead_letter_is_tried_again(place: Place, log: pyreplog.Log) -> None:
    """A rejected or exhausted record is never delivered again, whatever the log of the dead letters does."""
    log.append_many([b"a", b"b", b"c"])
    with log.queue("work") as queue:
        for _ in range(4):
            queue.release(one(queue))
        spent = one(queue)
        record = one(queue)
        place.disk.fail("*", f"{TOPIC}.dlq*", times=None)
        with pytest.raises(StorageError):
            queue.reject(record, "bad")
        with pytest.raises(InvalidRecordStateError):
            queue.accept(record)
        queue.release(spent)
        with pytest.raises(StorageError):
            queue.receive()
        place.disk.clear_faults()
        assert one(queue).offset == 2
        assert queue.receive() is None
        assert queue.stats().dead_letters == 2
    letters = {letter.value: dict(letter.headers) for letter in place.letters()}
    assert letters[b"a"]["__dlq.errors.delivery.count"] == b"5"
    assert letters[b"b"]["__dlq.errors.delivery.count"] == b"1"
    assert b"rejected" in (letters[b"b"]["__dlq.errors.message"] or b"")


def test_at_most_2000_records_are_in_flight(log: pyreplog.Log) -> None:
    """All workers together; a settled one makes room for the next."""
    log.append_many([b""] * 2100)
    with log.queue("work") as queue, log.queue("work") as other:
        records = queue.receive_many(1500)
        assert len(records) == 500 or len(records) == 1500
        while more := queue.receive_many(1500):
            records += more
        assert len(records) == 2000
        assert other.receive() is None
        queue.accept(records[:1])
        assert one(other).offset == 2000
        assert other.receive() is None


def test_deleted_records_are_an_event_and_no_hang(place: Place, log: pyreplog.Log, caplog: Any) -> None:
    """Records that retention removed before their delivery are counted and logged, and the queue goes on."""
    log.append_many([b"a"] * 3)
    with log.queue("work") as queue:
        first = one(queue)
        log.append_many([b"b"] * 7)
        log.delete_records(6)
        queue.release(first)
        assert drain(queue) == [6, 7, 8, 9]
        assert queue.stats().deleted == 6
    assert "deleted from the log" in caplog.text


def test_a_new_queue_begins_at_the_first_record_that_is_there(log: pyreplog.Log) -> None:
    """Records that were deleted before it began do not count as lost."""
    log.append_many([b"a"] * 5)
    log.delete_records(3)
    with log.queue("work") as queue:
        assert drain(queue) == [3, 4]
        assert queue.stats().deleted == 0


def test_a_record_that_a_worker_has_outlives_its_deletion(log: pyreplog.Log) -> None:
    """It can be accepted after the log has deleted it."""
    log.append_many([b"a"] * 2)
    with log.queue("work") as queue:
        record = one(queue)
        log.delete_records(2)
        queue.accept(record)
        assert queue.stats()[:4] == (1, 0, 0, 1)


def test_a_truncated_log_delivers_the_records_that_took_the_place(place: Place, caplog: Any) -> None:
    """Power loss takes back records of an ``os`` log that the queue had delivered; the next records at these offsets
    are delivered, although the journal is beyond them."""
    ends = set()
    with place.open(durability="os") as before:
        before.append_many([b"old"] * 4)
        before.flush()
        before.append_many([b"lost"] * 4)
        with before.queue("work") as queue:
            queue.accept(queue.receive_many(8))
            queue._worker._journal.sync()
            for seed in range(20):
                after = Place()
                after.disk = place.disk.crash(Random(seed))
                with after.open() as log:
                    end = log.end_offset
                    ends.add(end)
                    log.append_many([b"new"] * 6)
                    with log.queue("work") as again:
                        assert [record.value for record in again.receive_many(10)] == [b"new"] * 6
                    if end == 4:
                        log.append(b"newer")
                        with log.queue("work") as third:
                            assert third.receive_many(10)[-1].value == b"newer"
    assert ends == {4, 8}
    assert "truncated" in caplog.text


def test_a_log_that_was_made_again_is_refused(place: Place, log: pyreplog.Log) -> None:
    """The same offsets are other records."""
    log.append(b"a")
    with log.queue("work", offsets="journals") as queue:
        drain(queue)
    other = Place()
    other.disk = place.disk
    with pyreplog.open_log("other", topic=TOPIC, disk=place.disk) as made:
        made.append(b"b")
        with pytest.raises(TopicRecreatedError):
            made.queue("work", offsets="journals")


@pytest.mark.parametrize("name", ["", "a/b", "ü", "x" * 201])
def test_impossible_names_are_refused(log: pyreplog.Log, name: str) -> None:
    """A name is a part of a file's name."""
    with pytest.raises(ConfigError):
        log.queue(name)


def test_wrong_arguments_are_refused(log: pyreplog.Log) -> None:
    """Counts, times and records are checked before anything changes."""
    log.append(b"a")
    with log.queue("work") as queue:
        for call in (lambda: queue.receive_many(0), lambda: queue.receive(timeout=-1), lambda: queue.accept(Record())):
            with pytest.raises(ConfigError):
                call()
        with pytest.raises(TypeError):
            queue.accept([b"bytes"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="not NoneType"):
            queue.accept(None)  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            queue.accept(next(iter(log.read())))
        queue.accept([])
        with pytest.raises(TypeError):
            copy.copy(queue)
        assert one(queue).delivery_count == 1


def test_a_closed_queue_and_a_closed_log_refuse(place: Place) -> None:
    """Closing the log closes its queues; each call says so. A second close is harmless."""
    log = place.open(durability="os")
    log.append(b"a")
    queue, left = log.queue("work"), log.queue("work")
    record = one(queue)
    queue.close()
    queue.close()
    assert queue.closed
    log.close()
    assert left.closed
    for call in (queue.receive, left.receive, queue.stats, lambda: queue.accept(record)):
        with pytest.raises(ClosedError):
            call()
    with pytest.raises(ClosedError):
        log.queue("work")


def test_a_failed_sync_poisons_the_worker_and_the_next_one_writes_all_again(place: Place, log: pyreplog.Log) -> None:
    """The accept is unknown then: the record may come again, and what came before it does not."""
    log.append_many([b"a", b"b"])
    queue = log.queue("work")
    first, second = queue.receive_many(2)
    queue.accept(first)
    place.disk.fail("sync", JOURNAL)
    with pytest.raises(UnsyncedError):
        queue.accept(second)
    with pytest.raises(ClosedError, match="open it again"):
        queue.receive()
    queue.close()
    with log.queue("work") as again:
        assert 0 not in drain(again)


def test_an_os_log_is_not_synced_for_an_accept(place: Place) -> None:
    """One write each, and no sync."""
    with place.open(durability="os") as log:
        log.append_many([b"a"] * 10)
        with log.queue("work") as queue:
            syncs = place.disk.syncs
            for _ in range(10):
                queue.accept(one(queue))
            assert place.disk.syncs == syncs


def test_many_records_are_one_write_each_way(place: Place, log: pyreplog.Log) -> None:
    """Acquiring and accepting hundreds costs two writes and one sync."""
    log.append_many([b"a"] * 400)
    with log.queue("work") as queue:
        place.disk.trace = []
        records = queue.receive_many(400)
        queue.accept(records)
        kinds = [line.split()[1] for line in place.disk.trace if JOURNAL in line]
        assert len(records) == 400
        assert kinds.count("write") == 2
        assert kinds.count("sync") == 1


def test_a_removed_journal_is_noticed(place: Place, log: pyreplog.Log) -> None:
    """A worker never goes on in a file that no other worker finds."""
    log.append_many([b"a", b"b"])
    with log.queue("work") as queue:
        drain(queue, 1)
        place.disk.remove(JOURNAL)
        place.later(100)
        with pytest.raises(ClosedError, match="removed"):
            queue.receive()


def test_a_wait_ends_with_a_record_the_time_or_the_close(tmp_path: Path) -> None:
    """Appends of this process and releases wake a waiting worker; a close ends its wait with an error."""
    with pyreplog.open_log(tmp_path / TOPIC, durability="os") as log:
        queue = log.queue("work")
        assert queue.receive(timeout=0.01) is None
        found: list[Any] = []

        def wait() -> None:
            try:
                found.append(queue.receive(timeout=30))
            except ClosedError as error:
                found.append(error)

        def during(act: Callable[[], object]) -> None:
            thread = threading.Thread(target=wait)
            thread.start()
            while not queue._waiting and thread.is_alive():
                threading.Event().wait(0.001)
            act()
            thread.join(20)
            assert not thread.is_alive()

        during(lambda: log.append(b"a"))
        during(lambda: queue.release(found[0]))
        assert [record.delivery_count for record in found] == [1, 2]
        during(queue.close)
        assert isinstance(found[2], ClosedError)


@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_release_by_another_worker_wakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    """Also one of another opening, as of another process: the waiting worker does not look from time to time here."""
    monkeypatch.setattr(queue_face, "PAUSE_S", 1000.0)
    monkeypatch.setattr(follow, "WATCHED_PAUSE_S", 1000.0)
    with ExitStack() as stack:
        log = stack.enter_context(pyreplog.open_log(tmp_path / TOPIC, durability="os"))
        other = stack.enter_context(pyreplog.open_log(tmp_path / TOPIC, "r").queue("work"))
        waiting = stack.enter_context((log if mode == "a" else pyreplog.open_log(tmp_path / TOPIC, "r")).queue("work"))
        log.append(b"a")
        record = other.receive()
        assert record is not None
        found: list[Record | None] = []
        for act in (lambda: other.release(record), lambda: log.append(b"b")):
            thread = threading.Thread(target=lambda: found.append(waiting.receive(timeout=100)))
            thread.start()
            while not waiting._waiting:
                threading.Event().wait(0.001)
            act()
            thread.join(20)
            assert not thread.is_alive()
            assert found[-1] is not None
            waiting.accept(found[-1])
        assert [(one.value, one.delivery_count) for one in found if one is not None] == [(b"a", 2), (b"b", 1)]


def test_threads_share_a_worker_and_its_syncs(tmp_path: Path) -> None:
    """Every record is accepted once, by one of the threads."""
    with pyreplog.open_log(tmp_path / TOPIC, durability="sync") as log:
        log.append_many([b"%d" % number for number in range(200)])
        done: list[int] = []
        with log.queue("work") as queue:

            def work() -> None:
                while (record := queue.receive()) is not None:
                    queue.accept(record)
                    done.append(record.offset)

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(done) == list(range(200))
            assert queue.stats().accepted == 200


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_refuses(tmp_path: Path) -> None:
    """The child of a fork opens the log and its queue for itself."""
    with pyreplog.open_log(tmp_path / TOPIC, durability="os") as log:
        log.append(b"a")
        with log.queue("work") as queue:
            record = one(queue)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    refused = 0
                    for call in (queue.receive, lambda: queue.accept(record), queue.stats):
                        try:
                            call()
                        except ForkedError:
                            refused += 1
                    queue.close()
                    code = 0 if refused == 3 else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            queue.accept(record)


def test_a_brokers_folder_needs_another_place_for_the_journal(place: Place, log: pyreplog.Log) -> None:
    """Nothing is written beside a broker's files."""
    log.append(b"a")
    log.close()
    place.disk.remove(f"{TOPIC}/{TOPIC}-0/replog.mark")
    with place.open("r") as reader:
        with pytest.raises(ConfigError, match="offsets=FOLDER"):
            reader.queue("work")
        with reader.queue("work", offsets="journals") as queue:
            assert drain(queue) == [0]


def test_the_log_of_dead_letters_is_open_for_the_moment_only(place: Place, log: pyreplog.Log) -> None:
    """Another worker, or its reader, can have it right after."""
    assert dead_letter_log.DEAD_LETTER_FOLDER_SUFFIX == ".dlq"
    log.append(b"a")
    with log.queue("work") as queue:
        queue.reject(one(queue))
        with pyreplog.open_log(f"{TOPIC}.dlq", topic=f"dlq.{TOPIC}", disk=place.disk) as letters:
            assert len(list(letters.read())) == 1


def test_a_backup_keeps_the_queue(tmp_path: Path) -> None:
    """A copy that was made beside its workers goes on behind what was accepted; verify finds both sound."""
    with pyreplog.open_log(tmp_path / TOPIC, durability="os") as log, log.queue("work") as queue:
        log.append_many([b"%d" % number for number in range(10)])
        queue.accept(queue.receive_many(4))
        queue.receive_many(2)
        pyreplog.backup(tmp_path / TOPIC, tmp_path / "copy")
        log.append(b"later")
        queue.accept(queue.receive_many(3))
        pyreplog.backup(tmp_path / TOPIC, tmp_path / "copy")
        assert verify(SystemDisk(), str(tmp_path / TOPIC)).worst == Level.NOTE
    with pyreplog.open_log(tmp_path / "copy", topic=TOPIC) as copy, copy.queue("work") as again:
        assert [record.offset for record in again.receive_many(20)] == [4, 5, 9, 10]
        assert verify(SystemDisk(), str(tmp_path / "copy")).worst == Level.NOTE


@pytest.mark.parametrize(
    ("position", "level"),
    [(522, Level.DAMAGE), (1032, Level.WARNING), (135180, Level.DAMAGE), (135168 + 57 + 20, Level.WARNING)],
)
def test_verify_finds_a_damaged_journal(place: Place, log: pyreplog.Log, position: int, level: Level) -> None:
    """The slot and the snapshot are damage; the name, and entries behind which nothing counts, are a warning."""
    log.append_many([b"a", b"b"])
    with log.queue("work") as queue:
        drain(queue)
    log.close()
    assert verify(place.disk, TOPIC).findings == []
    place.disk.flip(JOURNAL, position)
    report = verify(place.disk, TOPIC)
    assert [(finding.level, finding.path) for finding in report.findings] == [(level, JOURNAL)]


def test_records_that_compaction_removed_are_passed(tmp_path: Path) -> None:
    """A gap is no end and no loss of order: new records behind it are delivered. A record that was delivered before
    and is gone counts as deleted."""
    with pyreplog.open_log(tmp_path / TOPIC, durability="os", config={"cleanup.policy": "compact"}) as log:
        log.append_many([b"%d" % number for number in range(9)], keys=[b"k%d" % (number % 3) for number in range(9)])
        with log.queue("work") as queue:
            first = queue.receive_many(2)
            log.compact()
            assert [record.offset for record in log] == [6, 7, 8]
            queue.release(first[0])
            queue.accept(first[1])
            log.append(b"9", key=b"k9")
            seen = []
            while record := queue.receive():
                seen.append(record.offset)
                queue.accept(record)
            assert seen in ([6, 7, 8, 9], [2, 3, 4, 5, 6, 7, 8, 9])  # some were read ahead
            assert queue.stats()[:4] == (10, 0, 0, len(seen) + 1)
            assert queue.stats().deleted == 1
        with log.queue("late") as late:
            assert [record.offset for record in late.receive_many(20)] == [6, 7, 8, 9]
            assert late.stats().deleted == 0


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_dead_letters_go_into_a_log_of_any_durability(place: Place, durability: Any) -> None:
    """The log of the dead letters gets the durability of its log; one that is there keeps its own."""
    with place.open(durability=durability) as log, log.queue("work") as queue:
        log.append_many([b"a", b"b"])
        queue.reject(one(queue))
        with pyreplog.open_log(f"{TOPIC}.dlq", "r", topic=f"dlq.{TOPIC}", disk=place.disk) as letters:
            assert letters.durability == durability
    with place.open() as log, log.queue("work", dead_letters="other") as queue:
        different: Any = "os" if durability == "sync" else "sync"
        pyreplog.open_log("other", topic=f"dlq.{TOPIC}", durability=different, disk=place.disk).close()
        queue.reject(one(queue))
        with pyreplog.open_log("other", "r", disk=place.disk) as letters:
            assert (letters.durability, len(letters)) == (different, 1)
