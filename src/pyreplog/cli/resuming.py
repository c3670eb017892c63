"""The progress of imports: a small file in the log's folder, replaced after some batches, and the log itself for
the rows behind that.

The file keeps an entry for each file that was imported as a whole, so that the same command does nothing when it is
run again. Format: docs/internals/format/state_files.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyreplog.cli.rows import PARQUET, Row, RowError
from pyreplog.cli.source import Source
from pyreplog.config import INT64_MAX
from pyreplog.errors import ConfigError, CorruptError
from pyreplog.log import join, read_state, write_state
from pyreplog.ports import Disk
from pyreplog.record import Record
from pyreplog.runtime import Log
from pyreplog.values import TimestampType

__all__ = ["FILE_NAME", "ImportedUpTo", "Resume", "format_places", "parse_places"]

FILE_NAME: Final = "replog.import"
_VERSION: Final = "1"  # on disk: never change
_PREFIX: Final = "import."
_CRC_MAX: Final = 2**32 - 1
_KEEP_EVERY: Final = 20


class ImportedUpTo(NamedTuple):
    """With the first ``rows`` rows of a file in the partition, which are its first ``size`` bytes, the log ended at
    ``offset``."""

    path: str
    topic: str
    partition: int
    how: tuple[str | None, ...]
    """What made rows of the bytes: the format, and the fields that were named."""
    size: int
    crc: int
    """CRC-32C of these bytes."""
    mtime_ns: int
    """When the file was changed last before these bytes were read."""
    rows: int
    offset: int
    done: bool
    """Whether this was all of the file. At most one of a partition is not."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What there is one place of."""
        return self.path, self.topic, self.partition


def format_places(places: Sequence[ImportedUpTo]) -> dict[str, str]:
    """As a state file has them."""
    # As JSON, for a name may have any character in it.
    lines = (json.dumps(place._asdict(), separators=(",", ":"), sort_keys=True) for place in places)
    return {"version": _VERSION, **{f"{_PREFIX}{number:09d}": line for number, line in enumerate(lines)}}


def parse_places(values: Mapping[str, str], path: str) -> list[ImportedUpTo]:
    """Return the progress in the values of the state file at ``path``. Raise :class:`CorruptError` if they are not
    progress."""
    if values.get("version") != _VERSION:
        raise CorruptError("the places of imports in another version", file=path)
    try:
        places = [_place(json.loads(values[name])) for name in sorted(values) if name.startswith(_PREFIX)]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CorruptError(f"no place of an import: {error}", file=path) from None
    if len({place.key for place in places}) != len(places):
        raise CorruptError("two places of the import of one file", file=path)
    begun = [(place.topic, place.partition) for place in places if not place.done]
    if len(set(begun)) != len(begun):
        raise CorruptError("two imports into one partition at once", file=path)
    return places


def _place(fields: Any) -> ImportedUpTo:
    place = ImportedUpTo(**{**fields, "how": tuple(fields["how"])})
    if not all(type(one) is str for one in (place.path, place.topic)) or type(place.done) is not bool:
        raise ValueError(f"{str(fields)[:80]} is none")
    if not all(one is None or type(one) is str for one in place.how):
        raise ValueError(f"{str(fields['how'])[:80]} are no options")
    for value, most in (
        (place.crc, _CRC_MAX),
        *((one, INT64_MAX) for one in (place.partition, place.size, place.rows, place.offset)),
    ):
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(f"{str(value)[:40]} is no such number")
    if type(place.mtime_ns) is not int or abs(place.mtime_ns) > INT64_MAX:
        raise ValueError(f"{str(place.mtime_ns)[:40]} is no time")
    return place


