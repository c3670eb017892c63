"""`verify` on folders that are sound, on folders with one thing wrong, and beside a live writer."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptLogError, StorageError
from pyreplog.log import LogRoot
from pyreplog.log.mark import MarkFile, MarkState
from pyreplog.ports import File
from pyreplog.record import BatchBuilder
from pyreplog.repair import plan_repair
from pyreplog.system import SystemDisk
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, Report, records_of, verify
from pyreplog.verify.records import Malformed
from pyreplog.verify.states import MARK, Slot, mark_slots
from tests.faults.flips.golden import ROOT, TOPIC_ID, files, golden, served
from tests.interop.golden.units import UNITS, copy_of, unit
from tests.unit.log.racing import ALONE, RacingDisk, Turn, Writers
from tests.unit.log.support import CLOCK, batch, sync
from tests.unit.verify.support import flip

SOUND_UNITS = [
    name for name in (*UNITS, "old-format-2.8.2") if name not in {"crash-4.1.0/torn", "cluster-4.1.0/n1-diverged"}
]


def found(book: Report, level: Level) -> list[str]:
    """What a book holds of one level, as ``file: text``."""
    return [f"{finding.path.rpartition('/')[2]}: {finding.what}" for finding in book.findings if finding.level is level]


@pytest.mark.parametrize("name", SOUND_UNITS)
def test_what_kafka_wrote_is_sound(name: str) -> None:
    """Folders of real brokers of five versions, closed in order or killed: not one finding above a note."""
    disk = SystemDisk()
    book = verify(disk, str(unit(name) / "data"))
    disk.close()
    assert [one for one in book.findings if one.level > Level.NOTE] == []
    assert book.partition_count > 0
    assert book.record_count > 0


def test_what_was_torn_by_hand_is_found() -> None:
    """The damaged unit: each damaged partition is named, and no other one."""
    disk = SystemDisk()
    book = verify(disk, str(unit("crash-4.1.0/torn") / "data"))
    disk.close()
    named = {finding.path.split("/")[-2] for finding in book.findings}
    assert named == {"idem-0", "lz4-0", "one-0", "plain-0", "start-0", "txn-0"}
    assert {finding.path.split("/")[-2] for finding in book.findings if finding.level is Level.DAMAGE} == {
        "idem-0",
        "txn-0",
    }


def test_a_stale_index_entry_is_a_warning() -> None:
    """An entry left behind the logical end of a time index, in the folder of a broker that was killed."""
    disk = SystemDisk()
    book = verify(disk, str(unit("cluster-4.1.0/n1-diverged") / "data"))
    disk.close()
    assert [text.partition(":")[0] for text in found(book, Level.WARNING)] == ["00000000000000000000.timeindex"]
    assert not found(book, Level.DAMAGE)


def test_names_in_another_spelling_are_nobodys(tmp_path: Path) -> None:
    """A folder that somebody called ``t-00``, and files whose offset has not its 20 digits, are not the partition
    or its segments: the log goes on, they stay as they are, and are named."""
    with pyreplog.open_log(tmp_path, topic="t") as log:
        log.append_many([b"x"] * 10)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    shutil.copytree(tmp_path / "t-0", tmp_path / "t-00")
    strangers = ("5.log", "0.index", "7.timeindex", "3.snapshot", "005.txnindex")
    for name in strangers:
        (tmp_path / "t-0" / name).write_bytes(b"mine")
    with pyreplog.open_log(tmp_path, topic="t") as log:
        assert log.append(b"y") == 10
        assert log.end_offset == 11
    with pyreplog.open_log(tmp_path, "r", topic="t") as log:
        assert [record.offset for record in log.read(start=0)] == list(range(11))
    assert {name: (tmp_path / "t-0" / name).read_bytes() for name in strangers} == dict.fromkeys(strangers, b"mine")
    assert (tmp_path / "t-00" / "00000000000000000000.log").exists()
    disk = SystemDisk()
    book = verify(disk, str(tmp_path))
    disk.close()
    assert book.record_count == 11
    assert not found(book, Level.DAMAGE)
    text = "this file is never read: the offset in its name should have 20 digits"
    folder = (
        "t-00: a Kafka broker would not start with two folders of t-0, and it takes this folder for one; pyreplog does"
        " not read it"
    )
    assert sorted(found(book, Level.WARNING)) == sorted([folder, *(f"{name}: {text}" for name in strangers)])


def test_a_batch_that_names_no_epoch_is_damage_where_the_log_has_one(tmp_path: Path) -> None:
    """The first batch, too, behind which no epoch falls: who opens or reads the log refuses it."""
    with pyreplog.open_log(tmp_path, topic="t") as log:
        log.append(b"x")
    _write_int(tmp_path / "t-0" / f"{0:020}.log", 12, -1, ">i")
    with (
        pyreplog.open_log(tmp_path, "r", topic="t") as log,
        pytest.raises(pyreplog.CorruptLogError, match="leader epoch -1"),
    ):
        list(log)
    disk = SystemDisk()
    book = verify(disk, str(tmp_path))
    disk.close()
    assert [text for text in found(book, Level.DAMAGE) if "leader epoch -1" in text]


def _write_int(file: Path, position: int, value: int, form: str) -> None:
    data = bytearray(file.read_bytes())
    struct.pack_into(form, data, position, value)
    file.write_bytes(data)


def _reseal_snapshot(file: Path, position: int) -> None:
    """Change a producer's field, and make the checksum right again."""
    from crc32c import crc32c  # noqa: PLC0415  (only here)

    data = bytearray(file.read_bytes())
    data[position] ^= 1
    struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    file.write_bytes(data)


