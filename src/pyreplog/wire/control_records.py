"""The records of KRaft's control batches: leader and voters, and the two ends of a snapshot.

The key of a control record is two int16: its version (0) and its type. The value is a message that
begins with its own version. Layouts: Kafka 4.4's schemas, as lines of
:mod:`pyreplog.wire.metadata_layouts`. A record whose type or version only newer software knows is
an :class:`UnknownControlRecord`, which keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import Buffer

from pyreplog.errors import LocalProtocolError
from pyreplog.wire.binary import INT16, INT32, Reader, Writer
from pyreplog.wire.codec import StructCodec
from pyreplog.wire.layouts import LAYOUTS
from pyreplog.wire.metadata_layouts import line_at
from pyreplog.wire.quorum_schemas import KRaftVersionFeature, QuorumEndpoint

__all__ = [
    "CONTROL_LAYOUTS",
    "NO_DIRECTORY_ID",
    "ControlRecordValue",
    "EndTransactionMarker",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LeaderChangeVoter",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "UnknownControlRecord",
    "VotersRecord",
    "VotersRecordVoter",
    "decode_control_record",
    "encode_control_record",
]

NO_DIRECTORY_ID: Final = "A" * 22
"""The directory id of a voter that has none (``kraft.version`` 0)."""


@dataclass(slots=True)
class EndTransactionMarker:
    """The end of a producer's transaction. Types 0 (aborted) and 1 (committed), version 0."""

    committed: bool
    coordinator_epoch: int


@dataclass(slots=True)
class LeaderChangeVoter:
    """A voter in a :class:`LeaderChangeMessage`; ``voter_directory_id`` exists from version 1."""

    voter_id: int
    voter_directory_id: str = NO_DIRECTORY_ID


@dataclass(slots=True)
class LeaderChangeMessage:
    """The first record of a leader's epoch. Type 2.

    ``granting_voters``: the voters that elected it. Version 0, which Kafka writes, leaves out the
    directory ids. Kafka 4.4 and older read every version as 0, so its tools fail at version 1.
    """

    leader_id: int
    voters: Sequence[LeaderChangeVoter]
    granting_voters: Sequence[LeaderChangeVoter]
    version: int = 0


@dataclass(slots=True)
class SnapshotHeaderRecord:
    """The first record of a snapshot. Type 3, version 0.

    ``last_contained_log_timestamp``: the time of the last record in it, in ms.
    """

    last_contained_log_timestamp: int
    version: int = 0


@dataclass(slots=True)
class SnapshotFooterRecord:
    """The last record of a snapshot. Type 4, version 0."""

    version: int = 0


@dataclass(slots=True)
class KRaftVersionRecord:
    """The level of the quorum's own protocol; from 1, voters can change. Type 5, version 0."""

    kraft_version: int
    version: int = 0


@dataclass(slots=True)
class VotersRecordVoter:
    """A voter: its key (id and directory id), its addresses, its versions."""

    voter_id: int
    voter_directory_id: str
    endpoints: Sequence[QuorumEndpoint]
    kraft_version_feature: KRaftVersionFeature


@dataclass(slots=True)
class VotersRecord:
    """The set of voters from here on. Type 6, version 0."""

    voters: Sequence[VotersRecordVoter]
    version: int = 0


@dataclass(slots=True)
class UnknownControlRecord:
    """A control record of a type or version that only newer software knows."""

    type: int
    version: int
    key: bytes
    value: bytes


ControlRecordValue = (
    EndTransactionMarker
    | LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
    | UnknownControlRecord
)

