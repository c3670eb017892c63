"""Options and columns of a write, and what it finds at its path; the driver's commit with owners that come late, or
not. No Spark."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import (
    ConfigError,
    OutcomeUnknownError,
    SpoolDamagedError,
    SpoolRefusedError,
    StorageError,
    UnknownTopicError,
)
from pyreplog.log import LogRoot
from pyreplog.runtime.spool_applier import RootAppender, apply_waiting
from pyreplog.spark.schema import Field
from pyreplog.spark.sink_commit import commit_batch, commit_nothing
from pyreplog.spark.sink_options import WRITE_OPTIONS, WriteOptions, check_columns, parse_write_options
from pyreplog.spark.sink_target import find_target
from pyreplog.spool import BatchId, Spool, StagedFile
from pyreplog.system import SystemDisk
from pyreplog.testing import SimClock, SimDisk
from tests.house.sources import ROOT
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.unit.spool.support import stage

ID = BatchId("query", 0)


def test_every_option() -> None:
    """Names in any case; defaults; what Spark hands on of its own is let pass."""
    assert parse_write_options({"path": "/a"}) == WriteOptions("/a")
    given = {
        "PATH": "/a",
        "topic": "t",
        "OWNER": "Running",
        "committimeout": "5s",
        "batchbytes": "64k",
        "checkpointLocation": "/c",
    }
    assert parse_write_options(given) == WriteOptions("/a", "t", "running", 5000, 65536)
    assert parse_write_options({"path": "/a", "txnappid": "job", "txnVersion": "3"}).batch_id == BatchId("job", 3)
    assert parse_write_options({"path": "/a", "permissions": "Group"}).permissions == "group"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "option 'path' is missing"),
        ({"path": "s3://x/y"}, "not a folder of this machine"),
        ({"paths": "[]"}, "one folder at a time"),
        ({"path": "/a/worker-*"}, "a pattern, which only reads take"),
        ({"path": "/a", "topik": "t"}, "unknown option 'topik'; did you mean 'topic'"),
        ({"path": "/a", "batchByte": "1m"}, "did you mean 'batchBytes'"),
        ({"path": "/a", "permissions": "all"}, "permissions is 'all'; it must be owner, group or any"),
        ({"path": "/a", "xyz": "1"}, "known are path, topic, owner"),
        ({"path": "/a", "kafka.bootstrap.servers": "h:1"}, "name the folder by 'path'"),
        ({"path": "/a", "kafka.linger.ms": "5"}, "for a Kafka client"),
        ({"path": "/a", "topic": "a/b"}, "option topic: invalid topic name"),
        ({"path": "/a", "owner": "me"}, "owner is 'me'; it must be any or running"),
        ({"path": "/a", "commitTimeout": "soon"}, "commitTimeout is 'soon'"),
        ({"path": "/a", "batchBytes": "2m"}, "batchBytes is 2097152; it must be from 1024 to 1048588"),
        ({"path": "/a", "txnAppId": "job"}, "come together"),
        ({"path": "/a", "txnAppId": "job", "txnVersion": "-1"}, "whole number from 0"),
        ({"path": "/a", "txnAppId": "job", "txnVersion": "9" * 5000}, "whole number from 0"),
        (
            {"path": "/a", "txnAppId": "a job", "txnVersion": "1"},
            "options txnAppId and txnVersion: query 'a job' is no name for a query",
        ),
    ],
)
def test_refused_options(given: dict[str, str], text: str) -> None:
    """Each with what to do instead."""
    with pytest.raises(ConfigError) as caught:
        parse_write_options(given)
    assert text in str(caught.value)


def test_the_guide_has_every_option() -> None:
    """In its table."""
    page = (ROOT / "docs" / "guide" / "spark-write.md").read_text()
    assert all(f"`{name}`" in page for name in WRITE_OPTIONS)


def test_columns() -> None:
    """Those of Kafka's sink by name and type; those of the source are left out; the option topic comes before the
    column."""
    value = Field("value", "binary", True)
    read = [Field("key", "string", True), value, Field("topic", "string", True), Field("offset", "bigint", True)]
    assert check_columns(read, None) == ("key", "value", "topic")
    assert check_columns(read, "t") == ("key", "value")
    for fields, text in (
        ([], "there is none among no columns at all"),
        ([Field("key", "binary", True)], "a column 'value' is needed"),
        ([Field("value", "int", True)], "column value is int; it must be string or binary"),
        ([value, Field("headers", "map<string,binary>", True)], "column headers is map"),
        (
            [value, Field("timestamp", "timestamp_ntz", True)],
            "column timestamp is timestamp_ntz; it must be timestamp_ltz: cast it",
        ),
        ([value, Field("partition", "bigint", True)], "column partition is bigint; it must be int"),
        ([value, Field("tpoic", "string", True)], "did you mean 'topic'"),
    ):
        with pytest.raises(ConfigError) as caught:
            check_columns(fields, None)
        assert text in str(caught.value)


def test_what_is_at_the_path(tmp_path: Path) -> None:
    """A log's folder, a cluster's, nothing yet; and what cannot be written to."""
    disk = SystemDisk()
    new = find_target(disk, str(tmp_path / "new"), None)
    assert (new.topic, new.count("new"), new.is_cluster) == ("new", 1, False)
    with pytest.raises(
        UnknownTopicError, match="it holds none; make it by open_log, or write to it alone by option 'topic'"
    ):
        new.count("other")
    for number in range(3):
        pyreplog.open_log(tmp_path / "log", topic="t", partition=number).close()
    found = find_target(disk, str(tmp_path / "log"), None)
    assert (found.topic, found.counts) == ("t", {"t": 3})
    pyreplog.open_log(tmp_path / "log", topic="__consumer_offsets").close()
    assert find_target(disk, str(tmp_path / "log"), None).topic == "t"  # as where one reads
    pyreplog.open_log(tmp_path / "log", topic="u").close()
    with pytest.raises(ConfigError, match=r"holds several topics \(t, u\): name one"):
        find_target(disk, str(tmp_path / "log"), None)
    assert find_target(disk, str(tmp_path / "log"), None, by_column=True).count("u") == 1
    assert find_target(disk, str(tmp_path / "log"), "made").count("made") == 1
    with pytest.raises(ConfigError, match="is the folder of one partition"):
        find_target(disk, str(tmp_path / "log" / "t-0"), None)
    with pyreplog.Cluster(tmp_path / "cluster", nodes=1) as cluster:
        cluster.admin.create_topic("t", partitions=2)
        assert find_target(disk, str(tmp_path / "cluster"), None).is_cluster
        with pytest.raises(
            UnknownTopicError, match=r"did you mean 't'.*create_topic|it holds|known are t.*create_topic"
        ):
            find_target(disk, str(tmp_path / "cluster"), "tt")
        with pytest.raises(ConfigError, match="is one node of a cluster"):
            find_target(disk, str(tmp_path / "cluster" / "node-1"), None)
    as_version_0_1(tmp_path / "cluster").unlink()
    with pytest.raises(ConfigError, match=r"holds the folders of other logs, or of nodes \(node-1\)"):
        find_target(disk, str(tmp_path / "cluster"), None)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        find_target(disk, str(tmp_path / "file"), None)


@pytest.mark.parametrize("times", [1, None])
def test_a_write_that_was_not_published_does_not_get_in_later(times: int | None) -> None:
    """The manifest may be there although its sync failed. It is taken back; where the disk does not even take that,
    nobody knows."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "log", clock=SimClock(), random=Random(1))
    root.create_log("events", 0, root.new_topic_id(), LogConfig())
    spool = Spool(disk, "log")
    files = [stage(spool, ID, ("events", 0, [b"row"]))]
    disk.fail("sync_directory", "log", times=times, error=errno.EIO)
    with pytest.raises(StorageError if times else OutcomeUnknownError):
        commit_batch(disk, "log", ID, files, once=True, timeout_s=1, own=False)
    disk.clear_faults()
    if times:
        assert not spool.stands(ID)
        assert apply_waiting(spool, lambda: RootAppender(root)) == 0


