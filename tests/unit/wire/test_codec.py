"""The codec alone: everything comes back as it went in, and no bytes do harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.errors import LocalProtocolError, RemoteProtocolError
from pyreplog.record import BatchBuilder
from pyreplog.wire import METADATA_TOPIC_ID, CreatableTopicConfig, Request, Response
from pyreplog.wire.binary import Reader, Writer
from pyreplog.wire.codec import decode_value, encode_value
from pyreplog.wire.conversation import Conversation
from pyreplog.wire.layouts import APIS, CLASSES, LAYOUTS
from pyreplog.wire.metadata import MetadataRecord, TopicRecord, UnknownMetadataRecord
from pyreplog.wire.metadata_layouts import RECORD_LAYOUTS
from pyreplog.wire.schemas import (
    LOCAL_TAGS,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.wire.values import plain, values

MESSAGES = [kind.__name__ for api in APIS for kind in (api.request, api.response)]


def encoded(value: object) -> bytes:
    """The bytes of one value."""
    out = Writer()
    encode_value(out, value)
    data = b"".join(bytes(memoryview(part)) for part in out.parts())
    return data


def same(value: Any) -> Any:
    """What a value becomes on its way: an empty optional struct or list stays what it is, views become bytes."""
    return plain(value)


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=15)
@given(data=st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    """Every message comes back as it went in."""
    value = data.draw(values(name))
    assert same(decode_value(Reader(encoded(value)), CLASSES[name])) == same(value)


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=4)
@given(data=st.data())
def test_cut_anywhere(name: str, data: st.DataObject) -> None:
    """Cut at any byte a message is refused; and the reader does not look behind its end, whatever stands there."""
    whole = encoded(data.draw(values(name)))
    if len(whole) > 600:
        whole = encoded(data.draw(values(name).filter(lambda value: len(encoded(value)) <= 600)))
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode_value(Reader(whole, 0, size), CLASSES[name])
    with pytest.raises(RemoteProtocolError, match="too many"):
        decode_value(Reader(whole + b"\0"), CLASSES[name])


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=3)
@given(data=st.data())
def test_every_bit_flipped(name: str, data: st.DataObject) -> None:
    """With any bit flipped a message is refused or is another one: nothing else is raised, and no memory is asked
    for that is not there."""
    whole = bytearray(encoded(data.draw(values(name))))
    if len(whole) > 400:
        whole = bytearray(encoded(data.draw(values(name).filter(lambda value: len(encoded(value)) <= 400))))
    for position in range(len(whole)):
        for bit in range(8):
            whole[position] ^= 1 << bit
            try:
                decode_value(Reader(whole), CLASSES[name])
            except RemoteProtocolError:
                pass
            whole[position] ^= 1 << bit


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(MESSAGES))
def test_any_bytes(data: bytes, name: str) -> None:
    """Any bytes at all are a message or a RemoteProtocolError."""
    try:
        decode_value(Reader(data), CLASSES[name])
    except RemoteProtocolError:
        pass


def test_a_size_is_not_believed() -> None:
    """An array that announces two thousand million elements in a short message is refused before any is read."""
    with pytest.raises(RemoteProtocolError, match="announced"):
        decode_value(Reader(b"\xff\xff\xff\xff\x07" + bytes(20)), CLASSES["MetadataRequest"])


def test_unknown_tags_are_passed_over() -> None:
    """A newer peer's tagged fields do no harm; tags out of order are refused."""
    plain_bytes = encoded(CreatableTopicConfig("t", "v"))
    assert plain_bytes[-1] == 0
    newer = plain_bytes[:-1] + bytes([2, 5, 3]) + b"abc" + bytes([9, 0])
    assert decode_value(Reader(newer), CreatableTopicConfig) == CreatableTopicConfig("t", "v")
    with pytest.raises(RemoteProtocolError, match="tag 5 follows tag 9"):
        decode_value(Reader(plain_bytes[:-1] + bytes([2, 9, 0, 5, 0])), CreatableTopicConfig)


