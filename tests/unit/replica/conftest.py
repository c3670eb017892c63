"""The logs under the replicas: the in-memory twin and the real one, in the same tests."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import Log, NewLog
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import TopicPartition
from tests.oracle.memory_log import MemoryLog
from tests.unit.replica.replica_stage import ReplicaStage

TOPIC_ID = "0123456789abcdefABCDEw"

MakeStage = Callable[..., ReplicaStage]


class Patchable(Log):
    """A log whose methods a test may replace: unlike the original it has room for that."""


@pytest.fixture(params=["memory", "disk"])
def log_kind(request: pytest.FixtureRequest) -> str:
    """Which logs the test runs over."""
    return str(request.param)


@pytest.fixture
def make_log(log_kind: str) -> Callable[[LogConfig, int], Any]:
    """A function (config, broker) -> an empty log: a list in memory, or a real log on a simulated disk."""
    if log_kind == "memory":
        return lambda config, broker: MemoryLog(config)

    def on_disk(config: LogConfig, broker: int) -> Log:
        disk = SimDisk(Random(broker))
        (log,) = Patchable.create(
            disk, [NewLog(f"n{broker}/t-0", TopicPartition("t", 0), TOPIC_ID, config)], SimClock()
        )
        return log

    return on_disk


@pytest.fixture
def make_stage(make_log: Callable[[LogConfig, int], Any]) -> MakeStage:
    """A function: a stage of ``count`` replicas with these topic settings."""

    def make(
        count: int = 3, *, strict: bool = True, replica_class: Any = None, lag_time_max_ms: int = 2000, **settings: Any
    ) -> ReplicaStage:
        config = LogConfig(**({"durability": "os"} | settings))
        logs = {broker: make_log(config, broker) for broker in range(1, count + 1)}
        extra = {} if replica_class is None else {"replica_class": replica_class}
        return ReplicaStage(logs, strict=strict, lag_time_max_ms=lag_time_max_ms, **extra)

    return make
