"""`verify` and opening agree on a cluster whose controller's state is missing, or that of another cluster."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pyreplog import Cluster, CorruptError
from pyreplog.system import SystemDisk
from pyreplog.verify import Level, verify
from tests.interop.golden.cluster_0_1 import as_version_0_1


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two closed clusters: ``ours`` of two nodes, ``other`` of one."""
    base = tmp_path_factory.mktemp("clusters")
    for name, nodes in (("ours", 2), ("other", 1)):
        with Cluster(base / name, nodes=nodes) as cluster:
            cluster.admin.create_topic("orders", replication_factor=nodes)
        as_version_0_1(base / name)
    return base


@pytest.mark.parametrize("case", ["missing", "of another cluster", "a node of another cluster"])
def test_a_controller_file_that_is_missing_or_foreign_is_damage(clusters: Path, tmp_path: Path, case: str) -> None:
    """`verify` names the file and reports damage; opening is refused, and says which nodes are of which cluster."""
    ours = tmp_path / "ours"
    shutil.copytree(clusters / "ours", ours)
    disk = SystemDisk()
    assert verify(disk, str(ours)).worst is not Level.DAMAGE
    if case == "missing":
        os.remove(ours / "replog.controller")
    elif case == "of another cluster":
        shutil.copy2(clusters / "other" / "replog.controller", ours / "replog.controller")
    else:
        shutil.rmtree(ours / "node-1")
        shutil.copytree(clusters / "other" / "node-1", ours / "node-1")
    (finding,) = [one for one in verify(disk, str(ours)).findings if one.level is Level.DAMAGE]
    assert finding.path == f"{ours}/replog.controller"
    assert "replog.controller" in finding.what
    assert "node-1" in finding.what
    assert "backup" in finding.advice
    with pytest.raises(CorruptError, match=r"replog\.controller.*node-1.* of cluster .* backup"):
        Cluster(ours)


def test_nodes_on_other_disks_need_their_controller_too(tmp_path: Path) -> None:
    """The list in the cluster's folder names them."""
    with Cluster(tmp_path / "data", nodes=[tmp_path / "n1"]) as cluster:
        cluster.admin.create_topic("orders", replication_factor=1)
    as_version_0_1(tmp_path / "data").unlink()
    damage = [one for one in verify(SystemDisk(), str(tmp_path / "data")).findings if one.level is Level.DAMAGE]
    assert ["replog.controller" in one.what for one in damage] == [True]


def test_folders_that_no_node_of_ours_wrote_need_no_controller(clusters: Path, tmp_path: Path) -> None:
    """A broker's `log.dirs` and logs beside one another have no controller's state, and are sound without."""
    for name in ("node-1", "node-2"):
        shutil.copytree(clusters / "ours" / name, tmp_path / "dirs" / f"broker-{name}")
    assert verify(SystemDisk(), str(tmp_path / "dirs")).worst is not Level.DAMAGE
