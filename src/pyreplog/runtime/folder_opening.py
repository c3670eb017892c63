"""Open a folder as one log: find the partition that the caller means, and open it for reading, or open or make it for
writing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from pyreplog.config import (
    LogConfig,
    Permissions,
    check_callable,
    check_methods,
    check_permissions,
    small_retention,
    suggestion,
    whole,
)
from pyreplog.errors import (
    ConfigError,
    CorruptError,
    InvalidTopicError,
    StorageError,
    StoragePermissionError,
    UnknownTopicError,
    Wording,
    excerpt,
    worded,
)
from pyreplog.log import (
    METADATA_TOPIC,
    Finder,
    Log,
    LogReader,
    LogRoot,
    RecoveryContext,
    RecoveryOptions,
    check_topic,
    cluster_of,
    deeper_logs,
    directory_name,
    find_roots,
    has_root_file,
    hidden_roots,
    is_internal,
    is_partition,
    list_topics,
    random_uuid,
    root_above,
    topic_id_of,
    unsafe_permissions,
)
from pyreplog.ports import Clock, Disk
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.open_options import WriterOptions
from pyreplog.runtime.recovery import Recovery, tell_torn
from pyreplog.system import SystemChance, SystemDisk
from pyreplog.values import RecoveryProgress, TopicPartition

__all__ = [
    "check_alone",
    "check_clock",
    "check_disk",
    "check_name",
    "check_progress",
    "check_together",
    "disk_of",
    "folder_of",
    "open_all_for_reading",
    "open_for_reading",
    "open_for_writing",
]

_NO_FOLDER: Final = "a log is a folder, and this is a file"

NUMBERS_NAMED_MAX: Final = 10
"""The most partitions that an error lists."""


def folder_of(path: str | os.PathLike[str]) -> str:
    """Return ``path`` as text without slashes at its end. Raises :class:`ConfigError` or TypeError if it names no
    folder."""
    text = os.fspath(path) if hasattr(path, "__fspath__") else path
    if not isinstance(text, str):
        raise TypeError(f"path must be text or a pathlib.Path, not {type(path).__name__}")
    if not text:
        raise ConfigError("path is empty; it must name a folder")
    if "\0" in text:
        raise ConfigError("path holds a null character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"path holds {excerpt(text[error.start])} at {error.start}, which no file's name can"
        ) from None
    return text.rstrip("/") or "/"


def check_name(topic: object) -> None:
    """Raise TypeError unless ``topic`` is text."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be text, not {type(topic).__name__}")


def check_progress(progress: object) -> None:
    """Raise :class:`ConfigError` unless ``progress`` can be called or is None."""
    check_callable("progress", progress, "a function that takes a RecoveryProgress")


def check_clock(clock: object) -> None:
    """Raise :class:`ConfigError` unless ``clock`` is a clock or None."""
    check_methods(
        "clock", clock, ("wall_ms", "monotonic_ns"), "a Clock (see pyreplog.ports), or None for the machine's own"
    )


def check_disk(disk: object) -> None:
    """Raise :class:`ConfigError` unless ``disk`` is a disk or None."""
    check_methods(
        "disk", disk, ("stat", "open", "lock", "hold"), "a Disk (see pyreplog.ports), or None for the machine's own"
    )


def disk_of(permissions: Permissions, disk: Disk | None) -> Disk:
    """Return ``disk``, or the machine's own disk with ``permissions``. Raises :class:`ConfigError` for unknown
    ``permissions``, and if both are given."""
    check_together(permissions, disk)
    return SystemDisk(permissions=permissions) if disk is None else disk


def check_together(permissions: Permissions, disk: object) -> None:
    """Raise :class:`ConfigError` for unknown ``permissions``, and for any but the default beside a given ``disk``,
    because such a disk has permissions of its own."""
    if check_permissions(permissions) != "owner" and disk is not None:
        raise ConfigError(
            f"permissions={permissions!r} is for the machine's own disk: leave disk out, or make that disk with it"
        )


