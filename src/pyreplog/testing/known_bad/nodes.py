"""Wrong rules of a node, each one overridden method."""

from __future__ import annotations

from pyreplog.node import MetadataListener

__all__ = ["AsksOnce"]


class AsksOnce(MetadataListener):
    """A node whose question for metadata, or its answer, was lost does not ask again: it never
    hears what it is to lead."""

    def _expire(self, correlation_id: int) -> None:
        """The answer will come."""
