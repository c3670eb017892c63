"""Compaction of a topic with replicas: each cleans its own copy, none takes a lost batch for a gap, and no deleted key
comes back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyreplog.errors import UnexpectedAppendOffsetError
from pyreplog.log import Cleaner, Log
from pyreplog.log.state import LogState
from pyreplog.record import BatchBuilder
from pyreplog.replica import Follower, Produce
from pyreplog.replica.in_sync_set import InSyncSet
from pyreplog.testing.checkers import InvariantBroken
from pyreplog.testing.stage_clients import CLIENT
from pyreplog.testing.stage_node import FOREVER_MS
from pyreplog.values import Compaction
from tests.seed import SEED, tell
from tests.unit.log.support import contents
from tests.unit.replica.compacted_walk import SECRET, CompactedStage, CompactedWalk, Rules

BUDGET = 600
"""Of so many walks one shows a tombstone that was dropped too early."""


@pytest.fixture(params=["os", "sync"])
def stage(request: pytest.FixtureRequest) -> CompactedStage:
    """Three replicas of a compacted topic; node 1 leads."""
    return CompactedStage(3, min_insync_replicas=1, durability=request.param, checkers=[Rules()])


def put(stage: CompactedStage, *records: tuple[bytes, bytes | None], node: int = 0) -> None:
    """Append each record in a batch of its own."""
    for key, value in records:
        builder = BatchBuilder()
        assert builder.append(value, key, (), 1)
        number = stage.clients._number()
        stage.step(node or stage.leader, Produce(CLIENT, number, 1, bytearray(builder.finish()), FOREVER_MS))


def log_of(stage: CompactedStage, node_id: int) -> Log:
    """The open log of a node."""
    found = stage.machines[node_id].replica
    assert found is not None
    return found.load_log() if not isinstance(found.log, Log) else found.log


def flush(stage: CompactedStage, *node_ids: int) -> None:
    """Close the segments of these nodes, so that all is on stable storage, and let the leader learn it."""
    for node_id in node_ids:
        while stage.machines[node_id].syncs:
            stage.sync(node_id)
        log = log_of(stage, node_id)
        log.close_active_segment()
    put(stage, (b"~", b"next"))
    stage.settle(*node_ids)
    for node_id in node_ids:
        stage.sync(node_id)
    put(stage, (b"~", b"next"))
    stage.settle(*node_ids)


def run(stage: CompactedStage, node_id: int) -> Compaction:
    """One pass over a node's copy."""
    log = log_of(stage, node_id)
    plan = log.cleaning_plan(stage.clock.wall_ms())
    cleaner = Cleaner(log.disk, plan, SECRET, lambda: None)
    end = cleaner.map_keys()
    for group in plan.groups(end):
        assert log.install(cleaner.clean(group))
    log.note_cleaned(end)
    return cleaner.result()


def state(log: Log) -> dict[bytes, bytes]:
    """What a reader by key sees."""
    found = {record.key or b"": record.value for record in contents(log)}
    return {key: value for key, value in found.items() if value is not None and key != b"~"}


def offsets(log: Log) -> list[int]:
    """The offsets that have a record."""
    return [record.offset for record in contents(log)]


def many(key: bytes, count: int, *, start: int = 0) -> Sequence[tuple[bytes, bytes]]:
    """Records of one key."""
    return [(key, b"%d" % number + bytes(100)) for number in range(start, start + count)]


# -- gaps


def test_a_new_follower_takes_the_gaps_of_a_compacted_leader(stage: CompactedStage) -> None:
    """It ends with the same records as the leader, and its copy knows which offsets are gaps."""
    stage.settle()
    stage.kill(3)
    put(stage, *many(b"a", 30), (b"b", b"1"), *many(b"a", 10))
    stage.settle(1, 2)
    flush(stage, 1, 2)
    done = run(stage, 1)
    assert done.records_kept < 10
    stage.machines[3].home.wipe()
    stage.start(3)
    stage.settle()
    leader, follower = log_of(stage, 1), log_of(stage, 3)
    assert offsets(follower) == offsets(leader) != offsets(log_of(stage, 2))
    assert follower.mark.compacted
    assert not follower.mark.may_have_gaps
    assert state(follower) == state(leader) == state(log_of(stage, 2))
    stage.kill(3)
    stage.start(3)
    stage.settle()
    assert offsets(log_of(stage, 3)) == offsets(log_of(stage, 1))


