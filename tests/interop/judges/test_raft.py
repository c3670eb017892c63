"""The tables of etcd's raft library agree with our majorities and with our changes of the voters.

Skipped if Go is not installed or its module is neither in the cache nor to be downloaded. Cases that
have no counterpart are printed with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyreplog.errors import InvalidRequestError
from pyreplog.quorum import ReplicaKey, Voter, VoteResult, VoterSet, majority_offset, vote_result
from tests.interop.judges.raft_tables import Case, cases, folder

CONFCHANGES = ("simple_promote_demote", "simple_safety", "simple_idempotency", "update", "zero")
VOTES = {"y": True, "n": False, "_": None}
RESULTS = {"VoteWon": VoteResult.WON, "VoteLost": VoteResult.LOST, "VotePending": VoteResult.PENDING}


@pytest.fixture
def tables() -> Path:
    """Return the folder of the module."""
    found = folder()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def test_committed_offset(tables: Path) -> None:
    """The offset that a majority has reached is etcd's committed index, in each of its cases."""
    seen = 0
    for case in cases(tables / "quorum/testdata/majority_commit.txt"):
        assert case.command == "committed", case
        if not case.arguments:
            # etcd says infinity for an empty half of a joint quorum, which we do not have.
            assert majority_offset([]) == -1
            print(f"passed over: {case.place}: no voters, of which etcd says {case.expected[-1]}")
            continue
        given = [-1 if text == "_" else int(text) for text in case.arguments["idx"]]
        # An unknown index is 0 in etcd, whose indexes begin at 1.
        assert max(majority_offset(given), 0) == int(case.expected[-1]), case
        seen += 1
    assert seen >= 15


def test_vote_result(tables: Path) -> None:
    """An election is won, lost or open exactly as in etcd's cases."""
    seen = 0
    for case in cases(tables / "quorum/testdata/majority_vote.txt"):
        assert case.command == "vote", case
        votes = [VOTES[text] for text in case.arguments.get("votes", [])]
        assert vote_result(votes) is RESULTS[case.expected[0]], case
        seen += 1
    assert seen >= 20


class Voters:
    """The voters of one table, changed as its cases say."""

    def __init__(self) -> None:
        self.voters: VoterSet | None = None

    @property
    def ids(self) -> list[int]:
        """Return the ids of the voters."""
        return [] if self.voters is None else [voter.node_id for voter in self.voters]

    def set_to(self, ids: list[int]) -> None:
        """Take another set, because a case was passed over."""
        self.voters = VoterSet(voter(one) for one in ids) if ids else None

    def changing(self, words: list[str]) -> list[str]:
        """Return the words that change the voters, one after the other."""
        now = set(self.ids)
        found = []
        for word in words:
            number = int(word[1:])
            after = now | {number} if word[0] == "v" else now - {number} if word[0] in "lr" else now
            if number and after != now:
                found.append(word)
                now = after
        return found

    def change(self, word: str) -> None:
        """Carry one change out. Raises :class:`InvalidRequestError` if it changes nothing, or is refused."""
        number = int(word[1:])
        assert self.voters is not None
        if word[0] == "v":
            self.voters = self.voters.add(voter(number))
        elif word[0] in "lr":
            self.voters = self.voters.remove(key(number))
        else:
            self.voters = self.voters.update(voter(number))


def key(number: int) -> ReplicaKey:
    """Return the key of a node of the tables."""
    return ReplicaKey(number, f"{number:022}")


def voter(number: int) -> Voter:
    """Return a node of the tables as a voter."""
    return Voter.at(key(number), f"controller-{number}")


def expected_ids(case: Case) -> list[int] | None:
    """Return the voters that a case expects; None if it expects an error."""
    found = re.match(r"voters=\(([\d ]*)\)", case.expected[0])
    return None if found is None else [int(one) for one in found[1].split()]


def judged(case: Case, voters: Voters) -> Iterator[str]:
    """Check one case; yield the reason if it is passed over."""
    words = [word for line in case.input for word in line.split()]
    changes = voters.changing(words)
    expected = expected_ids(case)
    if case.command != "simple":
        yield f"{case.command} is of joint quorums"
    elif voters.voters is None and changes:
        yield "the first voter is made by formatting"
    elif len(changes) > 1:
        yield f"{len(changes)} voters change at once"
    else:
        before = voters.ids
        for word in words:
            if word in changes:
                if expected is None:
                    with pytest.raises(InvalidRequestError, match="last voter"):
                        voters.change(word)
                    assert voters.ids == before, case
                else:
                    voters.change(word)
            elif word[0] == "u" and int(word[1:]) in voters.ids:
                voters.change(word)
            elif voters.voters is not None:
                # It changes nothing: etcd ignores it, and here it is refused by name.
                with pytest.raises(InvalidRequestError):
                    voters.change(word)
        assert expected is None or voters.ids == expected, case
        return
    if expected is not None:
        voters.set_to(expected)


@pytest.mark.parametrize("name", CONFCHANGES)
def test_change_of_one_voter(tables: Path, name: str) -> None:
    """A change of one voter leads to etcd's voters, and the last voter cannot be removed."""
    voters, seen, passed = Voters(), 0, 0
    for case in cases(tables / f"confchange/testdata/{name}.txt"):
        reasons = list(judged(case, voters))
        for reason in reasons:
            print(f"passed over: {case.place}: {' '.join(case.input)}: {reason}")
        seen += not reasons
        passed += bool(reasons)
    assert seen or name == "zero"
    print(f"{name}: {seen} cases agree, {passed} passed over")
