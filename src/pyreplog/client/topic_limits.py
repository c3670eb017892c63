"""The limits that a topic sets for the batches of a producer."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TopicLimits"]


class TopicLimits(NamedTuple):
    """The batches that a topic takes. Sizes in bytes."""

    several_max: int
    """The largest batch of several records."""
    alone_max: int
    """The largest batch of one record."""
    needs_keys: bool = False
    """Whether each record must have a key, because the topic is compacted."""
