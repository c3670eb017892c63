"""The envelope and the messages: copies share nothing, and every field of our own is listed."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest

import pyreplog.wire as wire
from pyreplog.errors import OutcomeUnknownError
from pyreplog.wire import (
    LOCAL_TAGS,
    NO_ID,
    FetchableTopicResponse,
    FetchResponse,
    MetadataRequest,
    PartitionData,
    PartitionProduceData,
    ProduceRequest,
    Request,
    Response,
    TopicProduceData,
    TopicRecord,
    materialised,
)
from tests.oracle.memory_log import MemoryLog
from tests.unit.replica.batches import batch

ROOT = Path(__file__).resolve().parents[3] / "src"
MESSAGES = [kind for name in wire.__all__ if dataclasses.is_dataclass(kind := getattr(wire, name))]


def produce(records: Any) -> Request:
    """A produce request with one batch."""
    return Request("client", 7, ProduceRequest(-1, 1000, [TopicProduceData(NO_ID, [PartitionProduceData(0, records)])]))


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_copies_share_no_record_bytes(make: Any) -> None:
    """A materialised request has its own writable records, whatever buffer it was made with; the original stays as
    it is."""
    original = produce(make(batch(2)))
    copy = original.materialised()
    records: Any = copy.body.topic_data[0].partition_data[0].records  # type: ignore[union-attr]
    assert bytes(records) == bytes(batch(2))
    records[0] = 99
    assert bytes(original.body.topic_data[0].partition_data[0].records) == bytes(batch(2))  # type: ignore[union-attr]
    assert (copy.source, copy.correlation_id) == ("client", 7)
    assert copy.body is not original.body


def fetched(records: Any) -> Response:
    """A fetch answer with these records."""
    return Response("n1", 8, FetchResponse([FetchableTopicResponse(NO_ID, [PartitionData(0, records=records)])]))


def test_slices_become_bytes() -> None:
    """A slice of a log becomes the bytes it had; a stale one cannot be sent."""
    log = MemoryLog()
    log.append_as_leader(bytes(batch(3)), 0)
    answer = fetched(log.read(0, 1000, 3))
    copy = answer.materialised()
    data: Any = copy.body.responses[0].partitions[0].records  # type: ignore[union-attr]
    assert bytes(data) == log.content[0]
    log.truncate_to(0)
    assert bytes(data) != b""
    with pytest.raises(OutcomeUnknownError):
        answer.materialised()


def test_metadata_records_are_copied() -> None:
    """Lists of (offset, record) keep their shape; the copies are equal and not the same."""
    record = TopicRecord("t", NO_ID)
    copy: Any = fetched([(5, record)]).materialised()
    (offset, found) = copy.body.responses[0].partitions[0].records[0]
    assert (offset, found) == (5, record)
    assert found is not record


def test_none_and_empty_survive() -> None:
    """None, empty sequences and defaults come out as they went in."""
    for body in (MetadataRequest(), MetadataRequest([])):
        assert materialised(body) == body
        assert materialised(body) is not body


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_messages_are_slotted_values(kind: Any) -> None:
    """Every message has slots, equality, a docstring, and comes through a copy unchanged."""
    source = ast.parse(Path(ROOT, *kind.__module__.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    assert ast.get_docstring(
        next(node for node in source.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    )
    values: list[object] = []
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            text = str(field.type)
            values.append(
                []
                if "Sequence" in text
                else b"x"
                if "Buffer" in text
                else "a"
                if "str" in text or "Address" in text
                else 3
            )
    value = kind(*values)
    assert not hasattr(value, "__dict__")
    assert materialised(value) == value or "records" in [field.name for field in dataclasses.fields(kind)]


def test_local_tags_name_fields_once() -> None:
    """Each field that Kafka lacks is listed with a tag of its own from 10000."""
    assert len(set(LOCAL_TAGS.values())) == len(LOCAL_TAGS)
    for (message, field), tag in LOCAL_TAGS.items():
        assert tag >= 10000
        assert field in {f.name for f in dataclasses.fields(getattr(wire, message))}