def commit(
    path: Path,
    files: list[StagedFile],
    timeout_s: float,
    *,
    own: bool = True,
    once: bool = True,
    batch_id: BatchId = ID,
) -> None:
    """A driver's commit."""
    commit_batch(SystemDisk(), str(path), batch_id, files, once=once, timeout_s=timeout_s, own=own)


def commit_empty(path: Path, batch: int, *, keep: bool = False, timeout_s: float = 30.0) -> None:
    """A driver's commit of a batch without a row."""
    named = BatchId("query", batch)
    commit_nothing(SystemDisk(), str(path), named, keep=keep, topic=None, once=False, timeout_s=timeout_s, own=True)


def test_a_batch_without_rows_is_noted(tmp_path: Path) -> None:
    """Its number counts as that of any other batch: a lower one is refused, and the same one with rows."""
    pyreplog.open_log(tmp_path / "log").close()
    commit_empty(tmp_path / "log", 5)
    commit_empty(tmp_path / "log", 5)
    spool = Spool(SystemDisk(), str(tmp_path / "log"))
    assert spool.applied("query") == 5
    with pytest.raises(SpoolRefusedError, match="lower number than batch 5, which was written before"):
        commit_empty(tmp_path / "log", 4)
    files = [stage(spool, BatchId("query", 5), ("log", 0, [b"a"]))._replace(row_sum=1)]
    with pytest.raises(SpoolRefusedError, match="1 rows, and it had 0"):
        commit(tmp_path / "log", files, 30.0, once=False, batch_id=BatchId("query", 5))


