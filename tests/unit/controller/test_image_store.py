"""The stored image equals the replay of the records up to its end, or is not used."""

from __future__ import annotations

import base64
from pathlib import Path
from random import Random

import pytest

from pyreplog.controller import MetadataImage
from pyreplog.controller import image_store as image_store_module
from pyreplog.controller.image_entries import Entry, ImageEntries
from pyreplog.controller.image_loader import ImageLoader, PartitionEncoder
from pyreplog.controller.image_store import IMAGE_STORE_NAME, NOTE_NAME, ImageStore, StoredEnd
from pyreplog.errors import CorruptError
from pyreplog.ports import Disk
from pyreplog.system import SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.testing.store import damage_store
from pyreplog.wire import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    OtherMetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    SuspectReplica,
    TopicRecord,
    UnregisterBrokerRecord,
    encode_record,
)

FOLDER = "folder"


def content(image: MetadataImage) -> list[object]:
    """Everything that an image says."""
    topics = {
        key: (topic.name, topic.config, topic.log_config, dict(topic.partitions.items()))
        for key, topic in image.topics.items()
    }
    return [
        image.offset,
        image.brokers,
        topics,
        image.topic_ids,
        image.defaults,
        image.next_producer_id,
        image.feature_levels,
    ]


def replayed(history: list[MetadataRecord], end: int) -> MetadataImage:
    """Return the image after the records below ``end``."""
    image = MetadataImage()
    for offset in range(end):
        image.apply(offset, history[offset])
    return image


class Records:
    """Draws records that follow from an image."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def draw(self, image: MetadataImage) -> MetadataRecord:
        """Return the next record."""
        random, offset = self.random, image.offset + 1
        kind = random.choice("bftTccdprRuxPPPPPCCCCCCC")
        names = list(image.topic_ids)
        if kind == "b" or not image.brokers:
            address = [BrokerEndpoint("PEER", f"node-{random.randrange(4)}", 0)]
            return RegisterBrokerRecord(
                random.randrange(4), new_id(random), offset, address, log_dirs=(new_id(random),)
            )
        broker = image.brokers[random.choice(list(image.brokers))]
        if kind == "u":
            return UnregisterBrokerRecord(broker.broker_id, broker.epoch)
        if kind == "x":
            return BrokerRegistrationChangeRecord(
                broker.broker_id, broker.epoch, random.choice((-1, 0, 1)), random.randrange(2)
            )
        if kind == "p":
            return ProducerIdsRecord(0, -1, offset + 1000)
        if kind == "d":
            return ConfigRecord(RESOURCE_BROKER, "", "retention.ms", random.choice((None, "1000", "2000")))
        if kind == "f":
            return FeatureLevelRecord("replog.version", random.randrange(3))
        if kind == "r":
            return OtherMetadataRecord("NoOpRecord", 0, {})
        if kind in "tT" or not names:
            return TopicRecord(f"topic-{offset}", new_id(random))
        name = random.choice(names)
        topic = image.topics[image.topic_ids[name]]
        if kind == "c":
            return ConfigRecord(RESOURCE_TOPIC, name, "min.insync.replicas", random.choice((None, "1", "2")))
        if kind == "R":
            return RemoveTopicRecord(topic.topic_id)
        replicas = random.sample(range(4), 3)
        suspects = (SuspectReplica(replicas[1], -2, offset),) if random.random() < 0.2 else ()
        number = len(topic.partitions)
        if kind == "P" or not number:
            return PartitionRecord(
                number, topic.topic_id, replicas, replicas[:2], leader=replicas[0], leader_epoch=0, partition_epoch=0
            )
        return PartitionChangeRecord(
            random.randrange(number), topic.topic_id, replicas[1:], leader=replicas[1], suspects=suspects
        )


def new_id(random: Random) -> str:
    return base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")


class Member:
    """A history of records, the image of all of them, and the store that follows it."""

    def __init__(self, disk: Disk, random: Random) -> None:
        self.disk = disk
        self.random = random
        self.records = Records(random)
        self.history: list[MetadataRecord] = []
        self.image = MetadataImage()
        self.clock = SimClock()
        self.store = ImageStore(disk, FOLDER, self.clock)
        self.used = self.thrown_away = 0

    def has(self, end: StoredEnd) -> bool:
        """Whether the history has the record: the epoch of each is a tenth of its offset."""
        return 0 <= end.offset < len(self.history) and end.epoch == end.offset // 10

    def append(self) -> None:
        """Commit a record."""
        record = self.records.draw(self.image)
        self.history.append(record)
        self.apply(record)

    def apply(self, record: MetadataRecord) -> None:
        offset = self.image.offset + 1
        self.image.apply(offset, record)
        self.store.note(self.image, record, StoredEnd(offset, offset // 10))

    def work(self) -> None:
        """Some time passes."""
        self.clock.advance(self.random.choice((0, 1_000_000_000)))
        self.store.work(self.image, self.clock.monotonic_ns())

    def start(self) -> None:
        """Start again: from the store, and the records behind it."""
        self.store = ImageStore(self.disk, FOLDER, self.clock)
        found = self.store.load(self.has)
        if found is None:
            self.thrown_away += 1
            self.image = replayed(self.history, len(self.history))
            self.store.build(self.image, StoredEnd(self.image.offset, self.image.offset // 10))
            return
        self.used += 1
        assert content(found) == content(replayed(self.history, found.offset + 1))
        self.image = found
        for record in self.history[found.offset + 1 :]:
            self.apply(record)
        assert content(self.image) == content(replayed(self.history, len(self.history)))


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a few entries, so that short histories have many."""
    monkeypatch.setattr(image_store_module, "SLICE", 3)


