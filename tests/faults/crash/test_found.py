"""What crash points and failing calls found, each as small as it gets."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, CorruptError, CorruptLogError, StorageError
from pyreplog.log import Log, LogRoot, open_readers
from pyreplog.log.mark import MarkFile, MarkState, find_mark
from pyreplog.record import split
from pyreplog.runtime import open_log
from pyreplog.runtime.background import Background
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import MUTATING, Call
from pyreplog.values import TopicPartition
from tests.unit.log.support import CLOCK, batch, contents, create, raw, reopen, sync

PATH: Final = "data/t-0"
SMALL: Final = LogConfig(segment_bytes=1200, index_interval_bytes=100)


def fresh(config: LogConfig = SMALL) -> tuple[SimDisk, Log]:
    """A disk and a new log on it, both durable."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, PATH, config)
    disk.sync_directory("data")
    disk.sync_directory("")
    return disk, log


def follow(log: Log, epoch: int, *, count: int = 1, tag: bytes = b"") -> None:
    """Append as a follower."""
    for number in range(count):
        one = batch(2, size=80, base_offset=log.end_offset, leader_epoch=epoch, tag=b"%s%d:" % (tag, number))
        log.append_as_follower([bytes(one)])


@pytest.mark.parametrize("left", range(1, 61))
def test_a_torn_header_is_no_old_message(left: int) -> None:
    """A batch whose header lost everything behind its length, the magic byte too, is a torn tail: cut and kept."""
    disk, log = fresh()
    follow(log, 0, count=2)
    sync(disk, log)
    good = raw(log)
    follow(log, 0)
    size = log.stats().size
    file = disk.open(f"{PATH}/00000000000000000000.log", write=True)
    torn = bytes(file.read_at(len(good), left))
    file.write_at(len(good), [torn.ljust(size - len(good), b"\0")])
    after = reopen(disk.snapshot(), PATH, same_boot=False)
    assert raw(after) == good
    assert after.recovery.torn_size == size - len(good)
    assert len(after.recovery.kept) == (1 if any(torn) else 0)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_was_truncated_does_not_come_back_between_what_follows(durability: str) -> None:
    """After a truncation, power loss leaves the old log or a beginning of the new one: never old batches in the
    place of new ones."""
    disk, log = fresh(LogConfig(segment_bytes=100_000, index_interval_bytes=100, durability=durability))  # type: ignore[arg-type]
    follow(log, 0, count=6, tag=b"a")
    sync(disk, log)
    old = raw(log)
    log.truncate_to(4)
    follow(log, 2, count=3, tag=b"b")
    new = raw(log)
    for seed in range(200):
        left = raw(reopen(disk.crash(Random(seed)), PATH, same_boot=False))
        assert old.startswith(left) or new.startswith(left), (
            seed,
            [(one.base_offset, one.leader_epoch) for one in split(left)],
        )


@pytest.mark.parametrize(("kind", "name"), [("create", "*.log"), ("create", "*.timeindex"), ("write", "*index")])
def test_a_roll_that_found_no_room_leaves_nothing_behind(kind: str, name: str) -> None:
    """Where a new segment did not fit on the disk, the log goes on in the old one, and every record is found there,
    also after a kill."""
    disk, log = fresh()
    for number in range(4):
        log.append_as_leader(batch(2, size=50, tag=b"a%d" % number), 0)
    fault = disk.fail(kind, f"{PATH}/{name}", error=errno.ENOSPC)
    with pytest.raises(StorageError, match="No space"):
        while True:
            log.append_as_leader(batch(1, size=500), 0)
    assert fault.hits == 1
    assert log.failure is None
    for number in range(14):
        log.append_as_leader(batch(1, size=20, tag=b"b%d" % number), 0)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    want = contents(log)
    assert [record.offset for record in want] == list(range(log.end_offset))
    assert contents(reopen(disk.snapshot(), PATH)) == want
    log.close(clean=True)
    after = reopen(disk.snapshot(), PATH, clean=True)
    for number in range(8, log.end_offset):
        assert contents(after, number, number + 1) == [want[number]]


