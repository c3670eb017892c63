"""The folder of a cluster that version 0.1 wrote, packed in ``cluster-0.1.tar.xz``.

Three nodes. ``orders`` has two partitions on all of them; ``single`` has one on node 3, which was down at the end. The
controller's file is ``replog.controller``; no node has a metadata log.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from pyreplog.controller import STATE_FILE, ControllerState, encode, read_stored
from pyreplog.log import METADATA_FOLDER, read_nodes, read_properties
from pyreplog.system import SystemDisk

ARCHIVE = Path(__file__).with_suffix("").with_name("cluster-0.1.tar.xz")
CLUSTER_ID = "71lZJ1IuQ4OyHFilt6w95A"
OFFSET = 20
"""The offset of the last metadata record in its state."""
VALUES = {b"order %d" % number for number in range(6)} | {b"without node 3"}
"""All records of ``orders``."""


def unpack(target: Path) -> Path:
    """Unpack the folder into ``target``; return its path."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11 has it from 3.11.4 on
        archive.extractall(target)
    found = target / "cluster-0.1"
    for path in [found, *found.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    return found


def as_version_0_1(path: Path) -> Path:
    """Give the closed cluster in ``path`` the files of version 0.1: the controller's file with the newest metadata of
    its voters, and no metadata log; return the file's path. The list of nodes on other disks is followed."""
    file = path / STATE_FILE
    if file.exists():
        return file
    disk = SystemDisk()
    try:
        listed = [Path(one) for one in read_nodes(disk, str(path)).values()]
        folders = listed or sorted(path.glob("node-*"))
        found = [read_stored(disk, str(folder / METADATA_FOLDER)) for folder in folders]
        newest = max((one for one in found if one is not None), key=lambda one: (one.epoch, one.end_offset))
        properties = read_properties(disk, str(folders[0]))
        assert properties is not None
        file.write_bytes(encode(ControllerState(properties["cluster.id"], newest.image)))
        file.chmod(0o600)
        for folder in folders:
            shutil.rmtree(folder / METADATA_FOLDER, ignore_errors=True)
    finally:
        disk.close()
    return file
