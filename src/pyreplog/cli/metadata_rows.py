"""The records of a metadata log (``__cluster_metadata``) as rows for ``replog dump``."""

from __future__ import annotations

import base64
import os
from typing import Any, Final

from pyreplog.cli.output import json_line
from pyreplog.errors import RemoteProtocolError
from pyreplog.log import METADATA_TOPIC, parse_directory_name
from pyreplog.verify import CheckedBatch, PlainRecord
from pyreplog.wire import (
    UnknownControlRecord,
    UnknownMetadataRecord,
    decode_control_record,
    describe_record,
)

__all__ = ["SNAPSHOT_SUFFIXES", "is_metadata", "metadata_line", "metadata_row"]

SNAPSHOT_SUFFIXES: Final = (".checkpoint", ".checkpoint.part", ".checkpoint.deleted")
"""A snapshot of the metadata log; one that is not finished; one that is about to be removed."""

Row = dict[str, Any]


def is_metadata(path: str) -> bool:
    """Whether the file holds metadata records: a segment of the metadata log, or a snapshot."""
    if path.endswith(SNAPSHOT_SUFFIXES):
        return True
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    parsed = parse_directory_name(folder)
    return path.endswith(".log") and parsed is not None and parsed.topic_partition.topic == METADATA_TOPIC


def metadata_row(batch: CheckedBatch, record: PlainRecord) -> Row:
    """Return a record as offset, epoch, kind, version and fields. Bytes are in base64.

    A record of an unknown type or version has its bytes; one that is no record has ``damage``.
    """
    row: Row = {"offset": record.offset, "leader_epoch": batch.leader_epoch}
    try:
        return row | (_control(record) if batch.is_control else _described(record))
    except RemoteProtocolError as error:
        raw = base64.b64encode(record.value or b"").decode()
        return row | {"value_base64": raw, "damage": f"record {record.offset} is damaged: {error}"}


def _described(record: PlainRecord) -> Row:
    found = describe_record(record.value or b"")
    if isinstance(found, UnknownMetadataRecord):
        about = {"api_key": found.api_key, "value": found.data}
        return {"kind": "unknown", "version": found.version, "fields": _plain(about)}
    return {"kind": found.kind, "version": found.version, "fields": _plain(found.fields)}


def _control(record: PlainRecord) -> Row:
    found = decode_control_record(record.key, record.value)
    if isinstance(found, UnknownControlRecord):
        about = {"control_type": found.type, "value": found.value}
        return {"kind": "unknown control record", "version": found.version, "fields": _plain(about)}
    fields = _plain(found)
    return {"kind": type(found).__name__, "version": fields.pop("version", 0), "fields": fields}


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def metadata_line(row: Row) -> str:
    """Return the row of a record as a line for people."""
    return (
        f"    offset {row['offset']}, epoch {row['leader_epoch']}, {row['kind']} v{row['version']}"
        f" {json_line(row['fields'])}"
    )
