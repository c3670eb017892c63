"""Lessons: schedules that show step by step how a replicated log lost records, and how leader epochs prevent it.

Each lesson plays its schedule twice, first with Kafka's first design and then with our rules, and draws the log of
every replica after every step. Only the schedule is scripted: the logs are those of real replicas, with a known-bad
follower in the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pyreplog.record import records_of
from pyreplog.testing.checkers import InvariantBroken, batches_of
from pyreplog.testing.known_bad import CLUSTERS, KNOWN_BAD, FirstDesign
from pyreplog.testing.stage import Stage

__all__ = ["LESSONS", "Lesson", "about", "draw", "exhibit"]

Telling = Callable[[Stage], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson.

    ``telling`` takes one step at a time and yields its description. ``ends`` are the conclusions of the two runs.
    """

    name: str
    title: str
    about: str
    telling: Telling
    settings: Mapping[str, Any]
    ends: tuple[str, str]

    def lines(self) -> Iterator[str]:
        """Play the lesson and yield its text, line by line."""
        yield self.title
        yield ""
        yield from self.about.splitlines()
        for heading, kind, end in (
            ("The first design: a new follower truncates to its own high watermark.", FirstDesign, self.ends[0]),
            (
                "With leader epochs: a follower truncates only where its log differs from the leader's.",
                None,
                self.ends[1],
            ),
        ):
            yield ""
            yield heading
            yield ""
            parts: dict[str, Any] = {} if kind is None else {"replica_class": kind}
            stage = Stage(2, checkers=[], **self.settings, **parts)
            for number, step in enumerate(self.telling(stage), 1):
                yield f"{number}. {step}"
                yield from (f"     {line}" for line in draw(stage))
            yield ""
            yield end


def draw(stage: Stage) -> list[str]:
    """Return one line for each node: its records with their leader epochs, and ``|`` at its high watermark."""
    found = []
    for node_id, actor in stage.machines.items():
        log = actor.log
        if not actor.incarnation_id:
            found.append(f"node {node_id}  down")
            continue
        if log is None:
            found.append(f"node {node_id}  no copy yet")
            continue
        words = [] if log.high_watermark > log.start_offset else ["|"]
        for batch in batches_of(log, log.start_offset, log.end_offset):
            for record in records_of(batch, "t", 0):
                words.append(f"{(record.value or b'').decode()}/{batch.leader_epoch}")
                if record.offset + 1 == log.high_watermark:
                    words.append("|")
        role = actor.replica.role.name if actor.replica is not None else "none"
        found.append(f"node {node_id}  {role:9} {' '.join(words)}".rstrip())
    return found


def _hw_truncation(stage: Stage) -> Iterator[str]:
    stage.append(1, b"m1")
    stage.exchange(2)
    stage.exchange(2)
    yield "Node 1 leads. m1 is on both nodes, and committed."
    stage.append(1, b"m2")
    stage.exchange(2)
    stage.exchange(2)
    yield "m2 is on both, committed and acknowledged. Node 2 does not know yet that the high watermark moved."
    stage.kill(2)
    stage.start(2)
    stage.tell(2, 1)
    yield "Node 2 dies and comes back as a follower."
    stage.kill(1)
    for _ in range(3):
        stage.pass_time(600)
        stage.tell(2)
    yield "Before it can fetch anything, node 1 dies too. Node 2 is the leader now."
    stage.start(1)
    stage.settle()
    yield "Node 1 comes back and follows."
    stage.append(stage.leader, b"m3")
    stage.settle()
    yield "The next record is appended."


