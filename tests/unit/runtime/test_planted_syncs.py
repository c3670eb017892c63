"""Planted bugs 10 and 12 where the library asks the system to sync: each sync of a log on the real disk fails, or
is interrupted, once.

Below the library's sync stands a kernel that keeps what is on stable storage: a failed sync loses what it was to
write, tells of it once, and then says that all is well, as Linux does. At the end the power goes: of each log file
only that is left.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import pyreplog
from pyreplog._core import _platform
from pyreplog.errors import PyreplogError
from pyreplog.system import file as file_module
from pyreplog.system import sync_pool as syncs_module
from pyreplog.system.file import Descriptor
from tests.faults.power.run import BootedDisk
from tests.unit.system.syncing import syncs_by

APPENDS: Final = 7
CONFIG: Final = {"segment.bytes": 1024}
Patch = Callable[[pytest.MonkeyPatch], None]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a file is found by /proc")


class Kernel:
    """Answers the sync number ``at`` with ``error``; 0: none."""

    def __init__(self, at: int, error: int) -> None:
        self.calls = 0
        self.stable: dict[str, bytes] = {}
        """What is on stable storage of each log file."""
        self.at, self._error = at, error
        self._lost: dict[str, set[int]] = {}

    def __call__(self, fd: int) -> int:
        """A sync of ``fd``."""
        self.calls += 1
        path = os.readlink(f"/proc/self/fd/{fd}")
        if not path.endswith(".log"):
            return self._error if self.calls == self.at else 0
        with open(path, "rb") as file:
            data = file.read()
        before = self.stable.get(path, b"")
        if self.calls == self.at:
            if self._error != errno.EINTR:  # the pages that were to be written are called clean, and are not written
                changed = {at for at, byte in enumerate(data) if at >= len(before) or before[at] != byte}
                self._lost.setdefault(path, set()).update(changed)
            return self._error
        lost = self._lost.get(path, set())
        self.stable[path] = bytes(
            (before[at] if at < len(before) else 0) if at in lost else byte for at, byte in enumerate(data)
        )
        return 0


def _fail_each(place: Path, error: int) -> None:
    """A life of a log for each of its syncs, which fails; AssertionError where an acknowledged record is not there
    afterwards."""
    at = calls = 0
    while at <= calls:  # the first is without a failure, and says how many there are
        kernel = Kernel(at, error)
        acknowledged = _live(place / f"{at}", kernel, error)
        calls = calls or kernel.calls
        left: list[bytes | None] = []
        if acknowledged:
            try:
                with pyreplog.open_log(place / f"{at}" / "after", disk=BootedDisk(1)) as log:
                    left = [record.value for record in log]
            except PyreplogError as damage:
                raise AssertionError(f"sync {at} of {calls}: {damage}") from damage
        assert left[: len(acknowledged)] == acknowledged, (
            f"sync {at} of {calls}: {len(acknowledged)} acknowledged, {len(left)} there: lost"
        )
        at += 1
    assert calls > APPENDS


def _live(place: Path, kernel: Kernel, error: int) -> list[bytes]:
    """What is acknowledged until the power goes: with the first record after the sync that failed, or at the end.
    The rest is in ``after``."""
    acknowledged: list[bytes] = []
    with syncs_by(kernel):
        try:
            with pyreplog.open_log(place / "log", config=CONFIG) as log:
                for number in range(APPENDS):
                    value = b"%d " % number * 90
                    log.append(value)
                    acknowledged.append(value)
                    if 0 < kernel.at <= kernel.calls:
                        break
                _cut_power(place, kernel)
        except PyreplogError:
            assert error != errno.EINTR, "an interruption is no failure"
            if acknowledged and not (place / "after").exists():
                _cut_power(place, kernel)
    return acknowledged


def _cut_power(place: Path, kernel: Kernel) -> None:
    shutil.copytree(place / "log", place / "after")
    for path in (place / "after").rglob("*.log"):
        path.write_bytes(kernel.stable.get(str(place / "log" / path.relative_to(place / "after")), b""))


def _everywhere(patch: pytest.MonkeyPatch, sync: Callable[[Descriptor], int]) -> None:
    for module in (file_module, syncs_module):
        patch.setattr(module, "sync_data", sync)


def failed_sync_tried_again(patch: pytest.MonkeyPatch) -> None:
    """10: a sync that failed is made once more, and that one believed."""

    def sync(descriptor: Descriptor) -> int:
        return _platform.lib.rl_sync_data(descriptor.fd) and _platform.lib.rl_sync_data(descriptor.fd)

    _everywhere(patch, sync)


def interruption_counts(patch: pytest.MonkeyPatch) -> None:
    """12: EINTR is taken for success."""
    real = file_module._file_sync

    def sync(descriptor: Descriptor) -> int:
        code = real(descriptor.handle)
        return 0 if code == errno.EINTR else code

    _everywhere(patch, sync)


BUGS: Final[list[tuple[Patch, int]]] = [(failed_sync_tried_again, errno.EIO), (interruption_counts, errno.EINTR)]


@pytest.mark.parametrize(("bug", "error"), BUGS, ids=["10", "12"])
def test_it_is_caught(bug: Patch, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some failing call loses what was acknowledged."""
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=r"lost|are damaged|before what was synced"):
        _fail_each(tmp_path, error)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EINTR], ids=lambda error: errno.errorcode[error])
def test_without_it_the_same_passes(error: int, tmp_path: Path) -> None:
    """The code as it is: a failed sync is an error and no more is acknowledged, an interrupted one is made
    again."""
    _fail_each(tmp_path, error)
