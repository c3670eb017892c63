"""``replog dlq list``, ``show`` and ``replay``: dead letters seen, and sent back once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog import RetryPolicy, open_log
from pyreplog.cli import dlq_replay
from pyreplog.runtime import ReplayNotes, Target
from tests.unit.cli.support import Replog


def fail(record: pyreplog.Record) -> None:
    """Take no bad record."""
    if record.value == b"bad":
        raise ValueError("no")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with two dead letters."""
    with open_log(tmp_path / "events", durability="os") as log:
        log.append(b"good")
        log.append(b"bad", key=b"k", headers=[("h", b"x")])
        log.append(b"bad")
        with log.consumer("billing") as consumer:
            consumer.run(fail, retry=RetryPolicy(attempts=2, backoff_ms=0), until_end=True)
    return tmp_path / "events"


def test_they_are_listed_and_shown(replog: Replog, path: Path) -> None:
    """By the log's folder and by their own: where from, who, how often, why; and whole."""
    for place in (path, f"{path}.dlq"):
        assert replog("dlq", "list", place).out.splitlines() == [
            "dlq.events-0 @ 0: events-0 @ 1, given up by billing after 2 attempts: ValueError: no",
            "dlq.events-0 @ 1: events-0 @ 2, given up by billing after 2 attempts: ValueError: no",
        ]
    first, _ = replog("dlq", "list", path, "--json", "--topic", "events").objects()
    letter = {
        "topic": "events", "partition": 0, "offset": 1, "group": "billing", "delivery_count": 2,
        "message": "ValueError: no",
    }  # fmt: skip
    assert first == {"topic": "dlq.events", "partition": 0, "offset": 0, "dead_letter": letter}
    (shown,) = replog("dlq", "show", path, "--offset", 0).objects()
    assert (shown["key"], shown["value"], shown["headers"]) == ("k", "bad", [{"key": "h", "value": "x"}])
    assert shown["dead_letter"] == letter
    assert len(replog("dlq", "show", path).objects()) == 2
    assert replog("dlq", "show", path, "--offset", 9).code == 1


def test_none_is_an_error(replog: Replog, path: Path, tmp_path: Path) -> None:
    """A folder without dead letters says so."""
    done = replog("dlq", "list", path, "--topic", "other")
    assert done.code == 1
    assert "there are no dead letters of the topic 'other'" in done.err
    assert replog("dlq", "list", tmp_path / "none").code == 1


def values(path: Path) -> list[tuple[bytes | None, list[str]]]:
    """The records of the log: value, names of the headers."""
    with open_log(path, "r") as log:
        return [(record.value, [key for key, _ in record.headers]) for record in log]


def test_they_are_sent_back_once(replog: Replog, path: Path) -> None:
    """Each is appended to its log once, with its own headers; a second run sends those that came since."""
    assert replog("dlq", "replay", path).out == "2 dead letters sent back\n"
    assert values(path)[3:] == [(b"bad", ["h", "__dlq.replayed"]), (b"bad", ["__dlq.replayed"])]
    assert replog("dlq", "replay", path, "--json").objects() == [{"replayed": 0}]
    with open_log(path) as log, log.consumer("billing") as consumer:
        consumer.run(fail, retry=RetryPolicy(attempts=1), until_end=True)
    assert "2 dead letters" in replog("dlq", "replay", f"{path}.dlq").out
    assert len(values(path)) == 7


