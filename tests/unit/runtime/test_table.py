"""Tables: the latest value of each key of a log and of a topic."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyreplog
from pyreplog import aio
from pyreplog.readers import TableState
from pyreplog.values import TopicPartition
from tests.interop.golden import units


def fill(log: pyreplog.Log, count: int, start: int = 0) -> dict[bytes, bytes]:
    """Append records with keys, and return the table that they make."""
    numbers = range(start, start + count)
    log.append_many(
        [b"value-%d" % number for number in numbers], keys=[b"key-%d" % (number % 50) for number in numbers]
    )
    return {b"key-%d" % (number % 50): b"value-%d" % number for number in numbers}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[pyreplog.Log]:
    """An open log in the page cache."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        yield log


KEYS = st.sampled_from([b"", b"a", b"b", b"\0", b"x" * 500, b"x" * 501, b"x" * 501 + b"y", b"z" * 2000])
STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=20))), min_size=1, max_size=6),
        st.sampled_from(["look", "reopen", "nowait"]),
    ),
    max_size=20,
)


@settings(max_examples=12, deadline=None)
@given(steps=STEPS)
def test_it_is_the_dict_of_the_records(steps: list[object]) -> None:
    """Whatever is appended and deleted, and whenever it is opened and looked at, by the writer and by a reader."""
    folder = Path(tempfile.mkdtemp())
    expected: dict[bytes, bytes] = {}
    try:
        log = pyreplog.open_log(folder / "log", durability="os")
        reader = pyreplog.open_log(folder / "log", "r")
        tables = [log.table(), reader.table()]
        for step in [*steps, "look"]:
            if isinstance(step, list):
                log.append_many([value for _, value in step], keys=[key for key, _ in step])
                for key, value in step:
                    expected.pop(key, None)
                    if value is not None:
                        expected[key] = value
            elif step == "nowait":
                log.append_nowait(b"soon", key=b"a")
                expected[b"a"] = b"soon"
                assert tables[0][b"a"] == b"soon"
            elif step == "look":
                for table in tables:
                    assert dict(table.items()) == expected
                    assert (len(table), set(table), table == expected) == (len(expected), set(expected), True)
                    assert table.offset == log.end_offset
                    for key in (b"", b"a", b"x" * 501):
                        assert (table.get(key), key in table) == (expected.get(key), key in expected)
            else:
                reader.close()
                log.close()
                log = pyreplog.open_log(folder / "log")
                reader = pyreplog.open_log(folder / "log", "r")
                tables = [log.table(), reader.table()]
        reader.close()
        log.close()
    finally:
        shutil.rmtree(folder)


def test_it_is_a_mapping(log: pyreplog.Log) -> None:
    """Its methods are those of a read-only dict; keys are bytes; it is no set of copies."""
    expected = fill(log, 120)
    with log.table() as table:
        assert sorted(table) == sorted(expected)
        assert sorted(table.values()) == sorted(expected.values())
        assert sorted(table.keys()) == sorted(expected)
        assert list(zip(table, table.values(), strict=True)) == list(table.items())
        assert table[memoryview(b"key-1")] == expected[b"key-1"]
        assert (table.get(b"none"), table.get(b"none", 7)) == (None, 7)
        with pytest.raises(KeyError):
            table[b"none"]
        for wrong in ("key-1", 1, None):
            with pytest.raises(TypeError, match="a key is bytes"):
                table[wrong]  # type: ignore[index]
            with pytest.raises(TypeError):
                table.__contains__(wrong)
        with pytest.raises(TypeError, match="copied"):
            __import__("copy").copy(table)
        assert "offset 120" in repr(table)
    assert table.closed
    assert "closed" in repr(table)


