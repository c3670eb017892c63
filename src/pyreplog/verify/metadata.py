"""The folder of a cluster's metadata log: its snapshots, its records, and the node's vote.

The batches, indexes and leader epochs of the log are checked as those of any partition. This module checks the rest:
a snapshot lies between a header and a footer, ends within the log and has the epoch of the record before its end;
each epoch of the log begins with the record of its leader; every record can be decoded and follows from those before
it; and the node's vote is not older than the log (:mod:`pyreplog.verify.vote`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.batches import Broken, CheckedBatch, Window, walk
from pyreplog.verify.codecs import SIZE_MAX, TooLarge, Unavailable, Undecodable
from pyreplog.verify.findings import Level, Report
from pyreplog.verify.folder import Facts, segment_files
from pyreplog.verify.metadata_records import BadRecord, MetadataState
from pyreplog.verify.producers import control_type
from pyreplog.verify.records import Malformed, PlainRecord, batch_records
from pyreplog.verify.vote import REPLACE, VOUCHER, check_vote

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"
BOOTSTRAP: Final = "bootstrap.checkpoint"
_TRIES: Final = 3
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_LEADER_CHANGE: Final = 2
_HEADER: Final = 3
_FOOTER: Final = 4
_LEFT_OVER: Final = "nothing to do: the node removes it when it is next opened"


class _Snapshot(NamedTuple):
    """One snapshot by its file's name."""

    end: int
    epoch: int
    name: str


@dataclass(slots=True)
class MetadataFacts:
    """The content of a folder's metadata, as far as it could be read."""

    path: str
    last_epoch: int
    end: int
    state: MetadataState


def is_own(names: Sequence[str]) -> bool:
    """Whether a metadata folder with the files ``names`` is one of ours."""
    return VOUCHER in names or states.MARK in names


def has_metadata(disk: Disk, root: str) -> bool:
    """Whether the folder ``root`` of a node has a metadata log of ours."""
    path = f"{root}/{METADATA_FOLDER}"
    try:
        return disk.stat(path) is not None and is_own(disk.list(path))
    except StorageError:
        return False


def check_metadata(disk: Disk, path: str, book: Report) -> MetadataFacts:
    """Verify the metadata folder ``path`` apart from the files that a check of any partition looks at. A node may be at
    work in it: if the folder's files changed during the check, it is made again."""
    for _ in range(_TRIES):
        own = Report(book.read)
        check = _FolderCheck(disk, path, own)
        facts = check.run()
        if own.worst is Level.NOTE or not check.changed_since():
            break
    own.byte_count = 0  # counted already
    book.take(own)
    return facts


def check_bootstrap(disk: Disk, path: str, book: Report) -> None:
    """Verify the file ``path``, with which a broker's metadata began."""
    _read_snapshot(disk, path, book, is_needed=True)


def newest_metadata(disk: Disk, roots: Sequence[str]) -> MetadataFacts | None:
    """Return the newest metadata of ours in the nodes' folders ``roots``: the one with the highest epoch and end. None
    if no folder has any."""
    found: list[MetadataFacts] = []
    for root in roots:
        if has_metadata(disk, root):
            try:
                found.append(_FolderCheck(disk, f"{root}/{METADATA_FOLDER}", Report()).run())
            except StorageError:
                continue  # the look at the root tells of it
    return max(found, key=lambda facts: (facts.last_epoch, facts.end), default=None)


def compare_metadata(copies: Sequence[Facts], book: Report) -> None:
    """Compare the metadata logs of a cluster's nodes: if two of them have the same batch, all batches before it are the
    same. Behind the last common batch a log may have records that no majority has."""
    for number, other in enumerate(copies):
        for first in copies[:number]:
            mine, theirs = ({row[0]: row for row in facts.batches} for facts in (first, other))
            common = max((base for base, row in mine.items() if theirs.get(base) == row), default=-1)
            start = max(first.start, other.start)
            bases = sorted(base for base in mine.keys() | theirs.keys() if start <= base < common)
            wrong = next((base for base in bases if mine.get(base) != theirs.get(base)), None)
            if wrong is not None:
                text = f"it holds another batch at offset {wrong} than {first.path}, and the same one at {common}"
                book.damage(
                    other.path, text, "compare with the other nodes, and replace the node that differs", start=wrong
                )
                break


