"""``replog cat --all``: every log in the folders that are named, each record once and with the name of its log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pyreplog
from pyreplog.cli.options import EXIT_DAMAGED, EXIT_FAILED, EXIT_OK, EXIT_USAGE
from tests.unit.cli.support import Done, Replog


def fill(folder: Path, *values: bytes, topic: str | None = "events") -> Path:
    """A closed log in ``folder`` that holds ``values``."""
    with pyreplog.open_log(folder, topic=topic, durability="os") as log:
        log.append_many(list(values))
    return folder


@pytest.fixture
def multi(tmp_path: Path) -> Path:
    """A folder of three logs of one topic's name, with two records each, and a folder that is none."""
    folder = tmp_path / "multi"
    for number in (2, 0, 1):
        fill(folder / f"worker-{number}", b"%d-0" % number, b"%d-1" % number)
    (folder / "photos-7").mkdir()
    return folder


def lines(done: Done) -> list[tuple[str, str]]:
    """(log, value) of each line that was printed, and no message beside them."""
    assert (done.code, done.err) == (EXIT_OK, "")
    return [(line["log"], line["value"]) for line in done.objects()]


def values(*logs: int) -> list[tuple[str, str]]:
    """What the logs of these numbers hold."""
    return [(f"worker-{log}", f"{log}-{number}") for log in logs for number in (0, 1)]


def test_a_log_with_a_copy_is_named_and_the_rest_is_printed(replog: Replog, multi: Path) -> None:
    """A copy beside one of several logs is named with its log, which is left out. The others are printed, and the
    exit code is 1."""
    shutil.copytree(multi / "worker-1", multi / "worker-1.bak")
    done = replog("cat", "--all", multi)
    assert done.code == EXIT_FAILED
    assert [(line["log"], line["value"]) for line in done.objects()] == values(0, 2)
    assert "topic events is not read: node 0 has events-0 twice" in done.err
    assert f"{multi}/worker-1.bak/events-0" in done.err


def test_every_log_of_a_folder(replog: Replog, multi: Path) -> None:
    """All records come, log after log in the order of the folders' names, and each line begins with the log."""
    done = replog("cat", "--all", multi)
    assert lines(done) == values(0, 1, 2)
    assert done.out.startswith('{"log":"worker-0","topic":"events","partition":0,"offset":0,')
    assert lines(replog("cat", multi, "--all", "--json", "-n", "3")) == values(0, 1)[:3]
    assert replog("cat", "--all", "--values", multi).out.split() == [value for _, value in values(0, 1, 2)]
    assert lines(replog("cat", "--all", "--start", "1", multi)) == [
        (log, value) for log, value in values(0, 1, 2) if value.endswith("1")
    ]


def test_every_log_of_several_paths(replog: Replog, multi: Path, tmp_path: Path) -> None:
    """Paths may be logs and folders of logs; their order is that of the lines, and names are relative to the folder
    above all."""
    assert lines(replog("cat", "--all", multi / "worker-2", multi / "worker-0")) == values(2, 0)
    fill(tmp_path / "alone", b"own", topic=None)
    found = lines(replog("cat", "--all", tmp_path / "alone", multi))
    assert found == [("alone", "own"), *((f"multi/{log}", value) for log, value in values(0, 1, 2))]
    assert lines(replog("cat", "--all", multi / "worker-1")) == values(1)


def test_several_paths_need_all(replog: Replog, multi: Path) -> None:
    """Several paths without --all are not understood, and a folder of several logs is refused with that way to read
    them."""
    done = replog("cat", multi / "worker-0", multi / "worker-1")
    assert (done.code, done.out) == (EXIT_USAGE, "")
    assert "--all" in done.err
    done = replog("cat", multi)
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "3 independent logs (worker-0, worker-1, worker-2)" in done.err


def test_a_cluster_is_one_log(replog: Replog, multi: Path) -> None:
    """A cluster among the logs is read from one replica of each partition, under the name of its folder."""
    with pyreplog.Cluster(multi / "cluster", nodes=3) as cluster:
        cluster.admin.create_topic("events", partitions=2, replication_factor=3)
        with cluster.producer() as producer:
            for number in range(2):
                producer.send("events", b"c%d" % number, partition=number).result()
    assert lines(replog("cat", "--all", multi)) == [("cluster", "c0"), ("cluster", "c1"), *values(0, 1, 2)]
    assert lines(replog("cat", "--all", multi, "--partition", "1")) == [("cluster", "c1")]
    done = replog("cat", "--all", multi / "cluster", multi / "cluster" / "node-1")
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "hold the same partition, events-0" in done.err


def test_topics_are_filtered(replog: Replog, multi: Path) -> None:
    """--topic passes over logs without it; all topics of a log are printed; a topic or partition that no log has is
    refused."""
    fill(multi / "worker-1", b"x", topic="audit")
    assert lines(replog("cat", "--all", multi, "--topic", "audit")) == [("worker-1", "x")]
    assert lines(replog("cat", "--all", multi)) == [*values(0), ("worker-1", "x"), *values(1, 2)]
    done = replog("cat", "--all", multi, "--topic", "audot")
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "has the topic 'audot'; did you mean 'audit'?" in done.err
    assert "has partition 7" in replog("cat", "--all", multi, "--partition", "7").err


def test_no_record_is_printed_twice(replog: Replog, multi: Path) -> None:
    """A folder named twice, one within another path, and a copy in another path are refused with both names before
    a line is printed."""
    for paths in ((multi / "worker-0", multi / "worker-0"), (multi, multi / "worker-0")):
        done = replog("cat", "--all", *paths)
        assert (done.code, done.out) == (EXIT_FAILED, "")
        assert "worker-0 is named twice" in done.err
    shutil.copytree(multi / "worker-1", multi.parent / "copy")
    done = replog("cat", "--all", multi, multi.parent / "copy")
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "worker-1 and" in done.err
    assert "copy hold the same partition" in done.err


def test_a_folder_without_a_log(replog: Replog, multi: Path) -> None:
    """No log at all is an error, not an empty answer."""
    done = replog("cat", "--all", multi / "photos-7")
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "there is no log in" in done.err
    assert "there is no such folder" in replog("cat", "--all", multi, multi / "gone").err


def test_damage_in_one_log_is_an_error(replog: Replog, multi: Path) -> None:
    """Rot in one log ends the command with exit code 3 and the log's folder."""
    segment = multi / "worker-1" / "events-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[70] ^= 0xFF
    segment.write_bytes(data)
    done = replog("cat", "--all", multi)
    assert done.code == EXIT_DAMAGED
    assert "worker-1" in done.err


def test_append_takes_the_lines_back(replog: Replog, multi: Path, tmp_path: Path) -> None:
    """The lines of several logs become records of one log; a field log beside a value that is no record's is still
    refused."""
    printed = replog("cat", "--all", multi).out
    assert replog("append", tmp_path / "merged", stdin=printed.encode()).code == EXIT_OK
    assert replog("cat", "--values", tmp_path / "merged").out.split() == [value for _, value in values(0, 1, 2)]
    done = replog("append", tmp_path / "merged", stdin=b'{"log": "x", "value": 1}\n')
    assert done.code == EXIT_FAILED
    assert "has the field 'log'" in done.err.replace('"', "'")
