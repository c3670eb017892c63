"""SIGKILL at any moment, on real files: what was acknowledged is there when the folder is opened again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import pyreplog

VICTIM = Path(__file__).with_name("child_process.py")
Acknowledged = dict[tuple[int, int], bytes]


class ChildProcess:
    """The process that forks processes to be killed."""

    def __init__(self) -> None:
        self._server = subprocess.Popen([sys.executable, str(VICTIM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._in, self._out = self._server.stdin, self._server.stdout

    def run(self, kind: str, path: Path, durability: str, seed: int, acks: int) -> Acknowledged:
        """Let one write until it has said ``acks`` acknowledgements, kill it, and return all that it said."""
        self._in.write(f"{kind} {path} {durability} {seed}\n".encode())
        self._in.flush()
        pid = int(self._out.readline().split()[1])
        said: Acknowledged = {}
        for line in self._out:
            word, *rest = line.decode().split()
            if word == "end":
                assert len(said) >= acks, "it ended by itself"
                break
            said[int(rest[0]), int(rest[1])] = rest[2].encode()
            if len(said) == acks:
                os.kill(pid, signal.SIGKILL)
        return said

    def close(self) -> None:
        """End it."""
        self._in.close()
        self._server.wait(30)
        self._out.close()


@pytest.fixture(scope="module")
def victim() -> Iterator[ChildProcess]:
    """One server for all tests."""
    victim = ChildProcess()
    yield victim
    victim.close()


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_killed_log_has_what_it_acknowledged(victim: ChildProcess, tmp_path: Path, durability: str) -> None:
    """After each of 20 kills every acknowledged record is at its offset with its value, and appending goes on
    behind it."""
    random = Random(7)
    acknowledged: Acknowledged = {}
    for life in range(20):
        acknowledged |= victim.run("log", tmp_path / "log", durability, life, random.randrange(1, 120))
        with pyreplog.open_log(tmp_path / "log", mode="r") as reader:
            # Before any writer repairs anything: a reader sees all of it, too.
            seen = {(0, record.offset): record.value for record in reader.read()}
        assert acknowledged.items() <= seen.items()
        with pyreplog.open_log(tmp_path / "log") as log:
            found = {(0, record.offset): record.value for record in log.read()}
            assert acknowledged.items() <= found.items()
            assert list(found) == [(0, offset) for offset in range(len(found))]
            assert log.append(b"alive") == len(found)
            acknowledged[0, len(found)] = b"alive"


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_killed_cluster_has_what_it_acknowledged(victim: ChildProcess, tmp_path: Path, durability: str) -> None:
    """After each of 7 kills of all nodes at once the cluster comes back by itself, with every acknowledged record
    at its offset."""
    random = Random(8)
    acknowledged: Acknowledged = {}
    for life in range(7):
        acknowledged |= victim.run("cluster", tmp_path / "data", durability, life, random.randrange(1, 150))
        with pyreplog.Cluster(tmp_path / "data") as cluster:
            with cluster.consumer("events") as consumer:
                found = {(record.partition, record.offset): record.value for record in consumer.until_end()}
            assert acknowledged.items() <= found.items()
            with cluster.producer() as producer:
                place = producer.send("events", b"alive").result(20)
            acknowledged[place.partition, place.offset] = b"alive"
