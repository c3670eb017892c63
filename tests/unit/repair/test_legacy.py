"""`repair` of folders that begin in Kafka's formats before 0.11: what is whole is kept as it lies, and nothing else
is lost."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import StorageError
from pyreplog.log import LogRoot, RecoveryOptions, open_readers, write_topic_id
from pyreplog.log.identity import id_for_name
from pyreplog.record import Record, records_of
from pyreplog.repair import PartitionPlan, apply_repair, plan_repair
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, Window, batch_at, verify
from tests.faults.flips.golden import files
from tests.interop.golden.units import manifest, unit
from tests.unit.log.support import CLOCK, batch

UNIT: Final = "old-format-2.8.2"
FOLDER: Final = unit(UNIT) / "data"
NAMES: Final = [path.name for path in sorted(FOLDER.glob("magic*"))]
OLD: Final = [name for name in NAMES if not name.startswith("magic2")]
NEW: Final = "saved"


class Found(NamedTuple):
    """What a reader finds."""

    topic_id: str | None
    start_offset: int
    end_offset: int
    records: list[Record]


def disk_of(*names: str, folders: Sequence[str] = ("data",)) -> SimDisk:
    """A disk with these partitions of the broker's folder, and what lies beside them, in each of ``folders``."""
    disk = SimDisk(Random(1))
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and (path.parent == FOLDER or path.parent.name in names):
            for folder in folders:
                put(disk, f"{folder}/{path.relative_to(FOLDER)}", path)
    disk.write_back()
    return disk


def put(disk: SimDisk, path: str, source: Path) -> None:
    """One file."""
    disk.make_directory(path.rpartition("/")[0])
    file = disk.create(path)
    file.write_at(0, [source.read_bytes()])
    file.close()


def found_in(disk: SimDisk, path: str, topic: str) -> Found:
    """All that a reader is given."""
    reader = open_readers(disk, path)[TopicPartition(topic, 0)]
    try:
        records = [
            record
            for one in reader.batches(reader.start_offset, reader.end_offset)
            for record in records_of(one, topic, 0, 0, 2**63 - 1)
        ]
        return Found(reader.topic_id, reader.start_offset, reader.end_offset, records)
    finally:
        reader.close()


def repaired(disk: SimDisk) -> list[PartitionPlan]:
    """The plans, carried out; the result is sound, and the source as it was."""
    before = {path: disk.open(path).read_at(0, 1 << 20).tobytes() for path in files(disk, "data")}
    plans = plan_repair(disk, "data")
    apply_repair(disk, "data", NEW, plans, clock=CLOCK, random=Random(3))
    book = verify(disk, NEW)
    assert book.worst is Level.NOTE, book.findings
    assert {path: disk.open(path).read_at(0, 1 << 20).tobytes() for path in files(disk, "data")} == before
    return plans


def logs(disk: SimDisk, folder: str) -> bytes:
    """Its segments, one behind the other."""
    return b"".join(
        disk.open(path).read_at(0, 1 << 20).tobytes() for path in sorted(files(disk, folder)) if path.endswith(".log")
    )


def messages(disk: SimDisk, path: str) -> list[tuple[int, int, int, int, int]]:
    """(position, size, first offset, last offset, format) of each batch of a segment."""
    file = disk.open(path)
    window = Window(file, file.size())
    found = []
    position = 0
    while (one := batch_at(window, position)) is not None:
        found.append((position, one.size, one.base_offset, one.last_offset, one.magic))
        position += one.size
    return found


def test_a_sound_folder_is_saved_whole() -> None:
    """All partitions of a broker that lived through the upgrades: ids, offsets, timestamps and their types are what
    they were, the old messages are byte for byte, and the log goes on."""
    disk = disk_of(*NAMES)
    plans = repaired(disk)
    assert [(plan.lost, plan.mended, plan.borrowed, plan.dropped) for plan in plans] == [([], [], [], [])] * len(NAMES)
    for name in NAMES:
        topic = name.removesuffix("-0")
        assert found_in(disk, NEW, topic)[1:] == found_in(disk, "data", topic)[1:]
        if name in OLD:
            assert found_in(disk, NEW, topic).topic_id == id_for_name(
                topic
            )  # as whoever opens the old folder for writing makes it
            assert logs(disk, f"{NEW}/{name}") == logs(disk, f"data/{name}")
    listed = {one["topic"]: one["records"] for one in manifest(UNIT)["partitions"]}
    root = LogRoot.open(disk, NEW, clock=CLOCK, random=Random(5))
    assert root.clean
    assert not root.damaged
    for name in OLD:
        log = root.logs[TopicPartition(name.removesuffix("-0"), 0)]
        assert not log.incomplete
        log.become_leader(log.epochs.latest + 1)
        assert log.append_as_leader(batch(3), log.epochs.latest).base_offset == listed[log.topic_partition.topic]
    root.close()


