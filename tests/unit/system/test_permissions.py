"""Permissions of the machine's disk: which folders are written to, and the modes of new files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyreplog.errors import ConfigError, StorageError
from pyreplog.system import SystemDisk
from pyreplog.system.permissions import modes_of

OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FAULT RIG: giving a folder away needs root")


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The process's umask during the test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def made_by(permissions: str, parent: Path) -> dict[str, int]:
    """The modes of one of everything that a disk makes in ``parent``."""
    disk = SystemDisk(permissions=permissions)  # type: ignore[arg-type]
    disk.make_directory(f"{parent}/above/folder")
    disk.create(f"{parent}/file").close()
    disk.lock(f"{parent}/above/lock", "test").release()
    store = disk.open_store(f"{parent}/store", write=True)
    store.fill([(b"key", b"value")])
    store.close()
    disk.close()
    return {path.name: path.stat().st_mode & 0o7777 for path in parent.rglob("*")}


@pytest.mark.parametrize("setgid", [0, 0o2000], ids=oct)
@pytest.mark.parametrize("permissions", ["owner", "group"])
def test_modes_are_exact_whatever_the_umask(tmp_path: Path, umask: int, permissions: str, setgid: int) -> None:
    """``owner`` makes 0700 and 0600, ``group`` 0770 and 0660; a folder of ``group`` keeps the setgid bit of its
    parent."""
    tmp_path.chmod(setgid | 0o770)
    file, folder = (0o600, 0o700) if permissions == "owner" else (0o660, 0o770 | setgid)
    assert made_by(permissions, tmp_path) == {
        "above": folder,
        "folder": folder,
        "file": file,
        "lock": file,
        "store": file,
    }


def test_any_leaves_the_modes_to_the_umask(tmp_path: Path, umask: int) -> None:
    """``any`` makes files and folders as other programs do."""
    file, folder = 0o666 & ~umask, 0o777 & ~umask
    assert made_by("any", tmp_path) == {"above": folder, "folder": folder, "file": file, "lock": file, "store": file}


@pytest.mark.parametrize(
    ("permissions", "mode", "advice"),
    [
        ("owner", 0o700, ""),
        ("owner", 0o755, ""),
        ("owner", 0o770, "permissions='group'"),
        ("owner", 0o702, "permissions='any'"),
        ("owner", 0o777, "permissions='any'"),
        ("group", 0o700, ""),
        ("group", 0o2775, ""),
        ("group", 0o772, "permissions='any'"),
        ("any", 0o777, ""),
        ("any", 0o1777, ""),
    ],
)
def test_own_folders_by_their_mode(tmp_path: Path, permissions: str, mode: int, advice: str) -> None:
    """A folder of this user that others may write to is refused unless ``permissions`` says that they may; the text
    names the value that takes it, but not to readers, which take it anyway."""
    tmp_path.chmod(mode)
    disk = SystemDisk(permissions=permissions)  # type: ignore[arg-type]
    if not advice:
        disk.check_directory(str(tmp_path))
        disk.lock(f"{tmp_path}/lock", "").release()
        return
    with pytest.raises(StorageError) as caught:
        disk.check_directory(str(tmp_path))
    assert advice in str(caught.value)
    with pytest.raises(StorageError):
        disk.lock(f"{tmp_path}/lock", "")
    with pytest.raises(StorageError) as caught:
        disk.check_directory(str(tmp_path), write=False)
    assert "permissions=" not in str(caught.value)


@as_root
@pytest.mark.parametrize(
    ("permissions", "owner", "group", "mode", "said"),
    [
        ("owner", OTHER, 0, 0o700, "belongs to user 54321"),
        ("owner", OTHER, 0, 0o770, "permissions='group'"),
        ("group", OTHER, 0, 0o770, ""),
        ("group", OTHER, 0, 0o750, r"chmod -R g\+rwX"),
        ("group", 0, OTHER, 0o770, "writable by group 54321, and this process is not a member of it"),
        ("group", 0, OTHER, 0o750, ""),
        ("group", OTHER, OTHER, 0o770, "not a member"),
        ("any", OTHER, OTHER, 0o777, ""),
    ],
)
def test_folders_of_other_owners(
    tmp_path: Path, permissions: str, owner: int, group: int, mode: int, said: str
) -> None:
    """``group`` takes a folder of any owner if its group is one of the process's and may write to it; ``owner``
    takes none."""
    os.chown(tmp_path, owner, group)
    tmp_path.chmod(mode)
    disk = SystemDisk(permissions=permissions)  # type: ignore[arg-type]
    if not said:
        disk.check_directory(str(tmp_path))
        return
    with pytest.raises(StorageError, match=said):
        disk.check_directory(str(tmp_path))


def test_supplementary_groups_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a supplementary group of the process, such as that of a Kubernetes fsGroup, is one of its
    groups."""
    tmp_path.chmod(0o770)
    status = tmp_path.stat()
    monkeypatch.setattr(os, "getegid", lambda: status.st_gid + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [status.st_gid + 2])
    assert "not a member" in modes_of("group").refusal(status, write=True)
    monkeypatch.setattr(os, "getgroups", lambda: [status.st_gid + 2, status.st_gid])
    assert modes_of("group").refusal(status, write=True) == ""


@pytest.mark.parametrize("wrong", ["Owner", "", None, 0o660, "all"])
def test_other_values_are_refused(wrong: object) -> None:
    """A value that is none of the three is an error, which lists them."""
    with pytest.raises(ConfigError, match="'owner', 'group', 'any'"):
        SystemDisk(permissions=wrong)  # type: ignore[arg-type]