def run(seed: int, disk: SimDisk, *, damage: bool) -> Member:
    """Let a member work, stop and start again at random points."""
    random = Random(seed)
    disk.make_directory(FOLDER)
    member = Member(disk, random)
    member.start()
    for _ in range(400):
        step = random.random()
        if step < 0.6:
            member.append()
        elif step < 0.96:
            member.work()
        else:
            end = random.choice(("close", "kill", "power"))
            if end == "close":
                member.store.close(member.image)
            else:
                member.store.kill()
            if end == "power":
                member.disk = disk = disk.crash(random)
                if disk.stat(FOLDER) is None:
                    disk.make_directory(FOLDER)
            path = f"{FOLDER}/{IMAGE_STORE_NAME}"
            if damage and random.random() < 0.7 and disk.stat(path) is not None:
                damage_store(disk, path, random)
            member.start()
    return member


@pytest.mark.parametrize("seed", range(25))
def test_the_stored_image_is_the_replay_at_its_end(seed: int) -> None:
    """At every start, the image from the store is that of the records up to its end."""
    member = run(seed, SimDisk(Random(seed)), damage=False)
    assert member.used


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_store_is_an_older_state_or_not_used(seed: int) -> None:
    """The same holds if the store lost its newest writes, all of them or a bit before the start."""
    run(seed, SimDisk(Random(seed)), damage=True)


