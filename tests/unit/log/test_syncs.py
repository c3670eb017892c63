"""The end of a log that counts as durable, the high watermark, and when a sync is due."""

from __future__ import annotations

from pyreplog.config import LogConfig
from tests.unit.log.conftest import Place
from tests.unit.log.support import (
    bases,
    batch,
    create,
    filled,
    reopen,
    sync,
)


def test_the_end_that_counts(place: Place) -> None:
    """A sync log counts what was synced, an os log what was written; only appends since then need a sync."""
    for index, durability in enumerate(("sync", "os")):
        log = create(place.disk, place.of(f"t-{index}"), LogConfig(durability=durability, segment_bytes=1200))  # type: ignore[arg-type]
        assert log.sync_plan() is None
        for _ in range(20):
            log.append_as_leader(batch(2, size=50), 0)
        assert (log.end_offset, log.flushed_offset) == (40, 0)
        assert log.ack_offset == (0 if durability == "sync" else 40)
        plan = log.sync_plan()
        assert plan is not None
        assert plan.upto == 40
        assert len(plan.files) > 3
        log.append_as_leader(batch(1), 0)
        sync(place.disk, log)
        assert log.ack_offset == log.flushed_offset == 41
        assert log.sync_plan() is None
        log.synced(40, log.generation)
        assert log.flushed_offset == 41
        log.close(clean=True)


def test_a_segment_that_was_half_synced_and_closed_is_synced_once_more(place: Place) -> None:
    """A sync that began before the segment became full does not cover all of it: the next plan has its files
    again."""
    log = create(place.disk, place.of("t-0"), LogConfig(durability="os", segment_bytes=1200))
    log.append_as_leader(batch(2, size=50), 0)
    early = log.sync_plan()
    assert early is not None
    while log.stats().segment_count < 3:
        log.append_as_leader(batch(2, size=50), 0)
    first, second, _ = bases(place)
    log.synced(early.upto, early.generation)
    assert first < log.flushed_offset == early.upto < second
    assert log.has_unsynced_segment
    assert log.sync_due(0), "a segment that is closed asks for its sync, whatever flush.messages says"
    plan = log.sync_plan()
    assert plan is not None
    closed = 3  # its batches and its two indexes
    assert len(plan.files) == 2 * closed + 1
    # A sync up to the end of the first segment covers the first segment only.
    log.synced(second, log.generation)
    plan = log.sync_plan()
    assert plan is not None
    assert len(plan.files) == closed + 1
    log.synced(plan.upto, plan.generation)
    assert not log.has_unsynced_segment
    log.close(clean=True)


def test_a_segment_that_a_clean_stop_had_left_is_synced_again_after_it_grew(place: Place) -> None:
    """A clean stop syncs the segment, but not the records that follow later: the segment is in the plan after it is
    closed."""
    create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1200)).close(clean=True)
    log = reopen(place.disk, place.of("t-0"), clean=True, config=LogConfig(segment_bytes=1200))
    log.become_leader(1)
    assert not log.has_unsynced_segment
    while log.stats().segment_count < 2:
        log.append_as_leader(batch(2, size=50), 1)
    assert log.has_unsynced_segment
    plan = log.sync_plan()
    assert plan is not None
    assert len(plan.files) == 4, "the closed segment with its two indexes, and the one being written"
    log.close(clean=True)


def test_a_sync_of_before_a_truncation_is_void(place: Place) -> None:
    """What was synced of a log that was cut since does not count for what took its place."""
    log = filled(place)
    plan = log.sync_plan()
    assert plan is not None
    log.truncate_to(10)
    log.append_as_leader(batch(3), 0)
    log.synced(plan.upto, plan.generation)
    assert log.flushed_offset == 0
    log.close(clean=True)


def test_the_high_watermark_stays_within_the_log(place: Place) -> None:
    """It rises only, up to the end; setting it clamps; a truncation lowers it."""
    log = filled(place)
    assert log.advance_high_watermark(10)
    assert not log.advance_high_watermark(10)
    assert not log.advance_high_watermark(5)
    assert log.high_watermark == 10
    assert log.advance_high_watermark(1000)
    assert log.high_watermark == 40
    log.set_high_watermark(-5)
    assert log.high_watermark == 0
    log.set_high_watermark(30)
    log.truncate_to(21)
    assert log.end_offset == log.high_watermark == 20
    log.close(clean=True)


def test_flush_settings_ask_for_syncs(place: Place) -> None:
    """flush.messages and flush.ms make a sync due, and a sync makes it not due."""
    log = create(place.disk, place.of("t-0"), LogConfig(durability="os", flush_messages=3, flush_ms=1000))
    assert not log.sync_due(0)
    log.append_as_leader(batch(2), 0)
    assert not log.sync_due(1_000_000)
    assert not log.sync_due(1_000_000_000)
    assert log.sync_due(1_001_000_000)
    sync(place.disk, log)
    assert not log.sync_due(5_000_000_000)
    log.append_as_leader(batch(3), 0)
    assert log.sync_due(5_000_000_000)
    log.close(clean=True)


def test_a_closed_segment_asks_for_a_sync(place: Place) -> None:
    """An os log is synced when a segment was closed, as Kafka does."""
    log = filled(place, 4, LogConfig(durability="os"))
    assert not log.sync_due(0)
    log.close(clean=False)
    log = create(place.disk, place.of("t-1"), LogConfig(durability="os", segment_bytes=1200))
    while log.stats().segment_count == 1:
        assert not log.sync_due(0)
        log.append_as_leader(batch(2, size=100), 0)
    assert log.sync_due(0)
    sync(place.disk, log)
    assert not log.sync_due(0)
    log.close(clean=True)
