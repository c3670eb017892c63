"""What kind of file system a folder is on, where the kernel tells (``/proc/self/mountinfo``)."""

from __future__ import annotations

import os
import re
from typing import Final

from pyreplog.interruptions import is_interruption
from pyreplog.ports import OUT_OF_MEANS
from pyreplog.system.shelf import opener

__all__ = ["is_shared", "kind_of"]

MOUNTS_PATH: Final = "/proc/self/mountinfo"
_KINDS: Final = (
    # Of servers.
    "afs auristorfs ceph cifs coda davfs glusterfs lustre ncp ncpfs nfs nfs4 orangefs panfs pvfs2 smb3 smbfs wekafs",
    # Of one disk that several machines write to.
    "acfs beegfs fhgfs gfs gfs2 gpfs ocfs2",
    # By FUSE, which puts its own name in front.
    "blobfuse blobfuse2 ceph-fuse cephfs curlftpfs davfs2 gcsfuse goofys juicefs lizardfs mfs moosefs mountpoint-s3 quobyte rclone",
    "s3fs seaweedfs smbnetfs sshfs",
)
# 9p, virtiofs, vboxsf and their like are not among them: what they show is a disk of the one machine around this one, which goes down with
# it; and in many containers there is nothing else.
_SHARED: Final = frozenset(kind for line in _KINDS for kind in line.split())


def is_shared(kind: str) -> bool:
    """Whether other machines have files of such a file system, too: its locks, syncs and page caches do not mean what they mean on a disk
    of this machine."""
    return kind.removeprefix("fuse.") in _SHARED


def kind_of(path: str) -> str:
    """Of the file system that holds ``path``: ``"ext4"``, ``"nfs4"``, ``"fuse.sshfs"``, ...; "" where nobody tells. OSError where it
    cannot be asked just now."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    place = os.path.realpath(path)
    found, depth = "", -1
    try:
        with open(MOUNTS_PATH, encoding="utf-8", errors="surrogateescape", opener=opener) as file:
            for line in file:
                # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
                mount, _, rest = line.partition(" - ")
                fields = mount.split()
                if not rest or len(fields) < 5:
                    continue
                kind = rest.split(maxsplit=1)[0]
                if fields[2] == wanted:
                    return kind
                # Not every file system has one number for all its files: else it is the deepest one whose place this is in.
                point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4]).rstrip("/")
                if len(point) >= depth and (place == point or place.startswith(f"{point}/")):
                    found, depth = kind, len(point)
    except OSError as error:
        if is_interruption(error) or error.errno in OUT_OF_MEANS:
            raise
    return found