def test_what_a_fetch_says_of_tombstones_is_tagged() -> None:
    """Golden bytes: fields that Kafka does not have, left out where they say nothing."""
    plain_bytes = encoded(PartitionData(0))
    told = encoded(PartitionData(0, tombstone_bound=258, dropped_tombstone=5))
    assert plain_bytes[-1] == 0
    tags = "02 cc4e 08 0000000000000102 cd4e 08 0000000000000005"
    assert told == plain_bytes[:-1] + bytes.fromhex(tags)
    asked = encoded(FetchPartition(0, 1, 2))
    assert asked[-1] == 0
    assert encoded(FetchPartition(0, 1, 2, flushed_offset=7)) == asked[:-1] + bytes.fromhex(
        "01 ce4e 08 0000000000000007"
    )


def test_local_tags_are_listed() -> None:
    """Every tag of our own is in the table, under its number, and nothing else is."""
    found = {
        (name, word.partition(":")[0]): int(word.partition("@")[2])
        for name, line in {**LAYOUTS, **RECORD_LAYOUTS}.items()
        for word in line.split()
        if "@" in word and int(word.partition("@")[2]) >= 10_000
    }
    assert found == LOCAL_TAGS


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (ProduceRequest(2**15, 0, []), "ProduceRequest.acks"),
        (ProduceRequest(0, 0, None), "ProduceRequest.topic_data"),  # type: ignore[arg-type]
        (ProduceRequest(0, 0, [TopicProduceData("short", [])]), "TopicProduceData.topic_id"),
        (ProduceRequest(0, 0, ["topic"]), "is not a TopicProduceData"),  # type: ignore[list-item]
        (ProduceRequest(0, 0, [], transactional_id="x" * 40_000), "too long"),
        (ProduceRequest(0, 0, [], transactional_id="\ud800"), "not valid text"),
        (object(), "not a message"),
    ],
)
def test_what_does_not_fit(message: object, says: str) -> None:
    """A value that does not fit its type is refused by name, before anything is sent."""
    with pytest.raises(LocalProtocolError, match=says):
        encoded(message)


def test_large_records_are_not_copied() -> None:
    """Record bytes beyond a few KB are a part of the frame by themselves: the very memory that was given."""
    records = bytearray(10_000)
    out = Writer()
    encode_value(out, ProduceRequest(-1, 1000, [TopicProduceData("A" * 22, [PartitionProduceData(0, records)])]))
    parts = out.parts()
    records[5] = 7
    assert [len(memoryview(part)) for part in parts][1] == 10_000
    assert memoryview(parts[1])[5] == 7