def test_a_replay_that_died_goes_on(replog: Replog, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ended between the append and the commit, or before the append, sends each letter once all the
    same."""

    class Died(BaseException):
        pass

    for when in ("after", "before"):
        with monkeypatch.context() as patched:

            def dies(*args: object, **named: object) -> None:
                raise Died

            if when == "after":
                patched.setattr(pyreplog.NamedConsumer, "commit", dies)
            else:
                patched.setattr(dlq_replay, "_headers", dies)
            with pytest.raises(Died):
                dlq_replay.run(_arguments(path))
        assert len(values(path)) == 4
    assert "1 dead letter sent back" in replog("dlq", "replay", path).out
    assert [names for _, names in values(path)[3:]] == [["h", "__dlq.replayed"], ["__dlq.replayed"]]


def _arguments(path: Path) -> argparse.Namespace:
    from pyreplog.cli.main import build_parser  # noqa: PLC0415

    return build_parser()[1]["dlq replay"].parse_args([str(path)])


def test_a_folder_apart_needs_its_log(replog: Replog, path: Path, tmp_path: Path) -> None:
    """A folder that another name was chosen for does not say where its letters are from."""
    (tmp_path / "events.dlq").rename(tmp_path / "letters")
    done = replog("dlq", "replay", tmp_path / "letters")
    assert done.code == 1
    assert "--to LOG" in done.err
    assert "2 dead letters" in replog("dlq", "replay", tmp_path / "letters", "--to", path).out


def test_a_cluster(replog: Replog, tmp_path: Path) -> None:
    """Its dead letters are in topics of its own, and go back to their partitions."""
    with pyreplog.Cluster(tmp_path / "data") as cluster:
        cluster.admin.create_topic("orders", partitions=2, config={"durability": "os"})
        with cluster.producer() as producer:
            producer.send("orders", b"bad", partition=1).result()
        with cluster.consumer("orders", name="billing") as consumer:
            consumer.run(fail, retry=RetryPolicy(attempts=1), until_end=True)
    assert "orders-1 @ 0, given up by billing after 1 attempt" in replog("dlq", "list", tmp_path / "data").out
    assert "1 dead letter sent back" in replog("dlq", "replay", tmp_path / "data").out
    assert "0 dead letters" in replog("dlq", "replay", tmp_path / "data").out
    with pyreplog.Cluster(tmp_path / "data", mode="r") as cluster, cluster.consumer("orders") as consumer:
        assert [(record.partition, record.offset) for record in consumer.until_end()] == [(1, 0), (1, 1)]


class Died(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("moment", ["append", "commit"])
def test_a_replay_looks_for_its_record_behind_the_noted_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A run that goes on reads the source from the end that the run before noted, not from its first record."""
    with open_log(path) as log:
        log.append_many([b"x"] * 100)
    seen: list[int] = []
    plain = dlq_replay.LogOrigin.records

    def counted(self: dlq_replay.LogOrigin, target: Target, start: int) -> Iterator[pyreplog.Record]:
        for record in plain(self, target, start):
            seen.append(record.offset)
            yield record

    def dies(*args: object, **named: object) -> None:
        raise Died

    monkeypatch.setattr(dlq_replay.LogOrigin, "records", counted)
    with monkeypatch.context() as patched:
        patched.setattr(ReplayNotes, "end", dies) if moment == "commit" else patched.setattr(
            dlq_replay.LogOrigin, "append", dies
        )
        with pytest.raises(Died):
            dlq_replay.run(_arguments(path))
        with open_log(path) as log:
            log.append_many([b"y"] * 3)
    assert dlq_replay.run(_arguments(path)) == 0
    assert seen == ([103] if moment == "commit" else [103, 104, 105])
    names = [names for _, names in values(path) if "__dlq.replayed" in names]
    assert names == [["h", "__dlq.replayed"], ["__dlq.replayed"]]


def test_a_replay_that_dies_anywhere_sends_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster whose letters lie in several partitions and go to one: ends at every moment, one after another."""
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        config = {"durability": "os"}
        cluster.admin.create_topic("orders", partitions=1, replication_factor=1, config=config)
        cluster.admin.create_topic("dlq.orders", partitions=3, replication_factor=1, config=config)
        with cluster.producer() as producer:
            for number in range(6):
                record = producer.send("orders", b"%d" % number, partition=0).result(20)
                letter = {"topic": "orders", "partition": 0, "offset": record.offset, "group": "g"}
                headers = {**letter, "delivery.count": 1, "message": ""}
                producer.send(
                    "dlq.orders", b"%d" % number, partition=number % 3,
                    headers=[("__dlq.errors." + name, str(value).encode()) for name, value in headers.items()],
                ).result(20)  # fmt: skip
    calls = 0

    def dying(plain: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at and not after:
                raise Died
            result = plain(*args)
            if calls == at and after:
                raise Died
            return result

        return call

    monkeypatch.setattr(ReplayNotes, "begin", dying(ReplayNotes.begin, after=True))
    monkeypatch.setattr(dlq_replay.ClusterOrigin, "append", dying(dlq_replay.ClusterOrigin.append, after=True))
    monkeypatch.setattr(ReplayNotes, "end", dying(ReplayNotes.end, after=False))
    monkeypatch.setattr(pyreplog.NamedConsumer, "until_end", _in_turn)
    for at in [2, 2, 3, 1, 2, 5, 0]:
        calls = 0
        if at:
            with pytest.raises(Died):
                dlq_replay.run(_arguments(tmp_path / "data"))
        else:
            dlq_replay.run(_arguments(tmp_path / "data"))
    with pyreplog.Cluster(tmp_path / "data", mode="r") as beside, beside.consumer("orders") as consumer:
        values = [record.value for record in consumer.until_end()]
    assert sorted(value for value in values if value) == sorted([b"%d" % number for number in range(6)] * 2)


def _in_turn(consumer: pyreplog.NamedConsumer) -> Iterator[pyreplog.Record]:
    """Yield one record of each partition in turn, so that several have a letter that is not settled."""
    while records := sorted(consumer.poll(), key=lambda record: (record.offset, -record.partition)):
        yield from records


@pytest.mark.parametrize("gone", ["deleted", "compacted"])
def test_a_letter_is_sent_back_whatever_became_of_its_record(tmp_path: Path, replog: Replog, gone: str) -> None:
    """The letter holds the record. A compacted log refuses one without a key, with the reason; it stays unsent."""
    config = {"cleanup.policy": "compact"} if gone == "compacted" else None
    with open_log(tmp_path / "events", durability="os", config=config) as log:
        log.append_many([b"bad", b"good"], keys=[b"k", b"k"])
        with log.consumer("billing") as consumer:
            consumer.run(fail, retry=RetryPolicy(attempts=1), until_end=True)
        if gone == "deleted":
            log.delete_records(2)
        else:
            log.append_many([b"x" * 500] * 10, keys=[b"j"] * 10)
            log.compact()
    assert "1 dead letter sent back" in replog("dlq", "replay", tmp_path / "events").out
    with open_log(tmp_path / "events", "r") as log:
        assert [(record.key, record.value) for record in log][-1] == (b"k", b"bad")
    if gone == "compacted":
        with open_log(tmp_path / "events.dlq", topic="dlq.events") as dead:
            (letter,) = list(dead)
            dead.append(b"bad", headers=list(letter.headers))
        done = replog("dlq", "replay", tmp_path / "events")
        assert done.code == 1
        assert "dlq.events-0@1 cannot be sent back; --skip-refused" in done.err
        assert "has no key" in done.err
        done = replog("dlq", "replay", tmp_path / "events", "--skip-refused")
        assert (done.code, done.out) == (0, "0 dead letters sent back\n")
        assert "dlq.events-0@1 is passed" in done.err
