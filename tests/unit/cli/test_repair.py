"""``replog repair``: shows, then saves elsewhere; what is saved can be read, written and verified."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import StorageError
from pyreplog.ports import Buffer
from pyreplog.system.file import SystemFile
from tests.interop.golden.units import unit
from tests.unit.cli.support import Replog


def damage(events: Path) -> None:
    """One bit of the second batch, offsets 1 to 8."""
    log = events / "events-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[200] ^= 4
    log.write_bytes(data)


def test_it_shows_first(replog: Replog, events: Path, tmp_path: Path) -> None:
    """Without --yes nothing is written: what is kept and what is lost is said, with the command that saves it; exit
    code 3."""
    damage(events)
    done = replog("repair", events, "--to", tmp_path / "new")
    assert done.code == 3
    assert "LOST           offsets 1 to 8: checksum mismatch" in done.out
    assert "offsets 0 to 0" in done.out
    assert "offsets 9 to 9" in done.out
    assert "--yes" in done.out.splitlines()[-1]
    assert not (tmp_path / "new").exists()


def test_it_saves(replog: Replog, events: Path, tmp_path: Path) -> None:
    """With --yes the new folder holds the rest at its offsets, passes verify, and can be written to."""
    damage(events)
    before = {path: path.read_bytes() for path in events.rglob("*") if path.is_file()}
    done = replog("repair", events, "--to", tmp_path / "new", "--yes")
    assert done.code == 3
    assert "verified: sound" in done.out
    assert [row["offset"] for row in replog("cat", tmp_path / "new").objects()] == [0, 9]
    assert replog("verify", tmp_path / "new").code == 0
    with pyreplog.open_log(tmp_path / "new") as log:
        assert log.append(b"more") == 10
        assert [record.offset for record in log.read(start=0)] == [0, 9, 10]
    assert replog("verify", tmp_path / "new").code == 0
    assert {path: path.read_bytes() for path in events.rglob("*") if path.is_file()} == before


def test_it_does_its_work_when_nobody_reads_what_it_says(events: Path, tmp_path: Path) -> None:
    """`replog repair ... --yes | true` saves all the same, and what was found is in the exit code, as with `verify`
    and `append`."""
    damage(events)
    rows = tmp_path / "rows.ndjson"
    rows.write_bytes(b'{"value":"first"}\nno row\n')

    def unread(*words: object) -> int:
        end, ours = os.pipe()
        os.close(end)
        with open(ours, "wb") as nobody:
            command = [sys.executable, "-m", "pyreplog", *map(str, words)]
            return subprocess.run(command, stdout=nobody, stderr=nobody, check=False).returncode

    assert unread("verify", events) == 3
    assert unread("verify", events, "--json") == 3
    assert unread("repair", events) == 3
    assert unread("repair", events, "--to", tmp_path / "new", "--yes") == 3
    assert (tmp_path / "new" / "events-0").is_dir()
    assert unread("append", tmp_path / "log", rows) == 1
    assert unread("import", tmp_path / "log", rows) == 1
    with (tmp_path / "log" / "log-0" / f"{0:020}.log").open("ab") as segment:
        segment.write(b"torn")  # of which is told before the work begins
    rows.write_bytes(b'{"value":"third"}\n')
    assert unread("append", tmp_path / "log", rows) == 0
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert [record.value for record in log] == [b"first", b"first", b"third"]
    assert unread("cat", tmp_path / "log") == 0, "what prints records is done when nobody wants more"


def test_nothing_lost(replog: Replog, events: Path, tmp_path: Path) -> None:
    """A sound folder: all is kept, exit code 0; as JSON too."""
    (plan,) = replog("repair", events, "--json").objects()
    assert plan["kept"] == [{"start_offset": 0, "end_offset": 10}]
    assert (plan["lost"], plan["mended"]) == ([], [])
    assert replog("repair", events, "--to", tmp_path / "new", "--yes").code == 0


@pytest.mark.parametrize("name", ["clean-4.1.0", "cluster-4.1.0/n1", "old-format-2.8.2"])
def test_what_a_broker_closed_is_saved_whole(replog: Replog, tmp_path: Path, name: str) -> None:
    """Compacted batches too, which have fewer records than offsets, and messages of the old formats: what is
    written passes verify."""
    done = replog("repair", unit(name) / "data", "--to", tmp_path / "new", "--yes")
    assert done.code == 0, done.out + done.err
    assert replog("verify", tmp_path / "new").code == 0
    assert set(replog("cat", unit(name) / "data").out.splitlines()) <= set(
        replog("cat", tmp_path / "new").out.splitlines()
    )


def test_it_never_overwrites(replog: Replog, events: Path, tmp_path: Path) -> None:
    """In place, inside the source, or over something: refused with what to do; --yes alone is not understood."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("x")
    for target in (events, events / "new", tmp_path / "taken"):
        done = replog("repair", events, "--to", target, "--yes")
        assert done.code == 1
        assert "name a new folder" in done.err
    assert replog("repair", events, "--yes").code == 2


