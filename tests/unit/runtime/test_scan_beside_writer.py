"""Reading a cluster's parent folder, without lock or writer's help, while it writes and its leaders die."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog.log import LogReader, open_readers
from pyreplog.record import records_of
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

PATIENCE_S = 30.0


def content(reader: LogReader) -> dict[int, bytes | None]:
    """What a reader may see."""
    found = {}
    for batch in reader.batches(reader.start_offset, reader.end_offset):
        found.update({record.offset: record.value for record in records_of(batch, "events", 0, 0)})
    return {offset: value for offset, value in found.items() if offset < reader.end_offset}


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_what_was_read_once_is_read_again(
    cluster: pyreplog.Cluster, create: Callable[..., str], durability: str
) -> None:
    """Whatever was acknowledged before a look is seen by it; what was seen once is seen again, the same; nothing
    uncommitted is seen."""
    create("events", 1, durability=durability, segment_bytes="16384")
    acknowledged: dict[int, bytes] = {}
    sent: set[bytes] = set()
    failures: list[BaseException] = []
    stop = threading.Event()

    def send() -> None:
        try:
            with cluster.producer() as producer:
                while not stop.is_set():
                    value = b"%d" % len(sent)
                    sent.add(value)
                    try:
                        acknowledged[producer.send("events", value).result(PATIENCE_S).offset] = value
                    except pyreplog.OutcomeUnknownError:
                        continue
        except BaseException as error:
            failures.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    seen: dict[int, bytes | None] = {}
    for look in range(24):
        if look % 4 == 1:
            leader = cluster.leader("events")
            if leader is not None:
                leader.kill()
        elif look % 4 == 3:
            for node in cluster.nodes:
                if not node.alive:
                    node.restart()
        known = dict(acknowledged)
        reader = open_readers(SystemDisk(), str(Path(cluster.path)), "events")[TopicPartition("events", 0)]
        now = content(reader)
        reader.refresh()
        later = content(reader)
        reader.close()
        assert known.items() <= now.items(), "an acknowledged record is not seen"
        assert seen.items() <= now.items() <= later.items(), "what was seen once has changed"
        assert list(now) == list(range(len(now)))
        seen = later
    stop.set()
    sender.join(PATIENCE_S)
    assert not failures
    with cluster.consumer("events") as consumer:
        assert seen.items() <= {record.offset: record.value for record in consumer.until_end()}.items()
    assert set(seen.values()) <= sent
