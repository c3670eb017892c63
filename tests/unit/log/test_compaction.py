"""Compaction of one log: what stays, when, and how the new segments take the place of the old ones."""

from __future__ import annotations

import gzip
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog._core import BatchWalk, KeyMap
from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, CorruptLogError, InvalidRequestError
from pyreplog.log import Cleaner, Log, LogValidator, cleaner
from pyreplog.log.gaps import Gaps, format_gaps, parse_gaps
from pyreplog.ports import Disk
from pyreplog.record import RecordBatch
from pyreplog.testing.disk import SimDisk
from pyreplog.values import Compaction, TopicPartition
from pyreplog.verify import CheckContext, Level, Report, check_partition
from tests.oracle.batch import Batch, OneRecord, encode_header, encode_record
from tests.oracle.compaction import APPEND_TIME, batches_of, compacted
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, contents, create, raw, reopen, sync

SECRET: Final = bytes(range(16))
DIRECTORY: Final = "data/t-0"
DAY: Final = 86_400_000
SETTINGS: Final[dict[str, Any]] = {"cleanup_policy": "compact", "segment_bytes": 1024, "index_interval_bytes": 100}
NOW: Final = CLOCK.wall_ms()


def config(**settings: Any) -> LogConfig:
    """A compacted log with small segments."""
    return LogConfig(**{**SETTINGS, **settings})


def empty_disk() -> SimDisk:
    """A simulated disk with the folder ``data``."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    return disk


def batch(
    at: int,
    records: list[tuple[bytes | None, bytes | None]],
    *,
    span: int = 0,
    attributes: int = 0,
    producer: int = -1,
    sequence: int = -1,
    timestamp: int = NOW,
) -> bytes:
    """A batch of (key, value) from offset ``at`` on, as a leader of epoch 0 has it."""
    made = [OneRecord(at + n, timestamp + n, key, value) for n, (key, value) in enumerate(records)]
    payload = b"".join(encode_record(one, at, timestamp) for one in made)
    if attributes & 7:
        payload = gzip.compress(payload)
    epoch = 0 if producer >= 0 else -1
    head = Batch(at, 0, attributes, max(len(made) - 1, span), timestamp, made[-1].timestamp, producer, epoch, sequence)
    head.record_count = len(made)
    return encode_header(head, payload)


def append(log: Log, *batches: bytes) -> None:
    """Append them, durable and committed."""
    for one in batches:
        log.append_as_follower([bytearray(one)])
    sync(log.disk, log)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()


def put(log: Log, *records: tuple[bytes, bytes | None]) -> None:
    """Append records, one batch for each, and begin a new segment."""
    for record in records:
        append(log, batch(log.end_offset, [record]))
    log.close_active_segment()


def run(log: Log, now_ms: int = NOW, *, roll: bool = True) -> Compaction:
    """One pass."""
    if roll:
        log.close_active_segment()
    plan = log.cleaning_plan(now_ms)
    one = Cleaner(log.disk, plan, SECRET, lambda: None)
    end = one.map_keys()
    for group in plan.groups(end):
        assert log.install(one.clean(group))
    log.note_cleaned(end)
    return one.result()


def state(log: Log) -> dict[bytes | None, bytes | None]:
    """The newest value of each key, as a reader of everything sees it."""
    return {record.key: record.value for record in contents(log)}


def findings(disk: Disk, path: str) -> list[str]:
    """What the independent look at the folder finds, without notes."""
    book = Report()
    check_partition(disk, path, "t", 0, CheckContext(own=True, bare=False), book)
    return [str(one) for one in book.findings if one.level is not Level.NOTE]


@pytest.mark.parametrize("seed", range(6))
def test_a_pass_leaves_what_the_slow_twin_leaves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several passes, with producers, tombstones, batches of all kinds: the same batches, field for field. Also
    if most batches are larger than what is read at once."""
    draw = Random(seed)
    if seed % 2:
        monkeypatch.setattr(cleaner, "_CHUNK_SIZE", 70)
    disk = empty_disk()
    log = create(disk, DIRECTORY, config(delete_retention_ms=DAY, compact_unkeyed="drop"))
    now, sequences = NOW, {7: 0, 8: 0}
    for _ in range(4):
        for _ in range(draw.randrange(5, 30)):
            keys = [b"k%d" % draw.randrange(12) if draw.random() < 0.9 else None for _ in range(draw.randrange(1, 5))]
            records = [
                (key, None if key is not None and draw.random() < 0.2 else b"v" * draw.randrange(40)) for key in keys
            ]
            producer = draw.choice((-1, -1, 7, 8))
            sequence = sequences.get(producer, -1)
            if producer >= 0:
                sequences[producer] += len(records)
            attributes = draw.choice((0, 0, 0, 1, APPEND_TIME))
            append(
                log,
                batch(
                    log.end_offset,
                    records,
                    attributes=attributes,
                    producer=producer,
                    sequence=sequence,
                    timestamp=now + draw.randrange(1000),
                ),
            )
        log.close_active_segment()
        before = raw(log)
        plan = log.cleaning_plan(now)
        expected = compacted(
            batches_of(before),
            plan.first_dirty,
            plan.first_uncleanable,
            plan.first_uncleanable,
            now_ms=now,
            retention_ms=DAY,
            producers=plan.producers,
        )
        done = run(log, now)
        assert batches_of(raw(log)) == expected
        assert done.end_offset == log.end_offset == log.cleaned_end
        assert done.records_kept == sum(one.record_count for one in expected)
        now += draw.choice((1000, DAY + 2000))
        assert not findings(disk, DIRECTORY)
        for start in range(log.start_offset, log.end_offset, 7):
            assert contents(log, start) == [one for one in contents(log) if one.offset >= start]
    everything = contents(log)
    log.close(clean=True)
    again = reopen(disk, DIRECTORY, clean=False, same_boot=False)
    assert contents(again) == everything
    again.close(clean=True)