def test_a_gap_is_damage_until_the_metadata_says_that_the_topic_is_compacted(
    stage: CompactedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower waits and asks again; with the newer metadata it goes on."""
    stage.settle()
    stage.kill(3)
    put(stage, *many(b"a", 40))
    stage.settle(1, 2)
    flush(stage, 1, 2)
    run(stage, 1)
    with monkeypatch.context() as patch:
        patch.setattr(LogState, "takes_gaps", property(lambda log: False))
        stage.start(3)
        stage.settle(rounds=10)
        assert log_of(stage, 3).end_offset < log_of(stage, 1).end_offset
        assert log_of(stage, 3).failure is None
        with pytest.raises(UnexpectedAppendOffsetError):
            log_of(stage, 3).append_as_follower([_far(log_of(stage, 1))], at_end=True)
    stage.settle()
    assert offsets(log_of(stage, 3))[-1] == offsets(log_of(stage, 1))[-1]


def _far(log: Log) -> bytes:
    """The last batch of a log."""
    return b"".join(log.read(log.end_offset - 1, 1, log.end_offset).parts())


@pytest.mark.parametrize("compacted", [1, 2])
def test_leaders_change_between_a_compacted_and_an_uncompacted_copy(stage: CompactedStage, compacted: int) -> None:
    """Each sees the same newest values, and so does a third one that copies from either."""
    stage.settle()
    stage.kill(3)
    put(stage, *many(b"a", 20), *many(b"b", 20), (b"a", None), (b"c", b"1"))
    stage.settle(1, 2)
    flush(stage, 1, 2)
    run(stage, compacted)
    run(stage, compacted)
    stage.kill(1)
    stage.settle()
    assert stage.leader == 2
    put(stage, (b"d", b"2"))
    stage.start(3)
    stage.settle()
    stage.start(1)
    stage.settle()
    expected = state(log_of(stage, 2))
    assert set(expected) == {b"b", b"c", b"d"}
    for node_id in (1, 3):
        assert state(log_of(stage, node_id)) == expected
    stage.kill(2)
    stage.settle()
    assert stage.leader in (1, 3)
    assert state(log_of(stage, stage.leader)) == expected


def test_a_diverged_follower_is_cut_where_the_epochs_part_although_they_are_gaps(stage: CompactedStage) -> None:
    """Node 3 has records that were never committed, at offsets whose committed records were compacted away. The leader
    copied the compacted log, and still knows where the epoch began: they are cut, not kept."""
    stage.settle()
    put(stage, *many(b"a", 5))
    stage.settle()
    # Node 1 appends what nobody fetches; it is the one that comes back with it.
    put(stage, (b"ghost", b"1"), (b"ghost", b"2"))
    diverged = log_of(stage, 1).end_offset
    stage.flight.clear()
    stage.kill(3)
    stage.kill(1)
    stage.settle(2)
    assert stage.leader == 2
    put(stage, *many(b"b", 40))
    stage.settle(2)
    flush(stage, 2)
    assert run(stage, 2).records_kept < 10
    stage.machines[3].home.wipe()
    stage.start(3)
    stage.settle(2, 3)
    assert log_of(stage, 3).epochs.entries == log_of(stage, 2).epochs.entries
    stage.kill(2)
    stage.settle(3)
    assert stage.leader == 3
    stage.start(1)
    stage.settle(1, 3)
    log = log_of(stage, 1)
    assert log.end_offset > diverged
    assert b"ghost" not in state(log)
    assert offsets(log)[-3:] == offsets(log_of(stage, 3))[-3:]
    assert state(log) == state(log_of(stage, 3))


# -- tombstones


def tombstones(log: Log) -> list[int]:
    """The offsets of the tombstones that a copy has."""
    return [record.offset for record in contents(log) if record.value is None]


def test_no_tombstone_goes_before_all_replicas_have_it(stage: CompactedStage) -> None:
    """Not while a replica is down, whose copy has the record that it deletes; on no copy."""
    put(stage, (b"a", b"1"))
    stage.settle()
    flush(stage, 1, 2, 3)
    stage.kill(3)
    put(stage, (b"a", None), *many(b"b", 30))
    stage.settle(1, 2)
    flush(stage, 1, 2)
    for node_id in (1, 2):
        for _ in range(3):
            assert run(stage, node_id).dropped_tombstone == -1
        assert log_of(stage, node_id).dropped_tombstone == -1
        assert len(tombstones(log_of(stage, node_id))) == 1
    stage.start(3)
    stage.settle()
    flush(stage, 1, 2, 3)
    assert b"a" not in state(log_of(stage, 3))
    for node_id in (1, 2, 3):
        run(stage, node_id)
        run(stage, node_id)
        assert tombstones(log_of(stage, node_id)) == []
        assert log_of(stage, node_id).dropped_tombstone >= 0
        assert b"a" not in state(log_of(stage, node_id))


def test_a_new_leader_knows_nothing_of_those_who_have_not_fetched(stage: CompactedStage) -> None:
    """Its bound is 0 until all assigned replicas have fetched from it in its epoch; then each hears the bound."""
    put(stage, *many(b"a", 30))
    stage.settle()
    flush(stage, 1, 2, 3)
    bounds = [log_of(stage, node_id).tombstone_bound for node_id in (1, 2, 3)]
    assert all(bound is not None and bound > 20 for bound in bounds), bounds
    stage.kill(3)
    stage.prefer(2)
    stage.settle(1, 2)
    stage.kill(1)
    stage.settle(2)
    assert stage.leader == 2
    assert log_of(stage, 2).tombstone_bound == 0
    stage.start(1)
    stage.settle(1, 2)
    assert log_of(stage, 2).tombstone_bound == log_of(stage, 1).tombstone_bound == 0
    stage.start(3)
    stage.settle()
    flush(stage, 1, 2, 3)
    for node_id in (1, 2, 3):
        assert (log_of(stage, node_id).tombstone_bound or 0) > 20


def test_a_sole_replica_needs_only_its_own_high_watermark() -> None:
    """A topic with one replica drops a tombstone at the second pass."""
    stage = CompactedStage(1, min_insync_replicas=1, checkers=[Rules()])
    put(stage, (b"a", b"1"), (b"a", None), *many(b"b", 30))
    stage.settle()
    flush(stage, 1)
    run(stage, 1)
    run(stage, 1)
    assert tombstones(log_of(stage, 1)) == []
    assert log_of(stage, 1).droppable_end == log_of(stage, 1).high_watermark


def test_a_replica_that_missed_a_dropped_tombstone_begins_anew(
    stage: CompactedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that wrongly dropped it (a stale bound, a copy that was put back): the key stays deleted."""
    put(stage, (b"a", b"1"), (b"z", b"1"))
    stage.settle()
    flush(stage, 1, 2, 3)
    stage.kill(3)
    put(stage, (b"a", None), *many(b"b", 30))
    stage.settle(1, 2)
    flush(stage, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(LogState, "droppable_end", property(lambda log: log.high_watermark))
        run(stage, 1)
        assert run(stage, 1).dropped_tombstone >= 0
    stage.start(3)
    stage.settle()
    log = log_of(stage, 3)
    assert state(log) == state(log_of(stage, 1)) == state(log_of(stage, 2))
    assert b"a" not in state(log)
    # Readers of the copy learn that a deletion may have passed them by.
    assert log.dropped_tombstone == log_of(stage, 1).dropped_tombstone


def test_a_pass_that_a_replica_overtakes_is_not_put_in_place(stage: CompactedStage) -> None:
    """A pass drops a tombstone; before its segment is in place a replica comes back with an empty disk."""
    put(stage, (b"a", b"1"), (b"a", None), *many(b"b", 30))
    stage.settle()
    flush(stage, 1, 2, 3)
    run(stage, 1)
    log = log_of(stage, 1)
    plan = log.cleaning_plan(stage.clock.wall_ms())
    cleaner = Cleaner(log.disk, plan, SECRET, lambda: None)
    (group, *_) = plan.groups(cleaner.map_keys())
    cleaned = cleaner.clean(group)
    assert cleaned.newly_dropped >= 0
    stage.kill(3)
    stage.machines[3].home.wipe()
    stage.start(3)
    stage.tell()
    before = offsets(log)
    assert not log.install(cleaned)
    assert offsets(log) == before
    assert not [name for name in log.disk.list(log.directory) if name.endswith(".cleaned")]


# -- random walks


@pytest.mark.parametrize("seed", range(8))
def test_walks_over_a_compacted_topic(seed: int) -> None:
    """Random records, passes, crashes and leaders: each replica has the newest committed value of each key."""
    CompactedWalk(seed).run()


@pytest.mark.soak
def test_many_walks_over_a_compacted_topic() -> None:
    """Other seeds in each run."""
    tell()
    for seed in range(300):
        CompactedWalk(SEED * 1000 + seed).run()


@pytest.mark.soak
def test_tombstones_that_go_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: a replica drops what is below its own high watermark, and nobody begins anew."""
    monkeypatch.setattr(LogState, "droppable_end", property(lambda log: log.high_watermark))
    monkeypatch.setattr(Follower, "_missed_tombstones", lambda follower, data: False)
    with pytest.raises(InvariantBroken, match="compaction"):
        for seed in range(BUDGET):
            CompactedWalk(seed).run()


@pytest.mark.soak
def test_a_bound_of_the_in_sync_replicas_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the leader forgets the replicas that are down, and nobody begins anew."""

    def bound(in_sync: InSyncSet) -> int:
        ends = [follower.leo for follower in in_sync.remotes if follower.in_maximal_isr]
        return max(min([in_sync.context.log.flushed_offset, *ends]), 0)

    monkeypatch.setattr(InSyncSet, "tombstone_bound", bound)
    monkeypatch.setattr(Follower, "_missed_tombstones", lambda follower, data: False)
    with pytest.raises(InvariantBroken, match="compaction"):
        for seed in range(BUDGET):
            CompactedWalk(seed).run()


def test_an_idle_topic_learns_what_was_synced() -> None:
    """Of an ``os`` topic, copies are synced when their segments are closed. Within seconds the bound covers them, and
    all replicas know it, without any traffic."""
    stage = CompactedStage(3, min_insync_replicas=1, checkers=[Rules()])
    put(stage, (b"a", b"1"), (b"a", None), *many(b"b", 3))
    stage.settle()
    end = log_of(stage, 1).end_offset
    for node_id in (2, 3, 1):
        log_of(stage, node_id).close_active_segment()
        assert log_of(stage, node_id).flushed_offset == end
    for _ in range(8):
        stage.pass_time(2000)
        stage.settle()
    assert [log_of(stage, node_id).tombstone_bound for node_id in (1, 2, 3)] == [end, end, end]
