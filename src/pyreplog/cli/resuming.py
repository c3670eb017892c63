"""How far an import came: a small file in the log's folder, replaced after each batch, and the log itself for what came after that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyreplog.cli.rows import Row, RowError
from pyreplog.errors import ConfigError
from pyreplog.record import Record
from pyreplog.runtime import Log

__all__ = ["FILE_NAME", "Resume"]

FILE_NAME: Final = "replog.import"
_KEEP_EVERY: Final = 20


class Progress(NamedTuple):
    """What the file says: ``files`` are names and sizes."""

    files: list[tuple[str, int]]
    file: int
    rows: int
    offset: int


def parse_progress(data: bytes, path: str) -> Progress:
    """What the file at ``path`` says. Raises :class:`ConfigError` where it is none of ours."""
    try:
        state = json.loads(data)
        numbers = state["file"], state["rows"], state["offset"]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("its numbers are none")
        return Progress([(str(name), int(size)) for name, size in state["files"]], *numbers)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{path} is not to be read ({error}): remove it, and begin the import anew into a new log") from None


class Resume:
    """The state of one import of ``files`` into ``log``.

    The file says: with ``rows`` rows of file number ``file`` appended, the log ended at ``offset``. Whatever lies behind that offset was
    appended by this import before it was stopped: it is compared with the rows that come next, one by one, and they are skipped.
    """

    def __init__(self, log: Log, files: Sequence[str]) -> None:
        self._log = log
        self._files = list(files)
        self._path = Path(log.path) / FILE_NAME
        self._identity = [(name, os.path.getsize(name)) for name in files]
        self._file = -1
        self._rows = 0
        self._since = 0
        before = self._load()
        self._resumed_file = before.file if before else -1
        self._resumed_rows = before.rows if before else 0
        self._offset = before.offset if before else log.end_offset
        # What this import appended after the file was written, which is not known to it.
        self._behind = iter(log.read(start=self._offset))
        self._record = next(self._behind, None)
        if before is None:
            self._keep()

    def _load(self) -> Progress | None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        found = parse_progress(data, str(self._path))
        if found.files != self._identity:
            raise ConfigError(
                f"{self._path} tells of an import of {', '.join(name for name, _ in found.files)}, of other files or sizes: "
                "name the same files, or remove it to begin another import"
            )
        return found

    def begin(self, name: str, rows: Iterator[Row]) -> int:
        """Take from ``rows``, those of the next file, what is in the log already; how many these are."""
        self._file += 1
        self._rows = 0
        if self._file < self._resumed_file:
            return sum(1 for _ in rows)
        if self._file == self._resumed_file:
            for _ in range(self._resumed_rows):
                next(rows, None)
            self._rows = self._resumed_rows
        while self._record is not None:
            row = next(rows, None)
            if row is None:
                return self._rows  # what is left is of the next file
            record = self._record
            if not _same(row, record):
                raise RowError(
                    f"offset {record.offset} of {self._log.path} is not row {self._rows + 1} of {name}: somebody else appended since the "
                    f"import was stopped; look at it, and remove {self._path} to begin another import"
                )
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

    def finish(self) -> None:
        """Everything is in the log."""
        self._path.unlink(missing_ok=True)

    def _keep(self) -> None:
        self._since = 0
        self._offset = self._log.end_offset
        state = {"files": self._identity, "file": max(self._file, 0), "rows": self._rows, "offset": self._offset}
        temporary = self._path.with_suffix(".import.tmp")
        with open(temporary, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(json.dumps(state).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)


def _same(row: Row, record: Record) -> bool:
    if (row.key, row.value, tuple(row.headers)) != (record.key, record.value, tuple(record.headers)):
        return False
    return row.timestamp is None or row.timestamp == record.timestamp
