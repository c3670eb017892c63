"""The spool's files: who wins, who may take back what, what is refused, what is removed, and their bytes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import (
    ConfigError,
    CorruptError,
    LockedError,
    MessageTooLargeError,
    OutOfOrderSequenceError,
    SpoolDamagedError,
    SpoolRefusedError,
    StorageError,
    UnknownTopicError,
)
from pyreplog.log import write_state
from pyreplog.record import BatchBuilder, RecordBatch
from pyreplog.spool import (
    ORPHAN_AGE_MS,
    BatchId,
    Manifest,
    Resumer,
    Spool,
    StagedFile,
    Waiting,
    apply,
    damage_of,
    parse_name,
    producer_of,
    read_staged,
)
from pyreplog.testing import SimDisk
from pyreplog.values import TopicPartition
from tests.unit.spool.support import encoded, stage

ID = BatchId("query", 7)
KEY = TopicPartition("t", 0)


@pytest.fixture
def disk() -> SimDisk:
    """An empty folder."""
    made = SimDisk(Random(1))
    made.make_directory("/log")
    return made


@pytest.fixture
def spool(disk: SimDisk) -> Spool:
    """A spool in it."""
    return Spool(disk, "/log")


class Kept:
    """An owner that keeps what it is given; takes topic ``t`` only."""

    def __init__(self) -> None:
        self.taken: list[tuple[TopicPartition, bytes]] = []
        self.finished = 0

    def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
        """Small."""
        if key.topic != "t":
            raise UnknownTopicError(repr(key.topic))

        def check(batch: RecordBatch) -> None:
            if batch.size > 1000:
                raise MessageTooLargeError(f"{batch.size} bytes; max.message.bytes is 1000")

        return check

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """Keep it."""
        self.taken.append((key, bytes(data)))

    def finish(self) -> None:
        """Count."""
        self.finished += 1

    def close(self) -> None:
        """Nothing."""


def test_a_batch_from_start_to_end(disk: SimDisk, spool: Spool) -> None:
    """Staged by two tasks, published, applied in their order with rising sequences, answered, and nothing is left
    but the answer."""
    files = [stage(spool, ID, ("t", 0, [b"a", b"b"]), ("t", 1, [b"c"])), stage(spool, ID, ("t", 0, [b"d"]))]
    assert not spool.answered(ID)
    assert spool.publish(ID, files)
    assert spool.waiting() == [Waiting(ID, False)]
    owner = Kept()
    assert apply(spool, Waiting(ID, False), owner)
    assert owner.finished == 1
    assert spool.answered(ID)
    assert spool.answered(BatchId("query", 6))
    assert not spool.answered(BatchId("query", 8))
    assert disk.list("/log") == ["replog.spool.query.applied", "replog.spool.query.lock"]
    batches = [(key.partition, RecordBatch(data)) for key, data in owner.taken]
    assert [(partition, batch.base_sequence, batch.record_count) for partition, batch in batches] == [
        (0, 0, 2),
        (1, 0, 1),
        (0, 2, 1),
    ]
    assert {(batch.producer_id, batch.producer_epoch) for _, batch in batches} == {producer_of(ID)}
    for _, batch in batches:
        batch.check_crc()


def test_the_first_manifest_wins(disk: SimDisk, spool: Spool) -> None:
    """A second attempt's files are removed, before and after the owner began and when it is done; publishing the
    same again is harmless."""
    first = [stage(spool, ID, ("t", 0, [b"first"]))]
    assert spool.publish(ID, first)
    assert not spool.publish(ID, first)
    assert not spool.publish(ID, [stage(spool, ID, ("t", 0, [b"second"]))])
    assert spool.take(ID) is not None
    assert not spool.publish(ID, [stage(spool, ID, ("t", 0, [b"looked at"]))])
    spool.begin(ID)
    assert not spool.publish(ID, [stage(spool, ID, ("t", 0, [b"third"]))])
    assert [name for name in disk.list("/log") if name.endswith(".staged")] == [first[0].name]
    owner = Kept()
    apply(spool, Waiting(ID, True), owner)
    assert not spool.publish(ID, [stage(spool, ID, ("t", 0, [b"fourth"]))])
    assert len(owner.taken) == 1
    assert not any(name.endswith((".staged", ".manifest")) for name in disk.list("/log"))


def test_one_driver_publishes_at_a_time(disk: SimDisk, spool: Spool) -> None:
    """While another holds the query's lock."""
    lock = disk.lock("/log/replog.spool.query.lock", "other")
    with pytest.raises(LockedError):
        spool.publish(ID, [])
    lock.release()
    assert spool.publish(ID, [])


