"""Checkpoints and small state files: read leniently, written atomically, never believed when damaged."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, CorruptError, StorageError
from pyreplog.log.settings import read_config, write_config
from pyreplog.log.snapshot import (
    format_state,
    parse_offsets,
    parse_state,
    read_offsets,
    read_state,
    replace_file,
    write_offsets,
    write_state,
)
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import create, reopen

OFFSETS = {TopicPartition("a.b-c", 0): 0, TopicPartition("z", 12): 2**62, TopicPartition("z", 3): 7}


def test_offsets_are_written_as_kafka_writes_them(place: Place) -> None:
    """Version, count, one line each; no temporary file stays; a second write replaces the first."""
    path = place.of("replication-offset-checkpoint")
    assert read_offsets(place.disk, path) == {}
    write_offsets(place.disk, path, {})
    assert place.read("replication-offset-checkpoint") == b"0\n0\n"
    write_offsets(place.disk, path, OFFSETS)
    assert place.read("replication-offset-checkpoint") == b"0\n3\na.b-c 0 0\nz 3 7\nz 12 4611686018427387904\n"
    assert read_offsets(place.disk, path) == OFFSETS
    assert list(place.disk.list(place.path)) == ["replication-offset-checkpoint"]


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n", b"0", b"0\n0\n", b"0\n0", b"0\n1\nt 0 5", b"0\n1\n t\t0   5 \n", b"0\r\n1\r\nt 0 5\r\n"],
)
def test_offsets_are_read_leniently(content: bytes) -> None:
    """An empty file, a bare version, any white space: as Kafka reads them."""
    assert parse_offsets(content, "file") in ({}, {TopicPartition("t", 0): 5})


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n", b"\n", b"x\n0\n", b"0\nx\n", b"0\n-1\n", b"0\n2\nt 0 5\n", b"0\n1\nt 0 5\nt 1 5\n", b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt x 5\n",
        b"0\n1\nt 0 x\n", b"0\n1\nt -1 5\n", b"0\n1\nt 0 -2\n", b"0\n1\nt 0 9223372036854775808\n", b"0\n1\nt 0 1e5\n",
        b"0\n1\nt 0 \xd9\xa3\n", b"\xff\n0\n",
        b"0\n99999999999999999999999\n", b"\x00" * 64,
    ],
)  # fmt: skip
def test_offsets_that_are_none_are_refused(content: bytes) -> None:
    """A wrong version, count, number or field is a CorruptError that names the file."""
    with pytest.raises(CorruptError, match="the-file"):
        parse_offsets(content, "the-file")


def test_a_huge_file_is_not_read(place: Place) -> None:
    """A file larger than any checkpoint may be is refused before it is read."""
    place.write("big", b"")
    file = place.disk.open(place.of("big"), write=True)
    file.truncate((64 << 20) + 1)
    file.close()
    with pytest.raises(CorruptError, match="too large"):
        read_offsets(place.disk, place.of("big"))


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read(content: bytes) -> None:
    """No input makes the parsers fail with anything but CorruptError."""
    for parse in (parse_offsets, parse_state):
        with contextlib.suppress(CorruptError):
            parse(content, "file")


def test_state_survives(place: Place) -> None:
    """A state file of ours gives back what was put in; none is None."""
    path = place.of("replog.incarnation")
    assert read_state(place.disk, path) is None
    values = {"version": "0", "incarnation_id": "AbC", "empty": "", "text": "a: b\tc é"}
    write_state(place.disk, path, values)
    assert read_state(place.disk, path) == values


STATE = format_state({"version": "0", "id": "abcdefghijklmnop", "boot_id": "12345-678"})


def test_state_cut_or_flipped_is_refused() -> None:
    """Cut at any byte, with any bit flipped, or with bytes behind it: never believed."""
    assert parse_state(STATE, "file")["id"] == "abcdefghijklmnop"
    for size in range(len(STATE)):
        with pytest.raises(CorruptError):
            parse_state(STATE[:size], "file")
    for position in range(len(STATE)):
        for bit in range(8):
            flipped = bytearray(STATE)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptError):
                parse_state(bytes(flipped), "file")
    for tail in (b"\n", b"\0", STATE):
        with pytest.raises(CorruptError):
            parse_state(STATE + tail, "file")


def test_a_replacement_is_whole_or_not_there() -> None:
    """Whatever is lost in a crash, a replaced file has the old content or the new one."""
    seen = set()
    for seed in range(200):
        disk = SimDisk(Random(seed))
        disk.make_directory("d")
        disk.sync_directory("/")
        replace_file(disk, "d/file", b"old")
        disk.fail("sync_directory") if seed % 2 else None
        with contextlib.suppress(StorageError):
            replace_file(disk, "d/file", b"new content")
        left = disk.crash(Random(seed))
        file = left.open("d/file")
        content = bytes(file.read_at(0, 100))
        assert content in (b"old", b"new content")
        seen.add(content)
    assert len(seen) == 2


def test_an_interrupted_replacement_is_no_obstacle(place: Place) -> None:
    """A temporary file left by a crash is replaced by the next write."""
    place.write("file.tmp", b"half")
    replace_file(place.disk, place.of("file"), b"whole")
    assert place.read("file") == b"whole"
    assert list(place.disk.list(place.path)) == ["file"]


def test_settings_that_contradict_the_mark(place: Place) -> None:
    """Of a log whose two files name different durabilities, opened by who asks for none, the error names both, and
    what to do."""
    create(place.disk, place.of("t-0"), LogConfig(durability="sync")).close(clean=True)
    write_config(place.disk, place.of("t-0"), LogConfig(durability="os"))
    with pytest.raises(
        ConfigError, match=r"replog.config says durability='os', and replog.mark 'sync': put .* back .*, or remove it"
    ):
        reopen(place.disk, place.of("t-0"), clean=True)
    place.disk.remove(place.of("t-0/replog.config"))
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.durability == "sync"
    log.close(clean=True)


def test_settings_are_kept(place: Place) -> None:
    """Settings come back as they were; damaged ones are as if there were none; those of a later version are
    refused."""
    assert read_config(place.disk, place.path) is None
    config = LogConfig(durability="os", segment_bytes=4096, compression_type="lz4", flush_ms=5)
    write_config(place.disk, place.path, config)
    assert read_config(place.disk, place.path) == config
    content = place.read("replog.config")
    place.write("replog.config", content[:-3])
    assert read_config(place.disk, place.path) is None
    write_state(place.disk, place.of("replog.config"), {"version": "7"})
    with pytest.raises(ConfigError, match="version 7"):
        read_config(place.disk, place.path)
