"""The kind of file system that holds a folder, if the kernel tells (``/proc/self/mountinfo``)."""

from __future__ import annotations

import os
import re
from typing import Final

from pyreplog.ports import RESOURCES_EXHAUSTED_ERRNOS
from pyreplog.system.descriptor_cache import opener
from pyreplog.system.signals import is_interruption

__all__ = ["is_shared", "kind_of"]

MOUNTS_PATH: Final = "/proc/self/mountinfo"
_KINDS: Final = (
    # File systems of servers.
    "afs auristorfs ceph cifs coda davfs glusterfs lustre ncp ncpfs nfs nfs4 orangefs panfs pvfs2 smb3 smbfs wekafs",
    # File systems of one disk that several machines write to.
    "acfs beegfs fhgfs gfs gfs2 gpfs ocfs2",
    # File systems in user space. FUSE puts its own name in front.
    (
        "blobfuse blobfuse2 ceph-fuse cephfs curlftpfs davfs2 gcsfuse goofys juicefs lizardfs mfs moosefs mountpoint-s3"
        " quobyte rclone"
    ),
    "s3fs seaweedfs smbnetfs sshfs",
)
# 9p, virtiofs, vboxsf and similar ones are not among them: they show a disk of the one host of this
# virtual machine, and a crash of the host takes this machine with it. Many containers have no other
# file system.
_SHARED: Final = frozenset(kind for line in _KINDS for kind in line.split())


def is_shared(kind: str) -> bool:
    """Return whether other machines can have files of such a file system, too.

    Its locks, syncs and page caches do not behave as on a local disk.
    """
    return kind.removeprefix("fuse.") in _SHARED


def kind_of(path: str) -> str:
    """Return the kind of the file system that holds ``path``: ``"ext4"``, ``"nfs4"``,
    ``"fuse.sshfs"``, ...

    Return "" if the kernel does not tell. Raises OSError if it cannot be asked just now.
    """
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
                # Not every file system has one number for all its files. Otherwise take the deepest
                # mount point above the path.
                point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4]).rstrip("/")
                if len(point) >= depth and (place == point or place.startswith(f"{point}/")):
                    found, depth = kind, len(point)
    except OSError as error:
        if is_interruption(error) or error.errno in RESOURCES_EXHAUSTED_ERRNOS:
            raise
    return found
