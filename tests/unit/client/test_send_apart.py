"""acks and a timeout for a single send: the record is alone in its batch, keeps its place, and ends in time."""

from __future__ import annotations

import pytest

from pyreplog.client.outcome import BatchResult
from pyreplog.errors import OutcomeUnknownError, RequestTimedOutError
from pyreplog.wire import ErrorCode, ProduceRequest
from tests.unit.client.node_one import MS, TOPIC
from tests.unit.client.test_producer import Script


def apart(script: Script, value: bytes, acks: int | None = None, timeout_ms: int | None = None) -> BatchResult:
    """Queue one record apart."""
    outcome, index = script.producer.send_apart(
        TOPIC, value, partition=0, acks=acks, timeout_ns=None if timeout_ms is None else timeout_ms * MS
    )
    assert index == 0 or (acks is None and timeout_ms is None)
    return outcome


def asked(script: Script) -> list[tuple[int, dict[int, list[bytes | None]]]]:
    """The acks and values of the kept requests."""
    found = []
    for number, request in enumerate(script.requests):
        assert isinstance(request.body, ProduceRequest)
        found.append((request.body.acks, script.values(number)))
    return found


def test_the_open_batch_is_closed_and_the_order_kept() -> None:
    """Records before and behind are in other batches, in the order of the calls; only this request has its acks."""
    script = Script(max_in_flight=1)
    script.send(b"0")
    script.producer.send(TOPIC, b"1", partition=0)
    apart(script, b"2", acks=1)
    script.producer.send(TOPIC, b"3", partition=0)
    seen = []
    while script.requests:
        seen += asked(script)
        script.answer()
    assert seen == [(-1, {0: [b"0"]}), (-1, {0: [b"1"]}), (1, {0: [b"2"]}), (-1, {0: [b"3"]})]
    assert script.log[0] == [b"0", b"1", b"2", b"3"]


def test_without_either_it_is_a_send() -> None:
    """Neither acks nor a timeout: the record joins the open batch."""
    script = Script(max_in_flight=1)
    script.send(b"0")
    for value in (b"1", b"2"):
        apart(script, value)
    script.answer()
    assert asked(script) == [(-1, {0: [b"1", b"2"]})]


def test_acks_0_is_settled_when_it_is_sent() -> None:
    """No answer comes, and later records follow it."""
    script = Script()
    outcome = apart(script, b"x", acks=0)
    script.turn()
    assert outcome.settled
    assert outcome.error is None
    acks = script.send(b"y")
    assert asked(script) == [(0, {0: [b"x"]}), (-1, {0: [b"y"]})]
    script.answer(request=1)
    assert acks[0].done()
    assert script.producer.is_idle


def test_what_waits_in_line_is_refused_in_time() -> None:
    """A record that could not be sent within its timeout was not sent, and says so; the others go on."""
    script = Script(max_in_flight=1)
    first = script.send(b"0")
    outcome = apart(script, b"1", timeout_ms=50)
    behind = script.send(b"2")
    script.advance(49)
    assert not outcome.settled
    wake = script.producer.next_wake_ns
    assert wake is not None
    assert wake <= script.clock.monotonic_ns() + MS
    script.advance(1)
    assert isinstance(outcome.error, RequestTimedOutError)
    assert "nothing was sent" in str(outcome.error)
    script.answer()
    script.answer()
    assert script.log[0] == [b"0", b"2"]
    assert first[0].done()
    assert behind[0].offset == 1
    assert script.producer.is_idle


@pytest.mark.parametrize("code", [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT])
def test_what_is_in_flight_is_unknown_in_time(code: int) -> None:
    """No answer within the timeout: unknown; the late answer changes nothing, and nothing is sent again."""
    script = Script()
    outcome = apart(script, b"x", timeout_ms=50)
    script.turn()
    script.advance(60)
    assert isinstance(outcome.error, OutcomeUnknownError)
    assert "timeout of this send" in str(outcome.error)
    script.answer(code)
    script.advance(1000)
    assert not script.requests
    assert script.producer.is_idle
    ack = script.send(b"y")[0]
    script.answer()
    assert ack.done()


def test_what_is_refused_again_and_again_is_refused_in_time() -> None:
    """A refusal is repeated until the timeout of the send, not until that of the producer, and is the error."""
    script = Script()
    outcome = apart(script, b"x", timeout_ms=200)
    script.turn()
    for _ in range(300):
        if script.requests:
            script.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        if outcome.settled:
            break
        script.advance(1)
    assert script.clock.monotonic_ns() < 10_000 * MS
    assert "nothing was appended" in str(outcome.error)
    assert script.producer.is_idle


def test_no_leader_in_time() -> None:
    """A partition without a leader refuses at the timeout of the send."""
    script = Script()
    script.leaders[0] = -1
    script.producer.refresh(TOPIC)
    script.turn()
    outcome = apart(script, b"x", timeout_ms=100)
    script.turn()
    script.advance(100)
    assert isinstance(outcome.error, RequestTimedOutError)
    assert script.producer.is_idle
