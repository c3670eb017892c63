"""Failed batches whose error no caller has seen. Callers that never check an ack get them at the
end."""

from __future__ import annotations

from typing import Final

from pyreplog.client.outcome import BatchResult

__all__ = ["Failures"]

KEPT_MAX: Final = 64
"""Failed batches that are kept one by one; of older ones only the number of records is kept."""


class Failures:
    """The failed batches of a producer. Successful batches cost nothing here. One owner at a
    time."""

    __slots__ = ("_first", "_older_count", "_recent")

    def __init__(self) -> None:
        self._recent: list[tuple[BatchResult, int]] = []
        self._older_count = 0
        self._first: BaseException | None = None

    def note(self, outcome: BatchResult, count: int) -> None:
        """Note that ``outcome``, a batch of ``count`` records, failed or is about to fail."""
        self._recent.append((outcome, count))
        if len(self._recent) > KEPT_MAX:
            self._recent = [entry for entry in self._recent if not entry[0].asked]
        while len(self._recent) > KEPT_MAX:
            oldest, older_count = self._recent.pop(0)
            self._older_count += older_count
            self._first = self._first or oldest.error

    def unheard(self) -> tuple[int, BaseException | None]:
        """Return (number of failed records whose ack was never checked, error of the first)."""
        left = [entry for entry in self._recent if not entry[0].asked]
        first = self._first or (left[0][0].error if left else None)
        return self._older_count + sum(count for _, count in left), first
