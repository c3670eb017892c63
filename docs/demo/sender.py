"""The demo's sending process: a three-node cluster and a producer, in a process that is going to be killed.

It sends the flights that the log does not hold yet, at the asked pace, and writes one JSON line per acknowledged
batch to standard output, where the parent keeps them. Run again on the same folder it goes on where the log ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

import polars as pl
from flights import FLIGHT_COUNT, Event, load

import pyreplog

TOPIC = "flights"
TOPIC_UNPACED = "flights-again"
PARTITION_COUNT = 4
TICK_S = 0.03
CHUNK_COUNT_UNPACED = 2_000


def say(kind: str, **facts: object) -> None:
    """One line for the parent."""
    sys.stdout.write(json.dumps({"kind": kind, **facts}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def ids_in(cluster: pyreplog.Cluster, topic: str) -> list[int]:
    """The flights that ``topic`` holds, by number, in no special order."""
    values = pl.DataFrame(cluster.scan(topic, columns=["value"]))
    return (
        values.select(pl.col("value").cast(pl.String).str.json_path_match("$.id").cast(pl.Int64)).to_series().to_list()
    )


def send_all(
    producer: pyreplog.Producer, topic: str, events: Sequence[tuple[int, Event]]
) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Send the events and wait. Return (flight, partition, offset) of each acknowledged flight, and the flights
    whose outcome is unknown."""
    acks = [
        (number, producer.send(topic, event.value, key=event.key, timestamp=event.timestamp))
        for number, event in events
    ]
    producer.flush()
    acknowledged, unknown = [], []
    for number, ack in acks:
        try:
            done = ack.result(timeout=60)
        except pyreplog.OutcomeUnknownError:
            unknown.append(number)
        else:
            acknowledged.append((number, done.partition, done.offset))
    return acknowledged, unknown


def paced(cluster: pyreplog.Cluster, events: list[Event], *, seconds: float, kill_leader_at: int) -> None:
    """Send the flights that ``TOPIC`` lacks, the whole year in ``seconds``; kill a leader when ``kill_leader_at``
    flights are in."""
    held = set(ids_in(cluster, TOPIC))
    say("resumed", held=len(held))
    per_second = FLIGHT_COUNT / seconds
    waiting = [number for number in range(FLIGHT_COUNT) if number not in held]
    done = len(held)
    killed = None
    began, sent = time.monotonic(), 0
    with cluster.producer() as producer:
        while waiting:
            due = int((time.monotonic() - began) * per_second) - sent
            if due <= 0:
                time.sleep(TICK_S)
                continue
            chunk, waiting = waiting[:due], waiting[due:]
            acknowledged, unknown = send_all(producer, TOPIC, [(number, events[number]) for number in chunk])
            sent += len(chunk)
            done += len(acknowledged)
            say("acked", acks=acknowledged)
            if unknown:
                # The log itself says which of these it holds. Those were appended; the others
                # are sent again.
                in_log = set(ids_in(cluster, TOPIC))
                waiting = [number for number in unknown if number not in in_log] + waiting
                sent -= len(unknown)
                done += sum(number in in_log for number in unknown)
                say("settled", unknown=len(unknown), found=sum(number in in_log for number in unknown))
            if killed is None and kill_leader_at and done >= kill_leader_at:
                killed = cluster.leader(TOPIC, 0)
                assert killed is not None
                killed.kill()
                say("leader-killed", node=killed.node_id, partition=0)
            elif killed is not None and kill_leader_at and done >= kill_leader_at * 3 // 2:
                killed.restart()
                say("leader-restarted", node=killed.node_id)
                kill_leader_at = 0


def unpaced(cluster: pyreplog.Cluster, events: list[Event]) -> None:
    """The same flights once more, as fast as they go."""
    cluster.admin.create_topic(TOPIC_UNPACED, partitions=PARTITION_COUNT, replication_factor=3)
    began = time.monotonic()
    with cluster.producer() as producer:
        for start in range(0, len(events), CHUNK_COUNT_UNPACED):
            chunk = events[start : start + CHUNK_COUNT_UNPACED]
            producer.send_many(
                TOPIC_UNPACED,
                [event.value for event in chunk],
                keys=[event.key for event in chunk],
                timestamps=[event.timestamp for event in chunk],
            )
        producer.flush()
    elapsed_s = time.monotonic() - began
    say("unpaced", count=len(events), bytes=sum(len(event.value) for event in events), seconds=elapsed_s)


def main() -> None:
    """Parse the arguments and send."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kill-leader-at", type=int, default=0)
    parser.add_argument("--unpaced", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    with pyreplog.Cluster(options.folder, nodes=3) as cluster:
        say("opened", seconds=time.monotonic() - began)
        events = load()
        say("loaded", count=len(events))
        if TOPIC not in cluster.admin.topics():
            cluster.admin.create_topic(TOPIC, partitions=PARTITION_COUNT, replication_factor=3)
        paced(cluster, events, seconds=options.seconds, kill_leader_at=options.kill_leader_at)
        if options.unpaced:
            unpaced(cluster, events)
    say("closed")


if __name__ == "__main__":
    main()
