"""Roots, clusters and single folders: their partitions, the root's own files, and whether replicas hold the same
records."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.codecs import SIZE_MAX
from pyreplog.verify.controller import check_controller
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import CheckContext, Facts, read_file
from pyreplog.verify.logs import (
    OneLog,
    Surroundings,
    could_be_ours,
    has_left,
    is_directory,
    is_partition,
    look_around,
    may_not_enter,
    passed_over,
)
from pyreplog.verify.lookup import APART, LET_IN, REFUSED
from pyreplog.verify.members import check_known, check_members
from pyreplog.verify.metadata import (
    BOOTSTRAP,
    METADATA_FOLDER,
    METADATA_TOPIC,
    check_bootstrap,
    check_metadata,
    compare_metadata,
    has_metadata,
)
from pyreplog.verify.nodes import NODES, check_nodes
from pyreplog.verify.partition import ANOTHER_COPY, check_partition
from pyreplog.verify.queues import check_queues
from pyreplog.verify.readers import check_readers
from pyreplog.verify.spool import check_spool
from pyreplog.verify.states import Unreadable, partition_of
from pyreplog.verify.tables import check_tables

_SPECIAL: Final = re.compile(r".+\.[0-9A-Za-z_-]+-(delete|future|stray)")
FOREIGN: Final = (
    "a folder of another program, or an empty one: not looked into (a Kafka broker would not start with it in its log"
    " folder)"
)
LEFT: Final = "the folder of a node that left the cluster: not looked into, and nothing opens it"
HIDDEN: Final = "a log inside another log's folder, or more than two folders deep: it was not looked at"
REWRITTEN: Final = "nothing to do: the next writer writes it again"


def verify(
    disk: Disk,
    path: str,
    *,
    deep: bool = True,
    progress: Callable[[int], None] | None = None,
    max_batch_bytes: int = SIZE_MAX,
) -> Report:
    """Check every file under ``path``: a root, a cluster's folder, a broker's ``log.dirs`` folder, or one partition
    folder.

    It only reads, with its own decoders and the ``crc32c`` package, and uses no code of the writer. Without
    ``deep`` it does not decode the records inside the batches. It does not decode a compressed batch that takes
    more than ``max_batch_bytes`` unpacked either, and notes that. ``progress`` is called with the size in bytes of
    each piece that was read. Raises :class:`StorageError` if there is no log.
    """
    book = Report(progress)
    path = path.rstrip("/") or "/"
    check_backup(disk, path, book)
    found = look_around(disk, path)
    below = [log.name if log.name.startswith("/") else f"{path}/{log.name}" for log in found.logs if log.name != "."]
    for folder in dict.fromkeys([*below, *(root.path for log in found.logs for root in log.roots), *found.foreign]):
        if folder != path and found.bare is None and not (folder in found.foreign and _is_closed(disk, folder)):
            check_backup(disk, folder, book)
    if not found.logs and not found.refused and disk.stat(f"{path}/{NODES}") is None:
        if book.findings:
            return book  # a backup that had just begun, in it or right below
        raise _no_log(disk, path, found)
    if found.bare is not None:
        check_partition(disk, path, *found.bare, CheckContext(deep=deep, max_batch_bytes=max_batch_bytes), book)
        return book
    _note_surroundings(disk, path, found, book)
    roots = [root.path for log in found.logs for root in log.roots]
    homes = [root.home for log in found.logs for root in log.roots if root.home]
    for home in dict.fromkeys([path, *homes, *(root.rpartition("/")[0] for root in roots)]) if roots != [path] else ():
        names = list(disk.list(home))
        check_controller(disk, home, names, roots, book)
        if home == path or home.startswith(f"{path}/"):
            check_members(disk, home, found.logs, book)
            check_known(disk, home, found.logs, book)
        check_spool(disk, home, names, book)
        check_queues(disk, home, names, book)
        check_readers(disk, home, names, book)
        check_tables(disk, home, names, book)
        check_nodes(disk, home, book)
    for log in found.logs:
        _tell_apart(log, book)
        if roots == [path]:
            check_root(disk, path, book, deep=deep, max_batch_bytes=max_batch_bytes)
        else:
            _check_log(disk, log, book, deep=deep, max_batch_bytes=max_batch_bytes)
    return book


def _no_log(disk: Disk, path: str, found: Surroundings) -> StorageError:
    """Return the error for a folder without any log."""
    deeper = passed_over(disk, path, found)
    text = "there is no log here: neither a root, nor a cluster's folder, nor a partition folder"
    if deeper:
        text += f". There are logs more than two folders deep: name the folder of one ({', '.join(deeper[:5])})"
    return StorageError(errno.ENOENT, text, path)


def _note_surroundings(disk: Disk, path: str, found: Surroundings, book: Report) -> None:
    """Report independent logs, and the folders that are not looked into."""
    several = found.held()
    if len(several) > 1:
        named = ", ".join(log.name for log in several)
        book.note(
            path,
            f"{len(several)} independent logs ({named}): each is verified by itself, and none is compared with another",
        )
    for name in disk.list(path):
        if has_left(name) and is_directory(disk, f"{path}/{name}"):
            book.note(f"{path}/{name}", LEFT)
    hidden = passed_over(disk, path, found)
    for folder in hidden:
        book.pass_over(folder, HIDDEN, "verify it by the name of its folder")
    for folder in found.foreign:
        if not any(f"{log}/".startswith(f"{folder}/") for log in hidden):
            book.note(folder, FOREIGN)
    for folder in found.refused:
        if not any(folder.rpartition("/")[0] == root.path for log in found.logs for root in log.roots):
            book.pass_over(folder, REFUSED, LET_IN)


def _is_closed(disk: Disk, folder: str) -> bool:
    """Return whether this process may not enter ``folder``."""
    try:
        disk.stat(f"{folder}/{states.BACKUP}")
    except StorageError as error:
        if not may_not_enter(error):
            raise
        return True
    return False


def check_backup(disk: Disk, path: str, book: Report) -> None:
    """Verify that the folder ``path``, if it is a backup, was finished."""
    file = f"{path}/{states.BACKUP}"
    try:
        data = read_file(disk, file)
        if data is None:
            return
        values = states.state(data)
        if values.get("version") == "0" and values.get("state") == "whole":
            return
        about = (
            f"this backup of {values.get('source', 'another folder')[:256]} is not finished: it may lack records that"
            " its source had"
        )
    except Unreadable as error:
        about = f"the backup's own state file is damaged: {error}"
    advice = (
        "run `replog backup SOURCE TARGET` until it ends; if the source is gone, `replog repair` saves the segments"
        " that were copied whole"
    )
    book.damage(file, about, advice)


def total_size(disk: Disk, path: str, depth: int = 3) -> int:
    """Bytes in all files under ``path``, ``depth`` folders deep, as far as this process may look."""
    size = 0
    try:
        names = disk.list(path)
        stats = [(name, disk.stat(f"{path}/{name}")) for name in names]
    except StorageError as error:
        if not may_not_enter(error):
            raise
        return 0
    for name, found in stats:
        if found is not None and not found.is_directory:
            size += found.size
        elif found is not None and depth > 0:
            size += total_size(disk, f"{path}/{name}", depth - 1)
    return size


def check_root(
    disk: Disk, path: str, book: Report, *, deep: bool = True, compare: bool = False, max_batch_bytes: int = SIZE_MAX
) -> list[Facts]:
    """Verify the root at ``path`` and every partition in it."""
    book.folders.append(path)
    return _Root(disk, path, book, deep=deep, compare=compare, max_batch_bytes=max_batch_bytes).run()


class _Root:
    """One look at one root."""

    def __init__(self, disk: Disk, path: str, book: Report, *, deep: bool, compare: bool, max_batch_bytes: int) -> None:
        self._disk, self._path, self._book, self._deep, self._compare = disk, path, book, deep, compare
        self._max_batch_bytes = max_batch_bytes
        self._own = False
        self._clean = False
        self._rebooted = False
        self._identified = False
        self._checkpoints: dict[str, dict[tuple[str, int], int] | None] = {}
        #: Folders that may be a partition's, and that this process may not enter.
        self._refused: set[str] = set()

    def run(self) -> list[Facts]:
        names = list(self._disk.list(self._path))
        partitions = {name for name in names if partition_of(name) and self._holds(name)}
        self._own = states.INCARNATION in names or any(
            self._disk.stat(f"{self._path}/{name}/{states.MARK}") is not None for name in partitions
        )
        if BOOTSTRAP in names:
            check_bootstrap(self._disk, f"{self._path}/{BOOTSTRAP}", self._book)
        self._lives()
        self._properties()
        self._import()
        check_spool(self._disk, self._path, names, self._book)
        check_queues(self._disk, self._path, names, self._book)
        check_readers(self._disk, self._path, names, self._book)
        check_tables(self._disk, self._path, names, self._book)
        check_nodes(self._disk, self._path, self._book)
        for name in states.OFFSET_CHECKPOINTS:
            self._checkpoints[name] = self._offsets(name, names)
        found = []
        for name in names:
            path = f"{self._path}/{name}"
            if not is_directory(self._disk, path):
                continue
            if _SPECIAL.fullmatch(name):
                self._book.note(path, "a partition that is being deleted or moved, or was set aside: not looked at")
                continue
            key = partition_of(name)
            if key is None:
                self._stranger(name, names)
                continue
            if name == METADATA_FOLDER and name not in partitions and has_metadata(self._disk, self._path):
                check_metadata(self._disk, path, self._book)  # there is no segment yet
                continue
            if name not in partitions:
                # A folder that a checkpoint names was a partition's, even if all its files are
                # gone.
                if name in self._refused:
                    self._book.pass_over(path, REFUSED, LET_IN)
                    continue
                if not any(key in (values or {}) for values in self._checkpoints.values()):
                    self._foreign(path)
                    continue
            try:
                found.append(check_partition(self._disk, path, *key, self._look(key), self._book))
                if name == METADATA_FOLDER:
                    check_metadata(self._disk, path, self._book)
            except StorageError:
                if self._disk.stat(path) is not None:
                    raise
                self._book.note(path, "it was deleted during the check")
        self._against(found)
        return found

    def _holds(self, name: str) -> bool:
        """Return whether the folder ``name`` is a partition's. A folder that may be one, but cannot be entered, is
        recorded."""
        try:
            return is_partition(self._disk, f"{self._path}/{name}")
        except StorageError as error:
            if not may_not_enter(error):
                raise
            if could_be_ours(name):
                self._refused.add(name)
            return False

    def _foreign(self, path: str) -> None:
        """Note that ``path`` is a folder of another program, unless it is the folder of a log that was passed over,
        or holds one."""
        if not any(f"{folder}/".startswith(f"{path}/") for folder in self._book.unseen):
            self._book.note(path, FOREIGN)

    def _stranger(self, name: str, names: list[str]) -> None:
        path = f"{self._path}/{name}"
        partition = states.taken_for(name)
        if not self._holds(name):
            self._foreign(path)
        elif not partition:
            what = (
                "it holds a partition's files and has not the name of one: no reader here reads it, and no Kafka broker"
                " starts with it"
            )
            self._book.warn(path, what, "rename it to TOPIC-NUMBER, or move it away")
        elif partition in names:
            what = (
                f"a Kafka broker would not start with two folders of {partition}, and it takes this folder for one;"
                " pyreplog does not read it"
            )
            self._book.warn(path, what, "move it away")
        else:
            what = (
                f"a Kafka broker takes it for {partition}; pyreplog does not read it, because a partition's number has"
                " no zeros before it"
            )
            self._book.warn(path, what, f"rename it to {partition}, if it is that")

    def _look(self, key: tuple[str, int]) -> CheckContext:
        values = {name: (self._checkpoints.get(name) or {}).get(key) for name in states.OFFSET_CHECKPOINTS}
        return CheckContext(
            deep=self._deep,
            max_batch_bytes=self._max_batch_bytes,
            clean=self._clean,
            own=self._own and key[0] != METADATA_TOPIC,
            identified=self._identified,
            bare=False,
            rebooted=self._rebooted,
            recovery_point=values[states.RECOVERY_POINTS],
            watermark=values[states.WATERMARKS],
            log_start=values[states.LOG_STARTS],
            compare=self._compare,
        )

    def _read(self, name: str) -> bytes | None:
        path = f"{self._path}/{name}"
        try:
            return read_file(self._disk, path, self._book)
        except Unreadable as error:
            self._book.warn(path, str(error), "look at the disk and the file's mode; then verify again")
            return None

    def _import(self) -> None:
        data = self._read(states.IMPORT)
        if data is None:
            return
        path = f"{self._path}/{states.IMPORT}"
        try:
            places = states.imports(data)
        except Unreadable as error:
            self._book.warn(path, f"damaged: {error}", "remove it, and import again from the start into a new log")
            return
        for place in places:
            if not place["done"]:
                text = f"an import of {place['path']} was stopped before its end"
                self._book.note(path, text, "go on with `replog import --resume` and the same files")

    def _lives(self) -> None:
        incarnation = ""
        data = self._read(states.INCARNATION)
        if data is not None:
            try:
                known = states.state(data)
                incarnation = known.get("incarnation_id", "")
                self._rebooted = not known.get("boot_id", "") == self._disk.boot_id(self._path) != ""
            except Unreadable as error:
                advice = "nothing to do: the next opening counts as one after a crash, and writes it again"
                self._book.warn(f"{self._path}/{states.INCARNATION}", f"damaged: {error}", advice)
        elif self._own:
            advice = "nothing to do: the next opening counts as one after a crash, and writes it again"
            self._book.warn(
                f"{self._path}/{states.INCARNATION}", "what tells the lives of this root apart is missing", advice
            )
        farewell = self._read(states.CLEAN)
        if farewell is None:
            if self._own:
                self._book.note(self._path, "it was not closed in order, or is open now")
            return
        try:
            found = states.farewell(farewell)
            named = found.incarnation
        except Unreadable as error:
            found, named = None, None
            if self._own:
                self._book.warn(
                    f"{self._path}/{states.CLEAN}",
                    str(error),
                    "nothing to do: the next opening counts as one after a crash",
                )
        if not self._own:
            self._clean = found is not None
        elif named is not None and named != incarnation:
            self._book.warn(
                f"{self._path}/{states.CLEAN}",
                "it does not name the life of this root that ended last",
                "nothing to do: the next opening looks at everything",
            )
        else:
            self._clean = named is not None and named != ""
            if found is not None and found.summaries is not None:
                self._summaries(*found.summaries)

    def _summaries(self, size: int, checksum: int) -> None:
        data = self._read(states.SUMMARIES)
        if data is None or len(data) != size or crc32c(data) != checksum:
            about = "is missing" if data is None else "is not the file that the clean shutdown marker names"
            text = f"the summary of the partitions {about}"
            self._book.warn(
                f"{self._path}/{states.SUMMARIES}",
                text,
                "nothing to do: the next start looks into each folder, which takes longer",
            )

    def _properties(self) -> None:
        path = f"{self._path}/{states.META}"
        data = self._read(states.META)
        if data is None:
            if self._own:
                self._book.warn(
                    path, "the file with the ids of cluster and node is missing", "put it back; a new one gets new ids"
                )
            return
        advice = "write it again, with the ids that the other nodes know"
        try:
            values = states.properties(data)
            version = states.number(values.get("version", "0"), 0, 1)
            self._identified = version == 1
            node = values.get("node.id" if version else "broker.id")
            if node is not None or version:
                states.number(node or "", 0, 2**31 - 1)
            if version and not values.get("cluster.id"):
                raise Unreadable("it names no cluster.id")
            if self._own and not values.get("directory.id"):
                raise Unreadable("it names no directory.id")
            for name in ("cluster.id", "directory.id"):
                if self._own and values.get(name):
                    states.check_uuid(values[name])
            unknown = sorted(set(values) - {"version", "node.id", "broker.id", "cluster.id", "directory.id"})
            if unknown:
                raise Unreadable(f"unknown names {', '.join(unknown)[:64]}")
        except Unreadable as error:
            self._book.warn(path, str(error), advice)

    def _offsets(self, name: str, names: list[str]) -> dict[tuple[str, int], int] | None:
        path = f"{self._path}/{name}"
        if name not in names:
            if self._clean and self._own and name != states.CLEANER:
                self._book.warn(path, "the checkpoint is missing", REWRITTEN)
            return None
        data = self._read(name)
        if data is None:
            return None
        try:
            return states.offsets(data)
        except Unreadable as error:
            self._book.warn(path, f"not to be read: {error}", REWRITTEN)
            return None

    def _against(self, found: list[Facts]) -> None:
        """Compare the checkpoints with the partitions. They were read first, so the partitions must have reached
        them."""
        known = {(facts.topic, facts.partition): facts for facts in found}
        for name, values in self._checkpoints.items():
            path = f"{self._path}/{name}"
            for key, value in (values or {}).items():
                facts = known.get(key)
                if facts is None:
                    self._book.warn(
                        path,
                        f"{key[0]}-{key[1]} has an entry, and no folder",
                        "it is dropped when the checkpoint is next written",
                    )
                    continue
                self._entry(path, name, value, facts)
            if values is not None and self._clean and name in (states.RECOVERY_POINTS, states.WATERMARKS):
                for key in known:
                    if key not in values and key[0] != METADATA_TOPIC and (self._own or name == states.RECOVERY_POINTS):
                        self._book.warn(path, f"{key[0]}-{key[1]} has no entry", REWRITTEN)

    def _entry(self, path: str, name: str, value: int, facts: Facts) -> None:
        key = f"{facts.topic}-{facts.partition}"
        mark = facts.mark
        if mark is None:
            if value > facts.end and name == states.LOG_STARTS:
                advice = "do not start a broker on it, which would delete every segment: correct the entry first"
                self._book.damage(path, f"{key} starts at {value} by it, and ends at {facts.end}", advice)
            return
        expected = {
            states.RECOVERY_POINTS: mark.synced_end,
            states.WATERMARKS: mark.high_watermark,
            states.LOG_STARTS: mark.start_offset,
        }.get(name)
        if expected is None:
            return
        if value > expected or (self._clean and value != expected):
            self._book.warn(path, f"{key} has {value} in it, and {expected} in its mark, which counts", REWRITTEN)


def _tell_apart(log: OneLog, book: Report) -> None:
    """Tell which folders of ``log`` no reader takes together, and which are of earlier topics."""
    for clash in log.clashes:
        named = " and ".join(clash.folders)
        book.warn(clash.folders[0], f"no reader takes {named} together: {clash.why}", APART)
    for folder in log.earlier:
        book.note(folder, "it is of an earlier topic of that name, by the controller's state: not compared")


def _check_log(disk: Disk, log: OneLog, book: Report, *, deep: bool, max_batch_bytes: int) -> None:
    """Every root of ``log``, and its replicas against each other."""
    apart = {*log.earlier, *(folder for clash in log.clashes for folder in clash.folders[1:])}
    copies: dict[tuple[str, int], list[Facts]] = {}
    for root in log.roots:
        for facts in check_root(disk, root.path, book, deep=deep, compare=True, max_batch_bytes=max_batch_bytes):
            if facts.path not in apart:
                copies.setdefault((facts.topic, facts.partition), []).append(facts)
    for (topic, _), facts_of_copies in copies.items():
        (compare_metadata if topic == METADATA_TOPIC else _compare)(facts_of_copies, book)


def _compare(copies: list[Facts], book: Report) -> None:
    """Replicas hold the same bytes below the high watermark of each. If one is compacted, each has other gaps, and
    rewritten batches: then the offsets and epochs of the batches that both have must agree."""
    first = copies[0]
    for other in copies[1:]:
        if first.topic_id != other.topic_id:
            book.note(
                other.path, f"it is of topic id {other.topic_id}, and {first.path} of {first.topic_id}: not compared"
            )
            continue
        watermarks = [_committed(facts) for facts in (first, other)]
        end, start = min(watermarks), max(first.start, other.start)
        is_compacted = any(facts.mark is not None and facts.mark.is_compacted for facts in (first, other))
        mine, theirs = (
            {row[0]: row[:3] if is_compacted else row for row in facts.batches if start <= row[0] and row[1] < end}
            for facts in (first, other)
        )
        for base in sorted(mine.keys() & theirs.keys() if is_compacted else mine.keys() | theirs.keys()):
            if mine.get(base) != theirs.get(base):
                book.damage(
                    other.path,
                    f"it does not hold what {first.path} holds at offset {base}, which both say is committed",
                    f"find out which of them is right, and take the other from it; {ANOTHER_COPY}",
                    start=base,
                    end=base + 1,
                )
                break


def _committed(facts: Facts) -> int:
    """Return the high watermark of a copy; a Kafka folder has it in its root's checkpoint."""
    if facts.mark is not None:
        return facts.mark.high_watermark
    return facts.end if facts.watermark is None else facts.watermark
