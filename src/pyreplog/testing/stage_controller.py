"""The controller of a stage: the real decisions, called step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from pyreplog.config import NodeConfig
from pyreplog.controller import FEATURE, LEVEL_LATEST, Controller, MetadataImage, PartitionImage, PartitionKey
from pyreplog.ports import Clock
from pyreplog.replica import AlterPartition, AlterPartitionAnswered
from pyreplog.testing.stage_node import TOPIC, StageNode
from pyreplog.wire import (
    NO_LEADER,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    ErrorCode,
    Feature,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionEnd,
)

__all__ = ["StageController"]


class StageController:
    """The controller with its records. ``unclean``: any live replica may lead a partition without an
    eligible leader. ``changed`` is called after each of its turns."""

    def __init__(
        self,
        controller_class: type[Controller],
        config: NodeConfig,
        clock: Clock,
        cluster_id: str,
        *,
        unclean: bool,
        changed: Callable[[], None],
    ) -> None:
        image = MetadataImage()
        image.feature_levels[FEATURE] = LEVEL_LATEST  # schedules count the records that nodes hear of
        self.controller = controller_class(image, config, Random(1), cluster_id)
        self.records: list[tuple[int, MetadataRecord]] = []
        """Every record that it wrote, with its offset."""
        self.key: PartitionKey | None = None
        """The partition; None until it is created."""
        self._clock = clock
        self._cluster_id = cluster_id
        self._unclean = unclean
        self._changed = changed
        self._decided_upto: dict[tuple[int, int], int] = {}

    @property
    def partition(self) -> PartitionImage:
        """The partition as the controller has it. REQUIRES that it was created."""
        assert self.key is not None
        found = self.controller.image.partition(self.key)
        assert found is not None
        return found

    def create(self, node_ids: Sequence[int], settings: dict[str, str]) -> PartitionKey:
        """Create the topic with one partition on these nodes; the first leads."""
        wanted = CreatableTopic(
            TOPIC,
            assignments=[CreatableReplicaAssignment(0, list(node_ids))],
            configs=[CreatableTopicConfig(key, value) for key, value in settings.items()],
        )
        (result,) = self.controller.create_topics(CreateTopicsRequest([wanted])).topics
        assert not result.error_code, result
        self.key = (self.controller.image.topic_ids[TOPIC], 0)
        self.take()
        return self.key

    def take(self) -> None:
        """Collect the records that it wrote."""
        self.records += self.controller.take()
        self._changed()

    def write(self, **changes: Any) -> None:
        """Change the partition by hand, without the controller's rules."""
        assert self.key is not None
        self.controller._write(PartitionChangeRecord(0, self.key[0], **changes))
        self.take()

    # Nodes ----------------------------------------------------------------------------------------

    def register(self, actor: StageNode, previous_epoch: int) -> None:
        """Register a node that starts; ``previous_epoch``: of its clean stop before, or -1."""
        log = actor.home.log
        ends = []
        if log is not None:
            ends.append(PartitionEnd(log.topic_id, 0, log.epochs.latest, log.end_offset, log.incomplete, log.reported))
        request = BrokerRegistrationRequest(
            actor.node_id,
            self._cluster_id,
            actor.incarnation_id,
            features=[Feature(FEATURE, 0, LEVEL_LATEST)],
            log_dirs=[actor.home.directory_id],
            previous_broker_epoch=previous_epoch,
            partition_ends=ends,
        )
        response = self.controller.register(request, self._clock.monotonic_ns())
        assert not response.error_code, ErrorCode(response.error_code).name
        actor.epoch = response.broker_epoch
        self.take()

    def heartbeat(self, actor: StageNode) -> None:
        """Receive a heartbeat, which unfences the node."""
        request = BrokerHeartbeatRequest(actor.node_id, actor.epoch, actor.epoch)
        self.controller.heartbeat(request, self._clock.monotonic_ns())
        self.take()
        self._elect_uncleanly()

    def fence(self, node_id: int, epoch: int) -> None:
        """Fence a node that is alive: it leaves the ISR and loses its leadership."""
        session = self.controller._sessions[node_id]
        request = BrokerHeartbeatRequest(node_id, epoch, epoch, want_fence=True)
        self.controller.heartbeat(request, self._clock.monotonic_ns())
        session.alive = False
        self.take()
        self._elect_uncleanly()

    def gone(self, node_id: int) -> None:
        """Learn that a node's process ended."""
        self.controller.fence(node_id, self._clock.monotonic_ns())
        self.take()

    def end_session(self, node_id: int) -> None:
        """End the session of a node's former incarnation, if it is still open."""
        if self.controller._sessions[node_id].alive:
            self.controller.fence(node_id, self._clock.monotonic_ns())

    def tick(self) -> None:
        """Notice that time passed."""
        self.controller.tick(self._clock.monotonic_ns())
        self.take()

    def _elect_uncleanly(self) -> None:
        if self._unclean and self.key is not None and self.partition.leader == NO_LEADER:
            self.controller.elect_uncleanly(TOPIC, 0)
            self.take()

    # Proposals ------------------------------------------------------------------------------------

    def decide(self, effect: AlterPartition, node_id: int, epoch: int, number: int) -> AlterPartitionAnswered | None:
        """Decide a leader's proposal. None if this proposal or a newer one of that leader was decided before,
        as a broker sends it once."""
        assert self.key is not None
        if number <= self._decided_upto.get((node_id, epoch), 0):
            return None
        self._decided_upto[node_id, epoch] = number
        topic = AlterPartitionTopic(self.key[0], [effect.proposal])
        response = self.controller.alter_partition(AlterPartitionRequest(node_id, epoch, [topic]))
        self.take()
        result = response.topics[0].partitions[0] if response.topics else None
        return AlterPartitionAnswered(effect.token, response.error_code, result)
