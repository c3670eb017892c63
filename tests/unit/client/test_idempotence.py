"""The idempotent producer against a node that keeps a log by Kafka's rules of sequence numbers and loses whatever a
test, or chance, says: every record is in the log once and in order, with the offset that was acknowledged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.client import Producer, ProducerConfig
from pyreplog.client.accumulator import EPOCH_MAX, SEQUENCES, Sequencer
from pyreplog.errors import (
    ClosedError,
    ClusterError,
    ConfigError,
    MessageTooLargeError,
    OutcomeUnknownError,
    RequestTimedOutError,
)
from pyreplog.log.producers import ProducerTable
from pyreplog.record import Ack, RecordBatch, stamp
from pyreplog.wire import (
    ErrorCode,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceResponse,
)
from tests.unit.client.node_one import TOPIC, TOPIC_ID, NodeOne

TIMEOUT_MS = 1000


class Keeper(NodeOne):
    """Node 1: a log of one partition with its producers. Requests wait in ``requests`` until a test takes them in
    hand."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.log: list[bytes | None] = []
        self.table = ProducerTable()
        self.ids_asked = 0
        self.ids_given = 0
        self.ids_refused = 0
        self.refused_with = ErrorCode.BROKER_NOT_AVAILABLE
        self.ids_unheard = False
        self.machine = self.producer = Producer(
            self.network.endpoint(),
            self.clock,
            Random(1),
            ["node-1"],
            address="producer",
            config=ProducerConfig(request_timeout_ms=TIMEOUT_MS, delivery_timeout_ms=10 * TIMEOUT_MS, **config),
        )
        self.producer.want(TOPIC)
        self.turn()

    def hear(self, message: Request) -> None:
        """Producer ids are given, too."""
        if not isinstance(message.body, InitProducerIdRequest):
            super().hear(message)
            return
        self.ids_asked += 1
        if self.ids_unheard:
            return
        if self.ids_refused:
            self.ids_refused -= 1
            self.say(message, InitProducerIdResponse(self.refused_with))
        else:
            self.ids_given += 1
            self.say(message, InitProducerIdResponse(producer_id=100 + self.ids_given))

    def append(self, index: int = 0, *, limit: int = 1 << 30) -> PartitionProduceResponse:
        """What a leader does with a kept request (which stays): append, recognise or refuse."""
        body = self.requests[index].body
        assert isinstance(body, ProduceRequest)
        batch = RecordBatch(bytes(body.topic_data[0].partition_data[0].records))
        batch.check_crc()
        assert batch.producer_id >= 0
        if batch.size > limit:
            return PartitionProduceResponse(0, ErrorCode.MESSAGE_TOO_LARGE)
        try:
            known = self.table.check(batch)
        except ClusterError as error:
            return PartitionProduceResponse(0, error.code)
        if known is not None:
            return PartitionProduceResponse(0, 0, known.base_offset)
        base = len(self.log)
        self.table.note(batch, base)
        self.log += [record.value for record in batch.records()]
        return PartitionProduceResponse(0, 0, base)

    def answer(self, result: PartitionProduceResponse | int, index: int = 0) -> None:
        """Take a kept request out and answer it."""
        part = PartitionProduceResponse(0, result) if isinstance(result, int) else result
        self.say(self.requests.pop(index), ProduceResponse([TopicProduceResponse(TOPIC_ID, [part])]))
        self.turn()

    def send(self, *values: bytes) -> list[Ack]:
        """Send each in a batch of its own."""
        acks = []
        for value in values:
            acks.append(self.producer.send(TOPIC, value, partition=0))
            self.turn()
        return acks

    @property
    def epoch(self) -> int:
        """The producer's, as the log has it."""
        entry = self.table.get(100 + self.ids_given)
        assert entry is not None
        return entry.epoch

    @property
    def sequencer(self) -> Sequencer:
        """The producer's."""
        sequencer = self.producer.topics[TOPIC].queues[0].sequencer
        assert sequencer is not None
        return sequencer

    def serve(self) -> None:
        """From now on all goes well, until all is settled."""
        for _ in range(400):
            while self.requests:
                self.answer(self.append())
            if self.producer.is_idle:
                return
            self.advance(20)
        raise AssertionError("not settled")


