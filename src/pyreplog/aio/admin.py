"""Admin for asyncio: the blocking class, with its calls in threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, SupportsIndex

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.reassignments import ReassignmentHandle
from pyreplog.config import LogConfig
from pyreplog.errors import PyreplogError
from pyreplog.runtime import (
    ClusterDescription,
    ElectedLeader,
    GrownTopic,
    ListedPartition,
    ListedState,
    NewTopic,
    PartitionReassignment,
    Placement,
    RebalancePlan,
    RecoveredPartition,
    TopicDescription,
)
from pyreplog.values import QuorumInfo, TopicCompaction, TopicPartition

__all__ = ["Admin"]


class Admin:
    """Makes and describes topics. It is ``cluster.admin``. See :class:`pyreplog.Admin`."""

    def __init__(self, admin: runtime.Admin, calls: ThreadCalls) -> None:
        """Use ``cluster.admin`` to get one."""
        self._admin = admin
        self._calls = calls

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an Admin cannot be copied or pickled: it belongs to its cluster, in this process")

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, object] | LogConfig | None = None,
        *,
        placement: Placement = "striped",
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> TopicDescription:
        """Make a topic and return when it can be used. See :meth:`pyreplog.Admin.create_topic`."""
        return await self._calls.read(
            self._admin.create_topic,
            name,
            partitions,
            replication_factor,
            config,
            placement=placement,
            exist_ok=exist_ok,
            timeout=timeout,
        )

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str | tuple[Any, ...] | Mapping[str, Any]],
        *,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription | PyreplogError]:
        """Make several topics with one request; return the description or the error of each. See
        :meth:`pyreplog.Admin.create_topics`."""
        return await self._calls.read(self._admin.create_topics, topics, exist_ok=exist_ok, timeout=timeout)

    async def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a topic with all its records. See :meth:`pyreplog.Admin.delete_topic`."""
        await self._calls.read(self._admin.delete_topic, name, timeout=timeout)

    async def create_partitions(
        self, topic: str, total: int, *, placement: Placement = "striped", timeout: float | None = None
    ) -> GrownTopic:
        """Let a topic have more partitions, ``total`` in all. See :meth:`pyreplog.Admin.create_partitions`."""
        return await self._calls.read(self._admin.create_partitions, topic, total, placement=placement, timeout=timeout)

    async def alter_config(
        self, topic: str, config: Mapping[str, object | None] | LogConfig, *, timeout: float | None = None
    ) -> TopicDescription:
        """Change settings of a topic; None resets one. See :meth:`pyreplog.Admin.alter_config`."""
        return await self._calls.read(self._admin.alter_config, topic, config, timeout=timeout)

    async def alter_cluster_config(
        self, config: Mapping[str, object | None] | LogConfig, *, timeout: float | None = None
    ) -> dict[str, str]:
        """Change the cluster's defaults of topic settings; return all that it has been given. See
        :meth:`pyreplog.Admin.alter_cluster_config`."""
        return await self._calls.read(self._admin.alter_cluster_config, config, timeout=timeout)

    async def compact(self, topic: str, *, timeout: float | None = None) -> TopicCompaction:
        """Keep only the newest record of each key in a compacted topic. See :meth:`pyreplog.Admin.compact`."""
        return await self._calls.read(self._admin.compact, topic, timeout=timeout)

    async def describe_cluster(self) -> ClusterDescription:
        """Return the nodes with their states, and the cluster's defaults."""
        return await self._calls.read(self._admin.describe_cluster)

    async def add_nodes(
        self, node_ids: Iterable[int], racks: Sequence[str] | None = None, *, timeout: float | None = 30.0
    ) -> ClusterDescription:
        """Start new, empty nodes. See :meth:`pyreplog.Admin.add_nodes`."""
        return await self._calls.write(self._admin.add_nodes, node_ids, racks, timeout=timeout)

    async def remove_nodes(self, node_ids: Iterable[int], *, timeout: float | None = None) -> ClusterDescription:
        """Take nodes out of the cluster. See :meth:`pyreplog.Admin.remove_nodes`."""
        return await self._calls.write(self._admin.remove_nodes, node_ids, timeout=timeout)

    async def cordon(self, node_id: int) -> None:
        """Give a node no new replicas. See :meth:`pyreplog.Admin.cordon`."""
        await self._calls.read(self._admin.cordon, node_id)

    async def uncordon(self, node_id: int) -> None:
        """Let a node get new replicas again. See :meth:`pyreplog.Admin.uncordon`."""
        await self._calls.read(self._admin.uncordon, node_id)

    async def rebalance(self, dry_run: bool = False, *, timeout: float | None = None) -> RebalancePlan:
        """Spread the replicas evenly with the fewest moves. See :meth:`pyreplog.Admin.rebalance`."""
        return await self._calls.read(self._admin.rebalance, dry_run, timeout=timeout)

    async def alter_replication_factor(
        self, topic: str, replication_factor: int, *, dry_run: bool = False, timeout: float | None = None
    ) -> RebalancePlan:
        """Give a topic more or fewer replicas. See :meth:`pyreplog.Admin.alter_replication_factor`."""
        return await self._calls.read(
            self._admin.alter_replication_factor, topic, replication_factor, dry_run=dry_run, timeout=timeout
        )

    async def reassign(
        self, replicas: Mapping[TopicPartition, Sequence[int]], *, wait: bool = True, timeout: float | None = None
    ) -> ReassignmentHandle:
        """Give partitions other replicas. See :meth:`pyreplog.Admin.reassign`."""
        handle = await self._calls.read(self._admin.reassign, replicas, wait=wait, timeout=timeout)
        return ReassignmentHandle(handle, self._calls)

    async def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions that are getting other replicas now."""
        return await self._calls.read(self._admin.list_reassignments)

    async def cancel_reassignment(self, topic_partition: TopicPartition, *, timeout: float | None = None) -> None:
        """Let a partition keep the replicas that it had. See :meth:`pyreplog.Admin.cancel_reassignment`."""
        await self._calls.read(self._admin.cancel_reassignment, topic_partition, timeout=timeout)

    async def replace_node(self, node_id: int, *, timeout: float | None = 30.0) -> None:
        """Start a node whose folder or metadata is lost, and let it copy both. See
        :meth:`pyreplog.Admin.replace_node`."""
        await self._calls.write(self._admin.replace_node, node_id, timeout=timeout)

    async def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of the topics, sorted; with ``internal`` also of a system's own ones, ``__...``."""
        return await self._calls.read(self._admin.topics, internal=internal)

    async def describe(self, name: str) -> TopicDescription:
        """Return one topic's partitions and settings."""
        return await self._calls.read(self._admin.describe, name)

    async def list_partitions(self, state: ListedState) -> list[ListedPartition]:
        """Return the partitions in a state. See :meth:`pyreplog.Admin.list_partitions`."""
        return await self._calls.read(self._admin.list_partitions, state)

    async def describe_quorum(self) -> QuorumInfo:
        """Return the voters and the observers of the metadata log. See :meth:`pyreplog.Admin.describe_quorum`."""
        return await self._calls.read(self._admin.describe_quorum)

    async def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete the records below these offsets, by partition; return the new log start offsets."""
        return await self._calls.read(self._admin.delete_records, topic, offsets)

    async def elect_leaders(
        self, topic: str, partitions: Sequence[int] = (0,), *, unclean: bool = False
    ) -> dict[int, ElectedLeader]:
        """Have the preferred leaders lead again; return what each election lost.

        See :meth:`pyreplog.Admin.elect_leaders`.
        """
        return await self._calls.read(self._admin.elect_leaders, topic, partitions, unclean=unclean)

    async def recover_partition(
        self, topic: str, partition: int, *, dry_run: bool = False, timeout: float | None = 10.0
    ) -> RecoveredPartition:
        """Give a partition without a leader the best leader that is left. See
        :meth:`pyreplog.Admin.recover_partition`."""
        return await self._calls.read(self._admin.recover_partition, topic, partition, dry_run=dry_run, timeout=timeout)

    def __repr__(self) -> str:
        return repr(self._admin).replace("pyreplog.", "pyreplog.aio.", 1)