PLANTED: list[tuple[str, str, Callable[[Path], object], Level, str]] = [
    ("rot in a record", "plain-0", lambda path: flip(path / f"{0:020}.log", 200), Level.DAMAGE, "checksum mismatch"),
    (
        "a segment of another topic",
        "plain-0",
        lambda path: shutil.copy(path.parent / "txn-0" / f"{0:020}.log", path),
        Level.WARNING,
        "producer",
    ),
    (
        "the log cut short",
        "txn-0",
        lambda path: (path / f"{0:020}.log").write_bytes((path / f"{0:020}.log").read_bytes()[:-30]),
        Level.DAMAGE,
        "are left",
    ),
    (
        "an index that lies",
        "many-batches-4096-0",
        lambda path: flip(path / f"{0:020}.index", 3),
        Level.WARNING,
        "ends with offset",
    ),
    (
        "a time index that lies",
        "many-batches-4096-0",
        lambda path: flip(path / f"{0:020}.timeindex", 7),
        Level.WARNING,
        "greatest timestamp",
    ),
    ("a snapshot's bit", "txn-0", lambda path: flip(max(path.glob("*.snapshot")), 20), Level.WARNING, "checksum"),
    (
        "a snapshot that lies",
        "txn-0",
        lambda path: _reseal_snapshot(max(path.glob("*.snapshot")), 10 + 13),
        Level.WARNING,
        "by the batches",
    ),
    (
        "an aborted transaction forgotten",
        "txn-0",
        lambda path: _drop_last(min(path.glob("*.txnindex")), 34),
        Level.WARNING,
        "aborted transactions",
    ),
    (
        "an aborted transaction that lies",
        "txn-0",
        lambda path: flip(min(path.glob("*.txnindex")), 17),
        Level.WARNING,
        "aborted transactions",
    ),
    (
        "the epochs of another",
        "plain-0",
        lambda path: (path / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n"),
        Level.WARNING,
        "belong to epoch",
    ),
    (
        "epochs that fall",
        "plain-0",
        lambda path: (path / "leader-epoch-checkpoint").write_text("0\n2\n7 0\n3 5\n"),
        Level.WARNING,
        "does not follow",
    ),
    ("no topic id", "plain-0", lambda path: (path / "partition.metadata").unlink(), Level.WARNING, "topic's id"),
    (
        "a log start behind the end",
        "plain-0",
        lambda path: (path.parent / "log-start-offset-checkpoint").write_text("0\n1\nplain 0 99999\n"),
        Level.DAMAGE,
        "starts at",
    ),
    (
        "a watermark behind the end",
        "plain-0",
        lambda path: (path.parent / "replication-offset-checkpoint").write_text("0\n1\nplain 0 99999\n"),
        Level.DAMAGE,
        "ends at offset",
    ),
    (
        "a checkpoint of garbage",
        "plain-0",
        lambda path: (path.parent / "recovery-point-offset-checkpoint").write_text("0\nx\n"),
        Level.WARNING,
        "not a number",
    ),
    (
        "a file whose name begins with digits of no number",
        "plain-0",
        lambda path: (path / ("\u00b2" * 20 + ".index")).touch(),
        Level.WARNING,
        "should begin with an offset",
    ),
    (
        "a segment whose name is above every offset",
        "plain-0",
        lambda path: (path / ("9" * 20 + ".log")).touch(),
        Level.WARNING,
        "should begin with an offset",
    ),
    (
        "a segment that is a link to nothing",
        "plain-0",
        lambda path: _link_nowhere(sorted(path.glob("*.log"))[1]),
        Level.DAMAGE,
        "it cannot be read",
    ),
    (
        "a folder that Kafka refuses",
        "plain-0",
        lambda path: shutil.copytree(path, path.parent / "plain-copy"),
        Level.WARNING,
        "has not the name of one",
    ),
    (
        "meta.properties without a cluster",
        "plain-0",
        lambda path: (path.parent / "meta.properties").write_text("version=1\nnode.id=1\n"),
        Level.WARNING,
        "cluster.id",
    ),
]


def _link_nowhere(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def _drop_last(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:-size])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's folder with a few partitions."""
    whole = copy_of("clean-4.1.0", tmp_path_factory.mktemp("broker") / "data")
    kept = {"plain-0", "txn-0", "many-batches-4096-0"}
    for path in whole.iterdir():
        if path.is_dir() and path.name not in kept:
            shutil.rmtree(path)
    for name in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ):
        lines = [line for line in (whole / name).read_text().splitlines()[2:] if "-".join(line.split()[:2]) in kept]
        (whole / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return whole


@pytest.mark.parametrize(
    ("partition", "plant", "level", "text"), [row[1:] for row in PLANTED], ids=[row[0] for row in PLANTED]
)
def test_one_thing_wrong_is_one_thing_found(
    broker: Path, tmp_path: Path, partition: str, plant: Callable[[Path], object], level: Level, text: str
) -> None:
    """What is planted in a broker's folder is found, at its level, in its words; the sound folder has no
    finding."""
    folder = tmp_path / "data"
    shutil.copytree(broker, folder)
    disk = SystemDisk()
    assert verify(disk, str(folder)).worst is Level.NOTE
    plant(folder / partition)
    book = verify(disk, str(folder))
    disk.close()
    assert book.worst is level, book.findings
    assert any(text in one for one in found(book, level)), book.findings


def test_replicas_are_compared(tmp_path: Path) -> None:
    """Of two replicas, both with right checksums, one holds another record below the high watermark of both."""
    path = tmp_path / "cluster"
    with pyreplog.Cluster(path, nodes=3) as cluster:
        cluster.admin.create_topic("t", partitions=1, replication_factor=3, config={"min.insync.replicas": 2})
        with cluster.producer() as producer:
            producer.send("t", b"one")
            producer.flush()
            producer.send("t", b"two")
            producer.flush()
    disk = SystemDisk()
    assert verify(disk, str(path)).worst is Level.NOTE
    log = path / "node-2" / "t-0" / f"{0:020}.log"
    data = log.read_bytes()
    from crc32c import crc32c  # noqa: PLC0415  (only here)

    changed = bytearray(data.replace(b"one", b"eno"))
    size = struct.unpack_from(">i", changed, 8)[0] + 12
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:size])))
    log.write_bytes(changed)
    book = verify(disk, str(path))
    disk.close()
    assert len(found(book, Level.DAMAGE)) == 1
    assert "does not hold what" in found(book, Level.DAMAGE)[0]


