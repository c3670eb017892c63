"""A backup holds what readers saw, and is a sound log to read and to append to; it is made beside the writer, and
again."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import pyreplog
from pyreplog import (
    BackupDivergedError,
    Cluster,
    ConfigError,
    CorruptError,
    CorruptLogError,
    LockedError,
    StorageError,
    UnfinishedBackupError,
    backup,
    open_log,
)
from pyreplog.cli.main import main
from pyreplog.log import LogRoot, open_readers
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, verify
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.interop.golden.units import copy_of
from tests.unit.log.support import batch, sync

SMALL = {"segment.bytes": 2000, "index.interval.bytes": 100}


def values(folder: Path, **options: object) -> list[bytes | None]:
    """What a reader of ``folder`` sees."""
    with open_log(folder, "r", **options) as log:  # type: ignore[arg-type]
        return [record.value for record in log]


def numbers(start: int, end: int) -> list[bytes]:
    """Values that say which record they are of."""
    return [b"%d" % number for number in range(start, end)]


def append(log: pyreplog.Log, start: int, end: int) -> None:
    """One batch for every few records."""
    for first in range(start, end, 7):
        log.append_many(numbers(first, min(first + 7, end)))


def segments(folder: Path) -> dict[str, int]:
    """The log files of the first partition, and which files they are."""
    return {path.name: path.stat().st_ino for path in sorted(folder.glob("*-0/*.log"))}


def sound(folder: Path) -> bool:
    """Whether `verify` has nothing to say against it."""
    book = verify(SystemDisk(), str(folder))
    assert book.worst is Level.NOTE, book.findings
    return True


def test_a_backup_beside_a_writer_is_a_whole_prefix_and_can_be_appended_to(tmp_path: Path) -> None:
    """Twice into one folder: the second run copies new segments and the last one only. Restored, the log goes on at
    its end."""
    source, target, restored = tmp_path / "events", tmp_path / "backup", tmp_path / "restored"
    with open_log(source, config=SMALL) as log:
        append(log, 0, 500)
        first = backup(source, target)
        assert values(target) == numbers(0, 500)
        assert first.record_count == 500
        assert first.partition_count == 1
        before = segments(target)
        append(log, 500, 1000)
        second = backup(source, target)
        after = segments(target)
        append(log, 1000, 1001)
    assert values(target) == numbers(0, 1000)
    assert len(before) == 5
    kept = [name for name in before if after[name] == before[name]]
    assert kept == list(before)[:-1]
    assert second.copied_size < second.total_size
    assert sound(target)
    assert backup(source, target).record_count == 1001
    backup(target, restored)
    with open_log(restored) as log:
        assert log.append(b"more") == 1001
    assert values(restored) == [*numbers(0, 1001), b"more"]
    assert sound(restored)


def test_a_copy_made_file_by_file_is_refused_and_the_error_names_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its mark is newer than its segment. Reading and writing say how to copy a log in use; `repair` says what the
    mark promised."""
    source, copied = tmp_path / "events", tmp_path / "copy"
    with open_log(source) as log:
        append(log, 0, 20)
        shutil.copytree(source, copied)
        append(log, 20, 30)
    shutil.copy2(source / "events-0" / "replog.mark", copied / "events-0" / "replog.mark")
    for mode in ("r", "a"):
        with (
            pytest.raises(CorruptLogError, match=r"replog backup SOURCE TARGET.*replog repair COPY --to NEW") as caught,
            open_log(copied, mode, topic="events") as log,
        ):
            list(log)
        assert (caught.value.start, caught.value.end) == (20, 30)
    assert main(["repair", str(copied)]) == 3
    assert "offsets up to 29; 10 offsets of these are lost" in capsys.readouterr().out