def test_taken_back_or_begun_never_both(disk: SimDisk, spool: Spool) -> None:
    """Whoever is first; and what was taken back may be published anew."""
    files = [stage(spool, ID, ("t", 0, [b"a"]))]
    spool.publish(ID, files)
    assert spool.withdraw(ID)
    assert spool.take(ID) is None
    assert not apply(spool, Waiting(ID, False), Kept())
    assert spool.waiting() == []
    assert disk.list("/log") == ["replog.spool.query.lock"]
    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"b"]))])
    assert spool.take(ID) is not None
    assert not spool.withdraw(ID)
    spool.begin(ID)
    assert not spool.withdraw(ID)
    apply(spool, Waiting(ID, True), Kept())
    assert not spool.withdraw(ID)


@pytest.mark.parametrize("topic", ["t", "other"])
def test_what_the_owner_looks_at_is_what_it_appends_or_refuses(topic: str, disk: SimDisk, spool: Spool) -> None:
    """While it looks, the driver can neither take the batch back nor publish another in its place."""

    class Slow(Kept):
        """The driver tries both while it says what it takes."""

        def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
            """Note what the driver is told."""
            answers.append((spool.withdraw(ID), spool.publish(ID, [stage(spool, ID, ("t", 0, [b"b", b"a"]))])))
            return super().check_of(key)

    answers: list[tuple[bool, bool]] = []
    owner = Slow()
    spool.publish(ID, [stage(spool, ID, (topic, 0, [b"a"]), (topic, 0, [b"b"]))])
    assert apply(spool, Waiting(ID, False), owner) == (topic == "t")
    assert answers == [(False, False)]
    assert [RecordBatch(data).record_count for _, data in owner.taken] == ([1, 1] if topic == "t" else [])
    assert spool.waiting() == []
    if topic == "other":
        with pytest.raises(SpoolRefusedError, match="UnknownTopicError"):
            spool.answered(ID)
        assert spool.publish(ID, [stage(spool, ID, ("t", 0, [b"b", b"a"]))])
        assert apply(spool, Waiting(ID, False), owner)
    assert disk.list("/log") == ["replog.spool.query.applied", "replog.spool.query.lock"]


def test_an_owner_that_was_stopped_while_it_looked(disk: SimDisk, spool: Spool) -> None:
    """The next one looks again; what was refused stays so; and who cannot look now gives the batch back."""

    class Broken(Kept):
        """Cannot say what it takes."""

        def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
            """The disk does not answer."""
            raise StorageError(errno.EIO, "no answer")

    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"]))])
    assert spool.take(ID) is not None
    assert spool.waiting() == [Waiting(ID, False)]
    with pytest.raises(StorageError):
        apply(spool, Waiting(ID, False), Broken())
    assert spool.withdraw(ID)
    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"]))])
    assert spool.take(ID) is not None
    write_state(disk, f"/log/replog.spool.query.{ID.batch}.refused", {"version": "0", "reason": "no"})
    assert spool.take(ID) is None
    with pytest.raises(SpoolRefusedError, match="no"):
        spool.answered(ID)
    assert spool.waiting() == []
    assert disk.list("/log") == [f"replog.spool.query.{ID.batch}.refused", "replog.spool.query.lock"]


