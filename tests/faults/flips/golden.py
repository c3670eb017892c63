"""Small folders whose every bit is flipped: what is in them, and what reading them gives.

``own``: closed in order; ``open``: a process ended within it; ``packed``: compressed batches and several records
each; ``cluster``: two replicas of one log, one of them behind; ``compacted``: with gaps. ``txn``, ``idempotent``,
``mixed``, ``compact``: partitions that a broker closed in order, without our mark; ``bare``: one that was taken out of
its root, so that nothing says how far it goes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from pyreplog._core import BatchBuilder
from pyreplog.config import LogConfig
from pyreplog.errors import PyreplogError
from pyreplog.log import Cleaner, LogReader, LogRoot, open_readers
from pyreplog.record import split
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.interop.golden.units import unit
from tests.unit.log.support import CLOCK, batch, leave_open, raw, sync

ROOT: Final = "data"
KEY: Final = TopicPartition("t", 0)
TOPIC_ID: Final = "AbCdEfGhIjKlMnOpQrStUw"

HEADER_SIZE: Final = 61
CHECKPOINTS: Final = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
)

Content = tuple[tuple[int, int, bytes], ...]
"""(base offset, next offset, bytes) of each batch that a reader is given, oldest first."""


class Golden(NamedTuple):
    """One folder on a disk. ``contents``: what a reader is given of each partition. ``full``: all there is, served
    or not."""

    name: str
    disk: SimDisk
    contents: dict[TopicPartition, Content]
    full: dict[TopicPartition, Content]
    probes: dict[TopicPartition, dict[int, int]]
    """Some offsets, with the base offset of the batch that holds them."""
    layout: dict[str, list[int]]
    """Of each segment, where its batches end."""


def served(
    disk: SimDisk, path: str = ROOT, probes: dict[TopicPartition, dict[int, int]] | None = None
) -> dict[TopicPartition, Content | str]:
    """What a reader is given of each partition under ``path``: the batches, or the name of the error instead.

    ``probes``: offset -> base offset of the batch that holds it. Each is looked up by itself too: another answer is
    an AssertionError.
    """
    try:
        readers = open_readers(disk, path)
    except PyreplogError as error:
        return {KEY: type(error).__name__}
    found: dict[TopicPartition, Content | str] = {}
    for key, reader in readers.items():
        try:
            found[key] = tuple(
                (one.base_offset, one.next_offset, bytes(one.data))
                for one in reader.batches(reader.start_offset, reader.end_offset)
            )
        except PyreplogError as error:
            found[key] = type(error).__name__
        try:
            for offset, base in (probes or {}).get(key, {}).items():
                _probe(reader, offset, base)
        finally:
            reader.close()
    return found


def _probe(reader: LogReader, offset: int, base: int) -> None:
    if not reader.start_offset <= offset < reader.end_offset:
        return
    try:
        first = next(reader.batches(offset, reader.end_offset), None)
    except PyreplogError:
        return
    assert first is None or first.base_offset == base, (
        f"offset {offset} is looked for in the batch of {first.base_offset}, not {base}"
    )


def files(disk: SimDisk, directory: str = ROOT) -> Iterator[str]:
    """Every file under ``directory``, sorted."""
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        found = disk.stat(path)
        assert found is not None
        if found.is_directory:
            yield from files(disk, path)
        else:
            yield path


def _root(*, clean: bool, codecs: bool) -> Golden:
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=1500 if codecs else 1024, index_interval_bytes=150))
    log.become_leader(0)
    for number in range(14 if codecs else 12):
        if number == 7:
            log.become_leader(2)
        codec = number % 5 if codecs else 0
        log.append_as_leader(
            batch(6 if codecs else 1, size=60 if codecs else 100, timestamp=1000 + 10 * number, codec=codec),
            log.epochs.latest,
        )
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    if clean:
        root.close()
    else:
        leave_open(root, log)
        log.write_mark()
        root.close(clean=False)
    disk.write_back()
    return _golden("packed" if codecs else "own" if clean else "open", disk)


def _compacted() -> Golden:
    """A log that we compacted, with gaps at its start, between batches, over the end of a segment, and before records
    that are not compacted yet; a tombstone was dropped."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    config = LogConfig(
        cleanup_policy="compact", segment_bytes=1024, index_interval_bytes=150, delete_retention_ms=0, durability="os"
    )
    log = root.create_log("t", 0, TOPIC_ID, config)
    log.become_leader(0)
    now = CLOCK.wall_ms()

    def put(keys: str) -> None:
        for key in keys:
            builder = BatchBuilder()
            for name in (key.lower(), key):  # a capital is a tombstone
                builder.append(None if name.isupper() else b"v" * 20, name.lower().encode(), (), now + log.end_offset)
            log.append_as_leader(builder.finish(), log.epochs.latest)
        sync(disk, log)
        log.advance_high_watermark(log.end_offset)

    put("aabbcDabcefghabiijjjjjjjjaabbccababababababababab")
    log.become_leader(2)
    put("xyxyzx")
    for time in (now, now + 1):
        log.close_active_segment()
        cleaner = Cleaner(disk, log.cleaning_plan(time), bytes(16), lambda: None)
        end = cleaner.map_keys()
        for group in cleaner.plan.groups(end):
            log.install(cleaner.clean(group))
        log.note_cleaned(end)
    put("mnmo")
    log.write_mark()
    assert log.dropped_tombstone >= 0
    root.close()
    LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1)).close()  # removes the old segments
    disk.write_back()
    return _golden("compacted", disk)


