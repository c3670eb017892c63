"""Owners of a spool: a process with an open log, one with a cluster, and nobody. Real files, real threads, real
kills."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.client import Completion
from pyreplog.errors import LockedError, SpoolRefusedError, StorageError
from pyreplog.log.layout import CLEAN_SHUTDOWN_NAME, MARK_NAME
from pyreplog.record import RecordBatch
from pyreplog.runtime import apply_offline
from pyreplog.runtime import spool_applier as owners
from pyreplog.runtime import spool_watcher as lookouts
from pyreplog.runtime.cluster_appender import WINDOW_SIZE, ClusterAppender
from pyreplog.runtime.spool_applier import SpoolApplier
from pyreplog.spool import BatchId, Spool, producer_of
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition
from tests.unit.runtime.frozen_driver import still
from tests.unit.spool.support import stage

ID = BatchId("query", 0)
ROWS = [b"%d" % number for number in range(400)]


def until(condition: Callable[[], bool]) -> None:
    """Look until it is so; 30 s at most."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def values(path: Path, topic: str | None = None) -> list[bytes]:
    """What a reader sees."""
    with pyreplog.open_log(path, "r", topic=topic) as log:
        return [record.value for record in log]  # type: ignore[misc]


def publish(folder: Path, topic: str, batch_id: BatchId = ID, partitions: int = 1) -> Spool:
    """All rows in small batches, spread over the partitions."""
    spool = Spool(SystemDisk(), str(folder))
    batches = [(topic, number % partitions, ROWS[number : number + 10]) for number in range(0, len(ROWS), 10)]
    spool.publish(batch_id, [stage(spool, batch_id, *batches[:7]), stage(spool, batch_id, *batches[7:])])
    return spool


