"""The consumer against a node that answers as a test says, on a clock moved by hand."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog._core import crc32c
from pyreplog.client import Consumer, ConsumerConfig
from pyreplog.client.router import TopicRoute
from pyreplog.errors import (
    ClusterError,
    CorruptError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    TopicRecreatedError,
    UnknownTopicError,
)
from pyreplog.record import BatchBuilder
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    EARLIEST_TIMESTAMP,
    EpochEndOffset,
    ErrorCode,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
    Request,
    Response,
)
from tests.unit.client.node_one import TOPIC, TOPIC_ID, NodeOne


def batch(base_offset: int, *values: bytes) -> bytearray:
    """One batch as a node would send it."""
    builder = BatchBuilder()
    builder.extend(list(values), None, None, None, 1, 0)
    return bytearray(builder.finish(base_offset=base_offset, leader_epoch=0))


class Script(NodeOne):
    """Node 1, which answers offsets by itself, too, and keeps fetches until told what to say; and a consumer."""

    def __init__(self, partitions: int = 1, leader: int = 1, **settings: object) -> None:
        super().__init__(partitions)
        self.leaders = [leader] * partitions
        self.start, self.end = 0, 100
        self.offsets_code = 0
        self.offsets_asked = 0
        self.machine = self.consumer = Consumer(
            self.network.endpoint(),
            self.clock,
            Random(1),
            ["node-1"],
            address="consumer",
            config=ConsumerConfig(**settings),  # type: ignore[arg-type]
        )
        self.consumer.assign([TopicPartition(TOPIC, number) for number in range(partitions)])
        self.turn()

    def hear(self, message: Request) -> None:
        """Offsets are told, too."""
        body = message.body
        if not isinstance(body, ListOffsetsRequest):
            super().hear(message)
            return
        self.offsets_asked += 1
        asked = body.topics[0].partitions[0]
        offset = self.start if asked.timestamp == EARLIEST_TIMESTAMP else self.end
        result = ListOffsetsPartitionResponse(asked.partition_index, self.offsets_code, 0, offset)
        self.say(message, ListOffsetsResponse([ListOffsetsTopicResponse(TOPIC, [result])]))

    def asked(self) -> dict[int, int]:
        """The offsets that the kept fetch asks for, by partition."""
        assert len(self.requests) == 1, "one fetch that carries all"
        return self.all_asked()[0]

    def all_asked(self) -> list[dict[int, int]]:
        """As :meth:`asked`, for each of the kept fetches."""
        bodies = [message.body for message in self.requests]
        return [
            {part.partition: part.fetch_offset for topic in body.topics for part in topic.partitions}  # type: ignore[union-attr]
            for body in bodies
        ]

    @property
    def nodes(self) -> list[int]:
        """Those that are being asked, one for each fetch."""
        return [fetch.node for fetch in self.consumer._fetches]

    def answer(self, *parts: PartitionData, index: int = -1) -> None:
        """Answer the kept fetch (the last one, where there are several)."""
        message = self.requests.pop(index)
        self.say(message, FetchResponse([FetchableTopicResponse(TOPIC_ID, parts)]))
        self.turn()


def test_records_come_in_order_and_the_position_follows() -> None:
    """What arrived is handed out in portions; the next fetch goes out when it is used up, from behind it."""
    script = Script(max_poll_records=2)
    assert script.asked() == {0: 0}
    script.answer(PartitionData(0, high_watermark=5, records=batch(0, b"a", b"b", b"c") + batch(3, b"d", b"e")))
    assert not script.requests, "nothing is fetched while something is there"
    assert [record.value for record in script.consumer.take()] == [b"a", b"b"]
    assert script.consumer.position(TOPIC, 0) == 2
    assert [record.value for record in script.consumer.take()] == [b"c", b"d"]
    assert [record.value for record in script.consumer.take()] == [b"e"]
    script.turn()
    assert script.asked() == {0: 5}
    assert script.consumer.high_watermark(TOPIC, 0) == 5


def test_a_batch_may_begin_before_the_position() -> None:
    """A fetch from the middle of a batch brings it whole; only what was asked for is handed out."""
    script = Script()
    script.consumer.seek(TOPIC, 0, 2)
    script.requests.clear()
    script.turn()
    assert script.asked() == {0: 2}
    script.answer(PartitionData(0, records=batch(0, b"a", b"b", b"c", b"d")))
    assert [record.offset for record in script.consumer.take()] == [2, 3]


def test_a_seek_forgets_what_was_fetched() -> None:
    """An answer to a fetch from another position is dropped, and so is what was buffered."""
    script = Script()
    script.consumer.seek(TOPIC, 0, 50)
    script.answer(PartitionData(0, records=batch(0, b"a")))
    assert script.consumer.take() == []
    assert script.asked() == {0: 50}
    script.answer(PartitionData(0, records=batch(50, b"b")))
    script.consumer.seek(TOPIC, 0, 60)
    assert script.consumer.take() == []
    script.turn()
    assert script.asked() == {0: 60}


def test_partitions_share_a_fetch_and_take_turns() -> None:
    """One fetch carries all that is wanted; a busy partition does not starve the others."""
    script = Script(partitions=3, max_poll_records=4)
    assert script.asked() == {0: 0, 1: 0, 2: 0}
    script.answer(*(PartitionData(number, records=batch(0, *[b"%d" % number] * 8)) for number in range(3)))
    first = {record.partition for _ in range(3) for record in script.consumer.take()}
    assert first == {0, 1, 2}


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_NOT_AVAILABLE]
)
def test_a_passing_refusal_is_asked_again(code: int) -> None:
    """Who leads is asked again, and after a pause the fetch goes out anew; the caller sees nothing of it."""
    script = Script()
    before = script.metadata_asked
    script.answer(PartitionData(0, code))
    assert not script.requests
    script.advance(100)
    assert script.metadata_asked > before
    assert script.asked() == {0: 0}
    assert not script.consumer.has_records


def test_out_of_range() -> None:
    """By the policy: begin at the start, at the end, or tell the caller."""
    for policy, offset in (("earliest", 7), ("latest", 100)):
        script = Script(auto_offset_reset=policy)
        script.start = 7
        script.answer(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        assert script.asked() == {0: offset}
        assert script.consumer.position(TOPIC, 0) == offset
    script = Script(auto_offset_reset="none")
    script.answer(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=100, log_start_offset=7))
    with pytest.raises(OffsetOutOfRangeError):
        script.consumer.take()
    assert script.consumer.take() == [], "told once"


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_out_of_range_at_a_follower_is_asked_of_the_leader(policy: str) -> None:
    """Each replica removes old segments by itself: what a follower has no more the leader may have."""
    script = Script(leader=2, read_from="follower", auto_offset_reset="earliest")
    script.consumer.config = ConsumerConfig(read_from="follower", auto_offset_reset=policy)  # type: ignore[arg-type]
    script.answer(PartitionData(0, records=batch(0, b"a", b"b"), high_watermark=100))
    assert len(script.consumer.take()) == 2
    script.turn()
    assert script.asked() == {0: 2}
    assert script.nodes == [1], "a follower"
    script.answer(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=100, log_start_offset=50))
    for offset in range(2, 6):
        assert script.asked() == {0: offset}
        assert script.nodes == [2], "at once, and from now on: they do not take turns"
        script.answer(PartitionData(0, records=batch(offset, b"c"), high_watermark=100))
        assert [record.value for record in script.consumer.take()] == [b"c"]
        script.turn()
    script.answer(PartitionData(0, records=batch(6, b"c"), high_watermark=100))
    script.advance(301_000)
    assert len(script.consumer.take()) == 1
    script.turn()
    assert script.nodes == [1], "after a while the follower is tried again"


def test_damaged_bytes_are_told() -> None:
    """A batch whose checksum is wrong is never handed out."""
    script = Script()
    damaged = batch(1, b"value")
    damaged[-2] ^= 1
    script.answer(PartitionData(0, records=batch(0, b"good") + damaged + batch(2, b"behind")))
    assert [record.value for record in script.consumer.take()] == [b"good"], "what came before it is fine"
    with pytest.raises(CorruptError, match="checksum"):
        script.consumer.take()
    assert script.consumer.position(TOPIC, 0) == 1
    script.advance(1000)
    assert script.asked() == {0: 1}, "it is never skipped, and asked for again: another copy may be whole"
    script.answer(PartitionData(0, records=batch(1, b"value") + batch(2, b"behind")))
    assert [record.value for record in script.consumer.take()] == [b"value", b"behind"]


def test_damaged_bytes_at_once() -> None:
    """Where they are the first that came: told once, and then asked for again."""
    script = Script()
    damaged = batch(0, b"value")
    damaged[-2] ^= 1
    script.answer(PartitionData(0, records=damaged))
    with pytest.raises(CorruptError, match="checksum"):
        script.consumer.take()
    assert script.consumer.take() == []
    script.turn()
    assert not script.requests
    script.advance(1000)
    assert script.asked() == {0: 0}


def test_a_batch_without_records_is_passed() -> None:
    """A leader's mark holds nothing that is handed out: the position is behind it."""
    script = Script()
    builder = BatchBuilder()
    builder.append(b"\0\0\0\0", b"\0\0\0\2", (), 1)
    script.answer(PartitionData(0, records=bytearray(builder.finish(base_offset=0, leader_epoch=0, control=True))))
    assert script.consumer.take() == []
    assert script.consumer.position(TOPIC, 0) == 1
    script.turn()
    assert script.asked() == {0: 1}


