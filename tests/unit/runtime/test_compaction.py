"""Compaction of a log of ``open_log``: for the writer, its readers, copies and the command."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.cli.main import main
from pyreplog.errors import ConfigError, CorruptLogError
from pyreplog.repair import apply_repair, plan_repair
from pyreplog.runtime import compactor
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.verify import verify

CONFIG: Final[dict[str, Any]] = {"cleanup.policy": "compact", "segment.bytes": 4096, "file.delete.delay.ms": 0}


def filled(path: Path, count: int = 300, **settings: Any) -> pyreplog.Log:
    """A log of ``count`` records of ten keys, one batch each."""
    log = pyreplog.open_log(path, config={**CONFIG, **settings}, durability="os")
    for number in range(count):
        log.append(b"%d" % number, key=b"k%d" % (number % 10))
    return log


def offsets(log: Any) -> list[int]:
    """Of the records that it reads."""
    return [record.offset for record in log.read(log.start_offset)]


def test_the_newest_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    """For the writer, another reader, an Arrow scan, a search by time, and after a reopening."""
    with filled(tmp_path / "log") as log:
        done = log.compact()
        assert (done.records_read, done.records_kept, done.end_offset) == (300, 10, 300)
        assert offsets(log) == list(range(290, 300))
        log.append(b"more", key=b"k0")
        assert [record.offset for record in log] == [*range(290, 301)]
        with pyreplog.open_log(tmp_path / "log", "r") as reader:
            assert offsets(reader) == [*range(290, 301)]
            assert pa.table(reader.scan())["offset"].to_pylist() == [*range(290, 301)]
            assert reader.seek(timestamp=0) == 290
            assert len(list(reader.read(100, 295))) == 5
            assert not list(reader.read(100, 290))
            assert reader.end_offset == 301
        assert log.compact().records_kept == 10
        assert offsets(log) == [*range(291, 301)]
    with pyreplog.open_log(tmp_path / "log") as log:
        assert offsets(log) == [*range(291, 301)]
        assert log.compact().end_offset == 301
    assert not verify(SystemDisk(), str(tmp_path / "log")).findings


def test_a_reader_that_was_there_before_goes_on(tmp_path: Path) -> None:
    """Without a lock, in the middle of a segment that is replaced meanwhile; nothing is read twice or out of order,
    and of each key the newest is seen."""
    with filled(tmp_path / "log") as log, pyreplog.open_log(tmp_path / "log", "r") as reader:
        records = iter(reader.read(0))
        seen = [next(records) for _ in range(50)]
        log.compact()
        seen += list(records)
        places = [record.offset for record in seen]
        assert places == sorted(set(places))
        assert {record.key: record.value for record in seen} == {b"k%d" % n: b"%d" % (290 + n) for n in range(10)}
        log.append(b"x", key=b"k1")
        log.compact()
        assert offsets(reader) == [290, *range(292, 301)]


def test_appends_and_readers_go_on_during_passes(tmp_path: Path) -> None:
    """Threads that append and read while passes run one after another: nothing is lost."""
    failures: list[BaseException] = []
    stop = threading.Event()
    with filled(tmp_path / "log", **{"segment.bytes": 1 << 18}) as log:

        def append() -> None:
            number = 0
            try:
                while not stop.is_set():
                    log.append(b"%d" % number, key=b"a%d" % (number % 7))
                    number += 1
            except BaseException as error:
                failures.append(error)

        def read() -> None:
            try:
                while not stop.is_set():
                    with pyreplog.open_log(tmp_path / "log", "r") as reader:
                        places = offsets(reader)
                    assert places == sorted(set(places))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=one) for one in (append, read)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            log.compact()
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        log.compact()
        assert len(offsets(log)) <= 17
    assert not verify(SystemDisk(), str(tmp_path / "log")).findings


def test_the_background_compacts_when_it_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a call, and not before the dirty ratio asks for it; the checkpoint says up to where."""
    monkeypatch.setattr(compactor, "BACKOFF_S", 0.01)
    done = threading.Event()
    pass_of = compactor.Compactor._pass

    def told(self: Any, is_wanted: Any) -> Any:
        result = pass_of(self, is_wanted)
        if result is not None:
            done.set()
        return result

    monkeypatch.setattr(compactor.Compactor, "_pass", told)
    with filled(tmp_path / "log") as log:
        log.flush()
        assert done.wait(20)
        assert offsets(log)[0] > 0
    checkpoint = (tmp_path / "log" / "cleaner-offset-checkpoint").read_text().splitlines()
    assert checkpoint[:2] == ["0", "1"]
    assert checkpoint[2].startswith("log 0 ")


