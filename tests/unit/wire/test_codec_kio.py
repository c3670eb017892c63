"""The codec against kio, an independent implementation generated from Kafka's own schemas: both ways, every
message."""

from __future__ import annotations

import io
from base64 import urlsafe_b64encode
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from pyreplog.wire import NO_ID
from pyreplog.wire.binary import Reader, Writer
from pyreplog.wire.codec import decode_value, encode_value
from pyreplog.wire.layouts import APIS, CLASSES, LAYOUTS, Api
from tests.unit.wire.values import plain, values

ABSENT: dict[tuple[str, str], list[Any]] = {
    ("FetchSnapshotPartitionResult", "current_leader"): [0, 0],
    ("UpdateRaftVoterResponse", "current_leader"): [-1, -1, "", 0],
}
"""What kio fills in for a tagged struct that is left out, where it is not -1 in every field."""


def fields_of(value: Any) -> Any:
    """kio's value as plain data, by our conventions; a struct is the list of its fields in wire order, for kio has
    names of its own."""
    if is_dataclass(value) and not isinstance(value, type):
        return [fields_of(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, (list, tuple)):
        return [fields_of(item) for item in value]
    if isinstance(value, UUID):
        return urlsafe_b64encode(value.bytes)[:22].decode()
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (bytes, memoryview)):
        return bytes(value)
    return value


def ours(name: str, value: Any) -> Any:
    """Our value by kio's conventions: fields that only we have are left out, structs of one field are structs
    again, what has its default is what kio fills in."""
    if value is None:
        return None
    found = []
    for word in LAYOUTS[name].split():
        rest, _, tag = word.partition("@")
        field, _, text = rest.partition(":")
        if tag and int(tag) >= 10_000:
            continue
        content = getattr(value, field)
        if content is None and (name, field) in ABSENT:
            found.append(ABSENT[name, field])
        else:
            found.append(convert(text, content, tagged=bool(tag)))
    return found


def convert(text: str, value: Any, *, tagged: bool = False) -> Any:
    """One value of a type's text."""
    text = text.removeprefix("?")
    if text.startswith("["):
        return None if value is None else [convert(text[1:-1], item) for item in value]
    if text.startswith("{"):
        return [convert(text[1:-1].partition(":")[2], value)]
    if text == "uuid":
        return None if value == NO_ID else value
    if text == "records":
        return None if value is None else bytes(value)
    if text in CLASSES:
        if value is None and tagged:
            return [-1 for _ in LAYOUTS[text].split()]
        return ours(text, value)
    return value


CASES = [(api, answer) for api in APIS for answer in (False, True)]


@pytest.mark.parametrize(
    ("api", "answer"),
    CASES,
    ids=[f"{(api.response if answer else api.request).__name__}-v{api.version}" for api, answer in CASES],
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_against_kio(api: Api, answer: bool, data: st.DataObject) -> None:
    """What we write kio reads as the same, to the last byte; what kio writes then, we read as the same."""
    kind = api.response if answer else api.request
    schema = (load_response_schema if answer else load_request_schema)(api.key, api.version)
    value = data.draw(values(kind.__name__, local=False))
    out = Writer()
    encode_value(out, value)
    encoded = b"".join(bytes(memoryview(part)) for part in out.parts())
    theirs, size = read(schema, encoded)
    assert size == len(encoded)
    assert fields_of(theirs) == ours(kind.__name__, value)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, theirs)
    again = decode_value(Reader(buffer.getvalue()), kind)
    assert ours(kind.__name__, again) == ours(kind.__name__, value)
    assert plain(again) is not None


def read(schema: Any, data: bytes) -> tuple[Any, int]:
    """kio's value, and how many bytes it took."""
    return entity_reader(schema)(data, 0)