def test_a_look_up_shows_what_was_committed_when_it_began(log: pyreplog.Log, tmp_path: Path) -> None:
    """In the writing process and in another opening, after every kind of append; a deletion deletes."""
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        mine, theirs = log.table(), reader.table()
        for number in range(30):
            value = b"%d" % number
            if number % 3 == 0:
                log.append(value, key=b"k")
            elif number % 3 == 1:
                log.append_nowait(value, key=b"k").result(10)
            else:
                log.append_many([b"old", value], keys=[b"k", b"k"])
            assert (mine[b"k"], theirs[b"k"]) == (value, value)
        log.append(None, key=b"k")
        assert b"k" not in mine
        assert b"k" not in theirs
        assert len(theirs) == 0


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """The second opening reads only new records; a store elsewhere is a store of its own."""
    seen: list[tuple[int, int]] = []
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        expected = fill(log, 100)
        log.table(progress=lambda *at: seen.append(at)).close()
        assert seen[-1] == (100, 100)
    assert {"replog.table-log-0", "replog.table-log-0.db"} <= {path.name for path in (tmp_path / "log").iterdir()}
    with pyreplog.open_log(tmp_path / "log") as log:
        seen.clear()
        table = log.table(progress=lambda *at: seen.append(at))
        assert (dict(table), seen) == (expected, [])
        assert dict(log.table(tmp_path / "store")) == expected
        assert len(list((tmp_path / "store").iterdir())) == 2


def test_a_record_without_a_key_is_named_at_every_look_up(log: pyreplog.Log) -> None:
    """The records before it are applied, and no later one; retention past it lets the table go on."""
    fill(log, 10)
    table = log.table()
    log.append(b"x", key=b"before")
    log.append(b"no key")
    log.append(b"y", key=b"behind")
    for _ in range(2):
        with pytest.raises(pyreplog.UnkeyedRecordError, match="offset 11 of log-0 has no key") as raised:
            table[b"before"]
        assert raised.value.offset == 11
    with pytest.raises(pyreplog.UnkeyedRecordError):
        log.table()
    assert table.offset == 11
    log.delete_records(12)
    assert dict(table) == {b"behind": b"y"}


def test_stuck_recovery_2_below_the_start_of_the_log(log: pyreplog.Log) -> None:
    """A committed offset below the log start: the records that the table had not read are gone. It is made again, and
    begins with the first that is there."""
    fill(log, 50)
    table = log.table()
    table.close()
    expected = fill(log, 60, 50)
    log.delete_records(60)
    table = log.table()
    assert dict(table) == {key: value for key, value in expected.items() if int(value[6:]) >= 60}
    assert table.offset == 110


def test_stuck_recovery_4_an_unknown_offset(log: pyreplog.Log) -> None:
    """It is made again: a table beyond the end of the log, or of another epoch, is no table of this log."""
    expected = fill(log, 50)
    for state in (TableState(1000, 0), TableState(50, 9)):
        table = log.table()
        part = table._all[0]
        with part._store.change():
            part._store.apply({b"wrong": b"entry"}, state)
        table.close()
        table = log.table()
        assert dict(table) == expected
        assert table.offset == 50
        table.close()


