"""``replog verify``: what it prints, and what it exits with."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.support import Replog


def test_a_sound_folder(replog: Replog, events: Path) -> None:
    """One line that says what was looked at; exit code 0; as JSON the totals."""
    done = replog("verify", events)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("sound: 1 partition, ")
    assert "10 records" in done.out
    (totals,) = replog("verify", events, "--json", "--quick").objects()
    assert (totals["result"], totals["damage"], totals["warnings"], totals["records"]) == ("sound", 0, 0, 10)


def test_damage(replog: Replog, events: Path) -> None:
    """The file, the byte, the offsets, what is wrong and what to do; exit code 3."""
    log = events / "events-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    done = replog("verify", events)
    assert done.code == 3
    first, second, third, *_ = done.out.splitlines()
    assert first.startswith("damage: ")
    assert ", byte " in first
    assert "checksum mismatch" in second
    assert "replog repair" in third
    found = replog("verify", events, "--json").objects()
    assert found[0]["level"] == "damage"
    assert found[0]["path"].endswith(".log")
    assert found[0]["end_offset"] > found[0]["start_offset"]
    assert found[-1]["result"] == "damage"


def test_warnings(replog: Replog, events: Path) -> None:
    """Something that costs no record: exit code 4."""
    (events / "replication-offset-checkpoint").write_text("0\nnonsense\n")
    done = replog("verify", events)
    assert done.code == 4
    assert done.out.startswith("warning: ")
    assert "0 damaged, 1 warning: " in done.out


def test_nothing_there(replog: Replog, tmp_path: Path) -> None:
    """No log, no folder: one line on standard error; exit code 1."""
    for path in (tmp_path, tmp_path / "missing"):
        done = replog("verify", path)
        assert (done.code, done.out) == (1, "")
        assert len(done.err.splitlines()) == 1
    assert "no log here" in replog("verify", tmp_path).err
