"""Rare states: what a writer makes of them at its next opening, what readers are given meanwhile, and what `verify`
says of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptLogError, StorageError
from pyreplog.log import LogRoot, open_readers
from pyreplog.repair import plan_repair
from pyreplog.system import SystemDisk
from pyreplog.testing.disk import SimDisk
from pyreplog.verify import Finding, Level, verify
from tests.unit.log.support import CLOCK, batch, sync
from tests.unit.verify.support import flip

COUNT = 60


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A log of several segments, one record a batch, rising timestamps, as a crash leaves it: all of it synced, and
    not closed in order."""
    root = tmp_path / "root"
    with pyreplog.open_log(root, topic="t", config={"segment.bytes": 1200, "index.interval.bytes": 200}) as log:
        for number in range(COUNT):
            log.append(b"%d" % number + bytes(60), timestamp=1000 + number)
    crashed(root)
    yield root
    shutil.rmtree(root)


def crashed(root: Path) -> None:
    """Not closed in order."""
    (root / ".kafka_cleanshutdown").unlink()


def findings(path: Path) -> list[Finding]:
    """What is said of a folder, but for that it was not closed in order."""
    disk = SystemDisk()
    book = verify(disk, str(path))
    disk.close()
    return [one for one in book.findings if "closed in order" not in one.what]


def files(root: Path, suffix: str) -> list[Path]:
    """Those of the one partition, by rising offset."""
    return sorted((root / "t-0").glob(f"*.{suffix}"))


def everything_is_served(root: Path, first: int = 0) -> None:
    """Each record from ``first`` on, by its offset and by its time."""
    with pyreplog.open_log(root, "r", topic="t") as log:
        assert [record.offset for record in log.read()] == list(range(first, log.end_offset))
        assert [log.seek(timestamp=1000 + offset) for offset in range(first, COUNT)] == list(range(first, COUNT))


# ------------------------------------------------------------------------------------ short indexes


@pytest.mark.parametrize("entries_lost", [1, 2, 100])
def test_a_time_index_that_power_loss_left_short_is_made_whole(root: Path, entries_lost: int) -> None:
    """Of closed segments that are synced, which no recovery scans: readers find everything meanwhile, and after the
    recovery the files are what they were, byte for byte."""
    before = {file: file.read_bytes() for file in files(root, "timeindex")[:-1]}
    for file, data in before.items():
        file.write_bytes(data[: max(len(data) - 12 * entries_lost, 0)])
    everything_is_served(root)
    assert {one.level for one in findings(root)} == {Level.WARNING}
    pyreplog.open_log(root, topic="t").close()
    assert {file: file.read_bytes() for file in before} == before
    assert not findings(root)


def test_no_index_is_cut_where_its_segment_is_damaged(root: Path) -> None:
    """A time index that ends too early, of a segment that cannot be walked to its end: what there is of both
    indexes stays."""
    log, index, times = (files(root, suffix)[0] for suffix in ("log", "index", "timeindex"))
    times.write_bytes(times.read_bytes()[:-12])
    flip(log, 300)  # in the third batch, which is not looked at; and then the length of the fourth
    data = bytearray(log.read_bytes())
    size = 12 + int.from_bytes(data[8:12], "big")
    data[3 * size + 8] ^= 0x40
    log.write_bytes(data)
    kept = index.read_bytes(), times.read_bytes()
    pyreplog.open_log(root, topic="t").close()
    assert (index.read_bytes(), times.read_bytes()) == kept


# -------------------------------------------------------------------- behind a closed segment's end