def test_damaged_after_it_was_begun(disk: SimDisk, spool: Spool) -> None:
    """The error says what to do, to the owner and to the driver; it is none of the log's own damage."""
    file = stage(spool, ID, ("t", 0, [b"rot" * 10]))
    spool.publish(ID, [file])
    assert spool.take(ID) is not None
    spool.begin(ID)
    assert damage_of(spool, ID) is None
    disk.flip(f"/log/{file.name}", 70)
    with pytest.raises(
        SpoolDamagedError, match=r"checksum mismatch.* remove /log/replog\.spool\.query\.7\.begun"
    ) as caught:
        apply(spool, Waiting(ID, True), Kept())
    assert str(damage_of(spool, ID)) == str(caught.value)
    disk.remove(caught.value.begun)
    assert damage_of(spool, ID) is None
    assert spool.publish(ID, [stage(spool, ID, ("t", 0, [b"rot" * 10]))])
    assert apply(spool, Waiting(ID, False), Kept())


def test_a_failed_write_leaves_nothing(disk: SimDisk, spool: Spool) -> None:
    """What was staged is removed, of a batch write also what nobody told of; not once it is published."""
    known, unknown = stage(spool, ID, ("t", 0, [b"a"])), stage(spool, ID, ("t", 0, [b"b"]))
    spool.abandon(ID, [known], once=False)
    assert disk.list("/log") == [unknown.name]
    spool.abandon(ID, [], once=True)
    assert disk.list("/log") == []
    files = [stage(spool, ID, ("t", 0, [b"a"]))]
    spool.publish(ID, files)
    spool.abandon(ID, files, once=True)
    assert files[0].name in disk.list("/log")


def test_refused_before_anything_is_appended(disk: SimDisk, spool: Spool) -> None:
    """An unknown topic, a batch too large, a damaged or missing file: the reason is told, all files go, and the
    next attempt may try."""
    owner = Kept()
    damaged = stage(spool, ID, ("t", 0, [b"rot" * 10]))
    disk.flip(f"/log/{damaged.name}", 70)
    missing = stage(spool, ID, ("t", 0, [b"a"]))
    disk.remove(f"/log/{missing.name}")
    for file, reason in (
        (stage(spool, ID, ("t", 0, [b"a"]), ("other", 0, [b"b"])), "UnknownTopicError.*'other'"),
        (stage(spool, ID, ("t", 0, [b"a"]), ("t", 0, [b"x" * 1000])), "MessageTooLargeError.*max.message.bytes"),
        (damaged, "CorruptError.*checksum mismatch"),
        (missing, "CorruptError.*gone"),
    ):
        assert spool.publish(ID, [file])
        assert not apply(spool, Waiting(ID, False), owner)
        with pytest.raises(SpoolRefusedError, match=reason):
            spool.answered(ID)
        assert file.name not in disk.list("/log")
        assert not any(name.endswith((".manifest", ".begun")) for name in disk.list("/log"))
    assert owner.taken == []
    assert spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"]))])
    assert apply(spool, Waiting(ID, False), owner)
    assert spool.answered(ID)