class Full:
    """An owner's appender that has room for so many batches."""

    def __init__(self, room: int) -> None:
        self._room = room

    def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
        """Any."""
        return lambda batch: None

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """One less."""
        if not self._room:
            raise StorageError(errno.ENOSPC, "no room")
        self._room -= 1

    def finish(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing."""


def test_a_batch_that_waits_keeps_its_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a part of it may be in the log, its producer must not expire there, or the rest would be taken for
    a new one."""
    now = [1000.0]
    monkeypatch.setattr(owners, "time", SimpleNamespace(monotonic=lambda: now[0]))
    publish(tmp_path, "t")
    rooms = [5, 5, 1000, 1000]
    told: list[frozenset[int]] = []
    spool_applier = SpoolApplier(
        Spool(SystemDisk(), str(tmp_path)), lambda: Full(rooms.pop(0)), SystemClock(), told.append
    )
    for _ in range(4):
        spool_applier._work()
        now[0] += owners.RETRY_S
    assert told == [{producer_of(ID)[0]}, {producer_of(ID)[0]}, set()]
    assert rooms == [1000]


def test_a_damaged_batch_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What rotted after it was begun holds up its query alone, is looked at ever more seldom, and told of once;
    mended, it goes in."""
    now = [1000.0]
    monkeypatch.setattr(owners, "time", SimpleNamespace(monotonic=lambda: now[0]))
    spool = publish(tmp_path, "t")
    manifest = spool.take(ID)
    assert manifest is not None
    spool.begin(ID)
    rotten = tmp_path / manifest.files[0].name
    whole = rotten.read_bytes()
    rotten.write_bytes(whole[:70] + b"?" + whole[71:])
    tries: list[float] = []

    def make() -> Full:
        tries.append(now[0] - 1000)
        return Full(1000)

    spool_applier = SpoolApplier(spool, make, SystemClock())
    for _ in range(200 * 5):
        spool_applier._work()
        now[0] += 0.2
    assert [round(at) for at in tries] == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"remove {tmp_path}/replog.spool.query.0.begun" in caplog.text
    other = BatchId("other", 0)
    publish(tmp_path, "t", other)
    spool_applier._work()
    assert spool.answered(other)
    assert not spool.answered(ID)
    rotten.write_bytes(whole)
    now[0] += owners.RETRY_MAX_S
    spool_applier._work()
    assert spool.answered(ID)


def test_no_thread_where_nobody_ever_staged_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An open log's own thread looks; a failure to begin is told of, once, and tried again. Whoever looks while the
    log is closed begins nothing."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError(f"can't start new thread: {thread.name}")

    with pyreplog.open_log(tmp_path / "t") as log:
        log.append(b"own")
        spool_watcher = log._watcher
        assert spool_watcher is not None
        assert spool_watcher._look() == lookouts.INTERVAL_S
        assert spool_watcher.owner is None
        monkeypatch.setattr(threading.Thread, "start", refuse)
        spool = publish(tmp_path / "t", "t")
        assert spool_watcher._look() == spool_watcher._look() == lookouts.RETRY_S
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "no thread can be started" in caplog.text
        assert not spool.answered(ID)
        monkeypatch.undo()
        until(lambda: spool.answered(ID))
    with pyreplog.open_log(tmp_path / "late", disk=SystemDisk()) as log:
        assert log._writer is not None
        publish(tmp_path / "late", "late")
        late = lookouts.SpoolWatcher(SystemDisk(), str(tmp_path / "late"), SystemClock(), log._writer)
        late.stop()
        assert late._look() is None
        assert late.owner is not None
        assert not late.owner._background.is_running


def test_logs_hear_which_producers_to_keep(tmp_path: Path) -> None:
    """Of an open log, and of all replicas of a cluster."""
    ids = frozenset([5])
    with pyreplog.open_log(tmp_path / "log") as log:
        publish(tmp_path / "log", "log")
        until(lambda: log._watcher is not None and log._watcher.owner is not None)
        assert log._watcher is not None
        assert log._watcher.owner is not None
        log._watcher.owner._retain(ids)
        assert log._writer is not None
        assert log._writer.log.producers.pinned_ids == ids
    with pyreplog.Cluster(tmp_path / "cluster", nodes=2) as cluster:
        cluster.admin.create_topic("t", replication_factor=2)
        with cluster.producer() as producer:
            producer.send("t", b"x").result()
        cluster._nodes.retain_producers(ids)
        kept = [
            log.producers.pinned_ids
            for node in cluster.nodes
            if node._node is not None
            for log in node._node.root.logs.opened()
        ]
        assert kept == [ids, ids]


def test_an_open_log_takes_it(tmp_path: Path) -> None:
    """Beside its own appends, under both durabilities; what is not its own is refused by name."""
    for durability in ("sync", "os"):
        folder = tmp_path / durability
        with pyreplog.open_log(folder, durability=durability) as log:
            log.append(b"own")
            spool = publish(folder, durability)
            until(lambda spool=spool: spool.answered(ID))  # type: ignore[misc]
            assert [record.value for record in log] == [b"own", *ROWS]
            assert log.append(b"after") == len(ROWS) + 1
            publish(folder, "other", BatchId("query", 1))
            with pytest.raises(SpoolRefusedError, match="other-0 is not written by the process"):
                until(lambda spool=spool: spool.answered(BatchId("query", 1)))  # type: ignore[misc]
        assert values(folder) == [b"own", *ROWS, b"after"]
        until(lambda spool=spool: not spool.waiting())  # type: ignore[misc]
        assert not [name for name in os.listdir(folder) if name.endswith((".staged", ".begun"))]


def test_nobody_has_it_open(tmp_path: Path) -> None:
    """Whoever wants it in opens the folder, makes the topic where told, and releases it; not while somebody has
    it."""
    folder = tmp_path / "events"
    folder.mkdir()
    publish(folder, "events")
    with (
        pyreplog.open_log(folder / ".." / "events", disk=SystemDisk()),
        pytest.raises(LockedError),
    ):  # a disk of its own: takes no spool
        apply_offline(SystemDisk(), str(folder), SystemClock())
    apply_offline(SystemDisk(), str(folder), SystemClock())
    assert values(folder) == ROWS
    assert (folder / CLEAN_SHUTDOWN_NAME).exists(), "nobody has to look through it again"
    publish(folder, "more", BatchId("query", 1))
    apply_offline(SystemDisk(), str(folder), SystemClock())
    assert values(folder, "more") == ROWS


@pytest.mark.parametrize("spool_applier", ["log", "nobody", "cluster"])
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"message.timestamp.before.max.ms": 1000}, "InvalidTimestampError.*message.timestamp.before.max.ms"),
        ({"compression.type": "gzip", "max.message.bytes": 1000}, "MessageTooLargeError.*max.message.bytes"),
    ],
)
def test_what_the_log_would_refuse_is_refused_before_it_is_begun(
    tmp_path: Path, spool_applier: str, config: dict[str, object], reason: str
) -> None:
    """Records out of the bounds of time, a batch that another codec makes too large: once it was begun, it could
    never be finished."""
    if spool_applier == "cluster":
        with pyreplog.Cluster(tmp_path, nodes=1) as cluster:
            cluster.admin.create_topic("t", config=config)
    else:
        pyreplog.open_log(tmp_path, topic="t", config=config).close()
    spool = Spool(SystemDisk(), str(tmp_path))
    batches = [("t", 0, [b"small"]), ("t", 0, [Random(1).randbytes(920)])]
    spool.publish(ID, [stage(spool, ID, *batches)])
    if spool_applier == "nobody":
        apply_offline(SystemDisk(), str(tmp_path), SystemClock())
    with contextlib.ExitStack() as stack:
        if spool_applier == "log":
            stack.enter_context(pyreplog.open_log(tmp_path, topic="t"))
        elif spool_applier == "cluster":
            stack.enter_context(pyreplog.Cluster(tmp_path))
        with pytest.raises(SpoolRefusedError, match=reason):
            until(lambda: spool.answered(ID) or any(waiting.begun for waiting in spool.waiting()))
    assert not spool.waiting()
    with pyreplog.open_log(tmp_path, "r", topic="t") as log:
        assert list(log) == []


def test_a_cluster_takes_it(tmp_path: Path) -> None:
    """Through its leaders, in order in each partition; a leader dies meanwhile."""
    with pyreplog.Cluster(tmp_path) as cluster:
        cluster.admin.create_topic("t", partitions=3)
        for number in range(3):
            batch_id = BatchId("query", number)
            spool = publish(tmp_path, "t", batch_id, partitions=3)
            if number == 1:
                leader = cluster.leader("t", 1)
                assert leader is not None
                leader.kill()
            until(lambda spool=spool, batch_id=batch_id: spool.answered(batch_id))  # type: ignore[misc]
        found = pa.table(cluster.scan("t", columns=["partition", "value"]))
        publish(tmp_path, "nope", BatchId("query", 3))
        with pytest.raises(SpoolRefusedError, match="'nope'"):
            until(lambda: spool.answered(BatchId("query", 3)))
    for partition in range(3):
        mine = found.filter(pa.compute.equal(found["partition"], partition))["value"].to_pylist()
        batches = [ROWS[number : number + 10] for number in range(0, len(ROWS), 10)]
        assert mine == [value for index, batch in enumerate(batches) if index % 3 == partition for value in batch] * 3


def test_who_has_a_folder_to_itself_shows_all_of_it(tmp_path: Path) -> None:
    """Power loss may leave a mark that says less than is there."""
    mark = tmp_path / "events-0" / MARK_NAME
    with pyreplog.open_log(tmp_path / "", topic="events") as log:
        log.append(b"a")
        before = mark.read_bytes()
        log.append(b"b")
    mark.write_bytes(before)
    (tmp_path / CLEAN_SHUTDOWN_NAME).unlink()
    apply_offline(SystemDisk(), str(tmp_path), SystemClock())
    assert values(tmp_path) == [b"a", b"b"]


class FakeRelay:
    """Takes everything, and never has it in the log."""

    def __init__(self) -> None:
        self.size = 0
        self.asked: list[int] = []

    def send(self, key: TopicPartition, data: bytes) -> None:
        """More on its way."""
        self.size += len(data)

    def below(self, size: int) -> Completion:
        """Settled at once where some may be on its way."""
        self.asked.append(size)
        pending = Completion()
        if size:
            pending.settle()
        return pending


def relaying(cluster_appender: FakeRelay, stopping: Callable[[], bool]) -> ClusterAppender:
    """To a cluster that has topics of two partitions."""
    looks: list[float] = []

    def settles(pending: Completion, timeout: float) -> bool:
        looks.append(timeout)
        assert len(looks) < 100, "it looks whether it is to end"
        return False

    admin: Any = SimpleNamespace(describe=lambda topic: SimpleNamespace(partitions=[0, 1], config={}))
    driver: Any = SimpleNamespace(mark_ready=lambda driven: None, wait=settles)
    driven: Any = SimpleNamespace(lock=threading.Lock())
    machine: Any = cluster_appender
    return ClusterAppender(admin, driver, lambda broken: (machine, driven), stopping, SystemClock())


def test_what_is_on_its_way_to_a_cluster_is_bounded() -> None:
    """Before the next batch is read there is room for it; and who closes the cluster waits for nobody who never
    answers."""
    cluster_appender = FakeRelay()
    appender = relaying(cluster_appender, lambda: True)
    appender.append(TopicPartition("t", 0), memoryview(bytes(WINDOW_SIZE)))
    assert cluster_appender.asked == []
    appender.append(TopicPartition("t", 0), memoryview(b"x"))
    assert cluster_appender.asked == [WINDOW_SIZE // 2]
    with pytest.raises(pyreplog.ClosedError, match="is being closed"):
        appender.finish()
    assert cluster_appender.asked == [WINDOW_SIZE // 2, 0]


def test_a_partition_that_a_cluster_does_not_have() -> None:
    """Is refused before anything is begun."""
    appender = relaying(FakeRelay(), lambda: False)
    appender.check_of(TopicPartition("t", 1))
    with pytest.raises(pyreplog.UnknownTopicError, match="partitions 0 to 1"):
        appender.check_of(TopicPartition("t", 2))


KILLED = """
import os, signal, sys
import pyreplog
from pyreplog.runtime import spool_applier, cluster_appender
kind, path, after = sys.argv[1], sys.argv[2], int(sys.argv[3])
count = 0
def counted(append):
    def inner(self, key, data):
        global count
        append(self, key, data)
        count += 1
        if count == after:
            os.kill(os.getpid(), signal.SIGKILL)
    return inner
spool_applier.WriterAppender.append = counted(spool_applier.WriterAppender.append)
cluster_appender.ClusterAppender.append = counted(cluster_appender.ClusterAppender.append)
log = pyreplog.Cluster(path) if kind == "cluster" else pyreplog.open_log(path)
signal.pause()
"""


@pytest.mark.parametrize("kind", ["log", "cluster"])
def test_killed_in_the_middle(tmp_path: Path, kind: str) -> None:
    """SIGKILL after some of the batches: whoever opens it next goes on, and every row is there once, in order."""
    folder = tmp_path / "t"
    if kind == "cluster":
        with pyreplog.Cluster(folder) as cluster:
            cluster.admin.create_topic("t")
    else:
        pyreplog.open_log(folder).close()
    spool = publish(folder, "t")
    for after in (3, 17):  # more than a log remembers of a producer
        done = subprocess.run([sys.executable, "-c", KILLED, kind, str(folder), str(after)], timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL
        assert [waiting.begun for waiting in spool.waiting()] == [True]
    if kind == "cluster":
        with pyreplog.Cluster(folder) as cluster:
            until(lambda: spool.answered(ID))
            assert pa.table(cluster.scan("t", columns=["value"]))["value"].to_pylist() == ROWS
    else:
        with pyreplog.open_log(folder):
            until(lambda: spool.answered(ID))
        assert values(folder) == ROWS
    assert not spool.waiting()


@pytest.mark.parametrize("machine", ["cluster_appender", "admin"])
def test_an_interrupted_machine_is_no_end(tmp_path: Path, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may strike whoever drives just then: the batch is taken in the next turn, and nobody waits for the
    dead one's answer."""
    interrupted: list[object] = []
    name = {"cluster_appender": "append", "admin": "check_of"}[machine]
    original = getattr(ClusterAppender, name)

    def struck(self: ClusterAppender, *arguments: object) -> object:
        if machine == "cluster_appender":
            found = original(self, *arguments)
        if not interrupted:
            interrupted.append(self)
            with still(self._driver):
                driven = self._driven if machine == "cluster_appender" else self._admin._current[1]
                self._driver._fail(driven, None)
        return found if machine == "cluster_appender" else original(self, *arguments)

    monkeypatch.setattr(ClusterAppender, name, struck)
    with pyreplog.Cluster(tmp_path, nodes=1) as cluster:
        cluster.admin.create_topic("t")
        spool = publish(tmp_path, "t")
        until(lambda: spool.answered(ID))
        assert interrupted
    assert values(tmp_path, "t") == ROWS
