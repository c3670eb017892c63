"""Readers in other processes beside a cluster whose leaders are killed: they never see what is not committed, and
miss nothing that is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

import pyreplog
from pyreplog.errors import PyreplogError

PARTITIONS = 2

READER = """
import json, sys
from pyreplog.spark.schema import Field
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.batch import plan_tasks
from pyreplog.spark.stream import ReplogStreamReader
from pyreplog.spark.tasks import read_ranges

FIELDS = [Field("partition", "int", True), Field("offset", "bigint", True), Field("value", "binary", True)]
path, kind = sys.argv[1:3]
options = {"path": path, "topic": "t", "maxrecordsperpartition": "500"}
seen = {}
sys.stdin.readline()  # the topic is there
stream = ReplogStreamReader(parse_read_options(options | {"startingoffsets": "earliest"}, streaming=True), FIELDS)
end = stream.initialOffset()

def rows(batches):
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns))

def note(partition, offset, value):
    value = value.decode()
    assert seen.setdefault((partition, offset), value) == value, (partition, offset, value, seen[partition, offset])

print("ready", flush=True)
for line in sys.stdin:  # one look for each line
    if kind == "batch":
        read = parse_read_options(options)
        for ranges in plan_tasks(read):
            planned = {(part.partition, offset) for part in ranges for offset in range(part.start, part.end)}
            found = list(rows(read_ranges(read, FIELDS, ranges)))
            assert len(found) == len(planned) and {row[:2] for row in found} == planned, (ranges, len(found))
            for row in found:
                note(*row)
    else:
        start, end = end, stream.latestOffset(end, None)
        found = []
        for task in stream.partitions(start, end):
            found += [row for row in rows(stream.read(task))]
        for row in found:
            assert row[:2] not in seen, row[:2]
            note(*row)
    print("done", flush=True)
print(json.dumps(sorted((*key, value) for key, value in seen.items())), flush=True)
"""


class Reader:
    """A process that looks at the cluster's folder again and again, from its own thread here."""

    def __init__(self, path: Path, kind: str) -> None:
        command = [sys.executable, "-c", READER, str(path), kind]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.stop = threading.Event()
        self.looks = 0
        self.looked = threading.Condition()
        self.thread = threading.Thread(target=self._drive, daemon=True)

    def start(self) -> None:
        """Let the process begin, now that the topic is there, and look when it is ready."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.process.stdout.readline()
        self.thread.start()

    def _drive(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        last = False
        while not last:
            last = self.stop.is_set()  # one more look at what is there in the end
            try:
                self.process.stdin.write("\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                return
            if self.process.stdout.readline() != "done\n":
                return
            with self.looked:
                self.looks += 1
                self.looked.notify_all()
        with self.looked:
            self.looked.notify_all()

    def wait_for_looks(self, count: int) -> None:
        """Until it looked ``count`` times more, the whole time after this call."""
        with self.looked:
            until = self.looks + count + 1
            assert self.looked.wait_for(lambda: self.looks >= until or not self.thread.is_alive(), timeout=60)

    def end(self) -> dict[tuple[int, int], str]:
        """(partition, offset) -> value of all it ever saw."""
        self.stop.set()
        self.thread.join()
        out, err = self.process.communicate()
        assert self.process.returncode == 0, err
        return {(partition, offset): value for partition, offset, value in json.loads(out)}


def orphan(cluster: pyreplog.Cluster, readers: list[Reader], partition: int) -> None:
    """A leader is left alone, takes records that nobody else gets, and dies before the others come back: those
    records are gone."""
    leader = cluster.leader("t", partition)
    if leader is None:
        return
    others = [node for node in cluster.nodes if node is not leader]
    for node in others:
        node.kill()
    with cluster.producer(acks=1) as producer:
        acks = [producer.send("t", b"orphan", partition=partition) for _ in range(20)]
        with contextlib.suppress(PyreplogError):
            acks[-1].result(timeout=5)
        for reader in readers:
            reader.wait_for_looks(1)
        leader.kill()
    for node in others:
        node.restart()
    deadline = time.monotonic() + 30
    while (
        cluster.leader("t", partition) is None
    ):  # the controller waits a moment for the most complete one to come back
        cluster.admin.describe("t")
        assert time.monotonic() < deadline
    leader.restart()


def hammer(
    root: Path, rounds: int, seed: int, kinds: tuple[str, ...]
) -> tuple[dict[tuple[int, int], str], dict[tuple[int, int], str]]:
    """Produce with ``acks`` 1 and all while leaders are killed and started again, readers beside it. Returns what
    was acknowledged by all, and what the log holds in the end; everything that readers saw was checked against
    it."""
    random = Random(seed)
    acknowledged: dict[tuple[int, int], str] = {}
    readers = [Reader(root, kind) for kind in kinds]
    try:
        with pyreplog.Cluster(root, nodes=3) as cluster:
            config = {"segment.bytes": "20000", "min.insync.replicas": "2"}
            cluster.admin.create_topic("t", partitions=PARTITIONS, replication_factor=3, config=config)
            with cluster.producer() as producer:
                producer.send("t", b"first", partition=0).result()
            for reader in readers:
                reader.start()
            for number in range(rounds):
                with cluster.producer() as careful, cluster.producer(acks=1) as careless:
                    sent = []
                    for index in range(random.randrange(50, 400)):
                        value, partition = f"{number}-{index}", random.randrange(PARTITIONS)
                        if random.random() < 0.5:
                            sent.append((value, careful.send("t", value.encode(), partition=partition)))
                        else:
                            careless.send("t", value.encode(), partition=partition)
                    victim = cluster.leader("t", random.randrange(PARTITIONS))
                    if victim is not None and random.random() < 0.8:
                        victim.kill()
                    for value, ack in sent:
                        try:
                            at = ack.result(timeout=30)
                        except PyreplogError:
                            continue
                        acknowledged[at.partition, at.offset] = value
                if victim is not None and not victim.alive:
                    victim.restart()
                if number % 3 == 2:
                    orphan(cluster, readers, random.randrange(PARTITIONS))
            with cluster.producer() as producer:
                for partition in range(PARTITIONS):
                    producer.send("t", b"last", partition=partition).result(timeout=30)
            with cluster.consumer("t") as consumer:
                consumer.seek_to_beginning()
                final = {
                    (record.partition, record.offset): (record.value or b"").decode() for record in consumer.until_end()
                }
            for reader in readers:
                seen = reader.end()
                wrong = {key: value for key, value in seen.items() if final.get(key) != value}
                assert not wrong
                assert seen.items() >= acknowledged.items()
                assert reader.looks >= 3
    finally:
        for reader in readers:
            reader.process.kill()
            reader.process.communicate()
    return acknowledged, final


def test_leaders_killed_beside_readers(tmp_path: Path) -> None:
    """A batch reader and a stream reader in processes of their own: each value they ever saw at an offset is the
    one that stays there, no offset of a plan is missing, the stream sees each once, and in the end all that was
    acknowledged was seen."""
    acknowledged, final = hammer(tmp_path / "cluster", 6, 1, ("batch", "stream"))
    assert len(acknowledged) > 100
    assert len(final) > len(acknowledged)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 10))
def test_leaders_killed_for_long(tmp_path: Path, seed: int) -> None:
    """As above, longer, with other seeds."""
    hammer(tmp_path / "cluster", 30, seed, ("batch", "stream"))