def test_beside_a_live_writer_nothing_is_wrong(tmp_path: Path) -> None:
    """While a log is open, with records above its mark and index entries only in memory, verify finds nothing
    wrong."""
    disk = SystemDisk()
    with pyreplog.open_log(tmp_path / "log", durability="os", config={"segment.bytes": 20_000}) as log:
        for number in range(300):
            log.append_many([b"%d" % number * 20] * 5)
            if number % 25 == 0:
                book = verify(disk, str(tmp_path / "log"))
                assert book.worst is Level.NOTE, book.findings
        log.flush()
    book = verify(disk, str(tmp_path / "log"))
    disk.close()
    assert book.worst is Level.NOTE
    assert book.record_count == 1500
    assert not book.findings


@pytest.mark.parametrize("turn", ALONE)
def test_whatever_a_writer_does_meanwhile_nothing_is_wrong(turn: Turn) -> None:
    """It appends, rolls, deletes, or is cut as a follower, again and again, however many calls of verify's lie
    between."""
    for pause in range(9, 80):
        disk = SimDisk(Random(1))
        writers = Writers(disk, 1)
        racing: Any = RacingDisk(disk)
        racing.plan = {moment: [partial(turn, writers)] for moment in range(pause, 4000, pause)}
        book = verify(racing, "root")
        assert book.worst is Level.NOTE, (pause, book.findings)
        writers.close()


