"""The handle of a log that is not open: its facts after a clean stop, in a few hundred bytes and without a file.

A replica with nothing to append or to read asks its log only for ends, epochs and the high
watermark. The handle answers these from the summary that the clean stop left. Everything else needs
:meth:`UnloadedLog.load`, which returns the open log. The caller then drops the handle.

The folder is as after a clean stop, and no other process writes there. One fact may be newer in the
handle than on the disk: the leader epoch that began at the log's end. An open log writes an epoch
down before its first record, and drops one without records when it is opened, so the handle may
keep it in memory until it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.config import INT64_MAX, LogConfig
from pyreplog.errors import ClosedError, InternalError
from pyreplog.log.epochs import EpochCache
from pyreplog.log.log import Log
from pyreplog.log.mark import MarkState
from pyreplog.log.summary import Summary, decode_body, due_ms, is_incomplete, is_reported
from pyreplog.values import TopicPartition


class UnloadedLog:
    """The facts of one closed log. Not thread-safe: the owner of its root calls it.

    Its attributes mean the same as those of :class:`Log`. ``body``: the log's entry in the store of
    summaries; ``config``: its settings, if the caller knows them; ``load``: opens the log, see
    :meth:`load`.
    """

    __slots__ = (
        "_config",
        "_load",
        "body",
        "closed",
        "end_offset",
        "epochs",
        "failure",
        "flushed_offset",
        "has_new_settings",
        "high_watermark",
        "on_load",
        "start_offset",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: str,
        body: bytes,
        config: LogConfig | None,
        load: Callable[[UnloadedLog], Log],
    ) -> None:
        summary = decode_body(body)
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.body = body
        self.epochs = epochs_of(summary)
        self.start_offset = summary.start_offset
        self.end_offset = summary.end_offset
        self.flushed_offset = summary.flushed_offset
        self.high_watermark = summary.high_watermark
        self.failure: Exception | None = None
        self.closed = False
        #: Called with the open log when any caller loads it.
        self.on_load: Callable[[Log], None] | None = None
        self._config = config if config is not None and config.durability == summary.durability else None
        self._load = load
        #: Whether retention may remove a segment earlier than ``body`` says, by other settings.
        self.has_new_settings = (
            config is not None
            and config.retention_ms >= 0
            and due_ms(body) == INT64_MAX
            and summary.end_offset > summary.first_base_offset
        )

    def load(self) -> Log:
        """Open the log, call :attr:`on_load`, and return the log.

        Raise :class:`StorageError` or :class:`CorruptError` if the log cannot be opened. If disk
        space, descriptors or memory were lacking, the handle is unchanged, and a later call may
        succeed. After any other error ``failure`` is set, and the root has the log among its
        damaged ones.
        """
        if self.closed:
            raise ClosedError(f"the log of {self.topic_partition} is closed")
        if self.failure is not None:
            raise ClosedError(
                f"the log of {self.topic_partition} could not be opened ({self.failure})"
            ) from self.failure
        return self._load(self)

    @property
    def summary(self) -> Summary:
        """The log's facts on the disk."""
        return decode_body(self.body)

    @property
    def mark_state(self) -> MarkState:
        """The state of the log's mark at the clean stop, from the summary. The mark itself may be lost
        since."""
        known = self.summary
        return MarkState(
            synced_end=known.flushed_offset,
            high_watermark=known.high_watermark,
            start_offset=known.start_offset,
            durability="sync" if known.durability == "sync" else "os",
            incomplete=known.incomplete,
            may_have_gaps=known.end_offset > known.start_offset,  # not in the summary
            poisoned=False,
            epochs_crc=epochs_of(known).checksum(),
            topic_id=known.topic_id,
            partition=self.topic_partition.partition,
            reported=known.reported,
        )

    @property
    def config(self) -> LogConfig:
        """The settings. The log is loaded if only its folder has them."""
        return self.load().config if self._config is None else self._config

    def retune(self, config: LogConfig) -> None:
        """Take new settings of the same durability. The opened log's owner gives them to the log."""
        if config != self._config:
            self._config = config
            self.has_new_settings = True

    @property
    def durability(self) -> str:
        """``sync`` or ``os``."""
        return self.summary.durability

    @property
    def ack_offset(self) -> int:
        """The end offset that counts for acknowledgements. All records of a closed log are synced."""
        return self.end_offset

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self.summary.first_base_offset

    @property
    def incomplete(self) -> bool:
        """Whether this copy may lack acknowledged records."""
        return is_incomplete(self.body)

    @property
    def reported(self) -> bool:
        """Whether the controller knows that this copy is incomplete."""
        return is_reported(self.body)

    @property
    def generation(self) -> int:
        """Always 0: nothing was truncated since the log was opened."""
        return 0

    @property
    def poisoned(self) -> bool:
        """Always False: a closed log has no unsynced data that could be lost."""
        return False

    def become_leader(self, leader_epoch: int) -> None:
        """Let ``leader_epoch`` begin at the log's end, in memory; :meth:`load` writes it down."""
        if self.closed or self.failure is not None:
            self.load()
        if leader_epoch < self.epochs.latest:
            raise InternalError(f"{self.topic_partition}: leader epoch {leader_epoch} after {self.epochs.latest}")
        self.epochs.assign(leader_epoch, self.end_offset)

    def write_mark(self) -> None:
        """Do nothing: the mark on the disk is up to date."""

    def poison(self, error: Exception) -> None:
        """Refuse to load from now on. An unloaded log has no unsynced data."""
        self.failure = self.failure or error

    def close(self, *, clean: bool) -> None:
        """Refuse to load from now on."""
        self.closed = True


def epochs_of(summary: Summary) -> EpochCache:
    """Return the leader epochs that an open log would have: those of existing records."""
    epochs = EpochCache(summary.epochs)
    epochs.keep_those_of(summary.start_offset, summary.end_offset)
    return epochs
