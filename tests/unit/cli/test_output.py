"""What is printed cannot drive a terminal, and progress appears only when it should."""

from __future__ import annotations

import io
import json
import os
import re
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.cli.options import timestamp_of
from pyreplog.cli.output import ProgressBar, amount, counted, in_options, json_line, printable
from tests.unit.cli.support import Terminal

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(st.text(max_size=40))
def test_text_and_json_are_safe(text: str) -> None:
    """No control character or direction mark gets through, and JSON still means the same."""
    assert not UNSAFE.search(printable(text))
    line = json_line({"value": text})
    assert not UNSAFE.search(line)
    assert json.loads(line) == {"value": text}


def test_an_escape_sequence_is_shown_not_run() -> None:
    """A value that would clear the screen is printed as what it is."""
    assert printable("a\x1b[2Jb") == "a\\x1b[2Jb"
    assert json_line("\x9b2J") == '"\\u009b2J"'


def test_what_a_file_refuses_is_said_as_other_commands_say_it() -> None:
    """The path first, then what is wrong with it; no number of the system's."""
    assert in_options(FileNotFoundError(2, "there is no such folder; did you mean 'events'?", "event")) == (
        "event: there is no such folder; did you mean 'events'?"
    )
    assert in_options(OSError(28, "No space left on device")) == "No space left on device"


def test_amounts() -> None:
    """Sizes and counts read well."""
    assert [amount(size) for size in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [counted(count, "record") for count in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("-1", -1),
        ("1970-01-01T00:00:01Z", 1000),
        ("2013-07-04T02:00:00+02:00", 1_372_896_000_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    """A time is ms since 1970, or ISO 8601 with its zone."""
    assert timestamp_of(text) == expected


@pytest.mark.parametrize(
    "text", [" ", "soon", "2013-07-04", "2013-07-04T00:00:00", "1.5", "-2", "9" * 30, "1900-01-01T00:00:00Z"]
)
def test_bad_times(text: str) -> None:
    """What is no time, has no zone or cannot be stored is refused with its reason."""
    with pytest.raises(ValueError, match=re.escape(text)):
        timestamp_of(text)


def test_progress_appears_after_a_second() -> None:
    """Short work shows nothing; long work a line that is wiped at the end; nothing where nobody looks, unless
    asked."""
    now = [100.0]
    for stream, forced, shown in (
        (Terminal(), False, True),
        (io.StringIO(), False, False),
        (io.StringIO(), True, True),
    ):
        progress = ProgressBar("read", total=4000, forced=forced, stream=stream, clock=lambda: now[0])
        now[0] += 0.5
        progress.add(1000)
        assert stream.getvalue() == ""
        now[0] += 1.5
        progress.add(1000)
        assert ("read 2,000 of 4,000 (50 %) records, 1,000/s" in stream.getvalue()) is shown
        progress.close()
        if isinstance(stream, Terminal):
            assert stream.getvalue().endswith(" \r")


def test_progress_keeps_to_one_line_of_a_narrow_terminal() -> None:
    """What wraps into the next line would stay there, ten times a second."""
    now = [0.0]
    reader, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 30))
    with open(terminal, "w", encoding="utf-8") as stream, open(reader, "rb", buffering=0) as screen:
        progress = ProgressBar("node-1/events-0: recovered", total=4000, stream=stream, clock=lambda: now[0])
        for _ in range(3):
            now[0] += 1.5
            progress.add(1000)
        progress.close()
        stream.write("\0")
        stream.flush()
        shown = b""
        while not shown.endswith(b"\0"):  # a terminal gives what it has so far
            shown += screen.read(1000)
    lines = shown[:-1].decode().split("\r")
    assert {len(line) for line in lines} == {0, 29}
    assert lines[-2:] == [" " * 29, ""]
