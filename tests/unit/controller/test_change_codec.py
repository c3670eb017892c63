"""The short cut for changes of partitions gives the bytes and the values of the general codec."""

from __future__ import annotations

import base64
from random import Random

import pytest

from pyreplog.controller import change_codec
from pyreplog.controller.change_codec import ChangeDecoder, ChangeEncoder
from pyreplog.errors import RemoteProtocolError, UnsupportedVersionError
from pyreplog.wire import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    SuspectReplica,
    TopicRecord,
    decode_record,
    encode_record,
)

TOPIC = "Vkeo9ZaN7jZN1l8YEOqZQA"


def drawn(random: Random) -> MetadataRecord:
    """Draw a record, mostly a change of a partition with few different fields."""

    def members() -> tuple[int, ...] | list[int] | None:
        found = random.choice((None, (), (1,), (1, 2), (2, 1, 3)))
        return list(found) if found is not None and random.random() < 0.2 else found

    topic_id = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
    if random.random() < 0.1:
        return random.choice((TopicRecord("t", topic_id), PartitionRecord(3, topic_id, (1, 2), (1,))))
    return PartitionChangeRecord(
        random.choice((0, 1, 511, 70_000)),
        topic_id,
        members(),
        random.choice((-2, -1, 1, 2)),
        leader_recovery_state=random.choice((-1, 0, 1)),
        eligible_leader_replicas=members(),
        last_known_elr=members(),
        suspects=random.choice((None, (), (SuspectReplica(2, -2, 0),), (SuspectReplica(2, 5, 77),))),
    )


@pytest.mark.parametrize("kept", [3, 4096])
def test_the_bytes_and_the_values_are_those_of_the_general_codec(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_codec, "_RESTS_MAX", kept)
    random = Random(1)
    encoder, decoder = ChangeEncoder(), ChangeDecoder()
    for offset in range(3000):
        record = drawn(random)
        data = encoder.encode(record)
        assert data == encode_record(record)
        assert decoder.decode(data, offset) == decode_record(data)


def test_damaged_bytes_are_refused_as_by_the_general_codec() -> None:
    decoder = ChangeDecoder()
    whole = encode_record(PartitionChangeRecord(1, TOPIC, (1, 2), 1))
    decoder.decode(whole, 0)
    for end in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decoder.decode(whole[:end], 0)
    with pytest.raises(UnsupportedVersionError):
        decoder.decode(whole[:2] + b"\x09" + whole[3:], 0)
