"""Wrong rules of the controller, each one overridden method."""

from __future__ import annotations

import dataclasses
from typing import Any

from pyreplog.controller import BrokerImage, Controller, PartitionImage, PartitionKey
from pyreplog.wire import (
    AlterPartitionData,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationRequest,
    BrokerState,
    ErrorCode,
    PartitionEnd,
    SuspectReplica,
)

__all__ = [
    "AnyBrokerEpoch",
    "AnyPartitionEpoch",
    "ElectsOnce",
    "ElrKept",
    "FencedStays",
    "FencesNobody",
    "MissingIsEmpty",
    "NoElr",
    "SuspectsTrusted",
    "UncleanStartsIgnored",
]


class AnyPartitionEpoch(Controller):
    """A proposal is accepted with any partition epoch: no compare before the swap."""

    def _validate(self, sender: int, key: PartitionKey, proposal: AlterPartitionData) -> ErrorCode:
        """Validate the proposal as if it had the newest partition epoch."""
        partition = self.image.partition(key)
        epoch = proposal.partition_epoch if partition is None else partition.partition_epoch
        return super()._validate(sender, key, dataclasses.replace(proposal, partition_epoch=epoch))


class AnyBrokerEpoch(Controller):
    """Members of a proposed set are not compared with the incarnations that are registered
    (before KIP-903)."""

    def _validate(self, sender: int, key: PartitionKey, proposal: AlterPartitionData) -> ErrorCode:
        """Give every member the registered broker epoch."""
        brokers = self.image.brokers
        members = [BrokerState(one.broker_id, brokers[one.broker_id].epoch) for one in proposal.new_isr_with_epochs]
        return super()._validate(sender, key, dataclasses.replace(proposal, new_isr_with_epochs=members))


class NoElr(Controller):
    """No eligible leader replicas: the last member of the in-sync set stays in it, even if it
    fails ("last replica standing")."""

    def _decision(self, key: PartitionKey, partition: PartitionImage, isr: Any, lost: Any, *, patient: bool) -> Any:
        """Remember no former member, and no lost data."""
        members = isr or partition.isr
        found = super()._decision(key, partition._replace(elr=(), suspects=()), members, (), patient=patient)
        return found._replace(elr=(), cleared=partition.replicas)


class UncleanStartsIgnored(Controller):
    """A broker that restarted uncleanly stays eligible, although it lost records."""

    def _reconcile_replicas(self, request: BrokerRegistrationRequest, *rest: Any, **more: Any) -> None:
        """Register it as complete, after a clean stop."""
        request.partition_ends = [dataclasses.replace(end, incomplete=False) for end in request.partition_ends]
        request.previous_broker_epoch = (
            self.image.brokers[request.broker_id].epoch if request.broker_id in self.image.brokers else -1
        )
        super()._reconcile_replicas(request, *rest, **more)


class SuspectsTrusted(Controller):
    """Among replicas that restarted uncleanly the first in the list is elected, not the one with the
    longest log."""

    def _suspected(self, broker_id: int, end: Any) -> tuple[SuspectReplica, ...]:
        """Suspect no replica."""
        return ()


class ElrKept(Controller):
    """The eligible leader replicas are not forgotten when the in-sync set is large enough again."""

    def _decision(self, key: PartitionKey, partition: PartitionImage, isr: Any, lost: Any, *, patient: bool) -> Any:
        """Keep every former member in the ELR."""
        found = super()._decision(key, partition, isr, lost, patient=patient)
        kept = tuple(one for one in partition.elr if one not in found.isr and one not in lost)
        return found._replace(elr=found.elr or kept)


class ElectsOnce(Controller):
    """An election without a candidate is not tried again when a replica comes back."""

    def _unfence(self, broker: BrokerImage, now_ns: int) -> None:
        """Unfence the broker, and elect no leader."""
        self._write(BrokerRegistrationChangeRecord(broker.broker_id, broker.epoch, fenced=-1))


class MissingIsEmpty(Controller):
    """A copy that its broker does not have any more counts as one that was empty: a broker that returns
    with an empty disk stays eligible."""

    def _reconcile_replicas(self, request: BrokerRegistrationRequest, *rest: Any, **more: Any) -> None:
        """Report a complete, empty copy of each partition that is missing."""
        has = [(end.topic_id, end.partition) for end in request.partition_ends]
        missing = [key for key in self.image.index.holds(request.broker_id) if key not in has]
        ends = [*request.partition_ends, *(PartitionEnd(*key, -1, 0) for key in missing)]
        super()._reconcile_replicas(dataclasses.replace(request, partition_ends=ends), *rest, **more)


class FencesNobody(Controller):
    """A controller never takes silence for the end of a broker. An idle follower that died stays in
    sync for ever."""

    def _fence(self, broker_id: int, now_ns: int) -> None:
        """Leave the broker as it is."""


class FencedStays(Controller):
    """A fenced broker stays in the in-sync sets (before KIP-841)."""

    def _move_away(self, broker_id: int, now_ns: int) -> None:
        """Leave the sets as they are."""
