"""Record apart from its log: made by hand, copied, pickled."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, cast

import pytest

from pyreplog import Record
from pyreplog.errors import CorruptError
from pyreplog.record import BatchBuilder, RecordBatch, convert_legacy, legacy_batches, records_of
from pyreplog.values import TimestampType
from tests.unit.record.test_batch import make

FACTS = ("topic", "partition", "offset", "leader_epoch", "timestamp", "timestamp_type", "key", "value", "headers")


def facts(record: Record) -> tuple[object, ...]:
    """All that can be asked of a record."""
    return tuple(getattr(record, name) for name in FACTS)


def of_a_log(**options: object) -> list[Record]:
    """Records of a batch in the middle of something."""
    builder = BatchBuilder()
    for value, key, headers in (
        (b"a", None, ()),
        (None, b"k", [("h", b"1"), ("h", None)]),
        (b"", b"", [("ä", b"")]),
        (b"x" * 70_000, b"k", ()),
    ):
        assert builder.append(value, key, headers, 1000 + builder.count)
    data = bytes(builder.finish(base_offset=1 << 40, leader_epoch=7, **options))  # type: ignore[arg-type]
    return records_of(RecordBatch(b"other bytes" + data, 11), "orders", 3)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "options",
    [{}, {"timestamp_type": 1, "append_timestamp": 5}, {"producer_id": 9, "producer_epoch": 1, "base_sequence": 3}],
)
def test_a_record_is_pickled_whole(protocol: int, options: dict[str, object]) -> None:
    """What comes out is equal in everything, and the bytes are about those of the record, not of its batch."""
    for record in of_a_log(**options):
        data = pickle.dumps(record, protocol)
        other = pickle.loads(data)
        assert type(other) is Record
        assert other == record
        assert hash(other) == hash(record)
        assert facts(other) == facts(record)
        if protocol >= 3:
            assert len(data) < 350 + len(record.key or b"") + len(record.value or b"")


def test_records_of_old_messages_are_pickled() -> None:
    """They have no timestamp, and say so afterwards too."""
    body = bytes.fromhex("0000") + (4).to_bytes(4, "big") + b"keys" + (4).to_bytes(4, "big") + b"word"
    summed = zlib.crc32(body).to_bytes(4, "big") + body
    (batch,) = legacy_batches(
        convert_legacy(memoryview((5).to_bytes(8, "big") + len(summed).to_bytes(4, "big") + summed))
    )
    (record,) = records_of(batch, "t", 0)
    assert record.timestamp_type is TimestampType.NONE
    assert facts(pickle.loads(pickle.dumps(record))) == facts(record)
    assert Record(**record._asdict()) == record


def test_a_record_with_a_header_name_that_is_no_text_is_pickled_as_it_is() -> None:
    """A header name that is not UTF-8 reads with U+FFFD for the wrong byte, and the pickled record keeps the byte
    as it is."""
    data = make(1).replace(b"\x02h\x01", b"\x02\xff\x01")
    (record,) = RecordBatch(data).records()
    assert "headers=<1 pair>" in repr(record)
    pickled = pickle.dumps(record)
    assert b"\x02\xff\x01" in pickled
    other = pickle.loads(pickled)
    assert record == other
    for one in (record, other):
        assert one.headers == (("\ufffd", None),)


def test_what_was_pickled_is_read_as_a_file_is() -> None:
    """Anybody's bytes: each flipped one is a CorruptError, and so is what is no batch of one record."""
    (record,) = RecordBatch(make(1)).records(topic="t", partition=1)
    undo, (topic, partition, data) = cast("tuple[Any, Any]", record.__reduce__())
    for position in range(len(data)):
        if position < 8 or 12 <= position < 16:
            continue  # offset and leader epoch are under no checksum
        wrong = bytearray(data)
        wrong[position] ^= 1
        with pytest.raises(CorruptError):
            undo(topic, partition, bytes(wrong))
    for wrong_data in (b"", data[:-1], data + b"\0", make(2), data + data):
        with pytest.raises(CorruptError):
            undo(topic, partition, wrong_data)
    with pytest.raises(TypeError):
        undo(topic, partition, None)


def test_a_copy_of_a_record_is_itself() -> None:
    """It never changes, as a tuple or bytes."""
    record = of_a_log()[1]
    assert copy.copy(record) is record
    assert copy.deepcopy([record])[0] is record


def test_records_go_to_a_pool_of_processes() -> None:
    """As arguments and as results."""
    records = of_a_log()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert list(pool.map(copy.copy, records)) == records


def test_a_record_is_made_by_hand() -> None:
    """For a user's own tests: everything may be said, most has a default, and it is checked as what is appended."""
    record = Record(
        b"v", key=b"k", headers={"h": b"1"}.items(), topic="orders", partition=2, offset=17, timestamp=5, leader_epoch=3
    )
    assert facts(record) == ("orders", 2, 17, 3, 5, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"1"),))
    assert facts(Record()) == ("", 0, 0, -1, -1, TimestampType.CREATE_TIME, None, None, ())
    assert Record(value=b"v") == Record(b"v")
    assert bytes(Record(memoryview(b"v")).value_view or b"") == b"v"
    by_log = Record(b"v", timestamp=5, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert (by_log.timestamp, by_log.timestamp_type) == (5, TimestampType.LOG_APPEND_TIME)
    assert Record(timestamp_type=TimestampType.NONE).timestamp_type is TimestampType.NONE
    for one in (record, by_log, *of_a_log()):
        assert Record(**one._asdict()) == one
        assert list(one._asdict()) == list(Record()._asdict())


def test_how_it_is_made_can_be_asked() -> None:
    """``inspect.signature``, and with it ``help`` and editors, tell what may be given, and what holds where nothing
    is."""
    parameters = inspect.signature(Record).parameters
    assert [name for name, value in parameters.items() if value.kind is not value.KEYWORD_ONLY] == ["value"]
    assert Record(**{name: value.default for name, value in parameters.items()}) == Record()
    assert {"leader_epoch", *Record()._asdict()} == set(parameters)
    assert str(inspect.signature(RecordBatch)) == "(data, position=0)"


def test_a_record_that_cannot_be_is_refused() -> None:
    """With what ``append`` would say."""
    for arguments, kind, text in (
        ({"value": "text"}, TypeError, "encode"),
        ({"key": 5}, TypeError, "key"),
        ({"headers": {"a": 1}}, TypeError, "not int"),
        ({"headers": iter([("a", b"1")])}, TypeError, "list"),
        ({"offset": -1}, ValueError, "offset"),
        ({"timestamp": -2}, ValueError, "timestamp"),
        ({"timestamp_type": 3}, ValueError, "3"),
        ({"timestamp_type": -1, "timestamp": 5}, ValueError, "NONE"),
        ({"topic": None}, TypeError, "topic"),
        ({"colour": 1}, TypeError, "colour"),
    ):
        with pytest.raises(kind, match=text):
            Record(**arguments)


def test_a_record_stays_what_it_is() -> None:
    """``__init__`` once more changes nothing, and none is larger than it was."""
    record = Record(b"v")
    with pytest.raises(TypeError, match="never changes"):
        record.__init__(b"w")
    assert record.value == b"v"
    assert Record.__basicsize__ == 80
    assert sys.getsizeof(record) == 80


def test_headers_are_no_value_in_the_text_of_a_record() -> None:
    """Neither their count nor the record's bytes without an end."""
    assert "headers=()" in repr(Record(b"v"))
    assert "headers=<2 pairs>" in repr(Record(b"v", headers=[("a", None), ("b", None)]))
    assert len(repr(Record(b"v" * 1000))) < 300