@pytest.mark.parametrize(
    ("behind", "level"), [(b"garbage that is no batch" * 5, Level.WARNING), (bytes(500), Level.NOTE)]
)
@pytest.mark.parametrize("segment", [0, -2])
@pytest.mark.parametrize("snapshots", [True, False])
def test_what_lies_behind_a_whole_segment_costs_nothing(
    root: Path, segment: int, behind: bytes, level: Level, snapshots: bool
) -> None:
    """Offsets go on in the next segment: all is served, the writer opens the log and leaves what nobody reads, and
    nothing is damaged. The last closed segment ends where the mark's synced end may be. Without the snapshots of
    producers all batches are looked at."""
    for snapshot in files(root, "snapshot"):
        if not snapshots:
            snapshot.unlink()
    file = files(root, "log")[segment]
    whole = file.stat().st_size
    with file.open("ab") as log:
        log.write(behind)
    for _ in range(2):
        everything_is_served(root)
        assert [(one.level, Path(one.path).name, one.position) for one in findings(root)] == [(level, file.name, whole)]
        with pyreplog.open_log(root, topic="t") as opened:
            opened.append(b"more", timestamp=1000 + COUNT)
        assert file.stat().st_size == whole + len(behind)


def test_what_lies_behind_a_segment_that_lost_its_last_batch_is_damage(root: Path) -> None:
    """The same garbage, in the place of a record."""
    file = files(root, "log")[0]
    size = 12 + int.from_bytes(file.read_bytes()[8:12], "big")
    file.write_bytes(file.read_bytes()[:-size] + b"garbage" * 30)
    assert {(one.start, one.end) for one in findings(root) if one.level is Level.DAMAGE} == {(8, 9)}


# ---------------------------------------------------------------------------- below the log's start


def test_rot_below_the_start_is_damage_only_where_it_hides_something(tmp_path: Path) -> None:
    """Each byte of a batch that was deleted and is still in its file: where no damage is said, everything above is
    served, indexes or not; where only its records are touched, none is said."""
    root = tmp_path / "root"
    with pyreplog.open_log(root, topic="t") as log:
        for number in range(COUNT):
            log.append(b"%d" % number, timestamp=1000 + number)
        log.delete_records(4)
    file = files(root, "log")[0]
    whole = file.read_bytes()
    size = 12 + int.from_bytes(whole[8:12], "big")
    for position in range(size, 2 * size):
        flip(file, position)
        levels = {one.level for one in findings(root)}
        assert levels <= {Level.WARNING, Level.DAMAGE}
        assert levels or position - size in (23,), position - size
        if Level.DAMAGE not in levels:
            everything_is_served(root, 4)
        elif position - size > 60:
            pytest.fail(f"byte {position - size} is called damage")
        file.write_bytes(whole)


