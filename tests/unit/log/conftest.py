"""Every test of a log runs on the real disk and on the simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from pyreplog.ports import Disk
from pyreplog.system.disk import SystemDisk
from pyreplog.testing.disk import SimDisk


class Place(NamedTuple):
    """A disk and a folder on it."""

    disk: Disk
    path: str

    def of(self, name: str) -> str:
        """A path in the folder."""
        return f"{self.path}/{name}"

    def read(self, name: str) -> bytes:
        """The content of a file in the folder."""
        file = self.disk.open(self.of(name))
        try:
            return bytes(file.read_at(0, file.size()))
        finally:
            file.close()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file in the folder."""
        path = self.of(name)
        if self.disk.stat(path) is not None:
            self.disk.remove(path)
        file = self.disk.create(path)
        try:
            file.write_at(0, [content])
        finally:
            file.close()


@pytest.fixture(params=["system", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty folder on the real or the simulated disk."""
    if request.param == "sim":
        disk = SimDisk(Random(1))
        disk.make_directory("data")
        yield Place(disk, "data")
        return
    (tmp_path / "data").mkdir(mode=0o700)
    real = SystemDisk()
    yield Place(real, str(tmp_path / "data"))
    real.close()


def damage_second_batch(place: Place) -> None:
    """Of the first segment of the log t-0: its length makes no sense."""
    name = f"t-0/{0:020d}.log"
    content = bytearray(place.read(name))
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second + 8 : second + 12] = b"\xff\xff\xff\xff"
    place.write(name, bytes(content))
