"""The state machine of one partition's replica: it holds the role, and dispatches events to it.

The roles are :class:`~pyreplog.replica.leader.Leader`, :class:`~pyreplog.replica.follower.Follower`
and the two that refuse (:mod:`~pyreplog.replica.role`). This module has the parts that all roles
share: the metadata, the one outstanding sync, the one outstanding timer, and the change to
``offline`` when the disk fails.

Roles change only here, by this table:

===================  ============================  ==========================  ================
metadata says        I lead                        another leads               no leader
===================  ============================  ==========================  ================
in role none         lead, if the epoch is new     follow                      --
in role follower     lead, if the epoch is new     follow again if it grew     none
in role leader       lead again if it grew         follow                      none
in role offline      --                            --                          --
===================  ============================  ==========================  ================

An image with an older leader epoch, or with the same one and an older partition epoch, changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyreplog.config import INT64_MAX, LogConfig, NodeConfig
from pyreplog.errors import ClosedError, CorruptError, StorageError
from pyreplog.log import UnloadedLog
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS
from pyreplog.replica.context import ReplicaContext
from pyreplog.replica.effects import (
    Effect,
    Offline,
    Sync,
)
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    AlterPartitionAnswered,
    BrokersApplied,
    CancelFetch,
    ConfigApplied,
    ConsumerFetch,
    DeleteRecords,
    Event,
    FetchAnswered,
    FollowerFetch,
    ListOffsets,
    MetadataApplied,
    OffsetForLeaderEpoch,
    Produce,
    ProduceMany,
    RootFailed,
    Stop,
    Synced,
    SyncFailed,
    Tick,
)
from pyreplog.replica.follower import Follower
from pyreplog.replica.leader import Leader
from pyreplog.replica.progress import Progress
from pyreplog.replica.role import NoLeaderRole, OfflineRole, ReplicaRole
from pyreplog.wire import ErrorCode

if TYPE_CHECKING:
    from pyreplog.log import Log

__all__ = ["Replica"]

WAKE_RETRY_NS: Final = 500_000_000

# Methods by event type. The replica handles the first table, its role the second.
_BY_REPLICA: Final[dict[type, str]] = {
    MetadataApplied: "_metadata_applied",
    BrokersApplied: "_brokers_applied",
    ConfigApplied: "_config_applied",
    Synced: "_synced",
    SyncFailed: "_sync_failed",
    RootFailed: "_root_failed",
    Tick: "_tick",
    Stop: "_stop",
}
_BY_ROLE: Final[dict[type, str]] = {
    Produce: "produce",
    ProduceMany: "produce_many",
    FollowerFetch: "follower_fetch",
    FetchAnswered: "fetch_answered",
    ConsumerFetch: "consumer_fetch",
    CancelFetch: "cancel_fetch",
    ListOffsets: "list_offsets",
    OffsetForLeaderEpoch: "offset_for_leader_epoch",
    DeleteRecords: "delete_records",
    AlterPartitionAnswered: "alter_partition_answered",
}


Handlers = dict[type, Callable[[Any, Any, int], None]]
_TABLES: Final[dict[type, Handlers]] = {}


def _handlers(kind: type, names: Mapping[type, str]) -> Handlers:
    """Return the functions of class ``kind`` by event type.

    All objects of a class share one table, because there may be very many.
    """
    table = _TABLES.get(kind)
    if table is None:
        table = _TABLES[kind] = {event: getattr(kind, name) for event, name in names.items()}
    return table


@mypyc_attr(allow_interpreted_subclasses=True)
class Replica(ReplicaContext):
    """One partition's replica on one broker.

    It owns ``log``: no other code changes the log until ``Stop``. :meth:`step` is the only way in.
    It never waits, and it is deterministic: the same events at the same times on the same log give
    the same effects. One step belongs to one thread at a time.
    """

    __slots__ = (
        "_flush_at",
        "_flush_ns",
        "_is_config_kept",
        "_is_segment_full",
        "_may_sync",
        "_of_replica",
        "_of_role",
        "_settings",
        "_sync_after",
        "role",
        "syncing",
    )

    #: The classes of the roles; the known-bad variants of ``pyreplog.testing`` replace them.
    leader_class: ClassVar[type[Leader]] = Leader
    follower_class: ClassVar[type[Follower]] = Follower

    def __init__(self, log: Log | UnloadedLog, broker_id: int, config: NodeConfig) -> None:
        super().__init__(log, broker_id, config)
        self.syncing = False
        self._flush_at = FAR_FUTURE_NS
        self._settings: LogConfig = log.config
        # Whether the log's folder has these settings too, if the log is open.
        self._is_config_kept = True
        self.takes_gaps = self._settings.may_have_gaps
        self._take_flush_settings()
        # A full segment is synced whatever the flush settings say. Asking the log at every event
        # would take a tenth of all time, so a flag holds the answer.
        self._is_segment_full = False
        if not isinstance(self.log, UnloadedLog):
            self.log_loaded(self.log)
        self.role: ReplicaRole = NoLeaderRole(self)
        self._of_role = _handlers(NoLeaderRole, _BY_ROLE)
        self._of_replica = _handlers(type(self), _BY_REPLICA)

    def _take_flush_settings(self) -> None:
        settings = self._settings
        self._flush_ns = (
            settings.flush_ms * 1_000_000
            if not self.needs_sync and settings.flush_ms < FAR_FUTURE_NS // 1_000_000
            else 0
        )
        self._sync_after = 1 if self.needs_sync or settings.flush_ms == 0 else settings.flush_messages
        self._may_sync = self._sync_after < INT64_MAX or self._flush_ns > 0

    # -- what others may look at

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads, as far as it knows."""
        return isinstance(self.role, Leader)

    @property
    def isr(self) -> Sequence[int]:
        """The committed ISR; empty if this replica does not lead."""
        return self.role.in_sync_set.committed if isinstance(self.role, Leader) else ()

    @property
    def maximal_isr(self) -> Sequence[int]:
        """Every broker that the controller may count as in sync.

        These are the committed and the proposed, undecided ones. Empty if this replica does not
        lead.
        """
        return self.role.in_sync_set.maximal if isinstance(self.role, Leader) else ()

    @property
    def followers(self) -> Sequence[Progress]:
        """The leader's view of the other replicas. Empty if this replica does not lead. Read-only."""
        return self.role.in_sync_set.remotes if isinstance(self.role, Leader) else ()

    # -- the way in

    def step(self, event: Event, now_ns: int) -> list[Effect]:
        """Handle one event at time ``now_ns`` of the monotonic clock; return the effects in order."""
        out: list[Effect] = []
        self.out = out
        self.now_ns = now_ns
        try:
            handler = self._of_role.get(event.__class__)
            if handler is not None:
                handler(self.role, event, now_ns)
            else:
                self._of_replica[event.__class__](self, event, now_ns)
            if (self._may_sync or self._is_segment_full) and not self.syncing:
                self._sync(now_ns)
        except (StorageError, ClosedError, CorruptError) as error:
            self.go_offline(error)
        del self.out
        return out

    def go_offline(self, error: Exception) -> None:
        """Answer all waiting requests and refuse every later one, because the disk failed.

        A second call is harmless.
        """
        if isinstance(self.role, OfflineRole):
            return
        self.role.exit(ErrorCode.KAFKA_STORAGE_ERROR)
        self._take_role(OfflineRole(self))
        self.out.append(Offline(error))

    # -- events that every role shares

    def _metadata_applied(self, event: MetadataApplied, now_ns: int) -> None:
        self.brokers = event.brokers
        if isinstance(self.role, OfflineRole):
            return
        if event.leader_epoch < self.leader_epoch or event.partition_epoch < self.partition_epoch:
            return
        if self.log.incomplete:
            self._note_standing(now_ns, in_sync=self.broker_id in event.isr)
        grew = event.leader_epoch > self.leader_epoch
        newer = grew or event.partition_epoch > self.partition_epoch
        self.leader_id = event.leader
        self.leader_epoch = event.leader_epoch
        self.partition_epoch = event.partition_epoch
        if event.replicas != self.replicas:
            self.note_tombstone_bound(0)  # it says nothing of a new one
        self.replicas = event.replicas
        self.in_sync = self.broker_id in event.isr
        self.unclean_epoch = event.unclean_epoch
        if event.leader == self.broker_id:
            if isinstance(self.role, Leader) and not grew:
                self.role.metadata_applied(event, now_ns, newer=newer)
            else:
                self._lead(event, now_ns)
        elif event.leader >= 0:
            if grew or not isinstance(self.role, Follower):
                self._change(self.follower_class(self), now_ns)
        elif not isinstance(self.role, NoLeaderRole):
            self._change(NoLeaderRole(self), now_ns)

    def _lead(self, event: MetadataApplied, now_ns: int) -> None:
        """Take the leader role, unless the log already knows the epoch (rule L0).

        Two histories of one epoch could not be told apart.
        """
        latest = self.log.epochs.latest
        if event.leader_epoch <= latest:
            self.broken_rule("L0", f"told to lead in epoch {event.leader_epoch}, but its log has epoch {latest}")
            self._change(NoLeaderRole(self), now_ns)
        else:
            self._change(self.leader_class(self, event.isr), now_ns)

    def _brokers_applied(self, event: BrokersApplied, now_ns: int) -> None:
        self.brokers = event.brokers
        self.role.brokers_applied(event, now_ns)

    def _config_applied(self, event: ConfigApplied, now_ns: int) -> None:
        config = event.config
        if config.durability != self._settings.durability:
            return
        self._settings = config
        self.takes_gaps = config.may_have_gaps
        self._take_flush_settings()
        if isinstance(self.log, UnloadedLog):
            self.log.retune(config)
        else:
            self._retune(self.log)
        if not self._is_config_kept:
            self.wake_by(now_ns + WAKE_RETRY_NS)
        self.role.config_applied(now_ns)

    def _retune(self, log: Log) -> None:
        """Give an open log the settings. They count at once; keeping them in its folder may need another try."""
        if (log.config != self._settings or not self._is_config_kept) and log.failure is None and not log.closed:
            self._is_config_kept = log.retune(self._settings)

    def _synced(self, event: Synced, now_ns: int) -> None:
        self.syncing = False
        if isinstance(self.role, OfflineRole):
            return
        log = self.load_log()
        log.synced(event.upto, event.generation, mark=False)
        self._is_segment_full = self._is_segment_full and log.has_unsynced_segment
        self.role.synced(event, now_ns)

    def _sync_failed(self, event: SyncFailed, now_ns: int) -> None:
        self.syncing = False
        self.log.poison(event.error)
        self.go_offline(event.error)

    def _root_failed(self, event: RootFailed, now_ns: int) -> None:
        self.go_offline(event.error)

    def _tick(self, event: Tick, now_ns: int) -> None:
        if now_ns >= self.wake_at:
            self.wake_at = FAR_FUTURE_NS
        if self.log.incomplete and self.partition_epoch >= 0 and not isinstance(self.role, OfflineRole):
            self._note_standing(now_ns, in_sync=self.in_sync)
        if not self._is_config_kept and not isinstance(self.log, UnloadedLog):
            self._retune(self.log)
            if not self._is_config_kept and self.log.failure is None:
                self.wake_by(now_ns + WAKE_RETRY_NS)
        self.role.tick(event, now_ns)
        if self._flush_at < FAR_FUTURE_NS:
            self.wake_by(self._flush_at)

    def _stop(self, event: Stop, now_ns: int) -> None:
        self.role.exit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._take_role(NoLeaderRole(self))
        self.in_sync = self._may_sync = self._is_segment_full = False

    # -- help

    def log_loaded(self, log: Log) -> None:
        """Use ``log``, which was opened, instead of its handle."""
        super().log_loaded(log)
        self._retune(log)
        self._is_segment_full = log.has_unsynced_segment
        log.on_roll = self._note_roll

    def _note_roll(self) -> None:
        self._is_segment_full = True

    def _note_standing(self, now_ns: int, *, in_sync: bool) -> None:
        """Record in an incomplete log whether the newest metadata lists this copy as in sync.

        If it does, the copy lacks nothing; the metadata includes this incarnation's registration.
        If not, record that the controller knows that the copy is incomplete. If the log cannot be
        opened now, retry later; until then its mark says less than is known.
        """
        try:
            if in_sync:
                self.load_log().set_incomplete(False)
            elif not self.log.reported:
                self.load_log().set_reported()
        except StorageError as error:
            if not self.still_unloaded() and (
                in_sync or error.errno not in NO_SPACE_ERRNOS | RESOURCES_EXHAUSTED_ERRNOS
            ):
                raise
            self.wake_by(now_ns + WAKE_RETRY_NS)

    def _change(self, role: ReplicaRole, now_ns: int) -> None:
        """End the old role, then take the new one."""
        self.role.exit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._take_role(role)
        role.enter(now_ns)

    def _take_role(self, role: ReplicaRole) -> None:
        self.note_tombstone_bound(0)
        self.role = role
        self._of_role = _handlers(type(role), _BY_ROLE)

    def _sync(self, now_ns: int) -> None:
        """Start a sync if enough is unsynced.

        REQUIRES that no sync is outstanding: records appended during a sync go with the next one.
        """
        log = self.log
        unsynced = log.end_offset - log.flushed_offset
        if unsynced <= 0:
            self._flush_at = FAR_FUTURE_NS
            self._is_segment_full = False
            return
        if unsynced < self._sync_after and now_ns < self._flush_at and not self._is_segment_full:
            if self._flush_at == FAR_FUTURE_NS and self._flush_ns:
                self._flush_at = now_ns + self._flush_ns
                self.wake_by(self._flush_at)
            return
        if isinstance(self.role, OfflineRole):
            return
        try:
            plan = self.load_log().sync_plan()
        except StorageError as error:
            if error.errno not in RESOURCES_EXHAUSTED_ERRNOS or self.log.failure is not None:
                raise
            # The sync did not start, for lack of descriptors.
            self._flush_at = now_ns + WAKE_RETRY_NS
            self.wake_by(self._flush_at)
            return
        if plan is not None:
            self._flush_at = FAR_FUTURE_NS
            self.syncing = True
            self.out.append(Sync(plan.files, plan.upto, plan.generation))