class Resume:
    """The state of one import into ``log``, whose folder is on ``disk``.

    Whatever lies behind the offset of a :class:`ImportedUpTo` that is not done was appended by that import before
    it was stopped: it is compared with the rows that come next, one by one, and they are skipped.
    """

    def __init__(self, log: Log, names: Sequence[str], disk: Disk) -> None:
        """``names``: of the files."""
        paths = [os.path.abspath(name) for name in names]
        self._log = log
        self._disk = disk
        self._path = join(log.path, FILE_NAME)
        self._places = {place.key: place for place in self._load()}
        self._since = 0
        self._now: ImportedUpTo | None = None
        twice = next((path for number, path in enumerate(paths) if path in paths[:number]), None)
        if twice is not None:
            raise ConfigError(f"{twice} is named twice: with --resume a file is imported once")
        for place in self._places.values():
            if self._is_ours(place):
                self._check_log(place)
                if not place.done and place.path not in paths:
                    raise ConfigError(
                        f"{self._path} tells of an import of {place.path} that was stopped: name it, too, or remove"
                        f" {self._path} to begin another import"
                    )

    def _load(self) -> list[ImportedUpTo]:
        try:
            values = read_state(self._disk, self._path)
            return [] if values is None else parse_places(values, self._path)
        except CorruptError as error:
            about = "it is damaged: remove it, and import again from the start, into a new log"
            raise CorruptError(f"{self._path} is damaged ({error.reason}): {about}") from None

    def _is_ours(self, place: ImportedUpTo) -> bool:
        return (place.topic, place.partition) == (self._log.topic, self._log.partition)

    def _check_log(self, place: ImportedUpTo) -> None:
        first = 0 if place.done else self._log.start_offset  # the records of a whole import may be deleted
        if not first <= place.offset <= self._log.end_offset:
            raise ConfigError(
                f"{self._path} says that the import of {place.path} came to offset {place.offset}, but {self._log.path}"
                f" has {self._log.start_offset} to {self._log.end_offset}: records were removed since; remove it, and"
                " import again from the start into a new log"
            )

    def in_order(self, names: Sequence[str]) -> list[str]:
        """Return ``names``, but first the file whose import was stopped: the records behind its place are its
        own."""
        begun = {place.path for place in self._places.values() if not place.done and self._is_ours(place)}
        return sorted(names, key=lambda name: os.path.abspath(name) not in begun)

    def begin(self, source: Source, rows: Iterator[Row]) -> tuple[int, bool]:
        """Skip the ``rows`` of ``source`` that the log has already. Return their number, and whether the file has
        no other rows; in that case ``rows`` are not read further. Raise :class:`RowError` if the file has
        changed."""
        log = self._log
        new = ImportedUpTo(
            source.path, log.topic, log.partition, source.how, 0, 0, source.mtime_ns, 0, log.end_offset, done=False
        )
        before = self._places.get(new.key)
        if before is None:
            self._keep(new)
            return 0, False
        self._check_source(before, source)
        if before.done and before.size == source.size:
            return before.rows, True
        for number in range(before.rows):
            if next(rows, None) is None:
                raise RowError(
                    f"{self._path} says that {before.rows} rows of {source.name} are in the log, and it has {number}"
                )
        self._now = before._replace(done=False, mtime_ns=source.mtime_ns)
        if before.done:  # any program may have appended behind it
            self._now = self._now._replace(offset=log.end_offset)
        else:
            self._skip(source, rows)
        self._keep(self._now)
        return self._now.rows, False

    def _check_source(self, before: ImportedUpTo, source: Source) -> None:
        """Check that the beginning of ``source`` is the part that was imported."""
        advice = (
            f"import it without --resume to append all of it again, or remove {self._path} to forget the earlier import"
        )
        if before.how != source.how:
            raise ConfigError(
                f"{source.name} was imported in another format or with other fields: name the same, or {advice}"
            )
        grown = source.size != before.size
        if source.form == PARQUET and grown and before.size:
            raise RowError(f"{source.name} was imported, and is another file since: {advice}")
        unchanged = source.mtime_ns == before.mtime_ns and not (grown and before.done)
        if not unchanged and source.crc(0, before.size) != before.crc:
            raise RowError(
                f"the first {before.size} bytes of {source.name} were imported, and are others since: {advice}"
            )
        if not source.divides(before.size):
            raise RowError(
                f"the last row of {source.name} that was imported had no line end, and went on since: {advice}"
            )

    def _skip(self, source: Source, rows: Iterator[Row]) -> None:
        """Compare the rows with the records that were appended after the place was written.

        Each row has its own offset. In a compacted log the record of a row may be gone; then a later row has its key,
        or it was a tombstone.
        """
        assert self._now is not None, "begun"
        may_be_gone = self._log.config.compacts
        first, count = self._now.offset, self._now.rows
        end = self._log.end_offset
        gone: dict[bytes | None, int] = {}
        records = self._log.read(start=first, end=end)
        record = next(records, None)
        for offset in range(first, end):
            row = next(rows, None)
            where = f"row {count + 1} of {source.name}" if row is not None else f"in {source.name}"
            here = record if record is not None and record.offset == offset else None
            if row is None or (not may_be_gone if here is None else not _same(row, here)):
                raise self._foreign(offset, where)
            if here is not None:
                record = next(records, None)
            if here is not None or row.value is None:
                gone.pop(row.key, None)
            else:
                gone[row.key] = offset
            count += 1
        if gone:
            raise self._foreign(min(gone.values()), f"a record of {source.name} that compaction may remove")
        self._now = self._reached(source, count)

    def note(self, source: Source, count: int) -> None:
        """``count`` rows more of the file are in the log: all that were given."""
        assert self._now is not None, "begun"
        self._now = self._now._replace(rows=self._now.rows + count)
        self._since += 1
        if self._since >= _KEEP_EVERY:
            self._keep(self._reached(source, self._now.rows))

    def finish(self, source: Source) -> None:
        """The file has no more rows, and all are in the log."""
        assert self._now is not None, "begun"
        source.check_unchanged()
        self._keep(self._reached(source, self._now.rows)._replace(done=True))

    def _reached(self, source: Source, rows: int) -> ImportedUpTo:
        assert self._now is not None, "begun"
        crc = source.crc(self._now.size, source.end, self._now.crc)
        if crc is None:
            raise RowError(f"{source.name} became shorter while it was imported")
        return self._now._replace(size=source.end, crc=crc, rows=rows, offset=self._log.end_offset)

    def _foreign(self, offset: int, row: str) -> RowError:
        return RowError(
            f"offset {offset} of {self._log.path} is not {row}: another program appended after the "
            f"import was stopped; check the log, and remove {self._path} to begin another import"
        )

    def _keep(self, place: ImportedUpTo) -> None:
        self._since = 0
        self._now = self._places[place.key] = place
        write_state(self._disk, self._path, format_places([*self._places.values()]))


def _same(row: Row, record: Record) -> bool:
    if (row.key, row.value, tuple(row.headers)) != (record.key, record.value, tuple(record.headers)):
        return False
    # Where the log gives the times, the row's is nowhere in it.
    by_log = record.timestamp_type is TimestampType.LOG_APPEND_TIME
    return by_log or row.timestamp is None or row.timestamp == record.timestamp