def test_stuck_recovery_1_the_end_has_no_record(tmp_path: Path) -> None:
    """A control record that was compacted away: behind the last record come offsets without one, and the table reaches
    the end all the same."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        expected = fill(log, 20)
        # A reader of committed records does not get the batches of control records at the end.
        view = log._view
        table = log.table()
        part = table._all[0]

        class Longer:
            """The view of a log that ends with two offsets that have no record."""

            end_offset = property(lambda self: view.end_offset + 2)

            def __getattr__(self, name: str) -> object:
                return getattr(view, name)

        part._view = Longer()  # type: ignore[assignment]
        assert dict(table) == expected
        assert table.offset == 22
        log.append_many([b"a", b"b"], keys=[b"x", b"y"])
        part._view = view
        assert table.offset == 22


@pytest.mark.parametrize(
    "topic", ["compact-basic", "compact-idempotent", "compact-nothing-left", "compact-txn", "compact-txn-gone"]
)
def test_stuck_recovery_1_on_a_broker_s_control_records(tmp_path: Path, topic: str) -> None:
    """Topics that end with markers of transactions, or that a broker compacted: the table reaches the end."""
    folder = units.unit("clean-4.1.0") / "data"
    with pyreplog.open_log(folder, "r", topic=topic, partition=0, isolation="read_committed") as log:
        expected: dict[bytes, bytes] = {}
        for record in log:
            assert record.key is not None
            expected.pop(record.key, None)
            if record.value is not None:
                expected[record.key] = record.value
        table = log.table(tmp_path / "store")
        assert dict(table) == expected
        assert table.offset == log.high_watermark > 0
        assert dict(log.table(tmp_path / "store")) == expected


def test_a_look_up_beside_compaction_is_right(tmp_path: Path) -> None:
    """In the process that compacts and in a reader: each look-up shows what was committed when it began, while
    passes rewrite the segments below it and drop tombstones."""
    config = {
        "cleanup.policy": "compact", "delete.retention.ms": 0, "min.cleanable.dirty.ratio": 0.01, "segment.bytes": 4000,
    }  # fmt: skip
    random = Random(5)
    expected: dict[bytes, bytes] = {}
    with (
        pyreplog.open_log(tmp_path / "log", durability="os", config=config) as log,
        pyreplog.open_log(tmp_path / "log", "r") as reader,
    ):
        tables = [log.table(), reader.table(), reader.table(tmp_path / "late")]
        cleaned = 0
        for step in range(60):
            key = b"key-%d" % random.randrange(12)
            if random.random() < 0.3:
                log.append(None, key=key)
                expected.pop(key, None)
            else:
                log.append(b"%d" % step * 60, key=key)
                expected[key] = b"%d" % step * 60
            if step % 7 == 6:
                cleaned += log.compact().segments_written > 0
            for table in tables[: 2 if step % 10 else 3]:  # the last one is behind most of the time
                assert (table.get(key), len(table)) == (expected.get(key), len(expected))
                assert table.offset == log.end_offset
        assert cleaned > 3
        for table in tables:
            assert dict(table) == expected


def test_dropped_tombstones(tmp_path: Path) -> None:
    """A table that has not seen a tombstone which compaction dropped is made again: its key would stay for ever. One
    that saw it goes on, and so does one that was made afterwards."""
    config = {"cleanup.policy": "compact", "delete.retention.ms": 0, "min.cleanable.dirty.ratio": 1}
    with pyreplog.open_log(tmp_path / "log", durability="os", config=config) as log:
        fill(log, 60)
        late, knowing = log.table(tmp_path / "late"), log.table(tmp_path / "knowing")
        late.close()
        log.append(None, key=b"key-7")
        fill(log, 5, 100)
        assert b"key-7" not in knowing
        for _ in range(2):
            log.compact()
            fill(log, 5, 200)
        assert log._view.dropped_tombstone == 60
        expected = dict(log.table())
        assert b"key-7" not in expected
        seen: list[int] = []
        assert dict(log.table(tmp_path / "late", progress=lambda offset, end: seen.append(offset))) == expected
        assert dict(knowing) == expected
        with pyreplog.open_log(tmp_path / "log", "r") as reader:
            assert reader._view.dropped_tombstone == 60
            assert dict(reader.table(tmp_path / "new")) == expected
        fill(log, 5, 300)
        assert dict(log.table()) == dict(knowing)


def test_a_new_topic_of_the_same_name_begins_a_new_table(tmp_path: Path) -> None:
    """Another topic id: the files are those of another log."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        fill(log, 50)
        log.table()
    shutil.rmtree(tmp_path / "log" / "log-0")
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        expected = fill(log, 50)
        assert dict(log.table()) == expected
        assert b"key-49" in expected