@pytest.mark.parametrize(("kind", "name"), [("sync", "replog.mark"), ("sync_directory", "")])
def test_a_failed_sync_of_a_roll_poisons(kind: str, name: str) -> None:
    """A sync that fails for lack of room (as on a file system that allocates late) is a failed sync like any
    other."""
    disk, log = fresh()
    log.append_as_leader(batch(2, size=500), 0)
    disk.fail(kind, f"{PATH}/{name}" if name else PATH, error=errno.ENOSPC)
    with pytest.raises(StorageError):
        for number in range(4):
            log.append_as_leader(batch(2, size=500 + number), 0)
            log.advance_high_watermark(log.end_offset)  # so that the mark has something to say
    with pytest.raises(ClosedError, match="poisoned"):
        log.append_as_leader(batch(1), 0)


def test_no_room_half_way_makes_no_copy_incomplete() -> None:
    """A roll, or a new beginning, that ends half-way for lack of room ends the log; opened again, an ``os`` copy
    has all it had and is as complete as before. (A full disk is no failed sync: with everybody else away it may be
    the last copy there is.)"""
    for call in ("roll", "new beginning"):
        disk, log = fresh(LogConfig(segment_bytes=1024, index_interval_bytes=100, durability="os"))
        for number in range(4):
            log.append_as_leader(batch(2, size=50, tag=b"%d" % number), 0)
        want = contents(log)
        if call == "roll":
            disk.fail("write", "*.mark", error=errno.ENOSPC)
            log.advance_high_watermark(log.end_offset)  # so that the mark has something to say
            with pytest.raises(StorageError, match="No space"):
                log.append_as_leader(batch(1, size=900), 0)
        else:
            disk.fail("create", "*.log", error=errno.ENOSPC)
            with pytest.raises(StorageError, match="No space"):
                log.truncate_fully(100)
            want = []
        with pytest.raises(ClosedError, match="ended"):
            log.append_as_leader(batch(1), 0)
        assert not log.poisoned
        log.close(clean=True)
        again = reopen(disk, PATH, same_boot=True)
        assert contents(again) == want
        assert not again.incomplete
        again.append_as_leader(batch(1), 1)


def test_an_epoch_that_found_no_room_is_written_by_the_next_append() -> None:
    """Where the epoch history did not fit on the disk, the append is refused, and the next one in that epoch writes
    it after all."""
    disk, log = fresh()
    log.append_as_leader(batch(4, size=50), 0)
    disk.fail("create", "*epoch*", error=errno.ENOSPC)
    with pytest.raises(StorageError, match="No space"):
        log.append_as_leader(batch(1), 3)
    for _ in range(14):
        log.append_as_leader(batch(1, size=220), 3)
    sync(disk, log)
    assert [*log.epochs.entries] == [(0, 0), (3, 4)]
    assert reopen(disk.snapshot(), PATH).epochs == log.epochs


def test_a_reader_skips_nothing_that_a_follower_lost() -> None:
    """A ``sync`` follower that was told of a high watermark above its flushed end: after power loss a reader sees
    no hole."""
    holes = 0
    for seed in range(300):
        disk = SimDisk(Random(seed))
        root = LogRoot.open(disk, "data", clock=CLOCK, random=Random(1))
        log = root.create_log("t", 0, root.new_topic_id(), SMALL)
        follow(log, 0, count=2)
        sync(disk, log)
        follow(log, 0, count=10)
        log.advance_high_watermark(log.end_offset)
        log.write_mark()
        want = raw(log)
        left = disk.crash(Random(seed))
        reader = open_readers(left, "data")[TopicPartition("t", 0)]
        seen = b"".join(bytes(one.data) for one in reader.batches(reader.start_offset, reader.end_offset))
        assert want.startswith(seen), seed
        holes += len(seen) < len(want)
    assert holes