def test_a_batch_without_its_last_records_is_passed() -> None:
    """Compaction keeps the end of a batch whose last records are gone. A reader that waits for that end gets there,
    also if it takes one record at a time."""
    for count in (None, 1):
        script = Script()
        kept = batch(0, b"a", b"b")
        kept[23:27] = (9).to_bytes(4, "big")  # its last offset, as if it had had ten records
        kept[17:21] = crc32c(kept[21:]).to_bytes(4, "big")
        script.answer(PartitionData(0, records=kept))
        ends = {TopicPartition(TOPIC, 0): 10}
        consumer, taken = script.consumer, 0
        while consumer.has_more(ends) and taken < 2:
            taken += len(consumer.take(count, ends))
        assert taken == 2
        assert consumer.position(TOPIC, 0) == 10
        assert not consumer.has_more(ends)
        script.turn()
        assert script.asked() == {0: 10}


def test_a_seek_back_forgets_what_is_on_its_way() -> None:
    """What was asked for before lies behind what is wanted now."""
    script = Script()
    script.answer(PartitionData(0, records=batch(0, b"a")))
    assert len(script.consumer.take()) == 1
    script.turn()
    assert script.asked() == {0: 1}
    script.consumer.seek(TOPIC, 0, 0)
    script.answer(PartitionData(0, records=batch(1, b"b")))
    assert script.consumer.take() == []
    assert script.asked() == {0: 0}


