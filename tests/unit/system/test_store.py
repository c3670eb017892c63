"""The ordered keys and values of ``ports.Store``: the real one on LMDB, and the simulated one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import ClosedError, CorruptError, ForkedError, StorageError
from pyreplog.ports import Disk
from pyreplog.system import SystemDisk
from pyreplog.system.permissions import modes_of
from pyreplog.system.store import SystemStore
from pyreplog.testing import SimDisk
from pyreplog.testing.store import damage_store


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    """A disk, and the path of a store on it."""
    if request.param == "real":
        disk = SystemDisk()
        yield disk, f"{tmp_path}/store"
        disk.close()
    else:
        yield simulated(), "store"


def simulated() -> SimDisk:
    return SimDisk(Random(1))


def test_a_store_keeps_its_writes_over_close_and_open(place: tuple[Disk, str]) -> None:
    """Writes are there after the store was closed and opened again, in the order of the keys."""
    disk, path = place
    store = disk.open_store(path, write=True)
    store.write([(b"b", b"2"), (b"a", b"1"), (b"c", b"3")])
    store.write([(b"b", None), (b"missing", None), (b"c", b"4")])
    assert store.get([b"a", b"b", b"c"]) == [b"1", None, b"4"]
    store.close()
    again = disk.open_store(path, write=False)
    assert list(again.scan()) == [(b"a", b"1"), (b"c", b"4")]
    assert again.read_from(b"aa", 5) == [(b"c", b"4")]
    again.close()


def test_a_read_begins_at_its_key_and_is_bounded(place: tuple[Disk, str]) -> None:
    """``read_from`` begins at the key or behind its place, and returns no more than it was asked for."""
    disk, path = place
    store = disk.open_store(path, write=True)
    entries = [(number.to_bytes(2, "big"), bytes([number % 7])) for number in range(3000)]
    store.write(entries)
    assert store.read_from(b"", 2) == entries[:2]
    assert store.read_from(entries[1500][0], 3) == entries[1500:1503]
    assert store.read_from(b"\xff\xff", 3) == []
    assert list(store.scan()) == entries
    store.close()


def test_a_closed_store_refuses(place: tuple[Disk, str]) -> None:
    """A closed store raises ClosedError; closing it twice is harmless."""
    disk, path = place
    store = disk.open_store(path, write=True)
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.write([(b"a", b"1")])
    with pytest.raises(ClosedError):
        store.read_from(b"", 1)


def test_a_store_that_is_not_there_is_not_made_for_reading(place: tuple[Disk, str]) -> None:
    """Opening a missing store for reading fails and makes no file."""
    disk, path = place
    with pytest.raises(StorageError):
        disk.open_store(path, write=False)
    assert disk.stat(path) is None


@given(st.lists(st.dictionaries(st.binary(min_size=1, max_size=3), st.none() | st.binary(max_size=9)), max_size=6))
def test_a_simulated_store_is_a_dictionary(batches: list[dict[bytes, bytes | None]]) -> None:
    """The content is that of a dict after the same writes, when open and when opened again."""
    disk, model = simulated(), dict[bytes, bytes]()
    store = disk.open_store("store", write=True)
    for batch in batches:
        store.write(batch.items())
        model.update({key: value for key, value in batch.items() if value is not None})
        model = {key: value for key, value in model.items() if batch.get(key, b"") is not None}
        assert list(store.scan()) == sorted(model.items())
    store.close()
    assert list(disk.open_store("store", write=False).scan()) == sorted(model.items())


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_simulated_store_lost_whole_writes_or_a_bit(seed: int) -> None:
    """After damage the store has the content of some earlier moment, or a bit of it differs."""
    disk, states = simulated(), [dict[bytes, bytes]()]
    store = disk.open_store("store", write=True)
    for number in range(5):
        store.write([(b"key", b"value %d" % number), (b"%d" % number, b"")])
        states.append(dict(store.scan()))
    store.close()
    kind = damage_store(disk, "store", Random(seed))
    try:
        found = dict(disk.open_store("store", write=False).scan())
    except CorruptError:
        assert kind == "bit"
        return
    assert kind == "bit" or found in states
    assert kind != "all" or not found


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a fork of this process; return 0 if it returned, 1 if it raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_no_environment_is_open_across_a_fork(tmp_path: Path) -> None:
    """A fork's child may not use the store and has no map of it; the parent goes on."""
    disk = SystemDisk()
    store = disk.open_store(f"{tmp_path}/store", write=True)
    store.write([(b"a", b"1")])

    def child() -> None:
        assert f"{tmp_path}/store" not in Path("/proc/self/maps").read_text(encoding="utf-8")
        with pytest.raises(ForkedError):
            store.write([(b"a", b"2")])

    if not Path("/proc/self/maps").exists():
        pytest.skip("no list of maps")
    assert in_child(child) == 0
    assert store.get([b"a"]) == [b"1"]
    store.write([(b"a", b"3")])
    assert store.get([b"a"]) == [b"3"]
    store.close()
    disk.close()


def test_the_map_grows_with_its_content(tmp_path: Path) -> None:
    """A write that does not fit doubles the map; another process with a smaller map takes the new size."""
    path = str(tmp_path / "store")
    store = SystemStore(path, modes_of("owner"), write=True, map_size=1 << 16)
    for number in range(40):
        store.write([(b"%d" % number, bytes(10_000))])
    assert store.count() == 40
    program = (
        "import sys; from pyreplog.system.store import SystemStore; from pyreplog.system.permissions import modes_of\n"
        f"store = SystemStore({path!r}, modes_of('owner'), write=True, map_size=1 << 16)\n"
        "assert store.get_one(b'39') == bytes(10_000)\n"
        "store.write([(b'more-%d' % number, bytes(10_000)) for number in range(400)])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert store.get_one(b"more-399") == bytes(10_000)
    assert store.count() == 440
    store.write([(b"last", b"x")])
    assert len(store.read_from(b"more-", 1000)) == 400
    store.close()


def test_stores_of_one_file_share_it(tmp_path: Path) -> None:
    """LMDB opens a file once in a process; the file stays open until the last store of it closes."""
    path = str(tmp_path / "store")
    one = SystemStore(path, modes_of("owner"), write=True)
    two = SystemStore(path, modes_of("owner"), write=True)
    one.write([(b"a", b"1")])
    assert two.get_one(b"a") == b"1"
    one.close()
    one.close()
    with pytest.raises(ClosedError):
        one.get_one(b"a")
    two.write([(b"b", b"2")])
    assert two.get([b"a", b"b", b"c"]) == [b"1", b"2", None]
    os.rename(path, path + "-old")
    new = SystemStore(path, modes_of("owner"), write=True)
    assert (new.count(), two.count()) == (0, 2), "another file of the same name"
    two.close()
    new.close()


@pytest.mark.parametrize("change", ["mode", "hard link", "owner", "folder"])
def test_a_file_that_others_may_have_written_is_not_opened(tmp_path: Path, change: str) -> None:
    """LMDB would believe its bytes."""
    path = tmp_path / "store"
    store = SystemStore(str(path), modes_of("owner"), write=True)
    store.write([(b"a", b"1")])
    store.close()
    if change == "mode":
        path.chmod(0o620)
    elif change == "hard link":
        os.link(path, tmp_path / "other")
    elif change == "owner":
        if os.geteuid():
            pytest.skip("only root gives files away")
        os.chown(path, 12345, 12345)
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(CorruptError, match="another user|regular file"):
        SystemStore(str(path), modes_of("owner"), write=True)