def test_a_full_map_compacts_a_part_and_the_next_passes_go_on() -> None:
    """C2, KAFKA-3894: with room for few keys each pass goes on where the last one ended, and all ends."""
    log = create(empty_disk(), DIRECTORY, config(log_cleaner_dedupe_buffer_size=24 * 8))
    put(log, *[(b"k%d" % (number % 30), b"%d" % number) for number in range(90)])
    whole = state(log)
    ends = [run(log).end_offset]
    while ends[-1] < log.end_offset:
        ends.append(run(log).end_offset)
        assert ends[-1] > ends[-2]
        assert state(log) == whole
    assert len(ends) > 5
    log.close(clean=True)


def test_tombstones_go_after_their_time_from_the_first_pass() -> None:
    """C6, KAFKA-8522: the time counts from the first pass over a tombstone, and is kept in its batch."""
    log = create(empty_disk(), DIRECTORY, config(delete_retention_ms=DAY))
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", None), (b"z", b"1"))
    run(log, NOW)
    assert [(one.key, one.value) for one in contents(log)] == [(b"b", b"1"), (b"a", None), (b"z", b"1")]
    put(log, (b"c", b"1"))
    run(log, NOW + DAY - 1)
    assert b"a" in state(log)
    assert log.dropped_tombstone == -1
    put(log, (b"c", b"2"))
    assert run(log, NOW + DAY).dropped_tombstone == 2
    assert b"a" not in state(log)
    assert log.dropped_tombstone == 2
    directory, disk = log.directory, log.disk
    log.close(clean=True)
    again = reopen(disk, directory)
    assert again.dropped_tombstone == 2
    again.close(clean=True)


def test_the_last_batch_of_a_pass_stays_without_records() -> None:
    """C3, KAFKA-17076: the end of the pass is not lost with a last batch of which nothing is left."""
    log = create(empty_disk(), DIRECTORY, config(delete_retention_ms=0))
    put(log, (b"a", b"1"), (b"b", None))
    run(log, NOW)
    run(log, NOW + 1)
    (kept, last) = batches_of(raw(log))
    assert (kept.base_offset, last.base_offset, last.records) == (0, 1, [])
    log.close(clean=True)