class _FolderCheck:
    """One look at one folder. Use once."""

    def __init__(self, disk: Disk, path: str, book: Report) -> None:
        self._disk, self._path, self._book = disk, path, book
        self._names = list(disk.list(path))
        self._own = is_own(self._names)
        found = [(_SNAPSHOT.fullmatch(name), name) for name in self._names]
        self._snapshots = sorted(
            _Snapshot(int(match[1]), int(match[2]), name) for match, name in found if match is not None
        )
        self._end = 0
        self._last_epoch = 0

    def run(self) -> MetadataFacts:
        """The snapshots, the log behind the newest whole one, then the vote."""
        for name in self._names:
            if name.endswith((".checkpoint.part", ".checkpoint.deleted")):
                self._book.note(self._at(name), "a snapshot that was being received or removed", _LEFT_OVER)
        state, base = self._load_snapshots()
        self._end, self._last_epoch = (0, 0) if base is None else (base.end, base.epoch)
        start, end = self._log(state, 0 if base is None else base.end)
        self._compare_ends(start, end, base)
        for (kind, version), count in sorted(state.unknown.items()):
            text = f"{count} records of kind {kind}, version {version}, which is not known here: not looked into"
            self._book.note(self._path, text)
        check_vote(self._disk, self._path, self._last_epoch, self._book, is_own=self._own, is_begun=self._end > 0)
        return MetadataFacts(self._path, self._last_epoch, self._end, state)

    def changed_since(self) -> bool:
        """Whether files were made or removed since the check began."""
        return self._names != list(self._disk.list(self._path))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _load_snapshots(self) -> tuple[MetadataState, _Snapshot | None]:
        """Check all snapshots; return the state of the newest whole one, and its name."""
        newest: tuple[MetadataState, _Snapshot | None] = (MetadataState(), None)
        for snapshot in reversed(self._snapshots):
            found = _read_snapshot(self._disk, self._at(snapshot.name), self._book, is_needed=newest[1] is None)
            if found is not None and newest[1] is None:
                newest = found, snapshot
        return newest

    # -- the log --

    def _log(self, state: MetadataState, base: int) -> tuple[int, int]:
        """Apply the records from offset ``base`` on to ``state``. Return the first offset of the log and the end of
        its readable part."""
        start = end = -1
        epoch = -1
        for path, batch in self._batches():
            if start < 0:
                start = batch.base_offset
            end = batch.last_offset + 1
            where = {"position": batch.position, "start": batch.base_offset, "end": end}
            records = self._records(path, batch)
            if batch.leader_epoch != epoch and (epoch >= 0 or not batch.base_offset):
                first = control_type(records[0]) if batch.is_control and records else -1
                if first != _LEADER_CHANGE:
                    text = f"epoch {batch.leader_epoch} does not begin with the record of its leader"
                    self._book.damage(path, text, REPLACE, **where)
            epoch = batch.leader_epoch
            self._compare_epoch(batch)
            for record in records if not batch.is_control else ():
                if record.offset >= base:  # those below are in the snapshot
                    self._apply(state, record, path)
        if end > self._end:
            self._end = end
        self._last_epoch = max(self._last_epoch, epoch)
        return start, end

    def _batches(self) -> Iterator[tuple[str, CheckedBatch]]:
        """The batches of the log up to the first damage, which the check of the partition reports."""
        expected = -1
        for name in segment_files(self._disk, self._path, self._names).values():
            path = self._at(name)
            file = self._disk.open(path)
            try:
                for batch in walk(Window(file, file.size())):
                    if expected >= 0 and batch.base_offset != expected:
                        return
                    expected = batch.last_offset + 1
                    yield path, batch
            except Broken:
                return
            finally:
                file.close()

    def _records(self, path: str, batch: CheckedBatch) -> list[PlainRecord]:
        """The records of a batch; none if they cannot be unpacked, which the check of the partition reports."""
        try:
            return _records_of(batch)
        except (Malformed, Undecodable, Unavailable, TooLarge):
            return []

    def _apply(self, state: MetadataState, record: PlainRecord, path: str) -> None:
        try:
            state.apply(record.value or b"")
        except BadRecord as error:
            text = f"the record at offset {record.offset} is no metadata record that can stand there: {error}"
            self._book.damage(path, text, REPLACE, start=record.offset, end=record.offset + 1)

    def _compare_epoch(self, batch: CheckedBatch) -> None:
        for snapshot in self._snapshots:
            if batch.base_offset < snapshot.end <= batch.last_offset + 1 and snapshot.epoch != batch.leader_epoch:
                text = f"it ends in epoch {snapshot.epoch}, and the log has epoch {batch.leader_epoch} there"
                self._book.damage(self._at(snapshot.name), text, REPLACE)

    def _compare_ends(self, start: int, end: int, base: _Snapshot | None) -> None:
        """Compare the log, from ``start`` to ``end``, with the newest whole snapshot."""
        if start > 0 and (base is None or base.end < start):
            about = "no snapshot is whole" if base is None else f"the newest whole snapshot ends at {base.end}"
            text = f"the log begins at offset {start}, and {about}: the state before it is lost"
            self._book.damage(self._path, text, REPLACE, start=0 if base is None else base.end, end=start)
        if base is not None and 0 <= end < base.end:
            text = f"it ends at {base.end}, and the log at {end}"
            self._book.warn(self._at(base.name), text, "nothing to do: the log begins again at the snapshot's end")