def open_for_reading(disk: Disk, folder: str, topic: str | None, partition: int | None) -> LogReader:
    """Return a reader of the one partition that the caller means. No other partition is opened, and nothing is locked
    or written."""
    partition = None if partition is None else whole("partition", partition)
    finder, found = _find(disk, folder, topic)
    return _opened(disk, finder, _choose(disk, found, folder, topic or _bare_topic(finder), partition))


def open_all_for_reading(disk: Disk, folder: str, topic: str | None, partition: int | None) -> list[LogReader]:
    """Return the readers of all partitions of the topic that the caller means, in order, or of ``partition`` alone.
    Nothing is locked or written."""
    if partition is not None:
        return [open_for_reading(disk, folder, topic, partition)]
    finder, found = _find(disk, folder, topic)
    name = _choose_topic(disk, found, folder, topic or _bare_topic(finder))
    return [_opened(disk, finder, key) for key in found if key.topic == name]


def _find(disk: Disk, folder: str, topic: str | None) -> tuple[Finder, list[TopicPartition]]:
    """Return the finder of ``folder``, and the partitions of ``topic`` (None: of all topics) that it found there."""
    if topic is not None:
        check_name(topic)
    stat = disk.stat(folder)
    if stat is None:
        raise worded(lambda say: StorageError(errno.ENOENT, f"no log is there; {_makes_one(say)}", folder))
    if not stat.is_directory:
        raise StorageError(errno.ENOTDIR, _NO_FOLDER, folder)
    finder = Finder(disk, folder)
    found = list(finder.folders(topic))
    if not found and topic is not None:
        others = tuple(
            name for name in sorted(list_topics(disk, folder)) if not is_internal(name) or is_internal(topic)
        )
        raise UnknownTopicError(
            f"{folder} has no topic {topic!r}{suggestion(topic, others) if others else ': it holds none'}"
        )
    # The metadata log of a cluster's node is no topic that its user made.
    has_topic = _bare_topic(finder) is not None or (topic or any(not is_internal(key.topic) for key in found))
    cluster = None if found and has_topic else _cluster_of(disk, folder)
    if cluster is not None:
        raise StorageError(
            errno.ENOENT, f"the cluster has no topic yet; Cluster({cluster!r}).admin.create_topic makes one", folder
        )
    return finder, found


def _bare_topic(finder: Finder) -> str | None:
    """Return the topic of the partition whose folder the caller named; None for another folder."""
    log = finder.log
    return None if log is None or log.bare is None else log.bare.topic


def _opened(disk: Disk, finder: Finder, key: TopicPartition) -> LogReader:
    reader = finder.open(key)
    assert reader is not None, "it was found just now"
    if refusal := unsafe_permissions(disk, [reader]):
        LOGGER.warning("%s; it is read all the same", refusal)
    _warn_of_rest(reader)
    return reader


def _warn_of_rest(reader: LogReader) -> None:
    """Warn of bytes behind the last whole batch of a folder without a mark: they may be a torn record."""
    try:
        said = reader.describe_unreadable()
    except (CorruptError, StorageError):
        return  # a read up to that offset raises it
    if said:
        LOGGER.warning("%s; `replog verify` says more", said)


def _choose_topic(disk: Disk, found: Iterable[TopicPartition], folder: str, topic: str | None) -> str:
    topics = sorted({key.topic for key in found})
    if not topics:
        deeper = deeper_logs(disk, folder)
        raise worded(
            lambda say: StorageError(errno.ENOENT, f"the folder holds no log{deeper or f'; {_makes_one(say)}'}", folder)
        )
    return _meant(folder, topics) if topic is None else topic


def _meant(folder: str, topics: Collection[str]) -> str:
    """Return the topic of ``folder``, which has ``topics``, for a caller that named none: the one with the folder's
    name, or else the only one. The folder's name if it has no topic.

    An internal topic is meant only if it has the folder's name. Raises :class:`ConfigError` if several topics may be
    meant, or if all are internal.
    """
    name = _folder_name(folder)
    public = [topic for topic in topics if not is_internal(topic)]
    if name in topics or not topics:
        return name
    if len(public) == 1:
        return public[0]
    raise _several_topics(folder, sorted(public) or sorted(topics), are_internal=not public)