def test_what_power_loss_brings_back_of_removed_segments_is_no_damage() -> None:
    """Their removal is not synced, as they go again at the next opening: any of them may be there, without those
    between. What is above is served, and `repair` makes a log without gaps of it."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "data", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, root.new_topic_id(), LogConfig(segment_bytes=1024, file_delete_delay_ms=0))
    log.become_leader(0)
    for _ in range(30):
        log.append_as_leader(batch(2, size=50), 0)
    sync(disk, log)
    log.advance_high_watermark(60)
    log.write_mark()
    log.sync_mark()
    disk.write_back()
    log.delete_records(45)
    log.apply_retention()
    gaps = 0
    for seed in range(60):
        left = disk.crash(Random(seed))
        bases = [int(name[:20]) for name in left.list("data/t-0") if name.endswith(".log")]
        gaps += bases != list(range(bases[0], 60, 10))
        assert [one for one in verify(left, "data").findings if one.level is Level.DAMAGE] == [], seed
        (plan,) = plan_repair(left, "data")
        assert (plan.lost, plan.start_offset, plan.end_offset) == ([], 45, 60)
        assert [piece.next_offset for piece in plan.pieces[:-1]] == [piece.base_offset for piece in plan.pieces[1:]]
        (reader,) = open_readers(left, "data").values()
        assert [one.base_offset for one in reader.batches(45, 60)] == list(range(44, 60, 2))
        reader.close()
    assert gaps > 10


def test_what_is_said_of_it_is_so(root: Path) -> None:
    """After a crash a log with rot below its start is not opened for writing, as the warning says, until repair
    made one without it."""
    with pyreplog.open_log(root, topic="t") as log:
        log.delete_records(COUNT - 1)
    crashed(root)
    file = files(root, "log")[-1]
    flip(file, 100)
    [finding] = findings(root)
    assert finding.level is Level.WARNING
    assert "replog repair" in finding.advice
    everything_is_served(root, COUNT - 1)
    with pytest.raises(CorruptLogError):
        pyreplog.open_log(root, topic="t")
    from pyreplog.cli.main import main  # noqa: PLC0415  (only here)

    assert main(["repair", str(root), "--to", str(root.parent / "saved"), "--yes"]) == 0
    everything_is_served(root.parent / "saved", COUNT - 1)
    assert not findings(root.parent / "saved")


# ------------------------------------------------------------------------------- partition.metadata


def _changed(text: str) -> str:
    return text[:-3] + ("A" if text[-3] != "A" else "B") + text[-2:]


CHANGES: dict[str, Callable[[str], str] | None] = {
    "a letter of the id": _changed,
    "a letter before it": lambda text: text.replace("version", "persion"),
    "emptied": lambda _: "",
    "gone": None,
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_topic_id_that_the_mark_knows_is_put_back(root: Path, name: str) -> None:
    """A letter changed, a file that is none, and no file: a warning which says that nothing is to be done, and so
    it is."""
    file = root / "t-0" / "partition.metadata"
    text = file.read_text()
    change = CHANGES[name]
    if change is None:
        file.unlink()
    else:
        file.write_text(change(text))
    [finding] = findings(root)
    assert finding.level is Level.WARNING
    assert finding.advice.startswith("nothing to do")
    everything_is_served(root)
    pyreplog.open_log(root, topic="t").close()
    assert file.read_text() == text
    assert not findings(root)


def test_the_topic_id_of_another_topic_is_damage(root: Path) -> None:
    """Nothing says which of the two belongs here."""
    (root / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AbCdEfGhIjKlMnOpQrStUw")
    assert [one.level for one in findings(root)] == [Level.DAMAGE]


# ------------------------------------------------------------------------------ names of partitions


def test_a_number_with_leading_zeros_is_kafkas_partition_and_nobodys_here(root: Path) -> None:
    """Beside the folder that it would be taken for, a broker would not start; where that is missing, it takes the
    one for the other."""
    shutil.copytree(root / "t-0", root / "t-00")
    [finding] = findings(root)
    assert (finding.level, Path(finding.path).name) == (Level.WARNING, "t-00")
    assert "two folders of t-0" in finding.what
    shutil.rmtree(root / "t-0")
    [finding] = [one for one in findings(root) if Path(one.path).name == "t-00"]
    assert finding.level is Level.WARNING
    assert "rename it to t-0" in finding.advice
    (root / "t-00").rename(root / "t-0")
    assert not findings(root)
    everything_is_served(root)


# ----------------------------------------------------------------- something else in a file's place


INDEXES = (f"{0:020}.index", f"{0:020}.timeindex", "newest.index", "newest.timeindex")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in (*INDEXES, "leader-epoch-checkpoint") for kind in ("folder", "pipe", "link")),
        *((name, "link to nowhere") for name in INDEXES),
    ],
)
def test_what_nobody_opens_is_damage(root: Path, name: str, kind: str) -> None:
    """Readers and the next writer are refused, by its name, while it is there: so the log is not sound, nor merely
    worth a look."""
    (newest,) = (root / "t-0").glob(f"{max(int(file.stem) for file in files(root, 'log')):020}.log")
    file = root / "t-0" / name.replace("newest", newest.stem)
    if kind == "link":
        file.rename(root.parent / "elsewhere")
        file.symlink_to(root.parent / "elsewhere")
    else:
        file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "link to nowhere":
        file.symlink_to(root.parent / "nowhere")
    for mode in ("r", "a"):
        with pytest.raises(StorageError, match=file.name), pyreplog.open_log(root, mode, topic="t") as log:
            list(log.read())
    assert [Path(one.path).name for one in findings(root) if one.level is Level.DAMAGE] == [file.name]
