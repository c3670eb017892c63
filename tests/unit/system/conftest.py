"""The disks that every conformance test runs on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pyreplog.ports import Disk
from pyreplog.system import SystemDisk
from pyreplog.testing import SimDisk


class Place(NamedTuple):
    """A disk, and a folder on it that is empty and exists."""

    disk: Disk
    root: str


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "simulated":
        disk = SimDisk()
        disk.make_directory("/root")
        yield Place(disk, "/root")
    else:
        system = SystemDisk()
        yield Place(system, str(tmp_path))
        system.close()
