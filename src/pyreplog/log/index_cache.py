"""Which closed segments keep their files and indexes at hand: those used last, as far as their indexes fit in so
many bytes.

An index in memory is as large as its file (10 MB each at most, about 4 KB for a MB of log). One cache serves all
logs of a root.
"""

from __future__ import annotations

from typing import Final

from pyreplog.log.segment_reader import SegmentReader

INDEX_CACHE_SIZE: Final = 32 << 20
"""Bytes of indexes of closed segments that a root, or a reader, keeps in memory."""
SEGMENTS_MAX: Final = 1024
"""And of so many segments."""


class IndexCache:
    """Segments by their last use, the oldest in front. Belongs to the owner of their logs."""

    __slots__ = ("_latest", "_sizes", "count_max", "size", "size_max")

    def __init__(self) -> None:
        self.size_max = INDEX_CACHE_SIZE
        self.count_max = SEGMENTS_MAX
        #: Bytes of the indexes of all that are kept, as far as they were loaded when last looked
        #: at.
        self.size = 0
        self._sizes: dict[SegmentReader, int] = {}
        self._latest: SegmentReader | None = None

    def __len__(self) -> int:
        return len(self._sizes)

    def use(self, segment: SegmentReader) -> None:
        """``segment``, which is not being written, is about to be read from. Others may have to let go of what they
        hold."""
        latest = self._latest
        if segment is latest:
            return
        if latest is not None:
            # It was read from since, and may have loaded its indexes.
            size = latest.index_size
            total = self.size + size - self._sizes[latest]
            self._sizes[latest] = size
            self.size = total
        # In this order: an interrupt, or no memory, between any two of these leaves what fits
        # together.
        self._latest = None
        size = self._sizes.pop(segment, 0)
        self.size -= size
        self._sizes[segment] = size
        self.size += size
        self._latest = segment
        while len(self._sizes) > 1 and (self.size > self.size_max or len(self._sizes) > self.count_max):
            oldest = next(iter(self._sizes))
            self.size -= self._sizes.pop(oldest)
            if oldest.is_releasable:
                oldest.release()

    def forget(self, segment: SegmentReader) -> None:
        """``segment`` is no closed one any more, or none of its log."""
        self.size -= self._sizes.pop(segment, 0)
        if segment is self._latest:
            self._latest = None