@pytest.mark.parametrize("turn", [Writers.append, Writers.roll])
def test_rot_is_found_whatever_a_writer_does_meanwhile(turn: Turn) -> None:
    """Also in the last batch, behind which there is more at the next look."""
    for pause in range(9, 80, 10):
        for back in (1, 3):
            disk = SimDisk(Random(1))
            writers = Writers(disk, 1)
            path = writers.logs[0]._active.path
            disk.flip(path, int(writers.logs[0]._active.size) - back * 100)
            racing: Any = RacingDisk(disk)
            racing.plan = {moment: [partial(turn, writers)] for moment in range(pause, 4000, pause)}
            book = verify(racing, "root")
            assert book.worst is Level.DAMAGE, (pause, back)
            writers.close()


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_writer_between_history_and_mark(monkeypatch: pytest.MonkeyPatch, goes_on: bool) -> None:
    """Whenever verify looks, it has written the leader epoch history, and not yet the mark that vouches for it. But
    a history that nothing vouches for in the end is told of."""
    disk = SimDisk(Random(1))
    writers = Writers(disk, 1)
    log = writers.logs[0]
    late: list[MarkState] = []
    opened = disk.open

    def begin() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(MarkFile, "write_state", lambda _, state: late.append(state))
            log.become_leader(log.epochs.latest + 1)
        assert late

    def look(path: str, *, write: bool = False) -> File:
        if goes_on and late and path.endswith(".log"):
            log._mark.write_state(late.pop())
        elif goes_on and not late and path.endswith("partition.metadata"):
            begin()
        return opened(path, write=write)

    begin()
    monkeypatch.setattr(disk, "open", look)
    book = verify(disk, "root")
    monkeypatch.undo()
    told = [text for text in found(book, Level.WARNING) if "the mark vouches for" in text]
    assert (book.worst, len(told)) == ((Level.NOTE, 0) if goes_on else (Level.WARNING, 1)), book.findings
    assert bool(late) != goes_on
    writers.close()


def test_a_topic_may_be_deleted_meanwhile() -> None:
    """Before any one of the calls that verify makes: the rest is looked at all the same."""
    moment, calls = 0, 1
    while moment < calls:
        disk = SimDisk(Random(1))
        writers = Writers(disk, 1)
        (root,) = writers.roots
        root.create_log("rest", 0, TOPIC_ID, LogConfig(segment_bytes=1200))
        racing: Any = RacingDisk(disk)
        racing.plan[moment] = [partial(root.remove_log, TopicPartition("events", 0))]
        book = verify(racing, "root")
        assert book.worst is Level.NOTE, (moment, book.findings)
        assert book.partition_count >= 1
        root.close()
        moment, calls = moment + 1, racing.calls