def test_nothing_at_or_above_the_high_watermark_is_compacted() -> None:
    """C5, KAFKA-13194: the high watermark lies inside a closed segment, and compaction stops before that one."""
    disk = empty_disk()
    log = create(disk, DIRECTORY, config())
    for _ in range(3):
        put(log, (b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    log.set_high_watermark(4)
    run(log, roll=False)
    assert [one.offset for one in contents(log, end=9)] == [2, 3, 4, 5, 6, 7, 8]
    log.close(clean=True)


def test_the_plan_follows_the_lags_and_the_ratio() -> None:
    """Edge cases 111: the active segment, the least lag, the greatest lag, the ratio, which is compared strictly."""
    log = create(empty_disk(), DIRECTORY, config(min_compaction_lag_ms=1000, max_compaction_lag_ms=5000))
    for number in range(3):
        append(log, batch(log.end_offset, [(b"a", b"x" * 100)], timestamp=NOW + 1000 * number))
        log.close_active_segment()
    append(log, batch(log.end_offset, [(b"a", b"active")]))
    plan = log.cleaning_plan(NOW + 2000)
    assert (plan.first_dirty, plan.first_uncleanable, len(plan.sources)) == (0, 2, 2)
    assert plan.dirty_ratio == 1.0
    assert plan.is_due
    run(log, NOW + 2000, roll=False)
    assert not log.cleaning_plan(NOW + 2000).is_due
    log.update_config(config(min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=5000))
    plan = log.cleaning_plan(NOW + 2000 + 5000)
    assert 0 < plan.dirty_ratio < 0.99
    assert not plan.is_due
    assert log.cleaning_plan(NOW + 2000 + 5001).is_due
    log.close(clean=True)


@pytest.mark.parametrize("end", [-5, 10**9])
def test_an_impossible_checkpoint_begins_at_the_start(end: int) -> None:
    """C7: a checkpoint below the log's start or above its end, and a start above the segment being written."""
    log = create(empty_disk(), DIRECTORY, config())
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.cleaned_end = end
    assert log.cleaning_plan(NOW).first_dirty == 0
    run(log)
    assert state(log) == {b"a": b"2"}
    append(log, batch(log.end_offset, [(b"a", b"3")]), batch(log.end_offset + 1, [(b"a", b"4")]))
    log.delete_records(log.end_offset - 1)
    plan = log.cleaning_plan(NOW)
    assert not plan.dirty
    assert not plan.is_due
    log.close(clean=True)


def test_a_damaged_source_is_never_compacted(place: Place) -> None:
    """Compaction does not hide damage: it names the place, leaves the log as it is, and leaves no file."""
    log = create(place.disk, place.of("t-0"), config())
    put(log, (b"a", b"1"), (b"a", b"2"), (b"b", b"3"))
    name = f"t-0/{0:020}.log"
    content = bytearray(place.read(name))
    content[-1] ^= 1
    place.write(name, bytes(content))
    with pytest.raises(CorruptLogError) as caught:
        run(log)
    assert (caught.value.start, caught.value.file) == (2, place.of(name))
    assert not [one for one in place.disk.list(place.of("t-0")) if "cleaned" in one]
    log.close(clean=False)


def test_a_lost_batch_is_not_taken_for_a_gap(place: Place) -> None:
    """The files of gaps are exact: a batch that is lost from a compacted segment is found by readers and verify."""
    log = create(place.disk, place.of("t-0"), config(segment_bytes=4096))
    put(log, *[(b"k%d" % (number % 5), b"%d" % number) for number in range(20)])
    run(log)
    assert [one.offset for one in contents(log)] == [15, 16, 17, 18, 19]
    log.close(clean=True)
    name = f"t-0/{0:020}.log"
    content = place.read(name)
    size = len(content) // 5
    place.write(name, content[: 2 * size] + content[3 * size :])
    assert any("begins at offset 18" in one for one in findings(place.disk, place.of("t-0")))
    with pytest.raises(CorruptLogError, match="base offset 18, expected 17"):
        contents(reopen(place.disk, place.of("t-0"), clean=True), 16)


def test_only_a_compacted_log_is_compacted() -> None:
    """Its settings decide."""
    log = create(empty_disk(), DIRECTORY, LogConfig())
    with pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
        log.cleaning_plan(NOW)
    log.close(clean=True)


def test_segments_are_joined_by_size_and_empty_ones_too() -> None:
    """C8, KAFKA-12889, edge case 110: groups by size; the empty segments that compaction leaves go with the next
    group."""
    log = create(empty_disk(), DIRECTORY, config())
    for number in range(6):
        put(log, *[(b"k", b"x" * 200) for _ in range(3)], (b"last%d" % number, b"x" * 200))
    assert len(log.segments()) > 6
    run(log)
    count = len(log.segments())
    put(log, (b"k", b"1"))
    run(log)
    assert len(log.segments()) < count
    assert len(state(log)) == 7
    log.close(clean=True)


def test_a_truncated_log_forgets_the_gaps_behind_its_end() -> None:
    """A compacted segment that is cut is written on, and none of its gaps is expected where new batches are."""
    disk = empty_disk()
    log = create(disk, DIRECTORY, config(segment_bytes=4096))
    put(log, *[(b"k%d" % (number % 10), b"%d" % number) for number in range(15)])
    run(log)
    assert [one.offset for one in contents(log)] == list(range(5, 15))
    put(log, *[(b"k%d" % number, b"new") for number in range(3)], (b"last", b"1"))
    run(log)
    log.truncate_to(9)
    put(log, *[(b"n%d" % number, b"new") for number in range(5)])
    assert [one.offset for one in contents(log)] == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert not findings(disk, DIRECTORY)
    log.close(clean=True)


@given(keys=st.lists(st.binary(max_size=20), max_size=60), room=st.integers(2, 40))
def test_the_map_keeps_the_newest_offset_of_each_key(keys: list[bytes], room: int) -> None:
    """As a dict does, until it is full; then it says so, and knows up to which offset it looked."""
    found = KeyMap(24 * room, SECRET)
    known: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        data = batch(offset, [(key, b"")])
        took = found.note_records(data[:61], data[61:], 0)
        assert took == (key in known or len(known) < found.capacity)
        if not took:
            break
        known[key] = offset
        assert found.latest == offset
    assert len(found) == len(known)
    assert {key: found.get(key) for key in known} == known
    assert found.get(b"never there, and too long") == -1


@given(
    batches=st.lists(st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=40), max_size=40),
    start=st.integers(0, 60),
)
def test_many_batches_are_noted_as_one_after_another(batches: list[list[bytes | None]], start: int) -> None:
    """The keys that are looked at ahead of the walk are those of the walk, in batches of any number of records."""
    data, offset, known = b"", 0, {}
    for keys in batches:
        data += batch(offset, [(key, b"v") for key in keys])
        for key in keys:
            if key is not None and offset >= start:
                known[key] = offset
            offset += 1
    found, walk = KeyMap(24 * 4000, SECRET), BatchWalk(0)
    assert found.note(walk, data, start) == 0
    assert (walk.position, walk.next_offset) == (len(data), offset)
    assert {key: found.get(key) for key in known} == known
    assert len(found) == len(known)


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3) | st.integers(2**32 - 2, 2**34)), max_size=8))
def test_gaps_outlive_their_file(steps: list[tuple[int, int]]) -> None:
    """Gaps that touch are one, and one that is too long for a pair takes several."""
    bounds: list[int] = []
    expected: list[int] = []
    end = 7
    for distance, length in steps:
        bounds += [end + distance, end + distance + length]
        if distance == 0 and expected:
            expected[-1] = bounds[-1]
        else:
            expected += bounds[-2:]
        end = bounds[-1]
    gaps = Gaps(bounds, 5)
    assert list(gaps.bounds) == expected
    assert parse_gaps(format_gaps(7, gaps), 7) == gaps


