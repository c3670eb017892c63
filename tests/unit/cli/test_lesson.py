"""``replog lesson``: lists, tells and draws; the first design loses what ours keeps."""

from __future__ import annotations

import json

import pytest

from pyreplog.cli.main import main
from pyreplog.testing.known_bad import CLUSTERS, KNOWN_BAD
from pyreplog.testing.lessons import LESSONS


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints."""
    assert main(["lesson", *words]) == 0
    return capsys.readouterr().out


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name there is the list; with --all the known-bad rules, too."""
    assert [line.split()[0] for line in told(capsys).splitlines()] == list(LESSONS)
    assert [line.split()[0] for line in told(capsys, "--all").splitlines()] == [*LESSONS, *KNOWN_BAD, *CLUSTERS]
    assert (
        "ShrinksEarly                 A smaller in-sync set is used before the controller has confirmed it.\n"
        in told(capsys, "--all")
    )


def test_a_committed_record_is_lost_and_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """F1: at the end of the first telling m2 is on no node, at the end of the second on both."""
    first, second = told(capsys, "hw-truncation").split("With leader epochs")
    assert "m2/0 |" in first
    assert [line for line in first.split("6. ")[1].splitlines() if "m2/" in line] == []
    assert len([line for line in second.split("6. ")[1].splitlines() if "m2/0 m3/2 |" in line]) == 2


def test_two_replicas_part_and_agree(capsys: pytest.CaptureFixture[str]) -> None:
    """F2: two values stand at one offset at the end of the first telling, one at the end of the second."""
    first, second = told(capsys, "divergence").split("With leader epochs")
    assert "m1/0 m2/0 m4/2 |" in first
    assert "m1/0 m3/2 m4/2 |" in first
    assert len([line for line in second.split("7. ")[1].splitlines() if "m1/0 m3/2 m4/2 |" in line]) == 2


def test_known_bad_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """A known-bad rule is played, and what breaks is named."""
    text = told(capsys, "ShrinksEarly")
    assert "V6" in text
    assert "S7 (" in text
    assert "No invariant breaks" in told(capsys, "WaitsForFollowersToKnow")


def test_known_bad_rules_of_whole_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    """One that takes a whole cluster says what was done to that, and what breaks."""
    text = told(capsys, "ElectsOnce")
    assert "kill node 1" in text
    assert "L1 (every partition gets a leader) does not hold" in text


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json the list is one object per lesson, and a lesson one object with the lines that are told."""
    assert [json.loads(line)["lesson"] for line in told(capsys, "--all", "--json").splitlines()] == [
        *LESSONS,
        *KNOWN_BAD,
        *CLUSTERS,
    ]
    for name in ("divergence", "ShrinksEarly"):
        shown = json.loads(told(capsys, name, "--json"))
        assert shown["lesson"] == name
        assert "\n".join([*shown["lines"], ""]) == told(capsys, name)


def test_an_unknown_lesson(capsys: pytest.CaptureFixture[str]) -> None:
    """It is not understood, and the nearest name is suggested."""
    assert main(["lesson", "hw-truncatoin"]) == 2
    assert "hw-truncation" in capsys.readouterr().err