@pytest.mark.parametrize("where", ["value", "length", "offset", "format"])
@pytest.mark.parametrize("name", OLD)
def test_damage_costs_one_message(name: str, where: str) -> None:
    """A flip in any message, its length, which leads to the next one, its offset, which no checksum covers, and its
    format included: `verify` names it, and all the others are saved. A log that lost something is incomplete."""
    topic = name.removesuffix("-0")
    sound = disk_of(name)
    whole = found_in(sound, "data", topic).records
    segments = [path for path in files(sound, f"data/{name}") if path.endswith(".log")]
    places = [(path, *one) for path in segments for one in messages(sound, path)]
    old = [place for place in places if place[-1] < 2]
    assert len(old) > 3
    for path, position, size, first, last, _ in old:
        if where == "offset" and (path, position) == (places[-1][0], places[-1][1]):
            continue  # the last one: nothing behind it says otherwise
        disk = sound.snapshot()
        disk.flip(path, position + {"value": size - 1, "length": 10, "offset": 3, "format": 16}[where], 0x20)
        damage = [(one.start, one.end) for one in verify(disk, "data").findings if one.level is Level.DAMAGE]
        assert damage == [(first, last + 1)]
        (plan,) = repaired(disk)
        assert [(one.start, one.end) for one in plan.lost] == [(first, last + 1)]
        assert found_in(disk, NEW, topic).records == [record for record in whole if not first <= record.offset <= last]
        root = LogRoot.open(disk, NEW, clock=CLOCK, random=Random(5))
        assert root.logs[TopicPartition(topic, 0)].incomplete
        root.close()


def test_zeros_behind_the_last_message_are_passed_over() -> None:
    """Room that a broker reserved, or what a power cut left: looked through as fast as it is read, not as what may
    begin anywhere."""
    disk = disk_of("magic1-none-0")
    sound = plan_repair(disk, "data")
    file = disk.open(f"data/magic1-none-0/{0:020}.log", write=True)
    file.write_at(file.size(), [bytes(16 << 20)])
    file.close()
    start = time.process_time()
    (plan,) = plan_repair(disk, "data")
    assert time.process_time() - start < 3
    assert (plan.pieces, plan.lost) == (sound[0].pieces, [])


def test_what_no_reader_takes_is_not_saved() -> None:
    """A message whose checksum is right, and whose fields do not fit into it."""
    disk = disk_of("magic1-none-0")
    path = f"data/magic1-none-0/{0:020}.log"
    position, size, first, last, _ = messages(disk, path)[3]
    file = disk.open(path, write=True)
    data = bytearray(file.read_at(position, size))
    data[26:30] = (size).to_bytes(4, "big")  # of its key
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    file.write_at(position, [data])
    file.close()
    (damage,) = (one for one in verify(disk, "data").findings if one.level is Level.DAMAGE)
    assert (damage.position, damage.start, damage.end) == (position, first, last + 1)
    (plan,) = repaired(disk)
    assert [(one.start, one.end) for one in plan.lost] == [(first, last + 1)]
    assert first not in {record.offset for record in found_in(disk, NEW, "magic1-none").records}


