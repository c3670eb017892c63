"""Creating and opening a partition folder: the parts of a :class:`Log` are made of its identity, settings, mark,
epochs and segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, CorruptError, CorruptLogError, Wording, for_python, worded
from pyreplog.log.epochs import EpochCache, write_epochs
from pyreplog.log.identity import format_topic_id, id_for_name, read_topic_id, write_topic_id
from pyreplog.log.layout import (
    CONFIG_NAME,
    MARK_NAME,
    PARTITION_METADATA_NAME,
    is_log_file,
    join,
    name_of,
    parse_directory_name,
)
from pyreplog.log.loader import Loaded, Loader
from pyreplog.log.log_segments import LogSegments
from pyreplog.log.mark import MarkFile, MarkState, find_mark, sync_found_mark
from pyreplog.log.producer_state import ProducerState
from pyreplog.log.producers import ProducerTable
from pyreplog.log.recovery_listener import RecoveryListener
from pyreplog.log.recovery_report import RecoveryContext, RecoveryReport
from pyreplog.log.scan import scan_segment
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.log.settings import format_config, read_config, write_config
from pyreplog.log.snapshot import put_files
from pyreplog.ports import Clock, Disk
from pyreplog.values import TopicPartition

REWRITE_SIZE: Final = 1 << 20


class Parts(NamedTuple):
    """The parts of a new or opened log."""

    topic_id: str
    config: LogConfig
    segments: LogSegments
    epochs: EpochCache
    mark: MarkFile
    producers: ProducerState
    recovery: RecoveryReport


class NewLog(NamedTuple):
    """The settings of a log to be created in a folder of its own."""

    directory: str
    topic_partition: TopicPartition
    topic_id: str
    config: LogConfig
    incomplete: bool = False
    """This replica is known to miss records: it replaces a lost replica, or begins above the start of the others."""
    start_offset: int = 0


def create_parts(disk: Disk, wanted: Sequence[NewLog], clock: Clock) -> list[Parts]:
    """Create empty partition folders, whose syncs begin together. The mark is written last and synced with the
    folder: see :meth:`Log.create`."""
    directories = [new.directory for new in wanted]
    contents: list[tuple[str, bytes]] = []
    for new in wanted:
        disk.make_directory(new.directory)
        disk.check_directory(new.directory)
        contents.append((join(new.directory, PARTITION_METADATA_NAME), format_topic_id(new.topic_id)))
        contents.append((join(new.directory, CONFIG_NAME), format_config(new.config)))
    put_files(disk, contents)
    # Each folder is synced before its mark is created, so a folder with a mark has both files.
    disk.map(disk.sync_directory, directories, waits=True)
    made = [_create_unsynced(disk, new, clock) for new in wanted]
    disk.map(MarkFile.sync, [parts.mark for parts in made], waits=True)
    disk.map(disk.sync_directory, directories, waits=True)
    for new, parts in zip(wanted, made, strict=True):
        write_epochs(disk, new.directory, parts.epochs)
    return made


def _create_unsynced(disk: Disk, new: NewLog, clock: Clock) -> Parts:
    directory, config, start_offset = new.directory, new.config, new.start_offset
    segment = SegmentWriter.create(
        disk,
        directory,
        start_offset,
        index_interval=config.index_interval_bytes,
        wall_ms=clock.wall_ms(),
        room=config.segment_bytes if config.preallocate else 0,
    )
    epochs = EpochCache()
    mark = MarkFile.begin(
        disk,
        directory,
        MarkState(
            synced_end=start_offset,
            high_watermark=start_offset,
            start_offset=start_offset,
            durability=config.durability,
            incomplete=new.incomplete,
            may_have_gaps=False,
            poisoned=False,
            epochs_crc=epochs.checksum(),
            topic_id=new.topic_id,
            partition=new.topic_partition.partition,
        ),
    )
    recovery = RecoveryReport(clean=True, mark_found=True, durable_end=start_offset)
    producers = ProducerState(disk, directory, ProducerTable(start_offset))
    return Parts(new.topic_id, config, LogSegments([segment]), epochs, mark, producers, recovery)


def open_parts(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig | None,
    clock: Clock,
    topic_id: str | None,
    origin: RecoveryContext,
    listener: RecoveryListener | None = None,
) -> Parts:
    """Open an existing folder and return its parts, recovered if it was not stopped cleanly: see :meth:`Log.open`."""
    partition = topic_partition.partition
    disk.check_directory(directory)
    topic_id, found = _identify(disk, directory, partition, topic_id, origin)
    state = None if found is None else found[0]
    kept = read_config(disk, directory)
    config = _settle_config(kept, config, state, directory)
    if config != kept:
        write_config(disk, directory, config)
    loaded = Loader(disk, directory, topic_partition, config, clock, state, origin, listener).load()
    if loaded.report.records_may_be_lost:
        found = find_mark(disk, directory)
        state = None if found is None else found[0]
    new_state = _state_after(loaded, state or origin.left, config, topic_id, partition, origin)
    mark = _settle_mark(disk, directory, found, new_state, loaded, config, origin)
    if loaded.changed:
        write_epochs(disk, directory, loaded.epochs)
    producers = ProducerState.load(
        disk,
        directory,
        loaded.segments,
        loaded.start_offset,
        _ordered_end(loaded, state, origin),
        lenient=new_state.may_have_gaps,
        now_ms=clock.monotonic_ns() // 1_000_000,
    )
    return Parts(topic_id, config, LogSegments(loaded.segments), loaded.epochs, mark, producers, loaded.report)


def _identify(
    disk: Disk, directory: str, partition: int, asked: str | None, origin: RecoveryContext
) -> tuple[str, tuple[MarkState, int] | None]:
    """Return the topic id and the mark of the partition (None if no mark counts). Writes ``partition.metadata`` if it
    is missing."""
    kept = _topic_id(disk, directory, partition, asked, origin)
    if asked is not None and kept is not None and asked != kept:
        raise ConfigError(f"{directory} holds topic id {kept}, not {asked}: it belongs to another topic of that name")
    found = find_mark(disk, directory, topic_id=kept, partition=partition) if origin.trust_mark else None
    if kept is None:
        # Without partition.metadata the id in the mark is the only one left.
        kept = asked or (found[0].topic_id if found is not None else _id_of_old(disk, directory))
        write_topic_id(disk, directory, kept)
    return kept, found


def _settle_mark(
    disk: Disk,
    directory: str,
    found: tuple[MarkState, int] | None,
    new_state: MarkState,
    loaded: Loaded,
    config: LogConfig,
    origin: RecoveryContext,
) -> MarkFile:
    """Make the loaded records durable as far as ``new_state`` requires, then write it to the mark, and return the
    mark."""
    state = None if found is None else found[0]
    if found is not None and not loaded.report.clean:
        # Sync the mark before any unsynced record is written again. Otherwise a power loss may
        # bring back a slot that promises more, and the half-written records would count as damage.
        sync_found_mark(disk, directory)
    if _make_durable(loaded, state, config, origin):
        new_state = new_state._replace(synced_end=loaded.end_offset)
    if found is None:
        mark = MarkFile.create(disk, directory, new_state)
        disk.sync_directory(directory)
        return mark
    mark = MarkFile.open(disk, directory, *found, synced=True)
    if new_state != state:
        mark.write_state(new_state)
        mark.sync()
    return mark


def _state_after(
    loaded: Loaded, state: MarkState | None, config: LogConfig, topic_id: str, partition: int, origin: RecoveryContext
) -> MarkState:
    """Return the mark's state for the ``loaded`` log. ``state`` is the mark's state before, or None if no mark
    counts."""
    end = loaded.end_offset
    crashed_cache = state is not None and (state.poisoned or not origin.same_boot)
    # Reliability rule 3: without a mark the missing records are unknown, and an `os` replica that
    # lost its page cache may miss records that it acknowledged.
    lost = state is None or (not loaded.report.clean and crashed_cache and state.durability == "os")
    if state is None:
        high_watermark = min(origin.high_watermark, end)
    elif lost:
        high_watermark = min(state.high_watermark, state.synced_end)
    else:
        high_watermark = state.high_watermark
    return MarkState(
        synced_end=loaded.synced_end,
        high_watermark=max(min(high_watermark, end), loaded.start_offset),
        start_offset=loaded.start_offset,
        durability=config.durability,
        incomplete=lost or (state is not None and state.incomplete),
        may_have_gaps=state.may_have_gaps if state is not None else end > loaded.start_offset,
        poisoned=False,
        epochs_crc=loaded.epochs.checksum(),
        topic_id=topic_id,
        partition=partition,
        sequence=state.sequence if state is not None else 0,
        reported=state is not None and not lost and state.reported,
        compacted=state is not None and state.compacted,
    )


def _make_durable(loaded: Loaded, state: MarkState | None, config: LogConfig, origin: RecoveryContext) -> bool:
    """Make durable the records that the page cache may show although they are not on the disk. Return whether the
    mark may call all of them synced."""
    unsure = not loaded.report.clean and config.durability == "sync"
    if state is not None and state.poisoned:
        written = _write_again(loaded.segments, loaded.synced_end)
        _sync_all(loaded.segments)
        _verify_on_disk(written)
    elif origin.same_boot is not False and unsure and loaded.end_offset > loaded.synced_end:
        # The process may have died after a failed sync and before it noted the failure. A sync
        # alone would then succeed although the records are lost, so write them again. In a `sync`
        # log none of them was acknowledged, and there are few. In a log without our mark only the
        # last segment is written again: `_write_again` makes a file one byte longer for a moment,
        # and after a crash the log would end behind such a segment.
        _write_again(loaded.segments[-1:] if state is None else loaded.segments, loaded.synced_end, tail_only=True)
    if state is None or unsure:
        # In a log without our mark, the next start would cut the records behind a gap as torn,
        # unless the new mark covers them.
        _sync_all(loaded.segments)
        return True
    return False


def _id_of_old(disk: Disk, directory: str) -> str:
    """Return an id for a partition from before topics had ids. Raises :class:`ConfigError` if the folder may be one
    whose creation never finished."""
    parsed = parse_directory_name(name_of(directory))
    logs = [name for name in disk.list(directory) if is_log_file(name)]
    if parsed is None or not any(
        (found := disk.stat(join(directory, name))) is not None and found.size for name in logs
    ):
        raise ConfigError(f"{directory} has no partition.metadata and no topic id was given")
    return id_for_name(parsed.topic_partition.topic)


def _ordered_end(loaded: Loaded, state: MarkState | None, origin: RecoveryContext) -> int:
    """Return the offset below which the files beside the segments (snapshots, transaction indexes) are known to be
    complete: the log's end after a clean stop, otherwise the base offset of a segment."""
    if loaded.report.clean:
        return loaded.end_offset
    if state is None:
        known = origin.recovery_point
    elif state.poisoned:
        known = 0
    else:  # these files are written before their records are committed, and survive a process crash
        known = max(state.synced_end, state.high_watermark) if origin.same_boot else state.synced_end
    return max((segment.base_offset for segment in loaded.segments if segment.base_offset <= known), default=0)


