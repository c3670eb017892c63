"""A log that is there and not open: what a clean end left of it, in a few hundred bytes and without a file.

It is a :class:`Log` whose parts are missing. What a replica asks an idle log for (ends, epochs, watermark) it has;
everything else opens it first, and from then on it is an ordinary log, the same object: its class changes, so that
an open log pays for none of this.

The folder is as after a clean end, and nobody else writes there. The one thing that a sleeping log may know and the
disk may not is the leader epoch that began at its end last: it is written before the first record in it, and one
without records no opening keeps anyhow.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from pyreplog._core import TailBudget
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, CorruptError, InternalError, StorageError
from pyreplog.log import history
from pyreplog.log.epochs import EpochCache, write_epochs
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.log import Log
from pyreplog.log.mark import MarkState
from pyreplog.log.opening import Parts
from pyreplog.log.state import LogState
from pyreplog.log.summary import Summary, decode_body, is_incomplete, is_reported
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.ports import RESOURCES_EXHAUSTED_ERRNOS, Clock, Disk
from pyreplog.values import TopicPartition

_PARTS: Final = frozenset(LogState.__slots__)
_AS_IT_IS: Final = ("give_up", "read", "sync_due", "sync_plan")
"""What needs no part of an open log, or none before it looks for the first one: the others wake it before they
begin."""


class LogOpener(Protocol):
    """Who opens sleeping logs: their root."""

    disk: Disk
    clock: Clock
    index_cache: IndexCache
    tail_room: TailBudget
    trusted_clock: TrustedClock

    def wake(self, log: Log) -> None:
        """Open ``log``; what is wrong with it is kept and raised."""
        ...


if TYPE_CHECKING:
    _Base = Log
else:
    _Base = object


class UnloadedLog(_Base):
    """What a log has more, and less, while it sleeps. :func:`sleeping` makes them. Belongs to the owner of its
    root."""

    __slots__ = ()
    _keeper: LogOpener
    _body: bytes

    def __getattr__(self, name: str) -> Any:
        """A part that only an open log has."""
        if name not in _PARTS:
            raise AttributeError(name)
        self.wake()
        return getattr(self, name)

    def wake(self) -> None:
        """Open it. Raises what the disk or its content says: the log is of no use then, and its root has it among
        the damaged, unless only room, descriptors or memory were lacking; then it sleeps on."""
        if self._closed:
            raise ClosedError(f"the log of {self.topic_partition} is closed")
        if self._failure is not None:
            raise ClosedError(
                f"the log of {self.topic_partition} could not be opened ({self._failure})"
            ) from self._failure
        self._keeper.wake(self)

    def take_parts(self, directory: str, parts: Parts) -> None:
        """Become an open log of these ``parts``. Raises :class:`CorruptError` where they are not what it went to
        sleep with, and sleeps on."""
        known, began = decode_body(self._body), self.epochs
        state = parts.mark.state
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
        if found != left or parts.epochs != _history(known):
            raise CorruptError(
                f"{self.topic_partition} is not as its clean end left it: {found} instead of {left}", file=directory
            )
        keeper, on_roll = self._keeper, self.on_roll
        # What an open log needs more descriptors for, while it can still sleep on where there are
        # none.
        parts.segments.last.limit_entries(parts.config.segment_index_bytes)
        if began.latest > parts.epochs.latest:
            epochs = EpochCache(parts.epochs.entries)
            epochs.assign(began.latest, known.end_offset)
            try:
                write_epochs(keeper.disk, directory, epochs)
                parts.mark.write_state(state._replace(epochs_crc=epochs.checksum()))
                parts.epochs.assign(began.latest, known.end_offset)
            except StorageError as error:
                if error.errno in RESOURCES_EXHAUSTED_ERRNOS:
                    raise
                # Of anything else the open log is to hear: it tries again below.
        Log.__init__(self, keeper.disk, directory, self.topic_partition, parts, keeper.clock)
        self.on_roll = on_roll
        self._trusted_clock = keeper.trusted_clock.copy()  # what the clock did meanwhile counts
        self.__class__ = type(self).__mro__[2]
        del self._keeper, self._body
        self.share_memory(keeper.index_cache, keeper.tail_room)
        if began.latest > self.epochs.latest:
            history.assign(self, began.latest, self.end_offset)

    # -- what it knows --

    @property
    def summary(self) -> Summary:
        """How the disk has it."""
        return decode_body(self._body)

    @property
    def mark_state(self) -> MarkState:
        """What its mark says, where that was not lost meanwhile: the summary has all that counts."""
        known = decode_body(self._body)
        return MarkState(
            synced_end=known.flushed_offset,
            high_watermark=known.high_watermark,
            start_offset=known.start_offset,
            durability="sync" if known.durability == "sync" else "os",
            incomplete=known.incomplete,
            may_have_gaps=known.end_offset > known.start_offset,  # the summary does not say; as where nobody does
            poisoned=False,
            epochs_crc=_history(known).checksum(),
            topic_id=known.topic_id,
            partition=self.topic_partition.partition,
            reported=known.reported,
        )

    @property
    def durability(self) -> str:
        """See :class:`Log`."""
        return "sync" if self._counts_flushed else "os"

    @property
    def incomplete(self) -> bool:
        """See :class:`Log`."""
        return is_incomplete(self._body)

    @property
    def reported(self) -> bool:
        """See :class:`Log`."""
        return is_reported(self._body)

    @property
    def first_base_offset(self) -> int:
        """See :class:`Log`."""
        return self.summary.first_base_offset

    def segments(self) -> list[tuple[int, int]]:
        """See :class:`Log`."""
        return list(self.summary.segments)

    # -- what it can do --

    def become_leader(self, leader_epoch: int) -> None:
        """Remember it; it is written down when the log wakes."""
        if self._closed or self._failure is not None:
            self.wake()
        if leader_epoch < self.epochs.latest:
            raise InternalError(f"{self.topic_partition}: leader epoch {leader_epoch} after {self.epochs.latest}")
        self.epochs.assign(leader_epoch, self.end_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """See :class:`Log`."""
        if min(offset, self.end_offset) <= self.high_watermark:
            return False
        self.wake()
        return self.advance_high_watermark(offset)

    def set_high_watermark(self, offset: int) -> None:
        """See :class:`Log`."""
        if max(self.start_offset, min(offset, self.end_offset)) != self.high_watermark:
            self.wake()
            self.set_high_watermark(offset)

    def write_mark(self) -> None:
        """It says all that there is to say."""

    def poison(self, error: Exception) -> None:
        """Of what it has nothing waits for the disk, but it is not to be used any more."""
        self._failure = self._failure or error

    def close(self, *, clean: bool) -> None:
        """Nothing is open."""
        self._closed = True


def _waking(name: str) -> Callable[..., Any]:
    def change(self: UnloadedLog, *arguments: Any, **named: Any) -> Any:
        self.wake()
        return getattr(self, name)(*arguments, **named)

    change.__name__ = name
    change.__doc__ = (
        f"See :meth:`Log.{name}`; the log wakes first, so that no change begins on one and ends on the other."
    )
    return change


for _name, _value in (vars(LogState) | vars(Log)).items():
    if (
        isinstance(_value, FunctionType)
        and not _name.startswith("_")
        and _name not in _AS_IT_IS
        and _name not in vars(UnloadedLog)
    ):
        setattr(UnloadedLog, _name, _waking(_name))


_CLASSES: Final[dict[type[Log], type[Log]]] = {}


def _class_of(log_class: type[Log]) -> type[Log]:
    """That of its logs while they sleep: ``log_class`` behind what is different then. Made once."""
    found = _CLASSES.get(log_class)
    if found is None:
        found = _CLASSES[log_class] = type(f"Unloaded{log_class.__name__}", (UnloadedLog, log_class), {"__slots__": ()})
    return found


def _history(summary: Summary) -> EpochCache:
    """The leader epochs as an opening finds them: those that records bear."""
    epochs = EpochCache(summary.epochs)
    epochs.keep_those_of(summary.start_offset, summary.end_offset)
    return epochs


def sleeping(
    log_class: type[Log],
    keeper: LogOpener,
    topic_partition: TopicPartition,
    topic_id: str,
    body: bytes,
    config: LogConfig | None,
) -> Log:
    """The log of a partition as ``body`` (of an entry of the store) says, asleep. ``config``: its settings, where
    they are known.

    ``keeper`` opens it when it has to wake; it is a ``log_class`` then.
    """
    summary = decode_body(body)
    log = cast("UnloadedLog", object.__new__(_class_of(log_class)))
    log._keeper = keeper
    log._body = body
    log.topic_partition = topic_partition
    log.topic_id = topic_id
    log.epochs = _history(summary)
    log.start_offset = summary.start_offset
    log.end_offset = summary.end_offset
    log.flushed_offset = summary.flushed_offset
    log.high_watermark = summary.high_watermark
    log.generation = 0
    log.on_roll = None
    log._counts_flushed = summary.durability == "sync"
    if config is not None and config.durability == summary.durability:
        log._config = config
    log._failure = None
    log._poisoned = log._closed = False
    return log