def test_the_command_says_what_was_copied_and_how_to_restore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text and as JSON; restoring by that command gives the records back."""
    source, target = tmp_path / "events", tmp_path / "backup"
    with open_log(source) as log:
        append(log, 0, 20)
    assert main(["backup", str(source), str(target)]) == 0
    said = capsys.readouterr().out
    assert "20 records" in said
    restore = said.strip().rpartition(": ")[2]
    assert restore == f"replog backup {target} {source}"
    assert main(["backup", str(source), str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["copied_size"] == 0
    shutil.rmtree(source)
    assert main(restore.split()[1:]) == 0
    assert values(source) == numbers(0, 20)


def test_a_coroutine_may_make_a_backup_and_be_cancelled(tmp_path: Path) -> None:
    """The loop goes on; after a cancellation the backup is unfinished, and the next call finishes it."""
    source, target = tmp_path / "events", tmp_path / "backup"
    with open_log(source, config=SMALL) as log:
        append(log, 0, 200)
    begun = threading.Event()
    go_on = threading.Event()

    def tell(news: pyreplog.BackupProgress) -> None:
        begun.set()
        go_on.wait(10)

    async def main() -> None:
        task = asyncio.ensure_future(pyreplog.aio.backup(source, target, progress=tell))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(main())
    wait_for_threads("pyreplog writing a backup")
    with pytest.raises(UnfinishedBackupError):
        open_log(target, "r")
    report = asyncio.run(pyreplog.aio.backup(source, target))
    assert report.record_count == 200


def wait_for_threads(name: str) -> None:
    """Until no thread of that name runs."""
    for thread in threading.enumerate():
        if thread.name.startswith(name):
            thread.join(10)


WRITER = """
import sys, pyreplog
with pyreplog.open_log(sys.argv[1], config={"segment.bytes": 20000, "retention.bytes": 60000}) as log:
    count = 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        log.append_many([b"%d" % number for number in range(count, count + 10)], wait=False)
        count += 10
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Path]:
    """The folder of a log to which another process appends until the test ends."""
    folder = tmp_path / "busy"
    code = "import select\n" + WRITER
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield folder
        process.communicate(b"end")
    assert process.returncode == 0


def test_another_process_may_append_all_the_time(writer: Path, tmp_path: Path) -> None:
    """Each backup is sound, begins with the one before it, and its values say that nothing is missing."""
    target = tmp_path / "copy"
    end = 0
    for _ in range(3):
        backup(writer, target)
        with open_log(target, "r", topic="busy") as log:
            found = [(record.offset, record.value) for record in log]
        assert [value for _, value in found] == [b"%d" % offset for offset, _ in found]
        now = found[-1][0] + 1 if found else 0
        assert now >= end
        end = now
        assert sound(target)


def test_a_backup_that_was_interrupted_is_opened_by_nothing_and_finished_by_the_next(tmp_path: Path) -> None:
    """Also where an earlier one was whole: readers, writers and `verify` say so, and the next run goes on."""
    source, target = tmp_path / "events", tmp_path / "backup"

    class Enough(Exception):
        pass

    def stop(news: pyreplog.BackupProgress) -> None:
        if news.stage == "verified" or news.done_size > 3000:
            raise Enough

    with open_log(source, config=SMALL) as log:
        append(log, 0, 500)
        for _ in range(2):
            with pytest.raises(Enough):
                backup(source, target, progress=stop)
            for mode in ("r", "a"):
                with pytest.raises(
                    UnfinishedBackupError, match=rf"`replog backup {source} {target}` .*`replog repair {target}"
                ):
                    open_log(target, mode, topic="events")
            assert verify(SystemDisk(), str(target)).worst is Level.DAMAGE
            backup(source, target)
            assert sound(target)
            append(log, log.end_offset, log.end_offset + 500)
    assert len(values(target)) == 1000


def interrupted(source: Path, target: Path, size: int) -> None:
    """A backup that ends when ``size`` bytes are copied."""

    class Enough(Exception):
        pass

    def stop(news: pyreplog.BackupProgress) -> None:
        if news.done_size >= size:
            raise Enough

    with pytest.raises(Enough):
        backup(source, target, progress=stop)


