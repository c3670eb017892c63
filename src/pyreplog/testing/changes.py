"""Changes of topics and settings that a simulated cluster meets besides its faults.

``min.insync.replicas`` of a topic is raised above its option and set back to it; never below,
because the acknowledgement table counts by the option. Topics grow, and their clients use the new
partitions. A topic without clients comes and goes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from pyreplog.testing.options import TopicOptions
from pyreplog.testing.sim_cluster import SimCluster
from pyreplog.testing.workload import SimConsumer, SimProducer
from pyreplog.wire import (
    CONFIG_SET,
    RESOURCE_TOPIC,
    AlterableConfig,
    AlterConfigsResource,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    RequestBody,
)

__all__ = ["TopicEvents"]

PARTITIONS_MAX: Final = 4
SETTLE_EVERY_MS: Final = 200
SETTLES_MAX: Final = 25
_UNKNOWN: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
"""The answers after which a change may be made nevertheless."""


class TopicEvents:
    """Asks for one change at a time, drawn from ``random``. Each returns whether a controller was asked.

    Its answer comes later, and may be lost: then nobody knows whether the change was made.
    """

    def __init__(self, world: SimCluster, random: Random) -> None:
        self._world = world
        self._random = random
        self._asked: dict[str, int] = {}
        """The minimum of in-sync replicas that was asked for last, by topic."""
        self._told = {topic.name: topic.partitions for topic in world.options.topics}
        """The number of partitions that the clients were told of."""
        self._settled = 0

    def _partitions(self, name: str) -> int:
        found = self._world.image.topic(name)
        return 0 if found is None else len(found.partitions)

    def min_isr(self) -> bool:
        """Raise the minimum of in-sync replicas of a topic, or set it back."""
        topic = self._random.choice(list(self._world.options.topics))
        low, high = topic.min_insync_replicas, topic.replication_factor
        value = self._random.randint(low, max(low, high))
        if self._world.changes_are_open:
            value = self._asked.get(topic.name, value)  # the outcome of the last question is not known
        elif not self._world.is_whole(topic.name):
            return False
        return self._set_min_isr(topic, value)

    def _min_isr_of(self, topic: TopicOptions) -> int:
        found = self._world.image.topic(topic.name)
        return 0 if found is None else found.log_config.min_insync_replicas

    def _set_min_isr(self, topic: TopicOptions, value: int) -> bool:
        self._asked[topic.name] = value
        return self._set(topic, "min.insync.replicas", str(value), lambda: self._min_isr_of(topic) == value)

    def _set(self, topic: TopicOptions, name: str, value: str, is_made: Callable[[], bool] | None = None) -> bool:
        change = AlterableConfig(name, CONFIG_SET, value)
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_TOPIC, topic.name, [change])])
        return self._ask(f"{name} of {topic.name} is {value}", request, is_made)

    def policy(self) -> bool:
        """Let a compacted topic be compacted no more, or again. It may have gaps all the same."""
        topics = [topic for topic in self._world.options.topics if topic.compacts]
        if not topics:
            return False
        topic = self._random.choice(topics)
        return self._set(topic, "cleanup.policy", "delete" if self._compacts(topic) else topic.cleanup_policy)

    def _compacts(self, topic: TopicOptions) -> bool:
        found = self._world.image.topic(topic.name)
        return found is not None and found.log_config.compacts

    def grow(self) -> bool:
        """Add a partition to a topic."""
        topic = self._random.choice(list(self._world.options.topics))
        count = self._partitions(topic.name) + 1
        if not 1 < count <= PARTITIONS_MAX or not self._all_are_registered():
            return False
        request = CreatePartitionsRequest([CreatePartitionsTopic(topic.name, count)])
        return self._ask(f"{topic.name} has {count} partitions", request, lambda: self._partitions(topic.name) >= count)

    def _ask(self, text: str, request: RequestBody, is_made: Callable[[], bool] | None = None) -> bool:
        """Ask for a change. ``is_made``: see :attr:`SimCluster.open_changes`."""
        is_first = text not in self._world.open_changes

        def done(answer: Any) -> None:
            code = _code_of(answer)
            self._world.say(f"{text}: {code.name}")
            if is_first and code not in _UNKNOWN:
                self._world.open_changes.pop(text, None)  # it is made, or refused for good
            self.tell_clients()

        if not self._world.ask_controller(request, done):
            return False
        if is_made is not None:
            self._world.open_changes[text] = is_made
        return True

    def passing_topic(self) -> bool:
        """Make the topic without clients, or delete it."""
        passing = self._world.passing_topic
        if self._world.image.topic(passing.name) is not None:
            return self._ask(f"{passing.name} is deleted", DeleteTopicsRequest([DeleteTopicState(passing.name)]))
        if not self._all_are_registered():
            return False
        return self._ask(f"{passing.name} is made", CreateTopicsRequest([passing.creatable()]))

    def _all_are_registered(self) -> bool:
        """Return whether no new partition can be placed on a disk that the controller does not know
        to be gone: it would count as lost before it had a record."""
        machines = self._world.machines.values()
        return all(self._world.is_registered(machine.node_id) for machine in machines if machine.is_broker)

    def settle(self) -> None:
        """Set minimums and policies back, and tell the clients of all partitions, until the end of the liveness phase:
        a change that was asked for earlier may still be made."""
        topics = self._world.options.topics
        for topic in topics:
            minimum = self._min_isr_of(topic)
            if minimum not in (0, topic.min_insync_replicas) and self._world.is_whole(topic.name):
                self._set_min_isr(topic, topic.min_insync_replicas)
            if topic.compacts and not self._compacts(topic):
                self._set(topic, "cleanup.policy", topic.cleanup_policy)
        self._settled += 1
        if self._settled < SETTLES_MAX and any(self._partitions(one.name) != one.partitions for one in topics):
            self._told = {}  # a node that they asked earlier may not have known of the growth yet
        self.tell_clients()
        self._world.plan(SETTLE_EVERY_MS, self.settle)

    def tell_clients(self) -> None:
        """Let producers and consumers ask for their topics again, as a cluster does, if one of them has grown."""
        counts = {topic.name: self._partitions(topic.name) for topic in self._world.options.topics}
        if counts == self._told:
            return
        self._told = counts
        clients: list[SimProducer | SimConsumer] = [*self._world.producers, *self._world.consumers]
        for client in clients:
            for topic in self._world.options.topics:
                client.refresh(topic.name)
            self._world.touch(client.address)


def _code_of(answer: Any) -> ErrorCode:
    """Return the error code of the only topic in an answer."""
    for name in ("topics", "responses", "results"):
        for one in getattr(answer, name, ()):
            return ErrorCode(one.error_code)
    return ErrorCode.NONE