def _choose(
    disk: Disk, found: Iterable[TopicPartition], folder: str, topic: str | None, partition: int | None
) -> TopicPartition:
    topic = _choose_topic(disk, found, folder, topic)
    numbers = sorted(key.partition for key in found if key.topic == topic)
    if partition is None:
        if len(numbers) > 1:
            raise _several(folder, topic, numbers)
        return TopicPartition(topic, numbers[0])
    if partition not in numbers:
        raise UnknownTopicError(
            f"{topic!r} in {folder} has no partition {partition}; it has {', '.join(map(str, numbers))}"
        )
    return TopicPartition(topic, partition)


def _choose_to_write(folder: str, options: WriterOptions, topics: Mapping[str, Sequence[int]]) -> TopicPartition:
    """Return the partition to write in ``folder``, which has these partitions of ``topics``. Raises
    :class:`ConfigError` if several could be meant."""
    topic = _meant(folder, topics) if options.topic is None else options.topic
    if options.partition is not None:
        return TopicPartition(topic, options.partition)
    numbers = topics.get(topic, ())
    if len(numbers) > 1:
        raise _several(folder, topic, numbers)
    return TopicPartition(topic, numbers[0] if numbers else 0)


def _several(folder: str, topic: str, numbers: Sequence[int]) -> ConfigError:
    """Return the error for a caller that named no partition of a ``topic`` with several: any one would be only a part
    of the topic."""
    named = ", ".join(map(str, numbers[:NUMBERS_NAMED_MAX])) + (", ..." if len(numbers) > NUMBERS_NAMED_MAX else "")
    whole_topic = (
        f", or read the whole topic with pyreplog.Cluster({folder!r}, mode='r'), which has scan({topic!r}) and"
        f" consumer({topic!r})"
    )
    return worded(
        lambda say: ConfigError(
            f"{topic!r} in {folder} has {len(numbers)} partitions ({named}), and a log is one of them: name it with"
            f" {say(f'partition=N{whole_topic}', '--partition N')}"
        )
    )


def _several_topics(folder: str, topics: Iterable[str], *, are_internal: bool) -> ConfigError:
    """Return the error for a caller that named none of several topics, or of topics that all are internal."""
    names = ", ".join(topics)
    held = "internal topics only" if are_internal else "several topics"
    return worded(lambda say: ConfigError(f"{folder} holds {held}; name one with {say('topic=', '--topic')}: {names}"))


def _read(say: Wording) -> str:
    return say("read it with mode='r'", "read it with `replog cat`")


def _makes_one(say: Wording) -> str:
    return say("mode='a' makes one", "`replog append` makes one")


def _folder_name(folder: str) -> str:
    return os.path.basename(os.path.abspath(folder))


_SIZES: Final = frozenset(("retention.bytes", "segment.bytes"))
"""The settings that together bound a log's size. The call that gives one of them warns if they do not fit; later calls
do not warn."""


