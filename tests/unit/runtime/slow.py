"""A disk as slow as a test wants: what is asked of the files of segments waits at a gate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pyreplog.ports import Buffer, File
from pyreplog.system import SystemDisk

FOREVER = 20.0


class SlowFile:
    """A segment's file."""

    def __init__(self, file: File, disk: SlowDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        """Wait, then sync."""
        self._disk.pass_gate("sync")
        self._file.sync()

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Wait, if writes do, then write."""
        self._disk.pass_gate("write")
        self._file.write_at(position, parts)

    def read_at(self, position: int, size: int) -> memoryview:
        """Wait, if reads do, then read."""
        self._disk.pass_gate("read")
        return self._file.read_at(position, size)


class SlowDisk(SystemDisk):
    """The machine's disk, except that ``calls`` on segments wait while ``gate`` is closed; ``entered`` says that
    one does."""

    def __init__(self, *calls: str) -> None:
        super().__init__()
        self.calls = calls or ("sync",)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.threads: set[int] = set()

    def pass_gate(self, call: str) -> None:
        """Go through, when it is open."""
        if call in self.calls and not self.gate.is_set():
            self.threads.add(threading.get_ident())
            self.entered.set()
            assert self.gate.wait(FOREVER)

    def create(self, path: str, size: int = 0) -> Any:
        """A slow file, if it is a segment's."""
        file = super().create(path, size)
        return SlowFile(file, self) if path.endswith(".log") else file

    def open(self, path: str, *, write: bool = False) -> Any:
        """A slow file, if it is a segment's."""
        file = super().open(path, write=write)
        return SlowFile(file, self) if path.endswith(".log") else file

    def submit_sync(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """As it is: a sync in the background holds nobody up."""
        return super().submit_sync([file._file if isinstance(file, SlowFile) else file for file in files], wake)
