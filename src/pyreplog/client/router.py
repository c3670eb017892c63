"""Router: the leader of each partition, as far as this client knows. If the information proves
wrong it asks again, with growing pauses.

It never guesses: while a partition has no known leader, no request is sent for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyreplog.client.calls import MS, RequestTracker
from pyreplog.errors import ClusterError, UnknownTopicError, cluster_error, copy_for_raise
from pyreplog.ports import Address, Clock, Random
from pyreplog.wire import (
    NO_ERROR,
    ErrorCode,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
    PartitionProduceResponse,
    ProduceResponse,
)

__all__ = ["BACKOFF_MAX_MS", "BACKOFF_MS", "Router", "TopicRoute", "address_of", "backoff_ns"]

BACKOFF_MS: Final = 2
"""The pause after the first failure. It doubles up to :data:`BACKOFF_MAX_MS`, plus or minus a
fifth."""
BACKOFF_MAX_MS: Final = 1000
PATIENCE_MS: Final = 1000
"""The time in which a node must answer before another is asked. Metadata is in every node's
memory."""
_PASSING: Final = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
"""Answers about a topic that mean that the node does not know yet."""


def backoff_ns(failures: int, random: Random) -> int:
    """Return the pause after ``failures`` failures in a row (at least one)."""
    pause = min(BACKOFF_MS << min(failures - 1, 10), BACKOFF_MAX_MS) * MS
    return int(pause * (0.8 + 0.4 * random.random()))


def address_of(broker: MetadataResponseBroker) -> Address:
    """Return the address of a node. A node in this process has a name and no port."""
    return broker.host if broker.port == 0 else f"{broker.host}:{broker.port}"


@dataclass(slots=True)
class TopicRoute:
    """One topic: its id, and by partition number the leader (-1: none known), leader epoch and
    in-sync set."""

    name: str
    topic_id: str
    leaders: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    isrs: list[Sequence[int]] = field(default_factory=list)


class Router:
    """The metadata that one client needs. One owner.

    ``bootstrap``: the addresses to ask first, each in turn; then the known nodes are asked.
    """

    def __init__(self, calls: RequestTracker, clock: Clock, random: Random, bootstrap: Sequence[Address]) -> None:
        self._calls = calls
        self._now_ns = clock.monotonic_ns
        self._random = random
        self._bootstrap = list(bootstrap)
        self.addresses: dict[int, Address] = {}
        """The address of each node. Read-only."""
        self.racks: dict[int, str | None] = {}
        """The rack of each node. Read-only."""
        self.topics: dict[str, TopicRoute] = {}
        """The known topics, by name. Read-only."""
        self._names: dict[str, str] = {}  # topic id -> name
        self._unknown: dict[str, ClusterError] = {}
        self._denials: dict[str, int] = {}
        self._doubts: dict[str, set[Address]] = {}
        """By name: the nodes that reported an earlier topic of that name since the known one was
        last confirmed."""
        self.wanted: dict[str, None] = {}
        """The topics to ask for."""
        self.asking: list[str] | None = None
        """The topics of the open request. Without these and ``wanted``, :meth:`poll` has no
        work."""
        self._patience_ns = 0  # time at which the open request is given up
        self._question = 0
        self._asked: Address = ""
        self._next_peer = 0
        self._failures = 0
        self._turned_away = 0
        """Nodes in a row that refused to answer because they are fenced."""
        self._retry_ns: int | None = None

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` wants to ask again."""
        if self.asking is not None:
            return self._patience_ns
        return self._retry_ns if self.wanted else None

    def topic(self, name: str) -> TopicRoute | None:
        """Return the known route of the topic.

        None: it is not known yet (call :meth:`want`), or it does not exist (see :meth:`refusal`).
        """
        return self.topics.get(name)

    def knows(self, name: str) -> bool:
        """Return whether the topic's partitions are known.

        Raises the refusal if the cluster answered that there is no such topic.
        """
        if name in self.topics:
            return True
        refusal = self._unknown.get(name)
        if refusal is not None:
            raise copy_for_raise(refusal)
        return False

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of a topic by any id that it ever had here."""
        return self._names.get(topic_id)

    def produced(self, answer: ProduceResponse | None) -> dict[tuple[str | None, int], PartitionProduceResponse]:
        """Return a leader's results by (topic name, partition number); nothing if no answer
        came."""
        results: dict[tuple[str | None, int], PartitionProduceResponse] = {}
        if answer is not None:
            for topic in answer.responses:
                name = self._names.get(topic.topic_id)  # another topic may have that name now
                for partition in topic.partition_responses:
                    results[name, partition.index] = partition
        return results

    def refusal(self, name: str) -> ClusterError | None:
        """Return the reason why the last answer did not have that topic, or None."""
        return self._unknown.get(name)

    def address(self, node_id: int) -> Address | None:
        """Return the address of a node, or None."""
        return self.addresses.get(node_id)

    def peers(self) -> list[Address]:
        """Return the nodes to ask, in turn, for answers that any node can give."""
        peers = list(dict.fromkeys([*self.addresses.values(), *self._bootstrap]))
        first = self._next_peer % len(peers)
        return peers[first:] + peers[:first]

    def turn(self) -> None:
        """Ask another node next, because the last one did not help."""
        self._next_peer += 1

    def want(self, name: str) -> None:
        """Ask for the topic, now or after the current pause."""
        self._unknown.pop(name, None)
        if self.asking is None or name not in self.asking:
            self.wanted.setdefault(name)

    def stale_leader(self, name: str, partition: int, leader: int) -> None:
        """Forget ``leader``, which does not lead or does not answer, and ask for the topic."""
        route = self.topics.get(name)
        if route is not None and partition < len(route.leaders) and route.leaders[partition] == leader:
            route.leaders[partition] = -1
            self._next_peer += 1  # the node that named it may lag
        self.want(name)

    def poll(self) -> bool:
        """Ask for the wanted topics; return whether a request was sent."""
        if not self.wanted and self.asking is None:
            return False
        now = self._now_ns()
        if self.asking is not None:
            if now < self._patience_ns:
                return False
            self._answered(self._question, None)  # a hanging node must not block the others
        if self._retry_ns is not None and now < self._retry_ns:
            return False
        for peer in self.peers():
            names = list(self.wanted)
            self._question += 1
            question = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
            if self._calls.send(peer, question, partial(self._answered, self._question)):
                self.asking = names
                self._asked = peer
                self._patience_ns = now + PATIENCE_MS * MS
                self.wanted.clear()
                self._retry_ns = None
                return True
            self._next_peer += 1
        self._pause()
        return False

    def _answered(self, question: int, answer: MetadataResponse | None) -> None:
        if question != self._question or self.asking is None:
            return  # too late: another node was asked since
        asked, self.asking = self.asking, None
        if answer is None:
            self._next_peer += 1
            for name in asked:
                self.wanted.setdefault(name)
            self._pause()
            return
        if answer.error_code != NO_ERROR:
            self._turn_away(asked)
            return
        self._turned_away = 0
        for broker in answer.brokers:
            self.addresses[broker.node_id] = address_of(broker)
            self.racks[broker.node_id] = broker.rack
        leaderless = False
        for topic in answer.topics:
            leaderless |= self._take(topic)
        if leaderless:
            # Another node may know more, a little later.
            self._next_peer += 1
            self._pause()
        else:
            self._failures = 0
            self._retry_ns = None

    def _turn_away(self, asked: Sequence[str]) -> None:
        """Ask the next node at once; pause only after each node has refused."""
        self._next_peer += 1
        for name in asked:
            self.wanted.setdefault(name)
        self._turned_away += 1
        if self._turned_away % len(self.peers()) == 0:
            self._pause()
        else:
            self._retry_ns = None

    def _take(self, topic: MetadataResponseTopic) -> bool:
        name = topic.name
        if name is None:
            return False
        if topic.error_code != NO_ERROR:
            return self._denied(name, topic.error_code)
        self._denials.pop(name, None)
        route = self.topics.get(name)
        if route is None or route.topic_id != topic.topic_id:
            if topic.topic_id in self._names and not self._is_outvoted(name):
                self.wanted.setdefault(name)
                return True
            route = self.topics[name] = TopicRoute(name, topic.topic_id)
            self._names[topic.topic_id] = name
        self._doubts.pop(name, None)
        leaderless = False
        for partition in sorted(topic.partitions, key=lambda entry: entry.partition_index):
            index = partition.partition_index
            while len(route.leaders) <= index:
                route.leaders.append(-1)
                route.epochs.append(-1)
                route.isrs.append(())
            if partition.leader_epoch < route.epochs[index]:
                # Older metadata, from a node that lags.
                leaderless |= route.leaders[index] < 0
                continue
            # A leader that has just refused may be named again in the same epoch. Accept it: the
            # refusal is soon out of date.
            route.leaders[index] = partition.leader_id
            route.epochs[index] = partition.leader_epoch
            route.isrs[index] = partition.isr_nodes
            leaderless |= partition.leader_id < 0
        if leaderless:
            self.wanted.setdefault(name)
        return leaderless

    def _is_outvoted(self, name: str) -> bool:
        """Decide between two topics of one name, when a node reports an earlier one than the known
        topic.

        Normally that node lags. If more than half of the nodes report the earlier one in a row, the
        node that reported the known topic lagged.
        """
        doubts = self._doubts.setdefault(name, set())
        doubts.add(self._asked)
        return len(doubts) > (len(self.addresses) or len(self._bootstrap)) // 2

    def _denied(self, name: str, code: int) -> bool:
        """Note that a node does not know the topic; return whether to ask again after a pause.

        A node that has just started may lag. So the topic counts as unknown only if it was never
        known and as many answers deny it as there are nodes to ask first.
        """
        if code in _PASSING or name in self.topics:
            self.wanted.setdefault(name)
            return True
        denials = self._denials.get(name, 0) + 1
        if denials < len(self._bootstrap):
            self._denials[name] = denials
            self.wanted.setdefault(name)
            self._next_peer += 1
        else:
            self._denials.pop(name, None)
            hint = "; admin.create_topic makes one" if code == UnknownTopicError.code else ""
            self._unknown[name] = cluster_error(code, f"{name!r}{hint}")
        return False

    def _pause(self) -> None:
        self._failures += 1
        self._retry_ns = self._now_ns() + backoff_ns(self._failures, self._random)
