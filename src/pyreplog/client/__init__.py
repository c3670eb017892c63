"""Clients: polled machines that speak wire over a Transport. The door.

The runtime gives them blocking faces; a simulation polls the very same objects.
"""

from __future__ import annotations

from pyreplog.client.acks import Acks
from pyreplog.client.admin import Admin, Answer
from pyreplog.client.consumer import Consumer, ConsumerConfig, OffsetAnswer
from pyreplog.client.outcome import Outcome, Owner, Pending
from pyreplog.client.producer import ACKS, Producer, ProducerConfig
from pyreplog.client.relay import Relay

__all__ = [
    "ACKS",
    "Acks",
    "Admin",
    "Answer",
    "Consumer",
    "ConsumerConfig",
    "OffsetAnswer",
    "Outcome",
    "Owner",
    "Pending",
    "Producer",
    "ProducerConfig",
    "Relay",
]
