"""Requests and responses as frames of bytes, for a transport between processes.

A frame is Kafka's, without the four bytes of its size in front. It has the header of a request
(version 2: api key, version, correlation id, client id, tagged fields) or of a response (version
1), then the body at the version of :data:`pyreplog.wire.layouts.APIS`. A response does not name the
type of its request, so the sender of the request remembers it: a :class:`Conversation` is one end's
memory of one peer.

A node's fetch of ``__cluster_metadata`` is answered with metadata records as values; they are sent
as Kafka's record batches. A voter's or observer's fetch, which has a ``cluster_id``, is answered
with the batches themselves, and they arrive as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from typing_extensions import Buffer

from pyreplog.errors import CorruptError, LocalProtocolError, RemoteProtocolError
from pyreplog.ports import Address
from pyreplog.record import BatchBuilder, records_of, split
from pyreplog.wire.binary import INT16, INT32, Reader, Writer
from pyreplog.wire.codec import decode_value, encode_value, skip_tags
from pyreplog.wire.frame import Request, Response
from pyreplog.wire.layouts import APIS, Api
from pyreplog.wire.metadata import METADATA_TOPIC_ID, MetadataRecord, UnknownMetadataRecord
from pyreplog.wire.metadata_codec import decode_record, encode_record
from pyreplog.wire.schemas import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

__all__ = ["FRAME_SIZE_MAX", "Conversation"]

FRAME_SIZE_MAX: Final = 100 << 20
"""Kafka's socket.request.max.bytes: a transport rejects a larger frame."""
UNANSWERED_MAX: Final = 1 << 20
METADATA_BATCH_SIZE_MAX: Final = 8 << 20

_BY_REQUEST: Final = {api.request: api for api in APIS}
_BY_RESPONSE: Final = {api.response: api for api in APIS}
_BY_KEY: Final = {api.key: api for api in APIS}


class Conversation:
    """One end of a connection to ``peer``. One owner; call :meth:`forget` when the connection is
    lost.

    ``own`` is the address at this end. It is sent as the client id, so that the peer can address
    its answer.
    """

    __slots__ = ("_asked", "own", "peer")

    def __init__(self, own: Address, peer: Address) -> None:
        self.own = own
        self.peer = peer
        self._asked: dict[int, tuple[Api, bool]] = {}  # (api, whether metadata records are to arrive as batches)

    def encode(self, message: Request | Response) -> list[Buffer]:
        """Return the parts of one frame, in order.

        Large record bytes are not copied, so send the parts before those bytes change. Raises
        LocalProtocolError for a value that does not fit, and the error of ``RecordsSlice.parts`` if
        the log was truncated since.
        """
        out = Writer()
        if isinstance(message, Request):
            api = _BY_REQUEST.get(type(message.body))
            if api is None:
                raise LocalProtocolError(f"{type(message.body).__name__} is not a request of the protocol")
            out.number(INT16, api.key)
            out.number(INT16, api.version)
            out.number(INT32, message.correlation_id)
            out.short_text(self.own)
            out.varint(0)
            encode_value(out, message.body)
            if len(self._asked) >= UNANSWERED_MAX:
                raise LocalProtocolError(f"{UNANSWERED_MAX} requests to {self.peer} are unanswered")
            body = message.body
            self._asked[message.correlation_id] = (api, isinstance(body, FetchRequest) and body.cluster_id is not None)
        else:
            if type(message.body) not in _BY_RESPONSE:
                raise LocalProtocolError(f"{type(message.body).__name__} is not a response of the protocol")
            out.number(INT32, message.correlation_id)
            out.varint(0)
            encode_value(out, _with_batches(message.body))
        return out.parts()

    def decode_request(self, frame: Buffer) -> Request:
        """Decode a request of the peer. Raises RemoteProtocolError.

        Record bytes are views into ``frame``, writable if ``frame`` is.
        """
        source = Reader(frame)
        key, version, correlation_id = source.number(INT16), source.number(INT16), source.number(INT32)
        api = _BY_KEY.get(key)
        if api is None or version != api.version:
            raise RemoteProtocolError(f"request {key} in version {version} from {self.peer} is not supported")
        source.short_text()
        skip_tags(source)
        return Request(self.peer, correlation_id, decode_value(source, api.request))

    def decode_response(self, frame: Buffer) -> Response:
        """Decode the peer's response to a request that :meth:`encode` sent.

        Raises RemoteProtocolError, also for a response without a request.
        """
        source = Reader(frame)
        correlation_id = source.number(INT32)
        asked = self._asked.pop(correlation_id, None)
        if asked is None:
            raise RemoteProtocolError(
                f"{self.peer} answers request {correlation_id}, which was not sent or is answered already"
            )
        skip_tags(source)
        api, as_batches = asked
        body = decode_value(source, api.response)
        return Response(self.peer, correlation_id, body if as_batches else _with_records(body))

    def forget(self) -> None:
        """Forget the open requests, because the connection is lost and no answer will come."""
        self._asked.clear()


