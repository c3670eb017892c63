"""The command line's grammar: parsers that suggest the nearest name, and the types of values that several commands
take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from pyreplog.cli.output import printable, say
from pyreplog.config import INT64_MAX, MAX_BATCH_BYTES, PERMISSIONS, meant, suggestion
from pyreplog.log import ISOLATIONS, READ_UNCOMMITTED

__all__ = [
    "EXIT_DAMAGED",
    "EXIT_FAILED",
    "EXIT_OK",
    "EXIT_USAGE",
    "EXIT_WARNED",
    "Parser",
    "add_mapping",
    "add_opening",
    "add_path",
    "add_permissions",
    "add_progress",
    "add_range",
    "add_selection",
    "add_shape",
    "add_text",
    "is_reversed",
    "number",
    "offset",
    "place",
    "seconds",
    "timestamp",
    "timestamp_of",
]

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_DAMAGED: Final = 3
EXIT_WARNED: Final = 4


class Parser(argparse.ArgumentParser):
    """An argument parser that never guesses an abbreviation and names the nearest known command or option."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.suggest_on_error = False  # Python's own words for it, given unasked since 3.15

    def error(self, message: str) -> NoReturn:
        """Print the error and the command for help on standard error, and exit with code 2."""
        choice = re.search(r"invalid choice: '([^']*)' \(choose from ([^)]*)\)", message)
        if choice is not None:
            message += meant(choice[1], (word.strip("' ") for word in choice[2].split(",")))
        self.exit(EXIT_USAGE, f"{self.prog}: {printable(message)}\nTry '{self.prog} --help'.\n")

    def has_option(self, name: str) -> bool:
        """Whether ``name`` is one of its options, dashes and all."""
        return name in self._option_string_actions

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """REQUIRES: ``words`` are what parsing left over. Exits with 2 when there are any."""
        for word in words:
            if word.startswith("-"):
                name = word.partition("=")[0]
                self.error(f"unknown option {name!r}{suggestion(name, tuple(self._option_string_actions))}")
            self.error(f"unexpected argument {word!r}")


def number(text: str, what: str = "a whole number from 0") -> int:
    """Return a whole number from 0; ``what`` describes the right value in the error."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def place(text: str) -> str:
    """Return a path. An empty path is refused, because it may come from a variable of the shell that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: name a folder")
    if text == "-":
        raise argparse.ArgumentTypeError("'-' is standard input, and a folder belongs here (one of that name is ./-)")
    return text


def offset(text: str) -> int:
    """An offset: a whole number from 0."""
    return number(text, "an offset (a whole number from 0)")


def seconds(text: str) -> float:
    """A span of time: a number from 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0")
    return value


def timestamp(text: str) -> int:
    """A moment, in ms since 1970: a whole number of ms, or ISO 8601 with its zone."""
    try:
        return timestamp_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


DIGITS_MAX: Final = 19
"""Digits of the largest whole number of 64 bits."""


def timestamp_of(text: str) -> int:
    """As :func:`timestamp`; raises ValueError with the reason."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        value = int(text) if len(digits) <= DIGITS_MAX else INT64_MAX + 1
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a time: give ms since 1970, or ISO 8601 such as 2013-07-04T00:00:00Z"
            ) from None
        if moment.tzinfo is None:
            raise ValueError(
                f"{text!r} has no time zone: write {moment.isoformat()}Z for UTC, or an offset such as +02:00"
            )
        value = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
        if value < 0:  # -1 ms too: it is a time, and only the number -1 means that there is none
            raise ValueError(f"{text!r} is before 1970, when timestamps begin")
    if not -1 <= value <= INT64_MAX:
        raise ValueError(f"{text!r} is outside a record's range (0 to {INT64_MAX} ms since 1970, -1 for none)")
    return value


_MILLISECOND: Final = datetime(1970, 1, 1, 0, 0, 0, 1000) - datetime(1970, 1, 1)


def add_path(parser: argparse.ArgumentParser, *, written: bool = False, several: bool = False) -> None:
    """Add the folder argument that every command has. ``written``: the command appends to it. ``several``: a list
    of folders."""
    read = "a log's folder, a cluster's folder, a bare partition folder, or a Kafka broker's log.dirs folder"
    appended = "a log's folder, which is made if it is missing, a cluster's folder, or a Kafka broker's log.dirs folder"
    many: dict[str, Any] = {"nargs": "+"} if several else {}
    parser.add_argument("path", metavar="PATH", type=place, help=appended if written else read, **many)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """``--topic`` and ``--partition``."""
    parser.add_argument("--topic", metavar="NAME", help="only this topic (default: all)")
    parser.add_argument("--partition", metavar="N", type=number, help="only this partition (default: all)")