def _kafka(name: str, group: str, partition: str) -> Golden:
    disk = SimDisk(Random(1))
    data = unit(group) / "data"
    folder = f"{ROOT}/{partition}"
    disk.make_directory(folder)
    found = {f"{partition}/{path.name}": path.read_bytes() for path in (data / partition).iterdir()}
    if name != "bare":
        found |= {file: (data / file).read_bytes() for file in (".kafka_cleanshutdown", "meta.properties")}
        found |= {file: _line_of(partition, (data / file).read_text()) for file in CHECKPOINTS}
    for path, content in sorted(found.items()):
        file = disk.create(f"{ROOT}/{path}")
        file.write_at(0, [content])
        file.close()
    disk.write_back()
    return _golden(name, disk)


def _line_of(partition: str, checkpoint: str) -> bytes:
    """``checkpoint`` with what it says of one partition, if it says anything."""
    topic, _, number = partition.rpartition("-")
    lines = [line for line in checkpoint.splitlines()[2:] if line.startswith(f"{topic} {number} ")]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def _golden(name: str, disk: SimDisk) -> Golden:
    contents = served(disk)
    assert contents
    assert all(not isinstance(content, str) for content in contents.values()), contents
    whole = {key: content for key, content in contents.items() if not isinstance(content, str)}
    full = {key: _everything(disk) if name == "open" else content for key, content in whole.items()}
    probes = {
        key: {end - 1: base for base, end, _ in content[:: max(len(content) // 3, 1)]}
        | {content[-1][1] - 1: content[-1][0]}
        for key, content in whole.items()
    }
    layout = {
        path: _ends(disk.open(path).read_at(0, 1 << 20).tobytes()) for path in files(disk) if path.endswith(".log")
    }
    return Golden(name, disk, whole, full, probes, layout)


def _ends(data: bytes) -> list[int]:
    """Where the batches of a segment end."""
    found = [0]
    while found[-1] + HEADER_SIZE <= len(data):
        found.append(found[-1] + 12 + int.from_bytes(data[found[-1] + 8 : found[-1] + 12], "big"))
    return found[1:]


def _cluster() -> Golden:
    """Two roots with the folder of ``packed``, the second of them without its last two batches."""
    source = _root(clean=True, codecs=True).disk
    disk = SimDisk(Random(1))
    for root in ("node-1", "node-2"):
        for path in files(source):
            target = f"{ROOT}/{root}/{path.removeprefix(ROOT + '/')}"
            disk.make_directory(target.rpartition("/")[0])
            file = disk.create(target)
            content = bytes(source.open(path).read_at(0, 1 << 20))
            if path.endswith("meta.properties"):
                content = content.replace(b"node.id=0", b"node.id=" + root[-1:].encode())
            file.write_at(0, [content])
            file.close()
    behind = LogRoot.open(disk, f"{ROOT}/node-2", clock=CLOCK, random=Random(5))
    behind.logs[KEY].truncate_to(behind.logs[KEY].end_offset - 12)
    behind.close()
    disk.write_back()
    return _golden("cluster", disk)


def _everything(disk: SimDisk) -> Content:
    root = LogRoot.open(disk.snapshot(), ROOT, clock=CLOCK, random=Random(5))
    log = root.logs[KEY]
    data = raw(log)
    root.close(clean=False)
    return tuple((one.base_offset, one.next_offset, bytes(one.data)) for one in split(data))


@functools.cache
def golden(name: str) -> Golden:
    """One of :data:`NAMES`. Shared: snapshot what is changed."""
    match name:
        case "own":
            return _root(clean=True, codecs=False)
        case "open":
            return _root(clean=False, codecs=False)
        case "packed":
            return _root(clean=True, codecs=True)
        case "cluster":
            return _cluster()
        case "compacted":
            return _compacted()
        case "mixed":
            return _kafka(name, "clean-4.1.0", "mixed-codecs-0")
        case "compact":
            return _kafka(name, "clean-4.1.0", "compact-basic-0")
        case "txn":
            return _kafka(name, "clean-3.9.1", "txn-0")
        case "idempotent":
            return _kafka(name, "clean-4.3.1", "idempotent-0")
        case "bare":
            return _kafka(name, "clean-4.1.0", "plain-0")
    raise KeyError(name)


OWN: Final = ("own", "open", "packed", "cluster", "compacted")
KAFKA: Final = ("txn", "idempotent", "mixed", "compact", "bare")
