"""The command as tests run it: in this process, with what it printed."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from pyreplog.cli.main import main


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


class Done:
    """One run of the command: exit code, standard output, standard error."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def objects(self) -> list[Any]:
        """The output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Replog:
    """Runs the command in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd, self._monkeypatch = capfd, monkeypatch

    @staticmethod
    def stdin(data: bytes) -> Any:
        """What stands for standard input."""
        return io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))

    def __call__(self, *words: object, stdin: bytes = b"") -> Done:
        """Run with ``words``."""
        self._monkeypatch.setattr(sys, "stdin", self.stdin(stdin))
        code = main([str(word) for word in words])
        out, err = self._capfd.readouterr()
        assert "Traceback" not in err
        return Done(code, out, err)
