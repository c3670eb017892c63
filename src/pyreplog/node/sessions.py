"""The leader's side of replication: one fetch session for each node that follows this one.

A session remembers the follower's request for each partition, so that the next message names only
the changed ones. The replicas keep the requests that they cannot answer yet. As soon as one of them
has an answer, the session's open message is answered with all answers of this turn. So idle
partitions cost nothing: a message that names no partition is held and answered empty, however many
partitions wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyreplog.controller import PartitionKey
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import HostedPartition
from pyreplog.node.traffic import size_of
from pyreplog.ports import Address, Random
from pyreplog.replica import FollowerFetch
from pyreplog.wire import (
    NO_ERROR,
    ErrorCode,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
    Request,
)

__all__ = ["LeaderFetchSessions"]

_MS: Final = 1_000_000
_NONE: Final = -1


class SessionPartition:
    """One partition in a session. ``request`` is None between an answer and the next request."""

    __slots__ = ("key", "request", "session", "sessions", "token")

    def __init__(self, sessions: LeaderFetchSessions, session: _FollowerSession, key: PartitionKey, token: int) -> None:
        self.sessions = sessions
        self.session = session
        self.key = key
        self.token = token
        self.request: FetchPartition | None = None

    def answer(self, result: PartitionData) -> None:
        """Queue the replica's answer, which completes the request."""
        self.request = None
        session = self.session
        session.ready[self.token] = (self.key[0], result)
        if not session.dirty:
            session.dirty = True
            self.sessions.dirty.append(session)


class _FollowerSession:
    """The session with one follower. ``open``: the message that waits for an answer."""

    __slots__ = (
        "broker_epoch",
        "dirty",
        "epoch",
        "open",
        "open_until_ns",
        "partitions",
        "peer",
        "ready",
        "replica_id",
        "session_id",
        "watched",
    )

    def __init__(self, replica: ReplicaState, session_id: int, peer: Address) -> None:
        self.replica_id = replica.replica_id
        self.broker_epoch = replica.replica_epoch
        self.session_id = session_id
        self.peer = peer
        self.epoch = 0
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.ready: dict[int, tuple[str, PartitionData]] = {}
        self.open = _NONE
        self.open_until_ns = 0
        self.dirty = False
        self.watched = False


class LeaderFetchSessions:
    """All sessions of this node as a leader."""

    def __init__(self, effects: Effects, hosted: Mapping[PartitionKey, HostedPartition], random: Random) -> None:
        self.dirty: list[_FollowerSession] = []
        self._effects = effects
        self._hosted = hosted
        self._random = random
        self._sessions: dict[int, _FollowerSession] = {}
        """The sessions by follower."""
        self._token = 0

    def fetch(self, message: Request, body: FetchRequest, replica: ReplicaState) -> None:
        """Handle a follower's message: open a session or continue it."""
        effects = self._effects
        session = self._sessions.get(replica.replica_id)
        if body.session_epoch == 0 and body.session_id == 0:
            if session is not None:
                self._close(session)
            session = _FollowerSession(replica, self._random.getrandbits(31) | 1, message.source)
            self._sessions[replica.replica_id] = session
        else:
            error = ErrorCode.NONE
            if session is None or session.session_id != body.session_id:
                error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            elif session.epoch != body.session_epoch:
                error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            if session is None or error != ErrorCode.NONE:
                effects.respond(message.source, message.correlation_id, FetchResponse([], error))
                return
            session.broker_epoch = replica.replica_epoch
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        if session.open != _NONE:
            effects.respond(session.peer, session.open, FetchResponse([], session_id=session.session_id))
        session.peer = message.source
        session.open = message.correlation_id
        session.open_until_ns = effects.now_ns + body.max_wait_ms * _MS
        for forgotten in body.forgotten_topics_data:
            for number in forgotten.partitions:
                self._leave(session, (forgotten.topic_id, number))
        for topic in body.topics:
            for request in topic.partitions:
                self._ask(session, (topic.topic_id, request.partition), request)
        if session.ready and not session.dirty:
            session.dirty = True
            self.dirty.append(session)
        if not session.watched:
            session.watched = True
            effects.timers.call_at(session.open_until_ns, lambda: self._watch(session))

    def disconnected(self, peer: Address) -> None:
        """Close the sessions with a follower's node that disconnected."""
        for session in list(self._sessions.values()):
            if session.peer == peer:
                self._close(session)

    def flush(self) -> None:
        """Answer the open message of each session that has answers."""
        dirty = self.dirty
        if not dirty:
            return
        self.dirty = []
        for session in dirty:
            session.dirty = False
            if session.open != _NONE and session.ready:
                self._answer(session)

    # ---------------------------------------------------------------------------------------- parts

    def _ask(self, session: _FollowerSession, key: PartitionKey, request: FetchPartition) -> None:
        partition = session.partitions.get(key)
        if partition is None:
            self._token -= 1
            partition = session.partitions[key] = SessionPartition(self, session, key, self._token)
            self._effects.reply_targets[partition.token] = partition
        else:
            session.ready.pop(partition.token, None)  # it answers an older request
        hosted = self._hosted.get(key)
        if hosted is None:
            partition.answer(PartitionData(key[1], ErrorCode.UNKNOWN_TOPIC_ID))
            return
        partition.request = request
        self._effects.run(
            hosted, FollowerFetch(session.peer, partition.token, request, session.replica_id, session.broker_epoch)
        )

    def _leave(self, session: _FollowerSession, key: PartitionKey) -> None:
        partition = session.partitions.pop(key, None)
        if partition is not None:
            session.ready.pop(partition.token, None)
            self._effects.reply_targets.pop(partition.token, None)

    def _close(self, session: _FollowerSession) -> None:
        for partition in session.partitions.values():
            self._effects.reply_targets.pop(partition.token, None)
        session.partitions = {}
        session.ready = {}
        session.open = _NONE
        if self._sessions.get(session.replica_id) is session:
            del self._sessions[session.replica_id]

    def _answer(self, session: _FollowerSession) -> None:
        ready = session.ready
        session.ready = {}
        if len(ready) == 1:
            for topic_id, data in ready.values():
                responses = [FetchableTopicResponse(topic_id, [data])]
        else:
            by_topic: dict[str, list[PartitionData]] = {}
            for topic_id, data in ready.values():
                by_topic.setdefault(topic_id, []).append(data)
            responses = [FetchableTopicResponse(topic_id, parts) for topic_id, parts in by_topic.items()]
        for _, data in ready.values():
            self._effects.traffic.bytes_to_followers += size_of(data)
        correlation_id = session.open
        session.open = _NONE
        self._effects.respond(session.peer, correlation_id, FetchResponse(responses, NO_ERROR, session.session_id))

    def _watch(self, session: _FollowerSession) -> None:
        """Answer an open message (empty) once its wait time ends; called by a timer."""
        session.watched = False
        if session.open == _NONE or self._sessions.get(session.replica_id) is not session:
            return
        if session.open_until_ns <= self._effects.now_ns:
            self._answer_empty(session)
            return
        session.watched = True
        self._effects.timers.call_at(session.open_until_ns, lambda: self._watch(session))

    def _answer_empty(self, session: _FollowerSession) -> None:
        correlation_id = session.open
        session.open = _NONE
        self._effects.respond(session.peer, correlation_id, FetchResponse([], session_id=session.session_id))
