"""Edge cases 91 to 103 that are about truncation, about what opening finds, and what it makes of it. 92 to 104:
test_edge_cases.py too."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import (
    CorruptLogError,
    OutOfOrderSequenceError,
    UnexpectedAppendOffsetError,
    UnknownProducerIdError,
)
from pyreplog.log import Log, LogRoot, RecoveryContext
from pyreplog.log.layout import TORN_PREFIX, parse_base_offset, segment_name
from pyreplog.log.producer_snapshot import parse_producers
from pyreplog.record import split
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import MUTATING, Call
from pyreplog.values import TopicPartition
from tests.interop.edges.support import INT32_MAX, filled, segments
from tests.unit.log.conftest import Place
from tests.unit.log.producing import send
from tests.unit.log.support import CLOCK, batch, contents, create, raw, reopen, sync

KEY = TopicPartition("events", 0)
ID = "AbCdEfGhIjKlMnOpQrStUw"


def root_of(place: Place, name: str = "root", seed: int = 1) -> LogRoot:
    """A root in the folder."""
    return LogRoot.open(place.disk, place.of(name), clock=CLOCK, random=Random(seed))


def begun(root: LogRoot, count: int = 3) -> Log:
    """A log in a root, with some records, synced."""
    log = root.create_log("events", 0, ID, LogConfig(segment_bytes=1024))
    log.become_leader(0)
    for _ in range(count):
        log.append_as_leader(batch(3), 0)
    sync(root.disk, log)
    return log


def test_e091_truncation_at_the_end(place: Place) -> None:
    """At the end and one above it no byte changes, but an epoch that began there and wrote nothing goes,
    durably."""
    log = filled(place)
    whole, listed = raw(log), log.segments()
    for offset in (80, 81, 10**12):
        log.become_leader(log.epochs.latest + 5)
        assert log.epochs.entries[-1].start_offset == 80
        log.truncate_to(offset)
        assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0)]
        assert place.read("t-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
        assert (raw(log), log.segments(), log.end_offset, log.generation) == (whole, listed, 80, 0)
        # The next one begins as if nothing had been.
    assert log.epochs.latest == 0
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert ([tuple(entry) for entry in log.epochs.entries], log.end_offset) == ([(0, 0)], 80)
    log.close(clean=True)


def test_e094_a_clean_marker_spares_the_scan(place: Place) -> None:
    """With the marker of a clean stop segments are not scanned; without it they are. The tail is looked at all the
    same, unlike in Kafka: a marker hides no torn tail."""
    root = root_of(place)
    log = begun(root, 60)
    log.set_high_watermark(log.end_offset)
    whole = raw(log)
    root.close()
    assert place.disk.stat(place.of("root/.kafka_cleanshutdown")) is not None
    root = root_of(place, seed=2)
    assert place.disk.stat(place.of("root/.kafka_cleanshutdown")) is None
    log = root.logs[KEY]
    assert (root.clean, log.recovery.clean, raw(log)) == (True, True, whole)
    last = segments(log)[-1].size
    assert log.recovery.scanned_size <= last < len(whole) // 3
    root.close(clean=False)
    for name in place.disk.list(place.of("root/events-0")):
        if name == "replog.mark":
            place.disk.remove(place.of(f"root/events-0/{name}"))
    root = root_of(place, seed=3)
    log = root.logs[KEY]
    assert (root.clean, log.recovery.clean, raw(log)) == (False, False, whole)
    assert log.recovery.scanned_size >= len(whole)
    base = segments(log)[-1].base_offset
    root.close()
    name = f"root/events-0/{segment_name(base, '.log')}"
    good = place.read(name)
    place.write(name, good + b"garbage")
    root = root_of(place, seed=4)
    log = root.logs[KEY]
    assert (root.clean, log.recovery.clean, log.recovery.torn_size, raw(log)) == (True, False, 7, whole)
    root.close()
    place.write(name, good[:-3])
    root = root_of(place, seed=5)
    assert isinstance(root.damaged[KEY], CorruptLogError)
    assert place.read(name) == good[:-3]
    root.close()


@pytest.mark.parametrize("place", ["sim"], indirect=True)
@pytest.mark.parametrize("torn", [b"", b"garbage"])
def test_e094_a_crash_while_loading(place: Place, torn: bytes) -> None:
    """A root that was stopped cleanly and dies while it is opened again, at whatever call, by a kill or a power
    cut: as soon as anything in a partition may have changed, the next opening takes it for unclean. Nothing is lost
    at any."""
    disk = place.disk
    assert isinstance(disk, SimDisk)
    root = root_of(place)
    log = begun(root, 10)
    log.set_high_watermark(log.end_offset)
    whole = raw(log)
    name = f"root/events-0/{segment_name(segments(log)[-1].base_offset, '.log')}"
    root.close()
    if torn:
        place.write(name, place.read(name) + torn)
    disk.write_back()
    left: list[tuple[Call, bool, SimDisk]] = []

    def before(call: Call) -> None:
        if call.kind in MUTATING:
            disk.observer = None
            left.append((call, True, disk.snapshot()))
            left.extend((call, False, disk.crash(Random(seed))) for seed in range(4))
            disk.observer = before

    disk.observer = before
    again = root_of(place, seed=2)
    assert again.clean
    assert raw(again.logs[KEY]) == whole
    disk.observer = None
    left.append((Call(10**9, "end", "events-0/"), True, disk.snapshot()))
    clean = unclean = 0
    loading = False
    for number, (call, killed, after) in enumerate(left):
        loading = loading or "events-0/" in call.path
        other = LogRoot.open(after, place.of("root"), clock=CLOCK, random=Random(100 + number))
        clean, unclean = clean + other.clean, unclean + (not other.clean)
        assert not (loading and other.clean), (str(call), killed)
        assert raw(other.logs[KEY]) == whole, (str(call), killed)
        assert other.logs[KEY].recovery.clean or not (other.clean and not torn)
        other.close()
    assert loading
    assert clean > 1
    assert unclean > 5


def test_e096_a_wrong_batch_in_the_middle(place: Place) -> None:
    """Above the durable mark it ends the log there, and later segments go, all of it kept beside the log, where
    Kafka drops it. Below the mark nothing is cut, unlike in Kafka: the batch is named and no file is touched."""
    log = filled(place)
    whole = raw(log)
    size = batch(2).nbytes
    log.close(clean=False)
    names = sorted(name for name in place.disk.list(place.of("t-0")) if parse_base_offset(name) is not None)
    assert len(names) > 4
    broken = bytearray(place.read(f"t-0/{names[1]}"))
    good = len(place.read(f"t-0/{names[0]}")) + size
    broken[size + 40] ^= 1
    place.write(f"t-0/{names[1]}", bytes(broken))
    log = reopen(place.disk, place.of("t-0"), same_boot=False)
    assert raw(log) == whole[:good]
    assert log.end_offset == good // size * 2
    assert log.recovery.torn_size == len(whole) - good
    kept = [place.read(f"t-0/{name}") for name in place.disk.list(place.of("t-0")) if name.startswith(TORN_PREFIX)]
    assert sum(len(one) for one in kept) == len(whole) - good
    assert sorted(name for name in place.disk.list(place.of("t-0")) if parse_base_offset(name) is not None) == names[:2]
    # It goes on there, and what was cut does not come back.
    assert log.append_as_leader(batch(2), 0).base_offset == good // size * 2
    sync(place.disk, log)
    log.write_mark()
    base = segments(log)[-1].base_offset
    assert base > 0
    log.close(clean=False)
    broken = bytearray(place.read(f"t-0/{names[1]}"))
    broken[40] ^= 1
    place.write(f"t-0/{names[1]}", bytes(broken))
    before = {name: place.read(f"t-0/{name}") for name in names[:2]}
    with pytest.raises(CorruptLogError) as caught:
        reopen(place.disk, place.of("t-0"), same_boot=False)
    assert (caught.value.start, caught.value.end) == (base, base + 2)
    assert {name: place.read(f"t-0/{name}") for name in names[:2]} == before


@pytest.mark.parametrize("clean", [True, False])
def test_e098_a_crash_while_segments_are_replaced(place: Place, clean: bool) -> None:
    """Two segments made one, and one split in two: in whichever phase it ended, opening the log finishes what was
    ready and drops what was not, every record is there once, and nothing half-made stays."""
    log = filled(place)
    log.set_high_watermark(80)
    whole, bases = raw(log), [segment.base_offset for segment in segments(log)]
    log.close(clean=True)
    files = {name: place.read(f"t-0/{name}") for name in place.disk.list(place.of("t-0"))}
    first, second = (segment_name(base, "") for base in bases[:2])
    size = batch(2).nbytes
    half = len(files[f"{first}.log"]) // size // 2
    middle = segment_name(2 * half, "")
    joined = files[f"{first}.log"] + files[f"{second}.log"]
    parts = (files[f"{first}.log"][: half * size], files[f"{first}.log"][half * size :])
    kinds = ("log", "index", "timeindex")

    def made(stem: str, content: bytes, log: str = "", others: str = "") -> dict[str, bytes]:
        """The three files of a replacement, under these suffixes. Its indexes are empty: they can be made anew."""
        return {f"{stem}.log{log}": content, f"{stem}.index{others}": b"", f"{stem}.timeindex{others}": b""}

    def gone(*stems: str) -> dict[str, str]:
        """What of the old segments has its last name already."""
        return {f"{stem}.{kind}": f"{stem}.{kind}.deleted" for stem in stems for kind in kinds}

    kept, replaced, split_up = bases, [bases[0], *bases[2:]], [bases[0], 2 * half, *bases[1:]]
    both = made(first, parts[0], ".swap", ".swap") | made(middle, parts[1], ".swap", ".swap")
    phases: list[tuple[dict[str, str], dict[str, bytes], list[int]]] = [
        ({}, {f"{first}.log.cleaned": joined[:100]}, kept),
        ({}, made(first, joined, ".cleaned", ".cleaned"), kept),
        ({}, made(first, joined, ".swap", ".cleaned"), kept),
        ({}, made(first, joined, ".swap", ".swap"), replaced),
        # Not Kafka's: nothing is left of the replacement. What it was made of is there, and stays.
        ({}, made(first, b"", ".swap", ".swap"), kept),
        ({}, made(second, bytes(200), ".swap", ".swap"), kept),
        (gone(first), made(first, joined, ".swap", ".swap"), replaced),
        (gone(first, second), made(first, joined, ".swap", ".swap"), replaced),
        (gone(first, second), made(first, joined, "", ".swap"), replaced),
        (gone(first, second), made(first, joined), replaced),
        ({}, made(first, parts[0], ".cleaned", ".cleaned") | made(middle, parts[1], ".cleaned", ".cleaned"), kept),
        ({}, made(first, parts[0], ".cleaned", ".cleaned") | made(middle, parts[1], ".swap", ".swap"), kept),
        ({}, both, split_up),
        (gone(first), both, split_up),
        (gone(first), made(first, parts[0], "", ".swap") | made(middle, parts[1], ".swap", ".swap"), split_up),
        (gone(first), made(first, parts[0]) | made(middle, parts[1]), split_up),
    ]
    for number, (renamed, added, expected) in enumerate(phases):
        for name in place.disk.list(place.of("t-0")):
            place.disk.remove(place.of(f"t-0/{name}"))
        for name, content in files.items():
            place.write(f"t-0/{renamed.get(name, name)}", content)
        for name, content in added.items():
            place.write(f"t-0/{name}", content)
        for _ in range(2):
            log = reopen(place.disk, place.of("t-0"), clean=clean)
            assert (raw(log), [base for base, _ in log.segments()]) == (whole, expected), number
            assert [one.offset for one in contents(log)] == list(range(80))
            left = place.disk.list(place.of("t-0"))
            assert not [name for name in left if name.endswith((".cleaned", ".swap", ".deleted"))], number
            assert not log.recovery.torn_size
            log.close(clean=True)


def test_e099_a_start_above_the_end(place: Place) -> None:
    """A log start checkpoint above the log's end is not believed, and said to be so; Kafka would delete every
    segment and begin there."""
    log = filled(place, 5)
    whole = raw(log)
    log.close(clean=True)
    for mark in (True, False):
        for clean in (True, False):
            if not mark and place.disk.stat(place.of("t-0/replog.mark")) is not None:
                place.disk.remove(place.of("t-0/replog.mark"))
            log = Log.open(
                place.disk,
                place.of("t-0"),
                TopicPartition("t", 0),
                None,
                CLOCK,
                None,
                RecoveryContext(clean=clean, same_boot=True, log_start_offset=1000),
            )
            assert (raw(log), log.start_offset, log.end_offset) == (whole, 0, 10)
            if not mark:
                assert any("was ignored" in note for note in log.recovery.notes)
            log.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
def test_e100_snapshots_of_producers(place: Place, clean: bool) -> None:
    """Of snapshots that belong to no segment the newest stays, at the log's end; others go. A damaged one is passed
    over for an older one and made anew. With none at all the batches are scanned, also after a clean stop, where
    Kafka would know no producer."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    for number in range(40):
        send(log, number)
    bases = [segment.base_offset for segment in segments(log)]
    sync(place.disk, log)
    log.close(clean=True)

    def snapshots() -> list[int]:
        """Their offsets."""
        found = (parse_base_offset(name, ".snapshot") for name in place.disk.list(place.of("t-0")))
        return sorted(offset for offset in found if offset is not None)

    assert snapshots() == [*bases[1:], 40]
    content = {offset: place.read(f"t-0/{segment_name(offset, '.snapshot')}") for offset in snapshots()}

    def check() -> None:
        """Opened again, what was sent is known."""
        log = reopen(place.disk, place.of("t-0"), clean=clean)
        assert send(log, 39)[2] is True
        with pytest.raises(OutOfOrderSequenceError):
            send(log, 41)
        with pytest.raises(UnknownProducerIdError):
            send(log, 3, producer=8)
        log.close(clean=True)
        assert snapshots() == [*bases[1:], 40]
        for offset in snapshots():
            parse_producers(place.read(f"t-0/{segment_name(offset, '.snapshot')}"), "x")

    # Strays: between, at no base, and beyond the end.
    for offset in (3, bases[-1] + 1, 4000):
        place.write(f"t-0/{segment_name(offset, '.snapshot')}", content[bases[1]])
    check()
    for damaged in ([40], [40, bases[-1]], [*bases[1:], 40]):
        for offset in damaged:
            rotten = bytearray(content[offset])
            rotten[-1] ^= 1
            place.write(f"t-0/{segment_name(offset, '.snapshot')}", bytes(rotten))
        check()
    for offset in snapshots():
        place.disk.remove(place.of(f"t-0/{segment_name(offset, '.snapshot')}"))
    log = reopen(place.disk, place.of("t-0"), clean=clean)
    assert send(log, 39)[2] is True
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 41)
    log.close(clean=True)


