"""The findings of a verification: a level, a place, a sentence, and the next step."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

#: More of one level in one file are counted, not listed.
PER_FILE_MAX: Final = 20


class Level(IntEnum):
    """How bad a finding is."""

    NOTE = 0
    """Nothing is wrong; worth knowing."""
    WARNING = 1
    """The file changed, but no record is lost: the next writer repairs it, or a person should check it."""
    DAMAGE = 2
    """Records are lost, altered or in doubt."""


class Finding(NamedTuple):
    """One thing found. ``position``: byte in the file at ``path``; ``start``, ``end``: offsets it concerns. -1:
    says nothing."""

    level: Level
    path: str
    what: str
    advice: str
    position: int = -1
    start: int = -1
    end: int = -1

    def fields(self) -> dict[str, Any]:
        """For JSON: what does not apply is left out."""
        fields: dict[str, Any] = {"level": self.level.name.lower(), "path": self.path, "what": self.what}
        if self.advice:
            fields["advice"] = self.advice
        if self.position >= 0:
            fields["position"] = self.position
        if self.start >= 0:
            fields["start_offset"], fields["end_offset"] = self.start, self.end
        return fields


class Report:
    """Collects findings and counts the files, batches and records. Belongs to one thread.

    ``progress`` is called with the size in bytes of each piece that was read.
    """

    def __init__(self, progress: Callable[[int], None] | None = None) -> None:
        self.findings: list[Finding] = []
        self.folders: list[str] = []
        """The log roots and partition folders that were looked at."""
        self.unseen: list[str] = []
        """Folders that this process may not enter: the look was not at everything."""
        self._progress = progress
        self._counts: dict[tuple[Level, str], int] = {}
        self.partition_count = 0
        self.file_count = 0
        self.byte_count = 0
        self.batch_count = 0
        self.record_count = 0

    def read(self, size: int) -> None:
        """``size`` bytes were read."""
        self.byte_count += size
        if self._progress is not None:
            self._progress(size)

    def note(
        self, path: str, what: str, advice: str = "", *, position: int = -1, start: int = -1, end: int = -1
    ) -> None:
        """Something worth knowing."""
        self._add(Finding(Level.NOTE, path, what, advice, position, start, end))

    def warn(self, path: str, what: str, advice: str, *, position: int = -1, start: int = -1, end: int = -1) -> None:
        """Something that is not as it was written and costs no record."""
        self._add(Finding(Level.WARNING, path, what, advice, position, start, end))

    def damage(self, path: str, what: str, advice: str, *, position: int = -1, start: int = -1, end: int = -1) -> None:
        """Something that is lost, altered or in doubt."""
        self._add(Finding(Level.DAMAGE, path, what, advice, position, start, end))

    def pass_over(self, path: str, what: str, advice: str) -> None:
        """A folder that could not be looked into, and may hold records."""
        self.unseen.append(path)
        self.warn(path, what, advice)

    def _add(self, finding: Finding) -> None:
        key = (finding.level, finding.path)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= PER_FILE_MAX:
            self.findings.append(finding)

    def unlisted(self) -> list[tuple[Level, str, int]]:
        """Return (level, file, count) of the findings that were counted and not listed, in order of appearance."""
        return [
            (level, path, count - PER_FILE_MAX) for (level, path), count in self._counts.items() if count > PER_FILE_MAX
        ]

    def count(self, level: Level) -> int:
        """How many findings of ``level``."""
        return sum(count for (found, _), count in self._counts.items() if found is level)

    @property
    def worst(self) -> Level:
        """Return the level of the worst finding; NOTE if there is none."""
        return max((level for level, _ in self._counts), default=Level.NOTE)

    def confirm(self, before: Report) -> None:
        """Remove the findings above a note that the check ``before`` did not have too."""
        for finding in [one for one in self.findings if one.level is not Level.NOTE and one not in before.findings]:
            self.findings.remove(finding)
            key = (finding.level, finding.path)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def take(self, other: Report) -> None:
        """Add what ``other`` found and counted."""
        for finding in other.findings:
            self.findings.append(finding)
        for key, count in other._counts.items():
            self._counts[key] = self._counts.get(key, 0) + count
        self.unseen += other.unseen
        self.partition_count += other.partition_count
        self.file_count += other.file_count
        self.batch_count += other.batch_count
        self.record_count += other.record_count
        self.byte_count += other.byte_count
