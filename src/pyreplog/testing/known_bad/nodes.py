"""Wrong rules of a node, each one overridden method."""

from __future__ import annotations

from pyreplog.node import MetadataListener

__all__ = ["AsksOnce"]


class AsksOnce(MetadataListener):
    """A node whose request for metadata, or the response, was lost does not ask again: it never
    learns that it was elected."""

    def _expire(self, correlation_id: int) -> None:
        """Keep waiting for the response after the timeout."""