def test_what_was_appended_and_not_answered_is_recognised() -> None:
    """The answer is lost: the same batch, with the same numbers, is sent again and acknowledged with the offset of
    the first time."""
    keeper = Keeper()
    acks = keeper.send(b"a")
    keeper.append()
    keeper.requests.clear()
    keeper.advance(TIMEOUT_MS)
    keeper.serve()
    assert (keeper.log, acks[0].result(0).offset) == ([b"a"], 0)
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        acks = keeper.send(b"b")
        keeper.append()
        keeper.answer(code)
        keeper.serve()
    assert keeper.log == [b"a", b"b", b"b"]
    assert acks[0].result(0).offset == 2


def test_a_batch_that_was_refused_is_no_duplicate() -> None:
    """A leader that knows nobody refuses the first of two batches and takes the second. The first, sent again, is
    older than what it remembers: it is not acknowledged, for no sending of it was ever taken."""
    keeper = Keeper()
    keeper.table.lenient = True
    first, second = keeper.send(b"a", b"b")
    keeper.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    keeper.answer(keeper.append())
    keeper.serve()
    assert (keeper.log, second.result(0).offset) == ([b"b"], 0)
    with pytest.raises(OutcomeUnknownError, match="append of 1 record to events-0"):
        first.result(0)


def test_nobody_runs_ahead_of_an_answer_that_was_lost() -> None:
    """A leader remembers five batches. The first is appended and its answer lost, while others go on: never so far
    that the leader has forgotten the first when it comes again, for then it would be appended twice."""
    keeper = Keeper()
    acks = keeper.send(*(b"%d" % number for number in range(5)))
    keeper.append()
    del keeper.requests[0]  # its answer never comes
    while keeper.requests:
        keeper.answer(keeper.append())
    acks += keeper.send(*(b"%d" % number for number in range(5, 12)))
    while keeper.requests:
        keeper.answer(keeper.append())
    keeper.advance(TIMEOUT_MS)
    keeper.serve()
    assert keeper.log == [b"%d" % number for number in range(12)]
    assert [ack.result(0).offset for ack in acks] == list(range(12))


def test_order_is_kept_whatever_is_lost() -> None:
    """Five are on their way; the first never arrives, so that the others are refused for their numbers; all come
    again, in order."""
    keeper = Keeper()
    acks = keeper.send(*(b"%d" % number for number in range(7)))
    assert len(keeper.requests) == 5, "no more than a leader remembers"
    lost = keeper.requests.pop(0)
    while keeper.requests:
        keeper.answer(keeper.append())
    assert keeper.log == []
    keeper.advance(TIMEOUT_MS)
    keeper.serve()
    assert keeper.log == [b"%d" % number for number in range(7)]
    assert [ack.result(0).offset for ack in acks] == list(range(7))
    assert keeper.epoch == 0, "nothing was missing for good"
    keeper.requests.append(lost)
    keeper.append()
    assert len(keeper.log) == 7, "and when it comes at last it is known"
    keeper.requests.clear()


def test_a_batch_that_can_never_be_appended_makes_room_for_the_next() -> None:
    """One is refused for good while later ones are on their way: those begin a new epoch of the producer, only once
    none is on its way."""
    keeper = Keeper(batch_size_max=4000)
    good = keeper.send(b"a")
    keeper.answer(keeper.append())
    (bad,) = keeper.send(b"x" * 2000)
    later = keeper.send(b"b", b"c")
    while keeper.requests:
        keeper.answer(keeper.append(limit=1000))
    keeper.serve()
    with pytest.raises(MessageTooLargeError):
        bad.result(0)
    assert keeper.log == [b"a", b"b", b"c"]
    assert [ack.result(0).offset for ack in good + later] == [0, 1, 2]
    assert (keeper.ids_given, keeper.epoch) == (1, 1)