def test_a_batch_without_rows_waits_for_what_was_published(tmp_path: Path) -> None:
    """With keep as without, a published batch of the query gets into the log first; until it can, no number is
    noted."""
    path = tmp_path / "log"
    pyreplog.open_log(path).close()
    spool = Spool(SystemDisk(), str(path))
    for batch, again in ((0, 0), (1, 2)):  # the same number by appliedBatch=keep, and the next one
        batch_id = BatchId("query", batch)
        spool.publish(batch_id, [stage(spool, batch_id, ("log", 0, [b"a"]))._replace(row_sum=1)])
        if not batch:
            with pytest.raises(
                SpoolRefusedError, match="was published before and waits to be appended.*open_log, Cluster"
            ):
                commit_empty(path, again)
        with pyreplog.open_log(path, disk=SystemDisk()):  # with a disk of its own it takes no spool
            if batch:
                with pytest.raises(SpoolRefusedError, match="while batch 1 of the query waits to be appended"):
                    commit_empty(path, again, timeout_s=0)
        commit_empty(path, again, keep=True)
        assert spool.applied("query") == again
        with pyreplog.open_log(path, "r") as log:
            assert log.end_offset == batch + 1


def test_the_owner_comes_late_or_goes(tmp_path: Path) -> None:
    """The commit waits for whoever opens the log; where the one who has it open takes nothing and then leaves, it
    does it itself."""
    path = tmp_path / "log"
    for own in (False, True):
        spool = Spool(SystemDisk(), str(path))
        if own:
            holder = pyreplog.open_log(path, disk=SystemDisk())  # with a disk of its own it takes no spool
        else:
            pyreplog.open_log(path).close()
        files = [stage(spool, ID, ("log", 0, [b"a", b"b"]))]
        waiting = threading.Thread(target=commit, args=(path, files, 30.0), kwargs={"own": own})
        waiting.start()
        while not spool.waiting():
            time.sleep(0.001)
        if own:
            holder.close()
            waiting.join(30)
        else:
            with pyreplog.open_log(path):
                waiting.join(30)
        assert not waiting.is_alive()
        assert not [name for name in os.listdir(path) if name.startswith("replog.spool.")]
    with pyreplog.open_log(path, "r") as log:
        # The same batch twice: of a query that was forgotten in between, but the log itself knows
        # its producer.
        assert [record.value for record in log] == [b"a", b"b"]