def _with_batches(body: Any) -> Any:
    """Replace the metadata records in a fetch answer by record batches. Batches stay as they are."""
    if type(body) is not FetchResponse or all(topic.topic_id != METADATA_TOPIC_ID for topic in body.responses):
        return body
    return replace(body, responses=[_topic_with_batches(topic) for topic in body.responses])


def _topic_with_batches(topic: FetchableTopicResponse) -> FetchableTopicResponse:
    if topic.topic_id != METADATA_TOPIC_ID:
        return topic
    parts = []
    for part in topic.partitions:
        records: Any = part.records
        if isinstance(records, Sequence) and not isinstance(records, (bytes, bytearray, memoryview)):
            part = replace(part, records=_batches(records))  # noqa: PLW2901
        parts.append(part)
    return FetchableTopicResponse(topic.topic_id, parts)


def _batches(records: Sequence[tuple[int, MetadataRecord]]) -> bytes:
    """Return the records as batches, one for each run of offsets without a gap."""
    out = bytearray()
    builder = BatchBuilder(METADATA_BATCH_SIZE_MAX)
    first = expected = -1
    for offset, record in records:
        value = encode_record(record)
        if builder.count and (offset != expected or not builder.append(value, None, (), -1)):
            out += builder.finish(base_offset=first)
            builder.reset()
        if not builder.count:
            first = offset
            if not builder.append(value, None, (), -1):
                raise LocalProtocolError(f"a metadata record of {len(value)} bytes is too large")
        expected = offset + 1
    if builder.count:
        out += builder.finish(base_offset=first)
    return bytes(out)


def _with_records(body: Any) -> Any:
    """Replace the record batches in a fetch answer by metadata records. The bytes are not
    trusted."""
    if type(body) is FetchResponse:
        for topic in body.responses:
            if topic.topic_id == METADATA_TOPIC_ID:
                for part in topic.partitions:
                    part.records = _metadata_records(part)
    return body


def _metadata_records(part: PartitionData) -> list[tuple[int, MetadataRecord]] | None:
    if part.records is None:
        return None
    found: list[tuple[int, MetadataRecord]] = []
    try:
        for batch in split(part.records):  # type: ignore[arg-type]
            batch.check_crc()
            found.extend((record.offset, _known(record.value or b"")) for record in records_of(batch))
    except CorruptError as error:
        raise RemoteProtocolError(f"metadata records are not valid record batches: {error}") from None
    return found


def _known(data: Buffer) -> MetadataRecord:
    """Return the record. A node cannot apply one that it does not know: RemoteProtocolError."""
    record = decode_record(data)
    if isinstance(record, UnknownMetadataRecord):
        raise RemoteProtocolError(
            f"a metadata record of type {record.api_key}, version {record.version} is not known here"
        )
    return record
