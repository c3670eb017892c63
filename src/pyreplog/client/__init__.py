"""Clients: polled machines that exchange messages over a Transport.

The runtime gives them blocking interfaces; a simulation polls the same objects.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyreplog.client.acks import Acks
from pyreplog.client.failures import Failures
from pyreplog.client.outcome import BatchResult, Completion, Owner

if TYPE_CHECKING:
    from pyreplog.client.admin import Admin, Answer
    from pyreplog.client.consumer import Consumer, Ends
    from pyreplog.client.consumer_config import ConsumerConfig
    from pyreplog.client.offset_lookups import OffsetAnswer
    from pyreplog.client.producer import Producer
    from pyreplog.client.producer_config import ACKS, ProducerConfig
    from pyreplog.client.relay import BatchForwarder

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
    "Producer",
    "ProducerConfig",
    "BatchForwarder",
]

_LATER: Final = {
    "ACKS": ".producer_config",
    "Admin": ".admin",
    "Answer": ".admin",
    "Consumer": ".consumer",
    "ConsumerConfig": ".consumer_config",
    "Ends": ".consumer",
    "OffsetAnswer": ".offset_lookups",
    "Producer": ".producer",
    "ProducerConfig": ".producer_config",
    "BatchForwarder": ".relay",
}


def __getattr__(name: str) -> object:
    """Import a name on first use, because the wire modules take longer to import than a log to
    open."""
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}{room}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