def test_behind_one_that_was_refused_nothing_is_missing() -> None:
    """The first of two is refused for a while, and so the second for its number: they come again as they were."""
    keeper = Keeper()
    acks = keeper.send(b"a", b"b")
    keeper.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    keeper.answer(keeper.append())
    keeper.serve()
    assert [ack.result(0).offset for ack in acks] == [0, 1]
    assert (keeper.log, keeper.epoch) == ([b"a", b"b"], 0)


def test_what_is_proved_to_be_missing_begins_a_new_epoch() -> None:
    """Its outcome was unknown, until the leader said that the log ends before it."""
    keeper = Keeper()
    (ack,) = keeper.send(b"a")
    keeper.answer(ErrorCode.REQUEST_TIMED_OUT)
    keeper.advance(20)
    keeper.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    keeper.serve()
    assert (keeper.log, ack.result(0).offset, keeper.epoch) == ([b"a"], 0, 1)


def test_the_last_epoch_is_followed_by_another_producer() -> None:
    """An epoch is a number of 16 bits: behind the last one a new id is asked for, at once, and everything goes on
    in order."""
    keeper = Keeper(batch_size_max=4000)
    acks = keeper.send(b"a")
    keeper.serve()
    keeper.sequencer._begin(EPOCH_MAX)
    acks += keeper.send(b"b")
    keeper.serve()
    assert keeper.epoch == EPOCH_MAX
    (bad,) = keeper.send(b"x" * 2000)
    acks += keeper.send(b"c", b"d")
    while keeper.requests:
        keeper.answer(keeper.append(limit=1000))
    while keeper.sequencer.producer_id >= 0:
        wake = keeper.producer.next_wake_ns
        assert wake is not None
        keeper.clock.advance(max(wake - keeper.clock.monotonic_ns(), 0))
        keeper.producer.poll()
    assert keeper.producer.next_wake_ns == keeper.clock.monotonic_ns()
    for _ in range(3):
        keeper.producer.poll()  # meanwhile, and before the answer: nothing goes out with the id that is used up
    keeper.serve()
    with pytest.raises(MessageTooLargeError):
        bad.result(0)
    assert keeper.log == [b"a", b"b", b"c", b"d"]
    assert [ack.result(0).offset for ack in acks] == [0, 1, 2, 3]
    assert (keeper.ids_given, keeper.epoch) == (2, 0)


def test_behind_the_last_number_comes_0() -> None:
    """Sequence numbers have 31 bits."""
    keeper = Keeper()
    keeper.send(b"a")
    keeper.serve()
    keeper.table = ProducerTable(1, lenient=True)
    keeper.sequencer.seal_next = keeper.sequencer.send_next = SEQUENCES - 2
    acks = list(keeper.producer.send_many(TOPIC, [b"b", b"c", b"d"], partition=0))
    keeper.turn()
    acks += keeper.send(b"e", b"f")
    sequences = []
    for request in keeper.requests:
        assert isinstance(request.body, ProduceRequest)
        sequences.append(RecordBatch(request.body.topic_data[0].partition_data[0].records).base_sequence)
    assert sequences == [SEQUENCES - 2, 1, 2]
    keeper.serve()
    assert [ack.result(0).offset for ack in acks] == [1, 2, 3, 4, 5]


def test_what_may_be_appended_is_not_said_to_be_refused() -> None:
    """Its answer was lost, and then nobody leads until the time is up, or the producer is closed: the outcome is
    unknown."""
    for closed in (False, True):
        keeper = Keeper()
        (ack,) = keeper.send(b"a")
        keeper.append()
        keeper.requests.clear()
        keeper.leaders = [-1]
        asked = keeper.metadata_asked
        keeper.advance(TIMEOUT_MS)
        assert keeper.metadata_asked > asked, "who gives no answer may be gone: somebody else may lead"
        if closed:
            keeper.producer.close()
        else:
            keeper.advance(10 * TIMEOUT_MS)
        assert isinstance(ack.exception(0), OutcomeUnknownError)