@pytest.mark.parametrize(
    "damage", ["header", "copy", "mode", "link", "garbage", "removed", "both removed", "hard link"]
)
def test_files_that_this_user_did_not_leave_so_are_made_again(tmp_path: Path, damage: str) -> None:
    """No store is opened that could have been exchanged or changed by others."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        expected = fill(log, 50)
        log.table()
    header, store = tmp_path / "log" / "replog.table-log-0", tmp_path / "log" / "replog.table-log-0.db"
    if damage == "header":
        header.write_bytes(b"x" * 84)
    elif damage == "copy":
        store.rename(tmp_path / "old")
        shutil.copy(tmp_path / "old", store)
    elif damage == "mode":
        store.chmod(0o666)
    elif damage == "link":
        store.rename(tmp_path / "old")
        store.symlink_to(tmp_path / "old")
    elif damage == "garbage":
        store.write_bytes(b"garbage" * 1000)
    elif damage == "hard link":
        os.link(store, tmp_path / "other")
    else:
        store.unlink()
        if damage == "both removed":
            header.unlink()
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        table = reader.table()
        assert dict(table) == expected
        assert (store.stat().st_mode & 0o777, store.is_symlink()) == (0o600, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_store_of_another_user_is_made_again(tmp_path: Path) -> None:
    """In store= too: LMDB would believe its bytes."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        expected = fill(log, 50)
        log.table(tmp_path / "store")
    (store,) = (tmp_path / "store").glob("*.db")
    os.chown(store, 12345, -1)
    before = store.stat().st_ino
    with store.open("rb"), pyreplog.open_log(tmp_path / "log", "r") as reader:  # open: its inode is not used again
        assert dict(reader.table(tmp_path / "store")) == expected
        assert store.stat().st_ino != before
        assert store.stat().st_uid == 0


def test_files_that_go_while_they_are_open(log: pyreplog.Log, tmp_path: Path) -> None:
    """A look-up goes on with the open store; the next that has new records makes the files again."""
    expected = fill(log, 50)
    table = log.table()
    for path in (tmp_path / "log").glob("replog.table*"):
        path.unlink()
    assert dict(table) == expected
    log.append(b"new", key=b"n")
    assert table[b"n"] == b"new"
    assert len(table) == 51
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        assert len(reader.table()) == 51


def test_closing_the_log_closes_its_tables(tmp_path: Path) -> None:
    """Look-ups then raise ClosedError; so do those of a closed table of an open log."""
    log = pyreplog.open_log(tmp_path / "log", durability="os")
    fill(log, 5)
    table, other = log.table(), log.table(tmp_path / "store")
    other.close()
    other.close()
    assert (table.closed, other.closed) == (False, True)
    with pytest.raises(pyreplog.ClosedError):
        other[b"key-1"]
    log.close()
    assert table.closed
    for look in (lambda: table[b"key-1"], lambda: len(table), lambda: list(table), lambda: log.table()):
        with pytest.raises(pyreplog.ClosedError):
            look()


def test_a_folder_of_a_broker_needs_a_store(tmp_path: Path) -> None:
    """Beside files without our mark nothing is written; store= takes it."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        expected = fill(log, 50)
    for name in ("replog.mark", "replog.config"):
        (tmp_path / "log" / "log-0" / name).unlink(missing_ok=True)
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        with pytest.raises(pyreplog.ConfigError, match="store=FOLDER"):
            reader.table()
        assert dict(reader.table(tmp_path / "store")) == expected
    shutil.copytree(tmp_path / "log" / "log-0", tmp_path / "bare" / "log-0")
    with pyreplog.open_log(tmp_path / "bare" / "log-0", "r") as reader:
        with pytest.raises(pyreplog.ConfigError, match="store=FOLDER"):
            reader.table()
        assert dict(reader.table(tmp_path / "store")) == expected


def test_a_broker_s_compaction_makes_the_table_again(tmp_path: Path) -> None:
    """A broker keeps no offset of dropped tombstones, so a table below its cleaner's checkpoint cannot go on; one that
    was made afterwards does."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        expected = fill(log, 50)
    for name in ("replog.mark", "replog.config"):
        (tmp_path / "log" / "log-0" / name).unlink(missing_ok=True)
    checkpoint = tmp_path / "log" / "cleaner-offset-checkpoint"
    seen: list[int] = []
    for cleaned, is_made in ((None, True), (None, False), (40, False), (51, True), (51, False)):
        if cleaned is not None:
            checkpoint.write_text(f"0\n1\nlog 0 {cleaned}\n")
        with pyreplog.open_log(tmp_path / "log", "r") as reader:
            seen.clear()
            assert dict(reader.table(tmp_path / "store", progress=lambda *at: seen.append(at[0]))) == expected
            assert bool(seen) == is_made


