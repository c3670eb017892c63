"""Which roots a path stands for: those of one cluster, at most two folders deep, and nothing that only lies near."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyreplog
from pyreplog.log import find_roots, open_readers
from pyreplog.record import records_of
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, find_partitions, verify
from tests.golden.units import hash_of, manifest, unit


@pytest.fixture
def disk() -> Iterator[SystemDisk]:
    """The real one."""
    with_files = SystemDisk()
    yield with_files
    with_files.close()


def make(*paths: Path) -> None:
    """A log at each, each of a cluster of its own."""
    for path in paths:
        with pyreplog.open_log(path, topic="t", durability="os") as log:
            log.append(str(path).encode())


def roots(disk: SystemDisk, path: Path) -> list[str]:
    """What the finder finds, relative to ``path``; the independent look finds the same."""
    found = find_roots(disk, str(path))
    held = {str(Path(folder).parent) for folders in find_partitions(disk, str(path)).values() for folder in folders}
    assert held == set(found)
    return [str(Path(root).relative_to(path)) for root in found]


def test_a_folder_of_kafkas_nodes(disk: SystemDisk) -> None:
    """Roots one deeper than the folder of a node, one of them from before it was cut: read as by Kafka, and sound."""
    parent = unit("cluster-4.1.0/n1").parent
    assert roots(disk, parent) == ["n1/data", "n1-diverged/data", "n2/data", "n3/data"]
    assert roots(disk, parent / "n2") == ["data"]
    readers = open_readers(disk, str(parent))
    for partition in manifest("cluster-4.1.0/n2")["partitions"]:
        reader = readers[TopicPartition(partition["topic"], partition["partition"])]
        if partition.get("recordsSha256") is not None:
            records = (
                record
                for batch in reader.batches(reader.start_offset, reader.end_offset)
                for record in records_of(batch, reader.topic, reader.partition, reader.start_offset, reader.end_offset)
            )
            assert hash_of(records) == (partition["records"], partition["recordsSha256"])
    for reader in readers.values():
        reader.close()
    assert [finding for finding in verify(disk, str(parent)).findings if finding.level is Level.DAMAGE] == []


def test_the_nearest_are_meant(disk: SystemDisk, tmp_path: Path) -> None:
    """Itself before those in it, those before deeper ones; three folders deep is too deep."""
    make(tmp_path / "a" / "b" / "c")
    assert roots(disk, tmp_path / "a" / "b" / "c") == ["."]
    assert roots(disk, tmp_path / "a" / "b") == ["c"]
    assert roots(disk, tmp_path / "a") == ["b/c"]
    assert roots(disk, tmp_path) == []
    make(tmp_path / "a" / "d")
    assert roots(disk, tmp_path / "a") == ["d"]
    assert roots(disk, tmp_path) == ["a/d"]
    make(tmp_path / "e")
    shutil.copytree(tmp_path / "e", tmp_path / "a", dirs_exist_ok=True)  # by hand: nothing of ours makes a root above others
    assert roots(disk, tmp_path / "a") == ["."]


def test_what_only_lies_near_is_left_alone(disk: SystemDisk, tmp_path: Path) -> None:
    """Clusters beside one another are not taken for one; hidden folders, files, dead links and partitions are not searched."""
    make(tmp_path / "one" / "n1", tmp_path / "other" / "n1")
    assert roots(disk, tmp_path) == []
    assert roots(disk, tmp_path / "one") == ["n1"]
    make(tmp_path / "hidden" / ".saved" / "n1", tmp_path / "copied" / "t-0" / "log")
    (tmp_path / "hidden" / "file").touch()
    (tmp_path / "hidden" / "link").symlink_to("nowhere")
    assert roots(disk, tmp_path / "hidden") == []
    (tmp_path / "copied" / "t-0" / "00000000000000000000.log").touch()
    assert find_roots(disk, str(tmp_path / "copied")) == []
