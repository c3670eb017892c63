"""The logs under the replicas: the in-memory twin and the real one, in the same tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyreplog.config import LogConfig
from tests.oracle.memory_log import MemoryLog
from tests.replica.bench import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["memory"])
def log_kind(request: pytest.FixtureRequest) -> str:
    """Which logs the test runs over."""
    return str(request.param)


@pytest.fixture
def make_log(log_kind: str) -> Callable[[LogConfig, int], Any]:
    """A function (config, broker) -> an empty log."""
    return lambda config, broker: MemoryLog(config)


@pytest.fixture
def make_bench(make_log: Callable[[LogConfig, int], Any]) -> MakeBench:
    """A function: a bench of ``count`` replicas with these topic settings."""

    def make(count: int = 3, *, strict: bool = True, replica_class: Any = None, node_config: Any = None, **settings: Any) -> Bench:
        config = LogConfig(**({"durability": "os"} | settings))
        logs = {broker: make_log(config, broker) for broker in range(1, count + 1)}
        extra = {} if replica_class is None else {"replica_class": replica_class}
        return Bench(logs, strict=strict, config=node_config, **extra)

    return make
