"""Open the named readers of a log and of a cluster."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import ConfigError
from pyreplog.log import LogReader
from pyreplog.ports import Clock, Disk
from pyreplog.readers import OffsetsFile
from pyreplog.runtime.catalog import Catalog
from pyreplog.runtime.cluster_dead_letters import NoDeadLetters
from pyreplog.runtime.consumer_settings import Folder, NamedReaderSettings
from pyreplog.runtime.dead_letter_log import DeadLetterLog, DeadLetterWriter
from pyreplog.runtime.deserializers import Deserializers
from pyreplog.runtime.folder_opening import folder_of, open_for_reading
from pyreplog.runtime.locking import reader_wait
from pyreplog.runtime.log_place import LogPlace, close_parts
from pyreplog.runtime.named_consumer import NamedConsumer
from pyreplog.runtime.named_position import ReaderOptions
from pyreplog.runtime.open_options import ViewOptions
from pyreplog.runtime.reader_consumer import ReaderConsumer
from pyreplog.runtime.subscription import Subject
from pyreplog.runtime.views import ReaderView
from pyreplog.system import SystemDisk, anchored
from pyreplog.values import TopicPartition

__all__ = [
    "ReaderOptions",
    "ReaderPlace",
    "TopicReaders",
    "check_reader_settings",
    "open_log_reader",
]

_READING: Final = ViewOptions("read_uncommitted", above_high_watermark=False, max_batch_bytes=MAX_BATCH_BYTES)


class LogTopic:
    """The one partition of an open log, for a consumer."""

    def __init__(self, place: LogPlace, key: TopicPartition) -> None:
        self._place = place
        self._key = key

    def numbers(self, topic: str) -> list[int]:
        """Return the partition's number."""
        return [self._key.partition]

    def open(self, partitions: Sequence[TopicPartition]) -> list[LogReader]:
        """Return a reader of the partition."""
        return [open_for_reading(self._place.disk, self._place.folder, *key) for key in partitions]


class ReaderPlace:
    """Where a named reader keeps its offsets."""

    def __init__(
        self, disk: Disk, name: str, lock_timeout: object, offsets: Folder | None, home: Callable[[str], str]
    ) -> None:
        """``offsets``: the caller's folder; None: ``home``, which gets a partition's folder. Raises
        :class:`ConfigError`."""
        self._disk = disk
        self._name = name
        self._wait = reader_wait(name, lock_timeout)
        self.folder = chosen_folder(disk, offsets)
        self._home = home

    def open(self, readers: list[LogReader]) -> OffsetsFile:
        """Take the lock of the name. Raises :class:`ConfigError` for a broker's folder, :class:`LockedError`."""
        folder = self.folder
        if folder is not None:
            self._disk.make_directory(folder)
        else:
            for reader in readers:
                if reader.durability is None:
                    raise ConfigError(
                        f"{reader.directory} has no mark of pyreplog, so a Kafka broker may write it, and the offsets"
                        " of a reader cannot be kept beside it: give offsets=FOLDER"
                    )
            folder = self._home(readers[0].directory if readers else "")
        return self._wait.call(partial(OffsetsFile.open, self._disk, folder, self._name))


class LogLetters:
    """The writers of one reader's dead letters into logs, one for each of its partitions."""

    def __init__(self, place: LogPlace, folder: str | None) -> None:
        """``folder``: the caller's; None: beside the log."""
        self._place = place
        self._folder = folder
        self._made: dict[TopicPartition, tuple[ReaderView, DeadLetterLog]] = {}

    def __call__(self, files: ReaderView) -> DeadLetterLog:
        """Return the writer for the partition that ``files`` reads. A new view of it is of another topic."""
        key = TopicPartition(files.topic, files.partition)
        made = self._made.get(key)
        if made is None or made[0] is not files:
            made = self._made[key] = files, DeadLetterLog(self._place, files, self._folder)
        return made[1]


def open_log_reader(
    place: LogPlace,
    key: TopicPartition,
    options: ReaderOptions,
    folders: tuple[Folder | None, Folder | None],
    lock_timeout: object,
    on_close: Callable[[ReaderConsumer], object],
) -> NamedConsumer:
    """Open a named reader of an open log. ``folders``: the caller's for the offsets and for the dead letters."""
    offsets, dead_letters = folders
    folder = chosen_folder(place.disk, dead_letters)
    options = options._replace(letters=LogLetters(place, folder))
    where = ReaderPlace(place.disk, options.name, lock_timeout, offsets, place.home)
    return NamedConsumer(
        place.disk, place.clock, LogTopic(place, key), key, options, place.reading, where.open, on_close
    )


class TopicReaders:
    """The named readers of one open cluster, which close with it."""

    def __init__(self, disk: Disk, clock: Clock, path: str, letters: DeadLetterWriter | None = None) -> None:
        """``path``: the cluster's folder, or another folder that holds logs. ``letters``: writes the dead letters of
        readers that name no folder; None: they have no place."""
        self._letters = letters or NoDeadLetters(
            "the folder is only read, so it takes no records: open the reader with dead_letters=FOLDER"
        )
        self._disk = disk
        self._clock = clock
        self._path = path
        self._open: weakref.WeakSet[ReaderConsumer] = weakref.WeakSet()

    def open(
        self,
        subject: Subject,
        name: str,
        settings: NamedReaderSettings,
        max_poll_records: int,
        deserializers: Deserializers,
    ) -> NamedConsumer:
        """Open a named reader of topics. It reads the folders, in whatever process."""
        options = ReaderOptions.checked(
            name,
            settings.get("auto_commit", False),
            settings.get("start", "earliest"),
            settings.get("on_data_loss", "raise"),
        )
        folder = chosen_folder(self._disk, settings.get("dead_letters"))
        place = LogPlace(self._disk, self._path, self._clock, _READING)
        options = options._replace(
            max_poll_records=max_poll_records,
            deserializers=deserializers,
            letters=(lambda _: self._letters) if folder is None else LogLetters(place, folder),
        )
        where = ReaderPlace(
            self._disk, options.name, settings.get("lock_timeout", 0), settings.get("offsets"), lambda _: self._path
        )
        catalog = Catalog(self._disk, self._path)
        consumer = NamedConsumer(
            self._disk, self._clock, catalog, subject, options, _READING, where.open, self._open.discard
        )
        self._open.add(consumer)
        return consumer

    def close(self) -> None:
        """Close the readers that are open."""
        close_parts(self._open)


def chosen_folder(disk: Disk, folder: Folder | None) -> str | None:
    """Return the folder that the caller named, absolute on the machine's own disk."""
    found = None if folder is None else folder_of(folder)
    return anchored(found) if found is not None and isinstance(disk, SystemDisk) else found


def check_reader_settings(
    name: str | None, settings: Mapping[str, object], others: Mapping[str, tuple[object, object]]
) -> None:
    """Raise TypeError for a setting that no consumer has, and :class:`ConfigError` for one of ``settings`` without a
    ``name``, or for one of ``others`` (given, default) with one: a named reader asks no node."""
    for setting in settings:
        if setting not in NamedReaderSettings.__annotations__:
            raise TypeError(f"consumer() got an unexpected keyword argument {setting!r}")
        if name is None:
            raise ConfigError(f"{setting} belongs to a named reader: give name= too")
    for setting, (given, default) in others.items():
        if name is not None and given != default:
            advice = "give start= or on_data_loss=" if setting == "auto_offset_reset" else "leave it out"
            raise ConfigError(f"{setting} is not for a named reader, which reads the files: {advice}")
