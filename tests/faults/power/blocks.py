"""A file system on a disk that notes every write and every flush, and the states in which power loss may leave that
disk.

nbdkit's Python plugin (``nbdkit_log.py``) keeps the disk and its log, nbdfuse shows it as a file, a loop device
makes a block device of that. What was written before a flush is there after power loss; of what came since then any
part is, sector by sector. So, other than with a cut of the power (:mod:`tests.faults.power.rig`), one life gives any
number of states, and writes of one flush survive in any order. Method: CrashMonkey (Mohan et al., OSDI 2018), in
user space.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.faults.power.rig import KINDS, Rig, Unavailable, run

PLUGIN: Final = Path(__file__).with_name("nbdkit_log.py")
ENTRY: Final = struct.Struct("<cQQ")
SECTOR_SIZE: Final = 512
TOLD: Final = b"T"
WRITTEN: Final = b"W"
FLUSHED: Final = b"S"
PATIENCE_SECONDS: Final = 20


class Entry(NamedTuple):
    """One of the log: bytes written at ``position``, a flush, or what the life told."""

    kind: bytes
    position: int
    data: bytes


class Recording(Rig):
    """A file system of ``kind`` at ``place``, whose disk is recorded. Use as a context manager: everything is taken
    down at its end.

    Raises :class:`Unavailable` where this machine cannot have it.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._folder = Path(
            tempfile.mkdtemp(prefix="replog-blocks-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        )
        self.place = self._folder / "mnt"
        self._image, self._base, self._log = self._folder / "image", self._folder / "base", self._folder / "log"
        self._device = ""
        self._mounted = False
        self._helpers: list[subprocess.Popen[bytes]] = []

    def _put_up(self) -> None:
        if os.geteuid():
            raise Unavailable("only root may mount")
        for name in ("nbdkit", "nbdfuse", "losetup"):
            if shutil.which(name) is None:
                raise Unavailable(f"there is no {name}")
        with self._image.open("wb") as file:
            file.truncate(KINDS[self.kind].size)
        run(*KINDS[self.kind].make, str(self._image))
        self.place.mkdir()
        self.mount(self._image)
        os.chmod(self.place, 0o700)
        self.unmount()
        run("cp", "--sparse=always", str(self._image), str(self._base))

    def mount(self, image: Path) -> None:
        """``image`` at :attr:`place`."""
        self._device = run("losetup", "--find", "--show", str(image))
        run("mount", "-o", KINDS[self.kind].options, self._device, str(self.place))
        self._mounted = True

    def unmount(self) -> None:
        """Nothing may be open there."""
        if self._mounted:
            run("umount", str(self.place))
            self._mounted = False
        if self._device:
            run("losetup", "--detach", self._device)
            self._device = ""

    def record(self, life: Callable[[Callable[[str], None]], None]) -> list[Entry]:
        """Run ``life`` on a fresh file system; what reached its disk and what it told, in the order in which it
        happened."""
        run("cp", "--sparse=always", str(self._base), str(self._image))
        self._log.write_bytes(b"")
        socket, shown = self._folder / "socket", self._folder / "shown"
        shown.mkdir(exist_ok=True)
        socket.unlink(missing_ok=True)
        words = ["nbdkit", "--foreground", "--exit-with-parent", "--unix", str(socket), "python", str(PLUGIN)]
        self._start([*words, f"img={self._image}", f"log={self._log}"], socket.is_socket)
        self._start(["nbdfuse", str(shown / "disk"), "--unix", str(socket)], (shown / "disk").is_file)
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            self.mount(shown / "disk")
            life(lambda text: _tell(descriptor, text))
            self.unmount()
        finally:
            os.close(descriptor)
            self._stop()
        return list(_entries(self._log.read_bytes()))

    def after(self, entries: list[Entry], end: int, chance: Random, *, fate: str) -> None:
        """Mount the disk as power loss after the first ``end`` entries may leave it. ``fate``: what becomes of the
        writes since the last flush: ``none`` or ``all`` of them are there, or each ``some``: whole, not, or in some
        sectors."""
        run("cp", "--sparse=always", str(self._base), str(self._image))
        flushed = max((number for number, entry in enumerate(entries[:end]) if entry.kind == FLUSHED), default=0)
        descriptor = os.open(self._image, os.O_RDWR)
        try:
            for number, entry in enumerate(entries[:end]):
                if entry.kind != WRITTEN:
                    continue
                if number < flushed or fate == "all":
                    os.pwrite(descriptor, entry.data, entry.position)
                elif fate == "some" and chance.random() < 0.6:
                    torn = chance.random() < 0.4
                    for start in range(0, len(entry.data), SECTOR_SIZE):
                        if not torn or chance.random() < 0.5:
                            os.pwrite(descriptor, entry.data[start : start + SECTOR_SIZE], entry.position + start)
        finally:
            os.close(descriptor)
        self.mount(self._image)

    def _start(self, words: list[str], ready: Callable[[], bool]) -> None:
        helper = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._helpers.append(helper)
        until = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            if helper.poll() is not None or time.monotonic() > until:
                helper.kill()
                said = helper.communicate()[1].decode(errors="replace").strip()
                raise Unavailable(f"{words[0]} does not work here: {said[-300:] or 'it does not begin'}")
            time.sleep(0.01)

    def _stop(self) -> None:
        """First who uses the disk, then who keeps it."""
        subprocess.run(["umount", "-l", str(self._folder / "shown")], capture_output=True, check=False)
        for helper in reversed(self._helpers):
            helper.terminate()
            try:
                helper.communicate(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.communicate()
        self._helpers.clear()

    def _take_down(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.place)], capture_output=True, check=False)
        if self._device:
            subprocess.run(["losetup", "--detach", self._device], capture_output=True, check=False)
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def told(entries: list[Entry], end: int) -> bytes:
    """What the life had told by then, as lines."""
    return b"".join(entry.data for entry in entries[:end] if entry.kind == TOLD)


def _tell(descriptor: int, text: str) -> None:
    data = text.encode() + b"\n"
    if os.write(descriptor, ENTRY.pack(TOLD, 0, len(data)) + data) != ENTRY.size + len(data):
        print("the log of the blocks was cut short", file=sys.stderr)
        os._exit(1)


def _entries(data: bytes) -> list[Entry]:
    found, position = [], 0
    while position < len(data):
        kind, at, size = ENTRY.unpack_from(data, position)
        position += ENTRY.size
        found.append(Entry(kind, at, data[position : position + size]))
        assert len(found[-1].data) == size, "the log of the blocks is cut off"
        position += size
    return found