def test_repair_saves_the_whole_segments_of_an_interrupted_first_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of 1 MiB and more have their names as soon as they are copied; the topic's id and settings are saved
    too."""
    source, target, saved = tmp_path / "events", tmp_path / "backup", tmp_path / "saved"
    with open_log(source, config={"segment.bytes": 1300000, "retention.ms": 12345678901234}) as log:
        for number in range(8):
            log.append(b"%d" % number + bytes(600000))
    interrupted(source, target, 3000000)
    assert main(["repair", str(target), "--to", str(saved), "--yes"]) == 3
    assert f"{target} is an unfinished backup" in capsys.readouterr().err
    assert [(value or b"")[:1] for value in values(saved, topic="events")] == [b"0", b"1", b"2", b"3"]
    for name in ("partition.metadata", "replog.config"):
        assert (target / "events-0" / name).read_bytes() == (source / "events-0" / name).read_bytes()


@pytest.mark.parametrize("size", [0, 1])
def test_an_unfinished_backup_is_named_beside_other_logs(
    size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`topics` and `cat --all` read the others and fail; `verify` names the folder; `topics` of the backup itself
    fails."""
    parent = tmp_path / "all"
    target = parent / "backup"
    with open_log(tmp_path / "events") as log:
        log.append(b"x")
    with open_log(parent / "other") as log:
        log.append(b"y")
    interrupted(tmp_path / "events", target, size)
    assert main(["topics", str(target)]) == 1
    assert f"{target} is a backup" in capsys.readouterr().err
    assert main(["topics", str(parent)]) == 1
    said = capsys.readouterr()
    assert "other" in said.out
    assert f"unfinished backup, not read: {target} is a backup" in said.err
    assert main(["cat", "--all", "--values", str(parent)]) == 1
    said = capsys.readouterr()
    assert said.out == "y\n"
    assert f"left out, an unfinished backup: {target} is a backup" in said.err
    book = verify(SystemDisk(), str(parent))
    assert [finding.path for finding in book.findings if "is not finished" in finding.what] == [
        f"{target}/replog.backup"
    ]


def test_a_cluster_is_restored_with_all_replicas_and_its_controller(tmp_path: Path) -> None:
    """Three nodes, while a producer sends; the restored cluster leads, takes records and has the same topics."""
    source, target, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    with Cluster(source, nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=2, replication_factor=3, config={"min.insync.replicas": 2})
        with cluster.producer() as producer:
            for number in range(40):
                producer.send("orders", b"%d" % number, partition=number % 2).result()
            backup(source, target)
            cluster.admin.create_topic("later", partitions=1, replication_factor=3)
            for number in range(40, 80):
                producer.send("orders", b"%d" % number, partition=number % 2).result()
            producer.send("later", b"x").result()
            report = backup(source, target)
            producer.send("orders", b"not in it").result()
    assert report.partition_count == len([*source.glob("node-*/*-[0-9]")])
    assert sound(target)
    backup(target, restored)
    with Cluster(restored) as cluster:
        assert sorted(cluster.admin.topics()) == ["later", "orders"]
        with cluster.producer() as producer:
            ends = [producer.send("orders", b"new", partition=number).result().offset for number in (0, 1)]
        assert ends == [40, 40]
        described = cluster.admin.describe("orders")
        assert all(len(partition.isr) == 3 for partition in described.partitions)
    for number in (0, 1):
        with open_log(restored, "r", topic="orders", partition=number) as log:
            assert [record.value for record in log] == [*(b"%d" % one for one in range(number, 80, 2)), b"new"]
    assert sound(restored)


def test_nodes_on_several_disks_are_backed_up_into_one_folder(tmp_path: Path) -> None:
    """The backup is a cluster without a list. While a disk is away it has the records from the others, and says
    so."""
    source, target = tmp_path / "data", tmp_path / "backups" / "data"
    target.parent.mkdir()
    disks = [tmp_path / f"disk{number}" / "node" for number in (1, 2)]
    for disk in disks:
        disk.parent.mkdir()

    def send(cluster: Cluster, value: bytes) -> None:
        with cluster.producer() as producer:
            producer.send("orders", value).result()

    with Cluster(source, nodes=disks) as cluster:
        cluster.admin.create_topic("orders", partitions=1, replication_factor=2)
        send(cluster, b"first")
        assert backup(source, target).notes == ()
        assert sorted(path.name for path in target.iterdir() if path.is_dir()) == ["node-1", "node-2"]
        send(cluster, b"second")
    disks[1].rename(tmp_path / "away")
    (note,) = backup(source, target).notes
    assert "node 2 has no folder" in note
    backup(target, tmp_path / "restored")
    with Cluster(tmp_path / "restored") as cluster:
        send(cluster, b"third")
    assert values(tmp_path / "restored", topic="orders") == [b"first", b"second", b"third"]
    disks[0].rename(tmp_path / "away too")
    with pytest.raises(StorageError):
        backup(source, target)


