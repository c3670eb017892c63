"""What does metadata of a million partitions cost a node that hosts none? (``BENCH_METADATA=100000`` for fewer.)

Start from the stored image, and by replay; memory; bytes on the disk; one change; the longest step of the server while
it writes a snapshot and its stored image. And 9,000 partitions created in one call, committed, without folders.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyreplog.config import NodeConfig
from pyreplog.controller.quorum_server import QuorumServer, controller_address
from pyreplog.ports import Received
from pyreplog.quorum import Identity, QuorumConfig, Voter, VoterSet, format_quorum
from pyreplog.system import LocalNetwork, SystemClock, SystemDisk
from pyreplog.wire import (
    BrokerEndpoint,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatableTopic,
    CreateTopicsRequest,
    Feature,
    Listener,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    Request,
    RequestBody,
    Response,
    ResponseBody,
    TopicRecord,
    encode_record,
)

COUNT = int(os.environ.get("BENCH_METADATA", "1000000"))
TOPIC_SIZE = 1000
BATCH = 5000
CLUSTER = "Vkeo9ZaN7jZN1l8YEOqZQA"
DIRECTORY = "wPYBkuPcASIdB7YVKIm56w"
ENDLESS = 1 << 40
BROKERS = range(11, 16)


def config(*, stored: bool) -> QuorumConfig:
    """Settings without snapshots by themselves; with or without a stored image."""
    return QuorumConfig(snapshot_bytes=ENDLESS, stored_image_records=5000 if stored else ENDLESS)


def opened(folder: str, settings: QuorumConfig) -> tuple[QuorumServer, LocalNetwork]:
    """Open the one voter in ``folder``, and let it become active."""
    network = LocalNetwork()
    identity = Identity(1, DIRECTORY, CLUSTER)
    server = QuorumServer.open(
        SystemDisk(),
        folder,
        identity,
        NodeConfig(session_timeout_ms=3_600_000),
        settings,
        network.endpoint(),
        SystemClock(),
        Random(1),
    )
    while not server.is_active:
        server.poll()
    return server, network


def make(folder: str) -> None:
    """Make the folder of one voter, and a log with the records of many partitions."""
    disk, identity = SystemDisk(), Identity(1, DIRECTORY, CLUSTER)
    disk.make_directory(folder)
    voters = VoterSet([Voter.at(identity.key, controller_address(1))])
    format_quorum(disk, folder, identity, SystemClock(), voters, QuorumConfig())
    server, _ = opened(folder, config(stored=False))
    random, now = Random(1), SystemClock().monotonic_ns()
    values = []
    for broker in BROKERS:
        address = (BrokerEndpoint("PEER", f"node-{broker}", 0),)
        values.append(encode_record(RegisterBrokerRecord(broker, DIRECTORY, broker, address, fenced=False)))
    for number in range(COUNT):
        if number % TOPIC_SIZE == 0:
            topic_id = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
            values.append(encode_record(TopicRecord(f"topic-{number // TOPIC_SIZE}", topic_id)))
        replicas = [BROKERS[(number + place) % len(BROKERS)] for place in range(3)]
        record = PartitionRecord(
            number % TOPIC_SIZE, topic_id, replicas, replicas, leader=replicas[0], leader_epoch=0, partition_epoch=0
        )
        values.append(encode_record(record))
        if len(values) >= BATCH or number == COUNT - 1:
            server.raft.append(values, now)
            values = []
    server.kill()


def anonymous_mib() -> float:
    """The anonymous memory of this process; where the system does not tell, the most that it ever had."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = [line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


def start(folder: str) -> dict[str, float]:
    """Open the voter with its stored image, and say how long that took, and how much memory the process has then."""
    begun = time.perf_counter()
    server, _ = opened(folder, config(stored=True))
    seconds = time.perf_counter() - begun
    assert server.image.partition_count() >= COUNT
    found = {"seconds": seconds, "memory": anonymous_mib(), "change": changed(server)}
    server.close()
    return found


def changed(server: QuorumServer) -> float:
    """Seconds for a change of one partition, applied and noted for the stored image; the least of some."""
    image, times = server.image, []
    for topic in list(image.topics.values())[:20]:
        partition = topic.partitions[0]
        record = PartitionChangeRecord(0, topic.topic_id, leader=partition.replicas[1])
        begun = time.perf_counter()
        appended = server.raft.append([encode_record(record)], SystemClock().monotonic_ns())
        server._carry_out(appended.effects)
        server.poll()
        times.append(time.perf_counter() - begun)
    return min(times)


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    """The folder of a voter whose log has many partitions, in memory if that is possible."""
    parent = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    made = tempfile.mkdtemp(dir=parent)
    make(f"{made}/__cluster_metadata-0")
    yield f"{made}/__cluster_metadata-0"
    shutil.rmtree(made)


