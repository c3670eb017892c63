"""The table of invariants is whole, and a history is judged from outside: each kind of anomaly is found, and a good
history has none."""

from __future__ import annotations

import pytest

from pyreplog.testing import INVARIANTS, Checker, History, standard_checkers
from pyreplog.testing.checkers import KINDS
from pyreplog.values import TopicPartition

T = TopicPartition("t", 0)
REQUIRED = [
    *(f"S{number}" for number in (*range(1, 22), 24)),
    *(f"L{number}" for number in (1, 2, 3, 4, 5, 6, 7, 12)),
]


def test_every_invariant_has_its_class() -> None:
    """Each number of the specification that simulation can check stands in the table, with a class that a world
    runs."""
    assert [number for number in REQUIRED if number not in INVARIANTS] == []
    running = [type(checker) for checker in standard_checkers()]
    for number, kind in INVARIANTS.items():
        assert number in kind.numbers
        assert kind.says
        assert kind in running
        assert any(name in vars(kind) for name in vars(Checker) if not name.startswith("_")), (
            f"{kind.__name__} looks at nothing"
        )


def good() -> History:
    """Three records of one producer, two of them acknowledged, all read by one reader, and by another from the
    second on."""
    history = History()
    for number in range(3):
        history.sent("p", T, f"v{number}")
    history.acknowledged(T, "v0", 0)
    history.unknown(T, "v1")
    for number in range(3):
        history.read("r", T, number, f"v{number}")
    history.acknowledged(T, "v2", 2)
    history.moved("s", T, 1)
    history.read("s", T, 1, "v1")
    return history


def test_a_good_history_has_no_anomaly() -> None:
    """Also not where an outcome is unknown, or a reader begins in the middle."""
    assert good().ended() == []


def kinds(history: History) -> list[str]:
    """What is found at its end."""
    return [found.kind for found in history.ended()]


def spoiled(kind: str) -> History:
    """A history with one thing wrong."""
    history = good()
    for number in range(3, 6):
        history.sent("p", T, f"v{number}")
    match kind:
        case "lost":
            history.acknowledged(T, "v3", 3)
            history.read("r", T, 4, "v4")
        case "unseen":
            history.acknowledged(T, "v3", 3)
        case "duplicated":
            history.read("r", T, 3, "v2")
        case "altered":
            history.moved("s", T, 0)
            history.read("s", T, 0, "v3")
        case "reordered":
            history.acknowledged(T, "v4", 3)
            history.acknowledged(T, "v3", 4)
            history.read("r", T, 3, "v4")
            history.read("r", T, 4, "v3")
        case "skipped":
            history.read("s", T, 2, "v2")
            history.read("s", T, 4, "v4")
            history.read("r", T, 3, "v3")
        case "stale":
            history.read("s", T, 2, "v2")
            history.read("s", T, 1, "v1")
        case "phantom":
            history.read("r", T, 3, "nobody's")
        case "refused":
            history.refused(T, "v3")
            history.read("r", T, 3, "v3")
    return history


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_anomaly_is_found(kind: str) -> None:
    """One wrong thing is found, and called by its name."""
    assert kinds(spoiled(kind))[0] == kind


def compacted() -> History:
    """Two records of one key and a tombstone of another, all acknowledged."""
    history = History()
    for number, (value, key) in enumerate([("old", "k"), ("new", "k"), ("gone", "other")]):
        history.sent("p", T, value, key=key, is_tombstone=value == "gone")
        history.acknowledged(T, value, number)
    return history


def test_a_reader_may_miss_what_compaction_removes() -> None:
    """A record with a later one of its key, and a tombstone; not the newest."""
    history = compacted()
    history.moved("r", T, 0)
    history.read("r", T, 1, "new")
    assert history.ended() == []
    history = compacted()
    history.read("r", T, 2, "gone")
    assert kinds(history) == ["lost"]
    history.stored(T, "newer", 3)
    assert kinds(history) == ["lost"], "a value that no producer sent has no key"


def test_a_later_record_that_no_client_knows_of_excuses_an_earlier_one() -> None:
    """Its outcome is unknown, and it was read by nobody before compaction removed it."""
    history = compacted()
    history.sent("p", T, "unknown", key="k")
    history.read("r", T, 2, "gone")
    assert kinds(history) == ["lost"]
    history.stored(T, "unknown", 3)
    assert kinds(history) == []