def _divergence(stage: Stage) -> Iterator[str]:
    stage.append(1, b"m1", acks=1)
    stage.exchange(2)
    stage.exchange(2)
    stage.pass_time(2)
    stage.exchange(2)
    stage.sync_all()
    yield "Node 1 leads. m1 is on both nodes, and on both disks."
    stage.append(1, b"m2", acks=1)
    stage.exchange(2)
    stage.exchange(2)
    stage.pass_time(2)
    yield "m2 is on both, but only in the page cache of node 2."
    stage.lose_power(2)
    stage.stop(1)
    yield "Both go down: node 2 loses power, and with it m2."
    stage.start(2)
    stage.settle(2)
    yield "Node 2 comes back first and is made leader, although it may lack records."
    stage.append(2, b"m3", acks=1)
    stage.settle(2)
    yield "It takes m3, at the offset that m2 had."
    stage.start(1)
    stage.settle()
    yield "Node 1 comes back and follows."
    stage.append(stage.leader, b"m4", acks=1)
    stage.settle()
    yield "The next record is appended."


_ALL: Final = (
    Lesson(
        "hw-truncation",
        "How a committed record was lost (KIP-101, first case)",
        "A follower's high watermark lags behind its leader's. A follower that truncates its log to its high watermark"
        " removes\ncommitted records. If the leader dies before the follower has fetched them again, they are lost.",
        _hw_truncation,
        {"min_insync_replicas": 2},
        (
            (
                "m2 was acknowledged, but no node has it any more. No message was lost and no disk failed: two"
                " processes\ndied, one after the other."
            ),
            (
                "Node 2 kept m2 when it came back, because no leader had shown that their logs differ. The acknowledged"
                " record\nis there."
            ),
        ),
    ),
    Lesson(
        "divergence",
        "How two replicas came to differ for ever (KIP-101, second case)",
        "Offsets alone do not say whether two logs are equal. A follower that compares only its end with the leader's"
        " does not\nnotice that the leader has another record at the same offset.",
        _divergence,
        {"min_insync_replicas": 1, "unclean": True},
        (
            "Offset 1 is m2 on node 1 and m3 on node 2, below both high watermarks, and no replica will ever notice.",
            (
                "Node 1 reported that its last epoch is 0. The leader answered that its epoch 0 ends at offset 1. So"
                " node 1 removed m2,\nand the logs are equal. (m2 is lost because of the unclean election, which an"
                " operator must ask for. Otherwise node 2\nwould wait for node 1.)"
            ),
        ),
    ),
)

LESSONS: Final[Mapping[str, Lesson]] = MappingProxyType({one.name: one for one in _ALL})
"""The lessons by name."""


def about(name: str) -> str:
    """Return the description of a known-bad rule. REQUIRES that a rule with this name exists."""
    variant = CLUSTERS[name] if name in CLUSTERS else KNOWN_BAD[name]
    return variant.about or "Unclean elections, with the true rules."


def exhibit(name: str) -> Iterator[str]:
    """Play the schedule of a known-bad rule; yield its events and the invariant that breaks.

    REQUIRES that a rule with this name exists.
    """
    variant = CLUSTERS[name] if name in CLUSTERS else KNOWN_BAD[name]
    yield f"{name} ({', '.join(variant.numbers)})"
    yield ""
    yield about(name)
    yield ""
    events, logs, broken = _in_a_cluster(name) if name in CLUSTERS else _on_a_stage(name)
    yield from (f"  {event}" for event in events)
    yield from (f"     {line}" for line in logs)
    yield ""
    yield "No invariant breaks." if broken is None else str(broken).partition("\n")[0]


def _on_a_stage(name: str) -> tuple[list[str], list[str], InvariantBroken | None]:
    """Play the rule on a stage; return the events, the drawn logs at the end, and the error."""
    variant = KNOWN_BAD[name]
    stage = variant.stage()
    broken: InvariantBroken | None = None
    try:
        variant.schedule(stage)
    except InvariantBroken as error:
        broken = error
    return stage.events, draw(stage), broken


def _in_a_cluster(name: str) -> tuple[list[str], list[str], InvariantBroken | None]:
    """Play the rule in a cluster; return the events, no logs (they are too long to draw), and the error."""
    variant = CLUSTERS[name]
    world = variant.world()
    broken: InvariantBroken | None = None
    try:
        variant.play(world)
    except InvariantBroken as error:
        broken = error
    return world.events, [], broken
