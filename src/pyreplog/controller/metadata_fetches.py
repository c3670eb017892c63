"""The metadata as a log that nodes fetch: the newest durable records, and the fetches that wait for
more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from pyreplog.controller.image import MetadataImage
from pyreplog.controller.image_records import ImageRecords
from pyreplog.ports import Address
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    MetadataRecord,
    PartitionData,
    Request,
    SnapshotId,
)

__all__ = ["MetadataFetches"]

_MS: Final = 1_000_000


class _DelayedMetadataFetch(NamedTuple):
    """A fetch of metadata that waits for new records."""

    correlation_id: int
    fetch_offset: int
    until_ns: int


class _Records(Protocol):
    """The committed records."""

    @property
    def start_offset(self) -> int: ...
    def read_from(self, offset: int) -> Sequence[tuple[int, MetadataRecord]] | None: ...


class MetadataFetches:
    """Answers the nodes' fetches from committed ``records``. One owner.

    A node that is ahead waits: the server may not know the last committed records yet.
    """

    def __init__(self, records: _Records) -> None:
        self._records = records
        self._parked: dict[Address, _DelayedMetadataFetch] = {}

    @property
    def next_deadline_ns(self) -> int | None:
        """The time at which a waiting fetch must be answered even if there is no new record."""
        return min((parked.until_ns for parked in self._parked.values()), default=None)

    def park(self, request: Request, body: FetchRequest, now_ns: int) -> None:
        """Keep one waiting fetch per node; a newer one replaces it."""
        if len(body.topics) != 1 or body.topics[0].topic_id != METADATA_TOPIC_ID or len(body.topics[0].partitions) != 1:
            return
        offset = body.topics[0].partitions[0].fetch_offset
        until_ns = now_ns + body.max_wait_ms * _MS
        self._parked[request.source] = _DelayedMetadataFetch(request.correlation_id, offset, until_ns)

    def serve(self, image: MetadataImage, now_ns: int) -> list[tuple[Address, int, FetchResponse]]:
        """Answer the fetches that need not wait any longer; return (peer, correlation id, answer) of
        each."""
        end = image.offset + 1
        served = []
        for peer, parked in list(self._parked.items()):
            if parked.fetch_offset < end or parked.until_ns <= now_ns:
                del self._parked[peer]
                served.append((peer, parked.correlation_id, self._answer(image, parked.fetch_offset)))
        return served

    def _answer(self, image: MetadataImage, fetch_offset: int) -> FetchResponse:
        """Return the records from ``fetch_offset`` on, or the image for a node that is too far
        behind.

        The image is sent as records that all have the image's last offset.
        """
        end = image.offset + 1
        data = PartitionData(0, high_watermark=end, log_start_offset=self._records.start_offset)
        records = self._records.read_from(fetch_offset)
        if records is not None or fetch_offset > end:
            data.records = records or []
        else:
            data.snapshot_id = SnapshotId(end, 0)
            data.records = ImageRecords(image)
        return FetchResponse([FetchableTopicResponse(METADATA_TOPIC_ID, [data])])
