"""What a soak goes through: all of it where there is time, another share of it with each seed where there is
not."""

from __future__ import annotations

import inspect
from collections import Counter
from random import Random

import pytest

from tests.faults.crash.all_crash_points import DAMAGES, WORKLOADS, count_points, crash, refuse, refuse_recovery
from tests.faults.flips import flipping
from tests.faults.flips.flipping import Account, cut_all, flip_all
from tests.faults.flips.golden import golden
from tests.faults.fuzz.run import portions
from tests.faults.fuzz.targets import TARGETS
from tests.faults.kills.run import dealt
from tests.faults.soak import run
from tests.faults.soak.crashes import pieces, whole
from tests.faults.soak.flips import NAMES, PARTS
from tests.faults.soak.flips import pieces as flip_pieces
from tests.faults.soak.flips import whole as flips_whole
from tests.faults.soak.share_of_run import ShareOfRun


class Ticks:
    """A clock that whoever works moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """What it shows."""
        return self.now


def play(share: ShareOfRun[int], clock: Ticks, until: float, takes: float = 1.0) -> list[tuple[str, int]]:
    """What is dealt where each piece takes as long."""
    found = []
    for group, piece in share.pieces_until(until):
        found.append((group, piece))
        clock.now += takes
    return found


def test_every_piece_is_dealt_once_before_any_is_dealt_again() -> None:
    """Two rounds of it are each of them twice, the second with the next seed."""
    clock = Ticks()
    share = ShareOfRun({"a": (range(7), 0.5), "b": (range(3), 0.5)}, 5, clock)
    found = play(share, clock, until=20)
    assert (
        Counter(found[:10])
        == Counter(found[10:])
        == Counter([("a", number) for number in range(7)] + [("b", number) for number in range(3)])
    )
    assert found[:10] != found[10:]
    assert (share.rounds, share.seed) == (2, 6)


def test_a_short_run_is_another_share_with_each_seed() -> None:
    """And the same with the same."""
    firsts = []
    for seed in (1, 2, 3, 1):
        clock = Ticks()
        firsts.append(tuple(play(ShareOfRun({"a": (range(1000), 1.0)}, seed, clock), clock, until=20)))
    assert firsts[0] == firsts[3]
    assert len(set(firsts)) == 3
    assert max(piece for _, piece in firsts[0]) > 500


def test_each_group_has_its_share_of_the_time() -> None:
    """Three to one; and one piece is dealt even where there is no time."""
    clock = Ticks()
    found = play(ShareOfRun({"a": (range(1000), 0.75), "b": (range(1000), 0.25)}, 1, clock), clock, until=100)
    assert Counter(group for group, _ in found) == {"a": 75, "b": 25}
    assert len(play(ShareOfRun({"a": (range(9), 1.0)}, 1, clock), clock, until=0)) == 1


def test_the_pieces_of_a_workload_are_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its crash points, each refusal of each of its calls, each of its recoveries: once."""
    unchecked = WORKLOADS["replaced"]._replace(
        check=lambda *_: None, check_refused=lambda *_: None, recover=lambda *_: None
    )
    monkeypatch.setitem(WORKLOADS, "replaced", unchecked)
    counts: Counter[str] = Counter()
    for group, (parts, _) in pieces(["replaced"]).items():
        for name, part, of in parts:
            if group == "crash":
                counts["crash_points"] += crash(name, 1, part, of, damages=0).calls
            elif group == "refuse":
                counts["refusals"] += refuse(name, 1, part, of).calls
            else:
                counts["recoveries"] += refuse_recovery(name, 1, part, of).recoveries
    assert counts == whole(["replaced"])


def test_the_whole_is_as_large_as_it_is_to_be() -> None:
    """3,000 calls of twelve workloads with 80 losses of power each; half a million flips; five million executions;
    every kill."""
    assert len(WORKLOADS) >= 12
    assert sum(count_points(name) for name in WORKLOADS) >= 3000
    assert DAMAGES >= 80
    assert flips_whole(NAMES)["flips"] >= 500_000
    assert sum(portions(list(TARGETS), 5_000_000).values()) >= 5_000_000
    assert "default=5_000_000" in inspect.getsource(run.main)
    points = dealt({"sync": 300, "os": 200}, Random(3))
    assert len(set(points)) == 500
    assert {durability for durability, _ in points[:20]} == {"sync", "os"}
    assert points != dealt({"sync": 300, "os": 200}, Random(4))


def test_the_parts_of_a_folder_are_every_bit_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bit once, each length once."""
    tried: Counter[str] = Counter()
    monkeypatch.setattr(flipping, "check", lambda _, __, what, **___: tried.update([what]) or "")
    name = NAMES[-1]
    account = Account()
    for _, part in flip_pieces((name,)):
        for work in (flip_all, cut_all):
            for _ in work(golden(name), account, part=(part, PARTS)):
                pass
    assert {"flips": account.flips, "cuts": account.cuts} == flips_whole((name,))
    assert max(tried.values()) == 1
