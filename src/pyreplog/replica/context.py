"""The state of one replica that its roles share: its log, the newest metadata, the current step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyreplog.config import NodeConfig
from pyreplog.errors import CorruptError
from pyreplog.log import UnloadedLog
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.replica.damage import RESIGN_AFTER_NS, DamagedRanges
from pyreplog.replica.effects import (
    BrokenRule,
    Damaged,
    Effect,
    Wake,
)
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    BrokerStatus,
)
from pyreplog.wire import NO_LEADER, LeaderIdAndEpoch

if TYPE_CHECKING:
    from pyreplog.log import Log

__all__ = ["ReplicaContext"]


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaContext:
    """The state that the roles of one replica share.

    ``log`` is the only attribute that holds the log: roles and their parts read it here in every
    step. It is a handle until a step, or the owner of the root, loads the log; then :meth:`load_log`
    returns the open one. A variable that holds the handle must not be used after that.
    ``Replica`` extends this class and sets the metadata; roles only read that.
    """

    __slots__ = (
        "broker_id",
        "brokers",
        "config",
        "damage",
        "deferred_log_start",
        "in_sync",
        "leader_epoch",
        "leader_id",
        "log",
        "needs_sync",
        "next_token",
        "now_ns",
        "out",
        "partition",
        "partition_epoch",
        "replicas",
        "takes_gaps",
        "tombstone_bound",
        "topic_id",
        "unclean_epoch",
        "wake_at",
    )
    __deletable__ = ("out",)

    def __init__(self, log: Log | UnloadedLog, broker_id: int, config: NodeConfig) -> None:
        self.log = log
        if isinstance(log, UnloadedLog):
            log.on_load = self.log_loaded
        self.broker_id = broker_id
        self.config = config
        self.topic_id: str = log.topic_id
        self.partition: int = log.topic_partition.partition
        self.needs_sync = log.durability == "sync"
        #: The log start before the log restarted inside a batch. The start rises to it again with
        #: the high watermark, in any role.
        self.deferred_log_start = 0
        self.takes_gaps = False
        """Whether the topic is or was compacted."""
        self.tombstone_bound = 0
        """Every assigned replica has the records below on stable storage, as far as this one knows."""
        # The newest metadata.
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: Sequence[int] = ()
        self.in_sync = False
        """Whether the newest metadata has this broker in the ISR."""
        self.unclean_epoch = -1
        """The latest leader epoch that began with an unclean election; -1: none."""
        self.brokers: Mapping[int, BrokerStatus] = {}
        # The current step. ``out`` exists only within a step, because there may be very many
        # replicas.
        self.out: list[Effect]
        self.now_ns = 0
        """The time of the current step, or of the last one."""
        self.wake_at = FAR_FUTURE_NS
        """The time of the earliest requested ``Tick``."""
        self.next_token = 1
        self.damage: DamagedRanges | None = None
        """Damage that reads found; None: none."""

    def wake_by(self, at_ns: int) -> None:
        """Ask for a ``Tick`` at ``at_ns``, unless an earlier one is already requested."""
        if at_ns < self.wake_at:
            self.wake_at = at_ns
            self.out.append(Wake(at_ns))

    def go_offline(self, error: Exception) -> None:
        """Answer all waiting requests and refuse every later one, because the disk failed.

        ``Replica`` overrides this: it ends the role.
        """
        raise error

    def on_corrupt_read(self, error: CorruptError, *, is_leader: bool, is_only_member: bool) -> bool:
        """Report that a read of the log found damage, see :class:`Damaged`.

        Return whether the reader must be told, because no other replica leads instead.
        """
        damage = self.damage
        if damage is None:
            damage = self.damage = DamagedRanges()
        damage.met(self.leader_epoch, self.now_ns, is_only_member=is_only_member)
        is_last = is_only_member or (is_leader and self.now_ns - damage.since_ns >= RESIGN_AFTER_NS)
        is_news, is_due = damage.is_news(error, is_last=is_last), damage.is_due(self.now_ns)
        if is_news or is_due:
            self.out.append(Damaged(error, is_last, is_news))
        return is_last

    def load_log(self) -> Log:
        """Return the open log, and open it if it is not. Errors as those of
        :meth:`UnloadedLog.load`."""
        log = self.log
        return log.load() if isinstance(log, UnloadedLog) else log

    def log_loaded(self, log: Log) -> None:
        """Use ``log``, which was opened, instead of its handle."""
        self.log = log
        log.tombstone_bound = self.tombstone_bound

    def note_tombstone_bound(self, bound: int) -> None:
        """Let compaction drop tombstones below ``bound``, and none above."""
        self.tombstone_bound = bound
        log = self.log
        if not isinstance(log, UnloadedLog):
            log.tombstone_bound = bound

    def still_unloaded(self) -> bool:
        """Return whether the log is still unloaded after a storage error.

        It is if room, descriptors or memory to open it were lacking. The failed call then changed
        nothing, and may succeed later.
        """
        return isinstance(self.log, UnloadedLog) and self.log.failure is None

    def broken_rule(self, rule: str, about: str) -> None:
        """Report that a safety rule did not hold."""
        self.out.append(BrokenRule(rule, f"{self.log.topic_partition} on broker {self.broker_id}: {about}"))

    def current_leader_hint(self) -> LeaderIdAndEpoch:
        """Return the leader and its epoch, as far as this replica knows."""
        return LeaderIdAndEpoch(self.leader_id, self.leader_epoch)
