"""The fingerprint of a batch: whether a batch that is run again has the same rows. Format:
docs/internals/format/spool.md.

A batch may be run again in other tasks, in another order, later, so a fingerprint depends on nothing but the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyreplog.spool.staged import StagedFile

__all__ = ["Fingerprint", "fingerprint_of"]

_SUM_COUNT: Final = 2**64
_TEXT: Final = re.compile(r"([0-9]{1,19}) ([0-9a-f]{16})")


class Fingerprint(NamedTuple):
    """``rows``: the number of rows. ``row_sum``: the hashes of all rows, summed modulo 2**64."""

    rows: int
    row_sum: int

    def to_text(self) -> str:
        """Return the fingerprint as a value of a state file."""
        return f"{self.rows} {self.row_sum:016x}"

    @classmethod
    def from_text(cls, text: str) -> Fingerprint:
        """Parse a value of a state file. Raises ValueError."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:64]!r} is no fingerprint")
        return cls(int(found[1]), int(found[2], 16))


def fingerprint_of(files: Iterable[StagedFile]) -> Fingerprint | None:
    """Return the fingerprint of a batch of these staged files; None if a file has no sum of its rows."""
    rows = total = 0
    for file in files:
        if file.row_sum is None:
            return None
        rows += file.record_count
        total += file.row_sum
    return Fingerprint(rows, total % _SUM_COUNT)
