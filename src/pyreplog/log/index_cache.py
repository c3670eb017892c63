"""A least-recently-used cache of closed segments whose files stay open and whose indexes stay in memory.

The cache is bounded by the bytes of the indexes and by the number of segments. An index in memory is as large as its
file (at most 10 MB each, about 4 KB for a MB of log). One cache serves all logs of a root.
"""

from __future__ import annotations

from typing import Final

from pyreplog.log.segment_reader import SegmentReader

INDEX_CACHE_SIZE: Final = 32 << 20
"""Bytes of indexes of closed segments that a root, or a reader, keeps in memory."""
SEGMENTS_MAX: Final = 1024
"""The number of closed segments whose files and indexes it keeps open."""


class IndexCache:
    """The closed segments by their last use, the least recently used first. Belongs to the owner of their logs."""

    __slots__ = ("_latest", "_sizes", "count_max", "size", "size_max")

    def __init__(self) -> None:
        self.size_max = INDEX_CACHE_SIZE
        self.count_max = SEGMENTS_MAX
        #: The bytes of all cached indexes, as far as they were loaded at the last look.
        self.size = 0
        self._sizes: dict[SegmentReader, int] = {}
        self._latest: SegmentReader | None = None

    def __len__(self) -> int:
        return len(self._sizes)

    def use(self, segment: SegmentReader) -> None:
        """Note that the closed ``segment`` is about to be read, and release others if the cache is too large."""
        latest = self._latest
        if segment is latest:
            return
        if latest is not None:
            # Reads since the last call may have loaded its indexes.
            size = latest.index_size
            total = self.size + size - self._sizes[latest]
            self._sizes[latest] = size
            self.size = total
        # Keep this order: an interrupt or a lack of memory between any two of these lines leaves
        # the sizes consistent.
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
        """Remove ``segment``, which is no longer closed, or no longer part of its log."""
        self.size -= self._sizes.pop(segment, 0)
        if segment is self._latest:
            self._latest = None
