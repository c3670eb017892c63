"""Every bit of every header, checkpoint, mark, index entry and of whole logs flipped, every length of every file:
nothing wrong is served.

A share of them here, drawn by ``REPLOG_CRASH_SEED``; all of them in the soak.
"""

from __future__ import annotations

import os

import pytest

from tests.faults.flips.flipping import Account, cut_all, extent, flip_all
from tests.faults.flips.golden import KAFKA, OWN, golden

SEED = int(os.environ.get("REPLOG_CRASH_SEED", "0"))
SHARE = 60


@pytest.mark.parametrize("name", [*OWN, *KAFKA])
def test_a_share_of_all_flips(name: str) -> None:
    """A reader is given what was written, a beginning of it, or an error; a writer keeps all that was vouched for,
    or says what is lost."""
    account = Account()
    for _ in flip_all(golden(name), account, share=SHARE, seed=SEED):
        pass
    print(name, account.line())
    assert account.flips > 100
    assert account.wrong == 0


@pytest.mark.parametrize("name", [*OWN, *KAFKA])
def test_a_share_of_all_lengths(name: str) -> None:
    """The same for files cut short."""
    account = Account()
    for _ in cut_all(golden(name), account, share=25, seed=SEED):
        pass
    print(name, account.line())
    assert account.cuts > 20
    assert account.wrong == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*OWN, *KAFKA])
def test_all_flips_and_all_lengths(name: str) -> None:
    """Every bit, and every length of every file."""
    account = Account()
    for _ in flip_all(golden(name), account):
        pass
    for _ in cut_all(golden(name), account):
        pass
    print(name, account.line())
    assert account.wrong == 0


def test_all_golden_folders_together_are_large_enough() -> None:
    """The soak's flips are half a million or more."""
    flips = sum(extent(golden(name))[0] for name in (*OWN, *KAFKA))
    print(f"{flips:,} flips")
    assert flips >= 500_000