def test_damage_ends_the_background_and_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log can be used on; ``compact`` says where the damage is."""
    with filled(tmp_path / "log", **{"min.cleanable.dirty.ratio": 0}) as log:
        log.flush()
        path = tmp_path / "log" / "log-0" / f"{0:020}.log"
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(bytes(content))
        with pytest.raises(CorruptLogError, match="checksum"):
            log.compact()
        assert log._writer is not None
        assert log._writer.compactor._look() is None
        assert log._writer.compactor._look() is None
        assert len([one for one in caplog.records if "is not compacted any more" in one.message]) == 1
        log.append(b"on", key=b"k")


def test_a_log_that_is_not_compacted_says_so(tmp_path: Path) -> None:
    """With the setting that would do it; a reader cannot at all."""
    with pyreplog.open_log(tmp_path / "log") as log:
        with pytest.raises(ConfigError, match=r"config=\{'cleanup.policy': 'compact'\}"):
            log.compact()
        with pyreplog.open_log(tmp_path / "log", "r") as reader, pytest.raises(pyreplog.ReadOnlyError):
            reader.compact()


def test_compact_and_delete(tmp_path: Path) -> None:
    """Both policies: retention removes old segments, compaction joins the others. With compact alone it removes
    none by size."""
    with filled(tmp_path / "both", 600, **{"cleanup.policy": "compact,delete", "retention.bytes": 8000}) as log:
        log.apply_retention()
        assert log.start_offset > 0
        log.compact()
        assert offsets(log) == list(range(590, 600))
    with filled(tmp_path / "one", 600, **{"retention.bytes": 8000}) as log:
        assert log.apply_retention() == 0
        assert log.start_offset == 0


def test_copies_and_commands_know_the_gaps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A backup is whole, twice, also of a log that was compacted since; dump shows the gaps; tail -n takes records,
    not offsets."""
    with filled(tmp_path / "log") as log:
        log.compact()
        pyreplog.backup(tmp_path / "log", tmp_path / "copy")
        for number in range(40):
            log.append(b"x", key=b"k%d" % (number % 5))
        log.compact()
        pyreplog.backup(tmp_path / "log", tmp_path / "copy")
        expected = offsets(log)
    assert not verify(SystemDisk(), str(tmp_path / "copy")).findings
    with pyreplog.open_log(tmp_path / "copy", "r") as copy:
        assert offsets(copy) == expected
    pyreplog.backup(tmp_path / "copy", tmp_path / "restored")
    with pyreplog.open_log(tmp_path / "restored") as restored:
        assert offsets(restored) == expected
        restored.append(b"y", key=b"k0")
        restored.compact()
        newest = {record.key: record.offset for record in restored.read(0)}
        assert newest[b"k0"] == restored.end_offset - 1
        assert len(newest) == len(offsets(restored)) == 10
    assert not verify(SystemDisk(), str(tmp_path / "restored")).findings
    capfd.readouterr()
    assert main(["dump", str(tmp_path / "log" / "log-0" / f"{0:020}.gaps")]) == 0
    assert "start" in capfd.readouterr().out
    assert main(["tail", "-n", "7", str(tmp_path / "log")]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 7


def test_repair_tells_a_lost_batch_from_a_gap(tmp_path: Path) -> None:
    """Of a compacted segment in which one batch is damaged only that one is lost."""
    with filled(tmp_path / "log") as log:
        log.compact()
        log.append(b"x", key=b"k0")
    path = next(one for one in sorted((tmp_path / "log" / "log-0").glob("*.log")) if one.stat().st_size > 200)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(bytes(content))
    (lost,) = [one for one in verify(SystemDisk(), str(tmp_path / "log")).findings if one.start >= 0]
    assert (lost.start, lost.end) == (291, 292) or lost.end - lost.start == 1
    disk = SystemDisk()
    plans = plan_repair(disk, str(tmp_path / "log"))
    apply_repair(disk, str(tmp_path / "log"), str(tmp_path / "mended"), plans, clock=SystemClock(), random=Random(1))
    with pyreplog.open_log(tmp_path / "mended", "r") as mended:
        assert len(offsets(mended)) == 10


def test_readers_reach_the_end_behind_records_that_are_gone(tmp_path: Path) -> None:
    """C3: the last records are dropped tombstones, so the end is an empty batch, with gaps before it. Reading,
    following, a named reader, a queue and a scan get there; the named reader has nothing left to read."""
    settings = {**CONFIG, "delete.retention.ms": 0}
    with pyreplog.open_log(tmp_path / "log", config=settings, durability="os") as log:
        log.append(b"stays", key=b"a")
        for number in range(20):
            log.append(b"v", key=b"k%d" % number)
        for number in range(20):
            log.append(None, key=b"k%d" % number)
        log.compact()
        log.append(b"1", key=b"z")
        log.append(None, key=b"z")
        log.compact()
        log.compact()
        assert log.end_offset == 43
        assert [record.key for record in log.read(0)] == [b"a"]
        assert [record.key for record in log.follow(0, timeout=0.05)] == [b"a"]
        assert [record.key for record in log] == [b"a"]
        assert log.position == log.end_offset
        with log.consumer("one") as consumer:
            assert [record.key for record in consumer.until_end()] == [b"a"]
            consumer.commit()
            assert list(consumer.until_end()) == []
            assert set(consumer.lag().values()) <= {0, 42}
        with log.queue("work") as queue:
            record = queue.receive(timeout=0)
            assert record is not None
            queue.accept(record)
            assert queue.receive(timeout=0) is None
        with pyreplog.open_log(tmp_path / "log", "r") as reader:
            assert pa.table(reader.scan())["offset"].to_pylist() == [0]
            assert len(list(reader)) == 1
            assert reader.position == 43
    assert not verify(SystemDisk(), str(tmp_path / "log")).findings