def test_nobody_comes(tmp_path: Path) -> None:
    """Taken back, with nothing left; where an owner began and was stopped, nobody can say."""
    path = tmp_path / "log"
    pyreplog.open_log(path).close()
    spool = Spool(SystemDisk(), str(path))
    with pytest.raises(SpoolRefusedError, match=r"no process took batch 0 of query query within 0.05 s"):
        commit(path, [stage(spool, ID, ("log", 0, [b"a"]))], 0.05, own=False)
    assert [name for name in os.listdir(path) if name.startswith("replog.spool.")] == ["replog.spool.query.lock"]
    with (
        pyreplog.open_log(path, disk=SystemDisk()),
        pytest.raises(SpoolRefusedError, match="pid .* open, and did not take it"),
    ):
        commit(path, [stage(spool, ID, ("log", 0, [b"a"]))], 0.05)
    files = [stage(spool, ID, ("log", 0, [b"a"]))]
    spool.publish(ID, files)
    assert spool.take(ID) is not None
    spool.begin(ID)
    with pytest.raises(OutcomeUnknownError, match="began to append it"):
        commit(path, files, 0.05, own=False)
    staged = path / files[0].name
    whole = staged.read_bytes()
    staged.write_bytes(whole[:70] + b"?" + whole[71:])
    for own in (False, True):
        with pytest.raises(SpoolDamagedError, match="Put the file back"):
            commit(path, files, 0.0 if own else 0.05, own=own)  # who may open the folder tries it once
    staged.write_bytes(whole)
    with pyreplog.open_log(path):
        commit(path, files, 30.0, own=False)
    with pyreplog.open_log(path, "r") as log:
        assert [record.value for record in log] == [b"a"]


def test_what_waits_of_another_query_fails_no_commit(tmp_path: Path) -> None:
    """A batch that cannot be finished is its own query's: who commits beside it hears that its rows are in, and
    writes them once."""
    path = tmp_path / "log"
    pyreplog.open_log(path).close()
    spool, other = Spool(SystemDisk(), str(path)), BatchId("other", 0)
    damaged = stage(spool, other, ("log", 0, [b"x"]))
    spool.publish(other, [damaged])
    assert spool.take(other) is not None
    spool.begin(other)
    staged = path / damaged.name
    staged.write_bytes(staged.read_bytes()[:70] + b"?" + staged.read_bytes()[71:])
    commit(path, [stage(spool, ID, ("log", 0, [b"a"]))], 30.0)
    assert [waiting.batch_id for waiting in spool.waiting()] == [other]
    with pyreplog.open_log(path, "r") as log:
        assert [record.value for record in log] == [b"a"]


def test_whoever_opens_the_folder_makes_a_topic(tmp_path: Path) -> None:
    """Two drivers at once, one of whose topics is not there yet: the batch is not refused because the other one had
    the folder first."""
    path = tmp_path / "log"
    pyreplog.open_log(path).close()
    spool, other = Spool(SystemDisk(), str(path)), BatchId("other", 0)
    spool.publish(other, [stage(spool, other, ("new", 0, [b"x"]))])
    commit(path, [stage(spool, ID, ("log", 0, [b"a"]))], 30.0)
    assert spool.answered(other)
    for topic, value in (("log", b"a"), ("new", b"x")):
        with pyreplog.open_log(path, "r", topic=topic) as log:
            assert [record.value for record in log] == [value]
    lacking = BatchId("lacking", 0)
    spool.publish(lacking, [stage(spool, lacking, ("log", 7, [b"x"]))])
    commit(path, [stage(spool, BatchId("query", 1), ("log", 0, [b"b"]))], 30.0, batch_id=BatchId("query", 1))
    with pytest.raises(SpoolRefusedError, match="log-7 is not in"):
        spool.answered(lacking)


