"""Rows through the spool exactly once: executor, driver and owner stopped before every call that changes the disk,
with every legal loss.

The world: a query has batches of fixed rows. Whoever runs a batch, again or for the first time, splits it into
tasks in a way of its own. After a crash the owner opens the log, whatever stands in the spool is appended, and the
query goes on with the first batch that its checkpoint does not have, in another layout. In the end every row must
be there once, and those of one key in order.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Sequence
from random import Random

import pyarrow as pa
import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import PyreplogError, StorageError
from pyreplog.log import LogRoot, read_state, write_state
from pyreplog.record import BatchBuilder, RowEncoder, records_of, split
from pyreplog.runtime import spool_applier
from pyreplog.runtime.spool_applier import RootAppender, apply_waiting, settle_root
from pyreplog.spool import BatchId, Spool, StagedFile
from pyreplog.testing import SimClock, SimDisk, crash_points, error_points
from pyreplog.testing.faults import Call
from pyreplog.values import TopicPartition

FOLDER = "/log"
CHECKPOINT = "/checkpoint"
QUERY = "query-1"
PARTITIONS = 2
ATTEMPTS = itertools.count()
"""No two attempts at a task have one name, in whichever life."""
BATCHES = [[(b"k%d" % (row % 3), b"%d-%d" % (batch, row)) for row in range(9)] for batch in range(3)]


def open_root(disk: SimDisk, durability: str) -> LogRoot:
    """The root with the topic; its partitions are made where they are not there."""
    root = LogRoot.open(disk, FOLDER, clock=SimClock(), random=Random(1))
    for number in range(PARTITIONS):
        if TopicPartition("t", number) not in root.logs:
            root.create_log("t", number, root.new_topic_id(), LogConfig.from_mapping({"durability": durability}))
    return root


def layout(batch: int, attempt: int) -> list[list[tuple[bytes, bytes]]]:
    """The rows of a batch as tasks; another way at each attempt. Rows of one key keep their order."""
    rows = BATCHES[batch]
    cut = 1 + (attempt * 4 + batch) % 8
    return [rows[:cut], rows[cut:], []] if attempt % 2 else [rows]


def stage(spool: Spool, batch: int, attempt: int) -> list[StagedFile]:
    """What the executors do."""
    files = []
    for number, rows in enumerate(layout(batch, attempt)):
        encoder = RowEncoder(PARTITIONS, 75, 2000)  # a record a batch: more than a log remembers of a producer
        table = pa.record_batch(
            {"key": pa.array([key for key, _ in rows], pa.binary()), "value": [value for _, value in rows]}
        )
        batches = (
            encoder.add(table.cast(pa.schema([("key", pa.binary()), ("value", pa.binary())])), 5, 0) + encoder.drain()
        )
        if batches:
            writer = spool.stage(BatchId(QUERY, batch), f"{number}-a{next(ATTEMPTS)}")
            writer.add([(TopicPartition("t", partition), data) for partition, data in batches])
            files.append(writer.finish(encoder.row_sum))
    return files


def run(disk: SimDisk, root: LogRoot, batch: int, attempt: int) -> None:
    """One batch from start to end: executors, driver, owner, driver."""
    spool = Spool(disk, FOLDER)
    spool.publish(BatchId(QUERY, batch), stage(spool, batch, attempt))
    apply_waiting(spool, lambda: RootAppender(root))
    assert spool.answered(BatchId(QUERY, batch))


def commit(disk: SimDisk, batch: int) -> None:
    """Note in the query's checkpoint that ``batch`` is done, as Spark does behind the sink's commit."""
    write_state(disk, CHECKPOINT, {"done": str(batch + 1)})


def committed(disk: SimDisk) -> int:
    """The first batch that the query runs when it is started again: at most one behind the log."""
    values = read_state(disk, CHECKPOINT)
    return 0 if values is None else int(values["done"])


def values(root: LogRoot) -> list[tuple[bytes | None, bytes | None]]:
    """What readers see, partition after partition."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for key in sorted(root.logs):
        log = root.logs[key]
        assert log.high_watermark == log.end_offset
        offset = log.start_offset
        while offset < log.end_offset:
            for part in log.read(offset, 1 << 20, log.end_offset).parts():
                for batch in split(part):
                    found += [(record.key, record.value) for record in records_of(batch)]
                    offset = batch.next_offset
    return found


def assert_exactly_once(root: LogRoot, batches: int) -> None:
    """Every row of the first ``batches`` once, those of a key in order, and none else."""
    wanted = [row for batch in BATCHES[:batches] for row in batch]
    found = values(root)
    assert sorted(found, key=str) == sorted(wanted, key=str)
    for key in (b"k0", b"k1", b"k2"):
        assert [row for row in found if row[0] == key] == [row for row in wanted if row[0] == key]


