"""Every script says what it says. ``pytest tests/replication/scenarios --rewrite`` brings the expected lines up to
date; read what changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.replication.scenarios.language import play

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    """The lines below each command are what it says; nothing it says is a broken rule."""
    expected = path.read_text()
    found = play(expected)
    if request.config.getoption("--rewrite"):
        path.write_text(found)
        expected = found
    assert found == expected, f"pytest tests/replication/scenarios -k {path.stem} --rewrite"
    assert "broken rule" not in found
    assert re.match(rf"# {path.stem}: ", found), "the first line is the script's name and what it is about"


def test_every_schedule_has_a_script() -> None:
    """The walk, the examples, F1 to F42 and N1 to N3."""
    names = [path.stem for path in SCRIPTS]
    wanted = ["walk", "ends-9-7-6", "ends-15-3-4", *(f"F{number}" for number in range(1, 43)), "N1", "N2", "N3"]
    assert [name for name in wanted if name not in names] == []