def test_closed_while_it_is_on_its_way() -> None:
    """Nobody knows of what was sent; what waits behind it was not appended."""
    keeper = Keeper(max_in_flight=1)
    sent, unsent = keeper.send(b"a", b"b")
    keeper.producer.close()
    assert isinstance(sent.exception(0), OutcomeUnknownError)
    assert isinstance(unsent.exception(0), ClosedError)
    assert keeper.producer.is_idle


def test_a_node_that_was_gone_until_the_time_was_up() -> None:
    """What could not even be sent fails, and holds up nothing that comes after it, however much that is."""
    keeper = Keeper()
    keeper.send(b"a")
    keeper.serve()
    keeper.node.close()
    (late,) = keeper.send(b"b")
    assert not late.done()
    for _ in range(11):
        keeper.advance(TIMEOUT_MS)
    assert isinstance(late.exception(0), ClusterError)
    keeper.node = keeper.network.endpoint()
    keeper.node.listen("node-1")
    acks = keeper.send(*(b"%d" % number for number in range(7)))
    keeper.serve()
    assert keeper.log == [b"a", *(b"%d" % number for number in range(7))]
    assert [ack.result(0).offset for ack in acks] == list(range(1, 8))


def test_the_leader_keeps_the_bytes_that_it_may_have_taken() -> None:
    """One in this process appends from the memory that it was given: what is sent again lies elsewhere."""
    keeper = Keeper()
    keeper.send(b"a")
    body = keeper.requests[0].body
    assert isinstance(body, ProduceRequest)
    taken = body.topic_data[0].partition_data[0].records
    stamp(taken, 7, 3)
    keeper.answer(ErrorCode.REQUEST_TIMED_OUT)
    keeper.serve()
    assert (RecordBatch(taken).base_offset, keeper.log) == (7, [b"a"])


def test_unknown_only_when_the_time_is_up() -> None:
    """Nobody answers until the delivery timeout: the outcome is unknown; what comes next is appended whether or not
    that one was."""
    for appended in (False, True):
        keeper = Keeper()
        (first,) = keeper.send(b"a")
        if appended:
            keeper.append()
        for _ in range(11):
            keeper.requests.clear()
            keeper.advance(TIMEOUT_MS)
        with pytest.raises(OutcomeUnknownError):
            first.result(0)
        keeper.requests.clear()
        (second,) = keeper.send(b"b")
        keeper.serve()
        assert keeper.log == ([b"a", b"b"] if appended else [b"b"])
        assert second.result(0).offset == len(keeper.log) - 1


def test_a_leader_that_forgot_the_producer() -> None:
    """UNKNOWN_PRODUCER_ID for what was never sent before: a new epoch; for what may have been appended: nobody
    knows."""
    keeper = Keeper()
    keeper.send(b"a")
    keeper.serve()
    keeper.table = ProducerTable(1)
    (ack,) = keeper.send(b"b")
    keeper.serve()
    assert (keeper.log, ack.result(0).offset) == ([b"a", b"b"], 1)
    (ack,) = keeper.send(b"c")
    keeper.append()
    keeper.answer(ErrorCode.REQUEST_TIMED_OUT)
    keeper.table = ProducerTable(3)
    keeper.advance(500)
    keeper.serve()
    with pytest.raises(OutcomeUnknownError):
        ack.result(0)
    assert keeper.log == [b"a", b"b", b"c"]


def test_no_producer_id_no_sending() -> None:
    """While nobody gives an id nothing is sent; then all goes out."""
    keeper = Keeper()
    keeper.ids_refused = 3
    acks = keeper.send(b"a", b"b")
    assert not keeper.requests
    keeper.advance(20)
    assert not keeper.requests
    keeper.serve()
    assert [ack.result(0).offset for ack in acks] == [0, 1]