def test_keys_do_not_collide() -> None:
    """No two of many keys that differ in few bits have one hash."""
    found = KeyMap(24 * 20_000, SECRET)
    data = batch(0, [(b"%d" % number, b"") for number in range(10_000)])
    assert found.note_records(data[:61], data[61:], 0)
    assert len(found) == 10_000


def test_a_staged_batch_without_a_key_is_refused_before_anything_of_it_is_taken() -> None:
    """The check that the spool makes of each batch, compressed ones too; a control batch has no keys to look at."""
    validator = LogValidator(config(), TopicPartition("t", 0), CLOCK)
    for attributes in (0, 1):
        validator.check(RecordBatch(batch(0, [(b"k", b"v"), (b"k", None)], attributes=attributes)))
        with pytest.raises(InvalidRequestError, match="record 1 has no key"):
            validator.check(RecordBatch(batch(0, [(b"k", b"v"), (None, b"v")], attributes=attributes)))
    LogValidator(LogConfig(), TopicPartition("t", 0), CLOCK).check(RecordBatch(batch(0, [(None, b"v")])))


def lost(log: Log, committed: dict[bytes, tuple[int, bytes | None]], now_ms: int, horizon_ms: int) -> list[str]:
    """What is wrong with a compacted log, by the rule of the checkers: each key's newest committed record is there,
    unless it is a tombstone whose time is over; and no older one is behind it."""
    wrong = []
    found = {record.key: record for record in contents(log)}
    for key, (offset, value) in committed.items():
        one = found.get(key)
        if (one is None or one.offset < offset) and (value is not None or now_ms < horizon_ms):
            wrong.append(f"the newest of {key!r}, at {offset}, is gone")
    return wrong


