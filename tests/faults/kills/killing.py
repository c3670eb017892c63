"""A disk that ends its own process at its n-th call, and a life of a log upon it that tells what it tries and what
it has promised."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import NoReturn, TypeVar

from pyreplog.config import LogConfig
from pyreplog.log import LogRoot
from pyreplog.ports import Buffer, Disk, File, Lock, SharedFile, Stat, Store, SyncDone, Watch
from pyreplog.values import TopicPartition
from tests.unit.log.support import CLOCK, batch

KEY = TopicPartition("t", 0)
T = TypeVar("T")
R = TypeVar("R")
TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUw"


class KillingFile:
    """A file of a :class:`KillingDisk`."""

    def __init__(self, disk: KillingDisk, file: File) -> None:
        self._disk, self.file = disk, file

    @property
    def path(self) -> str:
        """As the file's."""
        return self.file.path

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Counted; the call that kills writes half of its bytes where the disk is told to."""
        if self._disk.strikes():
            if self._disk.halves:
                data = b"".join(bytes(part) for part in parts)
                self.file.write_at(position, [data[: len(data) // 2]])
            self._disk.die()
        self.file.write_at(position, parts)

    def read_at(self, position: int, size: int) -> memoryview:
        """Counted."""
        self._disk.count()
        return self.file.read_at(position, size)

    def sync(self) -> None:
        """Counted."""
        self._disk.count()
        self.file.sync()

    def size(self) -> int:
        """Counted."""
        self._disk.count()
        return self.file.size()

    def truncate(self, size: int) -> None:
        """Counted."""
        self._disk.count()
        self.file.truncate(size)

    def start_sync(self, position: int, size: int) -> None:
        """Counted."""
        self._disk.count()
        self.file.start_sync(position, size)

    def reserve(self, position: int, size: int) -> None:
        """Counted."""
        self._disk.count()
        self.file.reserve(position, size)

    def drop_cached(self) -> None:
        """Counted."""
        self._disk.count()
        self.file.drop_cached()

    def close(self) -> None:
        """Counted."""
        self._disk.count()
        self.file.close()


class KillingDisk:
    """``disk``, but its call number ``at`` (from 1; 0: none) is the process's last. ``halves``: half of a write
    still gets there."""

    def __init__(self, disk: Disk, at: int, *, halves: bool = False) -> None:
        self._disk, self._at, self.halves = disk, at, halves
        self.calls = 0

    @property
    def openings(self) -> int:
        """As the disk's."""
        return self._disk.openings

    def strikes(self) -> bool:
        """Count a call; whether it is the last."""
        self.calls += 1
        return self.calls == self._at

    def count(self) -> None:
        """Count a call, and end the process where it is the last."""
        if self.strikes():
            self.die()

    def die(self) -> NoReturn:
        """As kill -9 would."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive after SIGKILL")

    def list(self, directory: str) -> Sequence[str]:
        """Counted."""
        self.count()
        return self._disk.list(directory)

    def create(self, path: str, size: int = 0) -> File:
        """Counted."""
        self.count()
        return KillingFile(self, self._disk.create(path, size))

    def open(self, path: str, *, write: bool = False) -> File:
        """Counted."""
        self.count()
        return KillingFile(self, self._disk.open(path, write=write))

    def stat(self, path: str) -> Stat | None:
        """Counted."""
        self.count()
        return self._disk.stat(path)

    def make_directory(self, path: str) -> None:
        """Counted."""
        self.count()
        self._disk.make_directory(path)

    def is_link(self, path: str) -> bool:
        """Not counted: it changes nothing."""
        return self._disk.is_link(path)

    def check_directory(self, path: str, *, write: bool = True) -> None:
        """Counted."""
        self.count()
        self._disk.check_directory(path, write=write)

    def rename(self, source: str, target: str) -> None:
        """Counted."""
        self.count()
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        """Counted."""
        self.count()
        self._disk.remove(path)

    def remove_directory(self, path: str) -> None:
        """Counted."""
        self.count()
        self._disk.remove_directory(path)

    def sync_directory(self, directory: str) -> None:
        """Counted."""
        self.count()
        self._disk.sync_directory(directory)

    def submit_sync(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Counted."""
        self.count()
        return self._disk.submit_sync([file.file if isinstance(file, KillingFile) else file for file in files], wake)

    def poll(self) -> Sequence[SyncDone]:
        """As the disk."""
        return self._disk.poll()

    def lock(self, path: str, about: str, text_position: int | None = None) -> Lock:
        """Counted."""
        self.count()
        return self._disk.lock(path, about, text_position)

    def open_shared(self, path: str) -> SharedFile:
        """Counted."""
        self.count()
        return self._disk.open_shared(path)

    def hold(self, path: str) -> Lock:
        """Counted."""
        self.count()
        return self._disk.hold(path)

    def map(self, work: Callable[[T], R], items: Sequence[T], *, waits: bool = False) -> Sequence[R]:
        """One after another, so that the calls have an order."""
        return [work(item) for item in items]

    def open_store(self, path: str, *, write: bool) -> Store:
        """Counted; what the store does inside is not."""
        self.count()
        return self._disk.open_store(path, write=write)

    def new_lock(self) -> AbstractContextManager[object]:
        """As the disk."""
        return self._disk.new_lock()

    @property
    def reserve_lock(self) -> AbstractContextManager[object]:
        """As the disk."""
        return self._disk.reserve_lock

    def watch(self, paths: Sequence[str]) -> Watch | None:
        """As the disk."""
        return self._disk.watch(paths)

    def boot_id(self, directory: str) -> str:
        """As the disk."""
        return self._disk.boot_id(directory)