def test_e102_where_a_cut_log_ends(place: Place) -> None:
    """Cut where a batch begins the log ends exactly there; within a batch, or in a gap, where the last whole batch
    ends, which is where Kafka's end is too once it was opened again. What a follower fetches then begins there: the
    batch that it was cut in comes whole. Would it end at the very offset, in the middle of its leader's batch,
    nothing could be appended any more."""
    leader = create(place.disk, place.of("l-0"))
    for count in (4, 6, 3):
        leader.append_as_leader(batch(count, tag=b"l"), 0)  # 0, 4, 10; to 13
    for offset, expected in ((4, 4), (10, 10), (5, 4), (7, 4), (9, 4), (11, 10), (3, 0), (0, 0), (12, 10), (13, 13)):
        log = create(place.disk, place.of(f"f{offset}-0"))
        for base, count in ((0, 4), (4, 6), (10, 3)):
            log.append_as_follower([batch(count, base_offset=base, leader_epoch=0, tag=b"l")])
        log.set_high_watermark(13)
        sync(place.disk, log)
        log.close(clean=True)
        log = reopen(place.disk, place.of(f"f{offset}-0"), clean=True)
        log.truncate_to(offset)
        assert (log.end_offset, log.flushed_offset, log.high_watermark) == (expected, min(expected, 13), expected)
        assert len(contents(log)) == expected
        for clean in (False, True):
            log.close(clean=clean)
            log = reopen(place.disk, place.of(f"f{offset}-0"), clean=clean)
            assert log.end_offset == expected
        # As a follower goes on.
        while log.end_offset < leader.end_offset:
            log.append_as_follower(leader.read(log.end_offset, 1, leader.end_offset).parts(), at_end=True)
        assert raw(log) == raw(leader)
        log.close(clean=True)
    (whole,) = leader.read(7, 1, 13).parts()
    assert split(whole)[0].base_offset == 4
    log = create(place.disk, place.of("m-0"), start_offset=7)
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append_as_follower([whole])
    log.close(clean=True)
    leader.close(clean=True)


