"""Golden files of this library's own formats, one folder a format version: what was written once is read for ever.

``python -m tests.interop.golden.own`` writes those of :data:`VERSION` that are missing. It never changes one: where a
format changes, so does the version, and the folder of the one before stays.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from pyreplog.controller import BrokerImage, ControllerState, MetadataImage, PartitionImage, TopicImage, encode
from pyreplog.log import LogRoot
from pyreplog.log.snapshot import format_state
from pyreplog.log.summary import Summary, encode_body, encode_key, sealed
from pyreplog.spool.layout import MANIFEST, BatchId, batch_name
from pyreplog.spool.manifest import Manifest
from pyreplog.spool.staged import AtTheEnd, StagedWriter
from pyreplog.testing.disk import SimDisk
from pyreplog.values import EpochEntry, TopicPartition
from tests.faults.flips.golden import ROOT, files, golden
from tests.unit.log.support import CLOCK, batch, bytes_of

FOLDER: Final = Path(__file__).parent / "own"
VERSION: Final = "1"
TOPIC_ID: Final = "AbCdEfGhIjKlMnOpQrStUw"
BATCH: Final = BatchId("query_1", 7)
KEY: Final = TopicPartition("orders", 1)
GENERATION: Final = "Vkeo9ZaN7jZN1l8YEOqZQA"
SUMMARY: Final = Summary(
    TOPIC_ID,
    "sync",
    False,
    100,
    104,
    140,
    140,
    140,
    (EpochEntry(0, 104), EpochEntry(3, 120)),
    ((100, 2000), (130, 500)),
    2**63 - 1,
)


def controller() -> ControllerState:
    """One broker and one topic."""
    image = MetadataImage()
    image.offset = 7
    image.next_producer_id = 1000
    image.brokers[1] = BrokerImage(1, 5, TOPIC_ID, "node-1", False, False, (TOPIC_ID,))
    topic = TopicImage("t", TOPIC_ID)
    topic.config = {"retention.ms": "5"}
    topic.partitions[0] = PartitionImage((1, 2), (1,), (2,), (), 1, 3, 4, False)
    image.topics[TOPIC_ID], image.topic_ids["t"] = topic, TOPIC_ID
    return ControllerState(TOPIC_ID, image)


def _spool() -> dict[str, bytes]:
    """A staged file, and the manifest that names it."""
    disk = SimDisk(Random(1))
    disk.make_directory(ROOT)
    writer = StagedWriter(disk, ROOT, BATCH, "3-abc", AtTheEnd())
    writer.add([(TopicPartition("t", 0), bytes(batch(2))), (TopicPartition("u", 3), bytes(batch(1)))])
    staged = writer.finish()
    found = {f"spool/{staged.name}": bytes_of(disk, f"{ROOT}/{staged.name}")}
    return found | {f"spool/{batch_name(BATCH, MANIFEST)}": format_state(Manifest(BATCH, (staged,)).to_values())}


def written() -> dict[str, bytes]:
    """What the code of today writes, by name."""
    found = {"replog.controller": encode(controller()), **_spool()}
    found["summary.entry"] = sealed(encode_key(KEY), GENERATION, encode_body(SUMMARY))
    for name in ("own", "open"):
        disk = golden(name).disk
        found |= {f"{name}/{path.removeprefix(ROOT + '/')}": bytes_of(disk, path) for path in files(disk)}
    return found


def kept(version: str) -> dict[str, bytes]:
    """The golden files of a version, by name."""
    folder = FOLDER / version
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def as_root(found: dict[str, bytes], name: str) -> SimDisk:
    """The golden root ``name`` on a disk of its own."""
    disk = SimDisk(Random(1))
    for path, data in found.items():
        if path.startswith(f"{name}/"):
            target = f"{ROOT}/{path.removeprefix(name + '/')}"
            disk.make_directory(target.rpartition("/")[0])
            file = disk.create(target)
            file.write_at(0, [data])
            file.close()
    return disk


def opened(disk: SimDisk) -> LogRoot:
    """By the next writer."""
    return LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(5))


if __name__ == "__main__":
    for name, data in written().items():
        path = FOLDER / VERSION / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
