"""AioBreakableCluster: the asyncio form of BreakableCluster."""

from __future__ import annotations

import errno as errors
from collections.abc import Sequence

from pyreplog.aio import Cluster
from pyreplog.testing.breakable import BreakableCluster

__all__ = ["AioBreakableCluster"]


class AioBreakableCluster(Cluster):
    """A :class:`pyreplog.aio.Cluster` with the controls of :class:`BreakableCluster`, awaited. The pytest fixture
    ``aio_replog_cluster`` makes one.

    It is open already, so a test uses it in whatever event loop runs; in one loop after the other, too. The owner
    of ``cluster`` closes it.
    """

    def __init__(self, cluster: BreakableCluster) -> None:
        """Wrap ``cluster``, which must be open."""
        self._broken = cluster
        self._stand_for(cluster)

    async def kill(self, node: int) -> None:
        """See :meth:`BreakableCluster.kill`."""
        await self._calls.write(self._broken.kill, node)

    async def restart(self, node: int) -> None:
        """See :meth:`BreakableCluster.restart`."""
        await self._calls.write(self._broken.restart, node)

    async def pause(self, node: int) -> None:
        """See :meth:`BreakableCluster.pause`."""
        await self._calls.write(self._broken.pause, node)

    async def resume(self, node: int) -> None:
        """See :meth:`BreakableCluster.resume`."""
        await self._calls.write(self._broken.resume, node)

    async def partition(self, *groups: Sequence[int | str]) -> None:
        """See :meth:`BreakableCluster.partition`."""
        await self._calls.write(self._broken.partition, *groups)

    async def cut(self, source: int | str, target: int | str) -> None:
        """See :meth:`BreakableCluster.cut`."""
        await self._calls.write(self._broken.cut, source, target)

    async def heal(self) -> None:
        """See :meth:`BreakableCluster.heal`."""
        await self._calls.write(self._broken.heal)

    async def slow_disk(self, node: int, seconds: float) -> None:
        """See :meth:`BreakableCluster.slow_disk`."""
        await self._calls.write(self._broken.slow_disk, node, seconds)

    async def fail_disk(self, node: int, *, calls: Sequence[str] = ("write", "sync"), errno: int = errors.EIO) -> None:
        """See :meth:`BreakableCluster.fail_disk`."""
        await self._calls.write(self._broken.fail_disk, node, calls=calls, errno=errno)

    async def tear(self, node: int) -> int:
        """See :meth:`BreakableCluster.tear`."""
        return await self._calls.write(self._broken.tear, node)

    def release(self) -> None:
        """End the threads in which the calls ran. The cluster stays open; no other call may follow."""
        self._calls.stop()
