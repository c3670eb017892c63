"""Several independent logs read together as one Arrow stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Literal

from pyreplog.arrow import LOGS_COLUMNS, BatchSource, Scan
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import ConfigError, CorruptLogError
from pyreplog.log import DistinctLogs, check_skipping, log_names, printable_name
from pyreplog.runtime.damage_teller import teller_of
from pyreplog.runtime.folder_opening import folder_of, open_all_for_reading
from pyreplog.runtime.open_options import ViewOptions
from pyreplog.runtime.skipping_view import SkippingView
from pyreplog.system import SystemDisk

__all__ = ["scan"]


def scan(
    paths: Iterable[str | os.PathLike[str]],
    columns: Sequence[str] | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
    start_timestamp: int | datetime | None = None,
    end_timestamp: int | datetime | None = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    above_high_watermark: bool = False,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    skip_damaged: bool | Callable[[CorruptLogError], object] = False,
) -> Scan:
    """Read several independent logs as one Arrow stream: one after another in the order of
    ``paths``, each partition in offset order.

    Each path is a folder that ``open_log(path, "r")`` takes, and each folder is one log. The column
    ``log`` says which log a row is from: its folder, relative to the deepest folder that holds all
    of them. ``topic``: default the only topic of each log, or the one with its folder's name.
    ``partition``: default all. The other arguments are those of :meth:`pyreplog.Log.scan`;
    ``start`` and ``end`` are offsets of each partition, so a partition that ends before ``start``
    has no rows. ``isolation``, ``above_high_watermark`` and ``max_batch_bytes`` are those of
    :func:`pyreplog.open_log`. No lock is taken, and the files stay open until the scan is garbage.

    Raises ConfigError for an empty list, for a path that is named twice, for two paths that lead to
    the same records (a copy, a replica, a cluster and its node), and for a log with several topics
    if ``topic`` is not given; UnknownTopicError for a log without that topic or partition;
    StorageError for a path without a log. Damage in one log ends the stream with an error that
    names the log.
    """
    folders = _folders_of(paths)
    options = ViewOptions(isolation, above_high_watermark, max_batch_bytes)
    tell = teller_of(skip_damaged)
    if tell is not None:
        check_skipping(isolation)
    disk = SystemDisk()
    together = DistinctLogs(disk)
    sources: list[tuple[int, BatchSource]] = []
    names: list[str] = []
    for folder, name in zip(folders, log_names(folders), strict=True):
        readers = open_all_for_reading(disk, folder, topic, partition)
        together.add(folder, readers)
        views = [options.view_of(reader, disk) for reader in readers]
        sources += [(view.partition, view if tell is None else SkippingView(view, tell)) for view in views]
        names += [printable_name(name)] * len(readers)
    return Scan(
        sources,
        name=f"{len(folders)} logs",
        columns=columns,
        default_columns=LOGS_COLUMNS,
        checked=True,
        start=start,
        end=end,
        start_timestamp=start_timestamp,
        end_timestamp=end_timestamp,
        spread=True,
        logs=names,
    )


def _folders_of(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the folders as absolute paths. Raises :class:`ConfigError` if there is none, or one
    twice."""
    if isinstance(paths, (str, bytes, os.PathLike)) or not isinstance(paths, Iterable):
        raise ConfigError(f"paths is {paths!r}; it must be a list of folders (glob.glob makes one of a pattern)")
    folders = [os.path.abspath(folder_of(path)) for path in paths]
    if not folders:
        raise ConfigError("paths is empty; name at least one log's folder")
    for position, folder in enumerate(folders):
        if folder in folders[:position]:
            raise ConfigError(f"{folder} is named twice in paths, and its records would be read twice: name it once")
    return folders
