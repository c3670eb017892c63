"""ControllerHost: the controller of a cluster in this process, as the cluster, its nodes and its clients see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from pyreplog.config import INT32_MAX, batch_max, producer_batch_max
from pyreplog.controller import MetadataImage, QuorumServer
from pyreplog.log import LogRoot
from pyreplog.ports import Address, Disk, Transport
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.node_roles import NodeRole
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER

__all__ = ["ControllerHost", "Leaderless"]


class Leaderless(NamedTuple):
    """A partition without a leader: the nodes that may lead it, and all nodes that have a copy."""

    eligible: Sequence[int]
    replicas: Sequence[int]


class ControllerHost(ABC):
    """Runs the controller of one cluster, and answers questions about the metadata.

    There are two: one controller with a file of its own (``LocalControllerHost``), and the quorum
    of the nodes' servers (``QuorumHost``).
    """

    has_quorum: ClassVar[bool] = False
    """Whether voters agree on the metadata."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    # ----------------------------------------------------------------------------------------- life

    @abstractmethod
    def load(self) -> None:
        """Read what the folders say about the cluster, before its nodes open. Raises the errors of damaged files."""

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """The cluster's id, once :meth:`load` returned."""

    @property
    @abstractmethod
    def image(self) -> MetadataImage:
        """The newest metadata."""

    @abstractmethod
    def format(self, roots: Mapping[int, tuple[Disk, LogRoot]]) -> None:
        """Make the files that the nodes with these roots need, if the cluster is new."""

    @abstractmethod
    def open_server(self, node_id: int, disk: Disk, root: LogRoot, transport: Transport) -> QuorumServer | None:
        """Open the quorum server of a node, whose root is open; None if the cluster has no quorum."""

    @abstractmethod
    def forget_server(self, node_id: int) -> None:
        """Note that the server of a node ended."""

    @abstractmethod
    def note_started(self) -> None:
        """Note that all nodes were started together."""

    @abstractmethod
    def close(self) -> None:
        """End the part of the controller that is in no node. A second call is harmless."""

    @abstractmethod
    def address_for(self, node_id: int) -> Address:
        """Return the address of the controller that node ``node_id`` talks to."""

    @abstractmethod
    def addresses(self) -> list[Address]:
        """Return the addresses of all controllers, for clients."""

    # ---------------------------------------------------------------------------------------- nodes

    def role_of(self, node_id: int) -> NodeRole:
        """Return the role of a node, once :meth:`load` returned."""
        return "broker"

    def known_nodes(self) -> set[int]:
        """Return the numbers of the nodes that the metadata knows."""
        return set(self.image.brokers)

    def directories_of(self, node_id: int) -> Sequence[str] | None:
        """Return the ids of the folders that the metadata knows of a node; None if it does not know the node."""
        broker = self.image.brokers.get(node_id)
        return None if broker is None else broker.log_dirs

    def is_voter(self, node_id: int) -> bool:
        """Return whether the node runs and has a vote. REQUIRES that no machine runs."""
        return False

    def is_settled(self, node_id: int) -> bool:
        """Return whether the node has its vote, or is to have none. REQUIRES that no machine runs."""
        return True

    def damaged_voter(self, node_id: int) -> str | None:
        """Return the id of the folder of a voter that runs and does not vote, because its metadata is damaged; None
        for any other node. REQUIRES that no machine runs."""
        return None

    def damage_of(self, node_id: int) -> str | None:
        """Return what is damaged in the metadata of a voter that runs; None for any other node. REQUIRES that no
        machine runs."""
        return None

    @abstractmethod
    def clear(self, disk: Disk, root: LogRoot) -> None:
        """Remove the metadata in a folder, whose node has no vote and does not run."""

    @abstractmethod
    def fence(self, node_id: int) -> None:
        """Tell the controller that a node died, if its transport does not. REQUIRES that no other machine runs."""

    @property
    @abstractmethod
    def active_id(self) -> int | None:
        """The node whose vote made it the active controller; None while there is none."""

    def lack(self) -> str | None:
        """Return which voters are missing, and what to do; None unless a majority of them is down."""
        return None

    @abstractmethod
    def note_paused(self, node_id: int, *, is_paused: bool) -> None:
        """Note that a node was paused or goes on. REQUIRES that no machine runs."""

    def is_fenced(self, node_id: int) -> bool:
        """Return whether the controller has fenced the node. Any thread, because the brokers of the
        image are replaced and never changed.
        """
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.fenced

    def active_nodes(self) -> set[int]:
        """Return the nodes that the controller considers alive. REQUIRES that no machine runs."""
        return {broker.broker_id for broker in self.image.brokers.values() if broker.active}

    @abstractmethod
    def knows_active_nodes(self) -> bool:
        """Return whether the controller knows which nodes are alive, or waiting would not help.
        REQUIRES that no machine runs.
        """

    # --------------------------------------------------------------------------------------- topics

    def topic_names(self) -> tuple[str, ...]:
        """Return the names of all topics."""
        return self._driver.run_exclusively(lambda: tuple(self.image.topic_ids))

    def leaders(self, topic: str) -> dict[int, int] | None:
        """Return the leader of each partition of ``topic`` (-1: none); None if there is no such
        topic.
        """

        def look() -> dict[int, int] | None:
            found = self.image.topic(topic)
            return None if found is None else {number: entry.leader for number, entry in found.partitions.items()}

        return self._driver.run_exclusively(look)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the leader of a partition; -1 if it has none or does not exist. REQUIRES that no machine runs."""
        found = self.image.topic(topic)
        entry = None if found is None else found.partitions.get(partition)
        return NO_LEADER if entry is None else entry.leader

    def leaderless(self, of: TopicPartition) -> Leaderless | None:
        """Return the nodes that may lead a partition; None if it has a leader or does not exist."""

        def look() -> Leaderless | None:
            found = self.image.topic(of.topic)
            entry = None if found is None else found.partitions.get(of.partition)
            if entry is None or entry.leader != NO_LEADER:
                return None
            return Leaderless((*entry.isr, *entry.elr), entry.replicas)

        return self._driver.run_exclusively(look)

    def batch_limit(self, topic: str) -> tuple[int, int]:
        """Return the size in bytes of the largest batch that a producer may make for ``topic``: one
        of several records, and one of a single record. REQUIRES the driver's turn.
        """
        found = self.image.topic(topic)
        if found is None:
            return INT32_MAX, 0
        config = found.log_config
        return producer_batch_max(config), batch_max(config)