def test_a_refusal_that_was_cut_short_is_no_refusal_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver was killed while it refused its batch as the owner: told once more, the attempt behind that one
    begins anew."""
    path = tmp_path / "log"
    pyreplog.open_log(path, config={"max.message.bytes": 100}).close()
    spool = Spool(SystemDisk(), str(path))
    large = ("log", 0, [bytes(200)])

    def killed(self: Spool, names: Iterable[str]) -> None:
        if any(name.endswith("taken") for name in names):
            raise KeyboardInterrupt
        return remove(self, names)

    remove = Spool._remove
    monkeypatch.setattr(Spool, "_remove", killed)
    with pytest.raises(KeyboardInterrupt):
        commit(path, [stage(spool, ID, large)], 30.0)
    monkeypatch.setattr(Spool, "_remove", remove)
    assert spool.stands(ID)
    pyreplog.open_log(
        path, config={"max.message.bytes": 1000}, disk=SystemDisk()
    ).close()  # with a disk of its own it takes no spool
    with pytest.raises(SpoolRefusedError, match="max.message.bytes"):
        commit(path, [stage(spool, ID, large)], 30.0)
    commit(path, [stage(spool, ID, large)], 30.0)
    with pyreplog.open_log(path, "r") as log:
        assert [record.value for record in log] == [bytes(200)]


def test_a_write_that_failed_wrote_nothing(tmp_path: Path) -> None:
    """A partition that its driver cannot append to: the batch is taken back, and nobody appends it beside what is
    written anew."""
    path = tmp_path / "log"
    pyreplog.open_log(path).close()
    spool = Spool(SystemDisk(), str(path))
    (path / "log-0").chmod(0o777)
    with pytest.raises(StorageError, match="writable by"):
        commit(path, [stage(spool, ID, ("log", 0, [b"a"]))], 30.0)
    assert not spool.waiting()
    (path / "log-0").chmod(0o700)
    commit(path, [stage(spool, ID, ("log", 0, [b"b"]))], 30.0)
    with pyreplog.open_log(path, "r") as log:
        assert [record.value for record in log] == [b"b"]


def test_a_write_that_failed_when_it_was_begun_is_of_unknown_outcome(tmp_path: Path) -> None:
    """A part of it may be in the log, and the rest will be: who is told that it failed would write it twice."""
    path = tmp_path / "log"
    pyreplog.open_log(path).close()
    spool = Spool(SystemDisk(), str(path))
    files = [stage(spool, ID, ("log", 0, [b"a"]))]
    spool.publish(ID, files)
    assert spool.take(ID) is not None
    spool.begin(ID)
    (path / "log-0").chmod(0o777)
    with pytest.raises(OutcomeUnknownError, match="writable by"):
        commit(path, files, 30.0)
    (path / "log-0").chmod(0o700)
    with pyreplog.open_log(path):
        commit(path, files, 30.0, own=False)
    with pyreplog.open_log(path, "r") as log:
        assert [record.value for record in log] == [b"a"]


def test_staged_files_are_the_groups(tmp_path: Path) -> None:
    """With permissions "group" an owner of another user can read, apply and remove each file that a task and the
    driver leave."""
    tmp_path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        disk = SystemDisk(permissions="group")
        disk.make_directory(f"{tmp_path}/log")
        spool = Spool(disk, f"{tmp_path}/log")
        spool.publish(ID, [stage(spool, ID, ("log", 0, [b"x"]))])
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "log").iterdir()}
    assert len(modes) >= 2
    assert set(modes.values()) == {0o660}
    with pyreplog.open_log(tmp_path / "log", permissions="group") as log:
        log.append(b"y")
    assert {path.stat().st_mode & 0o7777 for path in tmp_path.rglob("*")} == {0o2770, 0o660}