def loses_nothing_in_recovery(killed: SimDisk, want: bytes) -> None:
    """What a kill left opens with all of ``want``; power loss at any call of that opening leaves a log of its
    beginning, and no damage."""
    cuts: list[SimDisk] = []

    def during(call: Call) -> None:
        if call.kind in MUTATING:
            cuts.extend(killed.crash(Random(seed)) for seed in range(8))

    killed.observer = during
    assert raw(reopen(killed, PATH)) == want
    assert len(cuts) > 200
    for left in cuts:
        assert want.startswith(raw(reopen(left, PATH, same_boot=False)))


def test_a_lowered_mark_is_durable_before_recovery_goes_by_it() -> None:
    """A process is killed while it begins its log anew, after the mark was lowered and before that was synced;
    power fails while what lies above that mark is written again. The mark that then is on the disk is the higher
    one, and the log below it is whole."""
    disk, log = fresh()
    follow(log, 0, count=30)
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.sync_mark()
    want = raw(log)
    kills: list[SimDisk] = []

    def before(call: Call) -> None:
        if call.kind == "sync" and call.path.endswith("replog.mark"):
            kills.append(disk.snapshot())

    disk.observer = before
    log.truncate_fully(0)
    killed = kills[0]
    loses_nothing_in_recovery(killed, want)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("failures", [1, 2])
def test_a_mark_whose_sync_failed_is_written_again_before_recovery_goes_by_it(failures: int, seed: int) -> None:
    """As above, but it was the sync of the lowered mark that failed: a second one would succeed and make nothing
    durable."""
    disk, log = fresh()
    disk.random.seed(seed)
    follow(log, 0, count=30)
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.sync_mark()
    want = raw(log)
    disk.fail("sync", "*/replog.mark", times=failures)
    with pytest.raises(StorageError):
        log.truncate_fully(0)
    assert log.failure is not None
    killed = disk.snapshot()
    loses_nothing_in_recovery(killed, want)


# -- what the checksum of a batch does not cover --


def stored(count: int = 8) -> tuple[SimDisk, Log]:
    """A log of several small batches in one segment, all durable and shown."""
    disk, log = fresh(LogConfig(segment_bytes=100_000, index_interval_bytes=200))
    for number in range(count):
        if number == 5:
            log.become_leader(2)
        log.append_as_leader(batch(1, size=60, timestamp=1000 + number), log.epochs.latest)
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.close(clean=True)
    return disk, log


@pytest.mark.parametrize("position", range(16))
@pytest.mark.parametrize("victim", [0, 2, 5, 7])
def test_a_wrong_offset_or_epoch_is_never_served(victim: int, position: int) -> None:
    """One flipped bit of a batch's base offset, length or leader epoch: the batch is refused with its range,
    wherever reading begins."""
    disk, _ = stored()
    good = contents(reopen(disk.snapshot(), PATH, clean=True))
    size = disk.stat(f"{PATH}/00000000000000000000.log")
    assert size is not None
    each = size.size // 8
    for bit in range(8):
        damaged = disk.snapshot()
        damaged.flip(f"{PATH}/00000000000000000000.log", victim * each + position, 1 << bit)
        log, reader = reopen_or_none(damaged), open_readers(damaged, PATH)[TopicPartition("t", 0)]
        for start in range(8):
            for size_max in (1, 1 << 20):
                if log is not None:
                    try:
                        assert contents(log, start, start + 1, size_max) == [good[start]]
                    except CorruptError as error:
                        assert not isinstance(error, CorruptLogError) or error.start <= max(victim, start)
                    try:
                        assert log.find_timestamp(1000 + start, log.end_offset) == (start, 1000 + start)
                    except CorruptError:
                        pass
            try:
                found = next(reader.batches(start, start + 1))
                assert (found.base_offset, found.leader_epoch) == (start, 0 if start < 5 else 2)
            except CorruptError:
                pass