@pytest.mark.parametrize("name", ["magic0-none-0", "magic1-snappy-0", "magicmix-lz4-0"])
def test_a_log_that_was_taken_over(name: str) -> None:
    """One that we have gone on with: its settings, its id and its start, which lies among the old messages, are
    kept."""
    topic = name.removesuffix("-0")
    disk = disk_of(name)
    settings = LogConfig(durability="os", segment_bytes=2048, retention_ms=10**15)
    root = LogRoot.open(
        disk,
        "data",
        clock=CLOCK,
        random=Random(1),
        recovery=RecoveryOptions(None, {TopicPartition(topic, 0): "os"}),
    )
    log = root.logs[TopicPartition(topic, 0)]
    log.update_config(settings)
    log.become_leader(log.epochs.latest + 1)
    for _ in range(20):
        log.append_as_leader(batch(3), log.epochs.latest)
    log.set_high_watermark(log.end_offset)
    log.delete_records(14)
    topic_id = log.topic_id
    root.close()
    disk.write_back()
    path = f"data/{name}/{0:020}.log"
    position, size, first, last, _ = next(one for one in messages(disk, path) if one[2] > 14)
    whole = found_in(disk, "data", topic)
    disk.flip(path, position + size - 1, 1)
    (plan,) = repaired(disk)
    assert [(one.start, one.end) for one in plan.lost] == [(first, last + 1)]
    left = found_in(disk, NEW, topic)
    assert left[:3] == whole[:3] == (topic_id, 14, whole.end_offset)
    assert [one for one in left.records if one.offset >= 14] == [
        one for one in whole.records if one.offset >= 14 and not first <= one.offset <= last
    ]
    again = LogRoot.open(disk, NEW, clock=CLOCK, random=Random(5))
    assert again.logs[TopicPartition(topic, 0)].config == settings
    assert (again.node_id, again.cluster_id) == (root.node_id, root.cluster_id)
    again.close()


def test_two_replicas_make_one_whole() -> None:
    """What one lost of the old messages is taken from the other."""
    name, topic = "magicmix-lz4-0", "magicmix-lz4"
    sound = disk_of(name, folders=("data/n1", "data/n2"))
    for number in (1, 2):
        properties = sound.open(f"data/n{number}/meta.properties", write=True)
        content = bytes(properties.read_at(0, properties.size())).replace(b"broker.id=1", b"broker.id=%d" % number)
        properties.write_at(0, [content])
        properties.close()
        write_topic_id(sound, f"data/n{number}/{name}", "AbCdEfGhIjKlMnOpQrStUw")
    paths = [[path for path in files(sound, f"data/{node}/{name}") if path.endswith(".log")] for node in ("n1", "n2")]
    whole = found_in(sound, "data/n1", topic)
    content = logs(sound, f"data/n1/{name}")
    disk = sound.snapshot()
    for path, number in ((paths[0][0], 1), (paths[0][0], 4), (paths[1][0], 0), (paths[1][-1], 0)):
        position, size, *_ = messages(sound, path)[number]
        disk.flip(path, position + size - 1, 1)
    (plan,) = repaired(disk)
    assert (plan.lost, len(plan.borrowed)) == ([], 2)
    assert found_in(disk, NEW, topic)[1:] == whole[1:]
    assert logs(disk, f"{NEW}/{name}") == content


def test_nothing_but_new_batches_is_left() -> None:
    """With all old messages gone the log is an ordinary one."""
    disk = disk_of("magicmix-none-0")
    segments = [path for path in files(disk, "data/magicmix-none-0") if path.endswith(".log")]
    whole = found_in(disk, "data", "magicmix-none").records
    first = 0
    for path in segments:
        for position, size, _, last, magic in messages(disk, path):
            if magic < 2:
                disk.flip(path, position + size - 1, 1)
                first = last + 1
    (plan,) = repaired(disk)
    assert [(one.start, one.end) for one in plan.lost] == [(0, first)] or sum(
        one.end - one.start for one in plan.lost
    ) == first
    assert found_in(disk, NEW, "magicmix-none")[1:] == (
        first,
        whole[-1].offset + 1,
        [one for one in whole if one.offset >= first],
    )


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename"])
def test_nobody_takes_what_is_not_finished_for_a_partition(call: str) -> None:
    """Where the disk fails while the old messages are put down, the folder holds none."""
    disk = disk_of("magicmix-none-0")
    disk.fail(call, f"{NEW}/magic*", times=1)
    with pytest.raises(StorageError):
        apply_repair(disk, "data", NEW, plan_repair(disk, "data"), clock=CLOCK, random=Random(3))
    disk.clear_faults()
    assert not open_readers(disk, NEW)
