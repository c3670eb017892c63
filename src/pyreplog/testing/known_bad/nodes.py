"""Wrong rules of a node, each one overridden method."""

from __future__ import annotations

from typing import Final

from pyreplog.node import Effects, MetadataListener, Node
from pyreplog.ports import Address
from pyreplog.wire import Response, ResponseBody

__all__ = ["AsksOnce", "LeasesByWallClock", "LooksOnce", "ServesForEver"]

_FAR_NS: Final = 1 << 62


class AsksOnce(MetadataListener):
    """A node whose request for metadata, or the response, was lost does not ask again: it never
    learns that it was elected."""

    def _expire(self, correlation_id: int) -> None:
        """Keep waiting for the response after the timeout."""


class ServesForEver(Node):
    """A leader that reaches no controller any more goes on to serve: its lease has no end."""

    def _answered(self, message: Response) -> None:
        """Take every lease that the controller grants as one for ever."""
        super()._answered(message)
        if self._standing.leased_until_ns >= 0:
            self._standing.leased_until_ns = _FAR_NS


class LeasesByWallClock(Node):
    """A leader measures its lease with the wall clock: set back, the clock extends a lease that the
    controller takes as ended."""

    _wall_end_ms: int | None = None

    def _answered(self, message: Response) -> None:
        """Note when the lease ends by the wall clock."""
        super()._answered(message)
        if self._standing.leased_until_ns >= 0:
            left_ns = self._standing.leased_until_ns - self._clock.monotonic_ns()
            self._wall_end_ms = self._clock.wall_ms() + left_ns // 1_000_000

    def poll(self, timeout_ns: int = 0) -> bool:
        """Compute the end of the lease anew."""
        if self._wall_end_ms is not None and self._standing.leased_until_ns >= 0:
            left_ms = self._wall_end_ms - self._clock.wall_ms()
            self._standing.leased_until_ns = max(self._clock.monotonic_ns() + left_ms * 1_000_000, 0)
        return super().poll(timeout_ns)


class _AnswersAtOnce(Effects):
    def answer(self, peer: Address, correlation_id: int, body: ResponseBody) -> None:
        """Answer without another look at the lease."""
        self.respond(peer, correlation_id, body)


class LooksOnce(Node):
    """A leader looks at its lease when a request comes, and not again before its answer leaves."""

    effects_class = _AnswersAtOnce
