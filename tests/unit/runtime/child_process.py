"""A process that writes until it is killed. Started once; forks a child for each line it is given, so that a kill
costs no start of Python.

Line: ``<log|cluster> <path> <sync|os> <seed>``. The child says ``pid <number>``, then
``ack <partition> <offset> <value>`` after each acknowledgement, by a write of its own, so that what was said before
the kill arrives. The server says ``end`` when the child is gone.
"""

from __future__ import annotations

import os
import sys
from random import Random
from typing import Any

import pyreplog


def say(text: str) -> None:
    """One line to whoever started us."""
    os.write(1, text.encode() + b"\n")


def write_log(path: str, durability: Any, random: Random) -> None:
    """Append in all three ways, for ever."""
    config = {"segment.bytes": 20_000}
    with pyreplog.open_log(path, durability=durability, config=config) as log:
        while True:
            count = random.randrange(1, 30)
            values = [b"%d-%d" % (random.getrandbits(40), number) for number in range(count)]
            way = random.randrange(3)
            if way == 0:
                offsets = [log.append(values[0], key=b"k")]
            elif way == 1:
                offsets = list(log.append_many(values))
            else:
                acks = [log.append_nowait(value) for value in values]
                offsets = [ack.result().offset for ack in acks]
            for offset, value in zip(offsets, values, strict=False):
                say(f"ack 0 {offset} {value.decode()}")


def write_cluster(path: str, durability: str, random: Random) -> None:
    """Send, singly and many at once, for ever."""
    with pyreplog.Cluster(path) as cluster:
        if "events" not in cluster.admin.topics():
            cluster.admin.create_topic("events", partitions=2, replication_factor=3, config={"durability": durability})
        with cluster.producer() as producer:
            while True:
                values = [b"%d-%d" % (random.getrandbits(40), number) for number in range(random.randrange(1, 20))]
                for place, value in zip(producer.send_many("events", values).result(), values, strict=True):
                    say(f"ack {place.partition} {place.offset} {value.decode()}")


def main() -> None:
    """Serve."""
    for line in sys.stdin:
        kind, path, durability, seed = line.split()
        child = os.fork()
        if child == 0:
            try:
                say(f"pid {os.getpid()}")
                (write_log if kind == "log" else write_cluster)(path, durability, Random(int(seed)))
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        say("end")


if __name__ == "__main__":
    main()
