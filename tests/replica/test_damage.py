"""Rot that a read meets while the replica runs: who is told what. (Who leads then: tests/quorum,
tests/sim/test_live_damage.py.)"""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.errors import CorruptError, CorruptLogError
from pyreplog.replica import ConsumerFetch, Damaged, Effect, ListOffsets, Reply
from pyreplog.wire import EpochEndOffset, ErrorCode, ListOffsetsPartition
from tests.replica.conftest import MakeHarness
from tests.replica.replica_harness import CLIENT, ReplicaHarness
from tests.replica.test_readers import at


def rotten(harness: ReplicaHarness, broker: int, base: int, end: int) -> None:
    """What ``broker`` has from offset ``base`` to below ``end``, a batch, is not what was written."""
    log = harness.logs[broker]
    read = log.read

    def reading(offset: int, size_max: int, end_offset: int, *, checked: bool = False) -> Any:
        if base <= offset < end:
            raise CorruptLogError("checksum mismatch", start=offset, end=min(end, end_offset), file="t-0")
        return read(offset, size_max, min(end_offset, base) if offset < base else end_offset, checked=checked)

    log.read = reading


def told(effects: list[Effect]) -> list[Damaged]:
    """What of them is about damage."""
    return [effect for effect in effects if isinstance(effect, Damaged)]


def fetch(harness: ReplicaHarness, broker: int, offset: int, *, anywhere: bool = False) -> tuple[Any, list[Damaged]]:
    """A consumer's fetch: the answer, and what the node is told."""
    effects = harness.step(broker, ConsumerFetch(CLIENT, 7, at(offset), 0, anywhere=anywhere))
    (result,) = (effect.result for effect in effects if isinstance(effect, Reply))
    return result, told(effects)


def filled(harness: ReplicaHarness) -> ReplicaHarness:
    """Broker 1 leads: ten batches of ten, which everybody has."""
    harness.elect(1)
    for _ in range(10):
        harness.append(1, 10)
        harness.settle()
    assert harness.high_watermarks() == [100] * len(harness.logs)
    return harness


def test_alone_it_says_where_and_serves_the_rest(make_harness: MakeHarness) -> None:
    """The refusal names the end of what cannot be read, and each place is told once, from whatever offset it is
    read."""
    harness = filled(make_harness(1))
    rotten(harness, 1, 50, 60)
    answer, news = fetch(harness, 1, 50)
    assert (answer.error_code, answer.diverging_epoch) == (ErrorCode.CORRUPT_MESSAGE, EpochEndOffset(-1, 60))
    assert [(one.is_last, one.is_news) for one in news] == [(True, True)]
    for offset in (55, 59, 50):
        answer, news = fetch(harness, 1, offset)
        assert (answer.diverging_epoch, news) == (EpochEndOffset(-1, 60), [])
    harness.pass_time(500)
    assert [(one.is_last, one.is_news) for one in fetch(harness, 1, 55)[1]] == [(True, False)]
    for offset in (0, 60):
        answer, news = fetch(harness, 1, offset)
        assert (answer.error_code, news) == (0, [])
    assert harness.replicas[1].role.name == "leader"


def test_others_in_sync_may_lead_in_its_place(make_harness: MakeHarness) -> None:
    """Who reads asks again; the node is told, and this one leads on until another does."""
    harness = filled(make_harness(3))
    rotten(harness, 1, 50, 60)
    answer, news = fetch(harness, 1, 50)
    assert (answer.error_code, answer.diverging_epoch) == (ErrorCode.KAFKA_STORAGE_ERROR, None)
    assert [(one.is_last, one.is_news) for one in news] == [(False, True)]
    harness.append(1, 10)
    harness.settle()
    assert harness.high_watermarks() == [110] * 3
    harness.set_isr(1, tell=[1])
    answer, news = fetch(harness, 1, 50)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert [(one.is_last, one.is_news) for one in news] == [(True, True)]


def test_who_was_alone_waits_for_those_that_came_back(make_harness: MakeHarness) -> None:
    """The next reader is not told what was so before: one of them can lead."""
    harness = filled(make_harness(3))
    harness.set_isr(1, tell=[1])
    rotten(harness, 1, 50, 60)
    assert fetch(harness, 1, 50)[0].error_code == ErrorCode.CORRUPT_MESSAGE
    harness.pass_time(5000)
    harness.set_isr(1, 2, 3, tell=[1])
    answer, news = fetch(harness, 1, 50)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(one.is_last, one.is_news) for one in news] == [(False, True)]


