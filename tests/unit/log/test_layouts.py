"""The finder, ``verify``, ``repair``, Spark's access and the command take every layout of folders for the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pyreplog
from pyreplog.cli.main import main
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import METADATA_TOPIC, find_logs, open_readers
from pyreplog.repair import plan_repair
from pyreplog.spark.access import FileAccess
from pyreplog.system import SystemDisk
from pyreplog.verify import Level, find_partitions, look_around, verify
from pyreplog.verify.logs import passed_over
from tests.unit.log.layouts import LAYOUTS, deep, deep_beside, nested


@pytest.mark.parametrize("name", LAYOUTS)
def test_all_take_a_layout_for_the_same(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The same logs with the same folders are found by all; a layout that one of them refuses is refused by all,
    for the same reason."""
    layout = LAYOUTS[name]
    path = tmp_path / "data"
    layout.make(path)
    disk, text = SystemDisk(), str(path)
    found, seen = find_logs(disk, text), look_around(disk, text)
    logs = {log.name: log.partitions() for log in found.logs if log.has_partitions()}
    assert logs == {log.name: log.partitions for log in seen.held()}
    assert list(logs) == layout.logs
    assert sum(len(folders) for log in logs.values() for folders in log.values()) == layout.folders
    assert found.foreign == seen.foreign
    book = verify(disk, text, deep=False)
    assert book.worst is not Level.DAMAGE, book.findings
    assert any("independent logs" in finding.what for finding in book.findings) is (len(logs) > 1)
    assert any("no reader takes" in finding.what for finding in book.findings) is bool(
        layout.refusal and len(logs) == 1
    )
    code = main(["topics", text, "--json"])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {row.get("log", ".") for row in rows if "topic" in row} <= set(layout.logs)
    assert any("conflict" in row for row in rows) is bool(layout.refusal and len(logs) == 1)
    assert code == int(bool(layout.refusal and len(logs) == 1))
    with FileAccess(text) as access:
        if layout.refusal:
            for ask in (
                lambda: open_readers(disk, text),
                lambda: plan_repair(disk, text),
                lambda: find_partitions(disk, text),
            ):
                with pytest.raises(ConfigError, match=layout.refusal):
                    ask()
            with pytest.raises(ConfigError, match=layout.refusal):
                for partition in access.partitions():
                    access.reader(partition)
        else:
            (partitions,) = logs.values()
            readers = open_readers(disk, text)
            assert {key: reader.replicas for key, reader in readers.items()} == partitions
            for reader in readers.values():
                reader.close()
            assert find_partitions(disk, text) == partitions
            assert access.partitions() == list(partitions)
            planned = [key for key in partitions if key.topic != METADATA_TOPIC]  # which no repair writes
            assert [(plan.topic, plan.partition) for plan in plan_repair(disk, text)] == planned
    disk.close()


HIDDEN = {
    "a log in a log": (nested, "tenant-1"),
    "a log too deep": (deep, "2025/11/26/events"),
    "a log too deep beside another": (deep_beside, "2025/11/26/events"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_log_that_readers_pass_over_is_named(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """``topics`` and ``verify`` name a log that a reader of the path passes over, and no new log hides it."""
    make, hidden = HIDDEN[name]
    make(path := tmp_path / "data")
    disk, place = SystemDisk(), str(tmp_path / "data" / hidden)
    found, seen = find_logs(disk, str(path)), look_around(disk, str(path))
    assert found.hidden(disk) == passed_over(disk, str(path), seen) == [place]
    disk.close()
    assert main(["topics", str(path)]) == 1
    assert place in (told := capfd.readouterr()).err
    assert f"{path}/{hidden.partition('/')[0]}: no log" not in told.out
    assert main(["verify", str(path)]) == 1
    assert place in (told := capfd.readouterr()).out + told.err
    assert "another program" not in told.out
    assert main(["cat", "--all", str(path)]) != 0
    assert place in capfd.readouterr().err
    if not found.logs:
        with pytest.raises(ConfigError, match="would hide them"):
            pyreplog.open_log(path, topic="t")
        with pytest.raises(StorageError, match="logs deeper"):
            pyreplog.open_log(path, "r")
