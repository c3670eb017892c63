"""The producer against a node that answers as a test says, on a clock moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from pyreplog.client import Producer, ProducerConfig
from pyreplog.errors import (
    ClosedError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutcomeUnknownError,
    RequestTimedOutError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from pyreplog.record import Ack, RecordBatch, partition_for_key, stamp
from pyreplog.wire import (
    ErrorCode,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Response,
    TopicProduceResponse,
)
from tests.unit.client.node_one import MS, TOPIC, TOPIC_ID, NodeOne


class Script(NodeOne):
    """Node 1, which keeps produce requests until told what to say; and a producer."""

    def __init__(self, *, partitions: int = 1, enable_idempotence: bool = False, **settings: int) -> None:
        super().__init__(partitions)
        self.log: dict[int, list[bytes | None]] = {number: [] for number in range(partitions)}
        self.machine = self.producer = Producer(
            self.network.endpoint(),
            self.clock,
            Random(1),
            ["node-1"],
            address="producer",
            config=ProducerConfig(enable_idempotence=enable_idempotence, **settings),
        )
        self.producer.want(TOPIC)
        self.turn()
        assert self.producer.knows(TOPIC)

    def values(self, request: int) -> dict[int, list[bytes | None]]:
        """What the kept request would append, by partition."""
        body = self.requests[request].body
        assert isinstance(body, ProduceRequest)
        found = {}
        for topic in body.topic_data:
            assert topic.topic_id == TOPIC_ID
            for part in topic.partition_data:
                batch = RecordBatch(part.records)
                batch.check_crc()
                assert batch.base_offset == 0
                found[part.index] = [record.value for record in batch.records()]
        return found

    def answer(self, code: int = 0, request: int = 0, **codes: int) -> None:
        """Answer a kept request: append, or refuse with ``code`` (``p0=...`` for one partition)."""
        values = self.values(request)
        message = self.requests.pop(request)
        parts = []
        for partition, appended in values.items():
            error = codes.get(f"p{partition}", code)
            base = len(self.log[partition])
            if error == 0:
                self.log[partition] += appended
            parts.append(PartitionProduceResponse(partition, error, base if error == 0 else -1))
        self.say(message, ProduceResponse([TopicProduceResponse(TOPIC_ID, parts)]))
        self.turn()

    def send(self, *values: bytes, partition: int = 0) -> list[Ack]:
        """Send each and let it go."""
        acks = [self.producer.send(TOPIC, value, partition=partition) for value in values]
        self.turn()
        return acks


def offsets(acks: Sequence[Ack]) -> list[int | None]:
    """Where each is, None where not acknowledged."""
    return [ack.offset for ack in acks]


def test_records_gather_while_batches_are_on_their_way() -> None:
    """The first goes alone at once; what is sent while all slots are taken goes together."""
    script = Script(max_in_flight=1)
    first = script.send(b"1")
    others = script.send(b"2") + script.send(b"3", b"4")
    assert [script.values(0)] == [{0: [b"1"]}]
    script.answer()
    assert script.values(0) == {0: [b"2", b"3", b"4"]}
    script.answer()
    assert offsets(first + others) == [0, 1, 2, 3]
    assert script.producer.is_idle
    assert first[0].result().leader_epoch == 3


@pytest.mark.parametrize(("batch_size_max", "record_size_max"), [(4000, 1000), (1000, 4000)])
def test_many_are_refused_as_one_is(batch_size_max: int, record_size_max: int) -> None:
    """A record is taken where a batch of several or one of its own has room, whichever call brings it."""
    for size in (500, 2000, 3900, 5000):
        taken = []
        for many in (False, True):
            script = Script(batch_size_max=batch_size_max, record_size_max=record_size_max)
            try:
                if many:
                    script.producer.send_many(TOPIC, [bytes(size)], partition=0)
                else:
                    script.producer.send(TOPIC, bytes(size), partition=0)
            except MessageTooLargeError:
                taken.append(False)
            else:
                taken.append(True)
        assert taken == [size < 5000] * 2


def test_in_flight_is_bounded() -> None:
    """No more requests than ``max_in_flight`` wait for answers; full batches wait their turn in order."""
    script = Script(max_in_flight=3, batch_size_max=200)
    acks = script.send(*[b"%d" % number * 100 for number in range(8)])
    assert len(script.requests) == 3
    for _ in range(8):
        script.answer()
    assert offsets(acks) == list(range(8))
    assert script.producer.buffered_size == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_proven_refusal_is_retried(code: int) -> None:
    """What proves that nothing was appended is sent again, after a pause that grows, until it is taken: once."""
    script = Script()
    acks = script.send(b"x")
    asked = script.metadata_asked
    pauses = []
    for _ in range(5):
        script.answer(code)
        assert not script.requests, "not without a pause"
        wake = script.producer.next_wake_ns
        assert wake is not None
        assert wake < script.clock.monotonic_ns() + 100 * MS, "and not for longer"
        pause = 0
        while not script.requests:
            script.advance(5)
            pause += 5
        pauses.append(pause)
    script.answer()
    assert script.log[0] == [b"x"]
    assert offsets(acks) == [0]
    assert pauses[-1] > 4 * pauses[0]
    assert (script.metadata_asked > asked) == (code != ErrorCode.NOT_ENOUGH_REPLICAS), "that one leads still"


def test_closed_while_it_waits_to_be_sent_again() -> None:
    """It was not appended because the producer was closed; the last refusal says why that was not before."""
    script = Script()
    acks = script.send(b"x")
    script.answer(ErrorCode.UNKNOWN_TOPIC_ID)
    script.producer.close()
    error = acks[0].exception()
    assert type(error) is ClosedError
    assert "nothing was appended; before, it was refused: the topic was deleted" in str(error)
    assert isinstance(error.__cause__, UnknownTopicIdError)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_an_unknown_outcome_is_said_to_be(code: int) -> None:
    """What may have been appended is never sent again, and the error says what was tried."""
    script = Script()
    acks = script.send(b"x")
    script.answer(code)
    script.advance(60_000)
    assert not script.requests
    with pytest.raises(OutcomeUnknownError, match="1 record to events-0"):
        acks[0].result()
    assert acks[0].offset is None


def test_no_answer_is_an_unknown_outcome() -> None:
    """Neither when the time is up nor when the node goes away may the batch be sent again."""
    script = Script(request_timeout_ms=1000)
    acks = script.send(b"x")
    script.advance(999)
    assert not acks[0].done()
    asked = script.metadata_asked
    script.advance(1)
    assert isinstance(acks[0].exception(), OutcomeUnknownError)
    assert script.metadata_asked > asked, "somebody else may lead by now"
    late = script.send(b"y")
    script.node.close()
    script.producer.poll()
    assert isinstance(late[0].exception(), OutcomeUnknownError)


def test_a_refusal_for_good_is_an_error() -> None:
    """What no repetition can mend reaches the caller at once, as its own error."""
    script = Script()
    acks = script.send(b"x")
    script.answer(ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(acks[0].exception(), MessageTooLargeError)


@pytest.mark.parametrize("code", [0, ErrorCode.UNKNOWN_TOPIC_ID])
def test_an_answer_about_a_topic_whose_name_another_has_now(code: int) -> None:
    """It counts: what was appended there was, and what was refused was not."""
    script = Script()
    acks = script.send(b"a")
    script.topic_id = "CCCCCCCCCCCCCCCCCCCCCA"
    script.producer._router.want(TOPIC)
    script.turn()
    script.answer(code)
    assert offsets(acks) == ([None] if code else [0])
    script.advance(1000)
    assert len(script.requests) == (1 if code else 0), "sent again where it was refused"
    assert not acks[0].done() if code else acks[0].result(0).offset == 0


@pytest.mark.parametrize("code", [0, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_made_anew_with_fewer_partitions(code: int) -> None:
    """What was for one that is there no more was appended before, or is refused; what comes goes to those that are
    there."""
    script = Script(partitions=3, max_in_flight=1)
    batches_in_flight, waiting = script.send(b"a", partition=2), script.send(b"b", partition=2)
    script.topic_id, script.leaders = "CCCCCCCCCCCCCCCCCCCCCA", [1]
    script.producer._router.want(TOPIC)
    script.turn()
    script.answer(code)
    script.advance(1000)
    assert offsets(batches_in_flight) == [None if code else 0]
    for ack in (waiting + batches_in_flight) if code else waiting:
        with pytest.raises(UnknownTopicError, match="has partitions 0 to 0 since it was re-created, not 2"):
            ack.result(0)
    with pytest.raises(UnknownTopicError, match="has partitions 0 to 0, not 2"):
        script.send(b"c", partition=2)
    for number in range(9):
        script.producer.send(TOPIC, b"", key=b"%d" % number)
        script.producer.send(TOPIC, b"")
    script.turn()
    (request,) = script.requests
    assert isinstance(request.body, ProduceRequest)
    assert [(topic.topic_id, len(topic.partition_data)) for topic in request.body.topic_data] == [(script.topic_id, 1)]


def test_refused_batches_keep_their_order() -> None:
    """When several batches on their way are refused, they are sent again in their order, before what came later."""
    script = Script(batch_size_max=200, max_in_flight=3)
    values = [b"%d" % number * 100 for number in range(5)]
    acks = script.send(*values)
    script.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, request=1)
    script.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(script.requests) == 1, "nothing overtakes what was refused"
    script.advance(1000)
    assert len(script.requests) == 1, "nor does it itself, while what was sent with it may be refused as well"
    script.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.advance(100)
    while script.requests:
        script.answer()
    assert script.log[0] == values
    assert offsets(acks) == [0, 1, 2, 3, 4]


def test_a_batch_that_was_overtaken_fails() -> None:
    """When a batch is refused and a later one, already on its way, is not, sending it again would break the order:
    it fails."""
    script = Script(batch_size_max=200, max_in_flight=3)
    values = [b"%d" % number * 100 for number in range(4)]
    acks = script.send(*values)
    script.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    script.answer()
    script.answer()
    script.advance(1000)
    while script.requests:
        script.answer()
    assert script.log[0] == values[1:]
    assert isinstance(acks[0].exception(), NotEnoughReplicasError)
    assert offsets(acks[1:]) == [0, 1, 2]


def test_a_batch_that_may_have_been_overtaken_fails() -> None:
    """So too where nobody knows whether the later one was appended."""
    script = Script(batch_size_max=200, max_in_flight=3)
    acks = script.send(*[b"%d" % number * 100 for number in range(2)])
    script.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    script.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    script.advance(1000)
    assert not script.requests
    assert isinstance(acks[0].exception(), NotEnoughReplicasError)
    assert isinstance(acks[1].exception(), OutcomeUnknownError)


def test_what_a_leader_wrote_before_it_refused_is_undone() -> None:
    """One in this process puts its numbers into the bytes that it is given."""
    script = Script()
    script.send(b"x")
    body = script.requests[0].body
    assert isinstance(body, ProduceRequest)
    values = script.values(0)
    stamp(body.topic_data[0].partition_data[0].records, 7, 3)
    message = script.requests.pop()
    part = PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.node.send(
        "producer",
        Response("node-1", message.correlation_id, ProduceResponse([TopicProduceResponse(TOPIC_ID, [part])])),
    )
    script.advance(0)
    script.advance(100)
    assert script.values(0) == values


def test_each_batch_has_its_own_time() -> None:
    """Of several that wait for a leader the oldest is given up first."""
    script = Script(batch_size_max=200, delivery_timeout_ms=500)
    script.leaders = [-1]
    script.producer._router.stale_leader(TOPIC, 0, 1)
    early = script.send(b"1" * 100, b"2" * 100)
    script.advance(300)
    late = script.send(b"3" * 100, b"4" * 100)
    script.advance(200)
    assert [ack.done() for ack in early + late] == [True, True, False, False]
    script.advance(300)
    assert all(ack.done() for ack in late)


def test_due_when_the_first_thing_is() -> None:
    """An answer that is given up before a refused batch comes again."""
    script = Script(partitions=2, request_timeout_ms=50, delivery_timeout_ms=100_000)
    script.send(b"x")
    for _ in range(8):
        script.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        while not script.requests:
            script.advance(5)
    script.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    script.send(b"y", partition=1)
    assert script.producer.next_wake_ns == script.clock.monotonic_ns() + 50 * MS


def test_a_refusal_that_says_that_nothing_was_appended_says_it_once() -> None:
    """Also when its delivery timeout ends."""
    script = Script(delivery_timeout_ms=500)
    (refused,) = script.send(b"x")
    for _ in range(30):
        if script.requests:
            script.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        script.advance(50)
    error = refused.exception()
    assert isinstance(error, NotEnoughReplicasError)
    assert str(error).count("nothing was appended") == 1
    assert str(error).endswith(f"{TOPIC}-0")


def test_delivery_timeout() -> None:
    """What is refused for so long fails with its refusal; what never had a leader fails as never sent."""
    script = Script(delivery_timeout_ms=500)
    refused = script.send(b"x")
    for _ in range(30):
        if script.requests:
            script.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        script.advance(50)
    error = refused[0].exception()
    assert isinstance(error, NotLeaderError)
    assert str(error) == f"not the leader of this partition: {TOPIC}-0; nothing was appended"
    script.leaders = [-1]
    script.producer._router.stale_leader(TOPIC, 0, 1)
    never = script.send(b"y")
    script.advance(400)
    assert not never[0].done()
    script.advance(200)
    assert isinstance(never[0].exception(), RequestTimedOutError)
    assert script.producer.is_idle
    assert not script.log[0]


def test_one_partition_does_not_hold_up_the_others() -> None:
    """Partitions of one request are answered each for itself."""
    script = Script(partitions=2, max_in_flight=1)
    script.send(b"first")
    acks = [script.producer.send(TOPIC, b"%d" % number, partition=number) for number in range(2)]
    script.answer()
    assert script.values(0) == {0: [b"0"], 1: [b"1"]}
    script.answer(p0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert offsets(acks) == [None, 0]
    script.advance(100)
    script.answer()
    assert offsets(acks) == [1, 0]


def test_where_records_go() -> None:
    """A given partition; else the key's, by murmur2; else one for a whole batch, which changes from batch to
    batch."""
    script = Script(partitions=5, batch_size_max=300, max_in_flight=100)
    for number in range(100):
        key = b"%d" % number
        script.producer.send(TOPIC, key, key=key)
        script.producer.send(TOPIC, key, key=bytearray(key))
    script.turn()
    while script.requests:
        script.answer()
    for partition, values in script.log.items():
        assert values
        assert all(partition_for_key(value, 5) == partition for value in values if value is not None)
    batches: list[int] = []
    for number in range(40):
        script.producer.send(TOPIC, b"%d" % number * 50)
    script.turn()
    while script.requests:
        batches += script.values(0).keys()
        script.answer()
    assert set(batches) == {0, 1, 2, 3, 4}
    with pytest.raises(UnknownTopicError, match="0 to 4"):
        script.producer.send(TOPIC, b"x", partition=5)


def test_partitions_that_are_added() -> None:
    """What was remembered of keys is of the former number."""
    script = Script(partitions=2)
    keys = [b"%d" % number for number in range(20)]
    for key in keys:
        script.producer.send(TOPIC, key, key=key)
    script.leaders = [1] * 7
    script.log |= {number: [] for number in range(2, 7)}
    script.producer._router.stale_leader(TOPIC, 0, 1)
    script.turn()
    for key in keys:
        script.producer.send(TOPIC, key, key=key)
    script.turn()
    while script.requests:
        script.answer()
    for number in range(2, 7):
        assert script.log[number] == [key for key in keys if partition_for_key(key, 7) == number]


def test_many_go_where_each_would() -> None:
    """By key, over several batches of a partition: each with its own headers, and acknowledged where it is; without
    key to one partition for each batch."""
    script = Script(partitions=3, batch_size_max=300, max_in_flight=100)
    script.producer.send(TOPIC, b"first", key=b"0")
    values = [b"%d" % number for number in range(100)]
    acks = script.producer.send_many(TOPIC, values, keys=values, headers=[[("h", value)] for value in values])
    script.turn()
    while script.requests:
        body = script.requests[0].body
        assert isinstance(body, ProduceRequest)
        for part in body.topic_data[0].partition_data:
            for record in RecordBatch(part.records).records():
                assert record.value == b"first" or list(record.headers) == [("h", record.value)]
        script.answer()
    for value, ack in zip(values, acks, strict=True):
        place = ack.result()
        assert place.partition == partition_for_key(value, 3)
        assert script.log[place.partition][place.offset] == value
    assert len(acks.last_of_each()) > 3
    acks = script.producer.send_many(TOPIC, [b"x" * 100] * 40)
    script.turn()
    while script.requests:
        script.answer()
    partitions = [ack.result().partition for ack in acks]
    changes = sum(here != there for here, there in pairwise(partitions))
    assert changes == 39 // 2, "two fit a batch, and each batch goes elsewhere"


def test_records_without_key_avoid_partitions_without_leader() -> None:
    """While some partition has a leader, records that may go anywhere go there."""
    script = Script(partitions=3)
    script.leaders = [-1, 1, -1]
    for number in (0, 2):
        script.producer._router.stale_leader(TOPIC, number, 1)
    script.turn()
    for _ in range(10):
        script.producer.send(TOPIC, b"x")
        script.turn()
        script.answer()
    assert len(script.log[1]) >= 9


def test_each_record_knows_its_time() -> None:
    """Given or not, alone or many at once, mixed in one batch: every Ack tells the timestamp that its record
    bears."""
    for order in range(6):
        script = Script(max_in_flight=1)
        script.send(b"first")
        now = script.clock.wall_ms()
        acks: list[Ack] = []
        times: list[int] = []
        for way in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))[order]:
            if way == 0:
                acks.append(script.producer.send(TOPIC, b"x", timestamp=5))
                times.append(5)
            elif way == 1:
                acks += script.producer.send_many(TOPIC, [b"y"] * 3)
                times += [now] * 3
            else:
                acks += script.producer.send_many(TOPIC, [b"z"] * 2, timestamps=[7, 8])
                times += [7, 8]
        script.answer()
        script.answer()
        assert [ack.result().timestamp for ack in acks] == times


def test_acks_0_waits_for_nobody() -> None:
    """The request says so, the Ack is done when it is sent, and knows no offset."""
    script = Script(acks=0)
    acks = script.send(b"x")
    body = script.requests[0].body
    assert isinstance(body, ProduceRequest)
    assert body.acks == 0
    assert acks[0].result().offset == -1
    assert script.producer.is_idle
    assert script.producer.buffered_size == 0
    many = script.producer.send_many(TOPIC, [b"y", b"z"])
    script.turn()
    assert [ack.result().offset for ack in many] == [-1, -1]


def test_a_large_record_gets_a_batch_of_its_own() -> None:
    """Above ``batch_size_max`` alone, up to ``record_size_max``, in its place; more is refused and nothing
    queued."""
    script = Script(batch_size_max=200, record_size_max=1000, max_in_flight=10)
    acks = script.send(b"a", bytes(500), b"b")
    with pytest.raises(MessageTooLargeError):
        script.producer.send(TOPIC, bytes(1000))
    assert [script.values(number) for number in range(3)] == [{0: [b"a"]}, {0: [bytes(500)]}, {0: [b"b"]}]
    for _ in range(3):
        script.answer()
    assert offsets(acks) == [0, 1, 2]
    assert script.producer.is_idle
    many = script.producer.send_many(TOPIC, [b"c", bytes(600), b"d"], partition=0)
    script.turn()
    while script.requests:
        script.answer()
    assert offsets(list(many)) == offsets(many.last_of_each()) == [3, 4, 5]
    assert [many[number].offset for number in range(-3, 3)] == [3, 4, 5, 3, 4, 5]


def test_a_refused_value_is_not_sent() -> None:
    """A str among records leaves what was queued before, and nothing of itself that anybody could wait for."""
    script = Script()
    with pytest.raises(TypeError, match="encode"):
        script.producer.send(TOPIC, "text")  # type: ignore[arg-type]
    assert script.producer.is_idle
    with pytest.raises(TypeError, match="encode"):
        script.producer.send_many(TOPIC, ["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="encode"):
        script.producer.send_many(TOPIC, [b"text"], keys=[b"k"], headers=[[("h", "v")]])  # type: ignore[list-item]
    assert script.producer.is_idle
    acks = script.send(b"x")
    script.answer()
    assert offsets(acks) == [0]
    assert script.producer.is_idle


def test_closing_gives_up() -> None:
    """What was never sent fails as closed, what is on its way has an unknown outcome, and nothing more is taken."""
    script = Script(max_in_flight=1)
    sent = script.send(b"1")
    unsent = script.send(b"2")
    script.producer.close()
    script.producer.close()
    assert isinstance(sent[0].exception(), OutcomeUnknownError)
    assert isinstance(unsent[0].exception(), ClosedError)
    with pytest.raises(ClosedError):
        script.producer.send(TOPIC, b"3")


def test_abandoned() -> None:
    """Everything ends with the same error, and nothing more is taken: whoever is about to send turns to the next
    one."""
    script = Script(max_in_flight=1)
    acks = script.send(b"1") + script.send(b"2")
    error = OutcomeUnknownError("sending records", "interrupted")
    script.producer.abandon(error)
    assert [ack.exception() for ack in acks] == [error, error]
    assert script.producer.failures.unheard() == (0, None)
    with pytest.raises(ClosedError):
        script.producer.send(TOPIC, b"3")


def test_a_batch_that_was_left_empty() -> None:
    """A signal handler came between it and its first record: nobody waits for it."""
    script = Script()
    script.send(b"1")
    script.answer()
    script.producer.topics[TOPIC].queues[0]._begin(0)
    assert not script.producer.is_idle
    script.producer.topics[TOPIC].queues[0].seal()
    assert script.producer.is_idle


def test_settled_once_whatever_the_node_says() -> None:
    """Random answers, in random order, late and twice: every Ack is settled, acknowledged records are in the log at
    their offset, and each partition has them in the order of sending, each at most once."""
    codes = [
        0,
        0,
        0,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.MESSAGE_TOO_LARGE,
    ]
    for seed in range(60):
        chance = Random(seed)
        script = Script(partitions=2, batch_size_max=300, max_in_flight=chance.randrange(1, 5), request_timeout_ms=2000)
        sent: list[tuple[int, bytes, Ack]] = []
        for turn in range(60):
            if turn < 40:
                for _ in range(chance.randrange(4)):
                    partition, value = chance.randrange(2), b"%d-%d" % (len(sent), seed) * chance.randrange(1, 20)
                    sent.append((partition, value, script.producer.send(TOPIC, value, partition=partition)))
            script.advance(chance.choice((0, 0, 5, 40)))
            if script.requests and chance.random() < 0.8:
                # A node handles requests in order; so does the answer.
                script.answer(chance.choice(codes))
        for _ in range(200):
            while script.requests:
                script.answer()
            script.advance(50)
        for partition in range(2):
            mine = [(value, ack) for number, value, ack in sent if number == partition]
            assert all(ack.done() for _, ack in mine)
            appended = [value for value, ack in mine if ack.exception() is None]
            for value, ack in mine:
                if ack.exception() is None:
                    assert script.log[partition][ack.result().offset] == value
            assert script.log[partition] == appended, "in order, once"
