"""Doubts: copies that reads found damaged. They serve on, as far as they can, until another one is known to be there.

Who is in the in-sync set may have died just now, and the controller may name it the next leader all the same. So a leader asks to be
replaced only while another member of the set is heard of, and gives its copy up only as a follower, once the next leader has taken a fetch
of it without a divergence: then that one is alive and has everything that was committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyreplog.errors import CorruptError
from pyreplog.node.effects import Effects
from pyreplog.node.follow import Following
from pyreplog.node.hosting import Hosted, Standing
from pyreplog.node.sessions import FollowerSessions
from pyreplog.quorum import PartitionKey

__all__ = ["Doubts"]

_MS: Final = 1_000_000
GRACE_NS: Final = 250 * _MS
"""Who lives is heard of so long after its last fetch could be answered, at the latest."""
LOOK_INTERVAL_NS: Final = 250 * _MS


class Doubts:
    """Of one node. ``on_replace`` is called for a copy that leads although another could, again and again until another does;
    ``on_spare`` once for one that is not needed any more."""

    def __init__(self, effects: Effects, standing: Standing, sessions: FollowerSessions, following: Following, wait_max_ms: int) -> None:
        self.on_replace: Callable[[Hosted], None]
        self.on_spare: Callable[[Hosted, CorruptError], None]
        self._effects = effects
        self._standing = standing
        self._sessions = sessions
        self._following = following
        self._patience_ns = wait_max_ms * _MS + GRACE_NS
        self._damaged: dict[PartitionKey, tuple[Hosted, CorruptError]] = {}
        self._is_planned = False

    def add(self, hosted: Hosted, error: CorruptError) -> None:
        """A read of that copy met ``error``. What is to be done about it is done by the timers: the present step is half-way."""
        if len(hosted.replica.replicas) > 1:
            self._damaged[hosted.key] = (hosted, error)
            self._plan(self._effects.now_ns)

    def forget(self, hosted: Hosted) -> None:
        """It is not hosted any more."""
        self._damaged.pop(hosted.key, None)

    def _plan(self, at_ns: int) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._effects.timers.call_at(at_ns, self._look)

    def _look(self) -> None:
        self._is_planned = False
        since_ns = self._effects.now_ns - self._patience_ns
        for key, (hosted, error) in list(self._damaged.items()):
            if hosted.log.failure is not None:
                del self._damaged[key]
            elif hosted.replica.is_leader:
                if any(self._is_there(other, key, since_ns) for other in hosted.replica.isr):
                    self.on_replace(hosted)
            elif self._following.is_taken(hosted, since_ns):
                del self._damaged[key]
                self.on_spare(hosted, error)
        if self._damaged:
            self._plan(self._effects.now_ns + LOOK_INTERVAL_NS)

    def _is_there(self, broker_id: int, key: PartitionKey, since_ns: int) -> bool:
        status = self._standing.brokers.get(broker_id)
        return status is not None and status.eligible and self._sessions.is_heard(broker_id, status.epoch, key, since_ns)
