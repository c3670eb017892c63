"""The metadata of a cluster is made again from its nodes' folders, and a crash at any call leaves work that the next
call ends."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pyreplog.controller import MetadataImage, rebuild_metadata
from pyreplog.controller.features import LEVEL_LATEST
from pyreplog.controller.rebuild import RebuiltMetadata
from pyreplog.controller.survivors import MARGIN
from pyreplog.log import METADATA_FOLDER, MetadataFolder
from pyreplog.quorum import Identity, find_epoch, find_voter_damage
from pyreplog.testing import SimClock, SimDisk
from pyreplog.testing.crash import crash_points
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER
from tests.unit.controller.test_recovery import (
    ADDRESS,
    CLUSTER_ID,
    CONFIG,
    ENDS,
    HOME,
    ORDERS,
    directory_of,
    image_in,
    make,
    opened,
)

ROOTS = {number: f"{HOME}/node-{number}" for number in (1, 2, 3)}


def rebuild(disk: SimDisk, *, write: bool = True) -> RebuiltMetadata:
    """Make the metadata again."""
    chance = Random(len(disk.list(ROOTS[1])))  # a second run gives the folders other names
    return rebuild_metadata(disk, HOME, ROOTS, ADDRESS, SimClock(), chance, CONFIG, write=write)


def harm(disk: SimDisk) -> None:
    """No snapshot of any node can be read any more."""
    for root in ROOTS.values():
        folder = f"{root}/{METADATA_FOLDER}"
        for name in disk.list(folder):
            if name.endswith(".checkpoint"):
                file = disk.open(f"{folder}/{name}", write=True)
                file.write_at(0, [bytes(file.size())])
                file.sync()
                file.close()


def check_image(image: MetadataImage) -> None:
    """It has the partition of the folders, with every copy as a suspect, and no leader yet."""
    partition = image.topics[ORDERS].partitions[0]
    assert (partition.replicas, partition.leader) == ((3, 1, 2), NO_LEADER)
    assert {one.broker_id: one.end_offset for one in partition.suspects} == ENDS
    assert partition.leader_epoch == 4 + MARGIN
    assert image.topics[ORDERS].config["durability"] == "sync"
    assert image.level == LEVEL_LATEST


def test_the_folders_say_what_there_is() -> None:
    """The first node becomes the only voter, in an epoch above every known one, and leads."""
    disk = SimDisk(Random(1))
    make(disk)
    harm(disk)
    shown = rebuild(disk, write=False)
    made = rebuild(disk)
    assert shown == made == RebuiltMetadata(1, {TopicPartition("orders", 0): ((1, 2, 3), 3)}, ())
    check_image(image_in(disk, ROOTS[1]))
    node = opened(disk, ROOTS[1], 1)
    assert node.is_leader
    assert node.epoch > 3 + MARGIN
    for number in (2, 3):
        assert disk.stat(f"{ROOTS[number]}/{METADATA_FOLDER}") is None
        assert any(name.endswith("-stray") for name in disk.list(ROOTS[number])), "the damaged files are kept"


def test_a_damaged_file_may_tell_any_epoch() -> None:
    disk = SimDisk(Random(1))
    make(disk)
    folder = f"{ROOTS[2]}/{METADATA_FOLDER}"
    assert find_epoch(disk, folder) == 3
    for content in (b'{"leaderEpoch": 99999999999}', b"[]", b"\xff"):
        file = disk.create(f"{folder}/new")
        file.write_at(0, [content])
        file.close()
        disk.rename(f"{folder}/new", f"{folder}/quorum-state")
        assert find_epoch(disk, folder) == 3


def test_every_crash_leaves_work_that_the_next_call_ends() -> None:
    """Either no metadata can be read, and it is made again, or the one voter has all of it."""

    def work(disk: SimDisk, acknowledged: list[str]) -> None:
        make(disk)
        harm(disk)
        acknowledged.append("lost")
        rebuild(disk)
        acknowledged.append("made")

    def check(disk: SimDisk, acknowledged: Sequence[str]) -> None:
        if not acknowledged:
            return
        folder = f"{ROOTS[1]}/{METADATA_FOLDER}"
        has_it = disk.stat(folder) is not None and list(MetadataFolder(disk, folder).records())
        assert has_it or acknowledged[-1] == "lost"
        identity = Identity(1, directory_of(disk, ROOTS[1]), CLUSTER_ID)
        if not has_it or find_voter_damage(disk, folder, identity) is not None:  # then a recovery goes on from it
            rebuild(disk)
        check_image(image_in(disk, ROOTS[1]))
        assert opened(disk, ROOTS[1], 1).is_leader

    assert crash_points(work, check, seed=4, damages=2, every=3).states > 100