@pytest.mark.parametrize("bug", ["", "newest dropped", "older kept", "tombstone early", "above the watermark"])
def test_planted_bugs_are_found(bug: str) -> None:
    """Of a cleaner that drops the newest, keeps an older one as the newest, drops a tombstone early, or cleans above
    the high watermark; and nothing is found of ours."""
    log = create(empty_disk(), DIRECTORY, config(delete_retention_ms=DAY))
    records = [(b"k%d" % (number % 6), None if number % 6 == 5 else b"%d" % number) for number in range(30)]
    put(log, *records)
    committed = {key: (offset, value) for offset, (key, value) in enumerate(records)}
    if bug == "above the watermark":
        # A later leader may cut what lies above, and then an older record is the newest again.
        log.set_high_watermark(24)
        committed = {key: (offset, value) for offset, (key, value) in enumerate(records[:24])}
    plan = log.cleaning_plan(NOW)
    if bug == "above the watermark":
        log.set_high_watermark(30)
        plan = log.cleaning_plan(NOW)
    elif bug == "tombstone early":
        plan = plan._replace(config=config(delete_retention_ms=0))
    cleaner = Cleaner(log.disk, plan, SECRET, lambda: None)
    end = cleaner.map_keys()
    if bug == "newest dropped":
        data = batch(1000, [(b"k3", b"never committed")])
        cleaner._map.note_records(data[:61], data[61:], 0)
    if bug == "older kept":
        log.truncate_to(27)
        put(log, (b"k9", b"another history"))
    else:
        for group in plan.groups(end):
            log.install(cleaner.clean(group))
    if bug == "tombstone early":
        run(log, NOW + 1)
        plan = log.cleaning_plan(NOW + 1)
        cleaner = Cleaner(log.disk, plan, SECRET, lambda: None)
        for group in plan.groups(max(cleaner.map_keys(), log.cleaned_end)):
            log.install(cleaner.clean(group))
    if bug == "above the watermark":
        log.truncate_to(24)
    assert bool(lost(log, committed, NOW + 1, NOW + DAY)) == bool(bug)
    log.close(clean=True)