def workload(durability: str, attempt: int = 0) -> Callable[[SimDisk, list[int]], None]:
    """All batches, one after the other."""

    def work(disk: SimDisk, acknowledged: list[int]) -> None:
        root = open_root(disk, durability)
        for batch in range(len(BATCHES)):
            run(disk, root, batch, attempt)
            acknowledged.append(batch)
            commit(disk, batch)
        root.close()

    return work


def recovery(durability: str) -> Callable[[SimDisk, Sequence[int]], None]:
    """After the crash: go on with the first batch that the checkpoint does not have, in another layout."""

    def check(disk: SimDisk, acknowledged: Sequence[int]) -> None:
        root = open_root(disk, durability)
        spool = Spool(disk, FOLDER)
        settle_root(root)
        apply_waiting(spool, lambda: RootAppender(root))
        assert committed(disk) >= len(acknowledged) - 1
        for batch in range(committed(disk), len(BATCHES)):
            run(disk, root, batch, 1)
            commit(disk, batch)
        assert_exactly_once(root, len(BATCHES))
        left = [name for name in disk.list(FOLDER) if name.startswith("replog.spool.")]
        spool.sweep(10**15)
        assert all(name.endswith((".applied", ".lock", ".staged", ".tmp")) for name in left), left
        assert {name for name in disk.list(FOLDER) if name.startswith("replog.spool.")} <= {
            f"replog.spool.{QUERY}.applied",
            f"replog.spool.{QUERY}.lock",
        }
        root.close()

    return check


def test_power_loss_and_kill_at_every_call() -> None:
    """Durability ``sync``: whatever power loss leaves, and every kill."""
    report = crash_points(workload("sync"), recovery("sync"), seed=1, damages=2)
    assert report.states > 500


