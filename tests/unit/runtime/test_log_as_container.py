"""len, indexes and batches of a log, and a log that must exist."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import pyreplog
from pyreplog import aio


def test_length_and_indexes_are_those_of_offsets(tmp_path: Path) -> None:
    """len counts the offsets that readers may see, an index is an offset, and a negative one counts from the end."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        assert (len(log), bool(log)) == (0, True)
        for offset in (-1, 0, 1):
            with pytest.raises(pyreplog.NoRecordError):
                log[offset]
        log.append_many([b"%d" % number for number in range(20)])
        assert len(log) == 20
        assert [log[index].offset for index in (0, 19, -1, -2, -20)] == [0, 19, 19, 18, 0]
        log.delete_records(5)
        assert (len(log), log[5].value, log[-15].offset, log.position) == (15, b"5", 5, 5)
        for offset in (4, 20, -16):
            with pytest.raises(IndexError, match="offsets 5 to 19"):
                log[offset]
        with pytest.raises(TypeError, match="log.read"):
            log[1:2]  # type: ignore[index]
        with pytest.raises(pyreplog.ConfigError):
            log["1"]  # type: ignore[index]
        with pytest.raises(TypeError):
            reversed(log)
        log.append_nowait(b"last")
        assert log[-1].value == b"last"
        with pyreplog.open_log(tmp_path / "log", "r") as reader:
            assert (len(reader), reader[-1].value) == (16, b"last")
    with pytest.raises(pyreplog.ClosedError):
        len(log)


def test_batches_are_the_lists_of_read(tmp_path: Path) -> None:
    """batches yields the records of read, a list for each batch, and raises its errors at once."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        for size in (1, 3, 2):
            log.append_many([b"x"] * size)
        assert [len(batch) for batch in log.batches()] == [1, 3, 2]
        assert [[record.offset for record in batch] for batch in log.batches(2, 5)] == [[2, 3], [4]]
        assert [record for batch in log.batches() for record in batch] == list(log.read())
        with pytest.raises(pyreplog.OffsetOutOfRangeError):
            log.batches(7)
        with pytest.raises(pyreplog.ConfigError):
            log.batches(3, 2)


def test_a_log_that_must_exist(tmp_path: Path) -> None:
    """create=False opens what is there, and makes neither a folder, a topic nor a partition."""
    with pytest.raises(FileNotFoundError, match="create=False"):
        pyreplog.open_log(tmp_path / "log", create=False)
    assert not (tmp_path / "log").exists()
    (tmp_path / "log").mkdir()
    with pytest.raises(pyreplog.StorageNotFoundError):
        pyreplog.open_log(tmp_path / "log", create=False)
    assert not list((tmp_path / "log").iterdir())
    pyreplog.open_log(tmp_path / "log").close()
    with pytest.raises(pyreplog.UnknownTopicError, match="did you mean 'log'"):
        pyreplog.open_log(tmp_path / "log", topic="logs", create=False)
    with pytest.raises(pyreplog.UnknownTopicError, match="no partition 3"):
        pyreplog.open_log(tmp_path / "log", partition=3, create=False)
    with pytest.raises(pyreplog.ConfigError):
        pyreplog.open_log(tmp_path / "log", create=None)  # type: ignore[arg-type]
    assert not (tmp_path / "log" / "log-3").exists()
    with pyreplog.open_log(tmp_path / "log", create=False) as log:
        log.append(b"x")
    with pyreplog.open_log(tmp_path / "log", "r", create=False) as log:
        assert len(log) == 1


def test_the_same_for_coroutines(tmp_path: Path) -> None:
    """batches, indexes and create= of aio.Log are those of Log; an index is awaited."""

    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            await aio.open_log(tmp_path / "log", create=False)
        async with aio.open_log(tmp_path / "log", durability="os") as log:
            await log.append_many([b"a", b"b"])
            await log.append(b"c")
            assert [[record.value for record in batch] async for batch in log.batches()] == [[b"a", b"b"], [b"c"]]
            assert ((await log[-1]).value, (await log[1]).value) == (b"c", b"b")
            with pytest.raises(IndexError):
                await log[3]
            with pytest.raises(TypeError):
                iter(log)

    asyncio.run(main())