Tell = Callable[[str], None]
"""``tried OFFSET VALUE``: the log may hold this from now on. ``acked END``: everything below END is promised.
``cutting OFFSET``: what was promised from there on may go. ``synced END``: everything below END was synced at a
clean stop."""


def live(
    disk: Disk, path: str, tell: Tell, *, durability: str, rounds: int, appends: int, planted: bool = False
) -> None:
    """Open the root (made where missing), append, truncate, delete from the start, checkpoint, close, and again,
    ``rounds`` times. ``planted``: promises too early, which must be noticed."""
    for number in range(rounds):
        root = LogRoot.open(disk, path, clock=CLOCK, random=Random(number))
        if KEY in root.damaged:
            raise root.damaged[KEY]
        log = root.logs.get(KEY)
        if log is None:
            config = LogConfig(durability=durability, segment_bytes=1500, index_interval_bytes=120)  # type: ignore[arg-type]
            log = root.create_log("t", 0, TOPIC_ID, config)
        epoch = log.epochs.latest + 1
        log.become_leader(epoch)
        begins: list[int] = []
        for step in range(appends):
            begins.append(log.end_offset)
            tag = f"{epoch}.{step}-"
            tell(f"tried {log.end_offset} {tag}")
            if planted:
                tell(f"acked {log.end_offset + 1 + step % 3}")
            log.append_as_leader(batch(1 + step % 3, size=90, timestamp=1000 + step, tag=tag.encode()), epoch)
            if step % 4 != 3 and durability == "sync":
                continue
            plan = log.sync_plan()
            if plan is not None and durability == "sync":
                for file in plan.files:
                    file.sync()
                log.synced(plan.upto, plan.generation)
            log.advance_high_watermark(log.ack_offset)
            log.write_mark()
            tell(f"acked {log.ack_offset}")
            if step == appends // 2:
                root.checkpoint_recovery_points()
                root.checkpoint_high_watermarks()
            if step == appends - 5:
                end = begins[-2]  # where a batch begins: a cut takes whole ones
                tell(f"cutting {end}")
                log.truncate_to(end)
                log.write_mark()
        if number % 2:
            root.close(clean=False)
        else:
            end = log.end_offset
            root.close()
            tell(f"synced {end}")