def test_other_programs_know_the_files(tmp_path: Path) -> None:
    """verify notes damage of the small file, dump shows both, backup leaves them out."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        fill(log, 50)
        log.table()
    small = tmp_path / "log" / "replog.table-log-0"

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "pyreplog", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    assert "sound" in run("verify", str(tmp_path / "log"))
    assert "synced" in run("dump", str(small))
    assert "the store of a table" in run("dump", f"{small}.db")
    pyreplog.backup(tmp_path / "log", tmp_path / "kept" / "log")
    assert not list((tmp_path / "kept" / "log").glob("replog.table*"))
    small.write_bytes(small.read_bytes()[:-1] + b"x")
    assert "made again" in run("verify", str(tmp_path / "log"))
    with pyreplog.open_log(tmp_path / "kept" / "log", "r") as restored:
        assert len(restored.table()) == 50


def test_a_forked_child_is_refused_and_the_parent_goes_on(log: pyreplog.Log) -> None:
    """LMDB allows no environment across a fork."""
    expected = fill(log, 50)
    table = log.table()
    pid = os.fork()
    if not pid:
        try:
            table[b"key-1"]
        except pyreplog.ForkedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    log.append(b"new", key=b"n")
    assert dict(table) == {**expected, b"n": b"new"}


KILLED = """
import os, signal, sys
from pyreplog.runtime import table
import pyreplog
table.CHUNK_COUNT = 100
def progress(offset, end):
    if offset >= int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
pyreplog.open_log(sys.argv[1], "r").table(progress=progress)
"""


def test_stuck_recovery_3_the_owner_changes_amid_it(log: pyreplog.Log, tmp_path: Path) -> None:
    """Another process goes on where one was killed. What the killed process applied is kept."""
    expected: dict[bytes, bytes] = {}
    for start in range(0, 1000, 50):
        expected |= fill(log, 50, start)
    for offset in (100, 500):
        ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "log"), str(offset)], check=False)
        assert ended.returncode == -signal.SIGKILL
    seen: list[int] = []
    table = log.table(progress=lambda offset, end: seen.append(offset))
    assert dict(table) == expected
    assert seen == [1000], "it began behind the records of the killed process"


READS = """
import sys
import pyreplog
with pyreplog.open_log(sys.argv[1], "r") as log:
    table = log.table()
    print("ready", flush=True)
    last = -1
    while last < int(sys.argv[2]):
        value = int(table.get(b"k", b"-1"))
        pair = dict(table.items())
        assert int(pair.get(b"k", b"-1")) >= value >= last
        last = value
print("done", last)
"""


def test_two_processes_share_the_files(log: pyreplog.Log, tmp_path: Path) -> None:
    """A reader sees no value twice or backwards, while the writer appends and catches up too."""
    table = log.table()
    with subprocess.Popen(
        [sys.executable, "-c", READS, str(tmp_path / "log"), "299"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        for number in range(300):
            log.append(b"%d" % number, key=b"k")
            assert table[b"k"] == b"%d" % number
        assert other.stdout.read() == "done 299\n"


FULL = """
import resource, sys
import pyreplog
log = pyreplog.open_log(sys.argv[1], "r")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    log.table()
except pyreplog.StorageError as error:
    print(type(error).__name__, "replog.table-log-0.db" in str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(log.table()))
