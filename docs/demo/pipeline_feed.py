"""The pipeline's source: a three-node cluster in a process of its own, and the year's flights through it in
compressed real time.

Says one JSON line per event on standard output; waits for ``go`` on standard input before it sends, and for
``stop`` before it closes. While it is open it also takes what Spark stages for the cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from flights import Event, load

import pyreplog

FLIGHTS = "flights"
DELAYS = "delays"
PARTITION_COUNT = 4
FIRST_COUNT = 1000
"""Sent before the clock starts: with them the query warms up."""
TICK_S = 0.05
DAY_MS = 24 * 3600 * 1000
CLOSING_KEY = b"END"


def say(kind: str, **facts: object) -> None:
    """One line for the parent."""
    sys.stdout.write(json.dumps({"kind": kind, **facts}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def send(producer: pyreplog.Producer, chunk: list[Event]) -> None:
    """Send, and return when all are acknowledged."""
    acks = producer.send_many(
        FLIGHTS,
        [event.value for event in chunk],
        keys=[event.key for event in chunk],
        timestamps=[event.timestamp for event in chunk],
    )
    acks.wait(60)


def feed(producer: pyreplog.Producer, events: list[Event], seconds: float) -> None:
    """The rest of the flights at ``seconds`` for the year, and a last record that lets event time move past the
    end."""
    per_second = len(events) / seconds
    began, sent = time.monotonic(), FIRST_COUNT
    while sent < len(events):
        due = min(FIRST_COUNT + int((time.monotonic() - began) * per_second), len(events))
        if due == sent:
            time.sleep(TICK_S)
            continue
        send(producer, events[sent:due])
        say("sent", count=due, timestamp=events[due - 1].timestamp)
        sent = due
    producer.send(FLIGHTS, b"{}", key=CLOSING_KEY, timestamp=events[-1].timestamp + 30 * DAY_MS).result(60)


def main() -> None:
    """Parse the arguments, and do as told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    events = load()
    with pyreplog.Cluster(options.folder, nodes=3) as cluster:
        for topic, partitions in ((FLIGHTS, PARTITION_COUNT), (DELAYS, 2)):
            cluster.admin.create_topic(topic, partitions=partitions, replication_factor=3)
        with cluster.producer() as producer:
            send(producer, events[:FIRST_COUNT])
            say("open")
            for line in sys.stdin:
                if line.strip() == "go":
                    feed(producer, events, options.seconds)
                elif line.strip() == "stop":
                    break
    say("closed")


if __name__ == "__main__":
    main()
