"""The output of the command: text that cannot drive a terminal, JSON lines, and progress on standard error."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

from pyreplog.record import Record

__all__ = [
    "ProgressBar",
    "amount",
    "counted",
    "in_options",
    "json_line",
    "printable",
    "put_bytes",
    "record_fields",
    "say",
    "silence",
    "tell",
]

# Control characters (C0, DEL, C1), line separators, and the marks that turn the direction of text
# around.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# JSON has escaped C0 already. What stands for a byte in the name of a file that is no UTF-8 cannot
# be printed.
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def printable(text: str) -> str:
    """``text`` with everything that could drive a terminal written as an escape."""
    return _UNSAFE.sub(_escape, text.encode("utf-8", "backslashreplace").decode())


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def json_line(fields: object) -> str:
    """One line of JSON (no line end) that is safe on a terminal."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", _encode(fields))


def record_fields(record: Record) -> dict[str, Any]:
    """What ``cat`` prints of a record and ``append`` takes back. Bytes that are not UTF-8 stand under
    ``..._base64``."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    put_bytes(fields, "key", record.key)
    put_bytes(fields, "value", record.value)
    headers = record.headers
    if headers:
        fields["headers"] = [put_bytes({"key": key}, "value", value) for key, value in headers]
    return fields


def put_bytes(fields: dict[str, Any], name: str, data: bytes | None) -> dict[str, Any]:
    """Set ``fields[name]`` to ``data``, or ``NAME_base64`` if it is not UTF-8. Return ``fields``."""
    if data is None:
        fields[name] = None
        return fields
    try:
        fields[name] = data.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data).decode()
    return fields


def in_options(error: BaseException) -> str:
    """Return the text of ``error`` for a user of the command line: with options in place of Python's
    arguments, and for a file with the path in front, as other commands do.
    """
    text = getattr(error, "command_text", None)
    if isinstance(error, MemoryError):
        return "no memory is left: raise the limit of it (`ulimit -v`, a container's), or end other programs"
    if isinstance(error, OSError) and error.strerror and error.filename2 is None:
        text = text or error.strerror
        return text if error.filename is None else f"{error.filename}: {text}"
    return text or str(error)


def say(text: str) -> None:
    """One safe line on standard error."""
    _write(sys.stderr, printable(text) + "\n")


def tell(line: str) -> None:
    """Print one line about the result on standard output. If its reader has ended (`| head -1`), the work goes on,
    and its exit code holds."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        silence(sys.stdout)


def _write(stream: TextIO, text: str) -> None:
    """Print a line beside the results. If ``stream`` cannot be written any more, the work goes on."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        silence(stream)


def silence(stream: TextIO) -> None:
    """Discard the rest of ``stream``, whose reader has ended, so that Python does not report it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def amount(size: int) -> str:
    """Bytes for people: ``1.5 MiB``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _columns(terminal: TextIO) -> int:
    """Return the present width of ``terminal``; 80 if it is unknown."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


class ProgressBar:
    """A line on standard error for work longer than a second: rewritten in place on a terminal, printed each second
    with ``--progress``.

    Belongs to one thread. ``total`` 0: unknown. ``sized``: bytes are counted, not ``noun``. ``beside``: the command
    also prints results, which show the progress on a terminal.
    """

    def __init__(
        self,
        verb: str,
        *,
        total: int = 0,
        forced: bool = False,
        sized: bool = False,
        noun: str = "records",
        beside: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sized = sized
        self._noun = noun
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._shown = forced or (self._terminal and not (beside and sys.stdout.isatty()))
        self._verb = verb
        self._total = total
        self._clock = clock
        self._started = clock()
        self._next = self._started + 1.0
        self._width = 0
        self._before = 0
        self._offset = 0
        self._passed = 0
        self.count = 0

    def begin(self, offset: int) -> None:
        """Begin a log at ``offset``: :meth:`add` then says up to where its records were read."""
        self._offset = offset

    def add(self, count: int, end: int | None = None) -> None:
        """``count`` more are done. ``end``: ``total`` counts offsets, and the log was read up to this one. Offsets
        without a record count as passed."""
        self.count += count
        self._passed += count if end is None else end - self._offset
        if end is not None:
            self._offset = end
        if self._shown and self._clock() >= self._next:
            self._next = self._clock() + (0.1 if self._terminal else 1.0)
            self._print(self._line())

    def turn(self, verb: str, total: int) -> None:
        """Begin another part of the same work."""
        self._before += self.count
        self._verb, self._total, self.count, self._passed = verb, total, 0, 0

    def _line(self) -> str:
        speed = (self._before + self.count) / (self._clock() - self._started)
        # Beside a live writer there may be more than there was at first: how much in all is not
        # known then.
        known = 0 < self._total >= self._passed
        share = f" ({100 * self._passed / self._total:.0f} %)" if known else ""
        if self._sized:
            part = f" of {amount(self._total)}{share}" if known else ""
            return f"{self._verb} {amount(self.count)}{part}, {amount(int(speed))}/s"
        # With gaps the number of records in all is not known.
        part = share if self._passed != self.count else f" of {self._total:,}{share}" if known else ""
        return f"{self._verb} {self.count:,}{part} {self._noun}, {speed:,.0f}/s"

    def _print(self, line: str) -> None:
        if self._terminal:
            room = _columns(self._stream) - 1  # what wraps is not wiped
            _write(self._stream, "\r" + line.ljust(self._width)[:room])
            self._width = min(len(line), room)
        else:
            _write(self._stream, line + "\n")

    def close(self) -> None:
        """Clear the line, so that the next output stands alone."""
        if self._width:
            _write(self._stream, "\r" + " " * self._width + "\r")
            self._width = 0
