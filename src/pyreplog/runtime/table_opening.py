"""Open the tables of a log and of a cluster: where their files lie, and whose they are."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable

from pyreplog.config import check_callable
from pyreplog.errors import ConfigError, StorageError, StoragePermissionError
from pyreplog.log import parent_of, read_properties
from pyreplog.ports import Disk
from pyreplog.readers import TableStore
from pyreplog.runtime.catalog import Catalog
from pyreplog.runtime.folder_opening import check_name, folder_of
from pyreplog.runtime.log_place import LogPlace, close_parts
from pyreplog.runtime.send_functions import Partitioner, SendFunctions
from pyreplog.runtime.table import ClusterTable, Table, TablePart, TableProgress, TopicParts
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView
from pyreplog.system import SystemDisk, anchored
from pyreplog.values import TopicPartition

__all__ = ["TopicTables", "open_log_table"]

Folder = str | os.PathLike[str]
_View = WriterView | ReaderView | CommittedView


def open_log_table(
    place: LogPlace, view: _View, name: str, store: Folder | None, progress: TableProgress | None
) -> tuple[Table, TablePart]:
    """Open the table of an open log, and bring it up to date; return it and the part that closes with the log."""
    check_callable("progress", progress, "a function of the next offset and the end")
    files = _open_files(place.disk, view, store, lambda: place.home(view.directory, "store=FOLDER"))
    part = TablePart(view, files, name, progress)
    try:
        part.refresh()
    except BaseException:
        part.close()
        raise
    return Table(part, name), part


class TopicTables:
    """The tables of one open cluster, which close with it. They read the folders, in whatever process."""

    def __init__(self, disk: Disk, path: str) -> None:
        """``path``: the cluster's folder, or another folder that holds logs."""
        self._disk = disk
        self._path = path
        self._open: weakref.WeakSet[TopicParts] = weakref.WeakSet()

    def open(
        self,
        topic: str,
        store: Folder | None,
        partitioner: Partitioner | None,
        progress: Callable[[TopicPartition, int, int], object] | None,
    ) -> ClusterTable:
        """Open the table of a topic, and bring it up to date."""
        check_callable("progress", progress, "a function of a TopicPartition, the next offset and the end")
        check_name(topic)
        SendFunctions(partitioner=partitioner).checked()
        catalog = Catalog(self._disk, self._path)
        numbers = catalog.numbers(topic)
        if numbers != list(range(len(numbers))):
            raise ConfigError(
                f"{self._path} has the partitions {numbers} of {topic!r} only, and a table needs all of them"
            )
        readers = catalog.open([TopicPartition(topic, number) for number in numbers])
        views = [ReaderView(reader, self._disk) for reader in readers]
        made: list[TablePart] = []
        parts = TopicParts(made, views)
        try:
            for view in views:
                key = TopicPartition(view.topic, view.partition)
                files = _open_files(self._disk, view, store, lambda: self._path)
                made.append(TablePart(view, files, str(key), _with_key(key, progress)))
            for part in made:
                part.refresh()
        except BaseException:
            parts.close()
            raise
        self._open.add(parts)
        return ClusterTable(topic, parts, partitioner)

    def close(self) -> None:
        """Close the tables that are open."""
        close_parts(self._open)


def _with_key(
    key: TopicPartition, progress: Callable[[TopicPartition, int, int], object] | None
) -> TableProgress | None:
    return None if progress is None else lambda offset, end: progress(key, offset, end)


def _open_files(disk: Disk, view: _View, store: Folder | None, home: Callable[[], str]) -> TableStore:
    """Open the files of the table of ``view``: in ``store``, or beside the log.

    Raises :class:`ConfigError` for a broker's folder without ``store``, :class:`StorageError`.
    """
    root = read_properties(disk, parent_of(view.directory)) or {}
    identity = f"{root.get('cluster.id', '')} {view.topic_id} {view.topic}-{view.partition}"
    name = f"{view.topic}-{view.partition}"
    if store is not None:
        folder = folder_of(store)
        folder = anchored(folder) if isinstance(disk, SystemDisk) else folder
        disk.make_directory(folder)
        # Logs of several roots may share the folder.
        name += "-" + hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
        return TableStore(disk, folder, name, identity)
    if _is_brokers(view):
        raise ConfigError(
            f"{view.directory} has no mark of pyreplog, so a Kafka broker may write it, and a table cannot be kept"
            " beside it: give store=FOLDER"
        )
    folder = home()
    if parent_of(view.directory) == folder:
        identity = f"{root.get('directory.id', '')} {identity}"
    try:
        return TableStore(disk, folder, name, identity)
    except StoragePermissionError as error:
        raise _elsewhere(error, folder) from error


def _is_brokers(view: _View) -> bool:
    source = view._view if isinstance(view, CommittedView) else view
    return isinstance(source, ReaderView) and source.durability is None


def _elsewhere(error: StorageError, folder: str) -> StorageError:
    """Return the error for a folder in which this user may not write."""
    return StorageError(
        error.errno or 0, f"{error.strerror}: give store=FOLDER to keep the table in a folder of your own", folder
    )