def test_what_an_os_log_lost_with_the_power_is_no_rot() -> None:
    """Records that were acknowledged in memory and shown are gone after power loss, and no damage: a warning says
    from where on. While the memory lasts the same is damage."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "data", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, TOPIC_ID, LogConfig(durability="os", segment_bytes=1200))
    log.become_leader(0)
    log.append_as_leader(batch(2, size=300), 0)
    sync(disk, log)
    for _ in range(6):
        log.append_as_leader(batch(2, size=300), 0)
    log.advance_high_watermark(log.end_offset)
    log.sync_mark()
    torn = 0
    for seed in range(40):
        left = disk.crash(Random(seed))
        book = verify(left, "data")
        assert not found(book, Level.DAMAGE), seed
        after = LogRoot.open(left, "data", clock=CLOCK, random=Random(1)).logs[TopicPartition("t", 0)]
        said = [finding for finding in book.findings if "were shown to readers" in finding.what]
        assert [(one.level, one.start, one.end) for one in said] == [(Level.WARNING, after.end_offset, 14)] * (
            after.end_offset < 14
        ), seed
        torn += len(said)
    assert torn > 10
    last = max(name for name in disk.list("data/t-0") if name.endswith(".log"))
    kept = disk.snapshot()
    kept.open(f"data/t-0/{last}", write=True).truncate(10)
    assert found(verify(kept, "data"), Level.DAMAGE)


def test_nothing_to_look_at_is_an_error(tmp_path: Path) -> None:
    """A folder without any log, and a missing one."""
    disk = SystemDisk()
    with pytest.raises(StorageError, match="no log here"):
        verify(disk, str(tmp_path))
    with pytest.raises(StorageError):
        verify(disk, str(tmp_path / "missing"))
    disk.close()


def _not_covered(path: str, position: int) -> bool:
    """Bytes in which a flip is not noticed, because nothing vouches for them and nothing that is served depends on
    them.

    ``meta.properties``: Kafka's comment and date, and ids that stay well-formed. The clean shutdown marker: Kafka's
    own fields in it, and which name our field has. Above the mark of a log that was not closed: what no writer ever
    vouched for.
    """
    if path.endswith(("/meta.properties", "/.kafka_cleanshutdown")):
        return True
    return path.endswith((f"{10:020}.log", f"{14:020}.log")) and (position >= 352 or path.endswith(f"{14:020}.log"))


@pytest.mark.parametrize("name", ["own", "open", "packed"])
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_every_flip_is_noticed(name: str, part: int) -> None:
    """Each bit of each file (a share of them, but for the soak): noticed, or in the few bytes that nothing covers;
    and then what is served is what was served before."""
    sound = golden(name)
    disk = sound.disk.snapshot()
    chance = Random(f"{name} {part}")
    for path in files(disk):
        found_stat = disk.stat(path)
        assert found_stat is not None
        for position in range(found_stat.size):
            if not part and chance.randrange(3):
                continue
            for bit in range(8) if part else (chance.randrange(8),):
                disk.flip(path, position, 1 << bit)
                book = verify(disk, ROOT)
                if book.worst is Level.NOTE:
                    assert _may_go_unseen(name, path, position), (path, position, bit)
                    assert served(disk) == sound.contents, (path, position, bit)
                disk.flip(path, position, 1 << bit)


def _may_go_unseen(name: str, path: str, position: int) -> bool:
    if name == "open" and path.endswith(("/recovery-point-offset-checkpoint", "/replication-offset-checkpoint")):
        return True  # a checkpoint may be older than the mark, which counts
    return _not_covered(path, position)


@pytest.mark.parametrize("name", ["own", "packed"])
def test_every_length_is_noticed(name: str) -> None:
    """Each file of a folder that was closed in order, cut at each length: noticed, but for the files named above,
    and a checkpoint without entries, which says the same when it is empty."""
    sound = golden(name)
    for path in files(sound.disk):
        found_stat = sound.disk.stat(path)
        assert found_stat is not None
        for size in range(0, found_stat.size, 1 if found_stat.size < 300 else 7):
            disk: SimDisk = sound.disk.snapshot()
            file = disk.open(path, write=True)
            file.truncate(size)
            file.close()
            book = verify(disk, ROOT)
            if book.worst is Level.NOTE:
                whole_entries = path.endswith(".index") and size % 8 == 0
                assert whole_entries or path.endswith("/log-start-offset-checkpoint") or _not_covered(path, size), (
                    path,
                    size,
                )
                assert served(disk) == sound.contents, (path, size)


def test_every_file_gone_is_noticed() -> None:
    """A file that is missing is said to be missing, but for the clean shutdown marker, the lock, and what
    is made again without anybody missing it: producer snapshots, indexes of the last segment, the reserve."""
    sound = golden("own")
    for path in files(sound.disk):
        disk = sound.disk.snapshot()
        disk.remove(path)
        book = verify(disk, ROOT)
        if book.worst is Level.NOTE:
            assert path.endswith(
                ("/.kafka_cleanshutdown", "/.lock", "/replog.reserve", ".index", ".timeindex", ".snapshot")
            ), path
            assert served(disk) == sound.contents


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"\x02", 1),
        (b"\x0e\x00\x00\x00\x01\x01", 1),
        (b"\x0e\x00\x00\x00\x01\x01\x00", 2),
        (b"\xff" * 12, 1),
        (b"\x0c\x00\x00\x00\x01\x01\x02", 1),
        (b"", 1),
    ],
)
def test_records_that_are_none(payload: bytes, count: int) -> None:
    """Records cut off, too few, too long, with absurd numbers: always said, never taken."""
    with pytest.raises(Malformed):
        list(records_of(payload, count, 0, 0))


def test_the_summary_of_a_root_is_held_against_its_marker(tmp_path: Path) -> None:
    """A bit of ``replog.db`` flipped, and the file gone: a warning, for that costs time and no record."""
    disk = SystemDisk()
    root = LogRoot.open(disk, str(tmp_path / "root"), clock=CLOCK, random=Random(1))
    for number in range(40):
        root.create_log("t", number, TOPIC_ID, LogConfig())
    root.close()
    store = tmp_path / "root" / "replog.db"
    assert store.exists()
    assert not verify(disk, str(tmp_path / "root")).findings
    flip(store, 5000)
    assert "clean shutdown marker" in found(verify(disk, str(tmp_path / "root")), Level.WARNING)[0]
    store.unlink()
    assert "missing" in found(verify(disk, str(tmp_path / "root")), Level.WARNING)[0]
    disk.close()


def with_producer(disk: SimDisk) -> LogRoot:
    """A root with one log of four segments, closed once at its offset 4, where a snapshot is since; a producer
    wrote the first two."""
    LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1)).close()
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    config = LogConfig(segment_bytes=1024, file_delete_delay_ms=0)
    log = root.create_log("t", 0, TOPIC_ID, config)
    for number in range(10):
        if number == 2:
            sync(disk, log)
            log.advance_high_watermark(4)
            root.close()
            root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
            log = root.logs[TopicPartition("t", 0)]
        log.append_as_leader(batch(2, size=100, sequence=2 * number if number < 6 else -1), 0)
    sync(disk, log)
    log.advance_high_watermark(20)
    log.write_mark()
    assert [base for base, _ in log.segments()] == [0, 6, 12, 18]
    assert f"{4:020}.snapshot" in disk.list(f"{ROOT}/t-0")
    return root


def test_a_snapshot_from_before_the_log_begins_is_not_gone_on_from() -> None:
    """A close left a producer snapshot in the midst of a segment that was deleted since: between it and the log's
    beginning there is much that it does not know, so the next snapshot is not wrong for knowing it. (Whoever did
    what was advised, and removed that one, would have lost what is known of the producer.)"""
    disk = SimDisk(Random(1))
    root = with_producer(disk)
    log = root.logs[TopicPartition("t", 0)]
    log.delete_records(6)
    assert log.apply_retention() == 1
    root.close()
    assert [one for one in verify(disk, ROOT).findings if one.level is not Level.NOTE] == []


def test_behind_a_lost_segment_no_snapshot_is_called_wrong() -> None:
    """A segment is gone, and with it what the producer did there: the damage is found, and nothing is said of the
    snapshots behind."""
    disk = SimDisk(Random(1))
    root = with_producer(disk)
    root.close()
    disk.remove(f"{ROOT}/t-0/{6:020}.log")
    book = verify(disk, ROOT)
    assert "a part of the log before it is missing" in found(book, Level.DAMAGE)[0]
    assert [text for text in found(book, Level.WARNING) if "snapshot" in text] == []


def test_a_mark_that_lost_its_end_vouches_for_nothing() -> None:
    """What is left of a mark that is too short may say less than the newest slot did; the writer does not believe
    it, and refuses what is rotten below the checkpoint. So does verify call it damage, and repair call it lost."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, TOPIC_ID, LogConfig())
    path, left = f"{ROOT}/t-0/{MARK}", b""
    for number in range(6):
        log.append_as_leader(batch(2, size=50), 0)
        sync(disk, log)
        log.advance_high_watermark(log.end_offset)
        log.write_mark()
        if number == 1:
            left = bytes(disk.open(path).read_at(0, 200))
    root.close()
    slot = mark_slots(left)[0]
    assert isinstance(slot, Slot)
    assert slot.promised == 4
    disk.remove(f"{ROOT}/.kafka_cleanshutdown")
    file = disk.open(path, write=True)
    file.truncate(0)
    file.write_at(0, [left])
    file.close()
    log_path = f"{ROOT}/t-0/{0:020}.log"
    disk.flip(log_path, disk.open(log_path).size() - 5)
    book = verify(disk, ROOT)
    assert [(one.start, one.end) for one in book.findings if one.level is Level.DAMAGE] == [(10, 12)]
    (plan,) = plan_repair(disk, ROOT)
    assert [(one.start, one.end) for one in plan.lost] == [(10, 12)]
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    assert isinstance(root.damaged[TopicPartition("t", 0)], CorruptLogError)
    root.close(clean=False)


