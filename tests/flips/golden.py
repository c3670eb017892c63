"""Small folders whose every bit is flipped: what is in them, and what reading them gives.

``own``: closed in order; ``open``: a process ended within it; ``packed``: compressed batches and several records each; ``cluster``: three
roots; ``kafka``: partitions that a broker wrote, with transactions, old formats and compaction.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from pyreplog.config import LogConfig
from pyreplog.errors import PyreplogError
from pyreplog.log import LogRoot, open_readers
from pyreplog.record import split
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.golden.units import unit
from tests.log.support import CLOCK, batch, raw, sync

ROOT: Final = "data"
KEY: Final = TopicPartition("t", 0)
TOPIC_ID: Final = "AbCdEfGhIjKlMnOpQrStUw"

Content = tuple[tuple[int, int, bytes], ...]
"""(base offset, next offset, bytes) of each batch that a reader is given, oldest first."""


class Golden(NamedTuple):
    """One folder on a disk. ``contents``: what a reader is given of each partition. ``full``: all there is, served or not."""

    name: str
    disk: SimDisk
    contents: dict[TopicPartition, Content]
    full: dict[TopicPartition, Content]


def served(disk: SimDisk, path: str = ROOT) -> dict[TopicPartition, Content | str]:
    """What a reader is given of each partition under ``path``: the batches, or the name of the error instead (the batches before it too
    are then none)."""
    try:
        readers = open_readers(disk, path)
    except PyreplogError as error:
        return {KEY: type(error).__name__}
    found: dict[TopicPartition, Content | str] = {}
    for key, reader in readers.items():
        try:
            found[key] = tuple(
                (one.base_offset, one.next_offset, bytes(one.data)) for one in reader.batches(reader.start_offset, reader.end_offset)
            )
        except PyreplogError as error:
            found[key] = type(error).__name__
        finally:
            reader.close()
    return found


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


def size_of(disk: SimDisk, path: str) -> int:
    """Bytes in a file."""
    found = disk.stat(path)
    assert found is not None
    return found.size


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
            batch(6 if codecs else 1, size=60 if codecs else 100, timestamp=1000 + 10 * number, codec=codec), log.epochs.latest
        )
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    if clean:
        root.close()
    else:
        log.sync_mark()
        root.checkpoint_recovery_points()
        root.checkpoint_high_watermarks()
        root.checkpoint_log_starts()
        log.append_as_leader(batch(2, size=200), 2)
        log.append_as_leader(batch(2, size=200), 2)
        log.write_mark()
        root.close(clean=False)
    disk.write_back()
    return _golden("packed" if codecs else "own" if clean else "open", disk)


def _kafka(name: str, group: str, partition: str) -> Golden:
    disk = SimDisk(Random(1))
    folder = f"{ROOT}/{partition}"
    disk.make_directory(folder)
    for path in sorted((unit(group) / "data" / partition).iterdir()):
        file = disk.create(f"{folder}/{path.name}")
        file.write_at(0, [path.read_bytes()])
        file.close()
    disk.write_back()
    return _golden(name, disk)


def _golden(name: str, disk: SimDisk) -> Golden:
    contents = served(disk)
    assert contents
    assert all(not isinstance(content, str) for content in contents.values()), contents
    whole = {key: content for key, content in contents.items() if not isinstance(content, str)}
    full = {key: _everything(disk) if name == "open" else content for key, content in whole.items()}
    return Golden(name, disk, whole, full)


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
        case "txn":
            return _kafka(name, "clean-3.9.1", "txn-0")
        case "idempotent":
            return _kafka(name, "clean-4.3.1", "idempotent-0")
    raise KeyError(name)


NAMES: Final = ("own", "open", "packed", "txn", "idempotent")
