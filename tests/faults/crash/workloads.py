"""Three lives of a log root, and what must be true of the disk wherever one of them ends.

A workload acknowledges facts as soon as they are promised; the check opens what is left and holds it to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from unittest.mock import patch

from pyreplog.config import LogConfig
from pyreplog.log import Log, LogRoot, segment_writer
from pyreplog.record import split
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.unit.log.support import CLOCK, batch, raw, sync

ROOT = "data/root"
KEY = TopicPartition("t", 0)
TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUw"
OTHER_ID = "ZbCdEfGhIjKlMnOpQrStUw"


class Fact(NamedTuple):
    """Something promised. ``kind``: ``made`` (the partition exists), ``synced`` or ``shown`` (bytes ``data`` lie
    below ``end``), ``gone`` (bytes beyond ``end`` may be replaced from now on), ``removed`` (the partition may be
    gone), ``configured`` (``end`` is segment.bytes from now on), ``clean`` (a clean stop)."""

    kind: str
    end: int = 0
    data: bytes = b""


def open_root(disk: SimDisk, seed: int = 1) -> LogRoot:
    """The root, made where missing."""
    return LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(seed))


def config(durability: str, **settings: int) -> LogConfig:
    """Small segments, so that they roll."""
    return LogConfig(durability=durability, segment_bytes=settings.get("segment_bytes", 1200), index_interval_bytes=100)  # type: ignore[arg-type]


def get(root: LogRoot, durability: str) -> Log:
    """The partition, made where missing."""
    return root.logs.get(KEY) or root.create_log("t", 0, TOPIC_ID, config(durability))


# -- synced appends, with rolls --


def sync_appends(disk: SimDisk, facts: list[Fact]) -> None:
    """A ``sync`` log gets batches; each is acknowledged once it is on stable storage."""
    root = open_root(disk)
    log = get(root, "sync")
    facts.append(Fact("made"))
    log.become_leader(0)
    for number in range(14):
        if number == 7:
            log.become_leader(3)
        log.append_as_leader(batch(1 + number % 3, size=60 + 40 * (number % 4), tag=b"%d:" % number), log.epochs.latest)
        if number % 5 in (1, 2, 3):
            continue  # they share the next one's sync
        sync(disk, log)
        log.advance_high_watermark(log.ack_offset)
        log.write_mark()
        facts.append(Fact("synced", log.end_offset, raw(log)))
    log.update_config(config("sync", segment_bytes=2048))
    facts.append(Fact("configured", 2048))
    root.checkpoint_recovery_points()
    root.checkpoint_high_watermarks()
    root.checkpoint_log_starts()
    log.append_as_leader(batch(2, size=50), 3)


def appends_in_pieces(disk: SimDisk, facts: list[Fact]) -> None:
    """The same, but every write of 128 bytes or more is done in pieces: what is large, in the small."""
    with patch.object(segment_writer, "PIECE_SIZE", 64):
        sync_appends(disk, facts)


# -- an `os` follower that is truncated --


def os_follower(disk: SimDisk, facts: list[Fact]) -> None:
    """An ``os`` log follows: batches as they come, marks, now and then a sync; then a new leader cuts what it does
    not have, twice."""
    root = open_root(disk)
    log = get(root, "os")
    facts.append(Fact("made"))
    _follow(disk, log, facts, epoch=0, count=8, committed=5, synced=4, tag=b"a")
    facts.append(Fact("gone", 8))
    log.truncate_to(9)  # within a batch, which goes whole
    _follow(disk, log, facts, epoch=2, count=5, committed=3, synced=-1, tag=b"b")
    root.checkpoint_high_watermarks()
    # An unclean leader took over: even what was shown, and synced, goes.
    facts.append(Fact("gone", 4))
    log.truncate_to(4)
    _follow(disk, log, facts, epoch=5, count=6, committed=6, synced=3, tag=b"c")
    root.checkpoint_recovery_points()


def _follow(
    disk: SimDisk, log: Log, facts: list[Fact], *, epoch: int, count: int, committed: int, synced: int, tag: bytes
) -> None:
    for number in range(count):
        # The last leader's batches are smaller: its segments do not begin where those before did.
        one = batch(
            2, size=80 if epoch < 5 else 25, base_offset=log.end_offset, leader_epoch=epoch, tag=tag + b"%d:" % number
        )
        log.append_as_follower([bytes(one)])
        if number == synced:
            sync(disk, log)
            facts.append(Fact("synced", log.flushed_offset, raw(log)))
        if number < committed and log.advance_high_watermark(log.end_offset):
            log.write_mark()
            facts.append(Fact("shown", log.high_watermark, raw(log)))


# -- clean stops --


def clean_stops(disk: SimDisk, facts: list[Fact]) -> None:
    """A root is closed and opened again, its checkpoints are written, its log start moves, a partition is removed
    and made anew."""
    for life in range(3):
        root = open_root(disk, life)
        log = get(root, "sync")
        if life == 0:
            facts.append(Fact("made"))
        log.become_leader(log.epochs.latest + 1)
        for number in range(3):
            log.append_as_leader(batch(2, size=90, tag=b"%d/%d:" % (life, number)), log.epochs.latest)
        if life == 1:
            sync(disk, log)
            log.advance_high_watermark(log.ack_offset)
            log.increment_start_offset(5)
        root.close(broker_epoch=life)
        facts.append(Fact("clean"))
    root = open_root(disk, 9)
    facts.append(Fact("removed"))
    root.remove_log(KEY)
    root.create_log("t", 0, OTHER_ID, config("sync"))
    root.close()
    facts.append(Fact("clean"))


# -- the check --


def check(disk: SimDisk, facts: Sequence[Fact], durability: str) -> None:
    """What is left opens, keeps what was promised, and goes on."""
    root = open_root(disk, 77)
    try:
        assert not root.damaged, root.damaged
        kinds = [fact.kind for fact in facts]
        log = root.logs.get(KEY)
        if log is None:
            assert "made" not in kinds or "removed" in kinds, "the partition is gone"
            return
        if log.topic_id == OTHER_ID:
            assert "removed" in kinds
            assert log.end_offset == 0
            return
        assert log.config.segment_bytes == 2048 or (log.config.segment_bytes == 1200 and "configured" not in kinds)
        if durability == "sync":
            assert not log.incomplete
        elif not (root.same_boot or root.clean) and "made" in kinds:
            assert log.incomplete
        assert log.start_offset <= log.high_watermark <= log.end_offset
        _check_promises(root, log, facts)
        _check_goes_on(log)
    finally:
        root.close(clean=False)


def _check_promises(root: LogRoot, log: Log, facts: Sequence[Fact]) -> None:
    floor = None  # the lowest cut announced since: what was promised beyond may be gone
    data = raw(log)
    expected = 0
    for one in split(data):
        one.check_crc()
        assert one.base_offset == expected or one.base_offset <= log.start_offset, "a gap"
        expected = one.next_offset
    # Whether the page cache of the workload is still there: only its own process, and perhaps a
    # recovery's, ended.
    survived = root.disk.boot_id("") == SimDisk(Random(0)).boot_id("")
    for fact in reversed(facts):
        if fact.kind == "gone":
            floor = fact.end if floor is None else min(floor, fact.end)
            continue
        if fact.kind not in {"synced", "shown"} or (fact.kind == "shown" and (not survived or log.recovery.poisoned)):
            continue
        end = fact.end if floor is None else min(fact.end, floor)
        assert log.end_offset >= end, (fact.kind, end, log.end_offset)
        if floor is None:
            assert data.startswith(fact.data), fact.kind
            if fact.kind == "shown":
                assert log.high_watermark >= end
        else:
            shared = min(len(_below(fact.data, end)), len(data))
            assert data[:shared] == fact.data[:shared]


def _below(data: bytes, end: int) -> bytes:
    """The batches of ``data`` that end at or below ``end``."""
    return b"".join(bytes(one.data) for one in split(data) if one.next_offset <= end)


def _check_goes_on(log: Log) -> None:
    epoch = log.epochs.latest + 1
    log.become_leader(epoch)
    end = log.end_offset
    assert log.append_as_leader(batch(2, tag=b"on"), epoch).base_offset == end
    assert raw(log)
    previous = -1
    for entry in log.epochs.entries:
        assert entry.start_offset > previous
        previous = entry.start_offset