def _records_of(batch: CheckedBatch) -> list[PlainRecord]:
    """The records of a batch of format 2. Raises what :func:`batch_records` raises."""
    return list(
        batch_records(
            batch.codec, batch.data[61:], batch.record_count, batch.base_offset, batch.base_timestamp, SIZE_MAX
        )
    )


def _read_snapshot(disk: Disk, path: str, book: Report, *, is_needed: bool) -> MetadataState | None:
    """Return the state in the snapshot ``path``; None if it is damaged, which is reported. ``is_needed``: no newer one
    is whole."""
    state = MetadataState()
    types: list[int] = []
    expected = 0
    try:
        file = disk.open(path)
    except StorageError as error:
        book.damage(path, f"it cannot be read: {error}", "look at the disk and the file's mode; then verify again")
        return None
    try:
        book.file_count += 1
        for batch in walk(Window(file, file.size(), book.read)):
            if batch.magic != 2 or batch.base_offset != expected:
                raise Broken(batch.position, f"a batch has base offset {batch.base_offset}, expected {expected}")
            if types and types[-1] == _FOOTER:
                raise Broken(batch.position, "a batch stands behind the footer")
            book.batch_count += 1
            expected = batch.last_offset + 1
            for record in _records_of(batch):
                book.record_count += 1
                types.append(control_type(record) if batch.is_control else -1)
                if not batch.is_control:
                    state.apply(record.value or b"")
        if not types or types[0] != _HEADER:
            raise Broken(0, "it does not begin with a header")
        if types[-1] != _FOOTER:
            raise Broken(file.size(), "it does not end with a footer: it was cut off")
    except (Broken, BadRecord, Malformed, Undecodable, Unavailable, TooLarge) as error:
        position = error.position if isinstance(error, Broken) else -1
        if is_needed:
            book.damage(path, f"the snapshot is damaged: {error}", REPLACE, position=position)
        else:
            text = f"the snapshot is damaged: {error}; a newer one is whole"
            book.warn(path, text, "nothing to do: it goes with the next snapshot", position=position)
        return None
    finally:
        file.close()
    return state
