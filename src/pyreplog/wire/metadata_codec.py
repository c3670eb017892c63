"""Metadata records as the values of log records: a frame version, the record's type, its version,
and then its fields by the lines of :mod:`pyreplog.wire.metadata_layouts`.

The three numbers of the frame are unsigned varints. Decoding raises
:class:`~pyreplog.errors.RemoteProtocolError` for bytes that are not a record. A record whose type
or version only newer software knows is no error: it is an :class:`UnknownMetadataRecord`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple

from typing_extensions import Buffer

from pyreplog.errors import LocalProtocolError
from pyreplog.wire.binary import Reader, Writer
from pyreplog.wire.codec import StructCodec
from pyreplog.wire.metadata import MetadataRecord, OtherMetadataRecord, UnknownMetadataRecord
from pyreplog.wire.metadata_layouts import RECORD_CLASSES, RECORD_KINDS, RECORD_LAYOUTS, line_at

__all__ = ["RecordFrame", "decode_record", "describe_record", "encode_record", "record_frame"]

FRAME_VERSION: Final = 1
_KEYS: Final = {kind.name: key for key, kind in RECORD_KINDS.items()}


class RecordFrame(NamedTuple):
    """The type and version of an encoded record. ``kind`` is its name, "" if it is not known."""

    kind: str
    api_key: int
    version: int


class _Table:
    """The codecs of all records at one version; ``plain``: with dictionaries for all structs."""

    __slots__ = ("_codecs", "_plain", "_version")

    def __init__(self, version: int, *, plain: bool) -> None:
        self._codecs: dict[str, StructCodec] = {}
        self._version = version
        self._plain = plain

    def codec(self, name: str) -> StructCodec:
        found = self._codecs.get(name)
        if found is None:
            kind = RECORD_CLASSES.get(name)
            line = line_at(RECORD_LAYOUTS[name], self._version)
            found = StructCodec(None if self._plain else kind, line, self.codec, defaults=kind)
            self._codecs[name] = found
        return found


_VERSIONS: Final = range(max(kind.newest for kind in RECORD_KINDS.values()) + 1)
_TABLES: Final = [_Table(version, plain=False) for version in _VERSIONS]
_PLAIN_TABLES: Final = [_Table(version, plain=True) for version in _VERSIONS]


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """Return a metadata record with its frame.

    ``version``: the version to write; by default the one of :data:`RECORD_KINDS`, or of the record
    if it says one. Raises LocalProtocolError for a value that does not fit its type or version.
    """
    if isinstance(record, UnknownMetadataRecord):
        return record.data
    value: Any = record
    name, tables = type(record).__name__, _TABLES
    if isinstance(record, OtherMetadataRecord):
        name, value, tables = record.kind, record.fields, _PLAIN_TABLES
        version = record.version if version is None else version
    key = _KEYS.get(name)
    if key is None:
        raise LocalProtocolError(f"{name} is not a metadata record")
    kind = RECORD_KINDS[key]
    if version is None:
        version = kind.written
    elif not 0 <= version <= kind.newest:
        raise LocalProtocolError(f"{name} has versions 0 to {kind.newest}, not {version}")
    if version < kind.newest and tables is _TABLES:
        _check_fits(name, value, version)
    out = Writer()
    out.varint(FRAME_VERSION)
    out.varint(key)
    out.varint(version)
    tables[version].codec(name).write(out, value)
    return out.joined()


def _check_fits(name: str, value: Any, version: int) -> None:
    """Raise LocalProtocolError if a field that ``version`` lacks is set."""
    for field, default in _later_fields(name, version):
        content = getattr(value, field)
        if content != default and not (default == () and not content):
            raise LocalProtocolError(f"{name}.{field} is {content!r}, which version {version} cannot hold")


_LATER: dict[tuple[str, int], list[tuple[str, Any]]] = {}


def _later_fields(name: str, version: int) -> list[tuple[str, Any]]:
    """Return (field, default) of the fields that a version after ``version`` added."""
    found = _LATER.get((name, version))
    if found is None:
        known = {word.partition(":")[0] for word in line_at(RECORD_LAYOUTS[name], version).split()}
        found = [
            (field.name, field.default)
            for field in fields(RECORD_CLASSES[name])
            if field.name not in known and field.default is not MISSING
        ]
        _LATER[name, version] = found
    return found


def record_frame(data: Buffer) -> RecordFrame:
    """Return the type and version of an encoded record. Raises RemoteProtocolError."""
    return _frame(Reader(data))


def _frame(source: Reader) -> RecordFrame:
    frame, key, version = source.varint(), source.varint(), source.varint()
    if frame != FRAME_VERSION:
        raise source.wrong(f"a metadata record has frame version {frame}, {FRAME_VERSION} is known", 0)
    kind = RECORD_KINDS.get(key)
    return RecordFrame("" if kind is None or version > kind.newest else kind.name, key, version)


def decode_record(data: Buffer) -> MetadataRecord:
    """Parse a metadata record. Raises RemoteProtocolError.

    A record of an unknown type or version is an :class:`UnknownMetadataRecord`. Unknown tagged
    fields are skipped.
    """
    source = Reader(data)
    name, key, version = _frame(source)
    if not name:
        return UnknownMetadataRecord(key, version, bytes(data))
    value = _TABLES[version].codec(name).read(source)
    _check_end(source, name)
    if type(value) is dict:
        return OtherMetadataRecord(name, version, value)
    record: MetadataRecord = value
    return record


def describe_record(data: Buffer) -> OtherMetadataRecord | UnknownMetadataRecord:
    """Parse a metadata record of any kind as names and values, with the unknown tagged fields of
    each struct under ``unknown_tagged_fields``. Raises RemoteProtocolError."""
    source = Reader(data)
    name, key, version = _frame(source)
    if not name:
        return UnknownMetadataRecord(key, version, bytes(data))
    value = _PLAIN_TABLES[version].codec(name).read(source)
    _check_end(source, name)
    return OtherMetadataRecord(name, version, value)


def _check_end(source: Reader, name: str) -> None:
    if source.left:
        raise source.wrong(f"a {name} has {source.left} bytes too many")