def _topic_id(disk: Disk, directory: str, partition: int, asked: str | None, origin: RecoveryContext) -> str | None:
    """Return the topic id in ``partition.metadata``. That file has no checksum: if it is damaged, the id in the mark,
    which has one, replaces it."""
    garbage: CorruptError | None = None
    try:
        kept = read_topic_id(disk, directory)
        if kept is None:
            return None
    except CorruptError as error:
        kept, garbage = None, error
    found = find_mark(disk, directory, partition=partition) if origin.trust_mark else None
    if found is None:
        if garbage is not None:
            raise garbage
        return kept
    marked = found[0].topic_id
    if kept is None or (
        kept != marked and kept != asked and sum(one != other for one, other in zip(kept, marked, strict=True)) == 1
    ):
        write_topic_id(disk, directory, marked)
        return marked
    # The two ids have nothing in common, so the mark belongs to another topic.
    return kept


def _write_again(
    segments: Sequence[SegmentWriter], synced_end: int, *, tail_only: bool = False
) -> Sequence[SegmentWriter]:
    """Write the segments that reach beyond ``synced_end`` again (``tail_only``: only their bytes behind it), and the
    length of the last segment. Return the segments that were written.

    After a failed sync the kernel shows these bytes as written, so a sync alone would succeed and make nothing
    durable.
    """
    written = [segment for segment in segments if segment.next_offset > synced_end or segment is segments[-1]]
    for segment in written:
        file = segment.file
        # The kernel writes a file's length only if it changes, also after a truncation.
        file.truncate(segment.size + 1)
        file.truncate(segment.size)
        first = segment.position_of(synced_end) if tail_only else 0
        for position in range(segment.size if first is None else first, segment.size, REWRITE_SIZE):
            file.write_at(position, [file.read_at(position, min(REWRITE_SIZE, segment.size - position))])
    return written


