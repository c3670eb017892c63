"""Compaction of a cluster's topics: a call of the admin, the background, and replicas that change in between."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

import pyreplog
from pyreplog import Cluster, Compaction, ConfigError, StorageError, TopicCompaction, UnknownTopicError, aio
from pyreplog.config import LogConfig
from pyreplog.log import CleanedSegment, Cleaner
from pyreplog.runtime import topic_compactor
from pyreplog.system import SystemDisk
from pyreplog.testing import BreakableCluster
from pyreplog.verify import Level, verify

COMPACT: Final = {"cleanup.policy": "compact", "segment.bytes": "4096", "file.delete.delay.ms": "0", "durability": "os"}
KEYS: Final = 10


def fill(cluster: Cluster, count: int = 300, start: int = 0, topic: str = "t") -> None:
    """Append records of ten keys, in batches of ten."""
    with cluster.producer() as producer:
        for number in range(start, start + count):
            producer.send(topic, b"%d" % number, key=b"k%d" % (number % KEYS), partition=0)
            if number % KEYS == KEYS - 1:
                producer.flush()


def newest(cluster: Cluster, topic: str = "t") -> dict[bytes | None, bytes | None]:
    """The newest value of each key, as a consumer reads the topic from its first record on."""
    with cluster.consumer(topic) as consumer:
        return {record.key: record.value for record in consumer.until_end()}


def expected(count: int) -> dict[bytes | None, bytes | None]:
    return {b"k%d" % (number % KEYS): b"%d" % number for number in range(count - KEYS, count)}


def with_keyless() -> dict[bytes | None, bytes | None]:
    """300 records with keys, then one without."""
    return {**expected(300), None: b"keyless"}


def leftovers(path: Path) -> list[Path]:
    """Files of passes that are not over."""
    return [one for suffix in ("cleaned", "swap") for one in path.rglob(f"*.{suffix}")]


def findings(path: Path) -> list[str]:
    return [str(one) for one in verify(SystemDisk(), str(path)).findings if one.level is not Level.NOTE]


@pytest.fixture(autouse=True)
def by_hand(request: pytest.FixtureRequest) -> None:
    """The background only looks when a test says so."""
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster")._compactor._look_at_ns = 1 << 62


@pytest.fixture
def compacted(cluster: Cluster) -> Cluster:
    """A cluster with a compacted topic of one partition, and 300 records in it."""
    cluster.admin.create_topic("t", config=COMPACT)
    fill(cluster)
    return cluster


def test_a_call_compacts_every_replica(compacted: Cluster, tmp_path: Path) -> None:
    """Also what is in the segment that is written; each root notes how far; a second call has nothing to do."""
    done = compacted.admin.compact("t")
    assert done.topic == "t"
    assert done.skipped == {}
    assert sorted(done.partitions) == [0]
    assert sorted(done.partitions[0]) == [1, 2, 3]
    for one in done.partitions[0].values():
        assert (one.records_read, one.records_kept, one.end_offset) == (300, KEYS, 300)
    assert newest(compacted) == expected(300)
    for number in (1, 2, 3):
        checkpoint = tmp_path / "data" / f"node-{number}" / "cleaner-offset-checkpoint"
        assert checkpoint.read_text().splitlines()[2:] == ["t 0 300"]
    again = compacted.admin.compact("t").partitions[0]
    assert {one.records_read for one in again.values()} == {KEYS}
    fill(compacted, 20, 300)
    assert compacted.admin.compact("t").partitions[0][2].start_offset == 300
    compacted.close()
    assert findings(tmp_path / "data") == []
    with Cluster(tmp_path / "data") as reopened:
        assert newest(reopened) == expected(320)
        assert reopened.admin.compact("t").partitions[0][3].start_offset == 320


def test_a_coroutine_can_ask(tmp_path: Path) -> None:
    """With the same result."""

    async def run() -> None:
        async with aio.Cluster(tmp_path / "data") as cluster:
            await cluster.admin.create_topic("t", config=COMPACT)
            async with await cluster.producer() as producer:
                for number in range(20):
                    await producer.send("t", b"v", key=b"%d" % (number % 2))
            done = await cluster.admin.compact("t")
            assert [one.records_kept for one in done.partitions[0].values()] == [2, 2, 2]

    asyncio.run(run())


def test_nodes_that_do_not_run_are_named(compacted: Cluster, tmp_path: Path) -> None:
    """They are not waited for, and compact their copies when they are back."""
    compacted.node(2).kill()
    compacted.node(3).pause()
    done = compacted.admin.compact("t", timeout=20)
    assert sorted(done.partitions[0]) == [1]
    assert done.skipped == {0: {2: "the node is down", 3: "the node is paused"}}
    compacted.node(3).resume()
    compacted.node(2).restart()
    assert newest(compacted) == expected(300)
    assert findings(tmp_path / "data") == [], "replicas may be compacted differently"
    done = compacted.admin.compact("t", timeout=20)
    assert sorted(done.partitions[0]) == [1, 2, 3]
    assert done.skipped == {}


def test_what_cannot_be_compacted_is_refused(cluster: Cluster, create: Callable[..., str]) -> None:
    """With the way out."""
    create("plain")
    with pytest.raises(ConfigError, match=r"alter_config\('plain', {'cleanup.policy': 'compact'}\)"):
        cluster.admin.compact("plain")
    with pytest.raises(UnknownTopicError):
        cluster.admin.compact("none")
    with pytest.raises(ConfigError, match="timeout"):
        cluster.admin.create_topic("t", config=COMPACT)
        cluster.admin.compact("t", timeout=-1)


def test_only_committed_records_are_compacted(compacted: Cluster) -> None:
    """A record above the high watermark replaces none: it may be truncated."""
    for number in (2, 3):
        compacted.node(number).pause()
    with compacted.producer(acks=1) as producer:
        producer.send("t", b"uncommitted", key=b"k0").result()
        done = compacted.admin.compact("t", timeout=20)
        assert done.partitions[0][1].end_offset <= 300
        for number in (2, 3):
            compacted.node(number).resume()
        assert newest(compacted) == {**expected(300), b"k0": b"uncommitted"}


# -- topics that become compacted --


def test_a_topic_with_records_without_keys_cannot_become_compacted(
    cluster: Cluster, create: Callable[..., str]
) -> None:
    """Neither by its own setting nor by the cluster's; the first such record is named."""
    create("t", partitions=2)
    fill(cluster, 20)
    with cluster.producer() as producer:
        producer.send("t", b"x", key=b"k", partition=1)
        producer.send("t", b"y", partition=1)
        producer.flush()
    hint = "t-1 holds a record without a key at offset 1"
    with pytest.raises(ConfigError, match=hint):
        cluster.admin.alter_config("t", {"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match=hint):
        cluster.admin.alter_cluster_config({"cleanup.policy": "compact"})
    assert "cleanup.policy" not in cluster.admin.describe("t").config
    assert cluster.admin.describe_cluster().config == {}
    cluster.admin.alter_config("t", {"cleanup.policy": "compact", "compact.unkeyed": "drop"})
    done = cluster.admin.compact("t")
    assert done.partitions[1][1].unkeyed_dropped == 1
    assert cluster.admin.describe("t").config["was.compacted"] == "true"


def test_a_topic_with_keys_becomes_compacted(cluster: Cluster, create: Callable[..., str]) -> None:
    """By its own setting or the cluster's, and stays noted when it no longer is; a record without a key that came
    in between stays."""
    create("t", segment_bytes="4096")
    create("u", cleanup_policy="delete")
    fill(cluster)
    cluster.admin.alter_cluster_config({"cleanup.policy": "compact"})
    assert cluster.admin.compact("t").partitions[0][2].records_kept == KEYS
    cluster.admin.alter_cluster_config({"cleanup.policy": None})
    assert cluster.admin.describe("t").config["was.compacted"] == "true"
    assert "was.compacted" not in cluster.admin.describe("u").config
    with cluster.producer() as producer:
        producer.send("t", b"keyless").result()
    with pytest.raises(ConfigError, match="at offset 300"):
        cluster.admin.alter_config("t", {"cleanup.policy": "compact"})
    assert newest(cluster) == with_keyless()


def test_a_record_without_a_key_that_comes_during_the_change_stays(
    cluster: Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The check has passed the place before: the warning names it, and no pass drops it."""
    create("t", segment_bytes="4096")
    fill(cluster)
    check = cluster.admin._key_check.check

    def slow(*arguments: Any) -> Any:
        reached = check(*arguments)
        with cluster.producer() as producer:
            producer.send("t", b"keyless").result()
        return reached

    monkeypatch.setattr(cluster.admin._key_check, "check", slow)
    cluster.admin.alter_config("t", {"cleanup.policy": "compact"})
    assert "without a key at offset 300" in caplog.text
    cluster.admin.compact("t")
    assert newest(cluster) == with_keyless()


# -- the background --


def test_the_background_takes_the_dirtiest_log_first(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass after another; a log below its ratio is left alone."""
    for name, ratio in (("a", "0.9"), ("b", "0.1"), ("c", "1")):
        cluster.admin.create_topic(name, config={**COMPACT, "min.cleanable.dirty.ratio": "1"}, replication_factor=1)
        fill(cluster, 100, topic=name)
        cluster.admin.compact(name)
        fill(cluster, {"a": 3000, "b": 300, "c": 500}[name], 100, topic=name)
        cluster.admin.alter_config(name, {"min.cleanable.dirty.ratio": ratio})
    order: list[str] = []
    pass_ = topic_compactor.TopicCompactor._pass

    def spied(self: Any, replica: Any, is_wanted: Any) -> Compaction | None:
        done = pass_(self, replica, is_wanted)
        order.append(replica.name.topic)
        return done

    monkeypatch.setattr(topic_compactor.TopicCompactor, "_pass", spied)
    cluster._compactor._look()
    assert order == ["a", "b"]
    assert newest(cluster, "a") == expected(3100)
    cluster._compactor._look()
    assert order == ["a", "b"], "nothing is due any more"


def test_the_background_begins_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a topic is created that is compacted, and in a cluster that is opened with one; not in any other."""
    looks: list[str] = []
    looked = threading.Event()

    def look(self: Any) -> None:
        looks.append(threading.current_thread().name)
        looked.set()

    monkeypatch.setattr(topic_compactor.TopicCompactor, "_look", look)
    with Cluster(tmp_path / "data") as cluster:
        cluster.admin.create_topic("plain")
        assert not cluster._compactor._background.is_running
        cluster.admin.create_topic("t", config=COMPACT)
        assert looked.wait(20)
    assert set(looks) == {f"pyreplog compaction {tmp_path / 'data'}"}
    looked.clear()
    with Cluster(tmp_path / "data"):
        assert looked.wait(20)


# -- changes in between --


class Interference:
    """Calls ``act`` in the middle of the next pass that writes a segment."""

    def __init__(self) -> None:
        self.act: Callable[[], object] | None = None

    def second(self, act: Callable[[], object]) -> None:
        """Call ``act`` in the pass after the next one: that of another replica, if both have one group."""

        def wait() -> None:
            self.act = act

        self.act = wait

    def clean(self, cleaner: Cleaner, sources: Any) -> CleanedSegment:
        cleaned = CLEAN(cleaner, sources)
        act, self.act = self.act, None
        if act is not None:
            act()
        return cleaned


CLEAN: Final = Cleaner.clean


@pytest.fixture
def interference(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interference]:
    """Acts once, between the copy of a group and its swap, in the thread of the pass."""
    made = Interference()
    monkeypatch.setattr(Cleaner, "clean", lambda self, sources: made.clean(self, sources))
    yield made
    assert made.act is None, "no pass came to it"


def kill(cluster: Cluster) -> None:
    cluster.node(1).kill()


def stop(cluster: Cluster) -> None:
    cluster.node(1).stop()


def restart(cluster: Cluster) -> None:
    cluster.node(1).restart()


def pause(cluster: Cluster) -> None:
    cluster.node(1).pause()


@pytest.mark.parametrize("act", [kill, stop, restart, pause])
def test_a_pass_on_a_node_that_ends_is_given_up(
    compacted: Cluster, interference: Interference, tmp_path: Path, act: Callable[[Cluster], None]
) -> None:
    """Its files are removed; the other replicas are compacted; no record is lost, and the node's next pass works."""
    interference.act = lambda: act(compacted)
    done = compacted.admin.compact("t", timeout=30)
    assert sorted(done.partitions[0]) == [2, 3]
    assert list(done.skipped[0]) == [1]
    assert leftovers(tmp_path) == []
    compacted.node(1).resume()
    compacted.node(1).restart()
    assert newest(compacted) == expected(300)
    assert sorted(compacted.admin.compact("t", timeout=30).partitions[0]) == [1, 2, 3]
    compacted.close()
    assert findings(tmp_path / "data") == []


def test_a_pass_of_a_deleted_topic_touches_no_later_one(
    compacted: Cluster, interference: Interference, tmp_path: Path
) -> None:
    """A topic that is created under the same name in the middle has its own records, whole."""

    def again() -> None:
        compacted.admin.delete_topic("t")
        compacted.admin.create_topic("t", config=COMPACT)
        fill(compacted, 100)

    interference.act = again
    done = compacted.admin.compact("t", timeout=30)
    assert 1 in done.skipped[0]
    assert leftovers(tmp_path) == []
    assert newest(compacted) == expected(100)
    with compacted.consumer("t") as consumer:
        assert len(list(consumer.until_end())) == 100
    compacted.admin.compact("t", timeout=30)
    assert newest(compacted) == expected(100)


def test_a_pass_goes_on_while_the_leader_changes(compacted: Cluster, interference: Interference) -> None:
    """Both followers are in the middle of a pass when their leader ends: one of them leads from then on."""
    leader = compacted.leader("t")
    assert leader is not None
    assert leader.node_id == 1

    def lead() -> None:
        compacted.node(1).kill()
        assert compacted._driver.wait_until(lambda: any(compacted.node(n)._leads("t", None) for n in (2, 3)), 20)
        fill(compacted, 50, 300)

    for number in (2, 3):
        interference.second(lead)
        done = compacted.admin.compact("t", timeout=40)
        assert set(done.partitions[0]) >= {2, 3}
        compacted.node(1).restart()
        assert newest(compacted) == expected(350), number


@pytest.mark.parametrize("at", [150, 0])
def test_a_truncated_replica_keeps_its_records(
    compacted: Cluster, interference: Interference, tmp_path: Path, at: int
) -> None:
    """A follower that loses an end, or all, in the middle of a pass fetches it again; the swap is refused."""
    leader = compacted.leader("t")
    assert leader is not None
    follower = compacted.node(2)
    assert follower is not leader

    def cut() -> None:
        node = follower._node
        assert node is not None

        def act() -> None:
            (hosted,) = node.hosted.values()
            log = hosted.replica.load_log()
            log.truncate_to(at) if at else log.truncate_fully(0)

        compacted._driver.run_exclusively(act)

    interference.second(cut)  # the second replica of the call is the follower's
    done = compacted.admin.compact("t", timeout=30)
    assert 2 in {*done.partitions[0], *done.skipped.get(0, {})}
    compacted.node(2).restart()
    compacted.close()
    assert leftovers(tmp_path) == []
    assert findings(tmp_path / "data") == []
    with Cluster(tmp_path / "data") as reopened:
        assert newest(reopened) == expected(300)


def test_a_policy_that_changes_ends_the_pass(compacted: Cluster, interference: Interference, tmp_path: Path) -> None:
    """By then the records without keys, or old ones of a key, may be wanted."""
    interference.act = lambda: compacted.admin.alter_config("t", {"cleanup.policy": "delete"})
    done = compacted.admin.compact("t", timeout=30)
    assert done.partitions == {}
    assert leftovers(tmp_path) == []
    with compacted.consumer("t") as consumer:
        assert len(list(consumer.until_end())) == 300


def test_a_cluster_that_is_closed_gives_its_pass_up(
    compacted: Cluster, interference: Interference, tmp_path: Path
) -> None:
    """The caller gets ClosedError, and the folder is as it was."""
    closing = threading.Thread(target=compacted.close)

    def close() -> None:
        closing.start()
        while not compacted._compactor._stopping:
            threading.Event().wait(0.001)

    interference.act = close
    with pytest.raises(pyreplog.ClosedError):
        compacted.admin.compact("t", timeout=30)
    closing.join()
    assert leftovers(tmp_path) == []
    assert findings(tmp_path / "data") == []
    with Cluster(tmp_path / "data") as reopened:
        assert newest(reopened) == expected(300)


def test_retention_in_the_middle_is_no_damage(compacted: Cluster, interference: Interference) -> None:
    """Records deleted below a segment of the pass: it begins again, and compacts what is left."""

    def delete() -> None:
        compacted.admin.delete_records("t", {0: 200})

    interference.act = delete
    done = compacted.admin.compact("t", timeout=30)
    assert sorted(done.partitions[0]) == [1, 2, 3]
    assert newest(compacted) == expected(300)


# -- trouble --


def test_a_damaged_replica_is_left_alone(compacted: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is named, and logged once; the others are compacted."""
    compacted.admin.alter_config("t", {"min.cleanable.dirty.ratio": "1"})
    (first, *_) = sorted((tmp_path / "data" / "node-2" / "t-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[400] ^= 1
    first.write_bytes(content)
    done = compacted.admin.compact("t")
    assert sorted(done.partitions[0]) == [1, 3]
    assert "checksum" in done.skipped[0][2]
    compacted.admin.alter_config("t", {"min.cleanable.dirty.ratio": "0"})
    for _ in range(2):
        compacted._compactor._look()
    assert caplog.text.count("is not compacted any more until it is opened again") == 1
    assert first.read_bytes() == content


def test_a_full_disk_leaves_the_log_as_it_was(
    compacted: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and the next look tries again."""
    full = True
    compacted.admin.alter_config("t", {"min.cleanable.dirty.ratio": "0"})

    def clean(self: Cleaner, sources: Any) -> CleanedSegment:
        if full:
            raise StorageError(errno.ENOSPC, "no room", sources[0].path)
        return CLEAN(self, sources)

    monkeypatch.setattr(Cleaner, "clean", clean)
    for _ in range(2):
        compacted._compactor._look()
    assert caplog.text.count("is tried again") == 3  # once for each replica
    full = False
    compacted._compactor._look()
    assert leftovers(tmp_path) == []
    sizes = {
        path.parent.parent.name: sum(one.stat().st_size for one in path.parent.glob("*.log"))
        for path in (tmp_path / "data").rglob("t-0/replog.mark")
    }
    assert newest(compacted) == expected(300)
    assert all(size < 6000 for size in sizes.values()), sizes


def test_a_disk_that_fails_in_the_swap_takes_its_node_offline(
    compacted: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other nodes go on with all records, and the node after a restart."""
    rename = SystemDisk.rename

    def refused(self: SystemDisk, source: str, target: str) -> None:
        if "node-1" in source and source.endswith(".log.swap"):
            raise StorageError(errno.EIO, "input/output error", source)
        rename(self, source, target)

    monkeypatch.setattr(SystemDisk, "rename", refused)
    done = compacted.admin.compact("t", timeout=30)
    assert 1 in done.skipped[0]
    assert compacted.node(1).state == "offline"
    assert newest(compacted) == expected(300)
    monkeypatch.undo()
    compacted.node(1).restart()
    assert sorted(compacted.admin.compact("t", timeout=30).partitions[0]) == [1, 2, 3]
    compacted.close()
    assert findings(tmp_path / "data") == []


def test_settings_of_a_log_are_those_of_its_topic(compacted: Cluster) -> None:
    """The replicas know that gaps are legal."""

    def configs() -> list[LogConfig]:
        return [
            hosted.log.config
            for node in compacted.nodes
            if node._node is not None
            for hosted in node._node.hosted.values()
        ]

    assert [one.was_compacted for one in compacted._driver.run_exclusively(configs)] == [True, True, True]


def test_a_result_is_a_table_for_people() -> None:
    """A line for each replica, and one for each that was skipped."""
    done = TopicCompaction(
        "t", {0: {1: Compaction(0, 9, 12345, 99, 300, 10), 12: Compaction(0, 9)}}, {1: {2: "the node is down"}}
    )
    assert str(done).splitlines() == [
        "topic t",
        "partition  node  records read  kept  bytes read  written",
        "        0     1           300    10      12,345       99",
        "        0    12             0     0           0        0",
        "partition 1 on node 2 was not compacted: the node is down",
    ]


def test_disks_of_tests_are_used_by_one_thread_at_a_time(tmp_path: Path) -> None:
    """A pass on them does not run beside the nodes."""
    with BreakableCluster(tmp_path / "data", nodes=3) as cluster:
        assert not cluster._compactor._is_apart
        cluster.admin.create_topic("t", config=COMPACT)
        fill(cluster, 100)
        assert [one.records_kept for one in cluster.admin.compact("t").partitions[0].values()] == [KEYS] * 3
        assert newest(cluster) == expected(100)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_nodes_end_at_random_while_passes_run(tmp_path: Path, seed: int) -> None:
    """Nothing acknowledged is lost, deleted keys stay deleted, and every folder is sound."""
    random = Random(seed)
    known: dict[bytes | None, bytes | None] = {}
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.is_set():
            sent = []
            for _ in range(200):
                number += 1
                key, value = b"k%d" % random.randrange(100), None if random.random() < 0.1 else b"%d" % number
                sent.append((key, value, producer.send("t", value, key=key)))
            for key, value, ack in sent:
                ack.result(60)
                known[key] = value

    def compact() -> None:
        while not stop.is_set():
            cluster.admin.compact("t")

    config = {**COMPACT, "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0.1"}
    with Cluster(tmp_path / "data") as cluster, cluster.producer() as producer:
        cluster.admin.create_topic("t", partitions=3, config=config)
        threads = [threading.Thread(target=work) for work in (produce, compact)]
        for thread in threads:
            thread.start()
        for _ in range(15):
            node = cluster.node(random.randint(1, 3))
            node.kill() if random.random() < 0.5 else node.stop()
            stop.wait(random.random() / 2)
            node.restart()
            stop.wait(random.random())
        stop.set()
        for thread in threads:
            thread.join()
        found = newest(cluster)
        assert {key: found.get(key) for key in known} == known
    assert findings(tmp_path / "data") == []
