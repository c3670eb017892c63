"""Clients: polled machines that exchange messages over a Transport.

The runtime gives them blocking interfaces; a simulation polls the same objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyreplog.client.acks import Acks
from pyreplog.client.failures import Failures
from pyreplog.client.outcome import BatchResult, Completion, Owner
from pyreplog.lazy_door import lazy_door

if TYPE_CHECKING:
    from pyreplog.client.accumulator import PartitionQueue
    from pyreplog.client.admin import Admin, Answer
    from pyreplog.client.batch_forwarder import BatchForwarder
    from pyreplog.client.changes import (
        added_voter,
        altered_configs,
        altered_reassignments,
        creatable,
        created_partitions,
        created_topics,
        deleted_topic,
        removed_voter,
        running_reassignments,
        unregistered_broker,
    )
    from pyreplog.client.consumer import Consumer, Ends
    from pyreplog.client.consumer_config import ConsumerConfig
    from pyreplog.client.offset_lookups import OffsetAnswer
    from pyreplog.client.producer import Producer
    from pyreplog.client.producer_config import ACKS, ProducerConfig
    from pyreplog.client.topic_limits import TopicLimits

__all__ = [
    "ACKS",
    "Acks",
    "Admin",
    "Answer",
    "Consumer",
    "ConsumerConfig",
    "Ends",
    "Failures",
    "OffsetAnswer",
    "BatchResult",
    "Owner",
    "Completion",
    "PartitionQueue",
    "Producer",
    "ProducerConfig",
    "BatchForwarder",
    "TopicLimits",
    "added_voter",
    "altered_configs",
    "altered_reassignments",
    "creatable",
    "created_partitions",
    "created_topics",
    "deleted_topic",
    "removed_voter",
    "running_reassignments",
    "unregistered_broker",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        ".accumulator": ["PartitionQueue"],
        ".admin": ["Admin", "Answer"],
        ".changes": [
            "added_voter",
            "altered_configs",
            "altered_reassignments",
            "creatable",
            "created_partitions",
            "created_topics",
            "deleted_topic",
            "removed_voter",
            "running_reassignments",
            "unregistered_broker",
        ],
        ".consumer": ["Consumer", "Ends"],
        ".consumer_config": ["ConsumerConfig"],
        ".offset_lookups": ["OffsetAnswer"],
        ".producer": ["Producer"],
        ".producer_config": ["ACKS", "ProducerConfig"],
        ".topic_limits": ["TopicLimits"],
        ".batch_forwarder": ["BatchForwarder"],
    },
)