def test_a_seek_beats_the_reset() -> None:
    """The answer to where to begin comes too late for who knows it by now."""
    script = Script()
    script.requests.clear()
    script.consumer.assign([])
    script.consumer.assign([TopicPartition(TOPIC, 0)])
    script.consumer.poll()
    script.consumer.seek(TOPIC, 0, 7)
    script.turn()
    assert script.asked() == {0: 7}
    assert script.consumer.position(TOPIC, 0) == 7


def test_one_fetch_of_a_partition_at_a_time() -> None:
    """Although another node leads since it was asked for."""
    script = Script()
    script.leaders = [2]
    script.consumer._router.stale_leader(TOPIC, 0, 1)
    script.turn()
    script.advance(100)
    assert script.asked() == {0: 0}


def test_a_follower_that_cannot_answer() -> None:
    """The leader is asked instead, until it has answered."""
    script = Script(leader=2, read_from="follower")
    assert script.nodes == [1]
    for _ in range(2):
        script.answer(PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        script.advance(100)
        assert script.nodes == [2]
    script.answer(PartitionData(0, high_watermark=0))
    assert script.nodes == [1]


def test_a_replica_of_the_rack_is_asked() -> None:
    """An in-sync follower of the consumer's rack is asked, else the leader if it is there, else any follower."""
    consumer = Script(read_from="follower", rack="b").consumer
    router = consumer._router
    router.addresses = {number: f"node-{number}" for number in (1, 2, 3, 4)}
    route = TopicRoute(TOPIC, TOPIC_ID, leaders=[1], epochs=[0], isrs=[(1, 2, 3, 4)])
    asked = []
    for racks in ("abcd", "acbd", "bcda", "bcdb", "acda"):
        router.racks = dict(enumerate(racks, 1))
        asked.append(consumer._follower(route, 0, 1))
    assert asked == [2, 3, 1, 4, 2]
    route.isrs = [(1, 2)]
    router.racks = dict(enumerate("acbd", 1))
    assert consumer._follower(route, 0, 1) == 2  # node 3 is not in sync


def test_what_was_cut_off_while_it_was_read() -> None:
    """A node in this process lends its bytes, and says where they are gone: asked for again, after a pause."""

    class Gone:
        def parts(self) -> list[bytes]:
            raise OutcomeUnknownError("read", "the log was truncated")

    script = Script()
    asked = script.metadata_asked
    script.answer(PartitionData(0, records=Gone()))  # type: ignore[arg-type]
    assert not script.requests
    script.advance(100)
    assert script.metadata_asked > asked
    assert script.asked() == {0: 0}
    assert script.consumer.take() == []


def test_a_look_up_that_nobody_waits_for() -> None:
    """Forgotten while it is on its way: it is not asked again."""
    script = Script()
    script.offsets_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = script.consumer.look_up(TOPIC, 0, 12345)
    script.consumer.poll()
    script.consumer.forget_look_up(answer)
    script.turn()
    asked = script.offsets_asked
    script.advance(1000)
    assert script.offsets_asked == asked
    assert not answer.settled


def test_closing() -> None:
    """Whoever waits for records looks again; a look-up fails, on its way or not."""
    script = Script()
    pending = script.consumer.wait_for_records()
    answers = [script.consumer.look_up(TOPIC, 0, 1)]
    script.consumer.poll()
    answers.append(script.consumer.look_up(TOPIC, 0, 2))
    script.consumer.close()
    assert pending.settled
    answers.append(script.consumer.look_up(TOPIC, 0, 3))
    assert all(isinstance(answer.error, ClusterError) for answer in answers)


def test_waiting_and_looking_up() -> None:
    """Who waits is released by the first record; an offset by time comes from the leader, after passing refusals
    too."""
    script = Script()
    pending = script.consumer.wait_for_records()
    script.answer(PartitionData(0))
    assert not pending.settled
    script.answer(PartitionData(0, records=batch(0, b"a")))
    assert pending.settled
    assert script.consumer.wait_for_records().settled
    script.offsets_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = script.consumer.look_up(TOPIC, 0, 12345)
    script.turn()
    assert not answer.settled
    script.offsets_code = 0
    script.advance(1000)
    assert answer.offset == 100


def test_reading_up_to_ends() -> None:
    """Nothing from an end on is taken, or waited for, however much is there; it stays for whoever asks next. An end
    may lie in a gap."""
    script = Script(partitions=2)
    first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    ends = {first: 2, second: 8}
    script.answer(PartitionData(0, records=batch(0, b"a", b"b", b"c") + batch(3, b"d")), PartitionData(1))
    consumer = script.consumer
    assert [record.value for record in consumer.take(None, ends)] == [b"a", b"b"]
    assert consumer.position(*first) == 2
    assert consumer.take(None, ends) == []
    pending = consumer.wait_for_records(ends)
    assert not pending.settled
    assert consumer.has_records
    script.turn()
    assert not pending.settled
    script.answer(PartitionData(1, records=batch(5, b"x") + batch(9, b"y")))
    assert pending.settled
    assert [record.value for record in consumer.take(None, ends)] == [b"x"]
    assert consumer.take(None, ends) == []
    assert consumer.position(*second) == 8
    assert not consumer.has_more(ends)
    assert consumer.wait_for_records(ends).settled, "none can come any more"
    assert sorted(record.value or b"" for record in consumer.take()) == [b"c", b"d", b"y"]


def test_unknown_partitions() -> None:
    """An assignment that the topic does not have is an error of that partition, told when records are asked for."""
    script = Script()
    script.consumer.assign([TopicPartition(TOPIC, 5)])
    script.turn()
    with pytest.raises(UnknownTopicError, match="events-5"):
        script.consumer.take()
    with pytest.raises(LookupError):
        script.consumer.position(TOPIC, 0)


def test_what_was_read_and_is_gone_is_said() -> None:
    """A fetch names the epoch of the last batch; where the leader's history parts from it, that is raised once,
    whatever the reset policy, and the reading goes on from there. A seek forgets the epoch."""
    script = Script()
    script.answer(PartitionData(0, high_watermark=3, records=batch(0, b"a", b"b", b"c")))
    assert len(script.consumer.take()) == 3
    script.turn()
    body = script.requests[0].body
    assert isinstance(body, FetchRequest)
    assert body.topics[0].partitions[0].last_fetched_epoch == 0
    script.answer(PartitionData(0, high_watermark=2, log_start_offset=0, diverging_epoch=EpochEndOffset(0, 1)))
    with pytest.raises(OffsetOutOfRangeError, match="truncated at 1"):
        script.consumer.take()
    script.turn()
    assert script.asked() == {0: 1}
    body = script.requests[0].body
    assert isinstance(body, FetchRequest)
    assert body.topics[0].partitions[0].last_fetched_epoch == -1


def test_a_partition_does_not_wait_for_the_fetch_of_another() -> None:
    """A node holds a fetch of what has nothing new for half a second: who is busy there is asked for in another one
    meanwhile."""
    script = Script(partitions=3)
    script.answer(PartitionData(0, records=batch(0, b"a", b"b")), PartitionData(1), PartitionData(2))
    assert script.asked() == {1: 0, 2: 0}
    for offset in range(2, 6):
        assert script.consumer.take()
        script.turn()
        assert script.all_asked() == [{1: 0, 2: 0}, {0: offset}], "no clock was needed"
        script.answer(PartitionData(0, records=batch(offset, b"c")))
    script.answer(PartitionData(1), PartitionData(2, records=batch(0, b"d")), index=0)
    assert [(record.partition, record.offset) for record in script.consumer.take()] == [(2, 0), (0, 5)]


def test_what_has_nothing_new_is_asked_for_together_again() -> None:
    """However many fetches it came to while some were busy: one carries all that are idle, and the earlier ones are
    of no account."""
    script = Script(partitions=3)
    script.answer(PartitionData(0, records=batch(0, b"a")), PartitionData(1, records=batch(0, b"b")), PartitionData(2))
    assert len(script.consumer.take(1)) == 1
    script.turn()
    assert len(script.consumer.take(1)) == 1
    script.turn()
    assert script.all_asked() == [{2: 0}, {1: 1}, {0: 1}]
    script.answer(PartitionData(2), index=0)
    assert script.all_asked() == [{1: 1}, {0: 1}, {2: 0}], (
        "the busy ones may have an answer on its way, which is not asked for twice"
    )
    script.answer(PartitionData(1), index=0)
    assert script.all_asked() == [{0: 1}, {2: 0}, {1: 1, 2: 0}]
    script.answer(PartitionData(0), index=0)
    assert script.all_asked() == [{2: 0}, {1: 1, 2: 0}, {0: 1, 1: 1, 2: 0}]
    script.answer(PartitionData(2, ErrorCode.NOT_LEADER_OR_FOLLOWER), index=0)
    script.answer(PartitionData(1, records=batch(1, b"c")), PartitionData(2), index=0)
    assert script.asked() == {0: 1, 1: 1, 2: 0}
    assert not script.consumer.has_records
    script.answer(PartitionData(0), PartitionData(1, records=batch(1, b"c")), PartitionData(2))
    assert [record.value for record in script.consumer.take()] == [b"c"]


def test_a_seek_does_not_wait_for_a_fetch() -> None:
    """It is served at once, whatever becomes of the fetch before; back where that one waits, no other is needed,
    however often."""
    script = Script()
    script.answer(PartitionData(0, records=batch(0, b"a", b"b")))
    for _ in range(3):
        assert script.consumer.take()
        script.turn()
        assert script.asked() == {0: 2}
        script.consumer.seek(TOPIC, 0, 1)
        script.turn()
        assert script.all_asked() == [{0: 2}, {0: 1}]
        script.answer(PartitionData(0, records=batch(0, b"a", b"b")))
    assert [record.offset for record in script.consumer.take()] == [1]
    script.answer(PartitionData(0, records=batch(2, b"c")))
    assert [record.offset for record in script.consumer.take()] == [2]


def test_an_answer_for_behind_what_is_buffered() -> None:
    """After a seek back, what the fetch at the end brings is asked for again once it is its turn: nothing is left
    out or doubled."""
    script = Script()
    script.consumer.seek(TOPIC, 0, 2)
    script.turn()
    script.answer(PartitionData(0, records=batch(2, b"c")))
    assert script.consumer.take()
    script.turn()
    script.consumer.seek(TOPIC, 0, 1)
    script.turn()
    assert script.all_asked() == [{0: 0}, {0: 3}, {0: 1}]
    script.answer(PartitionData(0, records=batch(1, b"b", b"c")))
    script.answer(PartitionData(0, records=batch(3, b"d")))
    assert [record.offset for record in script.consumer.take()] == [1, 2]
    script.turn()
    assert script.all_asked() == [{0: 0}, {0: 3}]
    script.answer(PartitionData(0, records=batch(3, b"d")))
    assert [record.offset for record in script.consumer.take()] == [3]


def test_a_seek_to_where_a_fetch_waits_forgets_what_was_read_before() -> None:
    """The fetch of before names the epoch that was read, and may be told that this is gone; who sought has read
    nothing."""
    script = Script()
    script.answer(PartitionData(0, records=batch(0, b"a")))
    assert script.consumer.take()
    script.turn()
    script.consumer.seek(TOPIC, 0, 1)
    script.turn()
    assert script.all_asked() == [{0: 1}, {0: 1}]
    script.answer(PartitionData(0, diverging_epoch=EpochEndOffset(0, 0)), index=0)
    assert not script.consumer.has_records
    assert script.consumer.position(TOPIC, 0) == 1


def test_an_assignment_does_not_wait_for_a_fetch() -> None:
    """What is read from now on is asked for at once."""
    script = Script(partitions=2)
    script.consumer.assign([TopicPartition(TOPIC, 0)])
    script.turn()
    assert script.asked() == {0: 0, 1: 0}
    script.consumer.assign([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
    script.turn()
    assert script.all_asked() == [{0: 0, 1: 0}, {1: 0}]
    script.answer(PartitionData(0), PartitionData(1, records=batch(0, b"not for this one")), index=0)
    assert not script.consumer.has_records
    script.answer(PartitionData(1, records=batch(0, b"a")), index=0)
    assert [record.value for record in script.consumer.take()] == [b"a"]


def test_a_lost_fetch_that_was_sought_away_from() -> None:
    """That a node did not answer it is no reason to wait before the next one."""
    script = Script(request_timeout_ms=1000)
    script.advance(900)
    script.consumer.seek(TOPIC, 0, 5)
    script.turn()
    script.advance(200)
    assert script.nodes == [1]
    assert script.all_asked() == [{0: 0}, {0: 5}]
    script.answer(PartitionData(0, records=batch(5, b"a")))
    assert [record.offset for record in script.consumer.take()] == [5]
    script.turn()
    assert script.all_asked() == [{0: 0}, {0: 6}]


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("position", [0, 5])
def test_another_topic_in_the_place_of_the_one_that_was_read(policy: str, position: int) -> None:
    """It is read from its first record on, and who was further in the other is told so, once. No answer about that
    one counts any more."""
    script = Script(auto_offset_reset=policy)
    script.consumer.seek(TOPIC, 0, 0)
    script.turn()
    script.consumer.seek(TOPIC, 0, 7)
    script.turn()
    script.consumer.seek(TOPIC, 0, position)
    script.turn()
    script.topic_id = "CCCCCCCCCCCCCCCCCCCCCA"
    asked = next(index for index, asked in enumerate(script.all_asked()) if asked == {0: position})
    late = script.requests[1 if position else 0]
    script.answer(PartitionData(0, ErrorCode.UNKNOWN_TOPIC_ID), index=asked)
    script.advance(1000)
    if position:
        with pytest.raises(TopicRecreatedError, match="events-0 was read up to offset 5, but the topic was re-created"):
            script.consumer.take()
        script.turn()
    body = script.requests[-1].body
    assert isinstance(body, FetchRequest)
    assert [topic.topic_id for topic in body.topics] == [script.topic_id]
    assert script.all_asked()[-1] == {0: 0}
    old = PartitionData(
        0, high_watermark=3, last_stable_offset=3, log_start_offset=0, records=batch(0, b"x", b"y", b"z")
    )
    answer = FetchResponse([FetchableTopicResponse(TOPIC_ID, [old])])
    for fetch in [late, *script.requests[:-1]]:
        script.node.send("consumer", Response("node-1", fetch.correlation_id, answer))
        script.turn()
    assert script.consumer.take() == []
    assert script.consumer.position(TOPIC, 0) == 0
