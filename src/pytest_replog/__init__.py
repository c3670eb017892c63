"""The pytest plugin of pyreplog: clusters and logs that break. pytest finds it by its entry point; pyreplog is
imported when it is used.

    def test_my_service(replog_cluster):
        replog_cluster.admin.create_topic("orders", partitions=1)
        ...
        replog_cluster.kill(1)

``@pytest.mark.replog(nodes=5, seed=7)`` sets what :class:`pyreplog.testing.BreakableCluster` takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyreplog.testing import AioBreakableCluster, BreakableCluster, BreakableLog

__all__ = ["aio_replog_cluster", "pytest_configure", "replog_cluster", "replog_log"]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "replog(nodes=3, seed=0, ...): settings of the fixtures replog_cluster and aio_replog_cluster"
    )


@pytest.fixture
def replog_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BreakableCluster]:
    """A new cluster of three nodes in a folder of its own, whose nodes, links and disks can be broken; closed after
    the test."""
    with _cluster(request, tmp_path) as cluster:
        yield cluster


@pytest.fixture
def aio_replog_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AioBreakableCluster]:
    """The same for coroutines. A plain fixture: the test awaits it in any event loop, with an asyncio plugin or
    with ``asyncio.run``."""
    from pyreplog.testing import AioBreakableCluster  # noqa: PLC0415  (every test run with pyreplog installed loads this module)

    with _cluster(request, tmp_path) as cluster:
        face = AioBreakableCluster(cluster)
        try:
            yield face
        finally:
            face.release()


@pytest.fixture
def replog_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BreakableLog]:
    """A log in a folder of its own, on a disk that breaks when the test says so: ``replog_log.open()``; closed
    after the test.

    Of the marker it takes ``seed`` and ``permissions``.
    """
    from pyreplog.testing import BreakableLog  # noqa: PLC0415  (every test run with pyreplog installed loads this module)

    marker = request.node.get_closest_marker("replog")
    settings = (
        {}
        if marker is None
        else {name: marker.kwargs[name] for name in ("seed", "permissions") if name in marker.kwargs}
    )
    with BreakableLog(tmp_path / "replog", **settings) as log:
        yield log


def _cluster(request: pytest.FixtureRequest, tmp_path: Path) -> BreakableCluster:
    from pyreplog.testing import BreakableCluster  # noqa: PLC0415  (every test run with pyreplog installed loads this module)

    marker = request.node.get_closest_marker("replog")
    arguments, settings = ((), {}) if marker is None else (marker.args, marker.kwargs)
    _check(settings)
    return BreakableCluster(tmp_path / "replog", *arguments, **({} if arguments else {"nodes": 3}) | settings)


def _check(settings: Mapping[str, object]) -> None:
    """Refuse a setting that no cluster has, with the name that was likely meant."""
    from pyreplog import Cluster  # noqa: PLC0415
    from pyreplog.config import suggestion  # noqa: PLC0415
    from pyreplog.errors import ConfigError  # noqa: PLC0415
    from pyreplog.testing import BreakableCluster  # noqa: PLC0415

    known = {name for kind in (Cluster, BreakableCluster) for name in inspect.signature(kind.__init__).parameters}
    known -= {"self", "path", "mode", "disk", "settings"}
    for name in settings:
        if name not in known:
            raise ConfigError(f"the marker replog has no setting {name!r}{suggestion(name, tuple(sorted(known)))}")
