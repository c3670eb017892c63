"""The folder of a cluster that version 0.1 wrote, packed in ``cluster-0.1.tar.xz``.

Three nodes. ``orders`` has two partitions on all of them; ``single`` has one on node 3, which was down at the end. The
controller's file is ``replog.controller``; no node has a metadata log.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

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
