"""How far an import came: a small file in the log's folder, replaced after some batches, and the log itself for what came after that.

Format: docs/internals/format/state_files.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyreplog.cli.rows import Row, RowError
from pyreplog.errors import ConfigError, CorruptError
from pyreplog.log import join, read_state, write_state
from pyreplog.ports import Disk
from pyreplog.record import Record
from pyreplog.runtime import Log

__all__ = ["FILE_NAME", "Place", "Resume"]

FILE_NAME: Final = "replog.import"
_VERSION: Final = "0"  # on disk: never change
_NUMBER_DIGITS_MAX: Final = 19
_KEEP_EVERY: Final = 20


class Place(NamedTuple):
    """With ``rows`` rows of file number ``file`` appended, and all of those before it, the log ended at ``offset``."""

    files: tuple[tuple[str, int], ...]
    """Absolute path and size of each file, in order."""
    file: int
    rows: int
    offset: int

    def to_values(self) -> dict[str, str]:
        """As a state file has it."""
        # As JSON, for a name may have any character in it.
        files = {f"file.{number:09d}": f"{size} {json.dumps(name)}" for number, (name, size) in enumerate(self.files)}
        return {"version": _VERSION, "file": str(self.file), "rows": str(self.rows), "offset": str(self.offset), **files}

    @classmethod
    def from_values(cls, values: Mapping[str, str], path: str) -> Place:
        """From the values of the state file at ``path``. :class:`CorruptError` where they are no such thing."""
        if values.get("version") != _VERSION:
            raise CorruptError("the place of an import in another version", file=path)
        try:
            files = tuple(_file(values[name]) for name in sorted(values) if name.startswith("file."))
            place = cls(files, *(_number(values[name]) for name in ("file", "rows", "offset")))
        except (KeyError, ValueError) as error:
            raise CorruptError(f"no place of an import: {error}", file=path) from None
        if place.file >= len(files):
            raise CorruptError(f"no place of an import: file {place.file} of {len(files)}", file=path)
        return place


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _NUMBER_DIGITS_MAX:
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text)


def _file(text: str) -> tuple[str, int]:
    size, _, quoted = text.partition(" ")
    name = json.loads(quoted)
    if not isinstance(name, str):
        raise ValueError(f"{quoted[:40]!r} is no file name")
    return name, _number(size)


class Resume:
    """The state of one import of ``files`` into ``log``, whose folder is on ``disk``.

    Whatever lies behind the offset of the kept :class:`Place` was appended by this import before it was stopped: it is compared with the
    rows that come next, one by one, and they are skipped.
    """

    def __init__(self, log: Log, files: Sequence[str], disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._path = join(log.path, FILE_NAME)
        self._files = tuple((name, os.path.getsize(name)) for name in files)
        self._file = -1
        self._rows = 0
        self._since = 0
        before = self._load()
        self._resumed_file = before.file if before else -1
        self._resumed_rows = before.rows if before else 0
        # What this import appended after the file was written, which is not known to it.
        self._behind = iter(log.read(start=before.offset if before else log.end_offset))
        self._record = next(self._behind, None)
        if before is None:
            self._keep()

    def _load(self) -> Place | None:
        try:
            values = read_state(self._disk, self._path)
            place = None if values is None else Place.from_values(values, self._path)
        except CorruptError as error:
            reason = f"{error.reason}; what it says of the import is not believed: remove it, and begin the import anew into a new log"
            raise CorruptError(reason, file=self._path, position=error.position) from None
        if place is None:
            return None
        if place.files != self._files:
            raise ConfigError(
                f"{self._path} tells of an import of {', '.join(name for name, _ in place.files)}, of other files or sizes: "
                "name the same files, or remove it to begin another import"
            )
        if not self._log.start_offset <= place.offset <= self._log.end_offset:
            raise ConfigError(
                f"{self._path} says that the import came to offset {place.offset}, and {self._log.path} has {self._log.start_offset} to "
                f"{self._log.end_offset}: records went since; remove it, and begin the import anew into a new log"
            )
        return place

    def begin(self, name: str, rows: Iterator[Row]) -> int:
        """Take from ``rows``, those of the next file, what is in the log already; how many these are."""
        self._file += 1
        self._rows = 0
        if self._file < self._resumed_file:
            return sum(1 for _ in rows)
        if self._file == self._resumed_file:
            for number in range(self._resumed_rows):
                if next(rows, None) is None:
                    raise RowError(
                        f"{self._path} says that {self._resumed_rows} rows of {name} are in the log, and it has {number}: "
                        "remove it, and begin the import anew into a new log"
                    )
            self._rows = self._resumed_rows
        while self._record is not None:
            row = next(rows, None)
            if row is None:
                return self._rows  # what is left is of the next file
            record = self._record
            if not _same(row, record):
                raise self._foreign(record, f"row {self._rows + 1} of {name}")
            self._rows += 1
            self._record = next(self._behind, None)
        self._keep()
        return self._rows

    def note(self, count: int) -> None:
        """``count`` rows more of the file are in the log."""
        self._rows += count
        self._since += 1
        if self._since >= _KEEP_EVERY:
            self._keep()

    def check_end(self) -> None:
        """The files have no more rows. Raises :class:`RowError` where the log has records behind the place that are none of theirs."""
        if self._record is not None:
            raise self._foreign(self._record, "in the files")

    def finish(self) -> None:
        """Everything is in the log."""
        if self._disk.stat(self._path) is not None:
            self._disk.remove(self._path)
            self._disk.sync_directory(self._log.path)

    def _foreign(self, record: Record, row: str) -> RowError:
        return RowError(
            f"offset {record.offset} of {self._log.path} is not {row}: somebody else appended since the "
            f"import was stopped; look at it, and remove {self._path} to begin another import"
        )

    def _keep(self) -> None:
        self._since = 0
        write_state(self._disk, self._path, Place(self._files, max(self._file, 0), self._rows, self._log.end_offset).to_values())


def _same(row: Row, record: Record) -> bool:
    if (row.key, row.value, tuple(row.headers)) != (record.key, record.value, tuple(record.headers)):
        return False
    return row.timestamp is None or row.timestamp == record.timestamp
