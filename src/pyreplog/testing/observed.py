"""The parts of a simulated cluster that a checker may look at.

:class:`~pyreplog.testing.World` and :class:`~pyreplog.testing.Stage` provide them. A checker knows
only these two Protocols, so checkers do not depend on worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyreplog.controller import MetadataImage, PartitionImage, PartitionKey, QuorumServer
from pyreplog.log import Log, LogRoot, UnloadedLog
from pyreplog.node import HostedPartition, Node
from pyreplog.ports import Address
from pyreplog.testing.clock import SimClock
from pyreplog.testing.options import WorldOptions
from pyreplog.testing.workload import Attempt, SimConsumer, SimProducer
from pyreplog.values import TopicPartition

__all__ = ["ObservedNode", "ObservedWorld"]


class ObservedNode(Protocol):
    """One machine of the cluster, and the node on it while it is up."""

    @property
    def node_id(self) -> int:
        """The broker id."""
        ...

    @property
    def node(self) -> Node | None:
        """The node; None while it is down."""
        ...

    @property
    def root(self) -> LogRoot | None:
        """The log root of the node; None while it is down."""
        ...

    @property
    def server(self) -> QuorumServer | None:
        """The machine's part of the metadata quorum; None while it is down, or without a quorum."""
        ...

    @property
    def starts(self) -> int:
        """How often the node has started."""
        ...

    @property
    def disk_failed(self) -> bool:
        """Whether a call of the machine's disk was made to fail since the node started."""
        ...

    @property
    def rotten(self) -> bool:
        """Whether a bit of the machine's files was flipped since the node last opened them."""
        ...


class ObservedWorld(Protocol):
    """A simulated cluster with its clients, as the checkers see it."""

    @property
    def clock(self) -> SimClock:
        """The clock of the simulation."""
        ...

    @property
    def options(self) -> WorldOptions:
        """The options of the run."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The metadata of the controller, or its last metadata while it is down."""
        ...

    @property
    def machines(self) -> Mapping[int, ObservedNode]:
        """The machines by node id."""
        ...

    @property
    def producers(self) -> Sequence[SimProducer]:
        """The producers of the run."""
        ...

    @property
    def consumers(self) -> Sequence[SimConsumer]:
        """The consumers of the run."""
        ...

    @property
    def lost(self) -> Mapping[TopicPartition, Mapping[int, None]]:
        """Replicas that may lack records that the acknowledgement table allows them to lose."""
        ...

    @property
    def rotten(self) -> Mapping[tuple[TopicPartition, int], None]:
        """Replicas that may have lost more than a torn tail without knowing it."""
        ...

    @property
    def delete_asked(self) -> Mapping[TopicPartition, int]:
        """The highest offset up to which a client asked to delete records."""
        ...

    @property
    def seen(self) -> dict[str, int]:
        """How often the run reached each situation that a set of runs should reach."""
        ...

    @property
    def healed_ns(self) -> int:
        """When the liveness phase began."""
        ...

    def broken(self, rule: str, about: str) -> None:
        """Raise :class:`InvariantBroken` for invariant ``rule``."""
        ...

    def run_for(self, ms: float) -> None:
        """Let the simulation run for ``ms`` milliseconds."""
        ...

    def partitions(self) -> Sequence[tuple[TopicPartition, PartitionKey, PartitionImage]]:
        """Return every partition as the controller has it."""
        ...

    def hosted(self, node_id: int, key: PartitionKey) -> HostedPartition | None:
        """Return the partition that a node hosts; None while the node is down."""
        ...

    def log_of(self, node_id: int, key: PartitionKey) -> Log | UnloadedLog | None:
        """Return a node's log of a partition; None while the node is down."""
        ...

    def is_registered(self, node_id: int) -> bool:
        """Return whether a node is up and the controller knows its present incarnation."""
        ...

    def machine_at(self, address: Address) -> ObservedNode | None:
        """Return the machine that listens at ``address``; None if it is no machine's address."""
        ...

    def promises(self, attempt: Attempt) -> bool:
        """Return whether the acknowledgement table promises that an acknowledged append stays."""
        ...
