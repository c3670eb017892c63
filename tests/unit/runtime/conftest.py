"""What the runtime's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyreplog


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pyreplog.Cluster]:
    """Three nodes on real files. Marked ``one_voter``: three that do not vote, and node 4, which only votes."""
    alone = request.node.get_closest_marker("one_voter") is not None
    settings: dict[str, Any] = {"nodes": 4, "roles": {4: "controller"}} if alone else {}
    with pyreplog.Cluster(tmp_path / "data", **settings) as cluster:
        yield cluster


@pytest.fixture
def create(cluster: pyreplog.Cluster) -> Callable[..., str]:
    """Makes a topic in the page cache, which is faster than waiting for the disk; returns its name."""

    def create(name: str = "events", partitions: int = 1, **config: str) -> str:
        settings = {"durability": "os", **{key.replace("_", "."): value for key, value in config.items()}}
        cluster.admin.create_topic(name, partitions=partitions, replication_factor=3, config=settings)
        return name

    return create
