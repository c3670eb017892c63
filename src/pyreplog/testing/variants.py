"""Known-bad rules, each overriding one method: for the tests of the checkers, and to learn from. Nothing in shipped code switches on them.

Give one to a world or a test as the class of its replicas: every variant must be caught, the plain :class:`Replica` never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from typing_extensions import Buffer

from pyreplog.log import Log
from pyreplog.record import RecordBatch
from pyreplog.replica import Follower, Leader, Produce, Progress, Replica

__all__ = [
    "VARIANTS",
    "AckBeforeFsync",
    "ChecksumUnchecked",
    "CommittedIsrOnly",
    "EpochEndOffByOne",
    "JoinBelowStartOfEpoch",
    "MarkTooEarly",
    "NonDurableFollower",
    "NoMinimum",
    "TruncateToHighWatermark",
]


class _EagerLeader(Leader):
    def own_end(self) -> int:
        """The written end, also where only the flushed one counts."""
        return self.log.end_offset


class _HastyLeader(Leader):
    def produce(self, event: Produce, now_ns: int) -> None:
        """Appends with acks=1 and acks=all are answered as soon as they are written, and only then made durable."""
        super().produce(event, now_ns)
        self.flushes_acknowledged()

    def own_end(self) -> int:
        """The written end."""
        return self.log.end_offset


class AckBeforeFsync(Replica):
    """A ``sync`` leader counts what it has not synced: acknowledgements come before its fsync. Breaks S14; lost by power loss."""

    leader_class = _HastyLeader


class _EarlyFollower(Follower):
    def may_ask(self, end: int) -> bool:
        """Always: the fetch then claims what is not on stable storage."""
        return True


class NonDurableFollower(Replica):
    """A ``sync`` follower fetches before it has synced, so the high watermark passes what it may lose. Breaks S14; lost by power loss."""

    follower_class = _EarlyFollower


class _TruncatingFollower(Follower):
    def take(self, now_ns: int) -> None:
        """Cut off everything above the own high watermark first, as Kafka did before KIP-101."""
        self.log.truncate_to(max(self.log.start_offset, self.log.high_watermark))
        super().take(now_ns)


class TruncateToHighWatermark(Replica):
    """A new follower truncates to its own high watermark (V1). Breaks S2: acknowledged records go with the second failure."""

    follower_class = _TruncatingFollower


class _OffByOneLeader(Leader):
    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """One more than the true end, for every epoch but the latest."""
        found, end = super().end_of_epoch(epoch)
        return (found, end + 1) if 0 <= found < self.log.epochs.latest else (found, end)


class EpochEndOffByOne(Replica):
    """The end of an older epoch is told one too high, so a diverging follower keeps one record that is not the leader's. Breaks S4."""

    leader_class = _OffByOneLeader


class _LonelyLeader(Leader):
    def high_watermark_candidate(self, now_ns: int) -> int:
        """Over the committed in-sync set only: who may have been accepted already is not waited for."""
        if len(self.committed) < self.min_isr:
            return -1
        return min([self.own_end(), *(f.leo for f in self.remotes if f.committed)])


class CommittedIsrOnly(Replica):
    """The high watermark ignores a proposed member (V7). Breaks S7."""

    leader_class = _LonelyLeader


class _LaxLeader(Leader):
    def high_watermark_candidate(self, now_ns: int) -> int:
        """Without the gate of ``min.insync.replicas``."""
        minimum, self.min_isr = self.min_isr, 0
        try:
            return super().high_watermark_candidate(now_ns)
        finally:
            self.min_isr = minimum


class NoMinimum(Replica):
    """The high watermark moves below ``min.insync.replicas`` (V15). Breaks S2 with eligible leader replicas."""

    leader_class = _LaxLeader


class _OpenLeader(Leader):
    def may_join(self, follower: Progress, now_ns: int) -> bool:
        """Without the test of the start of the epoch."""
        return follower.leo >= self.log.high_watermark and follower.leo >= 0 and self.eligible(follower)


class JoinBelowStartOfEpoch(Replica):
    """A replica joins when it reached the new leader's (older) high watermark (V5, KAFKA-7128). Breaks S2."""

    leader_class = _OpenLeader


class MarkTooEarly(Log):
    """The durable mark calls synced what is only written. After power loss an honest torn tail reads as rot, and a copy that is as good as
    any is refused."""

    def write_mark(self) -> None:
        """With the written end in place of the synced one."""
        self._mark.write(self.end_offset, self.high_watermark, self.start_offset)


class ChecksumUnchecked(Log):
    """A follower takes what it fetched without looking at checksums: rot on the leader's disk spreads to good replicas."""

    def append_as_follower(self, parts: Sequence[Buffer]) -> int:
        """As the original, but for the one line."""
        views = [memoryview(part) for part in parts]
        batches: list[tuple[int, int, int, int, int]] = []
        for view in views:
            position = 0
            while position < view.nbytes:
                one = RecordBatch(view, position)
                batches.append((one.base_offset, one.last_offset, one.leader_epoch, one.size, one.max_timestamp))
                position += one.size
        if batches:
            self._append_checked(views, batches, sum(view.nbytes for view in views), gaps=False)
        return self.end_offset


VARIANTS: Final[Mapping[str, type[Replica]]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            AckBeforeFsync,
            NonDurableFollower,
            TruncateToHighWatermark,
            EpochEndOffByOne,
            CommittedIsrOnly,
            NoMinimum,
            JoinBelowStartOfEpoch,
        )
    }
)
"""Every variant of the replica by its name. Those of the log (``MarkTooEarly``, ``ChecksumUnchecked``) are the class of a root's logs."""