def test_a_producer_without_an_id_hears_the_reason() -> None:
    """The active controller's disk is full, so no id can be reserved."""
    keeper = Keeper()
    keeper.ids_refused, keeper.refused_with = 10_000, ErrorCode.KAFKA_STORAGE_ERROR
    (ack,) = keeper.send(b"a")
    keeper.advance(100)
    assert "gave the producer no id" in keeper.producer.unsettled()[0].so_far()
    keeper.advance(20 * TIMEOUT_MS)
    with pytest.raises(ClusterError, match="gave the producer no id") as refused:
        ack.result(0)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not keeper.requests


@pytest.mark.parametrize("later_ms", range(0, 2 * TIMEOUT_MS, 100))
def test_no_producer_id_and_nothing_to_send(later_ms: int) -> None:
    """What waited for an id is given up, perhaps while it is asked for once more; that this fails then is no reason
    to be due at every moment from then on."""
    keeper = Keeper()
    keeper.ids_unheard = True
    acks = keeper.send(b"a")
    keeper.advance(later_ms)
    acks += keeper.send(b"b")
    assert keeper.ids_asked == 1, "one question at a time"
    for _ in range(14 * TIMEOUT_MS // 20):
        keeper.advance(20)
        wake = keeper.producer.next_wake_ns
        assert wake is None or wake > keeper.clock.monotonic_ns()
    for ack in acks:
        with pytest.raises(RequestTimedOutError):
            ack.result(0)
    assert keeper.producer.next_wake_ns is None
    keeper.ids_unheard = False
    (ack,) = keeper.send(b"c")
    keeper.serve()
    assert ack.result(0).offset == 0


def test_settings() -> None:
    """Idempotent with acks=all and few requests on their way, unless told otherwise; told so where it cannot be, it
    says so."""
    assert ProducerConfig().is_idempotent
    assert not ProducerConfig(acks=1).is_idempotent
    assert not ProducerConfig(max_in_flight=6).is_idempotent
    assert not ProducerConfig(enable_idempotence=False).is_idempotent
    for bad in ({"acks": 1}, {"acks": 0}, {"max_in_flight": 6}):
        with pytest.raises(ConfigError):
            ProducerConfig(enable_idempotence=True, **bad)


@given(st.randoms(use_true_random=False))
def test_once_and_in_order_whatever_happens(chance: Random) -> None:
    """Answers lost before or after the append, refusals of every kind: what is acknowledged is in the log at that
    offset; nothing is there twice; the order is that of sending; nothing that was refused is there."""
    keeper = Keeper(max_in_flight=chance.randrange(1, 6))
    values = [b"%d" % number for number in range(chance.randrange(1, 25))]
    acks: list[Ack] = []
    refusals = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)
    for value in values:
        acks += keeper.send(value)
        for _ in range(chance.randrange(4)):
            if not keeper.requests:
                break
            match chance.randrange(5):
                case 0:
                    keeper.answer(chance.choice(refusals))
                case 1:
                    keeper.append()
                    keeper.answer(
                        chance.choice((ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
                    )
                case 2:
                    if chance.random() < 0.5:
                        keeper.append()
                    keeper.requests.pop(0)
                case 3:
                    keeper.advance(chance.choice((1, 30, 300, TIMEOUT_MS, 4 * TIMEOUT_MS)))
                case _:
                    keeper.answer(keeper.append())
    keeper.serve()
    assert len(dict.fromkeys(keeper.log)) == len(keeper.log)
    places = [values.index(value) for value in keeper.log if value is not None]
    assert places == sorted(places)
    for value, ack in zip(values, acks, strict=True):
        try:
            offset = ack.result(0).offset
        except OutcomeUnknownError:
            continue
        except ClusterError:
            assert value not in keeper.log
            continue
        assert keeper.log[offset] == value
