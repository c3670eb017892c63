"""The newest committed records, kept in memory for nodes that are behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from pyreplog.wire import MetadataRecord

__all__ = ["RECORDS_KEPT_MAX", "RecentRecords"]

RECORDS_KEPT_MAX: Final = 4096
"""Records that are kept in memory for nodes that are behind."""


class RecentRecords:
    """The newest committed records."""

    __slots__ = ("_records", "end_offset", "start_offset")

    def __init__(self, end_offset: int) -> None:
        self._records: deque[tuple[int, MetadataRecord]] = deque(maxlen=RECORDS_KEPT_MAX)
        self.start_offset = end_offset
        """The first offset that :meth:`read_from` may be asked for."""
        self.end_offset = end_offset

    def append(self, records: Sequence[tuple[int, MetadataRecord]]) -> None:
        """Keep new records, which are committed."""
        for entry in records:
            if len(self._records) == RECORDS_KEPT_MAX:
                self.start_offset = self._records[0][0] + 1
            self._records.append(entry)
            self.end_offset = entry[0] + 1

    def read_from(self, offset: int) -> list[tuple[int, MetadataRecord]] | None:
        """Return the records from ``offset`` on; None if the reader needs a whole image, because
        older records are not kept or the records end before ``offset``."""
        if not self.start_offset <= offset <= self.end_offset:
            return None
        return [entry for entry in self._records if entry[0] >= offset]
