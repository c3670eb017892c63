"""What is known of the file system that a folder is on, and what is not believed of one that other machines have,
too. Nothing is mounted: the kernel's table is given."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal

import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import StorageError
from pyreplog.log import LogRoot
from pyreplog.log.clean_shutdown import read_incarnation
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.system.mounts import is_shared, kind_of
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, verify
from tests.unit.log.support import batch

_NAMES = (
    "nfs nfs4 cifs smb3 smbfs ncpfs afs ceph lustre beegfs gpfs ocfs2 gfs2 glusterfs orangefs pvfs2 coda davfs",
    "fuse.glusterfs fuse.sshfs fuse.ceph-fuse fuse.s3fs fuse.rclone fuse.juicefs",
)
SHARED = [kind for line in _NAMES for kind in line.split()]
LOCAL = [
    "ext4",
    "xfs",
    "btrfs",
    "zfs",
    "tmpfs",
    "overlay",
    "f2fs",
    "fuse",
    "fuseblk",
    "fuse.ntfs-3g",
    "fuse.mergerfs",
    "bcachefs",
]
AROUND = ["9p", "virtiofs", "vboxsf", "fuse.vmhgfs-fuse"]
"""Of the machine around this one: in many containers there is nothing else."""
OTHERS = "22 1 0:20 / /proc rw,nosuid - proc proc rw\n23 1 259:999 / / rw - ext4 /dev/root rw\nnonsense\n\n"

Mount = Callable[..., None]


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mount:
    """Says what ``tmp_path`` is on."""

    def mount(kind: str, *, device: str | None = None, point: str = "/mnt") -> None:
        at = tmp_path.stat().st_dev
        line = (
            f"36 35 {device or f'{os.major(at)}:{os.minor(at)}'} / {point} rw,noatime shared:1 master:2 - {kind}"
            " server:/x rw,vers=4\n"
        )
        table = tmp_path / "mountinfo"
        table.write_text(OTHERS + (line if kind else ""))
        monkeypatch.setattr("pyreplog.system.mounts.MOUNTS_PATH", str(table))

    return mount


@pytest.mark.parametrize("kind", [*SHARED, *LOCAL, *AROUND, ""])
def test_what_is_shared_is_known(tmp_path: Path, mount: Mount, kind: str) -> None:
    """It is not written to unless somebody insists, and the boot of this machine says nothing about it."""
    mount(kind)
    disk = SystemDisk()
    insisting = SystemDisk(any_folder=True)
    assert kind_of(str(tmp_path)) == (kind or "ext4"), "where no device fits, the folder lies in the root"
    assert is_shared(kind) == (kind in SHARED)
    insisting.lock(str(tmp_path / "insisted"), "").release()
    if kind in SHARED:
        with pytest.raises(StorageError, match=rf"network file system \({kind}\)"):
            disk.lock(str(tmp_path / "lock"), "")
    else:
        disk.lock(str(tmp_path / "lock"), "").release()
    for one in (disk, insisting):
        assert (one.boot_id(str(tmp_path)) == "") == (kind in SHARED)


def test_a_mount_without_its_device_is_found_by_its_place(tmp_path: Path, mount: Mount) -> None:
    """As of btrfs, and of what has a number for each of its folders. The deepest one counts; its name may have
    blanks."""
    inner = tmp_path / "with blank"
    beside = tmp_path / "with blanks"
    for folder in (inner, beside):
        folder.mkdir()
    mount("ceph", device="0:9999", point=str(inner).replace(" ", r"\040"))
    assert [kind_of(str(folder)) for folder in (inner, beside, tmp_path)] == ["ceph", "ext4", "ext4"]
    link = tmp_path / "link"
    link.symlink_to(inner)
    assert kind_of(str(link)) == "ceph"


def test_nobody_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a table it is taken for a disk; a folder that is not there has no boot to speak of."""
    monkeypatch.setattr("pyreplog.system.mounts.MOUNTS_PATH", str(tmp_path / "none"))
    assert kind_of(str(tmp_path)) == ""
    assert SystemDisk().boot_id(str(tmp_path)) == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert SystemDisk().boot_id(str(tmp_path / "none")) == ""


@pytest.mark.parametrize("wanted", ["mountinfo", "boot_id"])
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_boot_id_that_cannot_be_read_now_is_not_missing(
    wanted: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a descriptor or memory for it nobody knows whether the machine went down: records that only it can
    vouch for stay visible."""
    disk = SystemDisk()
    with pyreplog.open_log(tmp_path, durability="os") as log:
        log.append(b"there")
        opening = os.open

        def refused(path: str, flags: int, *mode: int, **at: int) -> int:
            if str(path).endswith(wanted):
                raise OSError(code, os.strerror(code), path)
            return opening(path, flags, *mode, **at)

        with monkeypatch.context() as during:
            during.setattr(os, "open", refused)
            with pytest.raises(StorageError) as caught:
                disk.boot_id(str(tmp_path))
            assert caught.value.errno == code
            with pytest.raises(StorageError):
                pyreplog.open_log(tmp_path, "r")
        with pyreplog.open_log(tmp_path, "r") as reader:
            assert [record.value for record in reader] == [b"there"]


@pytest.mark.parametrize(
    ("kind", "durability", "complete"), [("ext4", "os", True), ("nfs4", "os", False), ("nfs4", "sync", True)]
)
def test_an_unclean_end_on_a_network(
    tmp_path: Path, mount: Mount, kind: str, durability: Literal["sync", "os"], complete: bool
) -> None:
    """Rule 3: whose caches held what was written nobody knows, so an `os` copy may lack records. What was synced is
    there."""
    mount(kind)
    path, key = str(tmp_path / "root"), TopicPartition("t", 0)

    def begin() -> LogRoot:
        return LogRoot.open(SystemDisk(any_folder=True), path, clock=SystemClock(), random=Random(1), node_id=1)

    root = begin()
    root.create_log("t", 0, "x" * 22, LogConfig(durability=durability))
    assert (read_incarnation(root.disk, path).boot_id != "") == (kind == "ext4")  # type: ignore[union-attr]
    root.close(clean=False)
    again = begin()
    assert again.same_boot is (True if kind == "ext4" else None)
    assert again.logs[key].incomplete is not complete
    again.close()
    last = begin()
    assert last.clean
    last.close()


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_what_a_network_lost_is_not_called_damage(tmp_path: Path, mount: Mount, kind: str) -> None:
    """Written, seen, not synced, and gone: on a disk of a machine that did not restart something took it. On a
    network that may be so."""
    mount(kind)
    path = tmp_path / "log"
    disk = SystemDisk(any_folder=True)
    root = LogRoot.open(disk, str(path), clock=SystemClock(), random=Random(1), node_id=1)
    log = root.create_log("t", 0, "x" * 22, LogConfig(durability="os"))
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    log.advance_high_watermark(3)
    log.write_mark()
    root.close(clean=False)
    os.truncate(path / "t-0" / "00000000000000000000.log", 0)
    worst = max(finding.level for finding in verify(disk, str(path)).findings)
    assert (worst >= Level.DAMAGE) == (kind == "ext4")
    disk.close()
