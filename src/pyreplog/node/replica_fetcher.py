"""The follower's side of replication: one fetch session for each node that this one follows.

Few messages travel, however many partitions two nodes share: a request names only the partitions
whose wish changed, and an answer only those with data. Sessions are Kafka's incremental fetch
sessions with one addition. A node may send a new request while an older one is unanswered, because
a partition may have a new wish while others wait; then the leader answers the older one at once,
empty. So every request gets exactly one answer. If an answer does not arrive in time the session
ends, and a new one begins with the wishes of all partitions.
"""

from __future__ import annotations

from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.controller import PartitionKey
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.node.traffic import size_of
from pyreplog.ports import Address
from pyreplog.replica import Fetch, FetchAnswered
from pyreplog.wire import (
    NO_ERROR,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
    Response,
)

__all__ = ["ReplicaFetcher", "FetchInterest"]

GRACE_NS: Final = 1_000_000_000
"""Time that an answer may take beyond the longest wait."""
EPOCH_MAX: Final = 0x7FFFFFFF
_MAX_BYTES: Final = 0x7FFFFFFF
_IDLE: Final = 0
_CHANGED: Final = 1
_PARKED: Final = 2


class FetchInterest:
    """The wish of one partition to its leader.

    ``state``: no wish now; not sent yet; or sent to the leader in ``epoch`` of the session.
    """

    __slots__ = ("epoch", "hosted", "request", "session", "state")

    def __init__(self, hosted: HostedPartition, session: _LeaderSession) -> None:
        self.hosted = hosted
        self.session = session
        self.request: FetchPartition
        self.state = _IDLE
        self.epoch = 0


class _LeaderSession:
    """The session with one leader. ``unanswered``: correlation id -> (epoch, time sent), oldest
    first."""

    __slots__ = (
        "address",
        "changed",
        "delayed_count",
        "dirty",
        "epoch",
        "forgotten",
        "leader_id",
        "members",
        "replica",
        "retry_ns",
        "session_id",
        "unanswered",
        "watched",
    )

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.address: Address = ""
        self.session_id = 0
        self.epoch = 0
        self.members: dict[PartitionKey, FetchInterest] = {}
        self.changed: dict[PartitionKey, FetchInterest] = {}
        self.forgotten: list[PartitionKey] = []
        self.delayed_count = 0
        self.unanswered: dict[int, tuple[int, int]] = {}
        self.replica = ReplicaState()
        """The broker id and epoch of the last request."""
        self.retry_ns = 0
        self.dirty = False
        self.watched = False


