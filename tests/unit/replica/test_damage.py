"""Rot that a read meets while the replica runs: who is told what. (Who leads then: tests/unit/controller,
tests/replication/sim/test_live_damage.py.)"""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.errors import CorruptError, CorruptLogError
from pyreplog.replica import ConsumerFetch, Damaged, Effect, ListOffsets, Reply
from pyreplog.wire import EpochEndOffset, ErrorCode, ListOffsetsPartition
from tests.unit.replica.conftest import MakeStage
from tests.unit.replica.replica_stage import CLIENT, ReplicaStage
from tests.unit.replica.test_delayed_consumer_fetches import at


def rotten(stage: ReplicaStage, broker: int, base: int, end: int) -> None:
    """What ``broker`` has from offset ``base`` to below ``end``, a batch, is not what was written."""
    log = stage.logs[broker]
    read = log.read

    def reading(offset: int, size_max: int, end_offset: int, *, checked: bool = False) -> Any:
        if base <= offset < end:
            raise CorruptLogError("checksum mismatch", start=offset, end=min(end, end_offset), file="t-0")
        return read(offset, size_max, min(end_offset, base) if offset < base else end_offset, checked=checked)

    log.read = reading


def told(effects: list[Effect]) -> list[Damaged]:
    """What of them is about damage."""
    return [effect for effect in effects if isinstance(effect, Damaged)]


def fetch(stage: ReplicaStage, broker: int, offset: int, *, anywhere: bool = False) -> tuple[Any, list[Damaged]]:
    """A consumer's fetch: the answer, and what the node is told."""
    effects = stage.step(broker, ConsumerFetch(CLIENT, 7, at(offset), 0, anywhere=anywhere))
    (result,) = (effect.result for effect in effects if isinstance(effect, Reply))
    return result, told(effects)


def filled(stage: ReplicaStage) -> ReplicaStage:
    """Broker 1 leads: ten batches of ten, which everybody has."""
    stage.elect(1)
    for _ in range(10):
        stage.append(1, 10)
        stage.settle()
    assert stage.high_watermarks() == [100] * len(stage.logs)
    return stage


def test_alone_it_says_where_and_serves_the_rest(make_stage: MakeStage) -> None:
    """The refusal names the end of what cannot be read, and each place is told once, from whatever offset it is
    read."""
    stage = filled(make_stage(1))
    rotten(stage, 1, 50, 60)
    answer, news = fetch(stage, 1, 50)
    assert (answer.error_code, answer.diverging_epoch) == (ErrorCode.CORRUPT_MESSAGE, EpochEndOffset(-1, 60))
    assert [(one.is_last, one.is_news) for one in news] == [(True, True)]
    for offset in (55, 59, 50):
        answer, news = fetch(stage, 1, offset)
        assert (answer.diverging_epoch, news) == (EpochEndOffset(-1, 60), [])
    stage.pass_time(500)
    assert [(one.is_last, one.is_news) for one in fetch(stage, 1, 55)[1]] == [(True, False)]
    for offset in (0, 60):
        answer, news = fetch(stage, 1, offset)
        assert (answer.error_code, news) == (0, [])
    assert stage.replicas[1].role.name == "leader"


def test_others_in_sync_may_lead_in_its_place(make_stage: MakeStage) -> None:
    """Who reads asks again; the node is told, and this one leads on until another does."""
    stage = filled(make_stage(3))
    rotten(stage, 1, 50, 60)
    answer, news = fetch(stage, 1, 50)
    assert (answer.error_code, answer.diverging_epoch) == (ErrorCode.KAFKA_STORAGE_ERROR, None)
    assert [(one.is_last, one.is_news) for one in news] == [(False, True)]
    stage.append(1, 10)
    stage.settle()
    assert stage.high_watermarks() == [110] * 3
    stage.set_isr(1, tell=[1])
    answer, news = fetch(stage, 1, 50)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert [(one.is_last, one.is_news) for one in news] == [(True, True)]


def test_who_was_alone_waits_for_those_that_came_back(make_stage: MakeStage) -> None:
    """The next reader is not told what was so before: one of them can lead."""
    stage = filled(make_stage(3))
    stage.set_isr(1, tell=[1])
    rotten(stage, 1, 50, 60)
    assert fetch(stage, 1, 50)[0].error_code == ErrorCode.CORRUPT_MESSAGE
    stage.pass_time(5000)
    stage.set_isr(1, 2, 3, tell=[1])
    answer, news = fetch(stage, 1, 50)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(one.is_last, one.is_news) for one in news] == [(False, True)]


