"""``permissions`` of a log and a cluster: folders that a group shares, as Kubernetes, systemd and log collectors
have them."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pyreplog
import pyreplog.aio
from pyreplog.system import SystemDisk
from pyreplog.testing import BreakableCluster
from tests.unit.system.test_system_disk import in_child

OTHER = 54321


def append(path: Path, **options: Any) -> int:
    """One record to the log at ``path``."""
    with pyreplog.open_log(path, **options) as log:
        return log.append(b"x")


def send(path: Path, **options: Any) -> int:
    """One record to a topic of the cluster at ``path``."""
    with pyreplog.Cluster(path, nodes=2, **options) as cluster:
        cluster.admin.create_topic("orders", exist_ok=True)
        with cluster.producer() as producer:
            return producer.send("orders", b"x").result().offset


def append_awaited(path: Path, **options: Any) -> int:
    """As ``append``, for coroutines."""

    async def main() -> int:
        async with pyreplog.aio.open_log(path, **options) as log:
            return await log.append(b"x")

    return asyncio.run(main())


def send_awaited(path: Path, **options: Any) -> int:
    """As ``send``, for coroutines."""

    async def main() -> int:
        async with pyreplog.aio.Cluster(path, nodes=2, **options) as cluster:
            await cluster.admin.create_topic("orders", exist_ok=True)
            async with cluster.producer() as producer:
                return (await (await producer.send("orders", b"x"))).offset

    return asyncio.run(main())


def break_nothing(path: Path, **options: Any) -> int:
    """As ``send``, to a cluster that can be broken."""
    with BreakableCluster(path, nodes=2, **options) as cluster:
        cluster.admin.create_topic("orders", exist_ok=True)
        with cluster.producer() as producer:
            return producer.send("orders", b"x").result().offset


def mount(folder: Path, owner: int = -1) -> None:
    """Change ``folder`` as Kubernetes does with a volume that has an fsGroup, each time that it is mounted."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner, -1)
        path.chmod(0o2770 if path.is_dir() else 0o660)


def modes(folder: Path) -> dict[str, str]:
    """Of everything in ``folder``, where it differs from what ``group`` makes."""
    found = {str(path.relative_to(folder)): path.stat().st_mode & 0o7777 for path in folder.rglob("*")}
    return {name: oct(mode) for name, mode in found.items() if mode != (0o2770 if (folder / name).is_dir() else 0o660)}


@pytest.mark.parametrize("act", [append, send, append_awaited, send_awaited, break_nothing])
def test_a_volume_that_a_group_shares(tmp_path: Path, act: Callable[..., int]) -> None:
    """After a mount that made everything group-writable, ``owner`` is refused with the option that takes the
    folder; ``group`` goes on, also when another user owns everything, and each file and folder that it makes is the
    group's."""
    tmp_path.chmod(0o2770)
    assert act(tmp_path / "log", permissions="group") == 0
    assert modes(tmp_path) == {}
    mount(tmp_path)
    with pytest.raises(pyreplog.StorageError, match="permissions='group'"):
        act(tmp_path / "log")
    assert act(tmp_path / "log", permissions="group") == 1
    mount(tmp_path, OTHER if os.geteuid() == 0 else -1)
    assert act(tmp_path / "log", permissions="group") == 2
    assert modes(tmp_path) == {}


def test_every_later_segment_is_the_groups(tmp_path: Path) -> None:
    """Segments and indexes that are made in the middle of a log have the modes of the first ones, whatever the
    umask."""
    tmp_path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        with pyreplog.open_log(tmp_path / "log", config={"segment.bytes": 2000}, permissions="group") as log:
            for _ in range(12):
                log.append(bytes(500))
            assert modes(tmp_path) == {}
    finally:
        os.umask(before)
    assert modes(tmp_path) == {}
    assert len(list(tmp_path.glob("log/log-0/*.log"))) > 2


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FAULT RIG: being other users needs root")
def test_users_of_one_group_take_turns() -> None:
    """Users who share only a group write one log and one cluster in turn, also after one of them was killed, and
    another reads them."""
    volume = Path(tempfile.mkdtemp())  # not in tmp_path, which no other user may enter
    try:
        os.chown(volume, -1, OTHER)
        volume.chmod(0o2770)
        warm = volume / "warm"  # a user may not read the modules that are loaded later
        assert (append(warm / "log"), send(warm / "cluster"), send(warm / "cluster")) == (0, 0, 1)
        for turn, user in enumerate((1001, 1002, 1001)):
            assert as_user(user, partial(write_in_turn, volume)) == repr((turn, turn))
        assert as_user(1003, partial(read, volume / "log")) == "3"
        (volume / "log").chmod(0o700)
        assert as_user(1003, partial(append, volume / "log", permissions="group")) == "StoragePermissionError"
    finally:
        shutil.rmtree(volume)


def write_in_turn(volume: Path) -> tuple[int, int]:
    """One record each, of a process that ends without closing the log."""
    offset = send(volume / "cluster", permissions="group")
    return pyreplog.open_log(volume / "log", permissions="group").append(b"x"), offset


def read(path: Path) -> int:
    """How many records a reader finds."""
    with pyreplog.open_log(path, "r", permissions="group") as log:
        return len(list(log))


def as_user(user: int, act: Callable[[], object]) -> str:
    """What ``act`` returns or raises in a child that is another user, with OTHER as its only group besides its
    own."""

    def change() -> object:
        os.setgroups([OTHER])
        os.setgid(user)
        os.setuid(user)
        os.umask(0o077)
        return act()

    return in_child(change)


def test_any_checks_nothing(tmp_path: Path) -> None:
    """``any`` writes to a folder that everybody may write to, and its files get their modes from the umask."""
    (tmp_path / "log").mkdir()
    (tmp_path / "log").chmod(0o777)
    with pytest.raises(pyreplog.StorageError, match="permissions='any'"):
        append(tmp_path / "log")
    before = os.umask(0o027)
    try:
        assert append(tmp_path / "log", permissions="any") == 0
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "log" / "log-0").iterdir()} == {0o640}


def test_a_reader_of_the_group_is_not_warned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A reader that knows of the group has nothing to warn of; without the option there is one warning, however
    many folders there are."""
    append(tmp_path / "log", permissions="group")
    with pyreplog.open_log(tmp_path / "log", "r", permissions="group") as log:
        assert len(list(log)) == 1
    assert not caplog.records
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert len(list(log)) == 1
    (warned,) = caplog.records
    assert "writable by its group" in warned.getMessage()
    assert "1 more folder;" in warned.getMessage()


def test_wrong_values(tmp_path: Path) -> None:
    """Another value is refused before anything is made, and so is one beside a disk that a caller brings."""
    for make in (pyreplog.open_log, pyreplog.Cluster, BreakableCluster, partial(pyreplog.Cluster, mode="r")):
        with pytest.raises(
            pyreplog.ConfigError, match="permissions is 'all'; it must be one of 'owner', 'group', 'any'"
        ):
            make(tmp_path / "log", permissions="all")  # type: ignore[arg-type, call-overload]
    with pytest.raises(pyreplog.ConfigError, match="leave disk out"):
        pyreplog.open_log(tmp_path / "log", permissions="group", disk=SystemDisk())
    assert list(tmp_path.iterdir()) == []
