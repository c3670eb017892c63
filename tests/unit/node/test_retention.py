"""Retention in a cluster: each copy goes by its own clock and high watermark, and the partition lives on."""

from __future__ import annotations

from dataclasses import replace

from pyreplog.testing import TopicOptions
from tests.replication.sim.cluster import NAME, QUICK, acknowledged, calm, log_of, until

SMALL = TopicOptions("t", durability="os", segment_bytes=1024)


def test_every_copy_loses_its_old_segments_on_schedule() -> None:
    """With retention.bytes set each node removes its oldest segments in time, nobody falls out, and appends go
    on."""
    world = calm(SMALL, config=replace(QUICK, log_retention_check_interval_ms=400))
    until(world, lambda: acknowledged(world) > 10, "records")
    until(world, lambda: log_of(world, 1).stats().segment_count > 6, "segments")
    world.delete_asked[NAME] = 10**9  # the checker allows a start anywhere below the committed end
    for node_id in (1, 2, 3):
        log = log_of(world, node_id)
        log.update_config(replace(log.config, retention_bytes=3000))
    until(world, lambda: all(log_of(world, node_id).start_offset > 0 for node_id in (1, 2, 3)), "segments gone", 1000)
    before = acknowledged(world)
    until(world, lambda: acknowledged(world) > before + 20, "appends")
    for node_id in (1, 2, 3):
        log = log_of(world, node_id)
        assert log.start_offset == log.first_base_offset
        assert log.start_offset <= log.high_watermark
        assert log.stats().size >= 3000


def test_files_of_what_went_stay_no_longer_than_they_are_to() -> None:
    """They go when ``file.delete.delay.ms`` is over, though retention is not looked at again for a long while."""
    world = calm(SMALL, config=replace(QUICK, log_retention_check_interval_ms=2000))
    until(world, lambda: acknowledged(world) > 10, "records")
    until(world, lambda: log_of(world, 1).stats().segment_count > 6, "segments")
    world.delete_asked[NAME] = 10**9
    log = log_of(world, 1)
    log.update_config(replace(log.config, retention_bytes=3000, file_delete_delay_ms=100))
    until(world, lambda: log.start_offset > 0, "segments gone")
    due_ns = log.removal_due_ns
    assert due_ns < 2**63 - 1
    until(world, lambda: log.removal_due_ns > due_ns, "files gone", 200)