def add_range(parser: argparse.ArgumentParser) -> None:
    """``--start``, ``--end``, their times, and ``--isolation``."""
    parser.add_argument(
        "--start",
        metavar="OFFSET",
        type=offset,
        default=0,
        help="first offset in each partition (default: its start)",
    )
    parser.add_argument(
        "--end",
        metavar="OFFSET",
        type=offset,
        default=INT64_MAX,
        help="stop before this offset (default: the high watermark)",
    )
    parser.add_argument(
        "--start-timestamp",
        metavar="TIME",
        type=timestamp,
        help="only records at or after TIME: ms since 1970, or ISO 8601 with its zone",
    )
    parser.add_argument("--end-timestamp", metavar="TIME", type=timestamp, help="only records before TIME")
    parser.add_argument(
        "--isolation",
        choices=ISOLATIONS,
        default=READ_UNCOMMITTED,
        help=(
            "read_committed leaves out aborted records and ends at the last stable offset (default: read_uncommitted)"
        ),
    )
    parser.add_argument(
        "--above-high-watermark",
        action="store_true",
        help=(
            "read up to the last whole batch: records above a stale high watermark too, which no acknowledgement"
            " vouches for"
        ),
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """``--max-batch-bytes``."""
    parser.add_argument(
        "--max-batch-bytes",
        metavar="N",
        type=number,
        default=MAX_BATCH_BYTES,
        help="unpack at most N bytes of one compressed batch, in parts (default: 1 GiB); a larger batch is refused",
    )


def add_skipping(parser: argparse.ArgumentParser) -> None:
    """``--skip-damaged``."""
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        help="leave out damaged batches, tell their offsets, go on behind them, and end with exit code 3",
    )


def is_reversed(arguments: argparse.Namespace) -> bool:
    """Return whether the range of :func:`add_range` ends before it begins, and print that."""
    for first, last in (("start", "end"), ("start_timestamp", "end_timestamp")):
        start, end = getattr(arguments, first), getattr(arguments, last)
        if start is not None and end is not None and start > end:
            names = [f"--{name.replace('_', '-')}" for name in (first, last)]
            say(
                f"replog {arguments.command}: {names[0]} {start} lies behind {names[1]} {end}: exchange them, or leave"
                " one of them out"
            )
            return True
    return False


def add_shape(parser: argparse.ArgumentParser) -> None:
    """``--values`` and ``--json``, of those that print records."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--values", action="store_true", help="print only the values, one per line, as they are (escaped on a terminal)"
    )
    either.add_argument(
        "--json", action="store_true", help="one JSON object per record: the default output without --values"
    )


def add_mapping(parser: argparse.ArgumentParser) -> None:
    """Which fields of a row are what."""
    parser.add_argument("--value-field", metavar="NAME", help="the field that is the value; '*' is the row as a whole")
    parser.add_argument("--key-field", metavar="NAME", help="the field that is the key")
    parser.add_argument(
        "--timestamp-field", metavar="NAME", help="the field with the time: ms since 1970, or ISO 8601 with its zone"
    )
    parser.add_argument("--headers-field", metavar="NAME", help="the field with the headers")
    parser.add_argument("--partition-field", metavar="NAME", help="the field with the partition's number")


def add_permissions(parser: argparse.ArgumentParser) -> None:
    """``--permissions``, of the commands that write a log."""
    parser.add_argument(
        "--permissions",
        choices=PERMISSIONS,
        default="owner",
        help=(
            "which folders are written to, and the modes of new ones: owner (default; 0700, files 0600), group (folders"
            " that a group of this process may write to; 0770, files 0660), any (no check; the umask decides)"
        ),
    )


def add_text(parser: argparse.ArgumentParser) -> None:
    """``--delimiter`` and ``--encoding``, of the commands that take files of text."""
    parser.add_argument(
        "--delimiter",
        metavar="CHAR",
        type=delimiter,
        help=(
            r"the separator of CSV columns, such as ';' or '\t' (default: the one in a first line such as sep=;,"
            r" else a comma)"
        ),
    )
    parser.add_argument(
        "--encoding",
        metavar="NAME",
        type=encoding,
        help="of CSV and NDJSON, such as latin-1 or cp1252 (default: utf-8)",
    )


def delimiter(text: str) -> str:
    """One character that can separate columns; ``\\t`` and ``tab`` are a tab."""
    found = "\t" if text in (r"\t", "tab") else text
    if len(found) != 1 or found in '"\r\n':
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one character that can separate columns, such as ';' or '\\t'"
        )
    return found


def encoding(text: str) -> str:
    """The name of an encoding of text in which a line ends as in ASCII."""
    try:
        ends_as_ascii = "\n".encode(text) == b"\n"
    except (LookupError, UnicodeError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no encoding of text that Python knows, such as latin-1 or cp1252"
        ) from None
    if not ends_as_ascii:
        raise argparse.ArgumentTypeError(
            f"lines in {text} do not end as in ASCII: convert it first, with `iconv -f {text} -t utf-8`"
        )
    return text


def add_opening(parser: argparse.ArgumentParser) -> None:
    """``--partition``, ``--permissions`` and ``--lock-timeout``, of the commands that open a log or a cluster for
    writing."""
    parser.add_argument(
        "--partition",
        metavar="N",
        type=number,
        help="append to this partition (default: the only one of a log, 0 of a new one; in a cluster the key decides)",
    )
    add_permissions(parser)
    parser.add_argument(
        "--lock-timeout",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="wait so long for another process to close the log (default: 0)",
    )


def add_progress(parser: argparse.ArgumentParser) -> None:
    """``--progress``."""
    parser.add_argument(
        "--progress",
        action="store_true",
        help="tell each second on standard error how far it is, also when that is no terminal",
    )
