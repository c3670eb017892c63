"""A file system of its own on a loop device, whose power can be cut: everything that is not on stable storage is
gone.

``EXT4_IOC_SHUTDOWN``, which XFS has too, without flushing the journal: what xfstests uses. The kernel forgets what
was not yet durable, and refuses everything until the file system is mounted again, when it replays its journal.
Needs root, loop devices and mkfs.
"""

from __future__ import annotations

import abc
import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, NamedTuple, Self

_LIBC: Final = ctypes.CDLL(None)
SHUTDOWN: Final = 0x8004587D
WITHOUT_THE_JOURNAL: Final = struct.pack("I", 2)


class Kind(NamedTuple):
    """How a file system is made and mounted. ``size`` of its image in bytes."""

    make: tuple[str, ...]
    options: str
    size: int


KINDS: Final = {
    "ext4": Kind(("mkfs.ext4", "-q", "-F", "-J", "size=4"), "data=ordered", 48 << 20),
    "ext4-writeback": Kind(("mkfs.ext4", "-q", "-F", "-J", "size=4"), "data=writeback", 48 << 20),
    "xfs": Kind(("mkfs.xfs", "-q", "-f"), "defaults", 320 << 20),
}


class Unavailable(Exception):
    """This machine has no such rig; the text says what it lacks."""


def run(*words: str) -> str:
    """What the program says; :class:`Unavailable` where there is none, or it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise Unavailable(f"there is no {words[0]}") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


class Rig(abc.ABC):
    """What is put up where a ``with`` begins, and taken down at its end, or where putting it up failed."""

    @abc.abstractmethod
    def _put_up(self) -> None: ...

    @abc.abstractmethod
    def _take_down(self) -> None:
        """As far as it was put up."""

    def __enter__(self) -> Self:
        try:
            self._put_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()


class Power(Rig):
    """A mounted file system of ``kind`` at ``place``. Use as a context manager: everything is taken down at its
    end.

    Raises :class:`Unavailable` where this machine cannot have it.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.cuts = 0
        self._folder = Path(
            tempfile.mkdtemp(prefix="replog-power-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        )
        self.place = self._folder / "mnt"
        self._device = ""
        self._mounted = False

    def _put_up(self) -> None:
        if os.geteuid():
            raise Unavailable("only root may mount")
        image = self._folder / "image"
        with image.open("wb") as file:
            file.truncate(KINDS[self.kind].size)
        run(*KINDS[self.kind].make, str(image))
        self._device = run("losetup", "--find", "--show", str(image))
        self.place.mkdir()
        self.mount()
        self.cut()
        self.mount()

    def mount(self) -> None:
        """The power is back: the journal is replayed."""
        self.unmount()
        run("mount", "-o", KINDS[self.kind].options, self._device, str(self.place))
        os.chmod(self.place, 0o700)
        self._mounted = True

    def unmount(self) -> None:
        """Nothing may be open there."""
        if self._mounted:
            run("umount", str(self.place))
            self._mounted = False

    def empty(self) -> None:
        """Without the files of the last life, durably."""
        for path in self.place.iterdir():
            if path.name != "lost+found":
                shutil.rmtree(path)
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_back(self, chance: Random) -> None:
        """Some of what waits reaches the disk before its time, as when the kernel writes by itself: whole files
        with all names, or pages without."""
        for path in sorted(path for path in self.place.rglob("*") if path.is_file()):
            if chance.random() < 0.5:
                continue
            descriptor = os.open(path, os.O_RDONLY)
            try:
                if chance.random() < 0.1:
                    os.fsync(descriptor)
                else:
                    assert _LIBC.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0
            finally:
                os.close(descriptor)

    def cut(self) -> None:
        """Now, in whatever process this is called."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, WITHOUT_THE_JOURNAL)
        except OSError as error:
            raise Unavailable(f"{self.kind} does not let itself be shut down: {error}") from None
        finally:
            os.close(descriptor)

    def _take_down(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.place)], capture_output=True, check=False)
        if self._device:
            subprocess.run(["losetup", "-d", self._device], capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)
