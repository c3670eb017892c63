"""A whole image as the records of an answer."""

from __future__ import annotations

from pyreplog.controller import ImageRecords, MetadataImage
from pyreplog.wire import PartitionRecord, TopicRecord

TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUw"


def test_an_image_is_its_records_and_itself() -> None:
    """A reader gets the records at the image's offset, or an image of its own, without later changes of the source."""
    source = MetadataImage()
    source.apply(4, TopicRecord("t", TOPIC_ID))
    source.apply(5, PartitionRecord(0, TOPIC_ID, (1, 2), (1,), leader=1))
    records = ImageRecords(source)
    source.apply(6, PartitionRecord(1, TOPIC_ID, (1, 2), (1,), leader=1))
    assert [offset for offset, _ in records] == [5, 5]
    assert len(records) == 2
    assert records[0] == (5, TopicRecord("t", TOPIC_ID))
    assert [type(record) for _, record in records[1:]] == [PartitionRecord]
    first, second = records.image(), records.image()
    first.apply(6, PartitionRecord(7, TOPIC_ID, (1, 2), (1,), leader=1))
    assert list(second.topics[TOPIC_ID].partitions) == [0]
    assert second.offset == 5