"""


def test_a_full_disk_is_a_storage_error(log: pyreplog.Log, tmp_path: Path) -> None:
    """The error names the file; with room again the table is whole."""
    log.append_many([bytes(1000)] * 1000, keys=[b"%d" % number for number in range(1000)])
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "log")], check=True, stdout=subprocess.PIPE)
    assert done.stdout == b"StorageError True\n1000\n"


def test_a_topic(tmp_path: Path) -> None:
    """Keys of all partitions, for the process that runs the cluster and for readers; closed with the cluster."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("t", partitions=3, replication_factor=3, config={"durability": "os"})
        table = cluster.table("t")
        expected = {b"key-%d" % number: b"value-%d" % number for number in range(100)}
        with cluster.producer() as producer:
            producer.send_many("t", list(expected.values()), keys=list(expected)).wait(20)
            assert dict(table) == expected
            for number in range(20):
                producer.send("t", b"%d" % number, key=b"key-1").result(20)
                assert table[b"key-1"] == b"%d" % number
            producer.send("t", None, key=b"key-1").result(20)
        del expected[b"key-1"]
        assert (len(table), b"key-1" in table) == (99, False)
        assert sum(table.offset.values()) == 121
        assert table.offset.keys() == {TopicPartition("t", number) for number in range(3)}
        with pyreplog.ClusterReader(tmp_path / "data") as reader:
            seen: list[object] = []
            other = reader.table("t", progress=lambda *at: seen.append(at))
            assert dict(other.items()) == expected
            assert not seen, "the files are shared"
            assert reader.table("t", tmp_path / "store") == expected
            with pytest.raises(pyreplog.UnknownTopicError):
                reader.table("no-such")
            with pytest.raises(pyreplog.ConfigError):
                reader.table("t", partitioner=1)  # type: ignore[arg-type]
        assert other.closed
        with cluster.producer(partitioner=lambda key, partitions: 0) as producer:
            producer.send("t", b"placed", key=b"key-2").result(20)
        assert cluster.table("t", partitioner=lambda key, partitions: 0)[b"key-2"] == b"placed"
        cluster.leader("t", 0).kill()  # type: ignore[union-attr]
        with cluster.producer() as producer:
            producer.send_many("t", [b"after"] * 20, keys=[b"new-%d" % number for number in range(20)]).wait(30)
        assert all(table[b"new-%d" % number] == b"after" for number in range(20))
    assert table.closed
    with pytest.raises(pyreplog.ClosedError):
        len(table)


def test_the_same_for_coroutines(tmp_path: Path) -> None:
    """Look-ups are awaited, of a log and of a cluster."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "log", durability="os") as log:
            await log.append_many([b"1", b"2", b"3"], keys=[b"a", b"b", b"a"])
            async with log.table() as table:
                assert (await table[b"a"], await table.get(b"c"), await table.get(b"c", 5)) == (b"3", None, 5)
                assert (await table.contains(b"b"), await table.count(), table.offset) == (True, 2, 3)
                assert {key: value async for key, value in table.items()} == {b"a": b"3", b"b": b"2"}
                assert sorted([key async for key in table]) == [b"a", b"b"]
                keys = table.keys()
                assert sorted([key async for key in keys]) == [b"a", b"b"]
                assert [value async for value in table.values()] == [value async for _, value in table.items()]
                with pytest.raises(KeyError):
                    await table[b"c"]
                await log.append(None, key=b"a")
                await table.refresh()
                assert table.offset == 4
                assert "pyreplog.aio.Table" in repr(table)
            assert table.closed
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("t", partitions=2, replication_factor=1)
            async with cluster.producer() as producer:
                await (await producer.send("t", b"v", key=b"k"))
            one = await cluster.table("t")
            assert await one[b"k"] == b"v"
            async with aio.ClusterReader(tmp_path / "data") as reader, reader.table("t") as other:
                assert await other.count() == 1
            assert sum(one.offset.values()) == 1
        assert one.closed

    asyncio.run(main())
