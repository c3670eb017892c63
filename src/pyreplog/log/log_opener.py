"""Open the logs of one root: those in the folders that a start finds, and unloaded ones at their first use."""

from __future__ import annotations

from typing import Final

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, CorruptError, PyreplogError, StorageError
from pyreplog.log.epochs import EpochCache, write_epochs
from pyreplog.log.identity import id_for_name
from pyreplog.log.layout import PARTITION_METADATA_NAME, join
from pyreplog.log.log import Log
from pyreplog.log.mark import find_mark
from pyreplog.log.partition_opening import Parts, open_parts
from pyreplog.log.recovery_listener import RecoveryOptions
from pyreplog.log.recovery_report import RecoveryContext
from pyreplog.log.settings import read_config
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.log.unloaded import UnloadedLog, epochs_of
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS, Clock, Disk
from pyreplog.values import TopicPartition

SHORTAGE_ERRNOS: Final = NO_SPACE_ERRNOS | RESOURCES_EXHAUSTED_ERRNOS


def is_shortage(error: PyreplogError) -> bool:
    """Return whether ``error`` is a lack of disk space, descriptors or memory, not a fault of the log."""
    return isinstance(error, StorageError) and error.errno in SHORTAGE_ERRNOS


class LogOpener:
    """Opens logs as objects of ``log_class``. A loaded log trusts the clock as ``trusted_clock`` does."""

    def __init__(self, disk: Disk, clock: Clock, log_class: type[Log], trusted_clock: TrustedClock) -> None:
        self._disk = disk
        self._clock = clock
        self._log_class = log_class
        self._trusted_clock = trusted_clock

    def open(self, directory: str, key: TopicPartition, origin: RecoveryContext, recovery: RecoveryOptions) -> Log:
        """Open the log of the partition ``key``, and recover it if the last writer did not stop cleanly.

        Errors as those of :meth:`Log.open`.
        """
        disk = self._disk
        topic_id = config = None
        if disk.stat(join(directory, PARTITION_METADATA_NAME)) is None and not (
            origin.trust_mark and find_mark(disk, directory)
        ):
            topic_id = id_for_name(key.topic)  # the log is from before Kafka 2.8, where topics had no ids
        if key in recovery.durability and read_config(disk, directory) is None and find_mark(disk, directory) is None:
            config = LogConfig(durability=recovery.durability[key])
        return self._log_class.open(disk, directory, key, config, self._clock, topic_id, origin, recovery.listener)

    def load(self, directory: str, unloaded: UnloadedLog) -> Log:
        """Open a log in ``directory`` that is unloaded since a clean stop.

        Raise :class:`CorruptError` if its files are not as the stop left them, and
        :class:`StorageError`.
        """
        left = unloaded.mark_state
        origin = RecoveryContext(
            clean=True,
            same_boot=True,
            recovery_point=left.synced_end,
            log_start_offset=left.start_offset,
            high_watermark=left.high_watermark,
            left=left,
        )
        key, disk = unloaded.topic_partition, self._disk
        try:
            parts = open_parts(disk, directory, key, None, self._clock, None, origin)
        except ConfigError as error:
            raise CorruptError(str(error), file=directory) from error
        try:
            _check_unchanged(directory, unloaded, parts)
            # An open log needs more descriptors. If there are none, the log must stay unloaded.
            parts.segments.last.limit_entries(parts.config.segment_index_bytes)
            self._write_epoch(directory, unloaded, parts)
            log = self._log_class(disk, directory, key, parts, self._clock)
        except (CorruptError, StorageError):
            parts.segments.close()
            parts.mark.close()
            raise
        log.trust_clock(self._trusted_clock.copy())  # it knows the clock's jumps since the root was opened
        return log

    def _write_epoch(self, directory: str, unloaded: UnloadedLog, parts: Parts) -> None:
        """Write down the leader epoch that began while the log was unloaded.

        If the disk refuses it for another reason than a shortage, the open log tries again.
        """
        latest = unloaded.epochs.latest
        if latest <= parts.epochs.latest:
            return
        epochs = EpochCache(parts.epochs.entries)
        epochs.assign(latest, unloaded.end_offset)
        try:
            write_epochs(self._disk, directory, epochs)
            parts.mark.write_state(parts.mark.state._replace(epochs_crc=epochs.checksum()))
            parts.epochs.assign(latest, unloaded.end_offset)
        except StorageError as error:
            if error.errno in RESOURCES_EXHAUSTED_ERRNOS:
                raise


def _check_unchanged(directory: str, unloaded: UnloadedLog, parts: Parts) -> None:
    known, state = unloaded.summary, parts.mark.state
    end = parts.segments.last.next_offset
    found = (parts.topic_id, state.incomplete, state.reported, state.start_offset, end, state.high_watermark)
    left = (
        known.topic_id,
        known.incomplete,
        known.reported,
        known.start_offset,
        known.end_offset,
        known.high_watermark,
    )
    if found != left or parts.epochs != epochs_of(known):
        raise CorruptError(
            f"{unloaded.topic_partition} is not as its clean stop left it: {found} instead of {left}", file=directory
        )
