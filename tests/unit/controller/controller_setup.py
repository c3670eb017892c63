"""A controller with brokers that are only names: registers, beats and proposes on request, and looks at what comes
of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from pyreplog.config import NodeConfig
from pyreplog.controller import FEATURE, LEVEL_LATEST, Controller, MetadataImage, PartitionImage, PartitionKey
from pyreplog.controller.describe import answer
from pyreplog.wire import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResult,
    AlterPartitionTopic,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerState,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    Feature,
    Listener,
    PartitionEnd,
)

MS = 1_000_000
CLUSTER = "cluster-of-the-tests--"


class ControllerSetup:
    """``controller`` and a clock moved by hand. The topic, where one is asked for, is ``t`` with one partition on
    brokers 1, 2, 3."""

    def __init__(self, brokers: Sequence[int] = (1, 2, 3), config: NodeConfig | None = None) -> None:
        self.now = 1_000 * MS
        self.incarnations = dict.fromkeys(brokers, 0)
        self.levels: dict[int, int] = {}
        """The highest feature level that a broker knows, if not the latest."""
        self.controller = Controller(MetadataImage(), config or NodeConfig(), Random(1), CLUSTER)
        self.controller.take_over(self.now, ())
        for broker in brokers:
            self.register(broker)
            self.beat(broker)

    @property
    def image(self) -> MetadataImage:
        """Metadata as decided."""
        return self.controller.image

    def topic(
        self, name: str = "t", *, min_isr: int = 2, replicas: Sequence[int] = (1, 2, 3), **config: str
    ) -> PartitionKey:
        """Create a topic of one partition; its key."""
        settings = {
            "min.insync.replicas": str(min_isr),
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        request = CreateTopicsRequest(
            [
                CreatableTopic(
                    name,
                    assignments=[CreatableReplicaAssignment(0, list(replicas))],
                    configs=[CreatableTopicConfig(key, value) for key, value in settings.items()],
                )
            ]
        )
        (result,) = self.controller.create_topics(request).topics
        assert result.error_code == 0, result
        return (result.topic_id, 0)

    def __getitem__(self, key: PartitionKey) -> PartitionImage:
        partition = self.image.partition(key)
        assert partition is not None
        return partition

    def epoch(self, broker: int) -> int:
        """Its broker epoch."""
        return self.image.brokers[broker].epoch

    def register(
        self,
        broker: int,
        ends: Mapping[PartitionKey, tuple[int, int]] | None = None,
        *,
        clean: bool = False,
        incomplete: Sequence[PartitionKey] = (),
        reported: bool = False,
        same: bool = False,
        disk: str = "",
        rack: str | None = None,
    ) -> int:
        """A new incarnation (or the ``same`` one again) registers; the error code. ``ends``: partition -> (last
        epoch, end)."""
        if not same:
            self.incarnations[broker] += 1
        known = self.image.brokers.get(broker)
        request = BrokerRegistrationRequest(
            broker,
            CLUSTER,
            f"incarnation-{broker}-{self.incarnations[broker]}",
            listeners=[Listener("PEER", f"node-{broker}")],
            features=[Feature(FEATURE, 0, self.levels.get(broker, LEVEL_LATEST))],
            rack=rack,
            log_dirs=[disk or f"disk-{broker}"],
            previous_broker_epoch=known.epoch if known is not None and clean else -1,
            partition_ends=[PartitionEnd(*key, *end, key in incomplete, reported) for key, end in (ends or {}).items()],
        )
        return self.controller.register(request, self.now).error_code

    def beat(self, broker: int, **wishes: Any) -> BrokerHeartbeatResponse:
        """A heartbeat of a broker that has applied everything."""
        request = BrokerHeartbeatRequest(broker, self.epoch(broker), self.image.offset, **wishes)
        return self.controller.heartbeat(request, self.now)

    def up(
        self,
        broker: int,
        ends: Mapping[PartitionKey, tuple[int, int]] | None = None,
        *,
        clean: bool = False,
        disk: str = "",
    ) -> None:
        """Register and unfence."""
        assert self.register(broker, ends, clean=clean, disk=disk) == 0
        self.beat(broker)

    def controller_answer(self, body: Any) -> Any:
        """The answer to a request that only reads."""
        return answer(self.image, body, CLUSTER)

    def kill(self, *brokers: int) -> None:
        """They die, and the harness says so."""
        for broker in brokers:
            self.controller.fence(broker, self.now)

    def restart(self) -> None:
        """The controller starts anew over the same image; everybody else died too."""
        self.controller = Controller(self.image, self.controller.config, Random(2), CLUSTER)
        self.controller.take_over(self.now, {one.incarnation_id for one in self.image.brokers.values()})

    def take_over(self, *gone: int) -> None:
        """Another controller becomes active over the same image; the brokers live on. ``gone``: those whose end it
        was told of."""
        self.controller = Controller(self.image.copy(), self.controller.config, Random(3), CLUSTER)
        self.controller.take_over(self.now, {self.image.brokers[one].incarnation_id for one in gone})

    def wait(self, ms: int, *, beating: Sequence[int] = ()) -> None:
        """Time passes, in steps of 100 ms; some brokers beat."""
        for _ in range(0, ms, 100):
            self.now += 100 * MS
            for broker in beating:
                self.beat(broker)
            self.controller.tick(self.now)

    def propose(
        self,
        key: PartitionKey,
        isr: Sequence[int],
        *,
        sender: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        epochs: Mapping[int, int] | None = None,
        recovery: int = 0,
    ) -> AlterPartitionResult:
        """The leader (or ``sender``) proposes ``isr``."""
        partition = self.image.partition(key)
        leader = partition.leader if partition is not None else 1
        sender = leader if sender is None else sender
        data = AlterPartitionData(
            key[1],
            leader_epoch if leader_epoch is not None else (partition.leader_epoch if partition is not None else 0),
            [
                BrokerState(one, (epochs or {}).get(one, self.epoch(one) if one in self.image.brokers else 0))
                for one in isr
            ],
            partition_epoch
            if partition_epoch is not None
            else (partition.partition_epoch if partition is not None else 0),
            recovery,
        )
        request = AlterPartitionRequest(sender, self.epoch(sender), [AlterPartitionTopic(key[0], [data])])
        response = self.controller.alter_partition(request)
        assert response.error_code == 0
        return response.topics[0].partitions[0]