def _verify_on_disk(segments: Sequence[SegmentWriter]) -> None:
    """Read the rewritten segments from the disk itself, as far as the system allows it, because the page cache has
    lied before."""
    for segment in segments:
        segment.file.drop_cached()
        scan = scan_segment(segment.file, segment.size, segment.base_offset)
        if scan.position != segment.size or segment.file.size() != segment.size:
            raise CorruptLogError(
                "the records that were written again after a failed sync are not on the disk",
                start=scan.next_offset,
                end=max(segment.next_offset, scan.next_offset + 1),
                file=segment.path,
                position=scan.position,
            )


def _sync_all(segments: Sequence[SegmentWriter]) -> None:
    """Sync the recovered segments that are not known to be durable."""
    for segment in segments:
        if not segment.synced:
            segment.file.sync()


def _settle_config(
    kept: LogConfig | None, config: LogConfig | None, state: MarkState | None, directory: str
) -> LogConfig:
    """Return the settings to open with. The durability in the mark is binding."""
    durability = state.durability if state is not None else (kept.durability if kept is not None else None)
    chosen = config or kept or LogConfig(durability=durability or "sync")
    if durability is not None and chosen.durability != durability:
        if config is not None:
            there, asked = durability, config.durability
            raise worded(lambda say: ConfigError(durability_text(directory, there, asked, say)))
        # Both files are intact, so one of them belongs to another log.
        raise ConfigError(
            f"{directory}: {CONFIG_NAME} says durability={chosen.durability!r}, and {MARK_NAME} {durability!r}: put the"
            " former back from a copy, or remove it (the log then has the default settings)"
        )
    return chosen


def durability_text(directory: str, kept: str, asked: str, say: Wording = for_python) -> str:
    """Return the error text for opening a log with another durability, or changing it."""
    return (
        f"{directory} was made with {say('durability=', '--durability ')}{kept!r} and cannot be opened or changed to"
        f" {asked!r}: leave {say('it', '--durability')} out to keep {kept!r}"
    )