def open_for_writing(
    disk: Disk,
    clock: Clock,
    folder: str,
    options: WriterOptions,
    name: str,
    progress: Callable[[RecoveryProgress], None] | None,
    made: list[LogWriter],
) -> LogWriter:
    """Take the folder's lock, find or make the partition, and lead it.

    ``name``: the log's name in errors. ``progress`` gets the progress of a recovery. The writer is also added to
    ``made``, so that the caller can close it even if a signal handler interrupts the return.
    """
    if not options.create:
        _check_exists(disk, folder, options)
    durability = options.durability(_choose_to_write(folder, options, _check_place(disk, folder, options.topic)))
    root: LogRoot | None = None
    try:
        with Recovery(name, clock, progress) as recovery:
            recovering = RecoveryOptions(recovery, durability)
            root = LogRoot.open(disk, folder, clock=clock, random=SystemChance(), lazy=True, recovery=recovering)
        key = _choose_to_write(folder, options, _by_topic((*root.logs, *root.damaged)))
        if key in root.damaged:
            raise root.damaged[key]
        topic_id = _topic_id(disk, folder, key.topic, (*root.logs, *root.damaged))
        log = root.logs.get(key)
        if log is None:
            log = root.create_log(
                key.topic,
                key.partition,
                topic_id or random_uuid(SystemChance()),
                LogConfig.from_mapping(options.settings),
            )
        else:
            _take_over(log, options.settings, folder, name)
        tell_torn(root, name, log)
        if not _SIZES.isdisjoint(options.settings) and (advice := small_retention(log.config)):
            LOGGER.warning("%s: %s", name, advice)
        made.append(
            LogWriter(root, log, clock, partial(_reopen, root, key), name, options.buffer_memory, options.max_block_ms)
        )
        return made[0]
    except ConfigError:
        # An argument was wrong and the root is unchanged, so its next opening must not count as
        # one after a crash.
        if root is not None and not made:
            root.close(clean=True)
        raise
    except BaseException as error:
        if root is not None and not made:
            # A folder in the way of a new partition is found before anything is made, so the root
            # is unchanged then, too.
            root.close(clean=isinstance(error, StorageError) and error.errno == errno.EEXIST)
        raise


def _check_exists(disk: Disk, folder: str, options: WriterOptions) -> None:
    """Raise StorageError (ENOENT) or UnknownTopicError if ``folder`` does not hold the log that the options name."""
    topics = {} if disk.stat(folder) is None else list_topics(disk, folder)
    if not topics:
        raise StorageError(errno.ENOENT, "no log is there, and create=False makes none", folder)
    key = _choose_to_write(folder, options, topics)
    if key.topic not in topics:
        raise UnknownTopicError(f"{folder} has no topic {key.topic!r}{suggestion(key.topic, tuple(sorted(topics)))}")
    if key.partition not in topics[key.topic]:
        raise UnknownTopicError(
            f"{key.topic!r} in {folder} has no partition {key.partition}; it has"
            f" {', '.join(map(str, topics[key.topic]))}"
        )


def _topic_id(disk: Disk, folder: str, topic: str, partitions: Iterable[TopicPartition]) -> str:
    """Return the id of ``topic`` in the root ``folder``; "" if no folder holds one. Raises :class:`ConfigError` if two
    folders hold different ids."""
    known: dict[str, str] = {}
    for key in sorted(partitions):
        place = f"{folder}/{directory_name(*key)}"
        if key.topic == topic and (topic_id := topic_id_of(disk, place)):
            known.setdefault(topic_id, place)
    if len(known) > 1:
        raise ConfigError(
            f"{' and '.join(known.values())} are of different topics called {topic}, with the ids"
            f" {' and '.join(known)}: move one of them away"
        )
    return next(iter(known), "")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the sorted partition numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _check_place(disk: Disk, folder: str, topic: str | None) -> dict[str, list[int]]:
    """Return the partitions in ``folder``, by topic. Raise ConfigError or StorageError if no log can be in it; nothing
    is made before."""
    stat = disk.stat(folder)
    if stat is not None and not stat.is_directory:
        raise StorageError(errno.ENOTDIR, _NO_FOLDER, folder)
    cluster = _cluster_of(disk, folder)  # before _check_names: a cluster's folder may have any name
    if cluster is not None:
        raise worded(
            lambda say: ConfigError(
                f"{folder} belongs to a cluster: write to it with"
                f" {say(f'Cluster({cluster!r})', f'`replog append {cluster}`')}, or {_read(say)}"
            )
        )
    topics = {} if stat is None else list_topics(disk, folder)
    _check_names(folder, topic, topics)
    if is_partition(disk, folder):
        raise worded(
            lambda say: ConfigError(
                f"{folder} is a partition's folder: write to the folder it lies in, or {_read(say)}"
            )
        )
    check_alone(disk, folder)
    return topics


