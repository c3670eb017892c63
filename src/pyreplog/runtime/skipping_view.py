"""SkippingView: the view of a log without its damaged batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyreplog.errors import CorruptLogError
from pyreplog.log import READ_COMMITTED, SkippingSource, check_skipping
from pyreplog.ports import Buffer
from pyreplog.record import Record
from pyreplog.runtime.follow import ChangeSignal
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView, records

__all__ = ["SkippingView"]


class SkippingView:
    """A view without its damaged batches: ``tell`` gets the error of each range that is left out."""

    def __init__(
        self, view: WriterView | ReaderView | CommittedView, tell: Callable[[CorruptLogError], object]
    ) -> None:
        """Raises ConfigError for a view of committed records."""
        if isinstance(view, CommittedView):
            check_skipping(READ_COMMITTED)
            raise AssertionError("a view of committed records is refused")
        self._view = view
        self.source = SkippingSource(view, tell)
        self.topic, self.partition = view.topic, view.partition
        self.is_checked = True

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._view.start_offset

    @property
    def end_offset(self) -> int:
        """The end of the view."""
        return self._view.end_offset

    @property
    def max_batch_bytes(self) -> int:
        """The view's limit for one compressed batch, in unpacked bytes."""
        return self._view.max_batch_bytes

    def refresh(self) -> None:
        """See the newly appended records."""
        self.source.refresh()

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole undamaged batches from that of ``offset`` or the next on; empty at the end."""
        return self.source.read(offset, size_max)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) such that every undamaged record at or after ``timestamp`` (ms) has at least this
        offset; None if no record is that late."""
        return self.source.find_timestamp(timestamp)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its file and position."""
        return self._view.damage(offset, reason)

    @property
    def closed(self) -> bool:
        """Whether the view is closed."""
        return self._view.closed

    def look(self) -> None:
        """Have the view look for new records, also behind damage at its end."""
        self._view.look()
        self._view.see_behind()

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Return the undamaged records of the half-open range."""
        return records(self, start, end)

    def news(self) -> ChangeSignal:
        """Return a signal of the view."""
        return self._view.news()
