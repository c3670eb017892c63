"""Changes of topics and settings that a simulated cluster meets besides its faults.

``min.insync.replicas`` of a topic is raised above its option and set back to it; never below,
because the acknowledgement table counts by the option. Topics grow, and their clients use the new
partitions. A topic without clients comes and goes.
"""

from __future__ import annotations

from random import Random
from typing import Final

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
    IncrementalAlterConfigsRequest,
)

__all__ = ["TopicEvents"]

PARTITIONS_MAX: Final = 4


class TopicEvents:
    """Makes one change at a time, drawn from ``random``. Each returns whether it was made."""

    def __init__(self, world: SimCluster, random: Random) -> None:
        self._world = world
        self._random = random

    def min_isr(self) -> bool:
        """Raise the minimum of in-sync replicas of a topic, or set it back."""
        topic = self._random.choice(list(self._world.options.topics))
        low, high = topic.min_insync_replicas, topic.replication_factor
        value = self._random.randint(low, max(low, high))
        return self._set_min_isr(topic, value)

    def _set_min_isr(self, topic: TopicOptions, value: int) -> bool:
        change = AlterableConfig("min.insync.replicas", CONFIG_SET, str(value))
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_TOPIC, topic.name, [change])])
        if self._world.decide(request) is None:
            return False
        self._world.say(f"min.insync.replicas of {topic.name} is {value}")
        return True

    def grow(self) -> bool:
        """Add a partition to a topic."""
        topic = self._random.choice(list(self._world.options.topics))
        found = self._world.image.topic(topic.name)
        count = 0 if found is None else len(found.partitions)
        if not 0 < count < PARTITIONS_MAX or not self._all_are_registered():
            return False
        answer = self._world.decide(CreatePartitionsRequest([CreatePartitionsTopic(topic.name, count + 1)]))
        if answer is None or answer.results[0].error_code:
            return False
        self._world.say(f"{topic.name} has {count + 1} partitions")
        self.tell_clients()
        return True

    def passing_topic(self) -> bool:
        """Make the topic without clients, or delete it."""
        passing = self._world.passing_topic
        if self._world.image.topic(passing.name) is None:
            if not self._all_are_registered():
                return False
            answer = self._world.decide(CreateTopicsRequest([passing.creatable()]))
            if answer is None or answer.topics[0].error_code:
                return False  # no node is up
            self._world.say(f"topic {passing.name} is made")
            return True
        if self._world.decide(DeleteTopicsRequest([DeleteTopicState(passing.name)])) is None:
            return False
        self._world.say(f"topic {passing.name} is deleted")
        return True

    def _all_are_registered(self) -> bool:
        """Return whether no new partition can be placed on a disk that the controller does not know
        to be gone: it would count as lost before it had a record."""
        return all(self._world.is_registered(node_id) for node_id in self._world.machines)

    def settle(self) -> None:
        """Set the minimums back, and tell the clients of all partitions, for the liveness phase."""
        for topic in self._world.options.topics:
            found = self._world.image.topic(topic.name)
            if found is not None and found.log_config.min_insync_replicas != topic.min_insync_replicas:
                self._set_min_isr(topic, topic.min_insync_replicas)
            if found is not None and len(found.partitions) != topic.partitions:
                self.tell_clients()

    def tell_clients(self) -> None:
        """Let producers and consumers ask for their topics again, as a cluster does."""
        clients: list[SimProducer | SimConsumer] = [*self._world.producers, *self._world.consumers]
        for client in clients:
            for topic in self._world.options.topics:
                client.refresh(topic.name)
            self._world.touch(client.address)