def test_kill_in_the_other_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the first attempt was in several tasks, and syncs are begun while the owner still appends."""
    monkeypatch.setattr(spool_applier, "EARLY_SYNC_SIZE", 200)
    crash_points(workload("sync", attempt=1), recovery("sync"), seed=2, damages=1, every=3)


def test_a_failed_sync_is_not_tried_again() -> None:
    """What the owner could not sync is on no disk, whatever a second sync says: an answer given afterwards outlives
    power loss all the same. So does one that is given to another query in the same opening."""
    for others in (False, True):
        disk = SimDisk(Random(4))
        spool = Spool(disk, FOLDER)
        root = open_root(disk, "sync")
        batches = [BatchId(QUERY, 0), BatchId("query-2", 0)][: 1 + others]
        for batch_id in batches:
            writer = spool.stage(batch_id, f"0-a{next(ATTEMPTS)}")
            builder = BatchBuilder()
            builder.extend([str(batch_id).encode()], None, None, None, 5, 0)
            writer.add([(TopicPartition("t", 0), bytes(builder.finish()))])
            spool.publish(batch_id, [writer.finish()])
        disk.fail("sync", "*.log")
        with pytest.raises(PyreplogError):
            apply_waiting(spool, lambda root=root: RootAppender(root))  # type: ignore[misc]
        answered = [batch_id for batch_id in batches if spool.applied(batch_id.query) == 0]
        assert not answered
        root.close(clean=False)
        root = open_root(disk, "sync")
        settle_root(root)
        apply_waiting(spool, lambda root=root: RootAppender(root))  # type: ignore[misc]
        assert all(spool.answered(batch_id) for batch_id in batches)
        for seed in range(10):
            after = open_root(disk.crash(Random(seed)), "sync")
            assert not after.damaged
            settle_root(after)
            assert sorted(value or b"" for _, value in values(after)) == sorted(
                str(batch_id).encode() for batch_id in batches
            )


def one_row(spool: Spool, batch_id: BatchId, *values: bytes, once: bool = False) -> list[StagedFile]:
    """A published batch whose rows are record batches of their own."""
    writer = spool.stage(batch_id, f"0-a{next(ATTEMPTS)}")
    for value in values:
        builder = BatchBuilder()
        builder.extend([value], None, None, None, 5, 0)
        writer.add([(TopicPartition("t", 0), bytes(builder.finish()))])
    files = [writer.finish()]
    spool.publish(batch_id, files, once=once)
    return files


def test_what_is_forgotten_does_not_come_back_in_part() -> None:
    """The owner clears up without a sync. Power loss may bring its leavings back, and nothing must say then that
    they are to be applied."""
    disk = SimDisk(Random(1))
    root = open_root(disk, "sync")
    spool = Spool(disk, FOLDER)
    one_row(spool, BatchId(QUERY, 0), b"row", once=True)
    apply_waiting(spool, lambda: RootAppender(root))
    spool.forget(QUERY)
    for seed in range(100):
        left = disk.crash(Random(seed))
        after = open_root(left, "sync")
        settle_root(after)
        apply_waiting(Spool(left, FOLDER), lambda after=after: RootAppender(after))  # type: ignore[misc]
        assert [value for _, value in values(after)] == [b"row"]


def test_that_it_is_applied_is_durable_before_it_is_believed() -> None:
    """A failed sync leaves it to be seen and on no disk: the same batch in another layout would be stuck behind its
    rows."""
    disk = SimDisk(Random(1))
    root = open_root(disk, "sync")
    spool = Spool(disk, FOLDER)
    one_row(spool, BatchId(QUERY, 0), b"0", b"1", b"2")

    def fail(call: Call) -> None:
        if call.kind == "rename" and ".applied" in call.path:
            disk.fail("sync_directory", FOLDER, error=errno.EIO)

    disk.observer = fail
    with pytest.raises(StorageError):
        apply_waiting(spool, lambda: RootAppender(root))
    disk.observer = None
    assert apply_waiting(spool, lambda: RootAppender(root)) == 1
    for seed in range(100):
        left = disk.crash(Random(seed))
        assert Spool(left, FOLDER).applied(QUERY) == 0
        after = open_root(left, "sync")
        settle_root(after)
        assert [value for _, value in values(after)] == [b"0", b"1", b"2"]


def test_that_it_is_begun_is_durable_before_more_is_appended() -> None:
    """A failed sync leaves it to be seen and on no disk: the next owner could refuse what is in the log."""
    disk = SimDisk(Random(1))
    root = open_root(disk, "sync")
    spool = Spool(disk, FOLDER)
    batch_id = BatchId(QUERY, 0)
    one_row(spool, batch_id, b"0", b"1", b"2")
    spool.take(batch_id)
    disk.fail("sync_directory", FOLDER, error=errno.EIO)
    with pytest.raises(StorageError):
        spool.begin(batch_id)
    lefts: list[SimDisk] = []
    disk.observer = lambda call: lefts.extend(disk.crash(Random(f"{call.number}:{seed}")) for seed in range(20))
    assert apply_waiting(spool, lambda: RootAppender(root)) == 1
    disk.observer = None
    count = 0
    for left in lefts:
        after = open_root(left, "sync")
        if after.logs[TopicPartition("t", 0)].end_offset:
            count += 1
            spool = Spool(left, FOLDER)
            assert spool.begun(batch_id) is not None or spool.applied(QUERY) == 0
    assert count > 20


def test_a_batch_that_does_not_get_in_holds_up_its_query() -> None:
    """What comes later in a query would say that it is in the log. Other queries go on; the first failure is
    told."""
    disk = SimDisk(Random(5))
    spool = Spool(disk, FOLDER)
    root = open_root(disk, "sync")
    for query, batch, partition in ((QUERY, 0, 0), (QUERY, 1, 1), ("query-2", 0, 1)):
        batch_id = BatchId(query, batch)
        writer = spool.stage(batch_id, f"0-a{next(ATTEMPTS)}")
        builder = BatchBuilder()
        builder.extend([str(batch_id).encode()], None, None, None, 5, 0)
        writer.add([(TopicPartition("t", partition), bytes(builder.finish()))])
        spool.publish(batch_id, [writer.finish()])
    disk.fail("write", f"{FOLDER}/t-0/*.log", times=None, error=errno.ENOSPC)
    with pytest.raises(StorageError, match="No space"):
        apply_waiting(spool, lambda: RootAppender(root))
    assert (spool.applied(QUERY), spool.applied("query-2")) == (-1, 0)
    disk.clear_faults()
    assert apply_waiting(spool, lambda: RootAppender(root)) == 2
    assert spool.applied(QUERY) == 1
    assert len(values(root)) == 3
    root.close()


def test_errors_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call fails once or for ever, with each error; what is left goes on as after a crash. Early syncs among
    them."""
    monkeypatch.setattr(spool_applier, "EARLY_SYNC_SIZE", 200)
    error_points(workload("sync"), recovery("sync"), seed=3, damages=1, every=11, first=5)


def test_every_sync_is_told_whatever_becomes_of_the_first() -> None:
    """Two ended together, and the mark that says so of the one cannot be written: the other log hears of its own,
    and whoever closes does not wait for it."""
    disk = SimDisk(Random(1))
    root = open_root(disk, "sync")
    spool = Spool(disk, FOLDER)
    batch_id = BatchId(QUERY, 0)
    writer = spool.stage(batch_id, f"0-a{next(ATTEMPTS)}")
    builder = BatchBuilder()
    builder.extend([b"0", b"1"], None, None, None, 5, 0)
    data = bytes(builder.finish())
    writer.add([(TopicPartition("t", number), data) for number in range(PARTITIONS)])
    spool.publish(batch_id, [writer.finish()])
    begun: list[Call] = []

    def fail(call: Call) -> None:
        if call.kind == "submit_sync":
            begun.append(call)
            if len(begun) == PARTITIONS:
                disk.fail("write", "*/replog.mark", error=errno.EIO)

    disk.observer = fail
    with pytest.raises(StorageError):
        apply_waiting(spool, lambda: RootAppender(root))
    told = [log.flushed_offset == 2 for log in root.logs.values() if log.failure is None]
    assert told == [True]
