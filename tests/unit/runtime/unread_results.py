"""A view of a log for those who follow it, with nothing to read."""

from __future__ import annotations

from collections.abc import Iterator

import pyreplog
from pyreplog.runtime import ChangeSignal


class UnreadResults:
    """Its high watermark is 5, and it holds no record. Who looks for ever is stopped."""

    start_offset = 0
    closed = False

    def __init__(self, news: ChangeSignal) -> None:
        self.looks = 0
        self._news = news

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        self.looks += 1
        assert self.looks < 100
        return 5

    def look(self) -> None:
        """Nothing new."""

    def news(self) -> ChangeSignal:
        """The one."""
        return self._news

    def records(self, start: int, end: int) -> Iterator[pyreplog.Record]:
        """None."""
        return iter(())
