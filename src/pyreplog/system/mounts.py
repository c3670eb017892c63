"""What kind of file system a folder is on, where the kernel tells (``/proc/self/mountinfo``)."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["NETWORK_KINDS", "kind_of"]

MOUNTS_PATH: Final = "/proc/self/mountinfo"
NETWORK_KINDS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "fuse.sshfs"})
"""Kinds whose locks, syncs and page caches do not mean what they mean on a disk of this machine."""


def kind_of(path: str) -> str:
    """Of the file system that holds ``path``: ``"ext4"``, ``"nfs4"``, ...; "" where nobody tells."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(MOUNTS_PATH, encoding="utf-8", errors="replace") as file:
            for line in file:
                # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
                mount, _, rest = line.partition(" - ")
                if rest and mount.split(maxsplit=3)[2] == wanted:
                    return rest.split(maxsplit=1)[0]
    except OSError:
        pass
    return ""