def test_who_is_not_replaced_in_time_tells(make_harness: MakeHarness) -> None:
    """Others are in sync, and none of them can lead, or the controller is away: who reads hears where it is,
    instead of nothing. Each reign waits anew."""
    harness = filled(make_harness(3))
    rotten(harness, 1, 50, 60)
    assert fetch(harness, 1, 50)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    harness.pass_time(999)
    assert fetch(harness, 1, 55)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    harness.pass_time(1)
    answer, news = fetch(harness, 1, 55)
    assert (answer.error_code, answer.diverging_epoch) == (ErrorCode.CORRUPT_MESSAGE, EpochEndOffset(-1, 60))
    assert [(one.is_last, one.is_news) for one in news] == [(True, True)]
    harness.elect(2)
    harness.settle()
    harness.elect(1)
    harness.settle()
    assert fetch(harness, 1, 50)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_follower_keeps_what_it_has_while_its_leader_is_silent(make_harness: MakeHarness) -> None:
    """Consumers that read there are sent to the leader. That copy may be all there is: it may lead, and serves the
    rest then."""
    harness = filled(make_harness(2))
    rotten(harness, 2, 50, 60)
    harness.tell(2)
    answer, news = fetch(harness, 2, 50, anywhere=True)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(one.is_last, one.is_news) for one in news] == [(False, True)]
    harness.elect(2, isr=[2], tell=[2])
    answer, news = fetch(harness, 2, 50)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetch(harness, 2, 60)[0].error_code == 0


def test_a_log_that_could_not_even_be_opened_is_another_matter(make_harness: MakeHarness) -> None:
    """Its failure is told by who opens it: nobody is told that the rest is served."""
    harness = filled(make_harness(1))
    log = harness.logs[1]
    error = CorruptLogError("checksum mismatch", start=50, end=60, file="t-0")

    def waking(*_: object, **__: object) -> None:
        log.poison(error)
        raise error

    log.read = waking
    answer, news = fetch(harness, 1, 20)
    assert (answer.error_code, news) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


@pytest.mark.parametrize("alone", [True, False])
def test_an_offset_by_time_meets_it_too(make_harness: MakeHarness, alone: bool) -> None:
    """The same refusals, without a place where the error names none."""
    harness = filled(make_harness(1 if alone else 2))

    def failing(*_: object) -> None:
        raise CorruptError("a batch is cut off", file="t-0")

    harness.logs[1].find_timestamp = failing
    for is_news in (True, False):
        harness.pass_time(500)
        effects = harness.step(1, ListOffsets(CLIENT, 8, ListOffsetsPartition(0, timestamp=5)))
        (result,) = (effect.result for effect in effects if isinstance(effect, Reply))
        assert result.error_code == (ErrorCode.CORRUPT_MESSAGE if alone else ErrorCode.KAFKA_STORAGE_ERROR)
        assert [(one.is_last, one.is_news) for one in told(effects)] == [(alone, is_news)]


def test_very_many_places_are_not_told_without_end(make_harness: MakeHarness) -> None:
    """Of a copy that is rotten all over some are told."""
    harness = make_harness(1)
    harness.elect(1)
    for _ in range(200):
        harness.append(1)
    harness.settle()

    def reading(offset: int, *_: object, **__: object) -> None:
        raise CorruptLogError("checksum mismatch", start=offset, end=offset + 1, file="t-0")

    harness.logs[1].read = reading
    news = [one for offset in range(200) for one in fetch(harness, 1, offset)[1] if one.is_news]
    assert len(news) == 64


def test_a_follower_behind_a_damaged_place_waits(make_harness: MakeHarness) -> None:
    """It is refused, and asks again: nothing that does not fit its checksum goes to another copy."""
    harness = make_harness(2)
    harness.elect(1, isr=[1])
    for _ in range(10):
        harness.append(1, 10, acks=1)
    rotten(harness, 1, 50, 60)
    for _ in range(5):
        harness.exchange(2)
        harness.pass_time(2000)
    assert harness.logs[2].end_offset == 50