@pytest.mark.parametrize("flips", [[(3, 8, 128), (4, 7, 4)], [(6, 7, 4), (1, 8, 128)]], ids=["behind", "before"])
def test_a_length_below_zero_beside_a_wrong_offset_is_damage(flips: list[tuple[int, int, int]]) -> None:
    """(batch, byte, bit) each: whoever walks from one to the other does not walk backwards."""
    disk, _ = stored()
    good = contents(reopen(disk.snapshot(), PATH, clean=True))
    size = disk.stat(f"{PATH}/00000000000000000000.log")
    assert size is not None
    for victim, position, bit in flips:
        disk.flip(f"{PATH}/00000000000000000000.log", victim * (size.size // 8) + position, bit)
    log = reopen(disk, PATH, clean=True)
    sound = min(victim for victim, _, _ in flips)
    assert contents(log, 0, sound) == good[:sound]
    for start in range(sound, 8):
        with suppress(CorruptError):
            assert contents(log, start, start + 1) == [good[start]]
    with pytest.raises(CorruptError):
        contents(log)


def reopen_or_none(disk: SimDisk) -> Log | None:
    """The log as a clean stop left it; None where it is refused."""
    try:
        return reopen(disk.snapshot(), PATH, clean=True)
    except CorruptLogError:
        return None


def test_a_wrong_offset_below_the_mark_is_rot() -> None:
    """Recovery does not take a batch whose offset jumps: below the mark it is reported, above it cut and kept."""
    disk, _ = stored()
    for synced_end in (8, 6):
        damaged = disk.snapshot()
        size = damaged.stat(f"{PATH}/00000000000000000000.log")
        assert size is not None
        damaged.flip(f"{PATH}/00000000000000000000.log", size.size // 8 * 6 + 5, 1)
        mark = MarkFile.open(damaged, PATH, *found_mark(damaged), synced=True)
        mark.write(synced_end, 0, 0)
        mark.close()
        if synced_end == 8:
            with pytest.raises(CorruptLogError, match="has base offset 65542, expected 6") as caught:
                reopen(damaged, PATH)
            assert (caught.value.start, caught.value.end) == (6, 7)
        else:
            log = reopen(damaged, PATH)
            assert log.end_offset == 6
            assert log.recovery.torn_size == size.size // 8 * 2
            assert len(log.recovery.kept) == 1


def found_mark(disk: SimDisk) -> tuple[MarkState, int]:
    """The mark that is there."""
    found = find_mark(disk, PATH)
    assert found is not None
    return found


def test_offsets_with_gaps_of_the_leader_stay_readable() -> None:
    """A follower of a log with gaps keeps them, also over a restart: they are no damage."""
    disk, log = fresh()
    follow(log, 0)
    for base in (5, 9, 20):
        log.append_as_follower([bytes(batch(2, size=300, base_offset=base, leader_epoch=0))])
    sync(disk, log)
    want = [0, 1, 5, 6, 9, 10, 20, 21]
    assert [record.offset for record in contents(log)] == want
    for seed in range(50):
        assert [record.offset for record in contents(reopen(disk.crash(Random(seed)), PATH, same_boot=False))] == want


def test_a_damaged_log_is_not_taken_for_none() -> None:
    """Opening the only topic of a folder without naming it fails where that topic is damaged; no second one is made
    beside it."""
    disk = SimDisk(Random(1))
    with open_log("data", topic="t", disk=disk, clock=CLOCK) as log:
        log.append_many([b"one", b"two"])
    disk.flip(f"{PATH}/00000000000000000000.log", 70)
    with pytest.raises(CorruptLogError):
        open_log("data", disk=disk, clock=CLOCK)
    assert [name for name in disk.list("data") if name.endswith("-0")] == ["t-0"]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_gathered_records_that_found_no_room_are_told_by_flush_and_close(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may have kept their handles: ``flush`` and ``close`` do not return as if they were there."""
    monkeypatch.setattr(Background, "start", lambda _: None)
    disk = SimDisk(Random(1))
    log = open_log("data", disk=disk, clock=CLOCK)
    log.append(b"one")
    log.append_nowait(b"two")
    disk.fail("write", "*.log", error=errno.ENOSPC)
    with pytest.raises(StorageError, match="No space"):
        getattr(log, end)()
    disk.clear_faults()
    log.close()
    with open_log("data", disk=disk, clock=CLOCK) as after:
        assert [record.value for record in after] == [b"one"]


def ends(disk: SimDisk, life: Callable[[], object]) -> list[SimDisk]:
    """What kills and power losses at each call of ``life`` leave of ``disk``, and its end."""
    left: list[SimDisk] = []

    def note(call: Call) -> None:
        if call.kind in MUTATING:
            left.append(disk.snapshot(call, len(call.data)))
            left.extend(disk.crash(Random(f"{call.number}:{seed}")) for seed in range(4))

    disk.observer = note
    life()
    disk.observer = None
    return [*left, disk.snapshot()]


def test_a_log_that_begins_anew_below_its_start_is_opened_after_any_end() -> None:
    """No mark promises what lies between the new beginning and the old one."""
    disk, log = fresh()
    log.truncate_fully(40)
    follow(log, 0)
    sync(disk, log)
    for left in ends(disk, lambda: log.truncate_to(7)):
        after = reopen(left, PATH, same_boot=False)
        assert (after.start_offset, after.end_offset) in {(40, 42), (7, 7)}


def put(disk: SimDisk, path: str, content: bytes) -> None:
    """A file that holds ``content``, in the place of whatever is there."""
    if disk.stat(path) is not None:
        disk.remove(path)
    file = disk.create(path)
    file.write_at(0, [content])
    file.close()


def broker_takes_over(disk: SimDisk) -> None:
    """What a broker leaves that writes to a root of ours, compacts a part of it away and stops in order."""
    base = "root/t-0/" + "0" * 20
    file = disk.open(base + ".log", write=True)
    position = file.size()
    for offset in (8, 14, 16):
        one = bytes(batch(2, base_offset=offset, leader_epoch=1, tag=b"%d" % offset))
        file.write_at(position, [one])
        position += len(one)
    file.close()
    put(disk, "root/t-0/leader-epoch-checkpoint", b"0\n2\n0 0\n1 8\n")
    for name in ("recovery-point", "replication"):
        put(disk, f"root/{name}-offset-checkpoint", b"0\n1\nt 0 18\n")
    put(disk, "root/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":5}')
    disk.write_back()


def test_a_root_that_a_broker_wrote_to_is_taken_back_after_any_end() -> None:
    """The marker that tells of the broker goes before the first log is opened: what it told is kept until the last
    one was."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "root", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, "AbCdEfGhIjKlMnOpQrStUw", SMALL)
    log.become_leader(0)
    for _ in range(4):
        log.append_as_leader(batch(2), 0)
    sync(disk, log)
    log.advance_high_watermark(8)
    root.close()
    disk.remove("root/.kafka_cleanshutdown")
    broker_takes_over(disk)

    def take_back(disk: SimDisk) -> LogRoot:
        return LogRoot.open(disk, "root", clock=CLOCK, random=Random(2))

    lefts = ends(disk, lambda: take_back(disk).close(clean=False))
    assert len(lefts) > 100
    for left in lefts:
        root = take_back(left)
        assert not root.damaged
        found = contents(root.logs[TopicPartition("t", 0)])
        assert [record.offset for record in found] == [*range(10), *range(14, 18)]
        root.close()
        again = take_back(left)
        assert again.clean
        again.close()


def test_an_empty_partition_of_a_broker_stays_after_any_end() -> None:
    """Nobody made it by halves: that somebody else's root is being taken is not forgotten before every partition
    was opened."""
    disk = SimDisk(Random(1))
    disk.make_directory("root/u-0")
    put(disk, "root/meta.properties", b"version=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuw\n")
    put(disk, "root/u-0/partition.metadata", b"version: 0\ntopic_id: ZbCdEfGhIjKlMnOpQrStUw\n")
    for suffix in ("log", "index", "timeindex"):
        put(disk, f"root/u-0/{0:020d}.{suffix}", b"")
    disk.write_back()

    def opened(disk: SimDisk) -> dict[TopicPartition, str]:
        root = LogRoot.open(disk, "root", clock=CLOCK, random=Random(2))
        root.close(clean=False)
        return {key: log.topic_id for key, log in root.logs.items()}

    for left in ends(disk, lambda: opened(disk)):
        assert opened(left) == {TopicPartition("u", 0): "ZbCdEfGhIjKlMnOpQrStUw"}
