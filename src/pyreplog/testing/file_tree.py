"""The folders and files of a simulated disk, as shown and as stable, and the unsynced changes of names
between the two."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Final

from pyreplog.errors import StorageError
from pyreplog.testing.storage import Change, Folder, Inode, Node, PendingWrite, PowerLoss, put

__all__ = ["FileTree", "storage_error"]

CHANGES_MAX: Final = 4096
"""A tree with more unsynced changes of names has the older half written back."""


class FileTree:
    """All content of one disk. ``boot`` counts the power losses before it, from 1.

    Every change of content or names gets the next sequence number of the tree.
    """

    def __init__(self, boot: int = 1) -> None:
        self.boot = boot
        self.sequence = 0
        """Number of the newest change."""
        self._root = Folder()
        self._changes: list[Change] = []

    def next_sequence(self) -> int:
        """Return a number for one more change."""
        self.sequence += 1
        return self.sequence

    # Looking --------------------------------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        """Return what ``path`` names; None if it names nothing."""
        node: Node = self._root
        for name in _split(path):
            if isinstance(node, Inode):
                return None
            child = node.entries.get(name)
            if child is None:
                return None
            node = child
        return node

    def file(self, path: str) -> Inode:
        """Return the file that ``path`` names. Raises :class:`StorageError` if it names none."""
        node = self.find(path)
        if node is None:
            raise storage_error(errno.ENOENT, "opening", path)
        if isinstance(node, Folder):
            raise storage_error(errno.EISDIR, "opening", path)
        return node

    def folder(self, path: str) -> Folder:
        """Return the folder that ``path`` names. Raises :class:`StorageError` if it names none."""
        node = self.find(path)
        if node is None:
            raise storage_error(errno.ENOENT, "opening the folder", path)
        if isinstance(node, Inode):
            raise storage_error(errno.ENOTDIR, "opening the folder", path)
        return node

    def parent(self, path: str) -> tuple[Folder, str]:
        """Return the folder that holds ``path``, and the name in it."""
        directory, _, name = path.rstrip("/").rpartition("/")
        return self.folder(directory), name

    @property
    def used(self) -> int:
        """Bytes in all files and reservations."""
        return sum(max(len(inode.data), inode.reserved) for inode in self._inodes())

    def _inodes(self) -> Iterator[Inode]:
        folders = [self._root]
        seen: dict[Inode, None] = {}
        for folder in folders:
            for node in folder.entries.values():
                if isinstance(node, Folder):
                    folders.append(node)
                else:
                    seen[node] = None
        return iter(seen)

    def fingerprint(self) -> bytes:
        """Return 16 bytes that identify the content: shown, stable and pending."""
        digest = blake2b(digest_size=16)
        numbers: dict[Node, int] = {}

        def tell(node: Node | None) -> None:
            if node is None or node in numbers:
                digest.update(b"-" if node is None else b"#%d" % numbers[node])
                return
            numbers[node] = len(numbers)
            if isinstance(node, Inode):
                digest.update(b"file %d %d %d %d " % (node.mtime_ms, node.reserved, len(node.data), len(node.stable)))
                digest.update(node.data)
                if node.pending or node.stable is not node.data:
                    digest.update(node.stable)
                digest.update(repr(node.pending).encode())
                return
            for names in (node.entries, node.stable):
                digest.update(b"folder %d " % len(names))
                for name in sorted(names):
                    digest.update(name.encode() + b"/")
                    tell(names[name])

        digest.update(b"%d %d " % (self.boot, self.sequence))
        tell(self._root)
        for change in self._changes:
            digest.update(b"change %d " % change.sequence)
            for folder, name, node in change.parts:
                tell(folder)
                digest.update(name.encode() + b"/")
                tell(node)
        return digest.digest()

    # Changing names -------------------------------------------------------------------------------

    def add(self, path: str, node: Node, doing: str) -> None:
        """Let ``path``, which names nothing yet, name ``node``."""
        folder, name = self.parent(path)
        if name in folder.entries:
            raise storage_error(errno.EEXIST, doing, path)
        self._change((folder, name, node))

    def make_folders(self, path: str) -> None:
        """Make a folder and its parents. The names of parents made on the way are stable at once."""
        folder = self._root
        names = _split(path)
        for index, name in enumerate(names):
            node = folder.entries.get(name)
            if node is None:
                node = Folder()
                if index + 1 < len(names):
                    folder.entries[name] = folder.stable[name] = node
                else:
                    self._change((folder, name, node))
            elif isinstance(node, Inode):
                code = errno.EEXIST if index + 1 == len(names) else errno.ENOTDIR
                raise storage_error(code, "making the folder", path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` by ``source`` atomically."""
        doing = f"renaming to {target}"
        old_folder, old_name = self.parent(source)
        new_folder, new_name = self.parent(target)
        node = old_folder.entries.get(old_name)
        there = new_folder.entries.get(new_name)
        if node is None:
            raise storage_error(errno.ENOENT, doing, source)
        if there is node:
            return
        if isinstance(node, Inode) and isinstance(there, Folder):
            raise storage_error(errno.EISDIR, doing, source)
        if isinstance(node, Folder) and there is not None:
            if isinstance(there, Inode):
                raise storage_error(errno.ENOTDIR, doing, source)
            if there.entries:
                raise storage_error(errno.ENOTEMPTY, doing, source)
        if isinstance(node, Folder) and _contains(node, new_folder):
            raise storage_error(errno.EINVAL, doing, source)
        self._change((new_folder, new_name, node), (old_folder, old_name, None))

    def remove(self, path: str) -> None:
        """Remove the name of a file."""
        folder, name = self.parent(path)
        node = folder.entries.get(name)
        if node is None:
            raise storage_error(errno.ENOENT, "removing", path)
        if isinstance(node, Folder):
            raise storage_error(errno.EISDIR, "removing", path)
        self._change((folder, name, None))

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        folder, name = self.parent(path)
        if self.folder(path).entries:
            raise storage_error(errno.ENOTEMPTY, "removing the folder", path)
        self._change((folder, name, None))

    def _change(self, *parts: tuple[Folder, str, Node | None]) -> None:
        for folder, name, node in parts:
            put(folder.entries, name, node)
        self._changes.append(Change(self.next_sequence(), parts))
        if len(self._changes) > CHANGES_MAX:
            for change in self._changes[: CHANGES_MAX // 2]:
                change.apply_stable()
            del self._changes[: CHANGES_MAX // 2]

    # Making names stable --------------------------------------------------------------------------

    def sync_names(self, folder: Folder) -> None:
        """Make the names in ``folder`` stable."""
        # A rename between folders is one transaction: if one of the two folders becomes stable, the
        # other does, too.
        folders = [folder]
        for known in folders:
            for change in self._changes:
                if change.touches(known):
                    folders.extend(part[0] for part in change.parts if part[0] not in folders)
        left = []
        for change in self._changes:
            if any(change.touches(known) for known in folders):
                change.apply_stable()
            else:
                left.append(change)
        self._changes = left

    def spoil_names(self, folder: Folder, chance: Random) -> None:
        """Fail a sync of ``folder``: make some of its names stable, so that no later sync repairs the rest."""
        for change in self._changes:
            if change.touches(folder) and chance.random() < 0.5:
                change.apply_stable()
        self._changes = [change for change in self._changes if not change.touches(folder)]

    def write_back(self) -> None:
        """Make everything shown stable."""

        def settle(folder: Folder) -> None:
            folder.stable = dict(folder.entries)
            for node in folder.entries.values():
                if isinstance(node, Inode):
                    node.settle(self.sequence)
                else:
                    settle(node)

        self._changes.clear()
        settle(self._root)

    # Copies ---------------------------------------------------------------------------------------

    def after_power_loss(self, random: Random) -> FileTree:
        """Return a new tree as power loss leaves this one; the damage is drawn from ``random``."""
        oldest = self._changes[0].sequence if self._changes else self.sequence
        damage = PowerLoss.drawn(random, min(oldest, self._oldest_piece()), self.sequence)
        names: dict[Folder, dict[str, Node]] = {}
        for change in self._changes:
            if not damage.keeps(change):
                continue
            parts = change.parts
            if len(parts) > 1 and isinstance(parts[0][2], Inode) and damage.keeps_old_name():
                parts = parts[:1]
            for folder, name, node in parts:
                survivors = names.get(folder)
                if survivors is None:
                    survivors = names[folder] = dict(folder.stable)
                put(survivors, name, node)
        made: dict[Node, Node] = {}

        def build(folder: Folder) -> Folder:
            new = Folder()
            made[folder] = new
            for name, node in names.get(folder, folder.stable).items():
                known = made.get(node)
                if known is None:
                    known = made[node] = node.after_crash(damage) if isinstance(node, Inode) else build(node)
                new.entries[name] = known
            new.stable = dict(new.entries)
            return new

        tree = FileTree(self.boot + 1)
        tree._root = build(self._root)
        return tree

    def copy(self, inode: Inode | None = None, position: int = 0, written: bytes = b"") -> FileTree:
        """Return a new tree with the same content: shown, stable and pending.

        ``written``: bytes that the copy has at ``position`` of ``inode`` beyond that.
        """
        tree = FileTree(self.boot)
        tree.sequence = self.sequence
        made: dict[Node, Node] = {}

        def copied(node: Node) -> Node:
            known = made.get(node)
            if known is not None:
                return known
            if isinstance(node, Inode):
                made[node] = new = node.copy()
                return new
            folder = made[node] = Folder()
            folder.entries = {name: copied(child) for name, child in node.entries.items()}
            folder.stable = {name: copied(child) for name, child in node.stable.items()}
            return folder

        root = copied(self._root)
        assert isinstance(root, Folder)
        tree._root = root
        for change in self._changes:
            parts = tuple(
                (copied(folder), name, None if node is None else copied(node)) for folder, name, node in change.parts
            )
            tree._changes.append(Change(change.sequence, parts))  # type: ignore[arg-type]
        if inode is not None and written:
            target = copied(inode)
            assert isinstance(target, Inode)
            target.change(PendingWrite(tree.next_sequence(), position, written))
        return tree

    def _oldest_piece(self) -> int:
        oldest = self.sequence
        for inode in self._inodes():
            if inode.pending and inode.pending[0].sequence < oldest:
                oldest = inode.pending[0].sequence
        return oldest


def storage_error(code: int, doing: str, path: str) -> StorageError:
    """Return the error of a call that failed with errno ``code``."""
    return StorageError(code, f"{os.strerror(code)} while {doing}", path)


@lru_cache(4096)
def _split(path: str) -> Sequence[str]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


def _contains(folder: Folder, wanted: Folder) -> bool:
    return folder is wanted or any(
        isinstance(node, Folder) and _contains(node, wanted) for node in folder.entries.values()
    )