def steps(folder: str) -> tuple[float, float]:
    """Fill the stored image and write a snapshot; seconds of processor time of the longest step of each."""
    server, _ = opened(folder, config(stored=True))
    store = longest(server, lambda: server._committed.next_wake_ns is None)
    server._snapshots._bytes_max = 0
    server._committed.bytes_since_snapshot = 1
    snapshot = longest(server, lambda: server._snapshots._rest is None and not server._snapshots._has_news)
    server.close()
    return store, snapshot


def longest(server: QuorumServer, done: Any) -> float:
    """Processor time of the longest step until ``done()``."""
    found = 0.0
    while not done():
        begun = time.process_time()
        server.poll()
        found = max(found, time.process_time() - begun)
    return found


def size_of(folder: str) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_blocks * 512 for path in Path(folder).iterdir())


def figure(what: str, measured: str, allowed: str, ratio: float) -> dict[str, Any]:
    """One line of the table; a ratio of 1 and above is reached."""
    return {"what": what, "measured": measured, "peer": allowed, "ratio": ratio, "reach": 1.0}


def test_a_million_partitions(folder: str, benchmark: Any) -> None:
    """Replay, start from the stored image, memory, bytes, steps, one change."""
    begun = time.perf_counter()
    server, _ = opened(folder, config(stored=False))
    replay = time.perf_counter() - begun
    small = changed(server)
    server.kill()
    store, snapshot = steps(folder)
    code = f"import json; from benchmarks import bench_metadata as b; print(json.dumps(b.start({folder!r})))"
    root = Path(__file__).parent.parent
    found: dict[str, float] = json.loads(
        subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout
    )
    disk = size_of(folder) / COUNT
    what = f"metadata of {COUNT:,} partitions"
    share = COUNT / 1_000_000
    benchmark.extra_info["figures"] = [
        figure(f"{what}: start by replay", f"{replay:.1f} s", "seconds allowed: 30", 30 * share / replay),
        figure(
            f"{what}: start from the stored image",
            f"{found['seconds']:.2f} s",
            "seconds allowed: 3",
            3 * share / found["seconds"],
        ),
        figure(f"{what}: anonymous memory", f"{found['memory']:.0f} MiB", "MiB allowed: 200", 200 / found["memory"]),
        figure(f"{what}: log, snapshot, stored image", f"{disk:.0f} bytes each", "allowed: 1024", 1024 / disk),
        figure(f"{what}: longest step, stored image", f"{store * 1e3:.1f} ms", "ms allowed: 10", 0.010 / store),
        figure(f"{what}: longest step, snapshot", f"{snapshot * 1e3:.1f} ms", "ms allowed: 10", 0.010 / snapshot),
        figure(
            f"{what}: one change, committed",
            f"{found['change'] * 1e6:.0f} us with a stored image",
            f"without one, {small * 1e6:.0f} us",
            1.5 * small / found["change"],
        ),
    ]
    benchmark.pedantic(lambda: None, rounds=1)


def test_many_partitions_in_one_call(tmp_path: Path, benchmark: Any) -> None:
    """9,000 partitions of one topic, from the request to the answer, which comes after the commit."""
    folder = f"{tmp_path}/__cluster_metadata-0"
    disk, identity = SystemDisk(), Identity(1, DIRECTORY, CLUSTER)
    disk.make_directory(folder)
    voters = VoterSet([Voter.at(identity.key, controller_address(1))])
    format_quorum(disk, folder, identity, SystemClock(), voters, QuorumConfig())
    server, network = opened(folder, QuorumConfig())
    client = network.endpoint()
    client.listen("node-1")

    def ask(body: RequestBody) -> ResponseBody:
        client.send(controller_address(1), Request("node-1", 1, body))
        while True:
            server.poll()
            for event in client.poll(0):
                if isinstance(event, Received) and isinstance(event.message, Response):
                    return event.message.body

    registration = BrokerRegistrationRequest(
        1,
        CLUSTER,
        DIRECTORY,
        listeners=[Listener("PEER", "node-1")],
        features=[Feature("replog.version", 0, 1)],
        log_dirs=[DIRECTORY],
    )
    answer: Any = ask(registration)
    assert answer.error_code == 0
    ask(BrokerHeartbeatRequest(1, answer.broker_epoch, server.image.offset))
    begun = time.perf_counter()
    made: Any = ask(CreateTopicsRequest([CreatableTopic("many", 9000, 1)]))
    seconds = time.perf_counter() - begun
    assert made.topics[0].error_code == 0, made
    assert server.image.partition_count() == 9000
    server.close()
    benchmark.extra_info["figures"] = [
        figure("9,000 partitions in one call, committed", f"{seconds:.2f} s", "seconds allowed: 2", 2 / seconds)
    ]
    benchmark.pedantic(lambda: None, rounds=1)