def test_who_is_not_replaced_in_time_tells(make_stage: MakeStage) -> None:
    """Others are in sync, and none of them can lead, or the controller is away: who reads hears where it is,
    instead of nothing. Each reign waits anew."""
    stage = filled(make_stage(3))
    rotten(stage, 1, 50, 60)
    assert fetch(stage, 1, 50)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stage.pass_time(999)
    assert fetch(stage, 1, 55)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stage.pass_time(1)
    answer, news = fetch(stage, 1, 55)
    assert (answer.error_code, answer.diverging_epoch) == (ErrorCode.CORRUPT_MESSAGE, EpochEndOffset(-1, 60))
    assert [(one.is_last, one.is_news) for one in news] == [(True, True)]
    stage.elect(2)
    stage.settle()
    stage.elect(1)
    stage.settle()
    assert fetch(stage, 1, 50)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_follower_keeps_what_it_has_while_its_leader_is_silent(make_stage: MakeStage) -> None:
    """Consumers that read there are sent to the leader. That copy may be all there is: it may lead, and serves the
    rest then."""
    stage = filled(make_stage(2))
    rotten(stage, 2, 50, 60)
    stage.show(2)
    answer, news = fetch(stage, 2, 50, anywhere=True)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(one.is_last, one.is_news) for one in news] == [(False, True)]
    stage.elect(2, isr=[2], tell=[2])
    answer, news = fetch(stage, 2, 50)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetch(stage, 2, 60)[0].error_code == 0


def test_a_log_that_could_not_even_be_opened_is_another_matter(make_stage: MakeStage) -> None:
    """Its failure is told by who opens it: nobody is told that the rest is served."""
    stage = filled(make_stage(1))
    log = stage.logs[1]
    error = CorruptLogError("checksum mismatch", start=50, end=60, file="t-0")

    def waking(*_: object, **__: object) -> None:
        log.poison(error)
        raise error

    log.read = waking
    answer, news = fetch(stage, 1, 20)
    assert (answer.error_code, news) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


@pytest.mark.parametrize("alone", [True, False])
def test_an_offset_by_time_meets_it_too(make_stage: MakeStage, alone: bool) -> None:
    """The same refusals, without a place where the error names none."""
    stage = filled(make_stage(1 if alone else 2))

    def failing(*_: object) -> None:
        raise CorruptError("a batch is cut off", file="t-0")

    stage.logs[1].find_timestamp = failing
    for is_news in (True, False):
        stage.pass_time(500)
        effects = stage.step(1, ListOffsets(CLIENT, 8, ListOffsetsPartition(0, timestamp=5)))
        (result,) = (effect.result for effect in effects if isinstance(effect, Reply))
        assert result.error_code == (ErrorCode.CORRUPT_MESSAGE if alone else ErrorCode.KAFKA_STORAGE_ERROR)
        assert [(one.is_last, one.is_news) for one in told(effects)] == [(alone, is_news)]


def test_very_many_places_are_not_told_without_end(make_stage: MakeStage) -> None:
    """Of a copy that is rotten all over some are told."""
    stage = make_stage(1)
    stage.elect(1)
    for _ in range(200):
        stage.append(1)
    stage.settle()

    def reading(offset: int, *_: object, **__: object) -> None:
        raise CorruptLogError("checksum mismatch", start=offset, end=offset + 1, file="t-0")

    stage.logs[1].read = reading
    news = [one for offset in range(200) for one in fetch(stage, 1, offset)[1] if one.is_news]
    assert len(news) == 64


def test_a_follower_behind_a_damaged_place_waits(make_stage: MakeStage) -> None:
    """It is refused, and asks again: nothing that does not fit its checksum goes to another copy."""
    stage = make_stage(2)
    stage.elect(1, isr=[1])
    for _ in range(10):
        stage.append(1, 10, acks=1)
    rotten(stage, 1, 50, 60)
    for _ in range(5):
        stage.exchange(2)
        stage.pass_time(2000)
    assert stage.logs[2].end_offset == 50