def test_e103_offsets_far_apart(place: Place) -> None:
    """A log whose records lie more than 2**31 offsets apart, as after much compaction, is appended to, opened, read
    and searched."""
    log = create(place.disk, place.of("t-0"))
    bases = [0, 2**31 + 5, 2**33, 2**33 + 2**31, 2**62]
    for number, base in enumerate(bases):
        log.append_as_follower([batch(2, base_offset=base, leader_epoch=0, timestamp=1000 * number)])
    expected = [base + delta for base in bases for delta in (0, 1)]
    starts = [base for base, _ in log.segments()]
    assert len(starts) == len(bases)
    for start, following in zip(starts, [*starts[1:], 2**63], strict=True):
        held = [one for one in expected if start <= one < following]
        assert len(held) == 2
        assert held[-1] - start <= INT32_MAX
    sync(place.disk, log)
    log.set_high_watermark(log.end_offset)
    log.close(clean=False)
    for clean in (False, True, True):
        log = reopen(place.disk, place.of("t-0"), clean=clean, same_boot=False)
        assert [one.offset for one in contents(log)] == expected
        assert (log.end_offset, log.recovery.torn_size) == (2**62 + 2, 0)
        log.set_tail_cache_size(0)
        assert contents(log, 77)[0].offset == 2**31 + 5
        assert log.find_timestamp(2500, log.end_offset) == (2**33 + 2**31, 3000)
        log.close(clean=True)
