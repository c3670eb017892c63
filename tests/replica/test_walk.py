"""Random walks: the true rules break nothing, the known-bad ones are found."""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.replica import Replica
from pyreplog.testing.known_bad import VARIANTS
from tests.replica.walk import Walk

SEEDS = 120
BUDGET = 400


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_true_rules_break_nothing(durability: Any) -> None:
    """No walk exposes, loses or alters anything, and every walk heals."""
    for seed in range(SEEDS):
        walk = Walk(seed, Replica, durability, minimum=1 + seed % 3)
        try:
            walk.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {durability}: {error}") from error


@pytest.mark.parametrize(
    ("name", "durability", "minimum"),
    [
        ("AckBeforeFsync", "sync", 1),
        ("NonDurableFollower", "sync", 2),
        ("TruncateToHighWatermark", "os", 1),
        ("EpochEndOffByOne", "os", 1),
    ],
)
def test_known_bad_rules_are_found(name: str, durability: Any, minimum: int) -> None:
    """A walk among the first few hundred breaks a rule."""
    for seed in range(BUDGET):
        try:
            Walk(seed, VARIANTS[name], durability, minimum).run()
        except AssertionError:
            return
    pytest.fail(f"{name} was not found in {BUDGET} walks")