@pytest.mark.parametrize(
    "kind",
    [
        {"control": True},
        {"transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
        {"base_offset": 5},
    ],
)
def test_only_plain_records_are_staged(kind: dict[str, Any], disk: SimDisk, spool: Spool) -> None:
    """Marks of leaders and transactions are the log's own, and offsets are given by it: such a batch is refused."""
    builder = BatchBuilder()
    builder.append(b"key", b"value", (), 5)
    writer = spool.stage(ID, "0-x")
    writer.add([(KEY, bytes(builder.finish(**kind)))])
    assert spool.publish(ID, [writer.finish()])
    owner = Kept()
    assert not apply(spool, Waiting(ID, False), owner)
    with pytest.raises(SpoolRefusedError, match="plain records"):
        spool.answered(ID)
    assert owner.taken == []


def test_sequences_begin_again(disk: SimDisk, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the last one."""
    monkeypatch.setattr(import_module("pyreplog.spool.apply"), "SEQUENCE_COUNT", 3)
    spool.publish(ID, [stage(spool, ID, *[("t", 0, [b"a", b"b"])] * 3)])
    owner = Kept()
    assert apply(spool, Waiting(ID, False), owner)
    assert [RecordBatch(data).base_sequence for _, data in owner.taken] == [0, 2, 1]


def test_damage_of_the_log_is_not_the_spools(disk: SimDisk, spool: Spool) -> None:
    """What the owner finds in its own files is told as that."""

    class Rotten(Kept):
        def append(self, key: TopicPartition, data: memoryview) -> None:
            raise CorruptError("rot", file="/log/t-0/0.log")

    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"]))])
    with pytest.raises(CorruptError) as caught:
        apply(spool, Waiting(ID, False), Rotten())
    assert not isinstance(caught.value, SpoolDamagedError)
    assert caught.value.file == "/log/t-0/0.log"
    assert spool.waiting() == [Waiting(ID, True)]


def test_what_a_task_finished_is_there(disk: SimDisk, spool: Spool) -> None:
    """Its driver publishes the file when it hears of it: power loss must not take it from then on."""
    disk.sync_directory("/")
    file = stage(spool, ID, ("t", 0, [b"a", b"b"]))
    for seed in range(20):
        left = disk.crash(Random(seed))
        assert [(entry.topic_partition, entry.record_count) for entry in read_staged(left, "/log", file)] == [(KEY, 2)]


def test_taken_back_for_good(disk: SimDisk, spool: Spool) -> None:
    """Power loss does not bring back what its driver took back: it may have put the same rows elsewhere."""
    disk.sync_directory("/")
    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"]))])
    assert spool.withdraw(ID)
    for seed in range(20):
        assert Spool(disk.crash(Random(seed)), "/log").waiting() == []


def test_what_was_begun_comes_first(disk: SimDisk, spool: Spool) -> None:
    """Whatever the names: the log holds some of it."""
    for name in ("a", "b", "c"):
        spool.publish(BatchId(name, 0), [stage(spool, BatchId(name, 0), ("t", 0, [b"a"]))])
    assert spool.take(BatchId("b", 0)) is not None
    spool.begin(BatchId("b", 0))
    assert [(waiting.batch_id.query, waiting.begun) for waiting in spool.waiting()] == [
        ("b", True),
        ("a", False),
        ("c", False),
    ]


def test_what_cannot_be_looked_at_is_given_back(disk: SimDisk, spool: Spool) -> None:
    """Its driver may take it back still."""
    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"]))])
    disk.fail("open", "*.taken", error=errno.EMFILE)
    with pytest.raises(StorageError):
        spool.take(ID)
    assert spool.withdraw(ID)


def test_a_manifest_goes_before_its_files(disk: SimDisk, spool: Spool) -> None:
    """Whoever finds one that is left over finds what it names."""
    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"])), stage(spool, ID, ("t", 0, [b"b"]))])
    gone: list[str] = []
    remove = disk.remove

    def noted(path: str) -> None:
        gone.append(path)
        remove(path)

    disk.remove = noted  # type: ignore[method-assign]
    assert apply(spool, Waiting(ID, False), Kept())
    assert [path.endswith(".staged") for path in gone] == [False, True, True]


def test_a_file_that_is_not_the_manifests(disk: SimDisk, spool: Spool) -> None:
    """One that is longer, or ends in another footer."""
    file = stage(spool, ID, ("t", 0, [b"a"]))
    with pytest.raises(CorruptError, match="checksum mismatch"):
        list(read_staged(disk, "/log", file._replace(footer_crc=file.footer_crc ^ 1)))
    assert len(list(read_staged(disk, "/log", file))) == 1
    handle = disk.open(f"/log/{file.name}", write=True)
    handle.write_at(file.size, [b"x"])
    handle.close()
    with pytest.raises(CorruptError, match="where the manifest says"):
        list(read_staged(disk, "/log", file))


def test_every_damaged_bit_of_a_staged_file_is_found(disk: SimDisk, spool: Spool) -> None:
    """No flipped bit goes unnoticed but those of a batch's base offset and epoch, which the leader sets."""
    file = stage(spool, ID, ("t", 0, [b"a", b"b"]), ("t", 1, [b"c"]))
    whole = [(entry.topic_partition, bytes(entry.data)) for entry in read_staged(disk, "/log", file)]
    size = len(encoded([b"a", b"b"]))
    unprotected = {at for base in (0, size) for at in (*range(base, base + 8), *range(base + 12, base + 16))}
    for bit in range(0, file.size * 8, 3):
        disk.flip(f"/log/{file.name}", bit // 8, 1 << bit % 8)
        try:
            found = [(entry.topic_partition, bytes(entry.data)) for entry in read_staged(disk, "/log", file)]
        except CorruptError:
            pass
        else:
            assert bit // 8 in unprotected, bit
            assert len(found) == len(whole)
        disk.flip(f"/log/{file.name}", bit // 8, 1 << bit % 8)
    assert [(entry.topic_partition, bytes(entry.data)) for entry in read_staged(disk, "/log", file)] == whole


def test_what_nobody_comes_back_for_is_swept(disk: SimDisk, spool: Spool) -> None:
    """Old staged files without a manifest, refusals, answers of batch writes; not what a manifest names, nor a
    stream's answer."""
    kept = stage(spool, ID, ("t", 0, [b"a"]))
    spool.publish(ID, [kept])
    stage(spool, BatchId("gone", 0), ("t", 0, [b"b"]))
    spool.publish(BatchId("once", 0), [], once=True)
    apply(spool, Waiting(BatchId("once", 0), False), Kept())
    spool.publish(BatchId("stream", 3), [])
    apply(spool, Waiting(BatchId("stream", 3), False), Kept())
    before = disk.list("/log")
    assert spool.sweep(disk.stat(f"/log/{kept.name}").mtime_ms + ORPHAN_AGE_MS - 1) == 0  # type: ignore[union-attr]
    assert disk.list("/log") == before
    spool.sweep(10**15)
    assert set(disk.list("/log")) == {
        kept.name,
        "replog.spool.query.7.manifest",
        "replog.spool.query.lock",
        "replog.spool.stream.applied",
        "replog.spool.stream.lock",
    }


def test_what_is_applied_is_known_while_its_manifest_stands(disk: SimDisk, spool: Spool) -> None:
    """However old: an owner that finds the one without the other would append all of it again."""
    batch_id = BatchId("once", 0)
    spool.publish(batch_id, [stage(spool, batch_id, ("t", 0, [b"a"]))], once=True)
    manifest = next(name for name in disk.list("/log") if name.endswith(".manifest"))
    handle = disk.open(f"/log/{manifest}")
    content = bytes(handle.read_at(0, handle.size()))
    handle.close()
    assert apply(spool, Waiting(batch_id, False), Kept())
    handle = disk.create(f"/log/{manifest}")
    handle.write_at(0, [content])
    handle.close()
    spool.sweep(1 << 50)
    assert spool.applied("once") == 0
    disk.remove(f"/log/{manifest}")
    spool.sweep(1 << 50)
    assert disk.list("/log") == []


def test_an_owner_that_was_stopped_while_clearing_up(disk: SimDisk, spool: Spool) -> None:
    """The batch is not appended again, and the next owner clears up."""
    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a"]))])
    apply(spool, Waiting(ID, False), Kept())
    disk.create("/log/replog.spool.query.7.begun").close()
    left = stage(spool, ID, ("t", 0, [b"late"]))
    write_state(disk, "/log/replog.spool.query.7.begun", Manifest(ID, (left,)).to_values())
    owner = Kept()
    assert apply(spool, spool.waiting()[0], owner)
    assert owner.taken == []
    assert disk.list("/log") == ["replog.spool.query.applied", "replog.spool.query.lock"]


def test_older_batches_of_one_begun_before_are_passed_over() -> None:
    """Out of order is fine where a later one is taken, and the end of it where none is."""
    there = {b"0", b"1"}

    def append(data: memoryview) -> None:
        if bytes(data) in there:
            raise OutOfOrderSequenceError("older")

    resumer = Resumer(append)
    for number in (b"0", b"1", b"2"):
        resumer.append(memoryview(number))
    resumer.finish()
    resumer.append(memoryview(b"1"))
    with pytest.raises(OutOfOrderSequenceError):
        resumer.finish()


@given(st.text("abc-_09", min_size=1, max_size=8), st.integers(0, 2**40))
def test_producers_differ(query: str, batch: int) -> None:
    """Ids are int64 that no controller allots, epochs int16, and no two batches share both."""
    producer_id, epoch = producer_of(BatchId(query, batch))
    assert 2**62 <= producer_id < 2**63
    assert 0 <= epoch < 2**15
    for other in (BatchId(query, batch + 1), BatchId(query, batch + 2**15), BatchId(query + "x", batch)):
        assert producer_of(other) != (producer_id, epoch)


def test_names() -> None:
    """Of queries, batches and tasks; others are none of ours."""
    assert parse_name("replog.spool.q-1.12.manifest") == ("q-1", 12, "manifest", "")
    assert parse_name("replog.spool.q-1.12.3-ab.staged") == ("q-1", 12, "staged", "3-ab")
    assert parse_name("replog.spool.q-1.applied") == ("q-1", -1, "applied", "")
    for other in (
        "replog.mark",
        "replog.spool.",
        "replog.spool.q.1.staged",
        "replog.spool.q.1.2-a.manifest",
        "replog.spool.q.1.other",
    ):
        assert parse_name(other) is None
    disk = SimDisk(Random(1))
    for bad in (BatchId("a.b", 0), BatchId("", 0), BatchId("a/b", 0), BatchId("a", -1), BatchId("x" * 65, 0)):
        with pytest.raises(ConfigError):
            Spool(disk, "/log").stage(bad, "0-a")
    with pytest.raises(ConfigError):
        Spool(disk, "/log").stage(ID, "a/b")


def test_a_manifest_names_only_its_own_files() -> None:
    """One that names another batch's file is not believed."""
    values = Manifest(ID, (StagedFile("replog.spool.query.8.0-a.staged", 1, 1, 1, 1),)).to_values()
    with pytest.raises(CorruptError, match="no file of batch 7"):
        Manifest.from_values(values, "/x")
    assert Manifest.from_values({**values, "batch": "8"}, "/x").record_count == 1


GOLDEN = {
    "replog.spool.query.7.0-a.staged": (
        bytes.fromhex(
            "0000000000000000"
            "00000041"
            "ffffffff"
            "02"
            "353dc39a"
            "0000"
            "00000001"
            "0000000000000005"
            "0000000000000005"
            "ffffffffffffffff"
            "ffff"
            "ffffffff"
            "00000002"
            "0e000000010261000e00000201026200"
        )
        + b"batch.000000000: t 0 77\nversion: 0\ncrc32c: 480d1489\n"
    ),
    "replog.spool.query.7.manifest": (
        b"batch: 7\nfile.000000000: replog.spool.query.7.0-a.staged 129 77 e5dd4754 2\nonce: false\n"
        b"query: query\nversion: 0\ncrc32c: 041b9314\n"
    ),
    "replog.spool.query.applied": b"batch: 7\nonce: false\nversion: 0\ncrc32c: 73042c90\n",
}


def test_golden(disk: SimDisk, spool: Spool) -> None:
    """The bytes of a staged file, a manifest and an answer are those of docs/internals/format/spool.md, and are
    read."""
    found = {}

    def read() -> None:
        for name in GOLDEN:
            if disk.stat(f"/log/{name}") is not None:
                file = disk.open(f"/log/{name}")
                found[name] = bytes(file.read_at(0, file.size()))
                file.close()

    spool.publish(ID, [stage(spool, ID, ("t", 0, [b"a", b"b"]), task="0-a")])
    read()
    apply(spool, Waiting(ID, False), Kept())
    read()
    assert found == GOLDEN
    for name, content in GOLDEN.items():
        file = (
            disk.create(f"/log/{name}") if disk.stat(f"/log/{name}") is None else disk.open(f"/log/{name}", write=True)
        )
        file.write_at(0, [content])
        file.close()
    assert spool.applied("query") == 7
    manifest = spool.take(ID)
    assert manifest is not None
    assert [(entry.topic_partition, entry.record_count) for entry in read_staged(disk, "/log", manifest.files[0])] == [
        (KEY, 2)
    ]
