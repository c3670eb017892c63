"""The pytest plugin of pyreplog: the fixture ``replog_cluster``. pytest finds it by its entry point; pyreplog is imported when it is used.

    def test_my_service(replog_cluster):
        replog_cluster.admin.create_topic("orders", partitions=1)
        ...
        replog_cluster.kill(1)

``@pytest.mark.replog(nodes=5, seed=7)`` sets what :class:`pyreplog.testing.BreakableCluster` takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyreplog.testing import BreakableCluster

__all__ = ["pytest_configure", "replog_cluster"]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "replog(nodes=3, seed=0, ...): settings of the fixture replog_cluster")


@pytest.fixture
def replog_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BreakableCluster]:
    """A new cluster of three nodes in a folder of its own, whose nodes, links and disks can be broken; closed after the test."""
    from pyreplog.testing import BreakableCluster  # noqa: PLC0415  (every test run of who has pyreplog installed loads this module)

    marker = request.node.get_closest_marker("replog")
    arguments, settings = ((), {}) if marker is None else (marker.args, marker.kwargs)
    with BreakableCluster(tmp_path / "replog", *arguments, **({} if arguments else {"nodes": 3}) | settings) as cluster:
        yield cluster
