"""The events of a node that its services report, as one Protocol.

The services know only this Protocol, not the node, so no service imports another one for its
events. The node implements it, and each method there shows which service acts.
"""

from __future__ import annotations

from typing import Protocol

from pyreplog.controller import PartitionKey
from pyreplog.errors import PyreplogError
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.node.hosting import HostedPartition
from pyreplog.replica import AlterPartition, BrokenRule, Damaged, Fetch, Lost, Reply, Stalled, Unexpected

__all__ = ["NodeEvents"]


@mypyc_attr(allow_interpreted_subclasses=True)
class NodeEvents(Protocol):
    """Called by the services of one node, within its turn."""

    # ---------------------------------------------------------------------------- from the replicas

    def fetch_wanted(self, hosted: HostedPartition, effect: Fetch) -> None:
        """Send a follower's fetch request, which replaces its older one."""

    def fetch_unwanted(self, hosted: HostedPartition) -> None:
        """Withdraw a follower's fetch request."""

    def isr_proposed(self, hosted: HostedPartition, effect: AlterPartition) -> None:
        """Send a leader's proposal of an in-sync set to the controller."""

    def replica_offline(self, hosted: HostedPartition, error: Exception) -> None:
        """The disk failed for a replica."""

    def rule_broken(self, effect: BrokenRule) -> None:
        """A safety rule did not hold."""

    def records_lost(self, hosted: HostedPartition, effect: Lost) -> None:
        """A copy here lost records by an unclean election."""

    def follower_stalled(self, hosted: HostedPartition, effect: Stalled) -> None:
        """A follower stopped fetching for now."""

    def damage_read(self, hosted: HostedPartition, effect: Damaged) -> None:
        """A read found damage in a part of the log that recovery did not check."""

    def batch_failed(self, hosted: HostedPartition, effect: Unexpected) -> None:
        """A client's batch failed unexpectedly; the replica refused it."""

    def answer_failed(self, hosted: HostedPartition, effect: Reply, error: Exception) -> None:
        """An answer to a client could not be built."""

    # ---------------------------------------------------------------- from the controller's answers

    def registered(self) -> None:
        """This incarnation has a broker epoch."""

    def metadata_to_confirm(self) -> None:
        """The controller waits for this node to confirm the metadata that it has applied."""

    def leader_lost(self) -> None:
        """A hosted partition lost its leader."""

    def hosting_failed(self, key: PartitionKey) -> None:
        """A copy cannot be created or opened yet; called each time."""

    def hosting_restored(self, key: PartitionKey) -> None:
        """A copy was created after an earlier attempt failed."""

    def hosting_ended(self, hosted: HostedPartition) -> None:
        """A partition is no longer hosted here."""

    # ------------------------------------------------------------------------------- from the disk

    def storage_failed(self, error: PyreplogError, *, is_news: bool = True) -> None:
        """The disk refused work that no request waits for. ``is_news``: log the error."""