def test_a_cluster_without_its_controller_makes_no_backup(tmp_path: Path) -> None:
    """Of version 0.1. The error names the file in the source and says how to mend it; nothing is copied."""
    source, target = tmp_path / "data", tmp_path / "backup"
    with Cluster(source, nodes=1) as cluster:
        cluster.admin.create_topic("orders", replication_factor=1)
    as_version_0_1(source).unlink()
    with pytest.raises(
        CorruptError, match=rf"^{source}/replog\.controller: .* is missing .*restore the file[^/]*$"
    ) as caught:
        backup(source, target)
    assert caught.value.file == str(source / "replog.controller")
    assert not target.exists()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_folder_that_holds_clusters_is_refused_with_their_names(elsewhere: bool, tmp_path: Path) -> None:
    """A backup of it would drop each cluster's controller, and a cluster whose nodes are on other disks as a
    whole."""
    parent, disk = tmp_path / "all", tmp_path / "disk" / "node"
    (parent / "deep").mkdir(parents=True)
    disk.parent.mkdir()
    with open_log(parent / "events") as log:
        log.append(b"x")
    with Cluster(parent / "deep" / "one", nodes=[disk] if elsewhere else 1) as cluster:
        cluster.admin.create_topic("orders", replication_factor=1)
    for folder in (parent, disk.parent) if elsewhere else (parent,):
        with pytest.raises(ConfigError, match=f"Back up each cluster by itself: {parent}/deep/one"):
            backup(folder, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    backup(parent / "deep" / "one", tmp_path / "backup")
    assert sound(tmp_path / "backup")


def test_a_folder_of_several_logs_is_backed_up_with_each_of_them(tmp_path: Path) -> None:
    """Each can be read and written in the backup."""
    for name in ("worker-0", "worker-1"):
        with open_log(tmp_path / "all" / name) as log:
            log.append(name.encode())
    assert backup(tmp_path / "all", tmp_path / "backup").record_count == 2
    for name in ("worker-0", "worker-1"):
        assert values(tmp_path / "backup" / name) == [name.encode()]
        with open_log(tmp_path / "backup" / name) as log:
            assert log.append(b"more") == 1


def test_other_folders_are_refused_and_nothing_in_them_changes(tmp_path: Path) -> None:
    """A folder with something in it, a backup of another log, one in use, one within the other, a partition's
    folder."""
    source, other, target = tmp_path / "events", tmp_path / "other", tmp_path / "backup"
    for folder in (source, other):
        with open_log(folder) as log:
            log.append(b"x")
    backup(source, target)
    for refused in (other, tmp_path / "events" / "in", tmp_path):
        with pytest.raises(ConfigError):
            backup(source, refused)
    with pytest.raises(ConfigError, match=f"{target}.*{other}"):
        backup(other, target)
    with pytest.raises(ConfigError, match="partition's folder"):
        backup(source / "events-0", tmp_path / "new")
    with open_log(target, topic="events") as log:
        with pytest.raises(
            LockedError, match=r"already open.*; back up into another folder, run the backup again later, or close"
        ):
            backup(source, target)
        log.append(b"written to the backup")
    with pytest.raises(BackupDivergedError, match="Keep this backup"):
        backup(source, target)


def test_a_backup_right_beside_its_source_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader of all logs in the parent folder refuses both. A backup in a folder of its own says nothing."""
    source, beside, apart = tmp_path / "all" / "worker-0", tmp_path / "all" / "worker-0bk", tmp_path / "worker-0"
    with open_log(source) as log:
        log.append(b"x")
    assert backup(source, apart).notes == ()
    assert main(["backup", str(source), str(beside)]) == 0
    assert f"{beside} lies beside its source" in capsys.readouterr().err
    assert main(["cat", "--all", str(tmp_path / "all")]) == 1


def test_a_log_too_deep_in_the_source_is_named(tmp_path: Path) -> None:
    """Readers of the folder do not see it either; the report says that the backup lacks it."""
    deep = tmp_path / "all" / "a" / "b" / "c" / "deep"
    deep.parent.mkdir(parents=True)
    for folder in (tmp_path / "all" / "events", deep):
        with open_log(folder) as log:
            log.append(b"x")
    (tmp_path / "kept").mkdir()
    (note,) = backup(tmp_path / "all", tmp_path / "kept" / "all").notes
    assert f"{deep} is not in this backup" in note


def test_a_source_that_was_put_back_from_an_older_copy_is_refused(tmp_path: Path) -> None:
    """Also when it has as many records by now: the backup may be the only copy of what was lost."""
    source, old, target = tmp_path / "events", tmp_path / "old", tmp_path / "backup"
    with open_log(source) as log:
        append(log, 0, 50)
    shutil.copytree(source, old)
    with open_log(source) as log:
        append(log, 50, 100)
    backup(source, target)
    shutil.rmtree(source)
    shutil.copytree(old, source)
    for end in (60, 100, 150):
        with open_log(source) as log:
            append(log, log.end_offset, end)
        with pytest.raises(BackupDivergedError, match=f"{target}/events-0.*{source}/events-0"):
            backup(source, target)


def contents(folder: Path) -> dict[str, bytes]:
    """All files below ``folder`` but locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


@pytest.mark.parametrize("appended", ["backup", "neither"])
def test_a_refused_run_changes_nothing_in_the_backup(appended: str, tmp_path: Path) -> None:
    """One topic diverged and another grew: no file of the backup changes, and it can be read, written and restored
    as before."""
    source, old, target = tmp_path / "data", tmp_path / "old", tmp_path / "backup"
    with open_log(source, topic="a") as log:
        append(log, 0, 10)
    with open_log(source, topic="b") as log:
        append(log, 0, 10)
    shutil.copytree(source, old)
    with open_log(source, topic="b") as log:
        log.append(b"10")
    backup(source, target)
    with open_log(source, topic="a") as log:
        append(log, 10, 20)
    if appended == "backup":
        with open_log(target, topic="b") as log:
            log.append(b"11")
    else:
        shutil.rmtree(source / "b-0")
        shutil.copytree(old / "b-0", source / "b-0")
    before = contents(target)
    last, theirs = (11, 10) if appended == "backup" else (10, 9)
    with pytest.raises(
        BackupDivergedError, match=f"the backup's last offset is {last}, and the source's last offset is {theirs}"
    ):
        backup(source, target)
    assert contents(target) == before
    assert values(target, topic="a") == numbers(0, 10)
    assert sound(target)
    backup(target, tmp_path / "restored")
    with open_log(target, topic="b") as log:
        assert log.append(b"more") == last + 1


def test_a_damaged_source_makes_no_backup(tmp_path: Path) -> None:
    """Rot is named, and the backup stays unfinished."""
    source, target = tmp_path / "events", tmp_path / "backup"
    with open_log(source) as log:
        append(log, 0, 50)
    path = source / "events-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="checksum"):
        backup(source, target)
    with pytest.raises(UnfinishedBackupError):
        open_log(target, "r")


def batches(folder: Path) -> dict[TopicPartition, list[tuple[int, int]]]:
    """The batches that a reader gets of every partition under ``folder``."""
    found = {}
    disk = SystemDisk()
    for key, reader in open_readers(disk, str(folder)).items():
        held = reader.batches(reader.start_offset, reader.end_offset)
        found[key] = [(batch.base_offset, batch.crc) for batch in held]
        reader.close()
    return found


@pytest.mark.parametrize(
    "name", ["clean-3.9.1", "cluster-4.1.0/n1-diverged", "crash-4.1.0/torn", "crash-4.1.0/recovered"]
)
def test_a_brokers_folder_is_read_the_same_from_its_backup(name: str, tmp_path: Path) -> None:
    """Every partition up to its high watermark, also by the next run; and a writer takes the backup over as the
    folder itself."""
    source, target = copy_of(name, tmp_path / "source"), tmp_path / "backup"
    before = batches(source)
    assert before
    for _ in range(2):
        backup(source, target)
        assert batches(target) == before
    backup(target, tmp_path / "restored")
    disk = SystemDisk()
    root = LogRoot.open(disk, str(tmp_path / "restored"), clock=SystemClock(), random=Random(1))
    assert not root.damaged
    assert {key for key in before if key.topic != "__cluster_metadata"} == set(root.logs)
    for key in root.logs:
        log = root.logs[key]
        end = log.end_offset
        assert end >= before[key][-1][0] if before[key] else end >= 0
        log.become_leader(log.epochs.latest + 1)
        assert log.append_as_leader(batch(2), log.epochs.latest).base_offset == end
        sync(disk, log)
    root.close()


def test_a_brokers_nodes_are_copied_side_by_side(tmp_path: Path) -> None:
    """A folder with the `log.dirs` of three brokers: each keeps its name, and all hold the same records as
    before."""
    source, target = tmp_path / "source", tmp_path / "backup"
    for number in (1, 2, 3):
        copy_of(f"cluster-4.1.0/n{number}", source / f"n{number}")
    before = batches(source)
    backup(source, target)
    assert batches(target) == before
    assert sorted(path.name for path in target.iterdir() if path.is_dir()) == ["n1", "n2", "n3"]
