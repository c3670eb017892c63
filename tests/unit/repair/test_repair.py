"""`repair`: whatever is damaged, what it saves is what was there, at its offsets, and everything else is named as
lost."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError
from pyreplog.log import Log, LogRoot, open_readers
from pyreplog.repair import PartitionPlan, apply_repair, plan_repair
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, verify
from tests.faults.flips.golden import KEY, ROOT, Content, files, golden, served
from tests.unit.log.support import CLOCK, batch, sync

NEW: Final = "saved"


def led(disk: SimDisk, epoch: int) -> tuple[LogRoot, Log]:
    """A new root with one log, led in ``epoch``."""
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, root.new_topic_id(), LogConfig())
    log.become_leader(epoch)
    return root, log


def repaired(disk: SimDisk, source: str = ROOT) -> tuple[PartitionPlan, dict[TopicPartition, Content | str]]:
    """The plan for the one partition, carried out: what a reader finds in the new folder, which is sound. The
    source is as it was."""
    before = {path: disk.open(path).read_at(0, 1 << 20).tobytes() for path in files(disk, source)}
    (plan,) = plan_repair(disk, source)
    apply_repair(disk, source, NEW, [plan], clock=CLOCK, random=Random(3))
    book = verify(disk, NEW)
    assert book.worst is Level.NOTE, book.findings
    assert {path: disk.open(path).read_at(0, 1 << 20).tobytes() for path in files(disk, source)} == before
    return plan, served(disk, NEW)


def check(plan: PartitionPlan, found: Content | str, whole: Content) -> None:
    """What is found is what was there, but for what the plan names; and the plan names nothing else."""
    assert not isinstance(found, str)
    kept = {(base, end): data for base, end, data in found}
    for base, end, data in whole:
        lost = any(one.start < end and base < one.end for one in plan.lost)
        cut = any(one.start <= base for one in plan.dropped)
        assert ((base, end) in kept) != (lost or cut), (base, end, plan.lost, plan.dropped)
        if (base, end) in kept:
            assert kept.pop((base, end)) == data, base
    assert not kept, kept


@pytest.mark.parametrize("name", ["own", "packed", "open"])
def test_a_sound_folder_is_copied_whole(name: str) -> None:
    """Nothing lost, nothing mended; a log that had no gaps still has none."""
    sound = golden(name)
    plan, found = repaired(sound.disk.snapshot())
    assert (plan.lost, plan.mended, plan.borrowed, plan.dropped) == ([], [], [], [])
    check(plan, found[KEY], sound.full[KEY])


def sample(name: str, whole: bool) -> Sequence[tuple[str, int, int]]:
    """(path, position, bit) of a share of all flips, or all of the first bits."""
    sound = golden(name)
    chance = Random(name)
    every = [
        (path, position, bit)
        for path in files(sound.disk)
        for position in range(sound.disk.stat(path).size)  # type: ignore[union-attr]
        for bit in range(8)
    ]
    return every if whole else chance.sample(every, 250)


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["own", "packed"])
def test_one_flip_costs_at_most_its_batch(name: str, part: int) -> None:
    """With one bit flipped anywhere, at most one batch is lost, and only where the flip lies within what its
    checksum covers."""
    sound = golden(name)
    for path, position, bit in sample(name, bool(part)):
        disk = sound.disk.snapshot()
        disk.flip(path, position, 1 << bit)
        plan, found = repaired(disk)
        content = found[KEY]
        try:
            check(plan, content, sound.full[KEY])
        except AssertionError as error:
            raise AssertionError((path, position, bit)) from error
        assert len(plan.lost) <= (1 if path.endswith(".log") else 0), (path, position, bit, plan.lost)


@pytest.mark.parametrize("position", [*range(21)])
def test_a_header_is_mended(position: int) -> None:
    """Every bit of what no checksum covers, and of the checksum itself, in the second batch of a log: mended,
    nothing lost."""
    sound = golden("own")
    path = f"{ROOT}/t-0/{0:020}.log"
    second = len(sound.full[KEY][0][2])
    for bit in range(8):
        disk = sound.disk.snapshot()
        disk.flip(path, second + position, 1 << bit)
        plan, found = repaired(disk)
        assert plan.lost == [], (bit, plan.lost)
        assert [(one.start, one.end) for one in plan.mended] == [(1, 2)]
        assert found[KEY] == sound.full[KEY]


@pytest.mark.parametrize("bit", [*range(32)])
def test_a_length_that_leads_to_another_batch_costs_none_between(bit: int) -> None:
    """Batches of one size, a power of two: with a bit of its length flipped the header of one leads to the
    beginning of a later one."""
    disk = SimDisk(Random(1))
    root, log = led(disk, 0)
    for _ in range(40):
        log.append_as_leader(batch(1, size=53), 0)
    log.set_high_watermark(log.end_offset)
    root.close()
    path = f"{ROOT}/t-0/{0:020}.log"
    assert disk.stat(path).size == 40 * 128  # type: ignore[union-attr]
    whole = served(disk, ROOT)[KEY]
    disk.flip(path, 5 * 128 + 11 - bit // 8, 1 << bit % 8)
    (damage,) = (one for one in verify(disk, ROOT).findings if one.level is Level.DAMAGE)
    assert (damage.start, damage.end) == (5, 6)
    plan, found = repaired(disk)
    assert (plan.lost, [(one.start, one.end) for one in plan.mended]) == ([], [(5, 6)])
    assert found[KEY] == whole


def test_a_write_over_the_seam_of_two_batches_costs_no_more_than_these() -> None:
    """Eight bytes went over the end of one batch and the base offset of the next: the damaged offset, which no
    checksum covers, is not taken for where the log goes on."""
    sound = golden("own")
    path = f"{ROOT}/t-0/{0:020}.log"
    seam = len(sound.full[KEY][0][2]) + len(sound.full[KEY][1][2])
    for start in range(seam - 7, seam):
        for value in (b"\x78", b"\x01", b"\x00\x00\x00\x01"):
            disk = sound.disk.snapshot()
            file = disk.open(path, write=True)
            file.write_at(start, [(value * 8)[:8]])
            file.close()
            disk.write_back()
            plan, found = repaired(disk)
            check(plan, found[KEY], sound.full[KEY])
            assert [(one.start, one.end) for one in plan.lost] == [(1, 3)], (start, value)


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("damaged", [0, 1, 4, 9])
@pytest.mark.parametrize("deleted", [0, 2])
@pytest.mark.parametrize("synced", [20, 6])
def test_a_leader_epoch_that_rose_by_damage_costs_nothing_behind_it(
    synced: int, deleted: int, damaged: int, history: bool
) -> None:
    """A bit of a leader epoch, which no checksum covers, makes it a later one: below the log's start, above what
    was ever synced, and with a history that cannot be read. The batches behind it, of the right epoch, are saved,
    and so is it where what lies around it agrees."""
    disk = SimDisk(Random(1))
    root, log = led(disk, 3)
    for _ in range(10):
        log.append_as_leader(batch(2, size=50), 3)
        if log.end_offset == synced:
            sync(disk, log)
            log.advance_high_watermark(synced)
            log.delete_records(deleted)
    log.write_mark()
    path = f"{ROOT}/t-0/{0:020}.log"
    root.close(clean=False)
    disk.flip(path, disk.open(path).size() // 10 * damaged + 14, 4)
    if not history:
        disk.remove(f"{ROOT}/t-0/leader-epoch-checkpoint")
    (plan,) = plan_repair(disk, ROOT)
    apply_repair(disk, ROOT, NEW, [plan], clock=CLOCK, random=Random(3))
    assert plan.lost == []
    (reader,) = open_readers(disk, NEW).values()
    kept = [(one.base_offset, one.leader_epoch) for one in reader.batches(reader.start_offset, reader.end_offset)]
    reader.close()
    unsure = not history or synced == 6
    assert kept == [(base, 1027 if unsure and base == 18 and damaged == 9 else 3) for base in range(deleted, 20, 2)]


@pytest.mark.parametrize(
    ("epoch", "which", "lost"),
    [
        (-1, (0,), []),
        (-1, (2,), []),
        (-1, (0, 1, 2), []),
        (-2, (0,), []),
        (-(1 << 31), (2,), [4]),
        (-2, (0, 1, 2), [2, 4]),
    ],
)
def test_a_negative_leader_epoch_keeps_nothing_else_from_being_saved(
    epoch: int, which: tuple[int, ...], lost: list[int]
) -> None:
    """No log takes one. -1 says that a batch has none: it gets that of the one before it, the first of all 0. What
    is lower is damage of what no checksum covers: mended where one value fits, named as lost where, at the end,
    nobody can say."""
    disk = SimDisk(Random(1))
    root, log = led(disk, 0)
    for _ in range(3):
        log.append_as_leader(batch(2, size=50), 0)
    root.close()
    path = f"{ROOT}/t-0/{0:020}.log"
    size = disk.open(path).size()
    data = bytearray(disk.open(path).read_at(0, size))
    for number in which:
        data[size // 3 * number + 12 : size // 3 * number + 16] = epoch.to_bytes(4, "big", signed=True)
    disk.remove(path)
    file = disk.create(path)
    file.write_at(0, [data])
    file.close()
    disk.remove(f"{ROOT}/t-0/replog.mark")
    disk.remove(f"{ROOT}/t-0/leader-epoch-checkpoint")
    (plan,) = plan_repair(disk, ROOT)
    apply_repair(disk, ROOT, NEW, [plan], clock=CLOCK, random=Random(3))
    assert [one.start for one in plan.lost] == lost
    (reader,) = open_readers(disk, NEW).values()
    kept = [(one.base_offset, one.leader_epoch) for one in reader.batches(0, reader.end_offset)]
    assert kept == [(base, 0) for base in (0, 2, 4) if base not in lost]
    reader.close()


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("deleted", [0, 10])
def test_a_leader_epoch_that_rose_at_the_end_of_a_segment_costs_nothing(deleted: int, history: bool) -> None:
    """What the next segment begins with contradicts it: that is saved, and so is the batch itself."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, root.new_topic_id(), LogConfig(segment_bytes=1024))
    for epoch in (3, 5):
        log.become_leader(epoch)
        for _ in range(10):
            log.append_as_leader(batch(2, size=50), epoch)
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.delete_records(deleted)
    log.write_mark()
    segments = log.segments()
    root.close(clean=False)
    for base, size in segments[:-1]:
        damaged = disk.snapshot()
        damaged.flip(f"{ROOT}/t-0/{base:020}.log", size // 5 * 4 + 14, 4)
        if not history:
            damaged.remove(f"{ROOT}/t-0/leader-epoch-checkpoint")
        (plan,) = plan_repair(damaged, ROOT)
        apply_repair(damaged, ROOT, NEW, [plan], clock=CLOCK, random=Random(3))
        # Between two epochs nobody can say which of them it had.
        sure = history or base + 10 != 20
        assert plan.lost == ([] if sure else [(18, 20, "leader epoch 1027 does not belong here")])
        (reader,) = open_readers(damaged, NEW).values()
        kept = [(one.base_offset, one.leader_epoch) for one in reader.batches(reader.start_offset, reader.end_offset)]
        reader.close()
        assert kept == [(base, 3 if base < 20 else 5) for base in range(deleted, 40, 2) if sure or base != 18]


@pytest.mark.parametrize("lost", [True, False])
def test_a_deleted_batch_keeps_no_leader_epoch_that_falls_behind_it(lost: bool) -> None:
    """Its epoch is in no history, and those around it differ: it is left out, and what is behind it is saved."""
    disk = SimDisk(Random(1))
    root, log = led(disk, 3)
    log.append_as_leader(batch(2, size=50), 3)
    for epoch in (3, 5, 5):
        log.become_leader(epoch)
        log.append_as_leader(batch(2, size=50), epoch)
    sync(disk, log)
    log.advance_high_watermark(8)
    log.delete_records(4)
    root.close()
    path = f"{ROOT}/t-0/{0:020}.log"
    if lost:
        disk.flip(path, disk.open(path).size() // 4 + 15, 8)
    (plan,) = plan_repair(disk, ROOT)
    apply_repair(disk, ROOT, NEW, [plan], clock=CLOCK, random=Random(3))
    assert plan.lost == []
    (reader,) = open_readers(disk, NEW).values()
    assert [(one.base_offset, one.leader_epoch) for one in reader.batches(4, 8)] == [(4, 5), (6, 5)]
    reader.close()


def test_no_batch_is_moved_to_where_nothing_agrees_with_it() -> None:
    """A later segment's file lies in the place of the first one, and is gone itself: what is in it has whole
    checksums, and its offsets are not those that are missing, although nothing follows to contradict them."""
    sound = golden("own")
    disk = sound.disk.snapshot()
    moved = bytes(disk.open(f"{ROOT}/t-0/{5:020}.log").read_at(0, 1 << 20))
    for base in (0, 5, 10):
        disk.remove(f"{ROOT}/t-0/{base:020}.log")
    file = disk.create(f"{ROOT}/t-0/{0:020}.log")
    file.write_at(0, [moved[: moved.index(b"\x00" * 7 + b"\x06")]])
    file.close()
    disk.write_back()
    plan, found = repaired(disk)
    assert found[KEY] == ()
    assert [(one.start, one.end) for one in plan.lost] == [(0, 12)]


@pytest.mark.parametrize("pair", [(1, 6), (4, 5), (1, 3)])
def test_segments_that_changed_places_are_not_saved_as_each_other(pair: tuple[int, int]) -> None:
    """One batch each, of one length and one count: all but the offsets would agree, which may be one flipped bit
    apart."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, root.new_topic_id(), LogConfig(segment_bytes=1024))
    log.become_leader(0)
    for number in range(8):
        log.append_as_leader(batch(1, size=700, tag=b"%d-" % number), 0)
    sync(disk, log)
    log.advance_high_watermark(8)
    root.close()
    one, other = (f"{ROOT}/t-0/{base:020}.log" for base in pair)
    for source, target in ((one, "kept"), (other, one), ("kept", other)):
        disk.rename(source, target)
    plan, found = repaired(disk)
    content = found[KEY]
    assert not isinstance(content, str)
    assert [base for base, _, _ in content] == [base for base in range(8) if base not in pair]
    assert sorted({base for lost in plan.lost for base in range(lost.start, lost.end)}) == [*pair]


@pytest.mark.parametrize(("place", "written"), [(4, 5), (5, 4), (2, 3), (2, 6)])
def test_a_batch_that_was_written_to_the_place_of_another_one_is_not_saved_twice(place: int, written: int) -> None:
    """Its offset is one flipped bit from the one that is missing, and all else agrees; but the batch of that offset
    is there, too."""
    disk = SimDisk(Random(1))
    root, log = led(disk, 0)
    for number in range(8):
        log.append_as_leader(batch(1, size=700, tag=b"%d-" % number), 0)
    sync(disk, log)
    log.advance_high_watermark(8)
    root.close()
    path = f"{ROOT}/t-0/{0:020}.log"
    file = disk.open(path, write=True)
    size = file.size() // 8
    file.write_at(place * size, [bytes(file.read_at(written * size, size))])
    file.close()
    disk.write_back()
    plan, found = repaired(disk)
    content = found[KEY]
    assert not isinstance(content, str)
    assert [base for base, _, _ in content] == [base for base in range(8) if base != place]
    assert [(lost.start, lost.end) for lost in plan.lost] == [(place, place + 1)]


@pytest.mark.parametrize("position", [*range(8), 12, 13, 16, 17])
def test_a_header_is_mended_before_a_torn_tail(position: int) -> None:
    """Nothing behind the last batch says where it ends, but its own header does."""
    sound = golden("own")
    disk = sound.disk.snapshot()
    path = max(path for path in files(disk) if path.endswith(".log"))
    last = sound.full[KEY][-1]
    file = disk.open(path, write=True)
    at = file.size() - len(last[2])
    file.write_at(file.size(), [b"torn" * 40])
    file.close()
    disk.write_back()
    disk.flip(path, at + position, 1)
    plan, found = repaired(disk)
    assert (plan.lost, [(one.start, one.end) for one in plan.mended]) == ([], [(last[0], last[1])])
    assert found[KEY] == sound.full[KEY]


def half_replaced(swaps: Sequence[int], *, originals: bool, cleaned: Sequence[int] = ()) -> SimDisk:
    """A broker's folder of four segments, whose replacement was interrupted: those of ``swaps`` are still to get
    their names (``originals``: what they replace is still there), those of ``cleaned`` were not ready."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, root.new_topic_id(), LogConfig(segment_bytes=1024))
    log.become_leader(3)
    for _ in range(20):
        log.append_as_leader(batch(2, size=50), 3)
    sync(disk, log)
    log.advance_high_watermark(40)
    root.close()
    for path in list(files(disk)):
        if "/replog." in path or "clean" in path:
            disk.remove(path)
    for suffix, bases in ((".swap", swaps), (".cleaned", cleaned)):
        for base in bases:
            path = f"{ROOT}/t-0/{base:020}.log"
            file = disk.create(path + suffix)
            file.write_at(0, [disk.open(path).read_at(0, 1 << 20)])
            file.close()
            if not originals:
                for other in ("log", "index", "timeindex"):
                    disk.remove(f"{path[:-3]}{other}")
    disk.write_back()
    return disk


@pytest.mark.parametrize("swaps", [[0], [10], [30], [10, 20], [0, 10, 20, 30]])
@pytest.mark.parametrize("originals", [True, False])
def test_what_an_interrupted_replacement_left_is_kept(swaps: list[int], originals: bool) -> None:
    """Segments under names that they were about to lose are part of the log, as for whoever opens or reads it."""
    disk = half_replaced(swaps, originals=originals)
    book = verify(disk, ROOT)
    assert {one.what for one in book.findings if one.level is not Level.NOTE} == {"replacing segments was interrupted"}
    assert book.batch_count == 20
    plan, found = repaired(disk)
    assert (plan.lost, plan.dropped) == ([], [])
    assert found[KEY] == served(disk)[KEY]
    assert len(found[KEY]) == 20


def test_a_replacement_without_content_replaces_nothing() -> None:
    """The segment that it was made of is still there, and is read, checked and kept instead."""
    disk = half_replaced([10], originals=True)
    disk.open(f"{ROOT}/t-0/{10:020}.log.swap", write=True).truncate(0)
    book = verify(disk, ROOT)
    assert (book.worst, book.batch_count) == (Level.WARNING, 20)
    plan, found = repaired(disk)
    assert (plan.lost, plan.dropped) == ([], [])
    assert found[KEY] == served(disk)[KEY]
    assert len(found[KEY]) == 20


def test_a_replacement_that_was_not_ready_is_not_taken() -> None:
    """What it was to replace is there, and counts: a damaged part of it is nobody's."""
    disk = half_replaced([20], originals=True, cleaned=[10])
    disk.flip(f"{ROOT}/t-0/{20:020}.log.swap", 70)
    assert verify(disk, ROOT).worst is Level.WARNING
    plan, found = repaired(disk)
    assert plan.lost == []
    assert found[KEY] == served(disk)[KEY]


def test_damage_in_a_replacement_is_damage() -> None:
    """The original is gone, or goes at the next opening."""
    disk = half_replaced([10], originals=False)
    disk.flip(f"{ROOT}/t-0/{10:020}.log.swap", 70)
    assert verify(disk, ROOT).worst is Level.DAMAGE
    (plan,) = plan_repair(disk, ROOT)
    assert [(one.start, one.end) for one in plan.lost] == [(10, 12)]


@pytest.mark.parametrize("behind", [bytes(1), bytes(8), bytes(100), b"garbage!" * 12], ids=["1", "8", "100", "garbage"])
def test_what_lies_behind_a_whole_segment_costs_nothing(behind: bytes) -> None:
    """Its batches reach up to the next segment: nothing is lost between them."""
    sound = golden("own")
    disk = sound.disk.snapshot()
    path = f"{ROOT}/t-0/{0:020}.log"
    file = disk.open(path, write=True)
    file.write_at(file.size(), [behind])
    file.close()
    plan, found = repaired(disk)
    assert (plan.lost, plan.mended, plan.dropped) == ([], [], [])
    assert found[KEY] == sound.full[KEY]


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_what_was_deleted_stays_so_although_the_end_is_lost(cut: int) -> None:
    """Behind the log's start nothing is left: the deleted records before it are not saved, and the new log goes on
    at the start."""
    disk = SimDisk(Random(1))
    root, log = led(disk, 0)
    for _ in range(10):
        log.append_as_leader(batch(2, size=50), 0)
    sync(disk, log)
    log.advance_high_watermark(20)
    log.delete_records(19)
    root.close()
    path = f"{ROOT}/t-0/{0:020}.log"
    file = disk.open(path, write=True)
    file.truncate(file.size() - cut)
    file.close()
    plan, found = repaired(disk)
    assert [(one.start, one.end) for one in plan.lost] == [(19, 20)]
    assert found[KEY] == ()
    (reader,) = open_readers(disk, NEW).values()
    assert (reader.start_offset, reader.end_offset) == (19, 19)
    reader.close()


def test_a_segment_whose_name_is_above_every_offset_is_none() -> None:
    """Readers and writers do not see it either: what it holds is lost, and the rest is saved."""
    disk = golden("packed").disk.snapshot()
    names = sorted(name for name in disk.list(f"{ROOT}/t-0") if name.endswith(".log"))
    sound = golden("packed").full[KEY]
    disk.rename(f"{ROOT}/t-0/{names[-1]}", f"{ROOT}/t-0/{'9' * 20}.log")
    plan, found = repaired(disk)
    check(plan, found[KEY], sound)
    assert plan.lost[-1].end == sound[-1][1]


def test_the_beginning_and_a_whole_segment() -> None:
    """A first batch, a middle segment, the last one: what is gone is named exactly."""
    sound = golden("own")
    whole = sound.full[KEY]
    segments = [path for path in files(sound.disk) if path.endswith(".log")]
    for path in segments:
        disk = sound.disk.snapshot()
        disk.remove(path)
        plan, found = repaired(disk)
        content = found[KEY]
        check(plan, content, whole)
        assert len(plan.lost) == 1
        assert plan.lost[0].start == int(path[-24:-4])


def test_two_replicas_make_one_whole() -> None:
    """What one replica lost is taken from another, and said; what both lost is lost."""
    sound = golden("own")
    disk = SimDisk(Random(1))
    for root in ("node-1", "node-2"):
        for path in files(sound.disk):
            target = f"cluster/{root}/{path.removeprefix(ROOT + '/')}"
            disk.make_directory(target.rpartition("/")[0])
            file = disk.create(target)
            content = bytes(sound.disk.open(path).read_at(0, 1 << 20))
            if path.endswith("meta.properties"):
                content = content.replace(b"node.id=0", b"node.id=" + root[-1:].encode())
            file.write_at(0, [content])
            file.close()
    segments = [path.removeprefix(ROOT + "/") for path in files(sound.disk) if path.endswith(".log")]
    disk.flip(f"cluster/node-1/{segments[0]}", 100)
    disk.flip(f"cluster/node-2/{segments[1]}", 100)
    plan, found = repaired(disk.snapshot(), "cluster")
    assert plan.lost == []
    assert len(plan.borrowed) == 1
    assert found[KEY] == sound.full[KEY]
    disk.flip(f"cluster/node-2/{segments[0]}", 101)
    plan, found = repaired(disk, "cluster")
    assert [(one.start, one.end) for one in plan.lost] == [(0, 1)]
    check(plan, found[KEY], sound.full[KEY])


@pytest.mark.parametrize("history", [True, False])
def test_what_another_leader_wrote_is_not_borrowed(history: bool) -> None:
    """A replica that led for a moment alone has records of its own at offsets that another one lost: they were
    never committed, and are not taken for what is lost, also where the history of epochs cannot be read. What is of
    the same epoch is taken."""
    disk = SimDisk(Random(1))
    common = [(1, b"a"), (1, b"b"), (1, b"c")]
    for root_path, batches in (
        ("cluster/node-1", [*common, (3, b"d"), (3, b"e")]),
        ("cluster/node-2", [*common, (2, b"x")]),
    ):
        root = LogRoot.open(disk, root_path, clock=CLOCK, random=Random(1), node_id=int(root_path[-1]))
        log = root.create_log("t", 0, "AbCdEfGhIjKlMnOpQrStUw", LogConfig())
        for epoch, tag in batches:
            log.append_as_leader(batch(2, size=50, tag=tag), epoch)
        sync(disk, log)
        log.advance_high_watermark(log.end_offset)
        root.close()
        if not history:
            disk.remove(f"{root_path}/t-0/leader-epoch-checkpoint")
    path = f"cluster/node-1/t-0/{0:020}.log"
    size = disk.open(path).size() // 5
    for number in (1, 3):
        disk.flip(path, number * size + 100)
    (plan,) = plan_repair(disk, "cluster")
    assert [(one.start, one.end) for one in plan.borrowed] == [(2, 4)]
    assert [(one.start, one.end) for one in plan.lost] == [(6, 8)]
    apply_repair(disk, "cluster", NEW, [plan], clock=CLOCK, random=Random(3))
    (reader,) = open_readers(disk, NEW).values()
    assert [(one.base_offset, one.leader_epoch) for one in reader.batches(0, 10)] == [(0, 1), (2, 1), (4, 1), (8, 3)]
    reader.close()


def test_never_in_place_and_never_over_something() -> None:
    """The target is new or empty, and apart from the source."""
    sound = golden("own")
    disk = sound.disk.snapshot()
    plans = plan_repair(disk, ROOT)
    disk.make_directory("taken/x")
    for target in (ROOT, f"{ROOT}/new", "taken"):
        with pytest.raises(ConfigError):
            apply_repair(disk, ROOT, target, plans, clock=CLOCK, random=Random(3))


@pytest.mark.parametrize("name", ["txn", "idempotent"])
def test_what_kafka_wrote(name: str) -> None:
    """A partition of a broker becomes a log of ours with the same batches; with one flip, all but one of them."""
    sound = golden(name)
    (key,) = sound.full
    plan, found = repaired(sound.disk.snapshot())
    content = found[key]
    check(plan, content, sound.full[key])
    logs = [path for path in files(sound.disk) if path.endswith(".log") and sound.disk.stat(path).size]  # type: ignore[union-attr]
    disk = sound.disk.snapshot()
    disk.flip(logs[0], 70)
    plan, found = repaired(disk)
    content = found[key]
    check(plan, content, sound.full[key])
    assert len(plan.lost) == 1


@pytest.mark.parametrize("name", ["txn", "idempotent"])
def test_an_offset_that_is_wrong_in_a_folder_of_kafkas_costs_nothing(name: str) -> None:
    """There offsets may be missing, and a batch that says a later one than comes next is believed: not where those
    behind it say less."""
    sound = golden(name)
    (key,) = sound.full
    content = sound.full[key]
    assert not isinstance(content, str)
    places = [
        (path, data.index(batch), base, end)
        for path in files(sound.disk)
        if path.endswith(".log") and (data := sound.disk.open(path).read_at(0, 1 << 20).tobytes())
        for base, end, batch in content[:-1]
        if batch in data
    ]
    assert len(places) > 10
    for path, position, base, end in places[:: len(places) // 10]:
        for byte in range(1, 8):
            disk = sound.disk.snapshot()
            disk.flip(path, position + byte, 0x40)
            (damage,) = (one for one in verify(disk, ROOT).findings if one.level is Level.DAMAGE)
            assert (damage.path, damage.position, damage.start, damage.end) == (path, position, base, end)
            plan, found = repaired(disk)
            assert (plan.lost, [(one.start, one.end) for one in plan.mended]) == ([], [(base, end)])
            assert found[key] == content
