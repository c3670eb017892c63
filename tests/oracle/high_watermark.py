"""What a leader may call committed, in the plainest words: the slow twin of ``InSyncSet.high_watermark_candidate``
(2.5 of the rules).

It keeps every fetch it ever saw and works everything out again from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Seen:
    """One fetch of one follower: when, from which offset, the leader's log end then, and the broker epoch it
    named."""

    at: int
    offset: int
    leader_end: int
    broker_epoch: int


@dataclass
class PlainLeader:
    """One reign. ``committed`` is what the controller is known to have decided, ``proposed`` what it may decide."""

    replicas: list[int]
    committed: list[int]
    min_insync: int
    lag_max: int
    began: int
    high_watermark: int
    proposed: list[int] | None = None
    alive: dict[int, int] = field(default_factory=dict)
    """Eligible brokers and their epochs."""
    history: dict[int, list[Seen]] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)
    """When an append last answered a follower whose fetch was waiting for it: until then it had everything."""

    def fetch(self, follower: int, seen: Seen) -> None:
        """A valid fetch arrived."""
        self.history.setdefault(follower, []).append(seen)

    def append(self, waiting: list[int], at: int) -> None:
        """Records came, which ``waiting`` had asked for."""
        self.waited.update(dict.fromkeys(waiting, at))

    def end(self, follower: int) -> int:
        """Its end as it last said; -1 when it never did."""
        return self.history[follower][-1].offset if self.history.get(follower) else -1

    def last_caught_up(self, follower: int) -> float:
        """The latest moment at which it had reached the leader's end of that moment or of its previous fetch, or
        was waiting there."""
        latest = float(self.began) if follower in self._isr_at_start else float("-inf")
        latest = max(latest, self.waited.get(follower, latest))
        previous: Seen | None = None
        greatest = -1
        for seen in self.history.get(follower, []):
            if seen.offset >= seen.leader_end:
                latest = max(latest, seen.at)
            elif previous is not None and seen.offset >= greatest:
                latest = max(latest, previous.at)
            greatest = max(greatest, seen.leader_end)
            previous = seen
        return latest

    def __post_init__(self) -> None:
        self._isr_at_start = list(self.committed)

    def candidate(self, now: int, end: int, ack_offset: int) -> int:
        """The high watermark now."""
        minimum = min(self.min_insync, len(self.replicas))
        if len(self.committed) < minimum:
            return self.high_watermark
        maximal = set(self.committed) | set(self.proposed or [])
        ends = [ack_offset]
        for follower in self.replicas[1:]:
            caught_up = self.end(follower) == end or now - self.last_caught_up(follower) <= self.lag_max
            epoch = self.history[follower][-1].broker_epoch if self.history.get(follower) else None
            eligible = epoch is not None and self.alive.get(follower) == epoch
            if follower in maximal or (caught_up and eligible):
                ends.append(self.end(follower))
        self.high_watermark = max(self.high_watermark, min(ends))
        return self.high_watermark