def test_the_comparison_sees_a_store_that_forgets_a_kind_of_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a store that does not follow changes of partitions, one of a few runs finds a difference."""
    right = ImageEntries.of_record

    def wrong(self: ImageEntries, image: MetadataImage, record: MetadataRecord) -> list[Entry]:
        return [] if isinstance(record, PartitionChangeRecord) else right(self, image, record)

    monkeypatch.setattr(ImageEntries, "of_record", wrong)
    with pytest.raises(AssertionError):
        for seed in range(10):
            run(seed, SimDisk(Random(seed)), damage=False)


def test_a_clean_end_leaves_the_newest_state() -> None:
    """After a clean end the store ends at the last record, and is used."""
    disk = SimDisk(Random(0))
    disk.make_directory(FOLDER)
    member = Member(disk, Random(0))
    member.start()
    for _ in range(100):
        member.append()
    member.store.close(member.image)
    before = member.image
    member.start()
    assert member.used == 1
    assert content(member.image) == content(before)


def test_a_store_is_not_used_if_the_log_has_another_record_there() -> None:
    """The store is thrown away if log and snapshot do not have its last record, as in an older copy of a folder."""
    disk = SimDisk(Random(0))
    disk.make_directory(FOLDER)
    member = Member(disk, Random(0))
    member.start()
    for _ in range(50):
        member.append()
    member.store.close(member.image)
    del member.history[30:]
    member.start()
    assert not member.used
    assert member.image.offset == 29


def test_no_flipped_bit_of_an_open_store_is_believed() -> None:
    """After a kill, with one bit of any byte flipped, the image is that of the log, and nothing is raised."""
    disk = SimDisk(Random(0))
    disk.make_directory(FOLDER)
    member = Member(disk, Random(0))
    member.start()
    topic_id = new_id(Random(0))
    for record in (
        TopicRecord("t", topic_id),
        ConfigRecord(RESOURCE_TOPIC, "t", "durability", "sync"),
        PartitionRecord(0, topic_id, (1, 2), (1, 2), leader=1, leader_epoch=0, partition_epoch=0),
        ConfigRecord(RESOURCE_BROKER, "", "retention.ms", "1000"),
    ):
        member.history.append(record)
        member.apply(record)
    member.store.finish(member.image)
    member.store.kill()
    path = f"{FOLDER}/{IMAGE_STORE_NAME}"
    found = disk.stat(path)
    assert found is not None
    for position in range(found.size):
        copy = disk.snapshot()
        copy.flip(path, position, 1 << position % 8)
        member.disk = copy
        member.start()
        assert content(member.image) == content(replayed(member.history, 4))
        member.store.kill()
    assert member.thrown_away > 100


def test_an_idle_store_writes_nothing() -> None:
    """Once all changes are written, there is no further work, and no write."""
    disk = SimDisk(Random(0))
    disk.make_directory(FOLDER)
    member = Member(disk, Random(0))
    member.start()
    for _ in range(50):
        member.append()
    while member.store.next_wake_ns is not None:
        member.store.work(member.image, member.store.next_wake_ns)
    calls = disk.calls
    member.store.work(member.image, 10**15)
    assert disk.calls == calls


def test_a_full_disk_costs_the_store_only() -> None:
    """A store that cannot be written is given up; the image goes on, and the next start makes it again."""
    disk = SimDisk(Random(0))
    disk.make_directory(FOLDER)
    member = Member(disk, Random(0))
    member.start()
    for _ in range(20):
        member.append()
    disk.fail("write", f"*{IMAGE_STORE_NAME}")
    member.store.finish(member.image)
    assert not member.store.is_open
    assert disk.stat(f"{FOLDER}/{NOTE_NAME}") is None
    disk.clear_faults()
    member.append()
    member.start()
    assert member.thrown_away == 2
    assert member.store.is_open


@pytest.mark.parametrize("clean", [True, False])
def test_the_real_store_is_the_replay(tmp_path: Path, clean: bool) -> None:
    """The same with LMDB, after a clean end and after a kill."""
    disk = SystemDisk()
    disk.make_directory(f"{tmp_path}/{FOLDER}")
    member = Member(disk, Random(1))
    member.store = ImageStore(disk, f"{tmp_path}/{FOLDER}", SimClock())
    assert member.store.load(member.has) is None
    member.store.build(member.image, StoredEnd(-1, -1))
    for _ in range(300):
        member.append()
        member.work()
    if clean:
        member.store.close(member.image)
    else:
        member.store.finish(member.image)
        member.store.kill()
    again = ImageStore(disk, f"{tmp_path}/{FOLDER}", SimClock())
    found = again.load(member.has)
    assert found is not None
    assert content(found) == content(member.image)
    again.kill()
    disk.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_in_a_closed_file_is_found_before_the_store_is_opened(tmp_path: Path, seed: int) -> None:
    """LMDB trusts its pages, so a file whose checksum is wrong is removed unread."""
    disk = SystemDisk()
    disk.make_directory(f"{tmp_path}/{FOLDER}")
    member = Member(disk, Random(seed))
    member.store = ImageStore(disk, f"{tmp_path}/{FOLDER}", SimClock())
    member.store.load(member.has)
    member.store.build(member.image, StoredEnd(-1, -1))
    for _ in range(50):
        member.append()
    member.store.close(member.image)
    path = tmp_path / FOLDER / IMAGE_STORE_NAME
    data = bytearray(path.read_bytes())
    data[Random(seed).randrange(len(data))] ^= 1 << seed % 8
    path.write_bytes(data)
    again = ImageStore(disk, f"{tmp_path}/{FOLDER}", SimClock())
    assert again.load(member.has) is None
    assert again.is_open
    again.kill()
    disk.close()


def test_the_bytes_of_a_partition_are_those_of_its_record() -> None:
    """The encoder that shares bytes makes the same bytes as the codec, and the loader reads both."""
    random, image = Random(3), MetadataImage()
    records = Records(random)
    encoder, found = PartitionEncoder(), 0
    for offset in range(500):
        image.apply(offset, records.draw(image))
    loader = ImageLoader(image.offset)
    for record in image.records():
        value = encode_record(record)
        if isinstance(record, PartitionRecord):
            partition = image.topics[record.topic_id].partitions[record.partition_id]
            raw = base64.urlsafe_b64decode(record.topic_id + "==")
            assert encoder.encode(raw, record.partition_id, partition) == value
            found += 1
        loader.add(value)
    assert found
    assert content(loader.image) == content(image)


def test_every_record_that_restates_an_image_is_an_entry() -> None:
    """The store has an entry for each record of a snapshot: no part of an image is forgotten."""
    random, image = Random(4), MetadataImage()
    records = Records(random)
    for offset in range(500):
        image.apply(offset, records.draw(image))
    entries = ImageEntries()
    made = dict(entries.of_cluster(image))
    for topic in image.topics.values():
        made.update(entries.of_topic(topic))
        made.update(entries.partition(topic, number) for number in topic.partitions)
    assert sorted(value or b"" for value in made.values()) == sorted(encode_record(one) for one in image.records())
    loader = ImageLoader(image.offset)
    for key in sorted(made):
        loader.add(made[key] or b"")
    assert content(loader.image) == content(image)


def test_a_partition_of_an_unknown_topic_is_damage() -> None:
    """A loader refuses a partition whose topic it does not have."""
    value = encode_record(PartitionRecord(0, new_id(Random(0)), (1,), (1,), leader=1))
    with pytest.raises(CorruptError):
        ImageLoader(0).add(value)