class TestConversation:
    """Two ends of one connection."""

    def ends(self) -> tuple[Conversation, Conversation]:
        """A client's end and a node's."""
        return Conversation("client-1", "node-1"), Conversation("node-1", "client-1")

    @staticmethod
    def frame(parts: list[Any]) -> bytearray:
        """One frame."""
        return bytearray(b"".join(bytes(memoryview(part)) for part in parts))

    def test_request_and_answer(self) -> None:
        """A request arrives with where it came from; its answer is read after it, once."""
        client, node = self.ends()
        asked = Request("client-1", 7, FetchRequest(500, 1, []))
        arrived = node.decode_request(self.frame(client.encode(asked)))
        assert plain(arrived) == plain(asked)
        answer = self.frame(node.encode(Response("node-1", 7, FetchResponse([], session_id=3))))
        assert plain(client.decode_response(answer)) == plain(Response("node-1", 7, FetchResponse([], session_id=3)))
        with pytest.raises(RemoteProtocolError, match="was not sent"):
            client.decode_response(answer)

    def test_forgotten(self) -> None:
        """After the connection was lost nothing that was asked is answered."""
        client, node = self.ends()
        client.encode(Request("client-1", 7, FetchRequest(500, 1, [])))
        client.forget()
        with pytest.raises(RemoteProtocolError, match="was not sent"):
            client.decode_response(self.frame(node.encode(Response("node-1", 7, FetchResponse([])))))

    def test_metadata_records(self) -> None:
        """Metadata records, at offsets with gaps, travel as record batches and arrive as values."""
        client, node = self.ends()
        records = [(offset, TopicRecord(f"t{offset}", "A" * 22)) for offset in (3, 4, 5, 9, 11, 12)]
        client.encode(Request("client-1", 1, FetchRequest(0, 0, [])))
        body = FetchResponse(
            [FetchableTopicResponse(METADATA_TOPIC_ID, [PartitionData(0, records=records), PartitionData(1)])]
        )
        arrived = client.decode_response(self.frame(node.encode(Response("node-1", 1, body))))
        assert plain(arrived.body) == plain(body)

    @pytest.mark.parametrize("records", [None, b"", bytes(10_000)])
    def test_batches_of_the_quorum(self, records: bytes | None) -> None:
        """A voter's fetch is answered with batches, which arrive as the bytes that they are."""
        client, node = self.ends()
        asked = Request("client-1", 1, FetchRequest(0, 0, [], cluster_id="C" * 22))
        assert plain(node.decode_request(self.frame(client.encode(asked)))) == plain(asked)
        body = FetchResponse([FetchableTopicResponse(METADATA_TOPIC_ID, [PartitionData(0, records=records)])])
        arrived = client.decode_response(self.frame(node.encode(Response("node-1", 1, body))))
        assert plain(arrived.body) == plain(body)

    def test_records_are_writable(self) -> None:
        """A leader stamps what it was handed, so record bytes of a writable frame are writable."""
        client, node = self.ends()
        builder = BatchBuilder()
        builder.append(b"v", None, (), 0)
        body = ProduceRequest(
            -1, 1000, [TopicProduceData("A" * 22, [PartitionProduceData(0, bytes(builder.finish()))])]
        )
        arrived = node.decode_request(self.frame(client.encode(Request("client-1", 1, body))))
        assert isinstance(arrived.body, ProduceRequest)
        assert not memoryview(arrived.body.topic_data[0].partition_data[0].records).readonly

    def test_unknown_metadata_records(self) -> None:
        """A record that only newer software knows is refused, because a node cannot apply it."""
        client, node = self.ends()
        client.encode(Request("client-1", 1, FetchRequest(0, 0, [])))
        records: list[tuple[int, MetadataRecord]] = [(1, UnknownMetadataRecord(77, 0, bytes([1, 77, 0, 0])))]
        body = FetchResponse([FetchableTopicResponse(METADATA_TOPIC_ID, [PartitionData(0, records=records)])])
        with pytest.raises(RemoteProtocolError, match="type 77, version 0 is not known"):
            client.decode_response(self.frame(node.encode(Response("node-1", 1, body))))

    def test_damaged_metadata_records(self) -> None:
        """Metadata records with a flipped bit are a RemoteProtocolError."""
        client, node = self.ends()
        client.encode(Request("client-1", 1, FetchRequest(0, 0, [])))
        body = FetchResponse(
            [
                FetchableTopicResponse(
                    METADATA_TOPIC_ID, [PartitionData(0, records=[(1, TopicRecord("topic", "A" * 22))])]
                )
            ]
        )
        frame = self.frame(node.encode(Response("node-1", 1, body)))
        frame[-20] ^= 1
        with pytest.raises(RemoteProtocolError):
            client.decode_response(frame)

    @pytest.mark.parametrize("header", [bytes([0, 99, 0, 0]), bytes([0, 1, 0, 3])])
    def test_what_is_not_spoken(self, header: bytes) -> None:
        """An unknown request, and a known one in another version, are refused."""
        _, node = self.ends()
        with pytest.raises(RemoteProtocolError, match="not supported"):
            node.decode_request(header + bytes(30))
