"""Readers of several independent logs at once, each with the name of its log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from pyreplog.cli.output import say
from pyreplog.cli.reading import check_path, open_chosen
from pyreplog.config import suggestion
from pyreplog.errors import ConfigError, UnknownTopicError
from pyreplog.log import (
    DistinctLogs,
    Finder,
    LogReader,
    find_logs,
    is_internal,
    log_names,
    printable_name,
    unfinished_backups,
    unsafe_permissions,
)
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["Named", "SeveralLogs", "readers_of_several"]


class Named(NamedTuple):
    """One partition to read. ``log`` is the name of its log; "" if only one log is read."""

    log: str
    reader: LogReader


@dataclass
class SeveralLogs:
    """The readers, and whether folders were left out that may hold more."""

    named: list[Named] = field(default_factory=list)
    is_partial: bool = False


@contextmanager
def readers_of_several(
    paths: Sequence[str],
    *,
    topic: str | None = None,
    partition: int | None = None,
    progress: bool = False,
    skips: bool = False,
) -> Iterator[SeveralLogs]:
    """Return the readers of every log in the folders ``paths``: log after log, in the order of the paths and of the
    folders' names.

    The name of a log is its folder, relative to the deepest folder that holds all of them. A log without ``topic``
    or ``partition`` is skipped. A folder that may be a log, but cannot be read, is reported, and makes the result
    partial.

    Raises :class:`ConfigError` if there is no log, if a folder is named twice, and for two logs that hold the same
    partition; :class:`UnknownTopicError` if no log has the topic or partition.
    """
    disk = SystemDisk()
    result = SeveralLogs()
    try:
        finders = _finders(disk, paths, result)
        _tell_conflicts(finders.values(), topic, result)
        chosen = {folder: _chosen(finder, topic, partition) for folder, finder in finders.items()}
        if not any(chosen.values()) and not result.is_partial:
            raise _nothing(paths, list(finders.values()), topic, partition)
        together = DistinctLogs(disk)
        for (folder, keys), name in zip(chosen.items(), log_names(list(chosen)), strict=True):
            found: dict[TopicPartition, LogReader] = {}
            try:
                open_chosen(finders[folder], keys, found, forced=progress, skips=skips)
            finally:
                result.named += [Named(printable_name(name), reader) for reader in found.values()]
            together.add(folder, found.values())
        if refusal := unsafe_permissions(disk, [reader for _, reader in result.named]):
            say(f"replog: {refusal}; it is read all the same")
        yield result
    finally:
        for _, reader in result.named:
            reader.close()
        disk.close()


def _finders(disk: SystemDisk, paths: Sequence[str], result: SeveralLogs) -> dict[str, Finder]:
    """A finder of each log that holds partitions, by its absolute folder."""
    finders: dict[str, Finder] = {}
    for path in paths:
        check_path(path)
        place = os.path.abspath(path)
        found = find_logs(disk, place)
        for error in found.unreadable.values():
            say(f"replog: {error}")
            result.is_partial = True
        for hidden in found.hidden(disk):
            say(
                f"replog: {hidden}: a log inside another log's folder, or more than two folders deep, is left out: name"
                " its folder too"
            )
            result.is_partial = True
        unfinished = unfinished_backups(disk, found)
        for refusal in unfinished.values():
            say(f"replog: left out, an unfinished backup: {refusal}")
            result.is_partial = True
        for log in found.logs:
            folder = log.folder(place)
            for why in log.absent().values():
                say(f"replog: {why}; perhaps the disk of the missing node is not mounted")
                result.is_partial = True
            if folder in finders:
                raise ConfigError(f"{folder} is named twice, and its records would be printed twice: name it once")
            if log.has_partitions() and folder not in unfinished:
                finders[folder] = Finder.of(disk, found, log)
    return finders


def _tell_conflicts(finders: Iterable[Finder], topic: str | None, result: SeveralLogs) -> None:
    """Name the topics that are left out because their folders cannot be read together."""
    logs = [finder.log for finder in finders]
    for conflict in (conflict for log in logs if log is not None for conflict in log.conflicts()):
        if topic in (None, conflict.topic):
            say(f"replog: topic {conflict.topic} is not read: {conflict.why} ({' and '.join(conflict.folders)})")
            result.is_partial = True


def _chosen(finder: Finder, topic: str | None, partition: int | None) -> list[TopicPartition]:
    absent = finder.absent(topic)
    return [key for key in _readable(finder, topic) if partition in (None, key.partition) and key not in absent]


def _readable(finder: Finder, topic: str | None = None) -> list[TopicPartition]:
    """The partitions of ``topic``, or of all topics, whose folders can be read together."""
    log = finder.log
    refused = set() if log is None else {conflict.topic for conflict in log.conflicts()}
    is_bare = log is not None and log.bare is not None
    named = [key.topic for key in finder.claimed()]
    topics = dict.fromkeys(name for name in named if (name == topic if topic else is_bare or not is_internal(name)))
    return [key for name in topics if name not in refused for key in finder.folders(name, whole=False)]


def _nothing(
    paths: Sequence[str], finders: Sequence[Finder], topic: str | None, partition: int | None
) -> ConfigError | UnknownTopicError:
    where = ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")
    topics = sorted({key.topic for finder in finders for key in finder.claimed()})
    if not topics:
        return ConfigError(f"there is no log in {where}; `replog append` makes one")
    if topic is not None and topic not in topics:
        return UnknownTopicError(f"no log in {where} has the topic {topic!r}{suggestion(topic, tuple(topics))}")
    return UnknownTopicError(
        f"no log in {where} has partition {partition}" + (f" of topic {topic!r}" if topic is not None else "")
    )
