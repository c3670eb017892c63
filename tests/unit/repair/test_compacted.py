"""`repair` of compacted logs: their gaps stay, and no gap is taken for a loss or a loss for a gap."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import pytest

from pyreplog.cli.repair import describe, fields_of
from pyreplog.errors import CorruptLogError
from pyreplog.log import Log, LogRoot
from pyreplog.repair import apply_repair, plan_repair
from pyreplog.testing.crash import crash_points
from pyreplog.testing.disk import SimDisk
from pyreplog.verify import Level, verify
from tests.faults.flips.golden import KEY, ROOT, Content, files, golden, served
from tests.seed import SEED
from tests.unit.log.support import CLOCK, contents, raw, sync
from tests.unit.log.test_compaction import batch, run
from tests.unit.repair.test_repair import NEW, check, repaired, sample

FOLDER: Final = f"{ROOT}/t-0"


def sound() -> SimDisk:
    """A copy of the golden folder."""
    return golden("compacted").disk.snapshot()


def opened(disk: SimDisk, path: str = NEW) -> tuple[LogRoot, Log]:
    """The repaired log, opened to write."""
    root = LogRoot.open(disk, path, clock=CLOCK, random=Random(1))
    assert not root.damaged
    return root, root.logs[KEY]


def missing(content: Content, start: int, end: int) -> set[int]:
    """The offsets of the half-open range without a batch."""
    return set(range(start, end)) - {offset for base, end, _ in content for offset in range(base, end)}


def recorded(log: Log) -> set[int]:
    """The offsets in the files of gaps."""
    bounds = [segment.gaps.bounds for segment in log._segments]
    return {offset for one in bounds for slot in range(0, len(one), 2) for offset in range(one[slot], one[slot + 1])}


def of(ranges: list) -> set[int]:  # type: ignore[type-arg]
    """The offsets of ranges of a plan."""
    return {offset for one in ranges for offset in range(one.start, one.end)}


def facts(disk: SimDisk, path: str) -> tuple[set[int], int, int, int, bool]:
    """Gaps, start, end and dropped tombstone of a log; whether it knows its gaps."""
    root, log = opened(disk, path)
    found = recorded(log), log.start_offset, log.end_offset, log.dropped_tombstone, log._contiguity is not None
    root.close()
    return found


def test_a_sound_compacted_log_is_copied_with_its_gaps() -> None:
    """Gaps, start, end and the dropped tombstone are the same, offset for offset; the copy is exact and compacts on."""
    disk = sound()
    plan, found = repaired(disk)
    assert (plan.lost, plan.unknown, plan.mended, plan.dropped) == ([], [], [], [])
    assert found[KEY] == golden("compacted").full[KEY]
    gaps, start, end, tombstone, exact = facts(disk, ROOT)
    assert (gaps, start, end, tombstone, exact) == facts(disk, NEW)
    assert gaps == missing(golden("compacted").full[KEY], start, end)
    assert exact
    assert tombstone >= 0
    assert "nothing is lost" in describe(plan)[-1]
    assert fields_of(plan)["compacted_offsets"] == len(gaps)
    root, log = opened(disk)
    before = {one.key: one.value for one in contents(log)}
    log.append_as_leader(memoryview(bytearray(batch(0, [(b"m", b"new")]))), log.epochs.latest)
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    run(log, CLOCK.wall_ms() + 10)
    assert {one.key: one.value for one in contents(log)} == before | {b"m": b"new"}
    root.close()
    assert verify(disk, NEW).worst is Level.NOTE


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_one_flip_costs_at_most_its_batch(part: int) -> None:
    """A gap is no loss. A batch that is lost is named, and only a damaged file of gaps makes offsets unknown."""
    whole = golden("compacted").full[KEY]
    for path, position, bit in sample("compacted", bool(part)):
        disk = sound()
        disk.flip(path, position, 1 << bit)
        plan, found = repaired(disk)
        what = (path, position, bit)
        check(plan, found[KEY], whole)
        assert len(plan.lost) <= (1 if path.endswith(".log") else 0), (what, plan.lost)
        assert not plan.unknown or path.endswith(".gaps"), (what, plan.unknown)
        gaps = missing(whole, 0, plan.end_offset)
        assert of(plan.lost).isdisjoint(gaps), what
        assert of(plan.unknown) <= gaps, what
        root, log = opened(disk)
        assert recorded(log) == {one for one in gaps | of(plan.lost) if log.start_offset <= one < log.end_offset}, what
        root.close(clean=False)


@pytest.mark.parametrize("how", ["damaged", "missing"])
@pytest.mark.parametrize("name", sorted(one for one in files(golden("compacted").disk) if one.endswith(".gaps")))
def test_without_its_file_of_gaps_every_batch_is_kept_and_the_gaps_are_unknown(name: str, how: str) -> None:
    """The other segments' gaps are known. The dropped tombstone counts as the last offset that the file could name,
    so that a table which may have missed a deletion is built again."""
    disk, whole = sound(), golden("compacted").full[KEY]
    known = facts(sound(), ROOT)
    if how == "damaged":
        disk.flip(name, 30)
    else:
        disk.remove(name)
    plan, found = repaired(disk)
    assert found[KEY] == whole
    assert plan.lost == []
    base = int(name[-25:-5])
    end = min(int(one[-24:-4]) for one in files(disk) if one.endswith(".log") and int(one[-24:-4]) > base)
    assert of(plan.unknown) == {offset for offset in known[0] if base <= offset < end}
    assert "nothing is known to be lost" in describe(plan)[-1]
    assert "missing or damaged" in fields_of(plan)["unknown"][0]["about"]
    after = facts(disk, NEW)
    assert after[:3] == known[:3]
    assert after[3] >= known[3]
    if how == "damaged":
        assert after[3] >= end - 1


def test_a_missing_segment_is_lost_without_its_gaps() -> None:
    """Its file of gaps is still there, and says which offsets had a batch."""
    disk, whole = sound(), golden("compacted").full[KEY]
    disk.remove(f"{FOLDER}/{96:020}.log")
    plan, _ = repaired(disk)
    assert of(plan.lost) == {offset for base, end, _ in whole if 96 <= base < 110 for offset in range(base, end)}
    assert plan.unknown == []
    disk = sound()
    disk.remove(f"{FOLDER}/{0:020}.log")
    plan, found = repaired(disk)
    assert of(plan.lost) == {offset for base, end, _ in whole if base < 96 for offset in range(base, end)}
    assert plan.start_offset == 96 == facts(disk, NEW)[1]
    assert found[KEY] == tuple(one for one in whole if one[0] >= 96)


@pytest.mark.parametrize("damage", ["batch", "gaps", "segment"])
def test_another_replica_says_what_compaction_removed(damage: str) -> None:
    """It has the batches that one replica lost; an offset that it has not either, because of compaction, is neither
    lost nor unknown."""
    source, disk = golden("compacted").disk, SimDisk(Random(1))
    for number in ("1", "2"):
        for path in files(source):
            target = f"{ROOT}/node-{number}/{path.removeprefix(ROOT + '/')}"
            disk.make_directory(target.rpartition("/")[0])
            file = disk.create(target)
            content = source.open(path).read_at(0, 1 << 20).tobytes()
            file.write_at(0, [content.replace(b"node.id=0", b"node.id=" + number.encode())])
            file.close()
    for node in ("node-1", "node-2"):
        hurt = disk.snapshot()
        folder = f"{ROOT}/{node}/t-0"
        match damage:
            case "batch":
                hurt.flip(f"{folder}/{0:020}.log", 100)
            case "gaps":
                hurt.flip(f"{folder}/{0:020}.gaps", 30)
            case "segment":
                for suffix in ("log", "gaps"):
                    hurt.remove(f"{folder}/{0:020}.{suffix}")
        plan, found = repaired(hurt)
        assert (plan.lost, plan.unknown, plan.start_offset) == ([], [], 0), node
        assert found[KEY] == golden("compacted").full[KEY]


def test_a_lost_batch_is_no_gap_that_anything_may_widen() -> None:
    """The repaired log is exact again: a batch that it loses later is found."""
    disk = sound()
    disk.flip(f"{FOLDER}/{96:020}.log", 70)
    plan, _ = repaired(disk)
    assert len(plan.lost) == 1
    log_file = max((one for one in files(disk, NEW) if one.endswith(".log")), key=lambda one: disk.open(one).size())
    content = disk.open(log_file).read_at(0, 1 << 20).tobytes()
    size = 12 + int.from_bytes(content[8:12], "big")
    second = size + 12 + int.from_bytes(content[size + 8 : size + 12], "big")
    file = disk.open(log_file, write=True)
    file.truncate(0)
    file.write_at(0, [content[:size] + content[second:]])
    assert verify(disk, NEW).worst is Level.DAMAGE
    assert served(disk, NEW)[KEY] == CorruptLogError.__name__


@pytest.mark.parametrize("name", ["compact"])
def test_a_brokers_compacted_folder_keeps_its_start(name: str) -> None:
    """Nothing says which offsets its cleaner removed, and those at its start are no deleted records."""
    disk, whole = golden(name).disk.snapshot(), golden(name).full
    (key,) = whole
    assert whole[key][0][0] > 0
    (plan,) = plan_repair(disk, ROOT)
    assert (plan.lost, plan.unknown, plan.start_offset) == ([], [], 0)
    apply_repair(disk, ROOT, NEW, [plan], clock=CLOCK, random=Random(3))
    assert served(disk, NEW) == whole
    book = verify(disk, NEW)
    assert book.worst is Level.NOTE
    assert any("no file says whether compaction removed them" in one.what for one in book.findings)
    root = LogRoot.open(disk, NEW, clock=CLOCK, random=Random(1))
    assert root.logs[key].start_offset == 0
    root.close()


def test_a_range_without_its_gaps() -> None:
    """Its parts between them."""
    state = plan_repair(sound(), ROOT)[0].state
    for start, end, parts in ((0, 30, [(18, 26)]), (20, 22, [(20, 22)]), (0, 18, []), (30, 33, [(32, 33)])):
        assert state.outside_gaps(start, end) == parts


def test_a_crash_leaves_the_source_and_no_log_with_wrong_gaps() -> None:
    """At each call to the disk: the damaged folder is as it was. What there is of the new log is a beginning of it;
    it counts its gaps as known only when all are written."""
    source, whole = golden("compacted").disk, golden("compacted").full[KEY]
    before = {path: source.open(path).read_at(0, 1 << 20).tobytes() for path in files(source)}
    plans = plan_repair(source, ROOT)
    copied = [path for path in before if path.startswith(FOLDER)]

    def life(disk: SimDisk, done: list[bool]) -> None:
        disk.make_directory(FOLDER)
        for path in copied:
            file = disk.create(path)
            file.write_at(0, [before[path]])
            file.close()
        disk.write_back()
        apply_repair(disk, ROOT, NEW, plans, clock=CLOCK, random=Random(3))
        done.append(True)

    def look(disk: SimDisk, done: Sequence[bool]) -> None:
        if disk.stat(f"{NEW}/{KEY}") is None:
            assert not done
            return
        found = served(disk, NEW).get(KEY, ())
        assert isinstance(found, str) or found == whole[: len(found)]
        assert not done or found == whole
        root = LogRoot.open(disk, NEW, clock=CLOCK, random=Random(1))
        log = root.logs.get(KEY)
        if log is not None:
            data = raw(log)
            assert b"".join(one for _, _, one in whole).startswith(data)
            assert not log._mark.state.compacted or log.end_offset == whole[-1][1]
            assert not done or log._contiguity is not None
        root.close(clean=False)

    report = crash_points(life, look, seed=SEED, damages=1, every=2, first=1 + SEED % 2)
    assert report.states > 50