_ABORT: Final = 0
_COMMIT: Final = 1
_BY_TYPE: Final[dict[int, tuple[type, int]]] = {
    2: (LeaderChangeMessage, 1),
    3: (SnapshotHeaderRecord, 0),
    4: (SnapshotFooterRecord, 0),
    5: (KRaftVersionRecord, 0),
    6: (VotersRecord, 0),
}
"""Type -> class and newest version."""
_TYPES: Final = {kind: (number, newest) for number, (kind, newest) in _BY_TYPE.items()}
CONTROL_LAYOUTS: Final[dict[str, str]] = {
    "LeaderChangeMessage": (
        "version:int16 leader_id:int32 voters:[LeaderChangeVoter] granting_voters:[LeaderChangeVoter]"
    ),
    "LeaderChangeVoter": "voter_id:int32 voter_directory_id:uuid/1",
    "SnapshotHeaderRecord": "version:int16 last_contained_log_timestamp:int64",
    "SnapshotFooterRecord": "version:int16",
    "KRaftVersionRecord": "version:int16 kraft_version:int16",
    "VotersRecord": "version:int16 voters:[VotersRecordVoter]",
    "VotersRecordVoter": (
        "voter_id:int32 voter_directory_id:uuid endpoints:[QuorumEndpoint] kraft_version_feature:KRaftVersionFeature"
    ),
    "QuorumEndpoint": LAYOUTS["QuorumEndpoint"],
    "KRaftVersionFeature": LAYOUTS["KRaftVersionFeature"],
}
_CLASSES: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (
        LeaderChangeMessage,
        LeaderChangeVoter,
        SnapshotHeaderRecord,
        SnapshotFooterRecord,
        KRaftVersionRecord,
        VotersRecord,
        VotersRecordVoter,
        QuorumEndpoint,
        KRaftVersionFeature,
    )
}
_CODECS: dict[tuple[str, int], StructCodec] = {}


def _codec(name: str, version: int) -> StructCodec:
    found = _CODECS.get((name, version))
    if found is None:
        line = line_at(CONTROL_LAYOUTS[name], version)
        found = _CODECS[name, version] = StructCodec(_CLASSES[name], line, lambda inner: _codec(inner, version))
    return found


def encode_control_record(record: ControlRecordValue) -> tuple[bytes, bytes]:
    """Return the key and value of a control record. Raises LocalProtocolError."""
    if isinstance(record, UnknownControlRecord):
        return record.key, record.value
    out = Writer()
    if isinstance(record, EndTransactionMarker):
        out.number(INT16, 0)
        out.number(INT32, record.coordinator_epoch)
        return _key(_COMMIT if record.committed else _ABORT), out.joined()
    known = _TYPES.get(type(record))
    if known is None:
        raise LocalProtocolError(f"{type(record).__name__} is not a control record")
    number, newest = known
    if not 0 <= record.version <= newest:
        raise LocalProtocolError(f"{type(record).__name__} has versions 0 to {newest}, not {record.version}")
    _codec(type(record).__name__, record.version).write(out, record)
    return _key(number), out.joined()


def _key(number: int) -> bytes:
    return INT16.pack(0) + INT16.pack(number)


def decode_control_record(key: Buffer | None, value: Buffer | None) -> ControlRecordValue:
    """Parse the key and value of a control record. Raises RemoteProtocolError."""
    source = Reader(key or b"")
    key_version, number = source.number(INT16), source.number(INT16)
    if key_version < 0:
        raise source.wrong(f"the key of a control record has version {key_version}", 0)
    source = Reader(value or b"")
    version = source.number(INT16)
    if version < 0:
        raise source.wrong(f"{_name(number)} has version {version}", 0)
    if number in (_ABORT, _COMMIT):
        return EndTransactionMarker(number == _COMMIT, source.number(INT32))
    kind, newest = _BY_TYPE.get(number, (None, -1))
    if kind is None or version > newest:
        return UnknownControlRecord(number, version, bytes(key or b""), bytes(value or b""))
    source.position = 0
    found: Any = _codec(kind.__name__, version).read(source)
    if source.left:
        raise source.wrong(f"{_name(number)} has {source.left} bytes too many")
    record: ControlRecordValue = found
    return record


def _name(number: int) -> str:
    return f"a {_BY_TYPE[number][0].__name__}" if number in _BY_TYPE else f"a control record of type {number}"
