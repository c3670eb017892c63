"""The offset checkpoints of a log root, in Kafka's format: recovery points, log starts, high
watermarks, and the ends of compacted records."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.log.layout import CLEANER_NAME, HIGH_WATERMARK_NAME, LOG_START_NAME, RECOVERY_POINT_NAME, join
from pyreplog.log.log import Log
from pyreplog.log.log_table import LogTable
from pyreplog.log.reserve import keep_reserve
from pyreplog.log.snapshot import read_offsets, write_offsets
from pyreplog.log.summary import Summary, decode_body
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

_VALUES: Final[dict[str, Callable[[Log | Summary], int | None]]] = {
    RECOVERY_POINT_NAME: lambda log: log.recovery_point,
    LOG_START_NAME: lambda log: log.start_offset if log.start_offset > log.first_base_offset else None,
    HIGH_WATERMARK_NAME: lambda log: log.high_watermark,
    CLEANER_NAME: lambda log: (log.cleaned_end or None) if isinstance(log, Log) else None,
}
"""The value of a partition in each checkpoint, from its log or its summary; None: no entry."""


class CheckpointedOffsets(NamedTuple):
    """The entries of one partition in the four checkpoints; 0 for a missing entry."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    cleaned_end: int


class OffsetCheckpoints:
    """The four checkpoint files of the root at ``path``, written from the logs in ``logs``.

    A checkpoint is always written as a whole. So this object keeps the entries of partitions
    without a usable log, and knows which removed partitions the files may still name. A file that
    is damaged counts as empty; ``notes`` gets a line about it.
    """

    def __init__(self, disk: Disk, path: str, logs: LogTable, notes: list[str]) -> None:
        self._disk = disk
        self._path = path
        self._logs = logs
        self._notes = notes
        # Entries of partitions that are not in ``logs``, by file.
        self._kept: dict[str, dict[TopicPartition, int]] = {name: {} for name in _VALUES}
        # The last write of each file: the changes of ``logs``, and the values of the open logs.
        self._written: dict[str, tuple[int, dict[TopicPartition, int]]] = {}
        # The files that were there at the start.
        self._named: set[str] = set()
        # The ends of compacted records of logs that are not open.
        self._unopened: dict[TopicPartition, int] = {}
        # Partitions that do not exist here but may have an entry.
        self._absent: set[TopicPartition] = set()

    # -- reading --

    def read(self) -> None:
        """Read the files, before the logs are opened."""
        for name in _VALUES:
            try:
                path = join(self._path, name)
                if self._disk.stat(path) is not None:
                    self._named.add(name)
                self._kept[name] = read_offsets(self._disk, path)
            except CorruptError as error:
                self._notes.append(f"{name} is damaged and was ignored: {error}")
        self._absent = set[TopicPartition]().union(*self._kept.values())

    def read_cleaned_ends(self) -> None:
        """Read the ends of compacted records, for logs that are opened later. No other file has facts that a summary
        lacks."""
        try:
            self._unopened = read_offsets(self._disk, join(self._path, CLEANER_NAME))
        except CorruptError as error:
            self._notes.append(f"{CLEANER_NAME} is damaged and was ignored: {error}")
        if self._unopened:
            self._named.add(CLEANER_NAME)

    def take_cleaned_end(self, key: TopicPartition) -> int:
        """Return the end of the compacted records of a log that is being opened; 0 if it was not compacted."""
        return self._unopened.pop(key, 0)

    def __contains__(self, key: object) -> bool:
        """Return whether a file named the partition ``key`` when it was read."""
        return any(key in kept for kept in self._kept.values())

    def offsets_of(self, key: TopicPartition) -> CheckpointedOffsets:
        """Return the entries of the partition ``key`` in the files at the time of :meth:`read`."""
        return CheckpointedOffsets(*(kept.get(key, 0) for kept in self._kept.values()))

    def keep_only(self, damaged: Container[TopicPartition]) -> None:
        """Forget the entries that were read, except those of ``damaged`` partitions.

        Call it when the logs are open: their entries come from the logs now.
        """
        for name, kept in self._kept.items():
            self._kept[name] = {key: value for key, value in kept.items() if key in damaged}
        self._absent = {key for key in self._absent if key not in self._logs and key not in damaged}

    # -- partitions that come and go --

    def keep(self, key: TopicPartition, state: Log | Summary) -> None:
        """Keep the entries of ``key`` as ``state`` has them, because its log cannot be used any
        more."""
        for name, value_of in _VALUES.items():
            value = value_of(state)
            if name == CLEANER_NAME and value is None:
                value = self._unopened.pop(key, None)
            if value is not None:
                self._kept[name][key] = value

    def forget(self, key: TopicPartition) -> None:
        """Drop the entries of ``key``, which is removed. The files have them until the next
        write."""
        for kept in (*self._kept.values(), self._unopened):
            kept.pop(key, None)
        self._absent.add(key)

    def erase_absent(self, keys: Iterable[TopicPartition]) -> None:
        """Write all files if one may have an entry of an earlier partition of these names, because
        it would count for the new one."""
        if not self._absent.isdisjoint(keys):
            self.write_recovery_points()
            self.write_log_starts()
            self.write_high_watermarks()
            self.write_cleaned_ends()
            self._absent.clear()

    # -- writing --

    def write_recovery_points(self) -> None:
        """Write the :attr:`Log.recovery_point` of each log, and sync the marks.

        If a full disk had used a part of the root's reserve, make the reserve whole first.
        """
        keep_reserve(self._disk, self._path)
        self._sync_marks()
        self._write(RECOVERY_POINT_NAME)

    def write_log_starts(self) -> None:
        """Write the start of each log that does not begin at its first segment, and sync the
        marks."""
        self._sync_marks()
        self._write(LOG_START_NAME)

    def write_high_watermarks(self) -> None:
        """Write the high watermark of each log."""
        self._write(HIGH_WATERMARK_NAME)

    def write_cleaned_ends(self) -> None:
        """Write the end of the compacted records of each log that was compacted."""
        self._write(CLEANER_NAME)

    def write_closed(self) -> None:
        """Write all files from logs that are closed. REQUIRES that they were closed cleanly."""
        keep_reserve(self._disk, self._path)
        for name in _VALUES:
            self._write(name)

    def _sync_marks(self) -> None:
        for log in self._logs.usable():
            log.sync_mark()

    def _write(self, name: str) -> None:
        value_of, logs = _VALUES[name], self._logs
        values = {log.topic_partition: value for log in logs.opened() if (value := value_of(log)) is not None}
        written = (logs.changes, values.copy())
        if self._written.get(name) == written:
            return  # nothing changed, and there may be very many logs that are not open
        if name == CLEANER_NAME and not values and not self._kept[name] and name not in self._named:
            return  # most roots have no compacted log
        values.update(self._kept[name])
        for key, body in logs.summaries().items():
            value = self._unopened.get(key) if name == CLEANER_NAME else value_of(decode_body(body))
            if value is not None:
                values[key] = value
        write_offsets(self._disk, join(self._path, name), values)
        self._written[name] = written
