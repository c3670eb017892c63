"""The periodic return of leaderships to the preferred replicas: the first ones of the assignments.

Sans-IO; part of one controller. After a node was away, its partitions are led elsewhere. Once it is
back for a while and in sync, it should lead its share again, because placement spread the load by
the order of the replicas.

Kafka's rule of its ZooKeeper days applies, which KRaft left behind: a broker is *imbalanced* if more
than a percentage of the partitions that prefer it are led by another one. Only then are its
leaderships moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.controller.image import MetadataImage, PartitionImage, PartitionKey
from pyreplog.wire import NO_LEADER

__all__ = ["PreferredLeaders"]

SCANNED_MAX: Final = 2_000
"""Partitions that one step looks at. The next step goes on, so that no step is long."""
ELECTED_MAX: Final = 1_000
"""Elections of one step."""
_MS: Final = 1_000_000


class PreferredLeaders:
    """Elects preferred leaders every ``leader_imbalance_check_interval_ms``.

    ``may_lead`` says whether the preferred replica of a partition may lead it now; ``elect`` elects
    it. No step looks at more than some thousand partitions; a pass over many takes several steps.
    """

    def __init__(
        self,
        config: NodeConfig,
        may_lead: Callable[[PartitionKey, PartitionImage, int], bool],
        elect: Callable[[PartitionKey], object],
    ) -> None:
        self.elected = 0
        """Elections so far."""
        self._interval_ns = config.leader_imbalance_check_interval_ms * _MS
        self._percentage = config.leader_imbalance_per_broker_percentage
        self._may_lead = may_lead
        self._elect = elect
        self._next_ns: int | None = None
        self._pass: Iterator[None] | None = None

    def start(self, now_ns: int) -> None:
        """Plan the first pass, an interval from now."""
        self._pass = None
        self._next_ns = now_ns + self._interval_ns if self._interval_ns else None

    @property
    def next_ns(self) -> int | None:
        """The time at which :meth:`tick` has work to do; None: never."""
        return self._next_ns

    def tick(self, image: MetadataImage, now_ns: int) -> None:
        """Begin a pass if one is due, or go on with the present one."""
        if self._next_ns is None or now_ns < self._next_ns:
            return
        if self._pass is None:
            self._pass = self._steps(image, now_ns)
        if next(self._pass, _END) is _END:
            self._pass = None
            self._next_ns = now_ns + self._interval_ns
        else:
            self._next_ns = now_ns

    def _steps(self, image: MetadataImage, now_ns: int) -> Iterator[None]:
        """Take one pass; each step ends with a ``yield``. Topics may come and go in between."""
        prefer: dict[int, int] = {}
        led_elsewhere: dict[int, list[PartitionKey]] = {}
        seen = 0
        for topic_id in list(image.topics):
            topic = image.topics.get(topic_id)
            for number in range(0 if topic is None else len(topic.partitions)):
                seen += 1
                if seen % SCANNED_MAX == 0:
                    yield
                key = (topic_id, number)
                partition = image.partition(key)
                if partition is None:
                    continue
                preferred = partition.replicas[0]
                prefer[preferred] = prefer.get(preferred, 0) + 1
                if partition.leader not in (preferred, NO_LEADER):
                    led_elsewhere.setdefault(preferred, []).append(key)
        elected = 0
        for broker_id, keys in led_elsewhere.items():
            if len(keys) * 100 <= prefer[broker_id] * self._percentage:
                continue
            for key in keys:
                partition = image.partition(key)
                if partition is None or not self._may_lead(key, partition, now_ns):
                    continue
                if elected and elected % ELECTED_MAX == 0:
                    yield
                elected += 1
                self.elected += 1
                self._elect(key)


_END: Final = object()