@pytest.mark.parametrize("timestamps", [[-1, 2**63 - 1], [2**63 - 1, -1], [5, 2**63 - 1, -1]])
def test_timestamps_far_apart_are_no_finding(tmp_path: Path, timestamps: list[int]) -> None:
    """What lies between two timestamps may not fit 64 bits; it wraps, in Java too, and each record has the
    timestamp it was given."""
    path = tmp_path / "log"
    builder = BatchBuilder()  # a broker's: no append of ours takes such times
    for timestamp in timestamps:
        assert builder.append(b"x", None, [], timestamp)
    root = LogRoot.open(SystemDisk(), str(path), clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, root.new_topic_id(), LogConfig(durability="os"))
    log.append_as_follower([builder.finish(base_offset=0, leader_epoch=0)])
    log.advance_high_watermark(len(timestamps))
    root.close()
    with pyreplog.open_log(path, "r") as reader:
        assert [record.timestamp for record in reader.read()] == timestamps
    disk = SystemDisk()
    book = verify(disk, str(path))
    disk.close()
    assert [one for one in book.findings if one.level > Level.NOTE] == []
    data = next(path.rglob("*0.log")).read_bytes()
    base = int.from_bytes(data[27:35], "big", signed=True)
    assert [one.timestamp for one in records_of(data[61:], len(timestamps), 0, base)] == timestamps


class _Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)


class _NamesCounted(SimDisk):
    """Lists names that count."""

    def list(self, directory: str) -> Sequence[str]:
        return [_Name(name) for name in super().list(directory)]


def _comparisons(segment_count: int) -> int:
    """How often names are compared while a folder of so many empty segments, each with its indexes, is looked
    at."""
    disk = _NamesCounted()
    disk.make_directory("t-0")
    for base in range(segment_count):
        for suffix in (".log", ".index", ".timeindex"):
            disk.create(f"t-0/{base:020}{suffix}").close()
    before = _Name.compared
    verify(disk, "t-0")
    return _Name.compared - before


def test_names_are_looked_up_not_searched_for() -> None:
    """The work for the names of a folder grows as their number does, however many segments a log has."""
    few, many = _comparisons(20), _comparisons(80)
    assert many <= 5 * few