@pytest.mark.parametrize("name", [".lock", "replog.reserve", "events-0/replog.config", f"events-0/{0:020}.index"])
def test_a_link_that_leads_to_itself_costs_nothing(replog: Replog, events: Path, tmp_path: Path, name: str) -> None:
    """As one that leads to nothing: `verify` looks at the rest, `repair` saves all, and `dump` shows it."""
    (events / name).unlink(missing_ok=True)
    (events / name).symlink_to((events / name).name)
    findings = replog("verify", events, "--json").objects()
    assert (findings[-1]["records"], findings[-1]["damage"]) == (10, 1 if "/" in name else 0)
    shown = replog("dump", events)
    assert "offset 9" in shown.out, shown.code
    assert replog("repair", events, "--to", tmp_path / "new", "--yes").code == 0
    assert len(replog("cat", tmp_path / "new").objects()) == 10


def test_a_repair_that_is_cut_short_says_so(
    replog: Replog, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a full disk leaves can be opened, and looks sound: it is not to be taken for the repaired log, and is in
    the way of one."""
    damage(events)
    disk_write = SystemFile.write_at

    def full(file: SystemFile, position: int, parts: Sequence[Buffer]) -> None:
        if file.path.endswith(".log"):
            raise StorageError(errno.ENOSPC, "No space left on device", file.path)
        disk_write(file, position, parts)

    with monkeypatch.context() as patched:
        patched.setattr(SystemFile, "write_at", full)
        done = replog("repair", events, "--to", tmp_path / "new", "--yes")
    assert done.code == 1
    assert (
        done.err.splitlines()[0] == f"replog repair: {tmp_path / 'new'} is not whole: remove it before you repair again"
    )
    assert "No space left on device" in done.err.splitlines()[1]
    done = replog("repair", events, "--to", tmp_path / "new", "--yes")
    assert (done.code, "not whole" in done.err) == (1, False)
    shutil.rmtree(tmp_path / "new")
    assert replog("repair", events, "--to", tmp_path / "new", "--yes").code == 3


@pytest.mark.parametrize("opened", [False, True], ids=["straight", "opened between"])
@pytest.mark.parametrize("offsets", [(1, 1, 1), (1, 2, 3)], ids=["the same", "another in each"])
def test_what_was_saved_goes_back_into_its_cluster(
    replog: Replog, tmp_path: Path, offsets: tuple[int, int, int], *, opened: bool
) -> None:
    """As the guide has it: every copy is damaged, the repaired one takes the place of each, and a person has one
    lead where need be."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("orders")
        with cluster.producer() as producer:
            sizes = [producer.send("orders", b"%d" % number * 50).result().offset + 1 for number in range(5)]
    folders = [tmp_path / "data" / f"node-{number}" / "orders-0" for number in (1, 2, 3)]
    for folder, offset in zip(folders, offsets, strict=True):
        log = folder / f"{0:020}.log"
        data = bytearray(log.read_bytes())
        data[len(data) // len(sizes) * offset + 70] ^= 2
        log.write_bytes(data)
    if opened:
        with pyreplog.Cluster(tmp_path / "data") as cluster:
            assert cluster.leader("orders") is None

    lost = {1} if offsets == (1, 1, 1) else set()
    assert replog("repair", tmp_path / "data", "--to", tmp_path / "saved", "--yes").code == (3 if lost else 0)
    for number, folder in enumerate(folders):
        folder.rename(tmp_path / f"damaged-{number}")
        shutil.copytree(tmp_path / "saved" / "orders-0", folder)

    with pyreplog.Cluster(tmp_path / "data") as cluster:
        assert cluster.leader("orders") is None or not lost  # what may lack something leads when a person says so
        cluster.admin.elect_leaders("orders", [0], unclean=True)
        with cluster.producer() as producer, cluster.consumer("orders") as consumer:
            assert producer.send("orders", b"more").result().offset == 5  # which two replicas at least have
            assert {record.offset for record in consumer.until_end()} == set(range(6)) - lost
    assert replog("verify", tmp_path / "data").code == 0