class ReplicaFetcher:
    """All sessions of this node as a follower."""

    def __init__(self, effects: Effects, standing: ClusterView, node_id: int, config: NodeConfig) -> None:
        self._effects = effects
        self._standing = standing
        self._node_id = node_id
        self._wait_max_ms = config.replica_fetch_wait_max_ms
        self._timeout_ns = self._wait_max_ms * 1_000_000 + GRACE_NS
        self._backoff_ns = config.replica_fetch_backoff_ms * 1_000_000
        self._interests: dict[PartitionKey, FetchInterest] = {}
        self._sessions: dict[int, _LeaderSession] = {}
        self._by_correlation: dict[int, _LeaderSession] = {}
        self.dirty: list[_LeaderSession] = []
        """The sessions with unsent requests; :meth:`flush` sends them."""

    # ---------------------------------------------------------------------------- from the replicas

    def want(self, hosted: HostedPartition, effect: Fetch) -> None:
        """Replace the wish of ``hosted`` by a new one."""
        want = self._interests.get(hosted.key)
        if want is None or want.session.leader_id != effect.leader_id:
            if want is not None:
                self.forget(hosted)
            session = self._sessions.get(effect.leader_id)
            if session is None:
                session = self._sessions[effect.leader_id] = _LeaderSession(effect.leader_id)
            want = FetchInterest(hosted, session)
            self._interests[hosted.key] = session.members[hosted.key] = want
        session = want.session
        if want.state == _PARKED:
            session.delayed_count -= 1
        want.state = _CHANGED
        want.request = effect.request
        session.changed[hosted.key] = want
        if not session.dirty:
            session.dirty = True
            self.dirty.append(session)

    def forget(self, hosted: HostedPartition) -> None:
        """Remove the wish of ``hosted``."""
        want = self._interests.pop(hosted.key, None)
        if want is None:
            return
        session = want.session
        del session.members[hosted.key]
        session.changed.pop(hosted.key, None)
        if want.state == _PARKED:
            session.delayed_count -= 1
            session.forgotten.append(hosted.key)
            self._touch(session)
        if not session.members:
            del self._sessions[session.leader_id]
            self._drop_unanswered(session)

    # ------------------------------------------------------------------------------------- messages

    def answered(self, message: Response, body: FetchResponse) -> bool:
        """Handle a leader's answer. Return False if it belongs to none of the current sessions."""
        session = self._by_correlation.pop(message.correlation_id, None)
        if session is None:
            return False
        epoch, _ = session.unanswered.pop(message.correlation_id)
        if body.error_code != NO_ERROR:
            self._reset(session)
            return True
        if session.session_id == 0:
            session.session_id = body.session_id
        run = self._effects.run
        traffic = self._effects.traffic
        members = session.members
        for topic in body.responses:
            for data in topic.partitions:
                want = members.get((topic.topic_id, data.partition_index))
                if want is None or want.state != _PARKED or want.epoch > epoch:
                    continue  # it answers an older wish
                want.state = _IDLE
                session.delayed_count -= 1
                traffic.bytes_from_leaders += size_of(data)
                run(want.hosted, FetchAnswered(want.request, data))
        if not session.dirty:
            session.dirty = True
            self.dirty.append(session)
        return True

    def disconnected(self, peer: Address) -> None:
        """Start the session again after a pause, because the leader's node is gone or has forgotten
        it."""
        for session in list(self._sessions.values()):
            if session.address == peer and (session.unanswered or session.session_id):
                self._pause(session)

    def resume(self) -> None:
        """Send the requests that waited for the (new) registration of this incarnation."""
        for session in self._sessions.values():
            self._touch(session)

    def flush(self) -> None:
        """Send the requests that were collected in this turn."""
        while self.dirty:
            session = self.dirty.pop()
            session.dirty = False
            if session.members:
                self._send(session)

    # ------------------------------------------------------------------------------------- sessions

    def _send(self, session: _LeaderSession) -> None:
        effects = self._effects
        if effects.now_ns < session.retry_ns or self._standing.broker_epoch < 0:
            return
        if session.epoch == EPOCH_MAX:
            self._reset(session)  # epochs wrap: earlier and later wishes would look alike
        if session.session_id == 0 and session.unanswered:
            return  # the session is being opened
        changed = session.changed
        if not changed and not session.forgotten and (session.unanswered or not session.delayed_count):
            return
        leader = self._standing.image.brokers.get(session.leader_id)
        if leader is None:
            self._pause(session)
            return
        address = session.address = leader.address
        epoch = session.epoch
        for want in changed.values():
            want.state = _PARKED
            want.epoch = epoch
        topics = [FetchTopic(want.hosted.topic_id, [want.request])] if len(changed) == 1 else _topics(changed)
        session.delayed_count += len(changed)
        replica = session.replica
        if replica.replica_epoch != self._standing.broker_epoch:
            replica = session.replica = ReplicaState(self._node_id, self._standing.broker_epoch)
        body = FetchRequest(
            self._wait_max_ms, 1, topics, replica, _MAX_BYTES, READ_UNCOMMITTED, session.session_id, epoch
        )
        session.changed = {}
        if session.forgotten:
            body.forgotten_topics_data = [ForgottenTopic(topic_id, [number]) for topic_id, number in session.forgotten]
            session.forgotten = []
        session.epoch = epoch + 1
        correlation_id = effects.request(address, body)
        if correlation_id < 0:
            self._pause(session)
            return
        if not session.watched:
            session.watched = True
            effects.timers.call_at(effects.now_ns + self._timeout_ns, lambda: self._check(session))
        session.unanswered[correlation_id] = (epoch, effects.now_ns)
        self._by_correlation[correlation_id] = session

    def _check(self, session: _LeaderSession) -> None:
        """End the session if its oldest unanswered request has waited too long; called by a
        timer."""
        session.watched = False
        for _, sent_ns in session.unanswered.values():
            due = sent_ns + self._timeout_ns
            if due <= self._effects.now_ns:
                self._reset(session)
            else:
                session.watched = True
                self._effects.timers.call_at(due, lambda: self._check(session))
            return

    def _pause(self, session: _LeaderSession) -> None:
        effects = self._effects
        session.retry_ns = effects.now_ns + self._backoff_ns
        self._reset(session)
        effects.timers.call_at(session.retry_ns, lambda: self._touch(session))

    def _touch(self, session: _LeaderSession) -> None:
        if not session.dirty and session.members:
            session.dirty = True
            self.dirty.append(session)

    def _reset(self, session: _LeaderSession) -> None:
        """End the session; all wishes go into the next one."""
        session.session_id = 0
        session.epoch = 0
        session.delayed_count = 0
        session.forgotten = []
        for key, want in session.members.items():
            if want.state != _IDLE:
                want.state = _CHANGED
                session.changed[key] = want
        self._drop_unanswered(session)
        self._touch(session)

    def _drop_unanswered(self, session: _LeaderSession) -> None:
        for correlation_id in session.unanswered:
            self._by_correlation.pop(correlation_id, None)
        session.unanswered = {}


def _topics(wants: dict[PartitionKey, FetchInterest]) -> list[FetchTopic]:
    by_topic: dict[str, list[FetchPartition]] = {}
    for key, want in wants.items():
        by_topic.setdefault(key[0], []).append(want.request)
    return [FetchTopic(topic_id, partitions) for topic_id, partitions in by_topic.items()]
