"""Fixtures of the command's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyreplog
from tests.unit.cli.support import Replog


@pytest.fixture
def replog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Replog:
    """The command."""
    return Replog(capfd, monkeypatch)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A log with ten records, a key, a header, times one second apart, and one value that is no text."""
    path = tmp_path / "events"
    with pyreplog.open_log(path, durability="os") as log:
        log.append(b"zero", key=b"k", headers=[("h", b"x"), ("h", None)], timestamp=1_000)
        log.append_many(
            [b"%d" % number for number in range(1, 9)], timestamps=[1000 + 1000 * number for number in range(1, 9)]
        )
        log.append(b"\xff\x00", timestamp=10_000)
    return path