def _cluster_of(disk: Disk, folder: str) -> str | None:
    """Return the folder of the cluster that ``folder`` is, lies in, or names as its own; None if it belongs to no
    cluster."""
    found = cluster_of(disk, os.path.abspath(folder))
    return folder if found == os.path.abspath(folder) else found


def check_alone(disk: Disk, folder: str, what: str = "log") -> None:
    """Raise ConfigError if a new log (or ``what``) in ``folder`` would hide another log from its readers, or be hidden
    itself.

    A log that exists already is accepted anywhere.
    """
    try:
        if has_root_file(disk, folder):
            return
        above = root_above(disk, os.path.abspath(folder))
        roots = [] if disk.stat(folder) is None else find_roots(disk, folder)
        roots += [] if roots or disk.stat(folder) is None else hidden_roots(disk, folder, [])
    except StoragePermissionError:  # a folder that this process may not list holds no log of ours
        return
    if above is not None:
        raise ConfigError(
            f"{folder} lies in the folder of another log, {above}, whose readers would pass over a {what} in it: "
            f"name a folder beside {above}. If {above} holds no log, move its meta.properties, replog.incarnation and "
            "recovery-point-offset-checkpoint away"
        )
    if roots and roots != [folder]:
        named = ", ".join(os.path.relpath(root, folder) for root in roots[:3]) + (", ..." if len(roots) > 3 else "")
        raise ConfigError(
            f"{folder} holds the folders of other logs, or of nodes ({named}), and a {what} made in it would hide them"
            f" from its readers: name one {what}'s own folder, or a new one"
        )


def _check_names(folder: str, topic: str | None, topics: Collection[str]) -> None:
    """Raise InvalidTopicError if ``topic``, or else the folder's name, cannot be a topic's name. It is called before
    anything is made."""
    if topic is not None:
        check_name(topic)
        check_topic(topic)
        if topic == METADATA_TOPIC:
            raise InvalidTopicError(f"{topic!r} is the log of a cluster's metadata: only the cluster writes it")
    elif not topics:
        name = _folder_name(folder)
        try:
            check_topic(name)
        except InvalidTopicError:
            raise worded(
                lambda say: InvalidTopicError(
                    f"{excerpt(name)} is the folder's, and cannot be a topic's: name one with"
                    f" {say('topic=', '--topic')}"
                )
            ) from None


def _take_over(log: Log, asked: Mapping[str, object], folder: str, name: str) -> None:
    """Change the given settings of an existing log. It keeps all others, and its durability never changes."""
    durability = asked.get("durability", log.durability)
    if durability != log.durability:
        raise worded(
            lambda say: ConfigError(
                f"{folder} was made with {say('durability=', '--durability ')}{log.durability!r} and cannot be opened"
                f" with {durability!r}: leave {say('it', '--durability')} out to keep {log.durability!r}"
            )
        )
    config = LogConfig.from_mapping({**log.config.to_mapping(), **asked, "durability": log.durability})
    if config.compacts and not log.config.compacts and config.compact_unkeyed != "drop":
        at = log.first_unkeyed()
        if at >= 0:
            raise ConfigError(
                f"{name} holds a record without a key at offset {at}, so it cannot become compacted: give also"
                " 'compact.unkeyed': 'drop' to have compaction drop such records"
            )
    if config != log.config:
        log.update_config(config)
    report = log.recovery
    if not report.clean:
        LOGGER.warning(
            "%s (%s) was not closed cleanly: recovered up to offset %d: %s",
            name,
            log.topic_partition,
            log.end_offset,
            report.in_words(),
        )
    if log.incomplete:
        # There is no other copy to wait for.
        log.set_incomplete(False)


def _reopen(root: LogRoot, key: TopicPartition) -> Log:
    """Open the partition again and return its log. The written bytes are in the page cache, as after a kill of the
    process."""
    old = root.logs[key]
    old.close(clean=False)
    origin = RecoveryContext(clean=False, same_boot=True, log_start_offset=old.start_offset)
    log = Log.open(old.disk, old.directory, key, None, old.clock, None, origin)
    log.set_tail_cache_size(0)
    root.logs[key] = log
    return log
